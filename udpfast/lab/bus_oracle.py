"""What must hold of a bus, whatever happens to it: checked from the bytes alone.

Nothing of `udpfast.bus` is used to judge: records, checksums, numbers and epochs are read here a
second time, slowly and obviously.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Oracle", "Wrong"]

_HEADER = struct.Struct("<iBBHQQqqQIiHHI")
_SENDER = struct.Struct("<IIQQQQ32s32s")
_BUS, _SENDERS, _PAD = 48, (49, 50), 1


class Wrong(AssertionError):  # noqa: N818
    """A promise was broken."""


def _table() -> list[int]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        table.append(state)
    return table


_CRC = _table()


def checksum(record: bytes) -> int:
    """Return the CRC32C of a record, its own checksum taken as 0."""
    state = 0xFFFFFFFF
    for byte in record[:60] + bytes(4) + record[64:]:
        state = _CRC[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


@dataclass
class View:
    """What is known of one host's copy."""

    end: int = 0
    index: int = 0
    stamp: int = -1
    seen: int = 0  # what readers of this host were shown
    places: list[tuple[int, int]] = field(default_factory=list)  # (position, epoch) of all records
    next: dict[tuple[int, int], int] = field(default_factory=dict)
    names: dict[tuple[int, int], int] = field(default_factory=dict)  # sender -> nonce of its outbox
    first: bool = True


class Oracle:
    """Looks at every host after every step.

    Attributes
    ----------
    truth : dict
        (epoch, position) -> the record that was written there.
    accepted : dict
        Nonce of an outbox -> payloads that `send` accepted, in order.
    """

    def __init__(self) -> None:
        self.truth: dict[tuple[int, int], bytes] = {}
        self.accepted: dict[int, list[bytes]] = {}
        self.views: dict[str, View] = {}
        self.owners: dict[int, str] = {}  # who wrote an epoch
        self.shown: dict[tuple[int, int], str] = {}  # records that somebody's readers were shown
        self.checked = 0

    def forget(self, host: str, end: int) -> None:
        """Take note that a host lost, or set aside, its records from a position on."""
        old = self.views.get(host)
        if old is None:
            return
        view = View(seen=min(old.seen, end))
        for position, epoch in old.places:
            if position >= end:
                break
            view.places.append((position, epoch))
            if view.first:
                view.end, view.first = position, False
                view.index = int.from_bytes(self.truth[epoch, position][16:24], "little")
            self._follow(view, self.truth[epoch, position], host)
        self.views[host] = view

    def forget_all(self, host: str) -> None:
        """Take note that a host's copy was wiped."""
        self.views.pop(host, None)

    def look(self, host: str, store: Any, sequencer: Any) -> None:
        """Check a host's copy: what is new in it, and what it says of itself."""
        view = self.views.setdefault(host, View())
        log = store.log
        end = log.end
        if end < view.end:
            raise Wrong(f"I3 {host}: ended at {view.end}, now at {end}, and nothing was set aside")
        if view.first and end:
            view.end, view.index = log.first()
        view.first = view.first and not end
        for record in log.records(view.end, end):
            self._record(host, view, store, record)
        if view.end != end:
            raise Wrong(f"I3 {host}: says that it ends at {end}, its records end at {view.end}")
        if log.synced() > end:
            raise Wrong(f"I4 {host}: {log.synced()} synced of {end}")
        released = store.released
        if released > end:
            raise Wrong(f"I4 {host}: {released} released of {end}")
        if released > view.seen:
            for position, epoch in reversed(view.places):
                if position < view.seen:
                    break
                if position < released:
                    self.shown.setdefault((epoch, position), host)
            view.seen = released
        if sequencer is not None:
            total = sum(sequencer.verdicts.values()) + sequencer.held
            if total != sequencer.received:
                raise Wrong(f"I11 {host}: received {sequencer.received}, verdicts {total}")

    def _record(self, host: str, view: View, store: Any, record: bytes) -> None:
        epoch = 0
        for begun, start in store.lineage.pairs:
            if start <= view.end:
                epoch = begun
        position = view.end
        known = self.truth.get((epoch, position))
        if known is None:
            if self.owners.setdefault(epoch, host) != host:
                raise Wrong(f"I2 {host}: a record at {position} of epoch {epoch:x} that its writer "
                            "did not write")  # fmt: skip
            # Of long ones now and then: this is slow on purpose.
            looked = len(record) < 400 or position % 64 == 0
            if looked and record[60:64] != checksum(record).to_bytes(4, "little"):
                raise Wrong(f"I3 {host}: the record at {position} has a wrong checksum")
            self.truth[epoch, position] = record
        elif known != record:
            raise Wrong(f"I1 {host}: two records at {position} of epoch {epoch:x}")
        view.places.append((position, epoch))
        self._follow(view, record, host)
        self.checked += 1

    def _follow(self, view: View, record: bytes, host: str) -> None:
        length, kind, _, _, position, index, _, stamp, number, sender, incarnation, *_ = (
            _HEADER.unpack_from(record)
        )
        if view.end and (position, index) != (view.end, view.index):
            raise Wrong(f"I2 {host}: record {index} at {position}, expected {view.index} at "
                        f"{view.end}")  # fmt: skip
        if stamp <= view.stamp:
            raise Wrong(f"I7 {host}: stamp {stamp} at {position} behind {view.stamp}")
        view.stamp = stamp
        view.end, view.index = position + len(record), index + 1
        if kind == _BUS:
            key = sender, incarnation & 0xFFFFFFFF
            expected = view.next.get(key)
            if expected is not None and number != expected:
                raise Wrong(f"I5 {host}: number {number} of {key} at {position}, expected "
                            f"{expected}")  # fmt: skip
            view.next[key] = number + 1
            nonce = view.names.get(key)
            if nonce is None:
                raise Wrong(f"I5 {host}: a message of {key} at {position}, which is unknown")
            payloads = self.accepted[nonce]
            if number > len(payloads) or payloads[number - 1] != record[64:length]:
                raise Wrong(f"I6 {host}: message {number} of {key} is not what was accepted")
        elif kind in _SENDERS:
            for at in range(64, length, _SENDER.size):
                sender, incarnation, following, _, nonce, _, _, _ = _SENDER.unpack_from(record, at)
                key = sender, incarnation
                if view.next.setdefault(key, following) != following:
                    raise Wrong(f"I5 {host}: SENDERS at {position} says {following} of {key}, "
                                f"expected {view.next[key]}")  # fmt: skip
                if view.names.setdefault(key, nonce) != nonce:
                    raise Wrong(f"I5 {host}: two outboxes are {key}")

    def sequenced(self, host: str) -> dict[int, int]:
        """Return how many messages of each outbox a host's copy has, by the outbox's nonce."""
        view = self.views[host]
        return {nonce: view.next[key] - 1 for key, nonce in view.names.items()}
