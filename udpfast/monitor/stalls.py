"""A loop that stood still, in words: for how long, and what the kernel dropped meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Stalls"]

#: Readers are told of a loop that stands still for so long (log/ring: RING_STUCK_NS): so is the
#: log, at once. What is shorter is said together, so that a busy host does not fill the log.
_SAID_AT_ONCE_NS = 1_000_000_000
_SAID_TOGETHER_NS = 60_000_000_000


class Stalls:
    """Notices that a feed's loop stood still."""

    def __init__(self) -> None:
        self._said = (0, 0)  # stalls, and how long they were
        self._drops = 0  # of the kernel, before the first that was not said yet
        self._waits = False
        self._said_ns: int | None = None

    def look(self, values: dict[str, dict[str, int]], now_ns: int) -> Iterator[str]:
        """Yield a sentence once a stall is over, and its sockets had time to be read.

        Parameters
        ----------
        values : dict
            The counters of the instance.
        now_ns : int
            Monotonic clock.
        """
        feed = values["feed"]
        count, stalled_ns = feed["stalls"] - self._said[0], feed["stalled_ns"] - self._said[1]
        drops = sum(line["kernel_drops"] for scope, line in values.items() if "." in scope)
        if not count:
            self._drops = drops
            return
        # What the kernel dropped meanwhile is known once the sockets were read: a look later.
        waited, self._waits = self._waits, True
        long_ago = self._said_ns is None or now_ns - self._said_ns >= _SAID_TOGETHER_NS
        if not waited or (stalled_ns < _SAID_AT_ONCE_NS and not long_ago):
            return
        self._said, self._said_ns, self._waits = (feed["stalls"], feed["stalled_ns"]), now_ns, False
        times = "" if count == 1 else f", {count:,} times together"
        yield (
            f"the loop stood still for {stalled_ns / 1e9:,.1f} s{times}: a signal or a debugger "
            "stopped it, or its core had no time for it; "
            f"the kernel dropped {drops - self._drops:,} datagrams meanwhile"
        )
        self._drops = drops
