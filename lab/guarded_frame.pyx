"""What reads bytes from the network, with a forbidden page right behind the last of them.

A read beyond the frame ends the process, in every build: what a sanitizer would see, without one.
"""

from typing import NamedTuple

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE, mmap, mprotect,
    munmap,
)

from udpfast.core.oserr cimport check
from udpfast.core.layout cimport Message
from udpfast.market.change cimport CHANGES_MAX, Change
from udpfast.net.link cimport LinkDatagram
from udpfast.net.xdp_frame cimport XDP_OUTCOME_COUNT, xdp_find_datagram
from udpfast.payload.venue cimport venue_decode
from udpfast.wire.framing cimport framing_units
from udpfast.wire.messages cimport MessageWalk, message_walk_begin, message_walk_next
from udpfast.wire.unit cimport UNITS_MAX, Unit

from udpfast.wire.framing import Framing

__all__ = [
    "OUTCOMES", "GuardedBytes", "GuardedFraming", "GuardedPayload", "WalkedFrame", "walk_frame"]

cdef enum:
    ROOM = 4096
    ROOM_DATAGRAM = 65536        # whole pages, and more than UDP holds

#: XdpOutcome by value.
OUTCOMES = ("datagram", "fragment", "checksum", "malformed", "foreign")

if len(OUTCOMES) != XDP_OUTCOME_COUNT:
    raise ImportError(f"{XDP_OUTCOME_COUNT} outcomes, but {len(OUTCOMES)} names")


class WalkedFrame(NamedTuple):
    """What a frame was; of a datagram its 16-byte addresses, ports and payload."""

    outcome: str
    source: bytes = b""
    source_port: int = 0
    destination: bytes = b""
    destination_port: int = 0
    payload: bytes = b""


def walk_frame(bytes frame, int checksums=1) -> WalkedFrame:
    """Walk through a frame of at most 4,096 bytes, as the receiver does.

    Parameters
    ----------
    frame : bytes
        From the Ethernet header on.
    checksums : int
        CHECKSUMS_*: 0 off, 1 auto, 2 on.
    """
    cdef LinkDatagram found
    cdef const uint8_t* source = frame
    cdef uint8_t* data
    cdef int outcome
    cdef size_t size = len(frame)
    if size > ROOM:
        raise ValueError(f"a frame has at most {ROOM} bytes here, was {size}")
    cdef uint8_t* pages = guarded(ROOM)
    try:
        data = pages + ROOM - size
        memcpy(data, source, size)
        memset(&found, 0, sizeof(found))
        outcome = xdp_find_datagram(data, <uint32_t>size, checksums, &found)
        name = OUTCOMES[outcome]
        if name in ("malformed", "foreign"):
            return WalkedFrame(name)
        payload = data[found.offset:found.offset + found.size] if name == "datagram" else b""
        return WalkedFrame(
            name, found.source[:16], found.source_port if name != "fragment" else 0,
            found.destination[:16], found.destination_port, payload)
    finally:
        munmap(pages, 2 * ROOM)


@cython.final
cdef class GuardedBytes:
    """Bytes that end right before a forbidden page."""

    cdef uint8_t* pages

    def __cinit__(self):
        self.pages = guarded(ROOM_DATAGRAM)

    def __dealloc__(self):
        if self.pages != NULL:
            munmap(self.pages, ROOM_DATAGRAM + ROOM)

    def put(self, bytes data) -> memoryview:
        """Return a view of a copy; it is valid until the next call, while this object lives."""
        cdef size_t size = len(data)
        cdef const uint8_t* source = data
        if size > ROOM_DATAGRAM:
            raise ValueError(f"there is room for {ROOM_DATAGRAM} bytes, was {size}")
        memcpy(self.pages + ROOM_DATAGRAM - size, source, size)
        return PyMemoryView_FromMemory(
            <char*>self.pages + ROOM_DATAGRAM - size, size, PyBUF_READ)


@cython.final
cdef class GuardedFraming:
    """A framing over datagrams that end right before a forbidden page.

    Parameters
    ----------
    name : str
        Of the framing.
    """

    cdef uint8_t* pages
    cdef int framing
    cdef uint8_t touched
    cdef Unit[UNITS_MAX] units

    def __cinit__(self, str name):
        self.framing = Framing(name).index
        self.pages = guarded(ROOM_DATAGRAM)

    def __dealloc__(self):
        if self.pages != NULL:
            munmap(self.pages, ROOM_DATAGRAM + ROOM)

    def walk(self, bytes datagram) -> tuple[int, int]:
        """Read the units of a datagram, and every byte of every message.

        Returns
        -------
        tuple of int
            The number of units, or the reason why there are none; and the number of messages.

        Raises
        ------
        ValueError
            A unit is not what units promise to be.
        """
        cdef uint32_t size = <uint32_t>len(datagram)
        cdef const uint8_t* source = datagram
        cdef uint8_t* data
        cdef uint32_t end = 0
        cdef int found, i, messages = 0, each
        if size > ROOM_DATAGRAM:
            raise ValueError(f"a datagram has at most {ROOM_DATAGRAM} bytes here, was {size}")
        data = self.pages + ROOM_DATAGRAM - size
        memcpy(data, source, size)
        found = framing_units(self.framing, data, size, self.units, UNITS_MAX)
        if found < 0:
            return found, 0
        if found == 0 or found > UNITS_MAX:
            raise ValueError(f"{found} units")
        for i in range(found):
            if self.units[i].offset < end:
                raise ValueError(f"unit {i} begins before {end}: {self.units[i]}")
            end = self.units[i].offset + self.units[i].size
            if end > size or self.units[i].fragment >= self.units[i].fragments:
                raise ValueError(f"unit {i} of a datagram of {size} bytes: {self.units[i]}")
            each = walk_messages(data, &self.units[i], &self.touched)
            if each < 0:
                raise ValueError(f"the messages do not fill unit {i}: {self.units[i]}")
            messages += each
        if end != size:
            raise ValueError(f"units end at {end}, the datagram at {size}")
        return found, messages


@cython.final
cdef class GuardedPayload:
    """A venue's decoder over messages that end right before a forbidden page.

    Parameters
    ----------
    number : int
        The payload's place in PAYLOADS. One without a decoder refuses every message.
    """

    cdef uint8_t* pages
    cdef int payload
    cdef Change[CHANGES_MAX] said

    def __cinit__(self, int number):
        self.payload = number
        self.pages = guarded(ROOM_DATAGRAM)

    def __dealloc__(self):
        if self.pages != NULL:
            munmap(self.pages, ROOM_DATAGRAM + ROOM)

    def changes(self, bytes data) -> list[dict[str, int]]:
        """Return the changes that a message says, a dictionary each; none where it says none."""
        cdef int i, count = self.decode(data)
        return [self.said[i] for i in range(count)]

    def decode(self, bytes data) -> int:
        """Return how many changes a message says; below 0: why it says none."""
        cdef Message message
        cdef const uint8_t* source = data
        cdef uint32_t size = <uint32_t>len(data)
        if size > ROOM_DATAGRAM:
            raise ValueError(f"a message has at most {ROOM_DATAGRAM} bytes here, was {size}")
        memset(&message, 0, sizeof(message))
        message.payload = self.pages + ROOM_DATAGRAM - size
        message.size = size
        memcpy(self.pages + ROOM_DATAGRAM - size, source, size)
        return venue_decode(self.payload, &message, self.said)


cdef int walk_messages(
    const uint8_t* data, const Unit* unit, uint8_t* touched,
) noexcept nogil:
    # How many there are, or -1. Where they are delimited they fill the unit but for a byte.
    # `touched` keeps the compiler from leaving the reads out.
    cdef MessageWalk walk
    cdef uint32_t offset = 0, size = 0, at
    cdef int messages = 0
    message_walk_begin(&walk, data, unit)
    while (messages < unit.messages or unit.messages == 0) and message_walk_next(
            &walk, &offset, &size):
        if offset < unit.offset or offset + size > unit.offset + unit.size:
            return -1
        for at in range(offset, offset + size):
            touched[0] ^= data[at]
        messages += 1
    if unit.messages and messages != unit.messages or walk.end - walk.at > 1:
        return -1
    return messages


cdef uint8_t* guarded(size_t room) except NULL:
    # `room` bytes, whole pages, and a page behind them that nobody may touch.
    cdef uint8_t* pages = <uint8_t*>mmap(
        NULL, room + ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    check(-ENOMEM if <void*>pages == <void*>MAP_FAILED else 0, "take pages")
    check(-ENOMEM if mprotect(pages + room, ROOM, PROT_NONE) else 0, "forbid a page")
    return pages
