# RingSource: the Source of "ring:NAME": a cursor in a ring of this host, the names beside it, and
# an entry among its readers.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.image_join cimport ImageJoin
from udpfast.client.source cimport Source
from udpfast.shm.cursor cimport RingCursor
from udpfast.shm.readers cimport ReaderRegistration

cdef class RingSource(Source):
    cdef RingCursor cursor
    cdef ReaderRegistration registration  # for tools: they see our name and our lag
    cdef ImageJoin join          # what comes before the ring's records; None: nothing (more)
    cdef int64_t join_left       # records of it
    cdef uint64_t join_taken     # records of it that were handed out
    cdef object names_region
    cdef int64_t names_looked_ns  # when names_missing last said that there are none
