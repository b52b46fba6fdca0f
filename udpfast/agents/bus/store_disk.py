"""One store's directory on this host: its files, and the state shown to readers and tools.

One thread appends records: a sequencer's, a copy's or a feed's. Another thread keeps the disk.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path

from udpfast.archive.bus_files import (
    Live,
    LiveState,
    describe_store,
    make_shared,
    note_store,
    noted_store,
    take_outboxes,
)
from udpfast.archive.store import StoreLog
from udpfast.bus.log import Store
from udpfast.bus.release import Release
from udpfast.config.bus import StoreConfig
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.errors import UdpfastError, sentence
from udpfast.log.readers import ReaderInfo, list_readers, remove_dead_readers
from udpfast.page.words import moment
from udpfast.shm.lock import process_namespace, process_start
from udpfast.shm.wake import WakeRegion

__all__ = ["StoreDisk"]

_KEEP_S = 0.01
#: How many messages about a store are kept, and how many of them are shown.
SAID_KEPT = 100
SAID_SHOWN = 20


class StoreDisk:
    """A store's directory, open for writing.

    Parameters
    ----------
    directory : pathlib.Path
        The store's directory; created if it does not exist.
    name : str
        Name of the store.
    host : str
        Name of this host.
    settings : StoreConfig
        Settings of the store.
    create : bool
        Make a new store if there is none.
    fed : bool
        A feed's loop appends, and publishes the end of the records.
    group : str
        Group whose members may read, by name or number; empty: only the owner may.

    Attributes
    ----------
    log : StoreLog
    store : Store
    live : Live
        State for readers.
    wake : WakeRegion
        Wakes readers that sleep.
    problem : str
        What is wrong with the disk; empty: nothing.
    failing : str
        Why the loop that serves the store fails at some task; empty: it does not.
    removed, removed_lacked : int
        Number of segments removed, and of those that a replica still lacked.

    Raises
    ------
    ConfigError, OSError, RegionError, WriterExistsError
        As for `StoreLog`.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        host: str,
        settings: StoreConfig,
        *,
        create: bool,
        fed: bool = False,
        group: str = "",
    ) -> None:
        self.name, self.settings, self.written_by_feed = name, settings, fed
        self._by_feed = fed or bool(settings.feed)
        self.log = StoreLog(
            directory, name, segment_bytes=settings.segment_bytes, create=create,
            copied=len(settings.hosts) > 1, group=group,
        )  # fmt: skip
        self.directory = self.log.directory
        self.store = Store(
            self.log, host, gate=settings.gate, standbys=settings.standbys(host),
            followers=settings.followers(host), release=_release(settings),
        )  # fmt: skip
        self.live = Live(self.directory, create=True)
        self._shared = make_shared(self.directory, group)
        note_store(self._shared, self.directory)  # for tools that list all stores of a host
        self._take_outboxes()
        self.live.introduce(host, self._shared, by_feed=self._by_feed)
        self.wake = WakeRegion.create(self._shared)
        self._process = {
            "pid": os.getpid(),
            "pid_start": process_start(os.getpid()),
            "pid_namespace": process_namespace(),
        }
        self.problem = self.failing = ""
        self.removed = self.removed_lacked = 0
        self._cuts = self.live.cuts + 1
        self._flushed = -1
        self._told: deque[str] = deque(maxlen=SAID_SHOWN)  # with their times
        self._said = 0  # so many messages of the store's have been told
        self._say_notes()

    def _say_notes(self) -> None:
        self.store.said.extend(self.log.notes)
        self.log.notes.clear()

    def _take_outboxes(self) -> None:
        # Take over outboxes of apps that sent before the directory was renamed.
        before = self.live.shared
        was = None if before is None else noted_store(before)
        if was is not None and not was.exists():
            taken = take_outboxes(self.directory, before)
            if taken:
                self.store.said.append(f"took {taken} outboxes of {was}, which is now here")

    def keep(self, stopping: threading.Event) -> None:
        """Keep the disk until `stopping` is set: prepare space and pages, and sync records."""
        synced = 0.0
        while not stopping.wait(_KEEP_S):
            due = time.monotonic() - synced >= self.settings.sync_ms / 1000
            try:
                self.log.keep(due)
            except (OSError, UdpfastError) as problem:
                self.problem = sentence(problem)
                stopping.wait(0.1)
            else:
                self.problem = ""
            if due:
                synced = time.monotonic()

    @property
    def wakes_itself(self) -> bool:
        """Whether the appending thread wakes readers: a feed's loop does if there is no gate."""
        return self.written_by_feed and self.settings.gate == 0

    def remove_old(self) -> None:
        """Remove segments as the settings say.

        Segments that are not yet on the disk are kept. Those that a replica in `keep_for` lacks are
        removed only if there are more than `keep_most`.
        """
        settings, log = self.settings, self.log
        while settings.keep_segments and log.count > settings.keep_segments:
            lacked = log.second > self._kept_for()
            if lacked and not (settings.keep_most and log.count > settings.keep_most):
                return
            # The SENDERS record at the beginning of the next segment must be on the disk too.
            if log.second >= log.synced() or not log.remove_oldest():
                return
            self.removed += 1
            self.removed_lacked += lacked

    def _kept_for(self) -> int:
        # Return the position up to which the replicas that retention waits for have everything.
        store = self.store
        if not store.writer:
            return store.kept if self.settings.keep_for is None else store.kept_below()
        names = store.standbys if self.settings.keep_for is None else self.settings.keep_for
        return min((store.acks.get(host, (0, 0))[1] for host in names if host != store.host),
                   default=store.end)  # fmt: skip

    def tell(self, following: bool) -> None:
        """Publish the state of the store to readers and tools."""
        store, end, now_ns = self.store, self.store.end, monotonic_ns()
        self._say_notes()
        self.live.write(
            LiveState(
                now_ns, end, self.log.synced(), store.released, store.kept, store.epoch,
                store.promised, self._cuts + store.cuts, following, self.settings.gate,
            )
        )  # fmt: skip
        # Readers check for cuts before they read the end, so publish in that order.
        if end != self._flushed and not self.written_by_feed:
            self.store.flush()
            self._flushed = end
        if not self.wakes_itself:
            self.wake.turn(store.released, now_ns)

    def description(self) -> dict[str, object]:
        """Return the state of the store for `bus stat`."""
        store = self.store
        return {
            "store": self.name,
            "host": store.host,
            **self._process,
            "by_feed": self._by_feed,
            "writer": store.writer,
            "writer_host": store.writer_host,
            "epoch": f"{store.epoch:x}",
            "promised": f"{store.promised:x}",
            "end": store.end,
            "records": self.log.end_index,
            "synced": self.log.synced(),
            "released": store.released,
            "kept": store.kept,
            "let_go": store.let_go,
            "unprotected": self._unprotected(),
            "away": _away(store.release) if store.writer else [],
            "waits_for": store.waits_for(),
            "problem": self.problem or self.failing or store.damage,
            "dropped": self.log.dropped,
            "removed": self.removed,
            "removed_lacked": self.removed_lacked,
            "readers": self._readers(),
            "consumers": self.consumers(),
            "said": [*self._told, *_timed(store.said[self._said :])][-SAID_SHOWN:],
        }

    def take_said(self) -> list[str]:
        """Return the messages since the last call, which `description` shows with this time."""
        found = self.store.said[self._said :]
        if found:
            self._told.extend(_timed(found))
            heard = self._said + len(found)
            self._said = min(heard, SAID_KEPT)
            del self.store.said[: heard - self._said]
        return found

    def _unprotected(self) -> int:
        # Return how many records outboxes have let go although a standby lacks them.
        store = self.store
        if not store.unprotected_bytes:
            return 0
        first, behind = self.log.stands_at(store.kept), self.log.stands_at(store.let_go)
        end = self.log.end_index if behind is None else behind[0]
        return end - (self.log.first()[1] if first is None else first[0])

    def _readers(self) -> list[dict[str, object]]:
        # Return the living readers. What a killed process left behind says nothing about the store.
        found = list_readers(self._shared)
        if not all(reader.alive for reader in found):
            remove_dead_readers(self._shared)
        return [self._reader(reader) for reader in found if reader.alive]

    def _reader(self, reader: ReaderInfo) -> dict[str, object]:
        # The reader may meanwhile have read beyond the end that was seen here.
        return {
            "name": reader.name,
            "pid": reader.pid,
            "alive": reader.alive,
            "index": reader.index,
            "read": reader.read,
            "missed": reader.lapped,
            "lag_records": max(self.log.end_index - reader.index, 0),
            "lag_bytes": max(self.store.end - reader.position, 0),
            "lag_ms": self._age_ms(reader.position),
        }

    def _age_ms(self, position: int) -> int:
        # Age in ms of the record at a position, the first that a reader or copy lacks; 0: none.
        place = self.log.stands_at(position)
        return max(realtime_ns() - place[1], 0) // 1_000_000 if place else 0

    def consumers(self) -> dict[str, dict[str, object]]:
        """Return the state of the hosts that should copy from this one, and of those that do."""
        store = self.store
        wanted = store.standbys if store.writer else store.followers
        hosts = [*wanted, *(host for host in store.links if host not in wanted)]
        return {host: self._consumer(host) for host in hosts}

    def _consumer(self, host: str) -> dict[str, object]:
        # Return how far a copy is behind, as far as is known, even if it is not connected.
        store, log = self.store, self.log
        source = store.links.get(host)
        acked = source.acked if source is not None else store.acks.get(host, (None, None))[0]
        said: dict[str, object] = {"connected": source is not None, "acked": acked}
        if acked is None:
            return said
        said["lag_bytes"] = store.end - acked
        place = log.stands_at(acked)
        said["lag_records"] = log.end_index - place[0] if place else 0
        said["lag_ms"] = self._age_ms(acked)
        return said

    def end(self, description: dict[str, object], *, failed: bool = False) -> None:
        """Close the store. The appending thread has ended, by an error (`failed`) or in good order.

        `description` is the last state shown of it.
        """
        self.written_by_feed = False
        self.tell(following=False)
        self.wake.close()
        self.log.close(failed)
        describe_store(self.directory, {**description, "ended": not failed})


def _timed(said: list[str]) -> list[str]:
    when = moment(realtime_ns())
    return [f"{when}: {line}" for line in said]


def _away(release: Release) -> list[str]:
    # Name the copies that outboxes do not wait for.
    return [*release.away, *(f"hosts behind {host}" for host in release.above)]


def _release(settings: StoreConfig) -> Release:
    # Make the Release that decides for which standbys outboxes wait.
    copies = settings.release if isinstance(settings.release, int) else 0
    away_ms = settings.away_ms if settings.release == "disk" else 0
    return Release(copies=copies, away_ns=away_ms * 1_000_000, counted=settings.keep_for)
