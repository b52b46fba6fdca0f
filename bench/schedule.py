"""When which message is due on which line: the schedules that a `PacedSender` keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from udpfast.net.pcap import CaptureReader

__all__ = ["Schedule", "capture_schedule", "even_schedule"]

FIRST_SEQNO = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """One entry per message and line, in order of time; ns from the start.

    Attributes
    ----------
    due_ns : array of int64
        When the entry is sent.
    stamps_ns : array of int64
        What the message carries: when its first copy is due.
    seqnos : array of uint32
    lines : array of uint8
    """

    due_ns: npt.NDArray[np.int64]
    stamps_ns: npt.NDArray[np.int64]
    seqnos: npt.NDArray[np.uint32]
    lines: npt.NDArray[np.uint8]

    @property
    def messages(self) -> int:
        """Different messages."""
        return len(np.unique(self.seqnos))

    @property
    def lines_total(self) -> int:
        """Lines in use."""
        return int(self.lines.max()) + 1

    @property
    def seconds(self) -> float:
        """From the first entry to the last."""
        return float(self.due_ns[-1] - self.due_ns[0]) / 1e9


def even_schedule(rate_per_s: float, messages: int, lines: int = 1) -> Schedule:
    """Return messages at equal distances, each on every line at the same time."""
    due_ns = (np.arange(messages) * (1e9 / rate_per_s)).astype(np.int64).repeat(lines)
    return Schedule(
        due_ns,
        due_ns,
        np.arange(FIRST_SEQNO, FIRST_SEQNO + messages, dtype=np.uint32).repeat(lines),
        np.tile(np.arange(lines, dtype=np.uint8), messages),
    )


def capture_schedule(path: Path, pause_max_ns: int, messages_max: int) -> Schedule:
    """Return the times of a capture's datagrams; its destinations become lines.

    Parameters
    ----------
    path : Path
        A capture whose lines carry the same datagrams in the same order.
    pause_max_ns : int
        Longer silence is cut to this, so that hours fit into a second; what is closer together
        keeps its distance exactly.
    messages_max : int
        From the beginning.

    Raises
    ------
    ValueError
        Its lines do not carry the same number of datagrams.
    """
    times: list[int] = []
    lines: list[int] = []
    indexes: dict[tuple[str, int], int] = {}
    with CaptureReader(path) as capture:
        for datagram in capture:
            times.append(datagram.timestamp_ns)
            lines.append(indexes.setdefault(datagram.destination, len(indexes)))
    line = np.array(lines, np.uint8)
    counts = np.bincount(line)
    if len(set(counts.tolist())) != 1:
        raise ValueError(f"{path}: expected lines of equal length, found {counts.tolist()}")
    numbers = np.zeros(len(line), np.uint32)
    for index, count in enumerate(counts):
        numbers[line == index] = np.arange(count, dtype=np.uint32)
    # Several cards stamped it: entries are not quite in order of time.
    order = np.argsort(times, kind="stable")
    clock = np.array(times, np.int64)[order]
    pauses = np.minimum(np.diff(clock, prepend=clock[0]), pause_max_ns)
    due_ns = np.cumsum(pauses)
    kept = numbers[order] < messages_max
    due_ns, number, line = due_ns[kept], numbers[order][kept], line[order][kept]
    first = np.full(int(number.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, number, due_ns)
    return Schedule(due_ns, first[number], (number + FIRST_SEQNO).astype(np.uint32), line)
