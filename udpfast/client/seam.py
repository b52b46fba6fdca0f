"""The rule for which piece of a ring's records comes next; callers look up the facts.

The identity of its log and its index there identify a record for good. Pieces of logs are in the
journal, in the ring's file that the reader has mapped, which may have been replaced or removed
(HELD), and in the file that is now at its path (PRESENT). A reader stands at index I of log L. The
first row that applies decides:

| there is | next comes | records in between are |
|---|---|---|
| a piece of L with a record at I or behind | the one whose first such record is lowest | missing |
| only the file of L that is in place | what it or, sooner, the journal gets next | not known |

Otherwise L is over, and the log behind it is read from its index 0 on:

| the journal has a log behind L | a file has a log that was not read | next comes |
|---|---|---|
| no | no | nothing |
| no | yes | the older file's |
| yes | no | the journal's |
| yes | yes, the same | the piece with the lower index; of equal ones the journal's |
| yes | yes, another, that the journal has, too | which is first in the journal |
| yes | yes, another, that the journal does not have | which was published first |

A journal that does not have L may have logs from before L that were never read. One of its logs
counts as behind L if it was published later than the record that was read last.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

__all__ = ["Piece", "Where", "log_behind", "next_piece"]


class Where(enum.Enum):
    """Where a piece lies."""

    HELD = enum.auto()  # in the ring's file that the reader has mapped
    PRESENT = enum.auto()  # in the file that is now at the ring's path
    JOURNAL = enum.auto()


class Piece(Struct, frozen=True):
    """Consecutive records of one log.

    Attributes
    ----------
    where : Where
        Where the records are.
    log : bytes
        Identity of the log.
    first, end : int
        Index of the first record, and behind the last one. Equal: the piece is empty.
    first_ns : int
        When the first record was published, UNIX ns; later than any time if there is none.
    in_place : bool
        True: more records may come, because the piece is in the file at the ring's path.
    """

    where: Where
    log: bytes
    first: int
    end: int
    first_ns: int
    in_place: bool = False


def next_piece(log: bytes, index: int, pieces: Collection[Piece]) -> Piece | None:
    """Return the piece that continues a log from an index on; None: the log is over."""
    of_log = [each for each in pieces if each.log == log]
    return min(
        (each for each in of_log if each.end > max(each.first, index)),
        key=lambda each: max(each.first, index),
        default=next((each for each in of_log if each.in_place), None),
    )


def log_behind(
    log: bytes,
    passed: Collection[bytes],
    since_ns: int,
    files: Sequence[Piece],
    order: Sequence[bytes],
    recorded: Iterable[Piece],
) -> Piece | None:
    """Return the first piece of the log behind one that is over; None: there is no such log.

    Parameters
    ----------
    log : bytes
        The log that is over.
    passed : collection of bytes
        The logs before it.
    since_ns : int
        When the last record read was published, UNIX ns.
    files : sequence of Piece
        Pieces of the ring's files, the older file first.
    order : sequence of bytes
        The logs that the journal has, in order.
    recorded : iterable of Piece
        The journal's first piece of each log behind all that are over.
    """
    over = {log, *passed}
    behind = max((order.index(each) for each in over if each in order), default=-1)
    left = [
        each
        for each in files
        if each.log not in over
        and each.log not in order[: behind + 1]
        and (each.first < each.end or each.in_place)
    ]
    # If the journal does not have this log, it may have older logs that were never read.
    later = next((each for each in recorded if log in order or each.first_ns >= since_ns), None)
    if later is None:
        return left[0] if left else None
    for each in left:
        if each.log == later.log:
            return each if each.first < later.first else later
        if each.log in order and later.log in order:
            before = order.index(each.log) < order.index(later.log)
        else:
            before = each.first_ns < later.first_ns
        if before:
            return each
    return later
