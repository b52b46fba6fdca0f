"""Keep a feed's lines open: what may be started again when they fail, and when."""

from __future__ import annotations

from collections.abc import Callable
from errno import EADDRNOTAVAIL, EIO, ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENOMEM, ENXIO

from udpfast.agents.feed.backoff import Backoff
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.errors import ConfigError

__all__ = ["FeedKeeper"]

#: Errors of lines whose network is gone for now. Waiting helps against no other error.
PASSING = {EADDRNOTAVAIL, EIO, ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENOMEM, ENXIO}


class FeedKeeper:
    """Opens the lines of a subscriber again after a network error on all of them.

    The ring goes on meanwhile: its readers are told that nobody listens, and of the silence; then
    of the gap, and last that all was read. Any other error may mean memory that is not what it
    should be: the process ends then, and the next one begins afresh behind a RESTART.

    Parameters
    ----------
    subscriber : Subscriber
    say : callable
        Is told in a sentence what failed, and that it is over.
    """

    def __init__(self, subscriber: Subscriber, say: Callable[[str], None]) -> None:
        self._subscriber = subscriber
        self._say = say
        self._settings = subscriber.config.run
        self._backoff = Backoff(self._settings)
        self._began_ns = 0
        self._due_ns: int | None = None

    @property
    def waiting(self) -> bool:
        """Whether the lines are closed, and will be opened again."""
        return self._due_ns is not None

    def look(self, now_ns: int) -> BaseException | None:
        """Open the lines again if they failed and the time has come; return what ends it all."""
        subscriber = self._subscriber
        if self._due_ns is None:
            if not subscriber.ended:
                return None
            return self._plan(subscriber.failure or RuntimeError("the feed's loop ended"), now_ns)
        if now_ns < self._due_ns:
            subscriber.pass_time(now_ns)
            return None
        self._due_ns = None
        try:
            subscriber.reopen()
        except Exception as failure:
            # The settings were right when the feed began: an interface that they name is missing.
            return self._plan(failure, now_ns, isinstance(failure, ConfigError))
        self._say("all lines are open again")
        self._began_ns = now_ns
        return None

    def _plan(
        self, failure: BaseException, now_ns: int, passing: bool = False
    ) -> BaseException | None:
        wait_ns = self._backoff.ended(max(0, now_ns - self._began_ns))
        self._began_ns = now_ns + wait_ns
        passing = passing or (isinstance(failure, OSError) and failure.errno in PASSING)
        again = passing and self._backoff.in_a_row <= self._settings.feed_restarts
        self._subscriber.note_failure(failure, again)
        if not again:
            return failure
        self._due_ns = now_ns + wait_ns
        self._say(f"{failure}; reopening the lines in {wait_ns / 1e9:g} s")
        return None
