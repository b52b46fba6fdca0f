# CompositeSource: the Source of "composite:NAME": the records of several stores, in the order that
# an order log states. A StoreSource reads each input, as far as the current entry says.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.store_source cimport StoreSource
from udpfast.client.source cimport PolledSource
from udpfast.core.layout cimport OrderEntry

cdef class CompositeSource(PolledSource):
    cdef StoreSource order           # reads the order log
    cdef StoreSource current         # the source whose records are in memory
    cdef list members                # by input: its StoreSource; None: not opened yet
    cdef list paths                  # directories of the inputs
    cdef list entries                # order entries that were read but not begun; the last is next
    cdef StoreSource scout           # reads ahead in the order log, to learn what inputs have lost
    cdef list had                    # by input: index behind the records handed out
    cdef list next                   # by input: position behind them; None: its next entry has it
    cdef list sure                   # by input: (cuts, epoch) for which its copy was checked
    cdef list skipped                # by input: unreadable records that are not reported yet
    cdef bint marks                  # hand out the entries of the order log, too
    cdef bint marked                 # the next entry has been handed out
    cdef uint64_t mark_place         # position in the order log of the last entry handed out
    cdef bint goes_on                # no entry handed out before the last one was lost since
    cdef object mark_arrays          # arrays of one record, for entries and rollbacks
    # By input: (position in the order log; position, index and epoch behind which all is lost).
    cdef list lost
    cdef uint64_t place              # position of the current entry in the order log
    cdef int64_t at                  # input of the current entry; -1: there is no current entry
    cdef uint64_t missed_before      # records missed that no input's source counts
    cdef tuple hand                  # the current entry
    cdef uint64_t until              # position in that input at which the entry ends
    cdef uint64_t epoch              # epoch of the last record before `until`; 0: not known
    cdef int64_t batch               # as the caller gave it
    cdef object room                 # buffer_bytes of the caller
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
