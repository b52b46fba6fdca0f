"""How a store begins, exactly once: a host that has nothing asks all others before it begins one.

Only the host that bus.toml names begins the store. Its directory may be empty because its disk is
new while others have the store; a second store of that name would lose what they have. So the host
begins only after all others have said twice that they have nothing: between the two rounds the
store might have moved from one host to another. A host that has promised an epoch does not begin a
store, because somebody must have written then. An operator who knows about the unreachable hosts
may insist.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from udpfast.bus.asking import FRESH_NS, Asking

__all__ = ["Decision", "StoreCreation"]


class Decision(enum.Enum):
    """What a host without the store does."""

    WAIT = "wait"
    BEGIN = "begin"
    FOLLOW = "follow"  # another host has the store


class StoreCreation(Asking):
    """Decide whether this host begins the store.

    Parameters
    ----------
    hosts, now_ns
        As for `Asking`.
    insist : bool
        Do not wait for hosts that cannot be reached.

    Attributes
    ----------
    owner : str
        A host that has the store; empty: no host has said so.
    """

    def __init__(self, hosts: Sequence[str], now_ns: int, *, insist: bool = False) -> None:
        super().__init__(hosts, now_ns)
        self.owner = ""
        self._until_ns = now_ns + FRESH_NS if insist else None
        self._again: list[str] | None = None  # hosts that must still answer a second time
        self._asked_again: set[str] = set()

    def answered(self, host: str, *, has: bool, now_ns: int) -> None:
        """Note whether a host has the store."""
        if has:
            self.owner = host
        if self._again and host in self._again and host in self._asked_again:
            self._again.remove(host)
        self.note_answer(host, now_ns)

    def due(self, now_ns: int) -> list[str]:
        """Return the hosts to ask now. An earlier question without an answer is abandoned."""
        found = super().due(now_ns)
        if self._again is not None:
            self._asked_again.update(found)
        return found

    def missing(self, now_ns: int) -> list[str]:
        """Return the hosts that have not said, twice, whether they have the store."""
        again = self._again or ()
        missing = super().missing(now_ns)
        return missing + [host for host in again if host not in missing]

    def decide(self, now_ns: int, promised: int) -> Decision:
        """Return what this host does now.

        Parameters
        ----------
        now_ns : int
            Monotonic time.
        promised : int
            The epoch that this host has promised; 0: none.
        """
        if self.owner:
            return Decision.FOLLOW
        if self._until_ns is not None and now_ns >= self._until_ns:
            return Decision.BEGIN
        if self.missing(now_ns):
            return Decision.WAIT
        if self._again is None:
            self._again = list(self._due_ns)
            self._due_ns = dict.fromkeys(self._due_ns, now_ns)
            return self.decide(now_ns, promised)  # begins at once if there are no other hosts
        return Decision.WAIT if promised else Decision.BEGIN
