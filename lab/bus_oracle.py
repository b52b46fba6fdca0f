"""The promises of a bus, which must hold whatever happens to it, checked from its bytes alone.

The oracle uses nothing of `udpfast.bus`. It reads records, checksums, numbers and epochs with code
of its own, which is slow and easy to verify.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Oracle", "Wrong"]

_HEADER = struct.Struct("<iBBHQQqqQIiHHI")
_SENT = struct.Struct("<IBBHQQIIQQ")
_SENDER = struct.Struct("<IIQQQQ32s32s")
_BUS, _SENDERS, _PAD = 48, (49, 50), 1
_S = 1_000_000_000
#: A writer holds messages that come at most so far ahead of the next one, and at most so many.
_AHEAD, _HELD = 4096, 8192
_RESEND_MAX_NS = 8 * _S


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
    """Return the CRC32C of a record, with 0 in place of its checksum."""
    state = 0xFFFFFFFF
    for byte in record[:60] + bytes(4) + record[64:]:
        state = _CRC[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


@dataclass
class View:
    """What the oracle knows of the copy of one host."""

    end: int = 0
    index: int = 0
    stamp: int = -1
    seen: int = 0  # position up to which readers of this host may have read
    places: list[tuple[int, int]] = field(default_factory=list)  # (position, epoch) of all records
    next: dict[tuple[int, int], int] = field(default_factory=dict)
    names: dict[tuple[int, int], int] = field(default_factory=dict)  # sender -> nonce of its outbox
    first: bool = True


@dataclass
class _Clock:
    """Limits of the clock of a writer: the host's monotonic clock, slewed by at most 500 ppm."""

    epoch: int
    now_ns: int
    least_ns: int
    most_ns: int

    def go_on(self, now_ns: int, unix_ns: int) -> None:
        """Move the limits to a later time."""
        elapsed = now_ns - self.now_ns
        self.now_ns = now_ns
        self.least_ns += elapsed - elapsed // 2000 - 1
        self.most_ns += elapsed + elapsed // 2000 + 1
        if unix_ns - self.least_ns > _S:  # the clock may have been set forward
            self.most_ns = max(self.most_ns, unix_ns)

    def stamped(self, host: str, last: int, stamp: int, unix_ns: int) -> None:
        """Check a time stamp: it is the time of the clock, or 1 ns later than the last stamp."""
        self.least_ns = max(self.least_ns, unix_ns - _S)
        if not max(self.least_ns, last + 1) <= stamp <= max(self.most_ns, last + 1):
            raise Wrong(f"I7 {host}: stamp {stamp} behind {last}, by a clock that says "
                        f"{self.least_ns} to {self.most_ns}")  # fmt: skip
        if stamp > last + 1:
            self.least_ns = self.most_ns = stamp


class Oracle:
    """Checks every host after every step.

    Attributes
    ----------
    truth : dict
        (epoch, position) -> record that was written there.
    accepted : dict
        Nonce of an outbox -> payloads that its `send` accepted, in order.
    """

    def __init__(self) -> None:
        self.truth: dict[tuple[int, int], bytes] = {}
        self.accepted: dict[int, list[bytes]] = {}
        self.views: dict[str, View] = {}
        self.holders: dict[tuple[int, int], set[str]] = {}  # hosts that have ever had a record
        self.written_ns: dict[tuple[int, int], int] = {}  # time of the writing of a record
        self.promised: dict[str, int] = {}  # host -> promised epoch; outlives processes
        self.messages: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.freed: dict[int, int] = {}  # nonce -> messages that its outbox let go
        self._clocks: dict[str, _Clock] = {}
        self._sent: dict[tuple[Any, ...], tuple[int, int]] = {}  # last time; times resent
        self.owners: dict[int, str] = {}  # epoch -> host that wrote it
        self.shown: dict[tuple[int, int], str] = {}  # record -> host whose readers saw it
        self.checked = 0
        self.duplicates = 0  # messages that a writer refused as duplicates
        self.resent = 0

    def forget(self, host: str, end: int) -> None:
        """Note that a host lost its records from a position on, or set them aside."""
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
            self._follow(view, self.truth[epoch, position], host, epoch)
        self.views[host] = view

    def forget_all(self, host: str) -> None:
        """Note that the copy of a host was wiped, and its promise with it."""
        self.views.pop(host, None)
        self.promised.pop(host, None)

    def one_store(self, identities: Iterable[bytes]) -> None:
        """Check that all hosts that have a store have the same one."""
        found = {identity for identity in identities if any(identity)}
        if len(found) > 1:
            raise Wrong(f"a second store was begun: {sorted(each.hex() for each in found)}")

    def look(self, host: str, store: Any, sequencer: Any, now_ns: int, unix_ns: int) -> None:
        """Check the copy of a host: its new records, and the numbers that the host reports."""
        view = self.views.setdefault(host, View())
        log = store.log
        end = log.end
        if end < view.end:
            raise Wrong(f"I3 {host}: ended at {view.end}, now at {end}, and nothing was set aside")
        if view.first and end:
            view.end, view.index = log.first()
        view.first = view.first and not end
        promised = self.promised.get(host, 0)
        clock = self._clock(host, store.epoch, now_ns, unix_ns) if sequencer is not None else None
        for record in log.records(view.end, end):
            last = view.stamp
            epoch = self._record(host, view, store, record, promised, now_ns)
            if clock is not None and clock.epoch == epoch:
                clock.stamped(host, last, view.stamp, unix_ns)
        self.promised[host] = max(promised, store.promised)
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
                    self._is_held(host, store, epoch, position)
                    self.shown.setdefault((epoch, position), host)
            view.seen = released
        if sequencer is not None:
            total = sum(sequencer.verdicts.values()) + sequencer.held
            if total != sequencer.received:
                raise Wrong(f"I11 {host}: received {sequencer.received}, verdicts {total}")

    def _record(
        self, host: str, view: View, store: Any, record: bytes, promised: int, now_ns: int
    ) -> int:
        # Return the epoch of a record that nobody had before, which this host wrote; or else 0.
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
            # `checksum` is slow: of long records only some are checked.
            looked = len(record) < 400 or position % 64 == 0
            if looked and record[60:64] != checksum(record).to_bytes(4, "little"):
                raise Wrong(f"I3 {host}: the record at {position} has a wrong checksum")
            self.truth[epoch, position] = record
            self.written_ns[epoch, position] = now_ns
            if epoch < promised:
                raise Wrong(f"{host}: writes epoch {epoch:x} and promised {promised:x}")
        elif known != record:
            raise Wrong(f"I1 {host}: two records at {position} of epoch {epoch:x}")
        view.places.append((position, epoch))
        self.holders.setdefault((epoch, position), set()).add(host)
        self._follow(view, record, host, epoch)
        self.checked += 1
        return epoch if known is None else 0

    def _clock(self, host: str, epoch: int, now_ns: int, unix_ns: int) -> _Clock:
        clock = self._clocks.get(host)
        if clock is None or clock.epoch != epoch:
            clock = self._clocks[host] = _Clock(epoch, now_ns, unix_ns, unix_ns)
        clock.go_on(now_ns, unix_ns)
        return clock

    def _follow(self, view: View, record: bytes, host: str, epoch: int) -> None:
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
            key = sender & 0xFFFF, incarnation & 0xFFFFFFFF
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
            places = self.messages[nonce, number]
            if (epoch, position) not in places:
                places.append((epoch, position))
        elif kind in _SENDERS:
            for at in range(64, length, _SENDER.size):
                sender, incarnation, following, _, nonce, _, _, _ = _SENDER.unpack_from(record, at)
                key = sender, incarnation
                if view.next.setdefault(key, following) != following:
                    raise Wrong(f"I5 {host}: SENDERS at {position} says {following} of {key}, "
                                f"expected {view.next[key]}")  # fmt: skip
                if view.names.setdefault(key, nonce) != nonce:
                    raise Wrong(f"I5 {host}: two outboxes are {key}")

    def _is_held(self, host: str, store: Any, epoch: int, position: int) -> None:
        copies = self.holders[epoch, position] - {self.owners[epoch]}
        if len(copies) < store.gate:
            raise Wrong(f"I4 {host}: shows the record at {position}, which {len(copies)} copies "
                        f"have, not {store.gate}")  # fmt: skip

    # --- messages that are let go, and promotions -------------------------------------------------

    def let_go(
        self,
        nonce: int,
        freed: int,
        hosts: set[str],
        disk: dict[str, int],
        excused: Container[tuple[int, int]] = (),
    ) -> bool:
        """Check that messages that an outbox lets go are safe; return whether all hosts have them.

        Parameters
        ----------
        nonce, freed : int
            Nonce of the outbox, and the number of its last message that is let go.
        hosts : set of str
            Hosts that must have the messages.
        disk : dict
            Host -> position up to which its disk has everything; used if there is only one host.
        excused : container of (int, int)
            Records (epoch, position) that are safe although not all hosts have them.
        """
        protected = True
        for number in range(self.freed.get(nonce, 0) + 1, freed + 1):
            places = self.messages.get((nonce, number), [])
            if len(hosts) == 1:
                safe = any(position < disk[host] for host in hosts for _, position in places)
            else:
                whole = any(hosts <= self.holders[place] for place in places)
                safe = whole or any(place in excused for place in places)
                protected = protected and whole
            if not safe:
                raise Wrong(
                    f"I6 message {number} of {nonce} is let go, and not safe: "
                    f"{[(place, sorted(self.holders[place])) for place in places]}"
                )
        self.freed[nonce] = max(self.freed.get(nonce, 0), freed)
        return protected

    def taken_over(self, host: str, epoch: int, reached: list[str]) -> None:
        """Check that a host that begins an epoch has all records of the hosts that it reached."""
        own = max((place[::-1] for place in self.views[host].places if place[1] < epoch),
                  default=(0, 0))  # fmt: skip
        last = [(self.views[other].places[-1][::-1], other) for other in reached
                if other in self.views and self.views[other].places]  # fmt: skip
        if last:
            (latest, position), other = max(last)
            if own < (latest, position) < (epoch, 0):
                raise Wrong(f"B16 {host}: begins epoch {epoch:x} without the record at {position} "
                            f"of epoch {latest:x}, which {other} has")  # fmt: skip

    def writes_on(self, host: str, epoch: int, known: dict[str, int]) -> None:
        """Check that a host that begins an epoch did not ignore a later epoch.

        Parameters
        ----------
        host : str
        epoch : int
        known : dict
            Other host -> epoch that it had promised before this host started and asked it.
        """
        for other, promised in known.items():
            if promised > epoch:
                raise Wrong(f"{host}: writes epoch {epoch:x}, although {other} had promised "
                            f"{promised:x} when it was started")  # fmt: skip

    # --- datagrams ------------------------------------------------------------------------------

    def sends(self, whose: tuple[Any, ...], data: bytes, now_ns: int, resend_ns: int) -> None:
        """Check that a message is not sent again too soon.

        Parameters
        ----------
        whose : tuple
            Identifies the outbox sender; it changes whenever the sender begins anew.
        """
        _, _, flags, count, _, _, sender, incarnation, first, _ = _SENT.unpack_from(data)
        if flags:
            return
        for number in range(first, first + count):
            key = (*whose, sender, incarnation, number)
            before = self._sent.get(key)
            times = 0
            if before is not None:
                last_ns, times = before[0], before[1] + 1
                self.resent += 1
                least = min(resend_ns << (times - 1), _RESEND_MAX_NS)
                if now_ns - last_ns < least:
                    raise Wrong(f"B15 message {number} of {whose} is sent again after "
                                f"{now_ns - last_ns} ns, not {least}")  # fmt: skip
            self._sent[key] = now_ns, times

    def expected(self, host: str, store: Any, data: bytes) -> tuple[str, int]:
        """Return the verdict on a datagram, and how often it counts; "": one for each message."""
        if len(data) < 48:
            return "MALFORMED", 1
        magic, version, flags, count, key, epoch, sender, incarnation, first, _ = _SENT.unpack_from(
            data
        )
        if magic != 0x444E5355 or version != 1 or flags > 1:
            return "MALFORMED", 1
        if flags:
            if len(data) != 48 + 72 or count:
                return "MALFORMED", 1
            units = 1
        else:
            sizes = _sizes(data[48:])
            if sizes is None or len(sizes) != count or first == 0:
                return "MALFORMED", 1
            units = max(count, 1)
        if key != int.from_bytes(store.identity[:8], "little"):
            return "UNKNOWN", units
        if not store.writer or epoch < store.lineage.pairs[-1][0] or epoch > store.promised:
            return "FENCED", units
        if flags:
            return "", 1
        known = [each for number, each in self.views[host].names if number == sender]
        if not known or incarnation > max(known):
            return "UNKNOWN", units
        return ("FENCED", units) if incarnation < max(known) else ("", units)

    def judged(self, host: str, data: bytes, expected: tuple[str, int], before: Any, after: Any
               ) -> None:  # fmt: skip
        """Check the verdicts of a writer on a datagram.

        Parameters
        ----------
        expected : (str, int)
            What `expected` returned before the writer had the datagram.
        before, after : tuple
            Verdicts by name, messages held, `next` of all senders.
        """
        verdicts = {name: after[0][name] - before[0][name] for name in after[0]}
        self.duplicates += verdicts["DUPLICATE"]
        what, units = expected
        if what:
            # The writer may write only what was due anyway: SENDERS at the end of a segment.
            if verdicts[what] != units or sum(verdicts.values()) != units or after[2] != before[2]:
                raise Wrong(f"I11 {host}: expected {units} {what}, found {verdicts}, next "
                            f"{before[2]} before and {after[2]} behind it")  # fmt: skip
            return
        refused = verdicts["UNKNOWN"] + verdicts["MALFORMED"]
        _, _, flags, count, _, _, sender, incarnation, first, _ = _SENT.unpack_from(data)
        if flags or not count:
            return
        following = before[2][sender, incarnation]
        there = min(max(following - first, 0), count)
        if refused + verdicts["FENCED"] or verdicts["DUPLICATE"] < there:
            raise Wrong(f"I11 {host}: {there} of {count} messages are there already, found "
                        f"{verdicts}")  # fmt: skip
        if verdicts["FULL"]:
            return
        if first <= following and after[2][sender, incarnation] < first + count:
            raise Wrong(f"I5 {host}: {following} is next, {first} to {first + count - 1} came, "
                        f"{after[2][sender, incarnation]} is next then")  # fmt: skip
        early = sum(number - following >= _AHEAD for number in range(first, first + count))
        if before[1] + count < _HELD and verdicts["EARLY"] != early:
            raise Wrong(f"I11 {host}: {early} of {count} messages are too far ahead, found "
                        f"{verdicts}")  # fmt: skip

    def sequenced(self, host: str) -> dict[int, int]:
        """Return nonces of outboxes -> how many of their messages the copy of a host has."""
        view = self.views[host]
        return {nonce: view.next[key] - 1 for key, nonce in view.names.items()}


def _sizes(body: bytes) -> list[int] | None:
    # Return the sizes of the messages in a datagram; None: they do not fill it exactly.
    sizes = []
    while body:
        size = int.from_bytes(body[:2], "little")
        if len(body) < 4 + size:
            return None
        sizes.append(size)
        body = body[4 + size :]
    return sizes
