# Region: a mapped file which says what it is before anyone believes a byte of it.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from udpfast.shm.mapping cimport Mapping

cdef enum:
    REGION_VERSION = 1
    REGION_HEADER_SIZE = 128
    REGION_PAGE = 4096       # contents that want a page of their own begin here

# --- RegionHeader ---------------------------------------------------------------------------
#
#   0       8         12     16            24     32           40           48             56
#   +-------+---------+------+-------------+------+------------+------------+--------------+-------+
#   | magic | version | kind | layout_hash | size | created_ns | writer_pid | writer_start | ready |
#   +-------+---------+------+-------------+------+------------+------------+--------------+-------+
#   64: description_size, 72: writer_namespace, reserved to 128
#
# ready is stored last, with release, and loaded first, with acquire: who sees 1 sees the rest.

cdef struct RegionHeader:
    char magic[8]
    uint32_t version
    char kind[4]
    uint64_t layout_hash
    uint64_t size            # of the whole file
    int64_t created_ns       # UNIX ns
    uint64_t writer_pid
    uint64_t writer_start    # clock ticks after boot (/proc/<pid>/stat): a pid may be used again
    uint64_t ready
    uint64_t description_size  # bytes of JSON behind this header, 0 = none
    uint64_t writer_namespace  # of its pid (inode of /proc/self/ns/pid), 0 = it did not know
    uint8_t reserved[48]

cdef class Region:
    cdef uint8_t* pointer    # the header; NULL once closed
    cdef readonly Py_ssize_t size_bytes
    cdef readonly object path
    cdef readonly bint writable
    cdef Mapping _mapping    # lives as long as any view of it
    cdef object _identity    # (st_dev, st_ino) of the mapped file
    cdef object __weakref__
    cdef int _fd             # of the writer: carries its lock; -1 otherwise
    cdef int _guard          # of the writer, where others may read: of the file with its lock
    cdef int _old            # of the dead writer's file that this one is to replace; or -1
    cdef object _aside       # Path that the file has until `mark_ready`; None: it is in its place
    cdef object _mode        # permissions that it is to have; None: those of its directory's kind
    cdef bint _claimed       # its header names this process as its writer
