"""A feed that writes a bus's store, in the process of its host's daemon."""

from __future__ import annotations

from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.agents.feed.feed_keeper import FeedKeeper
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.config import FeedConfig
from udpfast.errors import ConfigError
from udpfast.shm.roster import AgentState

__all__ = ["BusFeed"]


class BusFeed:
    """Receive a feed into a store that the daemon keeps and that other hosts copy.

    Parameters
    ----------
    config : FeedConfig
        The feed's settings.
    disk : StoreDisk
        The store, open for writing.

    Attributes
    ----------
    started : bool
        `start` was called.

    Raises
    ------
    ConfigError
        The feed's file does not say that the feed writes this store.
    """

    def __init__(self, config: FeedConfig, disk: StoreDisk) -> None:
        where = f"stores.{disk.name}.feed"
        if config.output != "store":
            raise ConfigError(
                f'{where}: expected a feed with output = "store", found {config.output!r}'
            )
        if config.name != disk.name:
            raise ConfigError(
                f"{where}: expected the feed's name to be that of the store, {disk.name!r}, found "
                f"{config.name!r}"
            )
        if config.store != type(config.store)():
            raise ConfigError(
                f"{where}: expected no table [store] in the feed's file, because bus.toml has the "
                "store's settings, found one"
            )
        self._disk = disk
        self._subscriber = Subscriber(config, disk)
        self._keeper = FeedKeeper(self._subscriber, disk.store.said.append)
        self._failure = ""
        self.started = False

    def start(self) -> None:
        """Open the feed's lines, once this host has the store; see `Subscriber.start`."""
        self.started = True
        self._subscriber.start()
        self._disk.store.said.extend(self._subscriber.notes)

    def look(self, now_ns: int) -> None:
        """Reopen lines that failed; end the feed if another host writes the store now."""
        if self._failure or not self.started:
            return
        failure = self._keeper.look(now_ns)
        self._disk.store.said.extend(self._subscriber.take_events())
        if failure is not None:
            self._end(str(failure) or type(failure).__name__)
        elif not self._disk.store.writer:
            self._end("another host writes the store")

    def _end(self, why: str) -> None:
        self._failure = why
        self._disk.store.said.append(f"the feed has stopped: {why}")
        self._subscriber.stop()

    def description(self) -> dict[str, object]:
        """Return the state of the feed, and why it failed, if it did."""
        feed = self._subscriber.agents[0]
        state = AgentState.FAILED if self._failure else feed.state
        return {"state": state.name.lower(), "failure": self._failure or feed.failure}

    def stop(self) -> None:
        """End the feed. Idempotent."""
        self._subscriber.stop()
