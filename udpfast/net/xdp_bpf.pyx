"""The parts of bpf(2) that udpfast needs: a map of sockets, a program, its link to an interface.

The functions make the system call themselves; libbpf is not needed. Objects are file descriptors:
when the last one is closed, however the process ends, the kernel frees the objects and detaches the
program from the interface.
"""

from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.oserr cimport check

__all__ = [
    "RIGHTS",
    "attach_link",
    "create_xskmap",
    "load_program",
    "put_socket",
    "run_program",
]

RIGHTS = "needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW"

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)

cdef extern from "<sys/syscall.h>" nogil:
    int SYS_bpf

cdef enum:  # linux/bpf.h; on older systems it lacks BPF_LINK_CREATE
    BPF_MAP_CREATE = 0
    BPF_MAP_UPDATE_ELEM = 2
    BPF_PROG_LOAD = 5
    BPF_PROG_TEST_RUN = 10
    BPF_LINK_CREATE = 28
    BPF_MAP_TYPE_XSKMAP = 17
    BPF_PROG_TYPE_XDP = 6
    BPF_XDP = 37
    LOG_SIZE = 65536
    ATTRIBUTES_SIZE = 128

cdef struct MapCreate:
    uint32_t map_type
    uint32_t key_size
    uint32_t value_size
    uint32_t max_entries

cdef struct MapUpdate:
    uint32_t map_fd
    uint32_t reserved
    uint64_t key
    uint64_t value
    uint64_t flags

cdef struct ProgramLoad:
    uint32_t program_type
    uint32_t instruction_count
    uint64_t instructions
    uint64_t license
    uint32_t log_level
    uint32_t log_size
    uint64_t log

cdef struct LinkCreate:
    uint32_t program_fd
    uint32_t interface
    uint32_t attach_type
    uint32_t flags

cdef struct TestRun:
    uint32_t program_fd
    uint32_t result
    uint32_t data_size_in
    uint32_t data_size_out
    uint64_t data_in
    uint64_t data_out
    uint32_t repeat

cdef union Attributes:
    MapCreate map
    MapUpdate update
    ProgramLoad program
    LinkCreate link
    TestRun run
    unsigned char zeroes[ATTRIBUTES_SIZE]


cdef int bpf(int command, Attributes* attributes) noexcept nogil:
    cdef long rc = syscall(SYS_bpf, <long>command, attributes, <long>ATTRIBUTES_SIZE)
    return -errno if rc < 0 else <int>rc


def create_xskmap(int queues) -> int:
    """Return the descriptor of a new map from queue to AF_XDP socket, with room for `queues`.

    Raises
    ------
    OSError
        EPERM: the process has neither CAP_BPF nor the rights of root.
    """
    cdef Attributes a
    memset(&a, 0, sizeof(a))
    a.map.map_type = BPF_MAP_TYPE_XSKMAP
    a.map.key_size = 4
    a.map.value_size = 4
    a.map.max_entries = queues
    return check(bpf(BPF_MAP_CREATE, &a), "create a map of AF_XDP sockets", RIGHTS)


def put_socket(int map_fd, uint32_t queue, uint32_t socket_fd) -> None:
    """Let the program redirect a queue's frames to a socket, which must be bound to that queue."""
    cdef Attributes a
    memset(&a, 0, sizeof(a))
    a.update.map_fd = map_fd
    a.update.key = <uint64_t>&queue
    a.update.value = <uint64_t>&socket_fd
    check(bpf(BPF_MAP_UPDATE_ELEM, &a), "give the AF_XDP socket to its queue", str(queue))


def load_program(bytes instructions) -> int:
    """Load an XDP program, which the kernel verifies, and return its descriptor.

    Raises
    ------
    OSError
        EPERM: rights are missing. EINVAL, EACCES: the verifier refused the program; the message has
        the last line of its log.
    """
    cdef Attributes a
    cdef const unsigned char* first = instructions
    cdef const char* license_ = "Dual BSD/GPL"
    cdef bytearray log = bytearray(LOG_SIZE)
    cdef unsigned char* written = log
    cdef int rc
    memset(&a, 0, sizeof(a))
    a.program.program_type = BPF_PROG_TYPE_XDP
    a.program.instruction_count = <uint32_t>(len(instructions) // 8)
    a.program.instructions = <uint64_t>first
    a.program.license = <uint64_t>license_
    rc = bpf(BPF_PROG_LOAD, &a)
    if rc < 0:  # load it again with a log, to learn why
        a.program.log_level = 1
        a.program.log_size = LOG_SIZE
        a.program.log = <uint64_t>written
        rc = bpf(BPF_PROG_LOAD, &a)
    said = log.split(b"\0", 1)[0].decode(errors="replace").strip().splitlines()
    why = (line for line in reversed(said) if not line.startswith(("processed", "verification")))
    return check(rc, "load the XDP program", next(why, RIGHTS))


def attach_link(int program_fd, int interface, int flags) -> int:
    """Attach a program to an interface for as long as the returned descriptor lives.

    Parameters
    ----------
    flags : int
        XDP_FLAGS_SKB_MODE (2) or XDP_FLAGS_DRV_MODE (4).

    Returns
    -------
    int
        The descriptor, or -errno. EOPNOTSUPP: the driver has no native XDP; EBUSY: another program
        is attached.
    """
    cdef Attributes a
    memset(&a, 0, sizeof(a))
    a.link.program_fd = program_fd
    a.link.interface = interface
    a.link.attach_type = BPF_XDP
    a.link.flags = flags
    return bpf(BPF_LINK_CREATE, &a)


def run_program(int program_fd, bytes frame) -> int:
    """Run a loaded program on one frame and return its result; needs root. For tests."""
    cdef Attributes a
    cdef const unsigned char* data = frame
    memset(&a, 0, sizeof(a))
    a.run.program_fd = program_fd
    a.run.data_in = <uint64_t>data
    a.run.data_size_in = <uint32_t>len(frame)
    a.run.repeat = 1
    check(bpf(BPF_PROG_TEST_RUN, &a), "run the XDP program")
    return a.run.result
