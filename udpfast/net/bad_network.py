"""A bad network from one seed: loss, bursts, duplicates, reordering, delay, damage, per line.

What goes in and comes out is a list, so the same seed gives the same datagrams at the same times
anywhere. `BadNetwork` keeps its state between calls and can stand in front of real sockets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Arrival", "BadNetwork", "LineFaults", "LineMap", "network"]

#: Faults by (channel, line).
LineMap = Mapping[tuple[int, int], "LineFaults"]

_Times = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


class Arrival(NamedTuple):
    """A datagram on a line at a time (sent or received)."""

    time_ns: int
    channel: int
    line: int
    datagram: bytes


@dataclass(frozen=True, slots=True)
class LineFaults:
    """What one line does to its datagrams.

    Attributes
    ----------
    loss : float
        Average part that is lost, 0 to 1.
    burst_mean : float
        Mean number of datagrams lost in a row (Gilbert-Elliott: geometric runs); 0: independent.
    duplicate : float
        Part that comes twice, the second `duplicate_delay_ns` later.
    reorder : float
        Part that is moved back behind up to `reorder_depth` later ones.
    delay_ns, jitter_ns : int
        Constant delay, and a uniform one on top of it that does not change the order.
    corrupt : float
        Part in which one byte, anywhere, is changed.
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
    """A network whose lines have faults, with a state that lasts from call to call.

    Parameters
    ----------
    faults : mapping of (channel, line) to LineFaults, or LineFaults
        One for all lines (each with its own random numbers), or one per line; a line that is
        not named is perfect.
    seed : int
        Decides everything.
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
        """Return what arrives on one line, in order of arrival."""
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
        """Return (due_ns, datagram) for each that arrives, as `feed.transmitter` wants it."""
        arrivals = self.deliver(channel, line, [now_ns] * len(datagrams), datagrams)
        return [(arrival.time_ns, arrival.datagram) for arrival in arrivals]


def network(sent: Iterable[Arrival], faults: LineMap | LineFaults, seed: int) -> list[Arrival]:
    """Return what arrives, over all lines in order of time."""
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
            # The times of arrival stay; who arrives at which is exchanged.
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
