"""Ask all other hosts of a store until each has answered, and again once an answer is too old."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FRESH_NS", "Asking"]

_MS = 1_000_000
#: Lifetime of an answer: the answers of all hosts must be from about the same time.
FRESH_NS = 2000 * _MS
#: Time between two questions to one host; doubled after each one that was not answered.
ASK_NS, ASK_MAX_NS = 50 * _MS, 1000 * _MS


class Asking:
    """Keep track of which hosts to ask and which have answered. The caller owns the links.

    Parameters
    ----------
    hosts : sequence of str
        All other hosts that have a copy of the store, or will have one.
    now_ns : int
        Monotonic time.
    """

    def __init__(self, hosts: Sequence[str], now_ns: int) -> None:
        self._began_ns = now_ns
        self._said_ns: dict[str, int | None] = dict.fromkeys(hosts)  # host -> time of its answer
        self._asked_ns = dict.fromkeys(hosts, now_ns)  # host -> when it was asked last
        self._due_ns = dict.fromkeys(hosts, now_ns)
        self._delay_ns = dict.fromkeys(hosts, ASK_NS)

    def due(self, now_ns: int) -> list[str]:
        """Return the hosts to ask now. An earlier question without an answer is abandoned."""
        found = [host for host in self.missing(now_ns) if now_ns >= self._due_ns[host]]
        for host in found:
            self._asked_ns[host] = now_ns
            self._due_ns[host] = now_ns + self._delay_ns[host]
            delay_ns = self._delay_ns[host]
            self._delay_ns[host] = max(delay_ns, min(2 * delay_ns, ASK_MAX_NS))
        return found

    def note_answer(self, host: str, now_ns: int) -> None:
        """Note that a host answered."""
        self._said_ns[host] = now_ns
        # On a slow path the next question must not be abandoned before its answer arrives.
        self._delay_ns[host] = max(ASK_NS, 2 * (now_ns - self._asked_ns[host]))

    def missing(self, now_ns: int) -> list[str]:
        """Return the hosts whose answer is missing or too old."""
        return [host for host, said_ns in self._said_ns.items()
                if said_ns is None or now_ns - said_ns >= FRESH_NS]  # fmt: skip

    def unheard(self, now_ns: int) -> list[str]:
        """Return the hosts that have not answered although they were asked long enough ago."""
        # A host is asked again once its answer is too old.
        return [host for host, said_ns in self._said_ns.items()
                if now_ns >= (self._began_ns if said_ns is None else said_ns + FRESH_NS) + FRESH_NS
                ]  # fmt: skip
