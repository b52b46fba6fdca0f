# Recovery: find where a journal continues, and set aside what does not belong to it.

from libc.stdint cimport int64_t

from udpfast.log.marks cimport KeptMark, WrittenMark
from udpfast.log.segment cimport Segment, SegmentWriter

cdef Segment recover(
    directory, identity, layout_hash, const WrittenMark* written, const KeptMark* kept,
    SegmentWriter* w, int64_t unix_ns, list notes, list found)
