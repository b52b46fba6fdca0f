"""Write UDP datagrams to capture files that every tool opens: pcap and pcapng, plain or gzip.

pcapng also stores what a feed's loop knew about each datagram, so that a replay of the file does
exactly what the loop did. Other tools skip that.
"""

import gzip
import struct
import sys
from pathlib import Path

import cython

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from udpfast.net.pcap cimport (
    BLOCK_LOOP,
    CAPTURE_OWN,
    LOOP_MAGIC,
    LOOP_SIZE,
    OPTION_LOOP,
    CaptureEntry,
)

from udpfast.net.pcap import CAPTURED

__all__ = ["CaptureWriter"]

cdef enum:
    PAYLOAD_MAX = 65507          # largest payload of UDP over IPv4
    HEADERS_MAX = 14 + 4 + 40 + 8
    RECORD_MAX = 96              # most bytes that the file format adds to a frame
    CHUNK = 1 << 18              # bytes collected before they are written to the file
    BLOCK_ENHANCED = 6

_VERSION = (2, 4)
_SNAP = 262_144
_ETHERNET = 1


@cython.final
cdef class CaptureWriter:
    """Write datagrams to a pcap or pcapng file, each as an Ethernet frame of its own.

    Parameters
    ----------
    path : path-like
        The suffix `.pcapng` selects pcapng, any other pcap; a further `.gz` compresses.
    nanoseconds : bool
        True: write time stamps in ns; False: in us, rounded down.
    byteorder : {"little", "big"}
        Byte order of the file format's numbers.
    vlan : int, optional
        VLAN id with which all frames are tagged, 0 to 4094.

    Attributes
    ----------
    frames : int
        Number of frames written so far.
    """

    cdef object file
    cdef bytearray buffer
    cdef uint8_t* place
    cdef Py_ssize_t used
    cdef readonly uint64_t frames
    cdef bint pcapng, nanoseconds, swapped
    cdef int vlan                # -1: no tag

    def __init__(
            self, path: str | os.PathLike[str], *, bint nanoseconds=True,
            byteorder: Literal['little', 'big'] = "little", vlan: int | None = None):
        if byteorder not in ("little", "big"):
            raise ValueError(f"byteorder must be 'little' or 'big', was {byteorder!r}")
        if vlan is not None and not 0 <= vlan < 4095:
            raise ValueError(f"vlan must be 0 to 4094, was {vlan}")
        path = Path(path)
        name = path.name.removesuffix(".gz")
        self.pcapng = name.endswith(".pcapng")
        self.nanoseconds = nanoseconds
        self.swapped = byteorder != sys.byteorder
        self.vlan = -1 if vlan is None else vlan
        self.buffer = bytearray(CHUNK + PAYLOAD_MAX + HEADERS_MAX + RECORD_MAX)
        cdef uint8_t[::1] view = self.buffer
        self.place = &view[0]
        self.file = gzip.open(path, "wb", 1) if name != path.name else path.open("wb")
        self.file.write(self._begin("<" if byteorder == "little" else ">"))

    def _begin(self, order):
        if not self.pcapng:
            magic = 0xA1B23C4D if self.nanoseconds else 0xA1B2C3D4
            return struct.pack(f"{order}IHHiIII", magic, *_VERSION, 0, 0, _SNAP, _ETHERNET)
        section = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        resolution = struct.pack(f"{order}HHB3xHH", 9, 1, 9 if self.nanoseconds else 6, 0, 0)
        size = 20 + len(resolution)
        return section + struct.pack(
            f"{order}IIHHI", 1, size, _ETHERNET, 0, _SNAP) + resolution + struct.pack(
                f"{order}I", size)

    def write(self, batch: CaptureBatch) -> int:
        """Write a batch as `CaptureReader.read_batch` returns it; return the number of frames.

        Addresses are taken from its headers. Entries without a datagram are written to pcapng only.

        Raises
        ------
        ValueError
            An entry lies outside the buffer, or is longer than a datagram can be.
        """
        cdef const uint8_t[::1] headers = batch.headers.view("u1")
        cdef const uint8_t[::1] bytes_ = batch.buffer
        cdef const CaptureEntry* entry
        cdef Py_ssize_t i, count = len(batch.headers)
        cdef const uint8_t* payloads = NULL
        cdef uint64_t before = self.frames
        if batch.headers.dtype != CAPTURED:
            raise ValueError("headers must have dtype CAPTURED")
        if bytes_.shape[0] > 0:
            payloads = <const uint8_t*>&bytes_[0]
        for i in range(count):
            entry = <const CaptureEntry*>&headers[0] + i
            if entry.event > CAPTURE_OWN:
                if self.pcapng:
                    self._put_event(entry)
            else:
                if (entry.datagram.size > PAYLOAD_MAX
                        or <uint64_t>entry.datagram.offset + entry.datagram.size
                        > <uint64_t>bytes_.shape[0]):
                    raise ValueError(
                        f"entry {i} must lie inside the buffer and have at most {PAYLOAD_MAX} "
                        f"bytes, has {entry.datagram.size}")
                self._put_frame(entry, payloads + entry.datagram.offset)
                self.frames += 1
            if self.used >= CHUNK:
                self._flush()
        return self.frames - before

    def close(self) -> None:
        """Write the remaining bytes and close the file. Idempotent."""
        if self.file is not None:
            self._flush()
            self.file.close()
            self.file = None

    def __enter__(self) -> CaptureWriter:
        return self

    def __exit__(self, *exception):
        self.close()

    cdef _flush(self):
        self.file.write(memoryview(self.buffer)[:self.used])
        self.used = 0

    cdef void _put_event(self, const CaptureEntry* entry) noexcept nogil:
        self._put32(<uint32_t>BLOCK_LOOP)
        self._put32(12 + LOOP_SIZE)
        self._put_loop(entry)
        self._put32(12 + LOOP_SIZE)

    cdef void _put_frame(self, const CaptureEntry* entry, const uint8_t* payload) noexcept nogil:
        cdef uint32_t headers = frame_headers(entry, self.vlan)
        cdef uint32_t size = headers + entry.datagram.size
        cdef uint32_t padding = (4 - size % 4) % 4
        cdef bint own = entry.event == CAPTURE_OWN
        cdef uint32_t block = 32 + size + padding + (8 + LOOP_SIZE if own else 0)
        cdef uint64_t ticks = <uint64_t>entry.timestamp_ns // (1 if self.nanoseconds else 1000)
        if self.pcapng:
            self._put32(BLOCK_ENHANCED)
            self._put32(block)
            self._put32(0)
            self._put32(<uint32_t>(ticks >> 32))
            self._put32(<uint32_t>ticks)
        else:
            self._put32(<uint32_t>(<uint64_t>entry.timestamp_ns // 1_000_000_000))
            self._put32(<uint32_t>(ticks % (1_000_000_000 if self.nanoseconds else 1_000_000)))
        self._put32(size)
        self._put32(size)
        put_headers(self.place + self.used, entry, payload, self.vlan)
        memcpy(self.place + self.used + headers, payload, entry.datagram.size)
        self.used += size
        if self.pcapng:
            memset(self.place + self.used, 0, padding)
            self.used += padding
            if own:
                self._put16(OPTION_LOOP)
                self._put16(LOOP_SIZE)
                self._put_loop(entry)
                self._put32(0)  # the end of the options
            self._put32(block)

    cdef void _put_loop(self, const CaptureEntry* entry) noexcept nogil:
        cdef uint8_t* at
        self._put32(LOOP_MAGIC)
        self._put64(<uint64_t>entry.now_ns)
        self._put64(<uint64_t>entry.unix_ns)
        self._put32(entry.flags)
        at = self.place + self.used
        at[0] = entry.channel
        at[1] = entry.line
        at[2] = entry.event
        at[3] = entry.address
        self.used += 4

    cdef void _put64(self, uint64_t value) noexcept nogil:
        self._put32(<uint32_t>(value >> 32 if self.swapped else value))
        self._put32(<uint32_t>(value if self.swapped else value >> 32))

    cdef void _put32(self, uint32_t value) noexcept nogil:
        if self.swapped:
            value = value >> 24 | value >> 8 & 0xFF00 | (value & 0xFF00) << 8 | value << 24
        memcpy(self.place + self.used, &value, 4)
        self.used += 4

    cdef void _put16(self, uint16_t value) noexcept nogil:
        if self.swapped:
            value = <uint16_t>(value >> 8 | value << 8)
        memcpy(self.place + self.used, &value, 2)
        self.used += 2


# --- a frame: Ethernet, IP, UDP ------------------------------------------------------------------

cdef bint is_ipv4(const uint8_t* address) noexcept nogil:
    return memcmp(address, b"\0\0\0\0\0\0\0\0\0\0\xFF\xFF", 12) == 0


cdef uint32_t frame_headers(const CaptureEntry* entry, int vlan) noexcept nogil:
    # Size of the headers; IPv4 if both addresses are IPv4.
    cdef bint ipv4 = is_ipv4(entry.datagram.source) and is_ipv4(entry.datagram.destination)
    return 14 + (4 if vlan >= 0 else 0) + (20 if ipv4 else 40) + 8


cdef void put_big16(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value


cdef uint32_t sum_words(const uint8_t* at, uint32_t size, uint32_t total) noexcept nogil:
    # One's complement sum of big-endian words (RFC 1071). Sizes up to 64 KiB: no overflow.
    cdef uint32_t i
    for i in range(0, size - size % 2, 2):
        total += <uint32_t>at[i] << 8 | at[i + 1]
    if size % 2:
        total += <uint32_t>at[size - 1] << 8
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


cdef void put_headers(
        uint8_t* at, const CaptureEntry* entry, const uint8_t* payload, int vlan) noexcept nogil:
    cdef const uint8_t* source = &entry.datagram.source[0]
    cdef const uint8_t* destination = &entry.datagram.destination[0]
    cdef bint ipv4 = is_ipv4(source) and is_ipv4(destination)
    cdef uint32_t size = entry.datagram.size + 8
    cdef uint32_t total
    memcpy(at, b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02", 12)
    if ipv4 and destination[12] >> 4 == 14:  # the Ethernet address of a multicast group (RFC 1112)
        memcpy(at, b"\x01\0\x5E", 3)
        memcpy(at + 3, destination + 13, 3)
        at[3] &= 0x7F
    elif not ipv4 and destination[0] == 0xFF:
        memcpy(at, b"\x33\x33", 2)
        memcpy(at + 2, destination + 12, 4)
    at += 12
    if vlan >= 0:
        put_big16(at, 0x8100)
        put_big16(at + 2, vlan)
        at += 4
    put_big16(at, 0x0800 if ipv4 else 0x86DD)
    at += 2
    if ipv4:
        memset(at, 0, 20)
        at[0] = 0x45
        put_big16(at + 2, size + 20)
        at[6] = 0x40  # do not fragment
        at[8] = 64
        at[9] = 17
        memcpy(at + 12, source + 12, 4)
        memcpy(at + 16, destination + 12, 4)
        put_big16(at + 10, ~sum_words(at, 20, 0))
        total = sum_words(at + 12, 8, 17 + size)
        at += 20
    else:
        memset(at, 0, 8)
        at[0] = 0x60
        put_big16(at + 4, size)
        at[6] = 17
        at[7] = 64
        memcpy(at + 8, source, 16)
        memcpy(at + 24, destination, 16)
        total = sum_words(at + 8, 32, 17 + size)
        at += 40
    put_big16(at, entry.datagram.source_port)
    put_big16(at + 2, entry.datagram.destination_port)
    put_big16(at + 4, size)
    put_big16(at + 6, 0)
    total = ~sum_words(payload, entry.datagram.size, sum_words(at, 8, total)) & 0xFFFF
    put_big16(at + 6, total if total else 0xFFFF)
