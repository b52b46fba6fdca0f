"""A composite: the order of the records of several stores, written as an order log.

The order log is a store of its own: its sequencer's host decides the order, and everybody else
reads it. A composite is its inputs, read in the order of the log; no record is copied.

An entry names the epoch of the last record that it takes (in its `number`). Position and epoch
identify that record, and so those before it: an input whose lineage has a later epoch that begins
below that position has lost the records behind that beginning, on whichever host one looks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from udpfast.bus.log import Log, Store
from udpfast.bus.node import Node
from udpfast.bus.sequencer import Sequencer
from udpfast.core.layout import Kind

__all__ = ["BATCH", "LACKING_NS", "ORDER_BACK", "ORDER_ENTRY", "Merger", "Taken"]

#: Input, flags, position, end, index of the first record, number of records
#: (core.layout.ORDER_ENTRY).
ORDER_ENTRY = struct.Struct("<IIQQQQ")
ORDER_BACK = 1
#: Most records of one entry, so that every input gets its turn.
BATCH = 4096
#: How long an input may lack records that were taken of it before this is reported.
LACKING_NS = 5_000_000_000

_NUMBER = struct.Struct("<Q")


class Taken(NamedTuple):
    """How far an order log has taken an input.

    Attributes
    ----------
    position, next_index : int
        Position and index behind the last record taken.
    epoch : int
        Epoch of that record; 0: none was taken, or the epoch is no longer known.
    """

    position: int = 0
    next_index: int = 0
    epoch: int = 0

    def kept(self, store: Store) -> int:
        """Return up to where a copy of the input has the taken records, or may still get them."""
        return store.lineage.until(self.epoch, self.position) if self.epoch else self.position

    def ends_in(self, store: Store) -> bool:
        """Return whether the next record of a copy of the input follows the taken records."""
        if store.end < self.position:
            return False
        found, _ = store.lineage.at(self.position - 1)
        return found == self.epoch or 0 in (found, self.epoch)


class Merger:
    """Write the order of a composite, on the host that writes its log.

    Parameters
    ----------
    node : Node
        The node of the order log.
    inputs : sequence of Node
        This host's nodes of the inputs, in the order of bus.toml.
    """

    def __init__(self, node: Node, inputs: Sequence[Node]) -> None:
        self.node = node
        self.inputs = list(inputs)
        self._taken: list[Taken] = []
        self._lacking: dict[int, int] = {}  # input -> since when its copy lacks taken records
        self._led: Sequencer | None = None

    def work(self, now_ns: int, unix_ns: int) -> int:
        """Take the new records of each input; return how many were taken."""
        sequencer = self.node.sequencer
        if sequencer is not self._led:
            self._led = sequencer
            if sequencer is not None:
                self._recover()
        if sequencer is None:
            return 0
        total = 0
        for at, node in enumerate(self.inputs):
            store, taken = node.store, self._taken[at]
            if store.identity == bytes(16):
                continue
            kept = taken.kept(store)
            if kept < taken.position and not self._take_back(sequencer, at, kept, now_ns, unix_ns):
                continue
            taken = self._taken[at]
            if not taken.ends_in(store):
                self._lacking.setdefault(at, now_ns)
                continue  # another host took records that this copy does not have yet
            self._lacking.pop(at, None)
            # Skip what was removed before it was taken; readers miss it as they miss anything
            # removed.
            first, index = max(taken[:2], store.log.first())
            end, count = store.log.run(first, store.released, BATCH)
            epoch, _ = store.lineage.at(end - 1)
            entry = ORDER_ENTRY.pack(at, 0, first, end, index, count)
            if count and sequencer.order(entry, epoch, now_ns, unix_ns):
                self._taken[at] = Taken(end, index + count, epoch)
                total += count
        return total

    def lacks(self, now_ns: int) -> list[int]:
        """Return the inputs whose copies here have lacked taken records for `LACKING_NS`."""
        if self._led is None:
            return []
        return [at for at, since_ns in self._lacking.items() if now_ns - since_ns >= LACKING_NS]

    def _recover(self) -> None:
        self._lacking.clear()
        self._taken = [Taken() for _ in self.inputs]
        for at, taken in _taken_by(self.node.store.log):
            self._taken[at] = taken

    def _take_back(
        self, sequencer: Sequencer, at: int, position: int, now_ns: int, unix_ns: int
    ) -> bool:
        # Write that an input lost the taken records from a position on. False: there is no room
        # now.
        taken, store = self._taken[at], self.inputs[at].store
        first = store.log.first()
        if first[0] >= taken.position:  # removed since: nobody can tell any more
            epoch, _ = store.lineage.at(taken.position - 1)
            self._taken[at] = taken._replace(epoch=epoch)
            return True
        position = max(position, first[0])
        place = store.log.stands_at(position)
        index = place[0] if place is not None else store.log.end_index
        epoch, _ = store.lineage.at(position - 1)
        entry = ORDER_ENTRY.pack(
            at, ORDER_BACK, position, taken.position, index, taken.next_index - index
        )
        if not sequencer.order(entry, epoch, now_ns, unix_ns):
            return False
        self._taken[at] = Taken(position, index, epoch)
        return True


def _taken_by(log: Log) -> Iterator[tuple[int, Taken]]:
    # Yield for each entry of an order log how far it takes its input.
    for record in log.records(log.first()[0], log.end, kinds=1 << Kind.ORDER):
        at, flags, first, end, index, count = ORDER_ENTRY.unpack_from(record, 64)
        (epoch,) = _NUMBER.unpack_from(record, 40)
        back = bool(flags & ORDER_BACK)
        yield at, Taken(*((first, index) if back else (end, index + count)), epoch)
