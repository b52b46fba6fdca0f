"""Which piece of a ring's records comes next: the rule alone, of facts that others looked up.

A record is known for good by the identity of its log and its index there. Pieces of logs lie in
the journal, in the ring's file at hand, which may be replaced or removed by now (HELD), and in the
file that is in its place (PRESENT). A reader stands at index I of log L. The first row that holds
says what comes next:

| of L there is | next comes | between is |
|---|---|---|
| a piece with a record at I or behind | the one whose first such record is the least | missing |
| only the file that is in place | what it gets next, or the journal gets before | not known |

Else L is over, and the log behind it comes, from its index 0 on:

| the journal has a log behind L | a file has a log that was not read | next comes |
|---|---|---|
| no | no | nothing |
| no | yes | the older file's |
| yes | no | the journal's |
| yes | yes, the same | the piece with the lower index; of equal ones the journal's |
| yes | yes, another, that the journal has, too | which is first in the journal |
| yes | yes, another, that the journal does not have | which was published first |

A journal that does not have L may have logs of before L that were never read: what it has counts
as behind L if it was published later than what was read last.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Piece", "Where", "log_behind", "next_piece"]


class Where(enum.Enum):
    """Where a piece lies."""

    HELD = enum.auto()  # in the ring's file at hand
    PRESENT = enum.auto()  # in the file that is in its place now
    JOURNAL = enum.auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one log that follow each other.

    Attributes
    ----------
    where : Where
    log : bytes
        Its identity.
    first, end : int
        Index of the first record that it has, and behind the last. Equal: it has none.
    first_ns : int
        When the first was published, UNIX ns; without one, behind all times.
    in_place : bool
        More may come: it is of the file that is in place.
    """

    where: Where
    log: bytes
    first: int
    end: int
    first_ns: int
    in_place: bool = False


def next_piece(log: bytes, index: int, pieces: Collection[Piece]) -> Piece | None:
    """Return the piece that goes on with a log from an index on; None: the log is over."""
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
    """Return the piece with which the log behind one that is over begins; None: there is none.

    Parameters
    ----------
    log : bytes
        The one that is over.
    passed : collection of bytes
        Those before it.
    since_ns : int
        When the last record read was published, UNIX ns.
    files : sequence of Piece
        Of the ring, the older file first.
    order : sequence of bytes
        The logs that the journal has, in their order.
    recorded : iterable of Piece
        How the journal begins with each log behind all that are over.
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
    # Where the journal does not have this log, it may have some of before that were never read.
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
