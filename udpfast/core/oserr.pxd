from libc.stdint cimport int64_t

cpdef int64_t check(int64_t rc, str what, str where=*) except -1
