# Source: what a Reader reads from: a ring, or something else that hands out records in order. It
# fills three arrays, as a RingCursor does, says how many records were missed before the first of
# them, and knows names. A Reader does the rest: batches, iteration, restarts, filters.
#
# A source is made by the module that its address's prefix names (source.pyx). It subclasses Source,
# fills in the fields of the first block once, and overrides the methods. One source, one reader,
# one thread; only `closing` is set by another.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.idle cimport Idle
from udpfast.core.layout cimport Record
from udpfast.log.readers cimport ReaderEntry

cdef class Source:
    cdef readonly object directory   # Path of the instance; None: not of this host
    cdef readonly object headers_array    # RECORD; the pointers below point into these arrays
    cdef readonly object offsets_array    # uint64: of each payload in payloads, 8-aligned
    cdef readonly object payloads_array   # uint8
    cdef Record* headers
    cdef uint64_t* offsets
    cdef uint8_t* payloads
    cdef NameCache names             # for the ids of the records in memory; never None
    cdef ReaderEntry* entry          # where tools see this reader; NULL: none do, or detached
    cdef uint64_t missed             # by the last wait: records before the first that it brought
    cdef uint32_t missed_reason      # LappedReason
    cdef bint from_image             # the last wait brought records of an image, not of the log
    cdef bint among                  # others are read with it, and go on when it ends
    cdef bint closing                # another thread asks for the end: `wait` returns within 20 ms

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil
    cdef check(self)
    cdef fail(self, int64_t code)
    cdef renew_names(self)
    cdef bint names_missing(self)
    cdef sleeper(self)
    cdef report(self, uint64_t read)
    cdef uint64_t next_index(self)
    cdef bint joining(self)
    cdef bint between(self)
    cdef uint64_t missed_total(self)
    cdef uint64_t written(self)
    cdef uint64_t writer_epoch(self)
    cdef bint writer_alive(self)
    cdef bint writer_ended(self)
    cdef bint writer_failed(self)
    cdef bint writer_stuck(self)
    cdef names_published(self)
    cdef bint detached(self)
    cdef detach(self)
    cdef use_arrays(self, headers, offsets, payloads)

cdef class PolledSource(Source):
    # Its files are looked at with the GIL: each new look may have to open others.
    cdef uint64_t look_turns         # a spinning wait looks at the files this often
    cdef bint done                   # detached
    cdef object failure              # met without the GIL; for `fail` to raise
    cdef bint ready(self) noexcept nogil
    cdef int64_t poll(self, int64_t limit) except -1
    cdef int64_t look(self, int64_t limit) noexcept
