"""The walk through an AF_XDP frame, with a forbidden page right behind the frame's last byte.

A read beyond the frame ends the process, in every build: what a sanitizer would see, without one.
"""

from typing import NamedTuple

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE, mmap, mprotect,
    munmap,
)

from udpfast.core.oserr cimport check
from udpfast.net.link cimport LinkDatagram
from udpfast.net.xdp_frame cimport XDP_OUTCOME_COUNT, xdp_find_datagram

__all__ = ["OUTCOMES", "WalkedFrame", "walk_frame"]

cdef enum:
    ROOM = 4096

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


def walk_frame(bytes frame, int checksums=1):
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
    cdef uint8_t* pages = <uint8_t*>mmap(
        NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    check(-ENOMEM if <void*>pages == <void*>MAP_FAILED else 0, "take two pages")
    try:
        check(-ENOMEM if mprotect(pages + ROOM, ROOM, PROT_NONE) else 0, "forbid a page")
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
