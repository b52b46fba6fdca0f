# Region: a mapped file with a header that is checked before any other byte is trusted.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from udpfast.shm.mapping cimport Mapping

cdef enum:
    REGION_VERSION = 1
    REGION_HEADER_SIZE = 128
    REGION_PAGE = 4096       # for contents that begin on a page of their own

# --- RegionHeader ---------------------------------------------------------------------------
#
#   0       8         12     16            24     32           40           48             56
#   +-------+---------+------+-------------+------+------------+------------+--------------+-------+
#   | magic | version | kind | layout_hash | size | created_ns | writer_pid | writer_start | ready |
#   +-------+---------+------+-------------+------+------------+------------+--------------+-------+
#   64: description_size, 72: writer_namespace, reserved to 128
#
# ready is stored last, with release, and loaded first, with acquire: a reader that sees 1 sees
# everything before.

cdef struct RegionHeader:
    char magic[8]
    uint32_t version
    char kind[4]
    uint64_t layout_hash
    uint64_t size            # of the whole file, in bytes
    int64_t created_ns       # UNIX ns
    uint64_t writer_pid
    uint64_t writer_start    # clock ticks after boot (/proc/<pid>/stat), because pids are reused
    uint64_t ready
    uint64_t description_size  # bytes of JSON behind this header; 0: none
    uint64_t writer_namespace  # of its pid (inode of /proc/self/ns/pid); 0: unknown
    uint8_t reserved[48]

cdef class Region:
    cdef uint8_t* pointer    # the header; NULL once closed
    cdef readonly Py_ssize_t size_bytes
    cdef readonly object path
    cdef readonly bint writable
    cdef Mapping _mapping    # lives as long as any view of it
    cdef object _identity    # (st_dev, st_ino) of the mapped file
    cdef object __weakref__
    cdef int _fd             # the writer's: holds its lock; -1 otherwise
    cdef int _guard          # the writer's, if others may read: the guard file with its lock
    cdef int _old            # file of the dead writer that this one replaces; or -1
    cdef object _aside       # path of the file until `mark_ready`; None: it is in its place
    cdef object _mode        # mode for the file; None: what its directory asks for
    cdef bint _claimed       # the header names this process as the writer
