"""All other hosts of a store, each asked until it answers, and again when that is long ago."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FRESH_NS", "Asking"]

_MS = 1_000_000
#: What a host said counts for so long: all others must say it at about the same time.
FRESH_NS = 2000 * _MS
#: Between two questions to one host: doubled after each that it did not answer.
ASK_NS, ASK_MAX_NS = 50 * _MS, 1000 * _MS


class Asking:
    """Knows which hosts are to be asked, and which have answered. Links are the caller's.

    Parameters
    ----------
    hosts : sequence of str
        All others that have a copy of the store, or will have one.
    now_ns : int
        Monotonic.
    """

    def __init__(self, hosts: Sequence[str], now_ns: int) -> None:
        self._began_ns = now_ns
        self._said_ns: dict[str, int | None] = dict.fromkeys(hosts)  # host -> when it answered
        self._asked_ns = dict.fromkeys(hosts, now_ns)  # ... and when it was asked last
        self._due_ns = dict.fromkeys(hosts, now_ns)
        self._delay_ns = dict.fromkeys(hosts, ASK_NS)

    def due(self, now_ns: int) -> list[str]:
        """Return the hosts to ask now; a question that was not answered before is over."""
        found = [host for host in self.missing(now_ns) if now_ns >= self._due_ns[host]]
        for host in found:
            self._asked_ns[host] = now_ns
            self._due_ns[host] = now_ns + self._delay_ns[host]
            delay_ns = self._delay_ns[host]
            self._delay_ns[host] = max(delay_ns, min(2 * delay_ns, ASK_MAX_NS))
        return found

    def note_answer(self, host: str, now_ns: int) -> None:
        """Take that a host answered."""
        self._said_ns[host] = now_ns
        # On a slow path the next question must not be over before its answer is here.
        self._delay_ns[host] = max(ASK_NS, 2 * (now_ns - self._asked_ns[host]))

    def missing(self, now_ns: int) -> list[str]:
        """Return the hosts whose answer is not there, or too old."""
        return [host for host, said_ns in self._said_ns.items()
                if said_ns is None or now_ns - said_ns >= FRESH_NS]  # fmt: skip

    def unheard(self, now_ns: int) -> list[str]:
        """Return the hosts that did not answer although they were asked long enough ago."""
        # Who answered is asked again when that does not count any more.
        return [host for host, said_ns in self._said_ns.items()
                if now_ns >= (self._began_ns if said_ns is None else said_ns + FRESH_NS) + FRESH_NS
                ]  # fmt: skip
