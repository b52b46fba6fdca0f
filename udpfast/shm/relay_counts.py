"""The counters of a relay, written by its one thread and read by tools, even afterwards.

    0 RegionHeader, description {"lines": [..]} | 4096 the relay's | 4096 + 256 line by line

Counters are int64; those of each line begin at a multiple of 128 bytes. The last of the relay's
says whether it ended in good order.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from udpfast.errors import RegionError
from udpfast.shm.region import Region

__all__ = [
    "RELAY_COUNTS",
    "RELAY_GAUGES",
    "RELAY_LINE_COUNTS",
    "RELAY_VERDICTS",
    "RelayCounts",
]

#: Counters of the relay, in the order of agents/relay/relay_feed.pxd, and their meanings.
RELAY_COUNTS = {
    "records": "records read from the feed",
    "updates": "updates passed on as they came, at once",
    "whole": "objects sent whole on the incremental channel: new, or sound again",
    "repeated": "tops of book sent once more by a snapshot round",
    "snapshots": "snapshots sent",
    "rounds": "snapshot rounds begun",
    "gaps": "gaps of the feed that were handed on, as a number that is left out",
    "stale": "values in doubt, of which the far end was told so",
    "doubt_not_carried": "updates passed on without their flag DOUBT, which no message has: trades",
    "sessions": "sessions begun: at the start, and when the feed began anew",
    "learnt": "records read without sending them: from before the start, and after a lap",
    "lapped": "records that the relay itself missed",
    "not_carried": "records that a relay does not carry: ORDERS, and undecoded messages",
    "refused": "updates that fit no message or limit: their objects stay in doubt",
    "control": "records that are no updates: what is said of sessions, gaps, objects and lines",
    "doubted": "updates of objects that are in doubt here: nothing is sent of them",
    "in_whole": "updates that went with all of their object, at once or with its last part",
    "delayed": "updates that waited for a short line, and were the newest of their object then",
    "conflated": "updates that waited for a short line until a newer state of their object, or "
    "doubt, or a new session took their place",
    "waiting": "updates that wait for a short line now",
    "late": "objects that were sound at the far end, waited for longer than late_ms, and were said "
    "to be in doubt",
    "behind": "times that the relay stood still, or was late_ms behind the feed, or the feed was "
    "dead or stood still: all was said to be in doubt until it had caught up",
    "short": "whether an update had to wait in the last second",
}
#: Those of the relay's counters that are gauges, not sums.
RELAY_GAUGES = ("waiting", "short")
#: Outcomes of a record; these counters add up to `records`.
RELAY_VERDICTS = (
    *("learnt", "control", "not_carried", "refused", "doubted", "updates", "in_whole"),
    *("delayed", "conflated", "waiting"),
)
#: Counters of each line, in the order of agents/relay/relay_lines.pxd.
RELAY_LINE_COUNTS = {
    "datagrams": "datagrams sent",
    "bytes": "bytes of UDP payload sent",
    "unsent": "datagrams given up: the queue stayed full, or there was no way",
    "parity": "parity datagrams among them",
    "left_out": "datagrams that the line's budget had no room for: the other lines carry them",
}

_KIND = "RLAY"
_FIRST = 4096
_RELAY = 256
_SCOPE = 128
_LAYOUT_HASH = int.from_bytes(
    hashlib.sha256(",".join([*RELAY_COUNTS, "ended", *RELAY_LINE_COUNTS]).encode()).digest()[:8],
    "little",
)

assert 8 * len(RELAY_COUNTS) < _RELAY
assert 8 * len(RELAY_LINE_COUNTS) <= _SCOPE


class RelayCounts:
    """The counters of the relay beside an instance.

    Attributes
    ----------
    names : tuple of str
        Names of the lines.
    relay : numpy.ndarray
        int64, one for each of `RELAY_COUNTS`.
    lines : numpy.ndarray
        int64, shape (lines, 16): the first columns are `RELAY_LINE_COUNTS`.
    """

    def __init__(self, region: Region, names: tuple[str, ...]) -> None:
        self.names = names
        self._region = region
        memory = np.frombuffer(region.view(), np.int64, offset=_FIRST)
        self.relay: npt.NDArray[np.int64] = memory[: len(RELAY_COUNTS)]
        self._end: npt.NDArray[np.int64] = memory[_RELAY // 8 - 1 : _RELAY // 8]
        self.lines: npt.NDArray[np.int64] = memory[_RELAY // 8 :].reshape(len(names), _SCOPE // 8)

    @classmethod
    def create(cls, directory: Path, names: list[str]) -> Self:
        """Create the file with all counters 0, in place of a dead relay's.

        Raises
        ------
        WriterExistsError
            A relay runs beside this instance.
        """
        region = Region.create(
            directory / "relay", _KIND, _size(len(names)), _LAYOUT_HASH, replace=True
        )
        region.describe({"lines": names})
        region.mark_ready()
        return cls(region, tuple(names))

    @classmethod
    def attach(cls, directory: Path) -> Self:
        """Attach to the file, read-only. Its relay may be dead.

        Raises
        ------
        FileNotFoundError
            No relay has run beside this instance.
        RegionError
            The file is of another version, or of another kind.
        """
        region = Region.attach(directory / "relay", _KIND, _LAYOUT_HASH)
        names = region.description().get("lines")
        if not isinstance(names, list) or region.size_bytes != _size(len(names)):
            raise RegionError(f"{region.path}: expected counts of lines, found {names!r}")
        return cls(region, tuple(map(str, names)))

    @property
    def alive(self) -> bool:
        """Whether the relay's process is alive."""
        return self._region.writer_alive()

    @property
    def gone(self) -> int:
        """Pid of the relay, if its process was killed, or it failed; 0: it runs, or was stopped."""
        # Looks whether it lives first: a relay that stops in between was not killed.
        return 0 if self.alive or self._end[0] else self._region.writer_pid

    def read(self) -> dict[str, dict[str, int]]:
        """Return all counters by scope (`relay`, and `line NAME` for each line) and name."""
        found = {"relay": dict(zip(RELAY_COUNTS, self.relay.tolist(), strict=True))}
        for name, row in zip(self.names, self.lines.tolist(), strict=True):
            found[f"line {name}"] = dict(zip(RELAY_LINE_COUNTS, row, strict=False))
        return found

    def rest(self) -> None:
        """Say that nothing waits for a line any more."""
        self.relay[list(RELAY_COUNTS).index("short")] = 0

    def close(self, *, ended: bool = False) -> None:
        """Release the file, which stays for later reading; its relay `ended` in good order."""
        if ended:
            self._end[0] = 1
        self._region.close()


def _size(lines: int) -> int:
    return _FIRST + _RELAY + _SCOPE * lines
