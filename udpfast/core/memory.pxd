# Memory: zeroed bytes of this process, on huge pages if the kernel has any.

from libc.stdint cimport uint8_t

cdef class Memory:
    cdef uint8_t* pointer        # a multiple of HUGE_PAGE
    cdef readonly Py_ssize_t size_bytes
    cdef uint8_t* _mapped
    cdef size_t _mapped_size
