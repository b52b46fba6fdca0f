"""Latency histograms: three significant digits from 1 ns to one hour, readable while written."""

from pathlib import Path

import numpy as np


from udpfast.core.layout import layout_hash
from udpfast.errors import RegionError
from udpfast.shm.region cimport REGION_PAGE, Region

__all__ = ["VALUE_MAX", "LatencyBlock", "LatencyHistogram"]

#: The largest value that is not clamped, in ns.
VALUE_MAX: int = histogram_value_max()

_KIND = "HIST"
_HISTOGRAM = np.dtype([
    ("below", "<i8"), ("above", "<i8"), ("reserved", "<i8", 14),
    ("counts", "<i8", HISTOGRAM_COUNTS),
])
_LAYOUT_HASH = layout_hash(_HISTOGRAM)
# No slot ever counts more: that is a million per second for 12 days. Sums of all slots fit 64 bits.
_COUNT_MAX = 1 << 40

if sizeof(Histogram) != _HISTOGRAM.itemsize or sizeof(Histogram) % 128 != 0:
    raise ImportError(f"struct Histogram has {sizeof(Histogram)} bytes, "
                      f"its dtype {_HISTOGRAM.itemsize}")


cdef class LatencyHistogram:
    """One histogram: in memory of its own, or (from a `LatencyBlock`) in shared memory."""

    def __cinit__(self):
        self._memory = np.zeros((), _HISTOGRAM)
        self.histogram = <Histogram*><size_t>self._memory.ctypes.data

    def record(self, value: int) -> None:
        """Record one value in ns. It is clamped and counted so if below 0 or above `VALUE_MAX`."""
        if not self._memory.flags.writeable:
            raise ValueError("the histogram is attached read-only")
        histogram_record(self.histogram, value)

    def percentile(self, percent: float) -> int:
        """Return the value that `percent` percent of the recorded values do not exceed.

        It is the largest value of its slot, so at most 0.1 % too high; 0 if nothing was recorded.
        For `percent` 0 it is the smallest value of the first slot that is not empty.
        """
        return self.percentiles([percent])[0]

    def percentiles(self, percents: Sequence[float]) -> list[int]:
        """Return one value for each of `percents`, all at the same time; see `percentile`."""
        sums = np.cumsum(self._memory["counts"])
        total = int(sums[HISTOGRAM_COUNTS - 1])
        return [_value_at(sums, total, percent) for percent in percents]

    def counts(self) -> NDArray[np.int64]:
        """Return a copy of the counts of all 33792 slots, int64."""
        return self._memory["counts"].copy()

    @staticmethod
    def values() -> NDArray[np.int64]:
        """Return the smallest value of each slot, int64: the x axis of `counts`."""
        slots = np.arange(HISTOGRAM_COUNTS, dtype=np.int64)
        buckets = np.maximum((slots >> HISTOGRAM_HALF_BITS) - 1, 0)
        return (slots - (buckets << HISTOGRAM_HALF_BITS)) << buckets

    def merge(self, LatencyHistogram other) -> None:
        """Add the counts of another histogram."""
        cdef Histogram* mine = self.histogram
        cdef Histogram* theirs = other.histogram
        if not self._memory.flags.writeable:
            raise ValueError("the histogram is attached read-only")
        mine.below += theirs.below
        mine.above += theirs.above
        cdef int64_t i
        for i in range(HISTOGRAM_COUNTS):
            mine.counts[i] += theirs.counts[i]

    @property
    def total(self) -> int:
        """Number of values recorded, clamped ones included."""
        return int(self._memory["counts"].sum())

    @property
    def minimum(self) -> int:
        """The smallest value of the lowest slot in use; 0 if nothing was recorded."""
        return self.percentile(0)

    @property
    def maximum(self) -> int:
        """The largest value of the highest slot in use; 0 if nothing was recorded."""
        return min(self.percentile(100), VALUE_MAX)

    @property
    def below(self) -> int:
        """Number of values below 0, recorded as 0."""
        return self.histogram.below

    @property
    def above(self) -> int:
        """Number of values above `VALUE_MAX`, recorded as `VALUE_MAX`."""
        return self.histogram.above


cdef LatencyHistogram histogram_of(Region region, Py_ssize_t offset):
    cdef LatencyHistogram found = LatencyHistogram.__new__(LatencyHistogram)
    found._memory = np.frombuffer(region.view(), _HISTOGRAM, 1, offset).reshape(())
    found.histogram = <Histogram*><size_t>found._memory.ctypes.data
    return found


cdef LatencyHistogram histogram_copied(bytes text, Py_ssize_t offset):
    cdef LatencyHistogram found = LatencyHistogram.__new__(LatencyHistogram)
    counts = np.frombuffer(text, _HISTOGRAM, 1, offset).reshape(())
    if 0 <= counts["counts"].min() and counts["counts"].max() <= _COUNT_MAX:
        found._memory[...] = counts
    return found


cdef class LatencyBlock:
    """Named histograms of one instance, written by one owner and read by tools.

    Attributes
    ----------
    region : Region
    names : tuple of str
    """

    @staticmethod
    def create(
            path: str | os.PathLike[str], names: Sequence[str],
            publish: bool = True) -> LatencyBlock:
        """Create a block of empty histograms, in place of a dead writer's.

        Parameters
        ----------
        path : str or path
            The block's file, or an instance's directory (then its file `latency`).
        names : sequence of str
            Names of the histograms, such as `kernel_to_loop`.
        publish : bool
            Let readers find it now. False: the caller calls `region.mark_ready` later.

        Raises
        ------
        WriterExistsError
            A living process writes it.
        """
        cdef LatencyBlock block = LatencyBlock.__new__(LatencyBlock)
        if len(set(names)) != len(names) or not names:
            raise ValueError(f"names must be different, and at least one, were {names}")
        block.names = tuple(names)
        block.region = Region.create(_latency_path(path), _KIND, _size_bytes(len(names)),
                                     _LAYOUT_HASH, replace=True)
        block.region.describe({"names": list(names)})
        if publish:
            block.region.mark_ready()
        return block

    @staticmethod
    def attach(path: str | os.PathLike[str]) -> LatencyBlock:
        """Attach to a block, read-only. Its writer may be dead.

        Raises
        ------
        RegionError
            The file is not a block of histograms, or has another layout.
        """
        cdef LatencyBlock block = LatencyBlock.__new__(LatencyBlock)
        block.region = Region.attach(_latency_path(path), _KIND, _LAYOUT_HASH)
        names = block.region.description().get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RegionError(f"{block.region.path}: expected a list of names, found {names!r}")
        if block.region.size_bytes != _size_bytes(len(names)):
            raise RegionError(f"{block.region.path}: expected {_size_bytes(len(names))} bytes, "
                              f"found {block.region.size_bytes}")
        block.names = tuple(names)
        return block

    def __getitem__(self, name: str) -> LatencyHistogram:
        """Return one histogram, which stays valid when the block is closed.

        Raises
        ------
        KeyError
            There is no histogram of this name.
        """
        if name not in self.names:
            raise KeyError(name)
        return histogram_of(self.region, _offset(self.names.index(name)))

    cdef Histogram* pointer(self, str name) noexcept:
        if name not in self.names:
            return NULL
        return <Histogram*>(self.region.pointer + <size_t>_offset(self.names.index(name)))

    def close(self) -> None:
        """Release the block. The file stays for later reading."""
        self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


def _value_at(sums, total, percent):
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be 0 to 100, was {percent}")
    if total == 0:
        return 0
    # HdrHistogram's rounding, so that its tools and ours agree on the same counts.
    wanted = max(int(percent * total / 100 + 0.5), 1)
    slot = int(np.searchsorted(sums, wanted))
    bucket = max((slot >> HISTOGRAM_HALF_BITS) - 1, 0)
    lowest = (slot - (bucket << HISTOGRAM_HALF_BITS)) << bucket
    return lowest + (1 << bucket) - 1 if percent > 0 else lowest


def _latency_path(path):
    path = Path(path)
    return path / "latency" if path.is_dir() else path


def _offset(index):
    return REGION_PAGE + index * sizeof(Histogram)


def _size_bytes(count):
    return _offset(count)
