# StoreSource: the Source of "store:NAME": a cursor in this host's copy of a bus's store. The file
# `bus.live` (archive/bus_files) states how far readers may read, and when records were set aside.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.archive.live cimport BusLive
from udpfast.client.image_join cimport ImageJoin
from udpfast.client.source cimport PolledSource
from udpfast.log.journal_cursor cimport JournalCursor
from udpfast.log.readers cimport ReaderRegistration

cdef class StoreSource(PolledSource):
    cdef JournalCursor cursor
    cdef object live                 # Live: owns the memory of `said`
    cdef const BusLive* said
    cdef uint64_t cuts               # said.cuts when last seen; it grows when records are set aside
    cdef uint64_t until              # position before which reading ends
    cdef uint64_t at_position        # behind the last record handed out; the cursor may be earlier
    cdef uint64_t at_index
    cdef list epochs                 # epochs of the records handed out: pairs of Lineage
    cdef int64_t names_number        # number of the current table of names; -1: none yet
    cdef ReaderRegistration registration  # None: tools do not see this reader
    cdef ImageJoin join              # records to hand out before the store's; None: none
    cdef int64_t join_left           # records of `join` not handed out yet
    cdef uint64_t join_taken         # records handed out that are not in the store
    cdef bint old                    # the image is of a feed that has ended, not reported yet
    cdef uint64_t bound(self) noexcept nogil
    cdef uint64_t said_end(self) noexcept
    cdef bint feed_over(self)
    cdef bint feed_at_work(self) except -1
    cdef int64_t last_ns(self)
    cdef str why_old(self)
    cdef int64_t _hand_out_old(self) except -1
    cdef _note(self, int64_t count)
    cdef int64_t go_back(self, uint64_t most=*, uint64_t known=*) except -1
    cdef _note_next(self, uint64_t wanted)
    cdef _stand(self, uint64_t position)
