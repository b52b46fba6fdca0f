"""How the host that last wrote a store continues to write it: it asks the other hosts first.

While its daemon was down, another host may have been promoted. Records that this host then appended
would be discarded, and its copy would differ from the others. So it asks all of them, and continues
only if none knows of a later epoch or has more records. It waits for hosts that cannot be reached,
but not for long: a bus whose copies are all down must be able to continue.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from udpfast.bus.asking import Asking
from udpfast.bus.hello import Answer
from udpfast.bus.log import Store

__all__ = ["Return", "Returning"]

#: A daemon that is started at the same time as this one answers within this time.
WAIT_NS = 2_000_000_000


class Return(enum.Enum):
    """What a host that wrote before does now."""

    WAIT = "wait"
    WRITE = "write"
    FOLLOW = "follow"  # another host has written since
    FETCH = "fetch"  # another host has records that this one lacks


class Returning(Asking):
    """Decide whether this host continues to write the store.

    Parameters
    ----------
    store : Store
    hosts, now_ns
        As for `Asking`.

    Attributes
    ----------
    later, further : str
        A host that knows of a later epoch, and one that has more records; empty: none.
    """

    def __init__(self, store: Store, hosts: Sequence[str], now_ns: int) -> None:
        super().__init__(hosts, now_ns)
        self.later = self.further = ""
        self._store = store
        self._until_ns = now_ns + WAIT_NS

    def answered(self, host: str, answer: Answer, now_ns: int) -> None:
        """Note the state of a host."""
        store = self._store
        self.note_answer(host, now_ns)
        if answer.promised > store.promised:
            self.later = host
        elif (answer.epoch, answer.end) > (store.epoch, store.end):
            self.further = host

    def decide(self, now_ns: int) -> Return:
        """Return what this host does now."""
        if self.later:
            return Return.FOLLOW
        if self.further:
            return Return.FETCH
        if self.missing(now_ns) and now_ns < self._until_ns:
            return Return.WAIT
        return Return.WRITE
