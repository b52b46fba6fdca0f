# Reader: hands out the records of a source, waits for more, and tracks which were handed out. For
# use by one thread.

from libc.stdint cimport int64_t, uint16_t, uint64_t

from udpfast.client.batch cimport Batch, BatchMemory
from udpfast.client.filter cimport Filter
from udpfast.client.record cimport NameCache, Reading, ReadRecord
from udpfast.client.source cimport Source
from udpfast.core.idle cimport Idle

cdef enum:
    READER_CLOSED = -1           # from ahead(): the ring ended and was read, or close was called
    READER_FOREVER = 0x7FFFFFFFFFFFFFFF  # a deadline that never comes

cdef class Reader:
    cdef Source _source
    cdef BatchMemory _memory     # the source's arrays
    cdef Filter _filter          # None: everything passes
    cdef object _arrivals        # client.aio.Arrivals, once an event loop has waited for this
    cdef Idle _idle
    cdef int64_t _batch          # most records that one poll may return
    cdef int64_t _next           # in the run in memory: index of the first record not handed out
    cdef int64_t _count          # index behind the last one that may be handed out
    cdef int64_t _rest           # records [_rest, _end) of the run have not been filtered yet,
    cdef int64_t _end            # because a RESTART precedes them; equal: there are none
    cdef int64_t _looked_ns      # when _fill last checked that the source still exists
    cdef uint64_t _read          # records handed out, or dropped by the filter
    cdef uint64_t _missed        # records missed before the one at _next, not reported yet
    cdef uint64_t _missed_index  # index of the record behind them
    cdef uint64_t _missed_position
    cdef Reading _reading
    cdef bint _filling           # a thread is in _fill, perhaps without the GIL
    cdef readonly str address

    # For compiled strategies: as `poll`, waiting until deadline_ns (CLOCK_MONOTONIC). Returns an
    # empty batch at the deadline, and None if the ring ended and was read or the reader is closed.
    cdef Batch next_batch(self, int64_t most, int64_t deadline_ns)

    # Ensure that a record is in memory. Returns 1, 0 at the deadline, or READER_CLOSED.
    cdef int64_t ahead(self, int64_t limit, int64_t deadline_ns) except -2
    # If ahead() returned 1: the next record's kind; take it; skip it without making an object.
    cdef uint16_t kind_ahead(self) noexcept
    cdef ReadRecord take(self)
    cdef int skip(self) except -1
    cdef Batch take_batch(self, int64_t most)
    # For a loop that reads all there is: whether another run is in memory. `end` is empty before
    # the loop, and keeps where the source ended at its beginning: a faster feed must not hold it.
    cdef bint more(self, list end) except -1
    # As ahead(), with no record in memory. brief: return after one run, even if all was filtered.
    cdef int64_t _fill(self, int64_t limit, int64_t deadline_ns, bint brief) except -2
    cdef int64_t _wait(self, int64_t limit, int64_t deadline_ns, bint brief) except -2
    cdef _lose_feed(self)
    cdef _renew_memory(self)
    cdef bint _brought(self, int64_t count) except -1
    cdef bint _select(self) except -1
    cdef bint _closed(self)
    cdef _check_open(self)

cdef int64_t reader_deadline(timeout) except -1


cdef inline bint reader_in_memory(Reader reader) noexcept:
    # Whether a record, or a report of missed ones, can be handed out without polling the source.
    return reader._missed != 0 or reader._next < reader._count


cdef inline NameCache reader_names(Reader reader):
    # The names of the records that are handed out now.
    reader._source.names.reading = reader._reading
    return reader._source.names
