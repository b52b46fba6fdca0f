"""Parity datagrams: what a sender adds, and what a receiver rebuilds with them.

`parity.pxd` has the format and the sender's half, `repair.pxd` the receiver's. These are their
faces for tests and for `udpfast lab parity`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

cimport cython

from udpfast.core.layout cimport DATAGRAM_SIZE_MAX, FRAME_SIZE
from udpfast.feed.parity cimport (
    PARITY_DEPTH_MAX, PARITY_HEADER, PARITY_MEMBERS_MAX, PARITY_SIZE_MAX, Parity, ParityHeader,
    ParityMember, parity_add, parity_init, parity_rest)
from udpfast.feed.repair cimport (
    REPAIR_FOUND, Repair, repair_is_parity, repair_next, repair_note,
    repair_parity)

__all__ = ["ParityReceiver", "ParitySender"]

if (PARITY_SIZE_MAX != PARITY_HEADER + PARITY_MEMBERS_MAX * sizeof(ParityMember) + DATAGRAM_SIZE_MAX
        or sizeof(ParityHeader) != PARITY_HEADER):
    raise ImportError(f"expected parity of at most {PARITY_SIZE_MAX} bytes")


@cython.final
cdef class ParitySender:
    """Make the parity of datagrams that leave.

    Parameters
    ----------
    members : int
        Datagrams that one parity covers, 2 to 32.
    depth : int
        How many datagrams in a row may be lost, 1 to 32.
    """

    cdef Parity parity

    def __init__(self, members: int, depth: int):
        if not (2 <= members <= PARITY_MEMBERS_MAX and 1 <= depth <= PARITY_DEPTH_MAX):
            raise ValueError(
                f"expected 2 to {PARITY_MEMBERS_MAX} members and a depth of 1 to "
                f"{PARITY_DEPTH_MAX}, found {members} and {depth}")
        parity_init(&self.parity, members, depth)

    def add(self, const uint8_t[::1] datagram not None) -> bytes | None:
        """Return the parity that leaves behind this datagram, or None."""
        cdef uint8_t out[PARITY_SIZE_MAX]
        cdef uint32_t size
        if not FRAME_SIZE <= datagram.shape[0] <= DATAGRAM_SIZE_MAX:
            raise ValueError(
                f"expected {FRAME_SIZE} to {DATAGRAM_SIZE_MAX} bytes, found {datagram.shape[0]}")
        size = parity_add(&self.parity, &datagram[0], <uint32_t>datagram.shape[0], 1, out)
        return (<const char*>out)[:size] if size else None

    def rest(self) -> list[bytes]:
        """Return the parities of what was added so far and has none yet."""
        cdef uint8_t out[PARITY_SIZE_MAX]
        cdef uint32_t size = parity_rest(&self.parity, out)
        found = []
        while size:
            found.append((<const char*>out)[:size])
            size = parity_rest(&self.parity, out)
        return found


@cython.final
cdef class ParityReceiver:
    """Rebuild what was lost.

    Attributes
    ----------
    refused : int
        What was rebuilt, or had come, and is not what its sender had.
    """

    cdef Repair* repair
    cdef readonly int64_t refused

    def __cinit__(self):
        self.repair = <Repair*>calloc(1, sizeof(Repair))
        if self.repair == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.repair)

    def take(self, const uint8_t[::1] datagram not None) -> list[bytes]:
        """Take a datagram of any line; return the datagrams that can be rebuilt now."""
        cdef uint8_t out[DATAGRAM_SIZE_MAX]
        cdef const uint8_t* data = &datagram[0]
        cdef uint32_t size = <uint32_t>datagram.shape[0]
        cdef int rc
        if repair_is_parity(data, size):
            repair_parity(self.repair, data, size)
        else:
            repair_note(self.repair, data, size)
        found = []
        rc = repair_next(self.repair, out, &size)
        while rc:
            if rc == REPAIR_FOUND:
                found.append((<const char*>out)[:size])
            else:
                self.refused += 1
            rc = repair_next(self.repair, out, &size)
        return found
