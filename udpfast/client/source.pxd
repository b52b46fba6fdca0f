# Source: what a Reader reads from: a ring, or something else that hands out records in order. It
# fills three arrays, as a RingCursor does, states how many records were missed before the first of
# them, and resolves names. The Reader does the rest: batches, iteration, restarts, filters.
#
# The prefix of an address selects the module that makes its source (source.pyx). A source is a
# subclass of Source, sets the fields of the first block once, and overrides the methods. One reader
# in one thread uses it; only `closing` may be set by another thread.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport Record
from udpfast.log.readers cimport ReaderEntry

cdef class Source:
    cdef readonly object directory   # Path of the instance; None: not on this host
    cdef readonly object headers_array    # RECORD; the pointers below point into these arrays
    cdef readonly object offsets_array    # uint64: of each payload in payloads, 8-aligned
    cdef readonly object payloads_array   # uint8
    cdef Record* headers
    cdef uint64_t* offsets
    cdef uint8_t* payloads
    cdef NameCache names             # for the ids of the records in memory; never None
    # Shows this reader to tools, where the records in memory are from. NULL: unlisted, or detached.
    cdef ReaderEntry* entry
    cdef uint64_t missed             # records missed before the first one of the last wait
    cdef uint32_t missed_reason      # LappedReason of these
    cdef bint from_image             # the last wait returned records of an image, not of the log
    cdef bint recorded               # it is a recording: its end leaves books as they were then
    cdef bint among                  # it is one of several, which go on when it ends
    cdef bint closing                # close was called: `wait` returns within 20 ms

    cdef join_others(self)
    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil
    cdef check(self)
    cdef fail(self, int64_t code)
    cdef renew_names(self)
    cdef bint names_missing(self)
    cdef sleeper(self)
    cdef report(self, uint64_t read)
    cdef uint64_t next_index(self)
    cdef uint64_t next_position(self)
    cdef bint joining(self)
    cdef object end(self)
    cdef bint passed(self, end) except -1
    cdef uint64_t missed_total(self)
    cdef uint64_t written(self)
    cdef uint64_t writer_epoch(self)
    cdef bint begins_again(self)
    cdef bint writer_alive(self)
    cdef bint writer_ended(self)
    cdef bint writer_failed(self)
    cdef bint writer_stuck(self)
    cdef names_published(self)
    cdef tuple feeds(self)
    cdef bint detached(self)
    cdef detach(self)
    cdef use_arrays(self, headers, offsets, payloads)

cdef class PolledSource(Source):
    # A source whose `poll` needs the GIL, because it may have to open files.
    cdef uint64_t look_turns         # a spinning wait calls `poll` every so many turns
    cdef bint done                   # detached
    cdef object failure              # exception for `fail` to raise
    cdef bint ready(self) noexcept nogil
    cdef int64_t poll(self, int64_t limit) except -1
    cdef int64_t look(self, int64_t limit) noexcept
