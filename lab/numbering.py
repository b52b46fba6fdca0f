"""What a slow and obvious receiver makes of units: holes, copies, which line was first.

For numbers of any width that do not wrap. The window decides as datagrams come; this looks at all
of them, so that it may say what a receiver with enough patience must find.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Arbitration", "Naive", "Spans"]


class Spans:
    """A set of numbers, as spans without a hole.

    Attributes
    ----------
    spans : list of list
        First number and the one behind the last, in order.
    """

    def __init__(self) -> None:
        self.spans: list[list[int]] = []

    def add(self, first: int, end: int) -> bool:
        """Add the numbers from `first` to `end`, left out; return whether one of them is new."""
        spans = self.spans
        if spans and spans[-1][0] <= first <= spans[-1][1]:  # as it nearly always is
            place = len(spans) - 1
        else:
            place = bisect_right(spans, first, key=lambda span: span[0]) - 1
        if place >= 0 and first <= spans[place][1]:
            if end <= spans[place][1]:
                return False
        else:
            place += 1
            spans.insert(place, [first, first])
        spans[place][1] = end
        while place + 1 < len(spans) and spans[place + 1][0] <= end:
            spans[place][1] = max(spans[place][1], spans.pop(place + 1)[1])
        return True

    def holes(self) -> list[list[int]]:
        """Return what lies between the spans: first and last number of each hole."""
        return [
            [before[1], behind[0] - 1]
            for before, behind in zip(self.spans, self.spans[1:], strict=False)
        ]


@dataclass(slots=True)
class Naive:
    """One numbering of one line, by a receiver that waits for nothing.

    A number above the expected one is a gap at once; one below it is old or a duplicate.
    """

    units: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    first: int | None = None
    expected: int | None = None
    gaps: list[list[int]] = field(default_factory=list)
    old: int = 0
    received: Spans = field(default_factory=Spans)

    def unit(self, kind: str, number: int, count: int, messages: int, *, names_next: bool) -> None:
        """Take a unit; one without numbers says which comes next if `names_next`."""
        self.units += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.messages += messages
        if self.expected is None and (count or names_next):
            self.first = self.expected = number
        if self.expected is None:
            return
        if number > self.expected:
            self.gaps.append([self.expected, number - 1])
        elif number < self.expected and count:
            self.old += 1
        self.expected = max(self.expected, number + count)
        if count:
            self.received.add(number, number + count)

    def found(self) -> dict[str, Any]:
        """Return all that is known."""
        holes = self.received.holes()
        return {
            "units": self.units,
            "kinds": self.kinds,
            "messages": self.messages,
            "first_seq": self.first,
            "next_expected": self.expected,
            "gap_count": len(self.gaps),
            "missing": sum(last - first + 1 for first, last in self.gaps),
            "gaps": self.gaps,
            "old_or_duplicate": self.old,
            "never_received": {
                "holes": len(holes),
                "numbers": sum(last - first + 1 for first, last in holes),
                "first_holes": holes,
            },
        }


@dataclass(slots=True)
class Arbitration:
    """One numbering on two lines: the first copy of a unit counts, whichever line it comes from.

    Attributes
    ----------
    received : Spans
        Numbers that came, from either line.
    first : list of int
        Units that each line brought first.
    copies : int
        Units that brought nothing new.
    came : dict
        First number of a unit -> the line that brought it first, when, and all lines as bits.
    leads_ns : list of int
        How far its time stamp is from the first copy's, for each copy of the other line.
    """

    received: Spans = field(default_factory=Spans)
    first: list[int] = field(default_factory=lambda: [0, 0])
    copies: int = 0
    came: dict[int, list[int]] = field(default_factory=dict)
    leads_ns: list[int] = field(default_factory=list)

    def unit(self, line: int, number: int, count: int, at_ns: int) -> None:
        """Take a unit that has numbers."""
        if self.received.add(number, number + count):
            self.first[line] += 1
        else:
            self.copies += 1
        came = self.came.setdefault(number, [line, at_ns, 0])
        came[2] |= 1 << line
        if came[0] != line:
            self.leads_ns.append(abs(at_ns - came[1]))

    def only_on(self, line: int) -> list[int]:
        """Return the first numbers of units that no other line brought, in order."""
        return sorted(number for number, (*_, lines) in self.came.items() if lines == 1 << line)
