"""A composite: which records of several stores come after which, written as an order log.

The order log is a store of its own: its sequencer's host decides, and everybody else reads the same
order. The composite is its inputs, read as the log says; nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from udpfast.bus.log import Log, Store
from udpfast.bus.node import Node
from udpfast.bus.sequencer import Sequencer
from udpfast.core.layout import Kind

__all__ = ["BATCH", "ORDER_BACK", "ORDER_ENTRY", "Merger"]

#: Input, flags, position, end, index of the first, records (core.layout.ORDER_ENTRY).
ORDER_ENTRY = struct.Struct("<IIQQQQ")
ORDER_BACK = 1
#: Records that one entry takes at most: others get their turn.
BATCH = 4096


class Merger:
    """Writes the order of a composite, on the host that writes its log.

    Parameters
    ----------
    node : Node
        Of the order log.
    inputs : sequence of Store
        This host's copies, in the order of bus.toml.
    """

    def __init__(self, node: Node, inputs: Sequence[Store]) -> None:
        self.node = node
        self.inputs = list(inputs)
        self._taken: list[tuple[int, int] | None] = []
        self._cuts: list[int] = []
        self._lost: list[int | None] = []
        self._led: Sequencer | None = None

    def work(self, now_ns: int, unix_ns: int) -> int:
        """Take what is new of each input; return how many records that was."""
        sequencer = self.node.sequencer
        if sequencer is None:
            self._led = None
            return 0
        if sequencer is not self._led:
            self._recover()
            self._led = sequencer
        total = 0
        for at, store in enumerate(self.inputs):
            if store.identity == bytes(16):
                continue
            taken = self._taken[at] or store.log.first()
            taken = self._look_back(sequencer, at, taken, now_ns, unix_ns)
            end, count = store.log.run(taken[0], store.released, BATCH)
            entry = ORDER_ENTRY.pack(at, 0, taken[0], end, taken[1], count)
            if count and sequencer.order(entry, now_ns, unix_ns):
                taken = end, taken[1] + count
                total += count
            self._taken[at] = taken
        return total

    def _recover(self) -> None:
        # What the log says was taken; of which an input may have lost something while another host
        # led: then entries do not end where records do any more.
        self._taken = [None] * len(self.inputs)
        spans: list[list[tuple[int, int, int, int]]] = [[] for _ in self.inputs]
        self._cuts = [store.cuts for store in self.inputs]
        log = self.node.store.log
        position = log.first()[0]
        for record in log.records(position, log.end, kinds=1 << Kind.ORDER):
            at, flags, first, end, index, count = ORDER_ENTRY.unpack_from(record, 64)
            own = spans[at]
            if not flags & ORDER_BACK:
                own.append((first, index, end, index + count))
                continue
            while own and own[-1][0] >= first:
                own.pop()
            if own:
                own[-1] = (*own[-1][:2], first, index)
            self._taken[at] = first, index
        self._lost = [None] * len(self.inputs)
        for at, own in enumerate(spans):
            self._taken[at] = own[-1][2:] if own else self._taken[at]
            self._lost[at] = _first_moved(self.inputs[at].log, own)

    def _look_back(
        self, sequencer: Sequencer, at: int, taken: tuple[int, int], now_ns: int, unix_ns: int
    ) -> tuple[int, int]:
        # An input that lost records which were taken: the composite lost them, too.
        store = self.inputs[at]
        position = store.end
        if store.cuts != self._cuts[at]:
            position = min(position, store.cut_since(self._cuts[at]))
        lost = self._lost[at]
        if lost is not None:
            position = min(position, lost)
        if position < taken[0]:
            place = store.log.stands_at(position)
            index = place[0] if place is not None else store.log.end_index
            entry = ORDER_ENTRY.pack(
                at, ORDER_BACK, position, taken[0], index, taken[1] - index
            )  # fmt: skip
            if not sequencer.order(entry, now_ns, unix_ns):
                return taken
            taken = position, index
        self._lost[at] = None
        self._cuts[at] = store.cuts
        return taken


def _first_moved(log: Log, spans: Sequence[tuple[int, int, int, int]]) -> int | None:
    # Where the first entry begins that does not end between the records between which it did.
    for first, _, end, index in spans:
        if not log.first()[0] < end <= log.end:
            continue  # removed since, or not here yet
        place = log.stands_at(end)
        if (log.end_index if end == log.end else place and place[0]) != index:
            return first
    return None
