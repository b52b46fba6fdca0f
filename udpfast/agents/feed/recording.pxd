# Recording: one ring's records into one journal. The turn of a recorder (agents/feed/recorder),
# which has one or two of them.

from libc.stdint cimport int64_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.journal cimport Journal
from udpfast.market.names cimport NameTable

cdef enum:
    RECORDING_BATCH = 4096       # records of one turn

cdef class Recording:
    cdef readonly Journal journal
    cdef readonly RingCursor cursor
    cdef readonly bint ended         # the ring was closed, and all of it is in the journal
    cdef readonly bint dropping      # the disk takes no more, and its records are counted instead
    cdef readonly object failure     # what ended it
    cdef readonly uint64_t missed_before  # of the ring's log when it began
    cdef object _names               # NameCopy
    cdef NameTable _table            # the ring's own names; None: it has none
    cdef uint64_t _names_copied
    cdef uint64_t _next_index        # of the ring's record that the journal goes on with
    cdef uint64_t _lapped            # records missed, not said in the journal yet
    cdef uint64_t _dropped
    cdef bint _unknown               # more are missing than anybody can say, not said yet either
    cdef bint _doubtful              # a RESTART may be among what is missing
    cdef bint _at_end                # of the file: its writer closed it, or another took its place
    cdef int64_t _look_at_ns
    cdef int64_t _looked_ns          # the time of the last look, UNIX
    cdef int64_t _current_ns         # all that was published by then is in the journal, UNIX; 0: no
    cdef int64_t _at                 # of the batch in the cursor's arrays: the next one to append
    cdef int64_t _count
    cdef int64_t _segment_ns
    cdef bint _sync_each             # a batch waits until the disk has the one before
    cdef int work(self, int64_t now_ns) noexcept nogil
    cdef void _note_current(self) noexcept nogil
    cdef int _take(self) noexcept nogil
    cdef bint _restart_ahead(self) noexcept nogil
    cdef bint _follow(self, int64_t now_ns) noexcept nogil
    cdef bint _write(self, int64_t now_ns) noexcept nogil
    cdef bint _put(self, const Record* header, const unsigned char* payload,
                   int64_t now_ns) noexcept nogil
    cdef bint _say_missed(self, int64_t now_ns) noexcept nogil
    cdef bint _is_over(self, int64_t now_ns) noexcept nogil
    cdef bint _roll(self, int64_t now_ns) noexcept nogil
    cdef bint _renew_names(self) noexcept nogil
    cdef bint _copy_names(self) noexcept nogil
