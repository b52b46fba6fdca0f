# Recovery: which part of a journal is valid, and the end of the rest.

from libc.stdint cimport int64_t

from udpfast.shm.segment cimport Segment, SegmentWriter

cdef Segment recover(directory, layout_hash, SegmentWriter* w, int64_t unix_ns, list found)
