"""How a store begins: once. A host that has nothing asks all others before it begins one.

The host that bus.toml names begins the store. Its directory may be empty because its disk is new,
and others have the store: a second one of that name would lose what they have. So it begins only
when all others said that they have nothing either, and all said it again when they were asked once
more: meanwhile the store may have gone from one host to another. It does not begin a store if this
host has promised an epoch: somebody wrote then. An operator may insist, who knows of the hosts that
cannot be reached.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from udpfast.bus.asking import FRESH_NS, Asking

__all__ = ["Decision", "StoreCreation"]


class Decision(enum.Enum):
    """What a host does that has nothing."""

    WAIT = "wait"
    BEGIN = "begin"
    FOLLOW = "follow"  # another host has the store


class StoreCreation(Asking):
    """Decides whether this host begins the store.

    Parameters
    ----------
    hosts, now_ns
        As `Asking` has them.
    insist : bool
        Do not wait for hosts that cannot be reached.

    Attributes
    ----------
    owner : str
        A host that has the store; empty: none said so.
    """

    def __init__(self, hosts: Sequence[str], now_ns: int, *, insist: bool = False) -> None:
        super().__init__(hosts, now_ns)
        self.owner = ""
        self._until_ns = now_ns + FRESH_NS if insist else None
        self._again: list[str] | None = None  # who shall say it again, once all have said it
        self._asked_again: set[str] = set()

    def answered(self, host: str, *, has: bool, now_ns: int) -> None:
        """Take whether a host has the store."""
        if has:
            self.owner = host
        if self._again and host in self._again and host in self._asked_again:
            self._again.remove(host)
        self.note_answer(host, now_ns)

    def due(self, now_ns: int) -> list[str]:
        """Return the hosts to ask now; a question that was not answered before is over."""
        found = super().due(now_ns)
        if self._again is not None:
            self._asked_again.update(found)
        return found

    def missing(self, now_ns: int) -> list[str]:
        """Return the hosts of which it is not known whether they have the store."""
        again = self._again or ()
        missing = super().missing(now_ns)
        return missing + [host for host in again if host not in missing]

    def decide(self, now_ns: int, promised: int) -> Decision:
        """Return what this host does now.

        Parameters
        ----------
        now_ns : int
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
            return self.decide(now_ns, promised)  # of a host without others: at once
        return Decision.WAIT if promised else Decision.BEGIN
