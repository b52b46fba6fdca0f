"""How a store begins: once. A host that has nothing asks all others before it begins one.

The host that bus.toml names begins the store. Its directory may be empty because its disk is new,
and others have the store: a second one of that name would lose what they have. So it begins only
when all others said within one look that they have nothing either; or when an operator says so, who
knows of those that cannot be reached.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

__all__ = ["Beginning", "Decision"]

_MS = 1_000_000
#: What a host said counts for so long: all others must say it at about the same time.
FRESH_NS = 2000 * _MS
#: Between two questions to one host: doubled after each that it did not answer.
ASK_NS, ASK_MAX_NS = 50 * _MS, 1000 * _MS


class Decision(enum.Enum):
    """What a host does that has nothing."""

    WAIT = "wait"
    BEGIN = "begin"
    FOLLOW = "follow"  # another host has the store


class Beginning:
    """Decides whether this host begins the store. Links are the caller's; one per question.

    Parameters
    ----------
    hosts : sequence of str
        All others that have a copy of the store, or will have one.
    now_ns : int
        Monotonic.
    insist : bool
        Do not wait for hosts that cannot be reached.

    Attributes
    ----------
    owner : str
        A host that has the store; empty: none said so.
    """

    def __init__(self, hosts: Sequence[str], now_ns: int, *, insist: bool = False) -> None:
        self.owner = ""
        self._began_ns = now_ns
        self._until_ns = now_ns + FRESH_NS if insist else None
        self._empty: dict[str, int | None] = dict.fromkeys(hosts)  # host -> when it said so
        self._due_ns = dict.fromkeys(hosts, now_ns)
        self._delay_ns = dict.fromkeys(hosts, ASK_NS)

    def due(self, now_ns: int) -> list[str]:
        """Return the hosts to ask now; a question that was not answered before is over."""
        found = [host for host in self.missing(now_ns) if now_ns >= self._due_ns[host]]
        for host in found:
            self._due_ns[host] = now_ns + self._delay_ns[host]
            self._delay_ns[host] = min(2 * self._delay_ns[host], ASK_MAX_NS)
        return found

    def answered(self, host: str, *, has: bool, now_ns: int) -> None:
        """Take whether a host has the store."""
        if has:
            self.owner = host
        self._empty[host] = now_ns
        self._delay_ns[host] = ASK_NS

    def missing(self, now_ns: int) -> list[str]:
        """Return the hosts of which it is not known whether they have the store."""
        return [host for host, said_ns in self._empty.items()
                if said_ns is None or now_ns - said_ns >= FRESH_NS]  # fmt: skip

    def unheard(self, now_ns: int) -> list[str]:
        """Return the hosts that did not say it although they were asked long enough ago."""
        # Who said it is asked again when that does not count any more.
        return [host for host, said_ns in self._empty.items()
                if now_ns >= (self._began_ns if said_ns is None else said_ns + FRESH_NS) + FRESH_NS
                ]  # fmt: skip

    def decide(self, now_ns: int) -> Decision:
        """Return what this host does now."""
        if self.owner:
            return Decision.FOLLOW
        if not self.missing(now_ns) or (self._until_ns is not None and now_ns >= self._until_ns):
            return Decision.BEGIN
        return Decision.WAIT
