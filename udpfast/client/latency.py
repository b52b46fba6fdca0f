"""Latency per hop of an instance, running or ended, as its loop and its readers measured it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from udpfast.log.readers import READER_HOPS, reader_histograms
from udpfast.shm.histogram import VALUE_MAX, LatencyBlock, LatencyHistogram
from udpfast.shm.instance import instance_directory

__all__ = [
    "PERCENTS",
    "Hop",
    "Latency",
    "hops_since",
    "latency",
    "merge_readers",
    "read_hops",
]

#: The percentiles that every table of hops shows.
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}

# This hop is the difference of two hosts' clocks. Its negative values are in the opposite hop.
_OPPOSITES = {"origin_to_kernel": "kernel_to_origin"}

Counts = npt.NDArray[np.int64]


class Hop(Struct, frozen=True, eq=False):
    """The latencies recorded for one hop: a histogram that can be added and subtracted.

    Attributes
    ----------
    counts : numpy.ndarray of int64
        Count of each slot; `LatencyHistogram.values()` has the smallest value of each slot, in ns.
    opposite : numpy.ndarray of int64
        The same for negative values, by absolute value; all 0 for a hop within one host.
    below, above : int
        Number of values below 0 (counted as 0, unless `opposite` has them), and above one hour.
    """

    counts: Counts
    opposite: Counts
    below: int
    above: int

    @property
    def count(self) -> int:
        """Number of values recorded."""
        below = 0 if self.opposite is _nothing() else int(self.opposite.sum())
        return int(self.counts.sum()) + below

    def percentiles(self, percents: Mapping[str, float]) -> dict[str, int]:
        """Return by name the value in ns that this percentage does not exceed; 0 without values."""
        lowest, highest = _slots()
        # Few of the 33,792 slots hold anything; `nonzero` of booleans takes a tenth of the time.
        above = np.flatnonzero(self.counts != 0)
        below = above[:0]
        if self.opposite is not _nothing():
            below = np.flatnonzero(self.opposite != 0)[::-1]
        values = np.concatenate((-lowest[below], highest[above]))
        if not len(values):
            return dict.fromkeys(percents, 0)
        sums = np.cumsum(np.concatenate((self.opposite[below], self.counts[above])))
        wanted = [max(int(percent * int(sums[-1]) / 100 + 0.5), 1) for percent in percents.values()]
        found = values[np.searchsorted(sums, wanted)]
        return dict(zip(percents, found.tolist(), strict=True))

    def summary(self) -> dict[str, int]:
        """Return count, percentiles in ns, and how many values were below 0 and above an hour."""
        return {
            "count": self.count,
            **self.percentiles(PERCENTS),
            "below": self.below,
            "above": self.above,
        }

    def __add__(self, other: Hop) -> Hop:
        """Return the histogram of the values of both."""
        return Hop(
            self.counts + other.counts,
            self.opposite + other.opposite if other.opposite is not _nothing() else self.opposite,
            self.below + other.below,
            self.above + other.above,
        )

    def __sub__(self, earlier: Hop) -> Hop:
        """Return what was recorded since `earlier`, an older reading of the same histogram."""
        return Hop(
            self.counts - earlier.counts,
            self.opposite - earlier.opposite
            if earlier.opposite is not _nothing()
            else self.opposite,
            self.below - earlier.below,
            self.above - earlier.above,
        )


@cache
def _slots() -> tuple[Counts, Counts]:
    # The smallest and the largest value of each slot.
    lowest = LatencyHistogram.values()
    return lowest, np.minimum(np.append(lowest[1:] - 1, VALUE_MAX), VALUE_MAX)


@cache
def _nothing() -> Counts:
    # Shared by all hops within one host: saves 270 kB, and reading and adding it, for each hop.
    counts = np.zeros(len(LatencyHistogram.values()), np.int64)
    counts.flags.writeable = False
    return counts


class Latency(dict[str, dict[str, int]]):
    """Percentiles by hop: a dict that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from udpfast.client.notebook import latency_html

        return latency_html(self)


def latency(instance: str | os.PathLike[str]) -> Latency:
    """Return the latency of every hop of an instance, as of now, in ns.

    Parameters
    ----------
    instance : str or path
        The name of the instance, or the path of its directory.

    Returns
    -------
    Latency
        A dict by hop: `origin_to_kernel`, `kernel_to_loop`, `loop_to_ring` of the loop;
        `loop_to_strategy`, `kernel_to_strategy` of all readers together, and of each reader
        (`loop_to_strategy.NAME-PID`). Each has `count`, `p50`, `p90`, `p99`, `p99_9`, `max`,
        `below` (values below 0: the clocks disagree) and `above` (values above one hour).
        `docs/counters.md` says what each hop measures.

    Raises
    ------
    FileNotFoundError
        There is no such instance.
    RegionError
        Its histograms were written by another version of udpfast, or by a user who is not trusted.
    """
    hops = merge_readers(read_hops(instance_directory(instance)))
    return Latency({name: hop.summary() for name, hop in hops.items()})


def read_hops(directory: str | os.PathLike[str]) -> dict[str, Hop]:
    """Return the hops of an instance: the loop's by name, each reader's as `HOP.NAME-PID`."""
    hops: dict[str, Hop] = {}
    with LatencyBlock.attach(Path(directory) / "latency") as block:
        for name in block.names:
            if name in _OPPOSITES.values():
                continue
            hop = _read(block[name])
            if name in _OPPOSITES:
                opposite = _read(block[_OPPOSITES[name]])
                hop = replace(
                    hop,
                    opposite=opposite.counts,
                    below=opposite.count,
                    above=hop.above + opposite.above,
                )
            hops[name] = hop
    for reader, histograms in reader_histograms(directory):
        key = f"{reader.name or 'reader'}-{reader.pid}"
        while f"{READER_HOPS[0]}.{key}" in hops:  # another reader of that name in that process
            key += "+"
        hops |= {f"{name}.{key}": _read(histogram) for name, histogram in histograms.items()}
    return hops


def hops_since(hops: Mapping[str, Hop], earlier: Mapping[str, Hop]) -> dict[str, Hop]:
    """Return what was recorded between two readings; shared memory itself is never reset.

    A histogram that began anew in between (another writer or reader) counts from its beginning.
    """
    since = {}
    for name, hop in hops.items():
        known = earlier.get(name)
        fewer = known is not None and (
            bool((hop.counts < known.counts).any())
            or (hop.opposite is not _nothing() and bool((hop.opposite < known.opposite).any()))
        )
        since[name] = hop if known is None or fewer else hop - known
    return since


def merge_readers(hops: Mapping[str, Hop]) -> dict[str, Hop]:
    """Return the loop's hops, then those of all readers together, then each reader's own."""
    merged = {name: hop for name, hop in hops.items() if "." not in name}
    for name in READER_HOPS:
        for key, hop in hops.items():
            if key.startswith(f"{name}."):
                merged[name] = merged[name] + hop if name in merged else hop
    return merged | {name: hop for name, hop in hops.items() if "." in name}


def _read(histogram: LatencyHistogram) -> Hop:
    return Hop(histogram.counts(), _nothing(), histogram.below, histogram.above)
