# OrderSource: the Source of "composite:NAME": the records of several stores in the order that an
# order log has. Each input is read by a StoreSource, as far as the entry at hand says.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.store_source cimport StoreSource
from udpfast.client.source cimport PolledSource

cdef class OrderSource(PolledSource):
    cdef StoreSource order           # of the order log
    cdef StoreSource current         # whose records are in memory
    cdef list members                # by input; None: not opened yet
    cdef list paths                  # directories of the inputs
    cdef list entries                # of the order log, read and not begun: the next one last
    cdef list lost                   # by input: (position in the order log, from where on)
    cdef int64_t at                  # input of the entry at hand; -1: there is none
    cdef uint64_t until              # position in that input at which the entry ends
    cdef int64_t batch
    cdef object room
    cdef int64_t _read_order(self) except -1
    cdef int64_t _begin(self, tuple entry) except -1
    cdef int64_t _read(self, StoreSource member, int64_t limit) except -1
    cdef StoreSource _member(self, int64_t at, uint64_t position)
