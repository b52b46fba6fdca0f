"""How far two hosts' clocks are apart, from the stamps of round trips alone.

With the listener's clock ahead by x, a probe that is sent at t1 and received at t2 took
t2 - t1 - x, and its echo, sent at t3 and received at t4, took t4 - t3 + x. No way takes less than
nothing:

    t3 - t4 <= x <= t2 - t1

Every round trip narrows these bounds, whichever line it took: the fastest of all lines counts.
Their middle is right if the fastest ways there and back take as long; the half of what is between
them is the largest error, whatever the lines do. Over a longer run the clocks drift: the bounds are
taken per window, and a line between them is the offset.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from udpfast.page.words import duration
from udpfast.probe.control import Clock

__all__ = ["Offset", "Trips", "find_offset"]

Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

UNKNOWN = Clock()
#: The run is cut into windows of one second. A run of more than 240 seconds has 240 longer ones.
WINDOW_NS, WINDOWS_MAX = 1_000_000_000, 240
#: A run of a few seconds has shorter windows, up to eight of them, as long as each gets a hundred
#: round trips.
WINDOWS_SHORT, WINDOW_TRIPS = 8, 100
#: A run of fewer than three windows says nothing about drift.
WINDOWS_FOR_DRIFT = 3
#: A thread that is interrupted between two readings of one clock makes them differ by up to this.
SAME_NS = 100_000
#: The error at the edges of the run is computed with windows of 20 round trips, which are shorter:
#: the line is bounded at the middles of windows, and the first middle is then closer to the edge.
EDGE_TRIPS = 20
#: The line is fitted three times. Drift widens the bounds of each window, so the second fit, which
#: takes the known drift away first, is better; a third still changes a little, a fourth nothing.
PASSES = 3


class Trips(Struct, frozen=True, eq=False):
    """The four stamps of a line's round trips, UNIX ns; two of each host."""

    sent: Times
    reached: Times
    turned: Times
    back: Times


class Offset(Struct, frozen=True, eq=False):
    """How far the listener's clock was ahead of the sender's, and how that is known.

    Attributes
    ----------
    method : str
        "same clock": both ends are one host. "own word": both hosts say that their clocks are
        right, to within less than round trips can tell. "round trips": estimated. "unknown": no
        round trip was completed, and no word given.
    offset_ns, drift_ppm : float
        At the middle of the run, and how much faster the listener's clock runs, in millionths; 0
        unless estimated. `drift_ppm` is nan where the run is too short to tell.
    error_ns : float
        No one-way time is wrong by more; nan: unknown.
    refuted : bool
        The hosts' own word, or that they are one, is impossible: round trips contradict it.
    middle_ns : int
        The middle of the run, UNIX ns.
    times_ns, offsets_ns, halves_ns : numpy.ndarray of float64
        By window: UNIX ns, the middle between the bounds, and half of what is between them.
    here, there : Clock
        What sender and listener say of their own.
    """

    method: str
    offset_ns: float
    drift_ppm: float
    error_ns: float
    refuted: bool = False
    middle_ns: int = 0
    times_ns: Values = field(default_factory=lambda: np.zeros(0))
    offsets_ns: Values = field(default_factory=lambda: np.zeros(0))
    halves_ns: Values = field(default_factory=lambda: np.zeros(0))
    here: Clock = UNKNOWN
    there: Clock = UNKNOWN

    def __repr__(self) -> str:
        return f"<Offset: {self.sentence()}>"

    def remove(self, differences: Times, times_ns: Times, sign: int = 1) -> Values:
        """Return differences of the two clocks without what the clocks add to them, ns.

        Parameters
        ----------
        differences : numpy.ndarray of int64
            The listener's clock minus the sender's; with `sign` -1 the sender's minus the
            listener's.
        times_ns : numpy.ndarray of int64
            When, UNIX time of the sender.
        sign : int
        """
        # Integers first: clocks may be years apart, which floats cannot hold to the ns.
        level = round(self.offset_ns)
        drift = 0.0 if np.isnan(self.drift_ppm) else self.drift_ppm * 1e-6
        since = (times_ns - self.middle_ns).astype(np.float64)
        return (differences - sign * level).astype(np.float64) - sign * drift * since

    def sentence(self) -> str:
        """Return what one-way times are worth, in a sentence."""
        if self.method == "same clock":
            return "both ends have the same clock: one-way times are exact"
        if self.method == "unknown":
            return "nothing is known of the clocks: one-way times may be wrong by any amount"
        if self.method == "own word":
            text = "both clocks are right by their own word"
        else:
            way = "behind" if self.offset_ns < 0 else "ahead"
            apart = duration(abs(self.offset_ns))
            text = f"the listener's clock is {apart} {way}, by round trips"
            if not np.isnan(self.drift_ppm):
                text += f", and drifts by {self.drift_ppm:+.3g} ppm"
        text += f": one-way times are wrong by {duration(self.error_ns)} at most"
        return text + ("; their own word is impossible" if self.refuted else "")


def find_offset(trips: Iterable[Trips], here: Clock, there: Clock) -> Offset:
    """Compare the clocks of two hosts.

    Parameters
    ----------
    trips : iterable of Trips
        The completed round trips of each line.
    here, there : Clock
        What both hosts say of their clocks.
    """
    completed = [each for each in trips if len(each.sent)]
    if here.host and here.host == there.host:
        # A virtual machine that was copied while it ran has its twin's boot, and another clock.
        if not any(_refutes_same(each) for each in completed):
            return Offset("same clock", 0.0, 0.0, 0.0, here=here, there=there)
        return replace(_estimate(completed), refuted=True, here=here, there=there)
    if not completed:
        claimed = _own_word(here, there)
        method = "unknown" if np.isnan(claimed) else "own word"
        return Offset(method, 0.0, 0.0, claimed, here=here, there=there)
    return _weigh_own_word(replace(_estimate(completed), here=here, there=there))


def _refutes_same(trips: Trips) -> bool:
    # Whether a way there or back took less than nothing, if one clock made all stamps.
    ways = trips.reached - trips.sent, trips.back - trips.turned
    return min(int(way.min()) for way in ways) < -SAME_NS


def _estimate(trips: list[Trips]) -> Offset:
    """Fit a line between the bounds of all windows; the bounds that are left are the error."""
    begin = min(int(each.sent.min()) for each in trips)
    end = max(int(each.sent.max()) for each in trips) + 1
    middle_ns = (begin + end) // 2
    returned = sum(len(each.sent) for each in trips)
    wanted = max((end - begin) // WINDOW_NS, min(WINDOWS_SHORT, returned // WINDOW_TRIPS), 1)
    count = int(min(wanted, WINDOWS_MAX))
    level, slope = int(trips[0].reached[0] - trips[0].sent[0]), 0.0
    # Drift also moves the bounds within a window: each pass takes away the drift found so far.
    for _ in range(PASSES):
        since, lower, upper = _bounds(trips, begin, end, level, slope, count)
        weights = 1 / (np.abs(upper - lower) + 1)
        middles = (lower + upper) / 2
        if len(since) >= WINDOWS_FOR_DRIFT:
            more, shift = np.polyfit(since, middles, 1, w=weights)
        else:
            more, shift = 0.0, float(np.average(middles, weights=weights))
        level, slope = level + round(float(shift)), slope + float(more)
    since, lower, upper = _bounds(trips, begin, end, level, slope, count)
    low, high = float(lower.max()), float(upper.min())
    if low <= high:  # one line is within the bounds of all windows
        if len(since) >= WINDOWS_FOR_DRIFT:
            # Lines of other slopes are within them, too. Those lie furthest from this one where the
            # run begins or ends: the distance there is the error.
            many = min(max(count, returned // EDGE_TRIPS), WINDOWS_MAX)
            bounds = _bounds(trips, begin, end, level, slope, many)
            low, high = _furthest(*bounds, (end - begin) / 2)
        level += round((low + high) / 2)
        error = (high - low) / 2
    else:  # the drift changed during the run: the worst window decides
        error = float(np.maximum(np.abs(lower), np.abs(upper)).max())
    since, lower, upper = _bounds(trips, begin, end, level, slope, count)
    return Offset(
        "round trips",
        float(level),
        slope * 1e6 if len(since) >= WINDOWS_FOR_DRIFT else float("nan"),
        error,
        middle_ns=middle_ns,
        times_ns=middle_ns + since,
        offsets_ns=level + slope * since + (lower + upper) / 2,
        halves_ns=np.abs(upper - lower) / 2,
    )


def _furthest(since: Values, lower: Values, upper: Values, edge: float) -> tuple[float, float]:
    """Return the least and the most that lines between all bounds have at -edge or at edge.

    A line is turned upwards at an edge until it touches an upper bound of one window and a lower
    bound of another: each pair of windows gives a limit, and the strictest one counts.
    """
    before, after = np.triu_indices(len(since), 1)
    apart = since[after] - since[before]
    to_end, to_begin = (edge - since[after]) / apart, (since[before] + edge) / apart

    def most(low: Values, high: Values) -> float:
        at_end = high[after] + (high[after] - low[before]) * to_end
        at_begin = high[before] + (high[before] - low[after]) * to_begin
        return float(max(at_end.min(), at_begin.min()))

    return -most(-upper, -lower), most(lower, upper)


def _own_word(here: Clock, there: Clock) -> float:
    """Return how far the clocks are apart at most, if both say that they are right; nan if not."""
    if not (here.synchronised and there.synchronised):
        return float("nan")
    if here.error_ns is None or there.error_ns is None:
        return float("nan")
    return float(here.error_ns + there.error_ns)


def _weigh_own_word(found: Offset) -> Offset:
    claimed = _own_word(found.here, found.there)
    if abs(found.offset_ns) > claimed + found.error_ns:
        return replace(found, refuted=True)
    if not claimed < found.error_ns:  # nan, too
        return found
    return replace(found, method="own word", offset_ns=0.0, drift_ppm=0.0, error_ns=claimed)


def _bounds(
    trips: list[Trips], begin: int, end: int, level: int, slope: float, count: int
) -> tuple[Values, Values, Values]:
    """Return middle (ns since that of the run), lower and upper bound of each of `count` windows.

    The bounds are of what is left of the offset without a line of this level and slope; windows in
    which nothing came back are left out.
    """
    middle = (begin + end) // 2
    lower, upper = np.full(count, -np.inf), np.full(count, np.inf)
    for each in trips:
        place = (each.sent - begin) * count // (end - begin)
        drift = slope * (each.sent - middle)
        np.minimum.at(upper, place, (each.reached - each.sent - level) - drift)
        np.maximum.at(lower, place, (each.turned - each.back - level) - drift)
    since = (np.arange(count) + 0.5) * ((end - begin) / count) - (end - begin) / 2
    there = np.isfinite(lower) & np.isfinite(upper)
    return since[there], lower[there], upper[there]
