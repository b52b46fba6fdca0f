"""The memory of a file, placed so that the kernel may use huge pages.

A page of 2 MiB must begin at a multiple of 2 MiB, and `mmap` does not choose such an address for
files in /dev/shm. So every process that maps a file chooses the address here.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport strerror

import cython

from udpfast.core.atomics cimport store_release
from udpfast.core.oserr cimport check

__all__ = ["Mapping", "store_word"]

cdef extern from "<sys/mman.h>" nogil:
    enum:
        MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED
        PROT_NONE, PROT_READ, PROT_WRITE
    void* MAP_FAILED
    void* mmap(void* address, size_t size, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t size)
    int madvise(void* address, size_t size, int advice)

cdef enum:
    MADV_COLLAPSE = 25           # Linux 6.1; the headers of many a libc are older


@cython.final
cdef class Mapping:
    """The memory of a region's file. It supports the buffer protocol; the last view unmaps it.

    Attributes
    ----------
    size_bytes : int
        Size of the file.
    writable : bool
        Whether views are writable.
    """

    def collapse(self) -> tuple[int, int, str]:
        """Move the memory to pages of 2 MiB, one after the other. The contents do not change.

        One entry of the processor's address cache then covers 512 times as much. This needs no
        rights and no setting of the host (Linux 6.1); processes that map it later benefit too.
        The rest behind the last multiple of 2 MiB stays on small pages.

        Returns
        -------
        wanted, got : int
            Bytes that could be moved, and bytes that were.
        reason : str
            Why the first refused page was refused; empty if none was.
        """
        cdef Py_ssize_t wanted = self.size_bytes - self.size_bytes % HUGE_PAGE
        cdef Py_ssize_t at, got = 0
        cdef int error = 0, rc
        for at in range(0, wanted, HUGE_PAGE):
            with nogil:
                rc = madvise(self.pointer + at, HUGE_PAGE, MADV_COLLAPSE)
            if rc == 0:
                got += HUGE_PAGE
            elif error == 0:
                error = errno
        return wanted, got, strerror(error).decode() if error else ""

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.pointer, self.size_bytes, not self.writable, flags)

    def __dealloc__(self):
        if self.pointer != NULL:
            munmap(self.pointer, self.size_bytes)


cdef Mapping map_file(int fd, Py_ssize_t size_bytes, bint writable, bint populate=True):
    cdef Mapping mapping = Mapping.__new__(Mapping)
    cdef int protection = PROT_READ | (PROT_WRITE if writable else 0)
    # Reserve enough to contain an aligned address, and give back the rest.
    cdef size_t reserved = <size_t>size_bytes + HUGE_PAGE
    cdef void* start = mmap(NULL, reserved, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    cdef void* mapped
    cdef uintptr_t place, end
    if start == MAP_FAILED:
        check(-errno, "reserve address space for", f"{size_bytes} bytes")
    place = (<uintptr_t>start + HUGE_PAGE - 1) & ~<uintptr_t>(HUGE_PAGE - 1)
    # MAP_POPULATE: take the page faults now (0.1 to 0.25 us each, 8 times the cost of a store).
    with nogil:
        mapped = mmap(<void*>place, size_bytes, protection,
                      MAP_SHARED | MAP_FIXED | (MAP_POPULATE if populate else 0), fd, 0)
    if mapped == MAP_FAILED:
        error = errno
        munmap(start, reserved)
        check(-error, "map", f"{size_bytes} bytes")
    mapping.pointer = <uint8_t*>mapped
    mapping.size_bytes = size_bytes
    mapping.writable = writable
    if place > <uintptr_t>start:
        munmap(start, place - <uintptr_t>start)
    end = (place + <size_t>size_bytes + 4095) & ~<uintptr_t>4095
    if end < <uintptr_t>start + reserved:
        munmap(<void*>end, <uintptr_t>start + reserved - end)
    return mapping


def store_word(object memory, int64_t offset, uint64_t value) -> None:
    """Store 8 bytes of shared memory with release: who sees them sees what was stored before.

    Parameters
    ----------
    memory : writable buffer
    offset : int
        In bytes: a multiple of 8.
    value : int

    Raises
    ------
    ValueError
        The offset is none, or lies outside.
    """
    cdef uint8_t[::1] view = memory
    if offset % 8 or not 0 <= offset <= len(view) - 8:
        raise ValueError(f"offset must be a multiple of 8 below {len(view) - 7}, was {offset}")
    store_release(<uint64_t*>&view[offset], value)
