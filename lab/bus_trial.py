"""A bus of real daemons under faults, with apps that send all the time, and its checks."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from udpfast.archive.store import StoreView
from udpfast.cli.bus_hosts import BusCopy, BusHosts
from udpfast.client.app import App
from udpfast.client.record import ReadRecord
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import OutboxFullError
from udpfast.net.ports import free_port

__all__ = ["HOSTS", "SETTINGS", "BusTrial", "expect"]

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2"}
#: Segments are small, so that some of the cuts and kills happen while a segment begins.
SETTINGS = 'sequencer = "S"\nreplicas = ["one"]\nresend_ms = 20\nsegment_bytes = 262144\n'
#: Size of the outbox of an app, in which messages wait while a copy is away.
OUTBOX: dict[str, Any] = {"slots": 1 << 14, "capacity_bytes": 1 << 24}
#: The most messages that an app sends at once, and the longest pause: a few hundred per second.
BURST, PAUSE_S = 40, 0.1


def expect(truth: object, what: str) -> None:
    """Raise `AssertionError` unless `truth` holds."""
    if not truth:
        raise AssertionError(f"expected: {what}")


def _was_removed(record: ReadRecord) -> bool:
    # Whether the record says that the store removed records before they were read.
    said = record.data if record.kind is Kind.LAPPED else None
    return said is not None and bool(said["reason"] == LappedReason.READER)


class _Talker:
    """An app in a thread, which sends until it is told to be quiet, and reads all the time."""

    def __init__(self, app: App, seed: int, pause_s: float, *, may_lap: bool) -> None:
        self.app = app
        self.problem = ""
        self.lapped = 0  # records that were removed before they were read
        self.read: dict[str | None, int] = {}  # sender -> last number
        self._rng = random.Random(seed)
        self._pause_s = pause_s
        self._may_lap = may_lap
        self._known: set[str | None] = set()  # senders with a message since the last such removal
        self._quiet = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._rng.random() * self._pause_s):
                for _ in range(0 if self._quiet.is_set() else self._rng.randint(1, BURST)):
                    size = self._rng.choice((0, 8, 100, 100, 300, 1388))
                    try:
                        self.app.send(self._rng.randbytes(size), 7)
                    except OutboxFullError:
                        break
                self._take()
        except Exception as problem:
            self.problem = repr(problem)

    def _take(self) -> None:
        for record in self.app.poll():
            if record.kind is Kind.BUS:
                expected = self.read.get(record.sender, 0) + 1
                # The removed records may include messages of this sender.
                skipped = bool(self.lapped) and record.sender not in self._known
                self._known.add(record.sender)
                known = record.number >= expected if skipped else record.number == expected
                if not known and not self.problem:
                    self.problem = (f"{self.app.name} read message {record.number} of "
                                    f"{record.sender}, not {expected}")  # fmt: skip
                self.read[record.sender] = record.number
            elif self._may_lap and _was_removed(record):
                self.lapped += record.lapped
                self._known.clear()
            elif record.kind in (Kind.ROLLBACK, Kind.LAPPED):
                self.problem = self.problem or f"{self.app.name} read {record}"

    def be_quiet(self) -> None:
        """Stop sending; continue to read."""
        self._quiet.set()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.app.close()


class BusTrial(BusHosts):
    """Hosts of a bus whose apps send all the time.

    Parameters
    ----------
    folder : pathlib.Path
    seed : int
    settings, hosts, sees, options, tables
        As for `BusHosts`. With `keep_segments`, an app that reads slowly may find that unread
        records were removed (LAPPED, READER). No other loss is accepted.
    port : int, optional
        Port of the bus; by default a free one.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        settings: str = SETTINGS,
        hosts: Mapping[str, str] = HOSTS,
        *,
        sees: Mapping[str, Mapping[str, str]] | None = None,
        port: int = 0,
        options: Sequence[str] = (),
        tables: str = "",
    ) -> None:
        super().__init__(
            folder, hosts, settings, port or free_port(), options=options, sees=sees,
            tables=tables,
        )  # fmt: skip
        self.rng = random.Random(seed)
        self._removes = "keep_segments" in settings
        self.talkers: dict[str, _Talker] = {}
        self.checked = dict.fromkeys(hosts, 0)  # host -> position up to which its copy was compared

    def start_all(self) -> None:
        """Start all daemons, and wait until they receive the stream."""
        for host in self.hosts:
            self.start(host)
        for host in self.hosts:
            self.wait_for_stream(host)

    def begin(self, *talkers: str, pause_s: float = PAUSE_S) -> None:
        """Start all daemons, and an app on each of these hosts; by default on all hosts."""
        self.start_all()
        for host in talkers or self.hosts:
            self.talkers[host] = _Talker(
                self.app(host, f"app-{host}", **OUTBOX), self.rng.getrandbits(64), pause_s,
                may_lap=self._removes,
            )  # fmt: skip

    def wait_for_stream(self, host: str) -> None:
        """Wait until the daemon of a host receives the stream."""
        self.until(functools.partial(self.follows, host), f"the stream on {host}", self.look)

    def follows(self, host: str) -> bool:
        """Whether the current daemon of a host receives the stream."""
        try:
            state = self.state(host)
        except FileNotFoundError:
            return False
        return bool(state["pid"] == self.daemons[host].pid and state["following"])

    def go_on(self, *hosts: str, records: int = 20) -> None:
        """Wait until the copies of some hosts, or of all, have more records."""
        before = {host: self.state(host)["records"] for host in hosts or self.hosts}
        self.until(
            lambda: all(self.state(host)["records"] >= known + records
                        for host, known in before.items()),
            f"more records on {', '.join(before)}", self.look,
        )  # fmt: skip

    def first(self, host: str) -> int:
        """Return the position of the first record that a copy still has."""
        return int(StoreView(self.path(host)).first()[0])

    def look(self) -> None:
        """Check that no app has read anything wrong."""
        for talker in self.talkers.values():
            expect(not talker.problem, f"no problem of an app, found {talker.problem}")

    def compare(self, host: str, source: str = "S") -> None:
        """Check that the new records of a copy are equal to those of its source."""
        first, until = self.checked[host], self.lives(host).end
        views = [StoreView(self.path(each)) for each in (host, source)]
        first = max(first, *(view.first()[0] for view in views))
        own, other = (list(view.records(first, until)) for view in views)
        expect(own == other, f"on {host} from {first} to {until} what {source} has")
        self.checked[host] = until

    def finish(self, *, forged: bool = False) -> dict[str, int]:
        """Stop the apps from sending, wait until every copy is complete, and check all copies.

        Parameters
        ----------
        forged : bool
            True: links carried falsified bytes, so that hosts refused some of them.

        Returns
        -------
        dict
            Counts of messages, records and bytes.
        """
        for talker in self.talkers.values():
            talker.be_quiet()
        self.until(self._is_settled, "all messages in all copies", self.look)
        accepted = {talker.app.name: talker.app.counts()["accepted"]
                    for talker in self.talkers.values()}  # fmt: skip
        self.until(
            lambda: all(talker.read == accepted for talker in self.talkers.values()),
            "all apps to have read all messages", self.look,
        )  # fmt: skip
        resent = sum(talker.app.counts()["resent"] for talker in self.talkers.values())
        for talker in self.talkers.values():
            talker.close()
        first, copies = self._read()
        expect(len({copy.sha256 for copy in copies.values()}) == 1, "the same SHA-256 on all hosts")
        one = next(iter(copies.values()))
        # A store may lack its oldest messages. What apps have read is compared above.
        expect(first or (one.in_order and one.messages == sum(accepted.values())),
               f"{sum(accepted.values())} messages, each once, in order; found {one.messages}, "
               f"{one.twice} twice")  # fmt: skip
        states = [self.state(host) for host in self.hosts]
        expect(not any(state["damaged"] or (state["unauthentic"] and not forged)
                       for state in states),
               "that nothing was damaged on its way")  # fmt: skip
        lapped = sum(talker.lapped for talker in self.talkers.values())
        return {"messages": one.messages, "records": one.records, "resent": resent,
                "lapped": lapped,
                "bytes": self.lives(next(iter(self.hosts))).end}  # fmt: skip

    def _read(self) -> tuple[int, dict[str, BusCopy]]:
        # Read again if segments were removed while the copies were read.
        while True:
            first = max(self.first(host) for host in self.hosts)
            copies = {host: self.copy(host, first) for host in self.hosts}
            if first == max(self.first(host) for host in self.hosts):
                return first, copies

    def _is_settled(self) -> bool:
        return self.are_equal() and self.is_quiet()

    def is_quiet(self) -> bool:
        """Whether the stream has all messages that apps have sent."""
        counts = [talker.app.counts() for talker in self.talkers.values()]
        return all(each["accepted"] == each["seen"] for each in counts)
