from libc.stdint cimport uint8_t, uint64_t

from udpfast.bus.log cimport Log

cdef class MemorySegment:
    cdef uint8_t* memory
    cdef readonly uint64_t number, position, index, capacity
    cdef readonly bytes header

cdef class MemoryLog(Log):
    cdef readonly list segments
    cdef public uint64_t capacity    # of segments that this log begins itself
    cdef public bint disk_full
    cdef public int kill_in          # of the changes that a disk keeps: at this one it is all over
    cdef readonly bint dead          # ... which was: nothing more is written
    cdef public object on_death      # called then
    cdef bint sealed                 # it was closed in good order, and nothing was appended since
    cdef public list aside           # of what was set aside: (position, bytes) of each record
    cdef uint64_t _synced
    cdef bytes _state, _fresh
    cdef MemorySegment _spare    # touched ahead
    cdef uint64_t _first, _first_index
    cdef MemorySegment _latest(self)
    cdef _open(self, MemorySegment segment)
    cdef _go_on(self)
    cdef bint _dies(self)
    cdef MemorySegment _segment(self, uint64_t position)
