"""Read UDP datagrams from capture files: pcap and pcapng, plain or gzip, in bounded memory."""

import gzip
import ipaddress
import zlib
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from libc.string cimport memcpy, memset

cimport cython

from udpfast.core.check cimport unlikely
from udpfast.net.link cimport (
    LINK_DATAGRAM, LINK_TRUNCATED, LinkDatagram, big16, link_find_datagram,
)

from udpfast.errors import FormatError

__all__ = [
    "CAPTURED", "CaptureBatch", "CaptureEvent", "CaptureReader", "CapturedDatagram",
]

cdef enum:
    MAGIC_MICROSECONDS = 0xA1B2C3D4
    MAGIC_NANOSECONDS = 0xA1B23C4D
    MAGIC_SECTION = 0x0A0D0D0A
    MAGIC_BYTE_ORDER = 0x1A2B3C4D
    BLOCK_INTERFACE = 1
    BLOCK_SIMPLE = 3             # hold one frame each
    BLOCK_ENHANCED = 6
    OPTION_TSRESOL = 9
    OPTION_TSOFFSET = 14

cdef enum:  # results of read_record and read_block
    RECORD_MORE = 0              # the window ends inside the record
    RECORD_FRAME = 1
    RECORD_SKIPPED = 2
    RECORD_DAMAGED = 3


# --- records of the file -------------------------------------------------------------------------

cdef int capture_begin(
        CaptureParser* parser, const uint8_t* window, size_t size) noexcept nogil:
    cdef uint32_t magic
    memset(parser, 0, sizeof(CaptureParser))
    if size < 4:
        return -1
    memcpy(&magic, window, 4)
    if magic == MAGIC_SECTION:
        parser.pcapng = 1
        return 0
    if swap32(magic) == MAGIC_MICROSECONDS or swap32(magic) == MAGIC_NANOSECONDS:
        parser.swapped = 1
        magic = swap32(magic)
    if size < 24 or not (magic == MAGIC_MICROSECONDS or magic == MAGIC_NANOSECONDS):
        return -1
    if load16(parser, window + 4) != 2:
        return -1
    parser.interfaces_count = 1
    # The upper bits of the link type describe a frame check sequence at the end of frames.
    parser.interfaces[0].link_type = load32(parser, window + 20) & 0xFFFF
    parser.interfaces[0].resolution = 6 if magic == MAGIC_MICROSECONDS else 9
    return 24


cdef size_t capture_read(
        CaptureParser* parser, const uint8_t* window, size_t size, size_t* position,
        CaptureEntry* entries, size_t capacity) noexcept nogil:
    cdef size_t count = 0
    cdef CaptureFrame frame
    cdef LinkDatagram* datagram
    cdef int found, verdict
    while count < capacity and parser.damage is NULL:
        frame.loop = NULL
        if parser.pcapng:
            found = read_block(parser, window, size, position, &frame)
        else:
            found = read_record(parser, window, size, position, &frame)
        if found == RECORD_MORE or found == RECORD_DAMAGED:
            break
        if found == RECORD_SKIPPED:
            parser.counts[CAPTURE_BLOCKS_SKIPPED] += 1
            if parser.events and frame.loop is not NULL:
                memset(&entries[count], 0, sizeof(CaptureEntry))
                read_loop(parser, &frame, &entries[count])
                entries[count].timestamp_ns = entries[count].unix_ns
                entries[count].frame = <uint32_t>parser.counts[CAPTURE_FRAMES]
                count += 1
            continue
        datagram = &entries[count].datagram
        verdict = link_find_datagram(&frame.link, datagram)
        if verdict == LINK_DATAGRAM:
            datagram.offset += <uint32_t>(frame.link.data - window)
            entries[count].timestamp_ns = frame.timestamp_ns
            entries[count].frame = <uint32_t>parser.counts[CAPTURE_FRAMES]
            read_loop(parser, &frame, &entries[count])
            count += 1
        parser.counts[verdict] += 1
        parser.counts[CAPTURE_FRAMES] += 1
    return count


cdef int read_record(
        CaptureParser* parser, const uint8_t* window, size_t size, size_t* position,
        CaptureFrame* frame) noexcept nogil:
    # A pcap record: seconds, fraction, captured length, length on the wire, bytes.
    cdef const uint8_t* record = window + position[0]
    cdef size_t left = size - position[0]
    cdef uint32_t captured
    if left < 16:
        return RECORD_MORE
    captured = load32(parser, record + 8)
    if unlikely(captured > RECORD_SIZE_MAX):
        return damaged(parser, b"a record claims more than 4 MiB")
    if left - 16 < captured:
        return RECORD_MORE
    frame.link.data = record + 16
    frame.link.size = captured
    frame.link.wire_size = load32(parser, record + 12)
    frame.link.link_type = parser.interfaces[0].link_type
    frame.timestamp_ns = (<int64_t>load32(parser, record) * 1_000_000_000
                          + <int64_t>load32(parser, record + 4)
                          * (1000 if parser.interfaces[0].resolution == 6 else 1))
    position[0] += 16 + captured
    return RECORD_FRAME


cdef int read_block(
        CaptureParser* parser, const uint8_t* window, size_t size, size_t* position,
        CaptureFrame* frame) noexcept nogil:
    # A pcapng block: type, total length, body, total length again.
    cdef const uint8_t* block = window + position[0]
    cdef size_t left = size - position[0]
    cdef uint32_t block_type, length
    cdef int found = RECORD_SKIPPED
    if left < 12:
        return RECORD_MORE
    block_type = load32(parser, block)
    if block_type == MAGIC_SECTION:  # a palindrome: the same in both byte orders
        if not begin_section(parser, block):
            return damaged(parser, b"a section header has no byte-order magic")
    elif not parser.started:
        return damaged(parser, b"the file does not begin with a section header")
    length = load32(parser, block + 4)
    if unlikely(length < 12 or length % 4 != 0):
        return damaged(parser, b"a block's length is not a multiple of 4 from 12 on")
    if unlikely(length > RECORD_SIZE_MAX):
        return damaged(parser, b"a block claims more than 4 MiB")
    if left < length:
        return RECORD_MORE
    if unlikely(load32(parser, block + length - 4) != length):
        return damaged(parser, b"a block's two lengths differ")
    if block_type == BLOCK_INTERFACE:
        if not add_interface(parser, block + 8, length - 12):
            return damaged(parser, b"an interface block is too short, or the 257th")
    elif block_type == BLOCK_ENHANCED:
        found = read_enhanced(parser, block + 8, length - 12, frame)
    elif block_type == BLOCK_LOOP and is_loop(parser, block + 8, length - 12):
        frame.loop = block + 8
    elif block_type == BLOCK_SIMPLE:
        found = read_simple(parser, block + 8, length - 12, frame)
    if found != RECORD_DAMAGED:
        position[0] += length
    return found


cdef bint begin_section(CaptureParser* parser, const uint8_t* block) noexcept nogil:
    cdef uint32_t magic
    memcpy(&magic, block + 8, 4)
    if magic != MAGIC_BYTE_ORDER and swap32(magic) != MAGIC_BYTE_ORDER:
        return 0
    parser.swapped = magic != MAGIC_BYTE_ORDER
    parser.started = 1
    parser.interfaces_count = 0  # interfaces are numbered anew in each section
    return 1


cdef bint add_interface(
        CaptureParser* parser, const uint8_t* body, size_t size) noexcept nogil:
    cdef CaptureInterface* interface
    cdef size_t position = 8
    cdef uint16_t code, length
    cdef uint64_t offset
    if size < 8 or parser.interfaces_count == INTERFACES_MAX:
        return 0
    interface = &parser.interfaces[parser.interfaces_count]
    parser.interfaces_count += 1
    interface.link_type = load16(parser, body)
    interface.snap_size = load32(parser, body + 4)
    interface.resolution = 6
    interface.offset_s = 0
    while size - position >= 4:
        code = load16(parser, body + position)
        length = load16(parser, body + position + 2)
        position += 4
        if code == 0 or length > size - position:
            break
        if code == OPTION_TSRESOL and length == 1:
            interface.resolution = body[position]
        elif code == OPTION_TSOFFSET and length == 8:
            offset = (<uint64_t>load32(parser, body + position + (0 if parser.swapped else 4)) << 32
                      | load32(parser, body + position + (4 if parser.swapped else 0)))
            interface.offset_s = <int64_t>offset
        length = (length + 3) & ~3
        if length > size - position:
            break
        position += length
    return 1


cdef inline bint is_loop(CaptureParser* parser, const uint8_t* body, size_t size) noexcept nogil:
    return size == LOOP_SIZE and load32(parser, body) == LOOP_MAGIC


cdef void read_loop(
        CaptureParser* parser, const CaptureFrame* frame, CaptureEntry* entry) noexcept nogil:
    # Set what the feed's loop knew about a frame; zeros for a foreign one.
    cdef const uint8_t* body = frame.loop
    entry.now_ns = entry.unix_ns = 0
    entry.flags = 0
    entry.channel = entry.line = entry.address = 0
    entry.event = CAPTURE_FOREIGN
    if body is not NULL:
        entry.now_ns = <int64_t>load64(parser, body + 4)
        entry.unix_ns = <int64_t>load64(parser, body + 12)
        entry.flags = load32(parser, body + 20)
        entry.channel = body[24]
        entry.line = body[25]
        entry.event = body[26]
        entry.address = body[27]


cdef const uint8_t* find_loop(
        CaptureParser* parser, const uint8_t* options, size_t size) noexcept nogil:
    # Find the loop's option among those of a frame's block; NULL: there is none.
    cdef size_t position = 0
    cdef uint16_t code, length
    while size - position >= 4:
        code = load16(parser, options + position)
        length = load16(parser, options + position + 2)
        position += 4
        if code == 0 or length > size - position:
            break
        if code == OPTION_LOOP and length == LOOP_SIZE and is_loop(
                parser, options + position, length):
            return options + position
        position += min((<size_t>length + 3) & ~<size_t>3, size - position)
    return NULL


cdef int read_enhanced(
        CaptureParser* parser, const uint8_t* body, size_t size,
        CaptureFrame* frame) noexcept nogil:
    cdef uint32_t number
    cdef uint64_t ticks
    cdef size_t end
    if size < 20:
        return damaged(parser, b"a frame block is too short")
    number = load32(parser, body)
    frame.link.size = load32(parser, body + 12)
    if number >= parser.interfaces_count:
        return damaged(parser, b"a frame block names an interface that was not described")
    if frame.link.size > size - 20:
        return damaged(parser, b"a frame block claims more bytes than it has")
    ticks = <uint64_t>load32(parser, body + 4) << 32 | load32(parser, body + 8)
    frame.timestamp_ns = ticks_to_ns(&parser.interfaces[number], ticks)
    frame.link.wire_size = load32(parser, body + 16)
    frame.link.link_type = parser.interfaces[number].link_type
    frame.link.data = body + 20
    end = 20 + ((frame.link.size + 3) & ~<size_t>3)
    if end < size:
        frame.loop = find_loop(parser, body + end, size - end)
    return RECORD_FRAME


cdef int read_simple(
        CaptureParser* parser, const uint8_t* body, size_t size,
        CaptureFrame* frame) noexcept nogil:
    cdef uint32_t limit
    if size < 4 or parser.interfaces_count == 0:
        return damaged(parser, b"a simple block without length or interface")
    limit = parser.interfaces[0].snap_size
    frame.link.wire_size = load32(parser, body)
    frame.link.size = frame.link.wire_size
    if limit != 0 and frame.link.size > limit:
        frame.link.size = limit
    if frame.link.size > size - 4:
        return damaged(parser, b"a frame block claims more bytes than it has")
    frame.timestamp_ns = 0
    frame.link.link_type = parser.interfaces[0].link_type
    frame.link.data = body + 4
    return RECORD_FRAME


cdef int64_t ticks_to_ns(CaptureInterface* interface, uint64_t ticks) noexcept nogil:
    # Unsigned arithmetic, so that an absurd stamp wraps instead of overflowing.
    cdef uint32_t digits = interface.resolution & 0x7F
    cdef uint64_t fraction, ns
    cdef uint32_t shift
    if interface.resolution & 0x80:
        if digits > 63:
            ns = 0
        else:
            fraction = ticks & ((<uint64_t>1 << digits) - 1)
            shift = digits
            if shift > 34:  # 10^9 has 30 bits: more than 34 bits of the fraction would overflow
                fraction >>= shift - 34
                shift = 34
            ns = (ticks >> digits) * 1_000_000_000 + (fraction * 1_000_000_000 >> shift)
    else:
        ns = ticks
        while digits < 9:
            ns *= 10
            digits += 1
        while digits > 9 and ns != 0:
            ns //= 10
            digits -= 1
    return <int64_t>(ns + <uint64_t>interface.offset_s * 1_000_000_000)


cdef inline int damaged(CaptureParser* parser, const char* why) noexcept nogil:
    parser.damage = why
    return RECORD_DAMAGED


cdef inline uint32_t swap32(uint32_t value) noexcept nogil:
    return value >> 24 | value >> 8 & 0xFF00 | (value & 0xFF00) << 8 | value << 24


cdef inline uint32_t load32(CaptureParser* parser, const uint8_t* data) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, data, 4)
    return swap32(value) if parser.swapped else value


cdef inline uint64_t load64(CaptureParser* parser, const uint8_t* data) noexcept nogil:
    cdef uint64_t first = load32(parser, data), second = load32(parser, data + 4)
    return first << 32 | second if parser.swapped else second << 32 | first


cdef inline uint16_t load16(CaptureParser* parser, const uint8_t* data) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, data, 2)
    return big16(data) if parser.swapped else value


# --- Python face ---------------------------------------------------------------------------------

class CaptureEvent(IntEnum):
    """What an entry of a capture is."""

    FOREIGN = CAPTURE_FOREIGN    #: a datagram that another program captured
    OWN = CAPTURE_OWN            #: a datagram that a feed's loop received, with the loop's clocks
    EXPIRE = CAPTURE_EXPIRE      #: no datagram: time passed in the loop, and changed its state
    FINISH = CAPTURE_FINISH      #: no datagram: the loop's input ended
    RESTART = CAPTURE_RESTART    #: no datagram: another loop took over
    DOUBT = CAPTURE_DOUBT        #: no datagram: what the kernel dropped did not show until then


#: One datagram of a capture: the place of its payload in the batch's buffer, its addresses, and
#: what the feed's loop knew about it (`CaptureEvent`).
CAPTURED: np.dtype[np.void] = np.dtype([
    ("timestamp_ns", "<i8"), ("source", "u1", 16), ("destination", "u1", 16),
    ("source_port", "<u2"), ("destination_port", "<u2"), ("offset", "<u4"), ("size", "<u4"),
    ("frame", "<u4"), ("now_ns", "<i8"), ("unix_ns", "<i8"), ("flags", "<u4"), ("channel", "u1"),
    ("line", "u1"), ("event", "u1"), ("address", "u1"),
])
if CAPTURED.itemsize != sizeof(CaptureEntry):
    raise ImportError(
        f"struct CaptureEntry has {sizeof(CaptureEntry)} bytes, its dtype {CAPTURED.itemsize}")

_COUNT_NAMES = (
    "datagrams", "fragments", "not_udp", "not_ip", "truncated", "malformed", "link_unknown",
    "frames", "blocks_skipped",
)
if len(_COUNT_NAMES) != CAPTURE_COUNT:
    raise ImportError(f"{CAPTURE_COUNT} counts, but {len(_COUNT_NAMES)} names")


class CapturedDatagram(NamedTuple):
    """One UDP datagram of a capture; source and destination are (ip, port)."""

    timestamp_ns: int
    source: tuple[str, int]
    destination: tuple[str, int]
    payload: bytes


class CaptureBatch(NamedTuple):
    """Datagrams of a capture: `headers` has dtype CAPTURED; its offsets point into `buffer`."""

    headers: NDArray[Any]
    buffer: bytes | memoryview

    def payload(self, index: int) -> memoryview:
        """Return the payload of one datagram, without copying."""
        offset = int(self.headers["offset"][index])
        return memoryview(self.buffer)[offset:offset + int(self.headers["size"][index])]


@cython.final
cdef class CaptureReader:
    """Read the UDP datagrams of a pcap or pcapng file, plain or gzip, in the order of the file.

    Reads a chunk at a time: memory stays below the chunk plus the longest record (4 MiB), however
    long the file is. Reading ends at damage, which `damage` describes; the datagrams before it are
    good.

    Parameters
    ----------
    path : path-like
        The file; its first bytes decide on its format, not its name.
    chunk_bytes : int
        Bytes to read at once, 64 or more.
    events : bool
        Return also entries without a datagram, which a feed's loop recorded in between.

    Attributes
    ----------
    damage : str or None
        Why the file could not be read to its end; None: no damage so far.

    Raises
    ------
    FormatError
        The file is neither pcap nor pcapng.
    OSError
        The file cannot be opened.
    """

    cdef CaptureParser parser
    cdef object raw, file
    cdef bytes window            # bytes of the file; the parser has read those before `position`
    cdef size_t position
    cdef uint64_t window_start   # offset of the window in the (decompressed) file
    cdef Py_ssize_t chunk_bytes
    cdef bint ended
    cdef readonly object damage
    cdef object path

    def __init__(
            self, path: str | os.PathLike[str], *, Py_ssize_t chunk_bytes=1 << 20,
            bint events=False):
        if chunk_bytes < 64:
            raise ValueError(f"chunk_bytes must be 64 or more, was {chunk_bytes}")
        self.path = Path(path)
        self.chunk_bytes = chunk_bytes
        self.window = b""
        self.raw = self.path.open("rb")
        compressed = self.raw.read(2) == b"\x1f\x8b"
        self.raw.seek(0)
        self.file = gzip.GzipFile(fileobj=self.raw) if compressed else self.raw
        self._refill()
        cdef const uint8_t* window = self.window
        cdef int begin = capture_begin(&self.parser, window, len(self.window))
        if begin < 0:
            found = self.window[:24].hex(" ") or "nothing"
            self.close()
            raise FormatError(f"{self.path}: expected pcap 2.x or pcapng, found {found}")
        self.position = begin
        self.parser.events = events

    def __enter__(self) -> CaptureReader:
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.ended = True
        self.window = b""
        self.position = 0
        for file in (self.file, self.raw):
            if file is not None:
                file.close()

    def read_batch(self, size_t count=4096) -> CaptureBatch | None:
        """Return the next datagrams, at most `count`, or None at the end of the file.

        Returns
        -------
        CaptureBatch or None
            The batch owns its memory.
        """
        entries = np.empty(count, CAPTURED)
        cdef CaptureEntry[::1] view = entries
        cdef const uint8_t* window
        cdef size_t size, found = 0
        if count == 0:
            raise ValueError("count must be 1 or more, was 0")
        while True:
            window = self.window
            size = len(self.window)
            with nogil:
                found = capture_read(
                    &self.parser, window, size, &self.position, &view[0], count)
            if found:
                return CaptureBatch(entries[:found], self.window)
            if self.parser.damage is not NULL:
                self._note_damage(self.parser.damage.decode())
                return None
            if self.ended:
                if self.position < size:
                    self._cut_off()
                return None
            self._refill()

    def __iter__(self) -> Iterator[CapturedDatagram]:
        """Yield every datagram as a `CapturedDatagram`."""
        names = {}
        while (batch := self.read_batch()) is not None:
            for index, header in enumerate(batch.headers):
                yield CapturedDatagram(
                    int(header["timestamp_ns"]),
                    (address_name(names, header["source"].tobytes()), int(header["source_port"])),
                    (address_name(names, header["destination"].tobytes()),
                     int(header["destination_port"])),
                    bytes(batch.payload(index)))

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the frames so far by verdict; `frames` is the sum of those before it."""
        return {name: self.parser.counts[index] for index, name in enumerate(_COUNT_NAMES)}

    cdef _refill(self):
        rest = self.window[self.position:]
        self.window_start += self.position
        self.position = 0
        cdef Py_ssize_t size = 0
        parts = [rest]
        while size < self.chunk_bytes and not self.ended:
            try:
                # read1 returns the bytes decompressed before damage, where read would lose them to
                # the exception. For a gzip file it returns 30 to 50 KiB at a time.
                more = self.file.read1(self.chunk_bytes - size)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                more = b""
                self._note_damage(f"gzip: {error}")
            self.ended = self.ended or not more
            size += len(more)
            parts.append(more)
        self.window = b"".join(parts)

    cdef _cut_off(self):
        # The file ends inside its last record: count the frame as truncated.
        self._note_damage("the file ends in the middle of a record")
        self.position = len(self.window)
        self.parser.counts[LINK_TRUNCATED] += 1
        self.parser.counts[CAPTURE_FRAMES] += 1

    cdef _note_damage(self, text):
        if self.damage is None:
            self.damage = f"{text}, at byte {self.window_start + self.position}"
        self.ended = True


def address_name(names, packed):
    """Return the text of 16 address bytes; `names` caches it."""
    if packed not in names:
        address = ipaddress.ip_address(packed)
        names[packed] = str(address.ipv4_mapped or address)
    return names[packed]
