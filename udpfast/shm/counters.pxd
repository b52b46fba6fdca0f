# CounterBlock: all counters of one instance, in one file that any tool may read.
#
#   0 RegionHeader, description {"lines": [[..], [..]], ..} | 4096 feed | incremental | snapshot |
#   lines of incremental .. | lines of snapshot .. | addresses of each line that has several
#
# Counters are int64, dense within a scope; each scope begins at a multiple of 128 bytes.

from udpfast.core.counter cimport Counters
from udpfast.shm.region cimport Region

cdef class CounterBlock:
    cdef Counters counters   # where the pipeline counts; valid while the block is open
    cdef readonly Region region
    cdef readonly tuple lines_incremental
    cdef readonly tuple lines_snapshot
    cdef readonly dict addresses
    cdef _set_pointers(self)
