# Reader: a source of records, a way to wait, and how far they are handed out. One reader, one
# thread.

from libc.stdint cimport int64_t, uint16_t, uint64_t

from udpfast.client.batch cimport Batch, BatchMemory
from udpfast.client.filter cimport Filter
from udpfast.client.record cimport ReadRecord
from udpfast.client.source cimport Source
from udpfast.core.idle cimport Idle

cdef enum:
    READER_CLOSED = -1           # ahead: the writer closed the ring, or close was called
    READER_FOREVER = 0x7FFFFFFFFFFFFFFF  # a deadline that never comes

cdef class Reader:
    cdef Source _source
    cdef BatchMemory _memory     # the source's arrays
    cdef Filter _filter          # None: everything passes
    cdef object _arrivals        # client.aio.Arrivals, once an event loop waits for this reader
    cdef Idle _idle
    cdef int64_t _batch          # records that one poll may take
    cdef int64_t _next           # of the run in memory: the first record not handed out yet
    cdef int64_t _count          # behind the last one that may be handed out
    cdef int64_t _rest           # with a filter: records [_rest, _end) of the run wait for it,
    cdef int64_t _end            # because a RESTART comes before them; equal: none do
    cdef int64_t _looked_ns      # when _fill last looked whether the source is still there
    cdef uint64_t _read          # records handed out, or held back by the filter
    cdef uint64_t _missed        # before the record at _next, not said yet
    cdef uint64_t _missed_index  # of the record behind them
    cdef uint64_t _missed_position
    cdef bint _filling           # a thread looks for records, and may lose the GIL while it does
    cdef readonly str address

    # For compiled strategies: what `poll` returns, waited for until deadline_ns (CLOCK_MONOTONIC);
    # empty: it has passed; None: all was read and the ring is closed, or this reader is.
    cdef Batch next_batch(self, int64_t most, int64_t deadline_ns)

    # Have records in memory that are not handed out: 1, 0 if the deadline passed, or READER_CLOSED.
    cdef int64_t ahead(self, int64_t limit, int64_t deadline_ns) except -2
    # With records ahead: the kind of the next; hand it out; hand it out without looking at it.
    cdef uint16_t kind_ahead(self) noexcept
    cdef ReadRecord take(self)
    cdef int skip(self) except -1
    cdef Batch take_batch(self, int64_t most)
    # As ahead, with none in memory. brief: of what the filter holds back one run at most.
    cdef int64_t _fill(self, int64_t limit, int64_t deadline_ns, bint brief) except -2
    cdef int64_t _wait(self, int64_t limit, int64_t deadline_ns, bint brief) except -2
    cdef _renew_memory(self)
    cdef int64_t _behind(self)
    cdef bint _brought(self, int64_t count) except -1
    cdef bint _select(self) except -1
    cdef bint _closed(self)
    cdef _check_open(self)

cdef int64_t reader_deadline(timeout) except -1


cdef inline bint reader_in_memory(Reader reader) noexcept:
    # Whether something can be handed out without a look at the source.
    return reader._missed != 0 or reader._next < reader._count
