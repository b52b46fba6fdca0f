"""Latencies from records: an HDR histogram per minute, session, channel, line and hop."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from udpfast.core.layout cimport (
    CHANNEL_SNAPSHOT, KIND_MESSAGE, KIND_UPDATES, RECORD_NO_TIMESTAMP, RECORD_RELEASED,
    STREAM_FIRST, Record)
from udpfast.market.block cimport Block
from udpfast.market.update_header cimport UpdateHeader
from udpfast.shm.histogram cimport Histogram, histogram_record, histogram_record_signed

import numpy as np

from udpfast.shm.histogram import VALUE_MAX, LatencyHistogram

__all__ = ["HOPS", "HopCounts"]

cdef enum:
    MINUTE_S = 60
    HOP_ORIGIN_TO_KERNEL = 0
    HOP_KERNEL_TO_ORIGIN = 1
    HOP_EXCHANGE_TO_KERNEL = 2
    HOP_KERNEL_TO_EXCHANGE = 3
    HOP_KERNEL_TO_PUBLISHED = 4
    HOP_COUNT = 5
    FLIGHT_MAX = 0x7FFFFFFF          # the time is unknown, or was longer

#: The points between which each hop is measured. The first four compare clocks of two hosts:
#: negative values go into the histogram of the opposite hop.
HOPS = ("origin_to_kernel", "kernel_to_origin", "exchange_to_kernel", "kernel_to_exchange",
        "kernel_to_published")

_HISTOGRAM = np.dtype([("below", "<i8"), ("above", "<i8"), ("reserved", "<i8", (14,)),
                       ("counts", "<i8", (33792,))])
if _HISTOGRAM.itemsize != sizeof(Histogram):
    raise ImportError(f"Histogram has {sizeof(Histogram)} bytes, its dtype "
                      f"{_HISTOGRAM.itemsize}")

#: The largest value of each slot, which percentiles report.
_LARGEST = np.minimum(np.append(LatencyHistogram.values()[1:] - 1, VALUE_MAX), VALUE_MAX)


@cython.final
cdef class HopCounts:
    """Histograms of the current minute, and the rows of earlier minutes.

    A minute that is read in several pieces, because the clock was set back, has several rows, which
    readers sum up like any others.
    """

    cdef dict _current               # (session, stream, line) -> array of HOP_COUNT histograms
    cdef int64_t _minute
    cdef list _rows

    def __cinit__(self):
        self._current = {}
        self._rows = []

    def add(self, Block block not None) -> None:
        """Count the records of a block that contain a publisher's message."""
        cdef int64_t i, minute_ns = <int64_t> MINUTE_S * 1_000_000_000, begin = 0
        cdef uint64_t key, last = 0
        cdef const Record* record
        cdef const UpdateHeader* update
        cdef Histogram* hops = NULL
        for i in range(block.count):
            record = block.records + i
            if record.kind != KIND_MESSAGE and record.kind < KIND_UPDATES:
                continue
            if record.flags & (RECORD_NO_TIMESTAMP | RECORD_RELEASED):
                continue  # no time of receipt, or delayed by the wait for a snapshot
            if not begin <= record.published_ns < begin + minute_ns or hops == NULL:
                begin = _minute_of(record.published_ns)
                if begin != self._minute:
                    self._end_minute()
                    self._minute = begin
                hops = NULL
            key = (<uint64_t> record.session << 24) | (<uint64_t> record.stream << 8) | record.line
            if hops == NULL or key != last:
                last = key
                hops = self._hops((record.session, record.stream, record.line))
            histogram_record(
                &hops[HOP_KERNEL_TO_PUBLISHED],
                _difference(record.published_ns, record.received_ns))
            update = block.update(i)
            # A snapshot may repeat an old stamp.
            if record.stream == CHANNEL_SNAPSHOT:
                continue
            if record.stream >= STREAM_FIRST:       # stated by the framing; below two seconds
                if -FLIGHT_MAX < record.flight_ns < FLIGHT_MAX:
                    histogram_record_signed(
                        &hops[HOP_ORIGIN_TO_KERNEL], &hops[HOP_KERNEL_TO_ORIGIN],
                        record.flight_ns)
            if update == NULL:
                continue
            if update.source_send_time_utc:
                histogram_record_signed(
                    &hops[HOP_ORIGIN_TO_KERNEL], &hops[HOP_KERNEL_TO_ORIGIN],
                    _difference(record.received_ns, <int64_t> update.source_send_time_utc))
            if update.exchange_time_utc:
                histogram_record_signed(
                    &hops[HOP_EXCHANGE_TO_KERNEL], &hops[HOP_KERNEL_TO_EXCHANGE],
                    _difference(record.received_ns, update.exchange_time_utc))

    cdef Histogram* _hops(self, key) except NULL:
        if key not in self._current:
            self._current[key] = np.zeros(HOP_COUNT, _HISTOGRAM)
        return <Histogram*> <size_t> self._current[key].ctypes.data

    def _end_minute(self):
        for (session, stream, line), hops in self._current.items():
            for hop, histogram in zip(HOPS, hops):
                slots = histogram["counts"].nonzero()[0]
                if len(slots):
                    self._rows.append((
                        (self._minute // 86_400_000_000_000, stream, session), self._minute, line,
                        hop, int(histogram["above"]), slots.astype(np.int32), _LARGEST[slots],
                        histogram["counts"][slots]))
        self._current.clear()

    def take(self) -> list[tuple[Any, ...]]:
        """Return the rows of all minutes, and forget them.

        Returns
        -------
        list of tuple
            (UNIX day, stream, session), minute in UNIX ns, line, hop, number of values above an
            hour, and three arrays: slots that are not empty, their largest values, their counts.
        """
        self._end_minute()
        rows, self._rows = self._rows, []
        return rows


cdef int64_t _difference(int64_t later, int64_t earlier) noexcept nogil:
    # Unsigned arithmetic: the operands may be any numbers.
    return <int64_t> (<uint64_t> later - <uint64_t> earlier)


cdef int64_t _minute_of(int64_t unix_ns) noexcept nogil:
    # Round down; with cdivision % follows the sign of the dividend.
    cdef int64_t minute_ns = <int64_t> MINUTE_S * 1_000_000_000
    cdef int64_t rest = unix_ns % minute_ns
    return unix_ns - rest - (minute_ns if rest < 0 else 0)
