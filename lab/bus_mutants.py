"""Deliberate mistakes in the bus, to check that `udpfast lab bus` finds them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from udpfast.bus import (
    admission,
    creation,
    following,
    link_receiver,
    log,
    merger,
    node,
    promotion,
    release,
    returning,
    sequencer,
)
from udpfast.bus.hello import Hello

from . import bus_composite, bus_world
from .bus_oracle import checksum

__all__ = ["MUTANTS", "mutant"]


class TakesTheLastTwice(sequencer.Sequencer):
    """Is off by one where it refuses duplicates."""

    def receive(self, data: bytes, now_ns: int, unix_ns: int) -> bytes:
        """Number the last message of a sender as its next one."""
        sender, first = int.from_bytes(data[24:28], "little"), int.from_bytes(data[32:40], "little")
        known = self.known()
        if not data[5] and 0 < sender <= len(known) and first + 1 == known[sender - 1]["next"]:
            data = data[:32] + (first + 1).to_bytes(8, "little") + data[40:]
        return super().receive(data, now_ns, unix_ns)


class BelievesRecords(link_receiver.LinkReceiver):
    """Copies records whose checksums are wrong, because it corrects them before the check."""

    def feed(self, data: bytes, now_ns: int) -> int:
        """Write the right checksum into every record of a run."""
        mended = bytearray(data)
        at = 0
        while at + 32 <= len(mended):
            size = int.from_bytes(mended[at + 8 : at + 12], "little")
            if mended[at + 4] == 5:
                here, end = at + 32, min(at + 32 + size, len(mended))
                while here + 64 <= end:
                    length = int.from_bytes(mended[here : here + 4], "little")
                    length = (length + 7) & ~7
                    if length < 64 or here + length > end:
                        break
                    found = checksum(bytes(mended[here : here + length]))
                    mended[here + 60 : here + 64] = found.to_bytes(4, "little")
                    here += length
            at += 32 + size
        return super().feed(bytes(mended), now_ns)


class LetsGoTooEarly(log.Store):
    """Lets messages go as soon as they are in the stream, whether standbys have them or not."""

    @property
    def let_go(self) -> int:
        """End of the stream."""
        return self.end


class TakesForAwayTooSoon(release.Release):
    """Takes standbys for away after half the time."""

    def __init__(self, *, away_ns: int = 0, **settings: Any) -> None:
        super().__init__(away_ns=away_ns // 2, **settings)


class WaitsForNobodyAgain(release.Release):
    """Still takes standbys for away after they have caught up."""

    def look(self, now_ns: int, end: int, acks: Any, standbys: Any) -> list[str]:
        """Add the standbys that are away to those that have ever been."""
        before = self.away
        said = super().look(now_ns, end, acks, standbys)
        self.away = tuple({*before, *self.away})
        return said


class ForgetsItsPromise(log.Store):
    """Forgets its promised epoch at a restart."""

    def fence(self, epoch: int) -> bool:
        """Promise an epoch, and write the old state back to the disk."""
        before = self.log.load()
        done = super().fence(epoch)
        self.log.save(before)
        return done


class ShowsTooEarly(log.Store):
    """Shows records to readers when one copy too few has them."""

    @property
    def released(self) -> int:
        """Position up to which one copy less than `gate` has all records."""
        if self.gate == 1:
            return self.end
        return super().released


class CopiesNothing(promotion.Promotion):
    """Begins its epoch at its own end, whatever other hosts have."""

    def _how_far(self, host: str) -> tuple[bool, int, int]:
        return (False, 0, 0)


class BeginsAtOnce(creation.StoreCreation):
    """Begins a store without asking whether another host has it."""

    def decide(self, now_ns: int, promised: int) -> creation.Decision:
        """Begin the store."""
        return creation.Decision.BEGIN


class WritesOnUnasked(returning.Returning):
    """Continues to write after a start, even if another host wrote meanwhile."""

    def decide(self, now_ns: int) -> returning.Return:
        """Continue to write."""
        return returning.Return.WRITE


class StaysSealed(log.Store):
    """Does not reopen the last segment, which a clean stop has sealed."""

    def unroll(self) -> None:
        """Do nothing."""


class ForgetsWhatItTook(merger.Merger):
    """Begins each input again from its first record at every start."""

    def _recover(self) -> None:
        self._taken = [merger.Taken() for _ in self.inputs]


class TakesNothingBack(merger.Taken):
    """Does not notice records that inputs lost."""

    def kept(self, store: Any) -> int:
        """Return the position up to which the order took the input."""
        return self.position


class BelievesWhatWasTaken(merger.Merger):
    """Believes that each input still has the ordered records, whoever wrote it meanwhile."""

    def _recover(self) -> None:
        super()._recover()
        self._taken = [taken._replace(epoch=0) for taken in self._taken]


def serves_any_copy(_store: log.Store, _hello: Hello) -> None:
    """Accept every copy, without a comparison with the records of the store."""


def looks_at_the_end_alone(_own: object, _end: int, _other: object, other_end: int) -> int:
    """Call a copy equal up to its end, whatever its epochs are."""
    return other_end


#: Name -> module, attribute that is replaced in it, and the replacement.
MUTANTS: dict[str, list[tuple[Any, str, Any]]] = {
    "takes-the-last-twice": [(node, "Sequencer", TakesTheLastTwice)],
    "believes-records": [(following, "LinkReceiver", BelievesRecords)],
    "serves-any-copy": [(admission, "compare", serves_any_copy)],
    "lets-go-too-early": [(bus_world, "Store", LetsGoTooEarly)],
    "takes-for-away-too-soon": [(bus_world, "Release", TakesForAwayTooSoon)],
    "waits-for-nobody-again": [(bus_world, "Release", WaitsForNobodyAgain)],
    "forgets-its-promise": [(bus_world, "Store", ForgetsItsPromise)],
    "shows-too-early": [(bus_world, "Store", ShowsTooEarly)],
    "copies-nothing": [(node, "Promotion", CopiesNothing)],
    "begins-at-once": [(node, "StoreCreation", BeginsAtOnce)],
    "writes-on-unasked": [(node, "Returning", WritesOnUnasked)],
    "stays-sealed": [(bus_world, "Store", StaysSealed)],
    "forgets-what-it-took": [(bus_composite, "Merger", ForgetsWhatItTook)],
    "takes-nothing-back": [(merger, "Taken", TakesNothingBack)],
    "believes-what-was-taken": [(bus_composite, "Merger", BelievesWhatWasTaken)],
    "looks-at-the-end-alone": [(admission, "divergence", looks_at_the_end_alone)],
}


@contextlib.contextmanager
def mutant(name: str) -> Iterator[None]:
    """Put a mistake into the bus while the context lasts."""
    with contextlib.ExitStack() as stack:
        for where, what, instead in MUTANTS[name]:
            stack.enter_context(mock.patch.object(where, what, instead))
        yield
