"""A composite: which records of several stores come after which, written as an order log.

The order log is a store of its own: its sequencer's host decides, and everybody else reads the same
order. The composite is its inputs, read as the log says; nothing is copied.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from udpfast.bus.log import Log
from udpfast.bus.node import Node
from udpfast.bus.sequencer import Sequencer
from udpfast.core.layout import Kind

__all__ = ["BATCH", "ORDER_BACK", "ORDER_ENTRY", "Merger"]

#: Input, flags, position, end, index of the first, records (core.layout.ORDER_ENTRY).
ORDER_ENTRY = struct.Struct("<IIQQQQ")
ORDER_BACK = 1
#: Records that one entry takes at most: others get their turn.
BATCH = 4096


#: Position and index of an entry's first record, and of what follows its last one.
_Span = tuple[int, int, int, int]


@dataclass
class _Input:
    """What is known of one input.

    Attributes
    ----------
    taken : (int, int) or None
        Position and index behind the last record that was taken; None: none was.
    ahead : deque of _Span
        Taken while another host led, and not looked at here yet.
    lost : int or None
        Position from which on what was taken is lost, which the log does not say yet.
    cuts, end : int
        Of this host's copy, when it was looked at last.
    """

    cuts: int
    end: int
    taken: tuple[int, int] | None = None
    ahead: deque[_Span] = field(default_factory=deque)
    lost: int | None = None

    def lose(self, position: int) -> None:
        """Note that what was taken from a position on is lost."""
        if self.ahead:  # of an entry that cannot be looked at as a whole, nothing is known
            position = min(position, self.ahead[0][0])
        self.lost = position if self.lost is None else min(self.lost, position)


class Merger:
    """Writes the order of a composite, on the host that writes its log.

    Parameters
    ----------
    node : Node
        Of the order log.
    inputs : sequence of Node
        This host's parts in the inputs, in the order of bus.toml.
    """

    def __init__(self, node: Node, inputs: Sequence[Node]) -> None:
        self.node = node
        self.inputs = list(inputs)
        self._known: list[_Input] = []
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
        for at, (node, known) in enumerate(zip(self.inputs, self._known, strict=True)):
            store = node.store
            if store.identity == bytes(16):
                continue
            self._look(node, known)
            if known.lost is not None and not self._take_back(
                sequencer, at, known.lost, now_ns, unix_ns
            ):
                continue
            # Not what was removed before it was taken: readers miss it, like all that was removed.
            first, index = max(known.taken or (0, 0), store.log.first())
            if first > store.end:
                continue  # taken while another host led: this one's copy is not so far yet
            end, count = store.log.run(first, store.released, BATCH)
            entry = ORDER_ENTRY.pack(at, 0, first, end, index, count)
            if count and sequencer.order(entry, now_ns, unix_ns):
                known.taken = end, index + count
                total += count
        return total

    def _recover(self) -> None:
        # What the log says was taken; of which an input may have lost something while another host
        # led.
        stores = [node.store for node in self.inputs]
        self._known = [_Input(store.cuts, store.end) for store in stores]
        log = self.node.store.log
        position = log.first()[0]
        for record in log.records(position, log.end, kinds=1 << Kind.ORDER):
            at, flags, first, end, index, count = ORDER_ENTRY.unpack_from(record, 64)
            known = self._known[at]
            if flags & ORDER_BACK:
                _drop(known, first, index)
            else:
                known.ahead.append((first, index, end, index + count))
                known.taken = end, index + count

    def _look(self, node: Node, known: _Input) -> None:
        # What of the records that were taken is lost, as far as this host can tell.
        store = node.store
        if store.cuts != known.cuts:
            # A copy that was behind what was taken, and lost nothing, tells nothing.
            position = store.cut_since(known.cuts)
            if position < known.end:
                known.lose(position)
        known.cuts, known.end = store.cuts, store.end
        while known.lost is None and known.ahead and known.ahead[0][2] <= store.end:
            if _has_moved(store.log, known.ahead[0]):
                known.lose(store.end)
            else:
                known.ahead.popleft()
        if known.taken is not None and store.end < known.taken[0] and node.caught_up:
            known.lose(store.end)

    def _take_back(
        self, sequencer: Sequencer, at: int, position: int, now_ns: int, unix_ns: int
    ) -> bool:
        # Say that an input lost what was taken from a position on; False: there is no room now.
        known, store = self._known[at], self.inputs[at].store
        position = max(position, store.log.first()[0])
        if known.taken is not None and position < known.taken[0]:
            place = store.log.stands_at(position)
            index = place[0] if place is not None else store.log.end_index
            entry = ORDER_ENTRY.pack(
                at, ORDER_BACK, position, known.taken[0], index, known.taken[1] - index
            )  # fmt: skip
            if not sequencer.order(entry, now_ns, unix_ns):
                return False
            _drop(known, position, index)
        known.lost = None
        return True


def _drop(known: _Input, position: int, index: int) -> None:
    # Take back what was taken from a position on.
    while known.ahead and known.ahead[-1][0] >= position:
        known.ahead.pop()
    if known.ahead and known.ahead[-1][2] > position:
        known.ahead[-1] = (*known.ahead[-1][:2], position, index)
    known.taken = position, index


def _has_moved(log: Log, span: _Span) -> bool:
    # Whether an entry does not end between the records between which it did: they are others.
    _, _, end, index = span
    if end <= log.first()[0]:
        return False  # removed since
    place = log.stands_at(end)
    return (log.end_index if end == log.end else place and place[0]) != index
