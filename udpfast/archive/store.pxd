from libc.stdint cimport int64_t, uint64_t

from udpfast.bus.log cimport Log
from udpfast.log.journal cimport Journal

cdef class StoreLog(Log):
    cdef readonly object directory
    cdef readonly Journal journal    # None while this copy has no identity
    cdef readonly uint64_t capacity
    cdef readonly int64_t damaged_at  # position of damage at its end when opened; -1: none
    cdef readonly list notes         # what was wrong with its files, the newest last
    cdef bint _copied
    cdef list _segments              # (position, index, number), the oldest first
    cdef dict _maps                  # number -> Segment, of segments that are not the active one
    cdef int _lock_fd
    cdef object _keeping             # lock: held by the thread that keeps or cuts
    cdef str _name
    cdef object _names               # store_names.StoreNames
    cdef uint64_t _names_number      # of the table that a feed's records use; 0: none
    cdef unsigned int _names_mark
    cdef public uint64_t session     # the latest of the feed that writes; 0: none
    cdef _open(self, bytes identity)
    cdef _set_damaged_aside(self)
    cdef uint64_t _whole_until(self)
    cdef _find_last(self)
    cdef tuple _entry(self, uint64_t position)
    cdef object _segment(self, uint64_t number)
    cdef _set_aside_from(self, uint64_t position)
    cdef _drop_segments(self, uint64_t position, bint empty)

cdef class StoreView(Log):
    cdef readonly object directory
    cdef list _segments
    cdef dict _maps
