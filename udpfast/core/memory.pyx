"""Memory for tables that are larger than what the processor's address cache covers.

A look-up in such a table misses both the cache line and its page's address. With pages of 2 MiB
only the line is missed. `madvise` asks for them; if the kernel has none, the pages are small.
"""

from libc.stdint cimport uintptr_t

import cython

__all__ = ["Memory"]

cdef extern from "<sys/mman.h>" nogil:
    enum:
        MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE
    void* MAP_FAILED
    void* mmap(void* address, size_t size, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t size)
    int madvise(void* address, size_t size, int advice)

cdef enum:
    HUGE_PAGE = 2 << 20


@cython.final
cdef class Memory:
    """Zeroed bytes, freed with the object. Pages are allocated when first written.

    Parameters
    ----------
    size_bytes : int
        Number of bytes; rounded up to pages of 2 MiB if it is more than one.

    Raises
    ------
    MemoryError
        The kernel has no room for them.

    Attributes
    ----------
    size_bytes : int
    """

    def __cinit__(self, Py_ssize_t size_bytes):
        cdef void* mapped
        # Reserve one page more, to contain an aligned address; pages that are not written cost
        # nothing.
        self._mapped_size = ((<size_t>size_bytes + HUGE_PAGE - 1) & ~<size_t>(HUGE_PAGE - 1)) + (
            HUGE_PAGE)
        mapped = mmap(NULL, self._mapped_size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if mapped == MAP_FAILED:
            raise MemoryError(f"expected {size_bytes} bytes of memory, the kernel has no room")
        self._mapped = <uint8_t*>mapped
        self.pointer = <uint8_t*>((<uintptr_t>mapped + HUGE_PAGE - 1)
                                  & ~<uintptr_t>(HUGE_PAGE - 1))
        self.size_bytes = size_bytes
        if size_bytes > HUGE_PAGE:
            madvise(self.pointer, self._mapped_size - HUGE_PAGE, MADV_HUGEPAGE)

    def __dealloc__(self):
        if self._mapped != NULL:
            munmap(self._mapped, self._mapped_size)
