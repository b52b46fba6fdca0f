# Mapping: the memory of a file, placed so that the kernel may use huge pages.

from libc.stdint cimport uint8_t

cdef enum:
    HUGE_PAGE = 2 << 20

cdef class Mapping:
    cdef uint8_t* pointer
    cdef readonly Py_ssize_t size_bytes
    cdef readonly bint writable

# Map a whole file, shared. populate: touch every page now. The caller may close the descriptor
# afterwards.
cdef Mapping map_file(int fd, Py_ssize_t size_bytes, bint writable, bint populate=*)
