# CompositeSource: the Source of "composite:NAME": the records of several stores in the order that
# an order log has. Each input is read by a StoreSource, as far as the entry at hand says.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.store_source cimport StoreSource
from udpfast.client.source cimport PolledSource
from udpfast.core.layout cimport OrderEntry

cdef class CompositeSource(PolledSource):
    cdef StoreSource order           # of the order log
    cdef StoreSource current         # whose records are in memory
    cdef list members                # by input; None: not opened yet
    cdef list paths                  # directories of the inputs
    cdef list entries                # of the order log, read and not begun: the next one last
    cdef StoreSource scout           # ahead in the order log: what it says inputs lost
    cdef list had                    # by input: index behind what whoever reads has
    cdef list next                   # by input: position behind that; None: its next entry says it
    cdef list sure                   # by input: (cuts, epoch) for which its copy was looked at
    cdef list skipped                # by input: records that nobody can read, not said yet
    cdef bint marks                  # hand out the entries of the order log, too
    cdef bint marked                 # that of the next entry was
    cdef uint64_t mark_place         # of the last mark, in the order log
    cdef bint goes_on                # no mark before the last one was of an entry that is lost now
    cdef object mark_arrays          # of one record
    # By input: (position in the order log; position, index and epoch behind which all is lost).
    cdef list lost
    cdef uint64_t place              # of the entry at hand, in the order log
    cdef int64_t at                  # input of the entry at hand; -1: there is none
    cdef uint64_t missed_before      # that no input's source counts
    cdef tuple hand                  # the entry at hand
    cdef uint64_t until              # position in that input at which the entry ends
    cdef uint64_t epoch              # of its last record before that; 0: not known
    cdef int64_t batch
    cdef object room
    cdef int64_t _read(self, int64_t limit) except -1
    cdef bint _stand(self, StoreSource member) except -1
    cdef _skip(self, int64_t at, uint64_t index)
    cdef int64_t _show(self, StoreSource member, int64_t count) except -1
    cdef int64_t _show_of(self, StoreSource member, uint64_t missed, int64_t count) except -1
    cdef int64_t _read_order(self) except -1
    cdef _go_back(self, uint64_t place)
    cdef list _taken_before(self, uint64_t place)
    cdef int64_t _begin(self, tuple entry) except -1
    cdef _bound_hand(self)
    cdef int64_t _take_back(self, int64_t at, uint64_t position, uint64_t index) except -1
    cdef int64_t _mark(self, tuple entry) except -1
    cdef bint _look_ahead(self) except -1
    cdef uint64_t end_of(self, uint64_t place, const OrderEntry* entry) except? 0
    cdef bint through(self, uint64_t end)
    cdef StoreSource _member(self, int64_t at)
