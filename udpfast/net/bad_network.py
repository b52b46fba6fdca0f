"""A simulated bad network: loss, bursts, duplicates, reordering, delay and damage, per line.

Input and output are lists, so the same seed gives the same datagrams at the same times on every
host. `BadNetwork` keeps its state between calls and can be put in front of real sockets.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

__all__ = ["Arrival", "BadNetwork", "LineFaults", "LineMap", "network"]

#: Faults by (channel, line).
LineMap = Mapping[tuple[int, int], "LineFaults"]

_Times = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


class Arrival(NamedTuple):
    """A datagram on a line, and the time at which it was sent or received."""

    time_ns: int
    channel: int
    line: int
    datagram: bytes


class LineFaults(Struct, frozen=True):
    """The faults of one line.

    Attributes
    ----------
    loss : float
        Average fraction of datagrams lost, 0 to 1.
    burst_mean : float
        Mean number of datagrams lost in a row (Gilbert-Elliott: geometric runs); 0: independent.
    duplicate : float
        Fraction that arrives twice, the second time `duplicate_delay_ns` later.
    reorder : float
        Fraction that is moved behind up to `reorder_depth` later datagrams.
    delay_ns, jitter_ns : int
        Constant delay, and a uniformly distributed one in addition, which keeps the order.
    corrupt : float
        Fraction in which one byte at a random place is changed.
    """

    loss: float = 0.0
    burst_mean: float = 0.0
    duplicate: float = 0.0
    duplicate_delay_ns: int = 0
    reorder: float = 0.0
    reorder_depth: int = 0
    delay_ns: int = 0
    jitter_ns: int = 0
    corrupt: float = 0.0


class BadNetwork:
    """A network whose lines have faults; it keeps its state between calls.

    Parameters
    ----------
    faults : mapping of (channel, line) to LineFaults, or LineFaults
        The faults per line, or those of every line (each with its own random numbers). A line that
        is not in the mapping is perfect.
    seed : int
        Seed of all random numbers.
    """

    def __init__(self, faults: LineMap | LineFaults, seed: int) -> None:
        self._faults = faults
        self._seed = seed
        self._lines: dict[tuple[int, int], _Line] = {}
        self.lost = 0

    def deliver(
        self,
        channel: int,
        line: int,
        times: Sequence[int],
        datagrams: Sequence[bytes],
    ) -> list[Arrival]:
        """Return the datagrams that arrive on one line, in order of arrival."""
        key = (channel, line)
        if key not in self._lines:
            faults = self._faults
            of_line = faults if isinstance(faults, LineFaults) else faults.get(key, LineFaults())
            self._lines[key] = _Line(of_line, np.random.default_rng([self._seed, channel, line]))
        return self._lines[key].deliver(channel, line, np.asarray(times, np.int64), datagrams, self)

    def pass_through(
        self,
        channel: int,
        line: int,
        datagrams: list[bytes],
        now_ns: int,
    ) -> Sequence[tuple[int, bytes]]:
        """Return (due_ns, datagram) for each datagram that arrives, for `feed.transmitter`."""
        arrivals = self.deliver(channel, line, [now_ns] * len(datagrams), datagrams)
        return [(arrival.time_ns, arrival.datagram) for arrival in arrivals]


def network(sent: Iterable[Arrival], faults: LineMap | LineFaults, seed: int) -> list[Arrival]:
    """Return the datagrams that arrive on all lines, in order of time."""
    bad = BadNetwork(faults, seed)
    lines: dict[tuple[int, int], tuple[list[int], list[bytes]]] = {}
    for time_ns, channel, line, datagram in sent:
        times, datagrams = lines.setdefault((channel, line), ([], []))
        times.append(time_ns)
        datagrams.append(datagram)
    arrived = [
        arrival
        for (channel, line), (times, datagrams) in sorted(lines.items())
        for arrival in bad.deliver(channel, line, times, datagrams)
    ]
    arrived.sort(key=lambda arrival: arrival.time_ns)
    return arrived


class _Line:
    def __init__(self, faults: LineFaults, rng: np.random.Generator) -> None:
        self.faults = faults
        self.rng = rng
        self.losing = rng.random() >= faults.loss  # the first run begins with the other state
        self.run_left = 0

    def deliver(
        self, channel: int, line: int, times: _Times, datagrams: Sequence[bytes], totals: BadNetwork
    ) -> list[Arrival]:
        faults, rng = self.faults, self.rng
        lost = self._lost(len(times))
        totals.lost += int(lost.sum())
        order = np.flatnonzero(~lost)
        arrival = times[order] + faults.delay_ns
        if faults.jitter_ns:
            jitter = rng.integers(0, faults.jitter_ns + 1, len(order))
            arrival = np.maximum.accumulate(arrival + jitter) if len(order) else arrival
        if faults.reorder_depth:
            # Keep the times of arrival, and permute the datagrams.
            back = rng.integers(0, faults.reorder_depth + 1, len(order))
            back[rng.random(len(order)) >= faults.reorder] = 0
            places = np.arange(len(order)) + back + 0.5 * (back > 0)
            order = order[np.argsort(places, kind="stable")]
        if faults.duplicate:
            twice = rng.random(len(order)) < faults.duplicate
            order = np.concatenate([order, order[twice]])
            arrival = np.concatenate([arrival, arrival[twice] + faults.duplicate_delay_ns])
            in_time = np.argsort(arrival, kind="stable")
            order, arrival = order[in_time], arrival[in_time]
        damaged = (
            rng.random(len(order)) < faults.corrupt
            if faults.corrupt
            else np.zeros(len(order), bool)
        )
        return [
            Arrival(
                time_ns, channel, line, self._damage(datagrams[index]) if bad else datagrams[index]
            )
            for time_ns, index, bad in zip(
                arrival.tolist(), order.tolist(), damaged.tolist(), strict=True
            )
        ]

    def _lost(self, count: int) -> _Mask:
        faults, rng = self.faults, self.rng
        if not faults.loss:
            return np.zeros(count, bool)
        if not faults.burst_mean:
            return rng.random(count) < faults.loss
        # Runs of good and lost datagrams alternate; their means give the average loss.
        good_mean = faults.burst_mean * (1 - faults.loss) / faults.loss
        lost = np.zeros(count, bool)
        place = 0
        while place < count:
            if self.run_left == 0:
                self.losing = not self.losing
                mean = faults.burst_mean if self.losing else good_mean
                self.run_left = int(rng.geometric(1 / max(1.0, mean)))
            run = min(self.run_left, count - place)
            lost[place : place + run] = self.losing
            self.run_left -= run
            place += run
        return lost

    def _damage(self, datagram: bytes) -> bytes:
        damaged = bytearray(datagram)
        place = int(self.rng.integers(len(damaged)))
        damaged[place] ^= int(self.rng.integers(1, 256))
        return bytes(damaged)
