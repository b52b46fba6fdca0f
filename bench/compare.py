"""Did it get slower? The verdict knows the noise.

A row is compared with the row of the same benchmark, variant, parameters and placement:

1. Hosts that differ in what decides a figure (kernel, processor, cores, governor, isolation, clock
   source, virtual or not) are not comparable, and neither are peers of two versions, fewer than 5
   trials, or a moment when the machine took more than 20 % of the time away.
2. Where a row refers to a base that is a peer or a floor (a row with a `version`, or with something
   that it does `less`), its ratios are compared, each of one round: a host that is slower today
   slows the base too, and the ratio stays. Without such a base the figures are absolute, and what
   the peers of the same benchmark and parameters moved meanwhile counts as noise.
3. The change is the median of all quotients of a trial after and a trial before (Hodges-Lehmann),
   its noise the 99 % interval that belongs to it: that of the rank test of Mann and Whitney, exact
   for so few trials, whatever their distribution. Single disturbed trials do not move it.
4. "faster" or "slower" needs both: an interval without 1, and a change larger than 3 % (10 % for
   absolute figures, as hosts drift) plus the difference of the shares of time that the machine
   took away. All else is "same within noise", which is no proof of equality: the interval says how
   much could hide in it.

Trials of one run are exchangeable, because variants took turns; two runs are not, which is why the
base and the tolerance are there. On synthetic trials without a change about 1 row in 100 gets a
verdict, disturbed trials or not. A change of 20 % is found in 99 of 100 with 9 trials of 5 % noise,
but in 45 if every tenth trial takes half as long again: more rounds help (15: 72). Only udpfast's
own rows decide the exit code: a peer that got slower is news about the host.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from .result import Result, Row

__all__ = ["Comparison", "compare", "host_differences"]

#: What two hosts must have in common. Python, compiler, flags and commit are what one compares.
DECIDING = (
    "kernel",
    "cpu",
    "virtual",
    "cores",
    "governor",
    "isolated",
    "clocksource",
    "cores_used",
)
TRIALS_MIN = 5
LOST_SHARE_MAX = 0.20
TOLERANCE = 0.03
DRIFT = 0.10
CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row before and after.

    Attributes
    ----------
    row : Row
        As it is now; as it was if it is gone.
    before, after : float
        Medians; nan where there is none.
    base : str
        The peer whose ratios were compared; "" if the figures are absolute.
    ratio, low, high : float
        After divided by before, with the bounds of its noise.
    verdict : str
        "faster", "slower", "same within noise", or "not comparable: " and why.
    own : bool
        udpfast's own row, no peer's.
    """

    row: Row
    before: float
    after: float
    verdict: str
    own: bool
    base: str = ""
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Return what a program wants to know; None where there is no number."""
        numbers = {
            name: None if math.isnan(value := getattr(self, name)) else round(value, 6)
            for name in ("before", "after", "ratio", "low", "high")
        }
        return {
            "benchmark": self.row.benchmark,
            "variant": self.row.variant,
            "parameters": self.row.parameters,
            "placement": self.row.placement,
            "unit": self.row.unit,
            **numbers,
            "base": self.base,
            "own": self.own,
            "verdict": self.verdict,
        }


def compare(before: Result, after: Result) -> list[Comparison]:
    """Compare two results, row by row in the order of the newer one; see the rule above."""
    old = {row.key: row for row in before.rows}
    new = {row.key: row for row in after.rows}
    differences = host_differences(before.host, after.host)
    found = []
    for key in [*new, *(key for key in old if key not in new)]:
        first, second = old.get(key), new.get(key)
        reason = "; ".join(differences)
        if not reason:
            reason = missing(first, second, before, after) or unequal(first, second, before, after)
        if reason or first is None or second is None:
            found.append(without_verdict(first, second, reason))
        else:
            found.append(with_verdict(first, second, before, after))
    return found


def host_differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs between two hosts and decides a figure, a phrase each."""
    return [
        f"{name} {before.get(name)} -> {after.get(name)}"
        for name in DECIDING
        if before.get(name) != after.get(name)
    ]


def is_own(row: Row) -> bool:
    """Whether a row is udpfast's own: peers and floors have a version, or do something less."""
    return not (row.version or row.less)


def missing(first: Row | None, second: Row | None, before: Result, after: Result) -> str:
    """Return why a row has no partner, or nothing."""
    there, where = (first, after) if second is None else (second, before)
    if (first and second) or there is None:
        return ""
    other = {row.key for row in (before if second is None else after).rows}
    for row in where.rows:
        if row.key[:3] == there.key[:3] and row.key not in other:
            return f"{first.placement if first else row.placement} before, " + (
                f"{second.placement if second else row.placement} now"
            )
    return "only before" if second is None else "only now"


def unequal(first: Row | None, second: Row | None, before: Result, after: Result) -> str:
    """Return why two rows cannot be set against each other, or nothing."""
    if first is None or second is None:
        return ""
    if first.version != second.version:
        return f"version {first.version} -> {second.version}"
    if first.unit != second.unit:
        return f"unit {first.unit} -> {second.unit}"
    fewest = min(len(first.values), len(second.values))
    if fewest < TRIALS_MIN:
        return (
            f"{len(first.values)} and {len(second.values)} trials, "
            f"expected at least {TRIALS_MIN} each"
        )
    least = min(*first.values, *second.values)
    if least <= 0:
        return f"a figure of {least:g} has no quotient"
    lost = max(lost_share(before, first.benchmark), lost_share(after, first.benchmark))
    if lost > LOST_SHARE_MAX:
        return f"the machine took {lost:.0%} of the time away"
    return ""


def lost_share(result: Result, benchmark: str) -> float:
    """Return the share of time that the machine took away around a benchmark: before or after."""
    names = [str(entry["before"]) for entry in result.jitter]
    if benchmark not in names:
        return 0.0
    place = names.index(benchmark)
    return max(float(entry["lost_share"]) for entry in result.jitter[place : place + 2])


def without_verdict(first: Row | None, second: Row | None, reason: str) -> Comparison:
    """Return a comparison that says why there is none."""
    row = second or first
    assert row is not None
    return Comparison(
        row,
        first.median if first else math.nan,
        second.median if second else math.nan,
        f"not comparable: {reason}",
        is_own(row),
    )


def with_verdict(first: Row, second: Row, before: Result, after: Result) -> Comparison:
    """Return the change, its noise, and what follows from both."""
    relative = has_base(first, before) and has_base(second, after)
    samples = (first.ratios, second.ratios) if relative else (first.values, second.values)
    ratio, low, high = change(*samples)
    drift = TOLERANCE if relative else DRIFT + peers_moved(second, before, after)
    tolerance = drift + abs(
        lost_share(before, first.benchmark) - lost_share(after, first.benchmark)
    )
    verdict = "same within noise"
    if not low <= 1 <= high and abs(math.log(ratio)) > math.log1p(tolerance):
        verdict = "slower" if (ratio > 1) == second.lower_is_better else "faster"
    base = second.base if relative else ""
    own = is_own(second)
    return Comparison(second, first.median, second.median, verdict, own, base, ratio, low, high)


def has_base(row: Row, result: Result) -> bool:
    """Whether a row has ratios to a peer's row, enough of them."""
    if row.variant == row.base or len(row.ratios) < TRIALS_MIN:
        return False
    return any(
        other.key[0] == row.benchmark
        and other.key[2:] == row.key[2:]
        and other.variant == row.base
        and not is_own(other)
        for other in result.rows
    )


def peers_moved(row: Row, before: Result, after: Result) -> float:
    """Return by how much the median of a peer beside a row has changed, the largest of them."""
    old = {other.key: other for other in before.rows}
    moved = [
        abs(math.log(other.median / old[other.key].median))
        for other in after.rows
        if other.key[0] == row.benchmark
        and other.variant != row.variant
        and other.key[2:] == row.key[2:]
        and not is_own(other)
        and other.key in old
        and other.unit == old[other.key].unit
        and min(other.median, old[other.key].median) > 0
    ]
    return math.expm1(max(moved, default=0.0))


def change(before: list[float], after: list[float]) -> tuple[float, float, float]:
    """Return the quotient of two samples, with the bounds of its 99 % interval.

    Lehmann, Nonparametrics (1975), section 2.5: the bounds are the quotients at the ranks at which
    the test of Mann and Whitney would just not reject.
    """
    quotients = sorted(new / old for new in after for old in before)
    skipped = rank_limit(len(before), len(after))
    return statistics.median(quotients), quotients[skipped], quotients[-1 - skipped]


def rank_limit(first: int, second: int) -> int:
    """Return how many quotients at either end lie outside the interval; at least none.

    `ways[u]` counts the orders of both samples in which u pairs are inverted: it is the product
    of (1 - x^(second + i)) / (1 - x^i), i = 1 .. first, as a polynomial.
    """
    ways = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for u in range(len(ways) - 1, second + i - 1, -1):
            ways[u] -= ways[u - second - i]
        for u in range(i, len(ways)):
            ways[u] += ways[u - i]
    tail = math.comb(first + second, first) * (1 - CONFIDENCE) / 2
    limit = total = 0
    while total + ways[limit] <= tail:
        total += ways[limit]
        limit += 1
    return limit
