"""Fill a ring at full speed with records that tell by themselves whether they are whole.

Size, flags, times and every word of a payload follow from the record's index and position. A
record with a single byte of another one in it is torn, and found.
"""

from dataclasses import dataclass

from libc.errno cimport EPIPE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.atomics cimport cpu_relax
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, KIND_RESTART, RECORD_SIZE, Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport (
    Ring,
    RingReader,
    RingWriter,
    ring_claim,
    ring_commit,
    ring_flush,
    ring_poll,
)

__all__ = ["LoadResult", "read_load", "write_load"]

cdef enum:
    FLUSH_EVERY = 64         # records, as a subscriber does once per batch of datagrams

# Any odd constants: words of one payload differ, and so do the bases of neighbours. Literals,
# because a module's variable would be loaded again behind every store.
cdef inline uint64_t _step(uint64_t n) noexcept nogil:
    return n * <uint64_t>0x9E3779B97F4A7C15


cdef inline uint64_t _base(uint64_t index, uint64_t position) noexcept nogil:
    cdef uint64_t mixed = _step(index) ^ (position * <uint64_t>0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> 29)


@dataclass(slots=True)
class LoadResult:
    """What a reader has seen: `torn`, `repeated` and `skipped` must be 0.

    Attributes
    ----------
    first : int
        Index at which the reader attached.
    received, lapped : int
        Records read, and records that the ring said were missed.
    torn : int
        Records whose bytes do not follow from their index and position.
    repeated, skipped : int
        Records whose index is lower, or higher, than what was said before it.
    restarts : int
        RESTART records (counted as received too).
    closed : bool
        The writer closed the ring, and everything was read.
    elapsed_ns : int
        From the first record to the last.
    """

    first: int = 0
    received: int = 0
    lapped: int = 0
    torn: int = 0
    repeated: int = 0
    skipped: int = 0
    restarts: int = 0
    closed: bool = False
    elapsed_ns: int = 0


def write_load(Ring ring, uint64_t records, uint32_t size_min, uint32_t size_max) -> int:
    """Write records at full speed; return how long it took, in ns.

    Parameters
    ----------
    ring : Ring
    records : int
    size_min, size_max : int
        Of the payloads, in bytes; at most the ring's `payload_max`.
    """
    if not size_min <= size_max <= ring.payload_max:
        raise ValueError(f"expected size_min <= size_max <= {ring.payload_max}, "
                         f"found {size_min} and {size_max}")
    cdef int64_t started
    with nogil:
        started = clock_monotonic_ns()
        _write(&ring.writer, records, size_min, size_max - size_min + 1)
        started = clock_monotonic_ns() - started
    return started


def read_load(RingCursor cursor, result: LoadResult, int64_t idle_polls_max=100_000) -> None:
    """Read and check records until the writer closes the ring, or nothing came for long.

    Parameters
    ----------
    cursor : RingCursor
    result : LoadResult
        Is added to.
    idle_polls_max : int
        Return after so many polls in a row that brought nothing.

    Raises
    ------
    FormatError
        The ring holds no valid record where one must be.
    """
    cdef Seen seen
    cdef int64_t code
    memset(&seen, 0, sizeof(seen))
    with nogil:
        code = _read(cursor, &seen, idle_polls_max)
    result.received += seen.received
    result.lapped += seen.lapped
    result.torn += seen.torn
    result.repeated += seen.repeated
    result.skipped += seen.skipped
    result.restarts += seen.restarts
    result.elapsed_ns += seen.last_ns - seen.first_ns
    result.closed = code == -EPIPE
    if code < 0 and code != -EPIPE:
        cursor.poll()  # meets the same record, and raises


cdef struct Seen:
    int64_t received
    int64_t lapped
    int64_t torn
    int64_t repeated
    int64_t skipped
    int64_t restarts
    int64_t first_ns
    int64_t last_ns


cdef void _write(
        RingWriter* w, uint64_t records, uint32_t size_min, uint64_t sizes) noexcept nogil:
    cdef uint64_t n, base, j
    cdef uint32_t size
    cdef Record* record
    cdef uint64_t* words
    for n in range(records):
        size = size_min + <uint32_t>(((_base(w.index, 0) >> 32) * sizes) >> 32)
        record = ring_claim(w, size)
        base = _base(w.index, w.position)  # after the claim: it may have wrapped
        words = <uint64_t*>(<uint8_t*>record + RECORD_SIZE)
        for j in range(<uint64_t>(size + 7) // 8):
            words[j] = base + _step(j)
        record.received_ns = <int64_t>base
        record.published_ns = <int64_t>~base
        record.object = <uint32_t>size
        record.number = w.index
        ring_commit(w, KIND_MESSAGE, 0, <uint16_t>base, size)
        if n % FLUSH_EVERY == 0:
            ring_flush(w)
    ring_flush(w)


cdef int64_t _read(RingCursor cursor, Seen* seen, int64_t idle_polls_max) noexcept nogil:
    cdef RingReader* r = &cursor.reader
    cdef uint64_t expected, lapped
    cdef int64_t count = 0, i, idle = 0
    while idle < idle_polls_max:
        expected = r.index
        count = ring_poll(r, cursor._headers, cursor._offsets, cursor._payloads, cursor._room,
                          cursor._limit, &lapped)
        if count < 0:
            return count
        if count == 0:
            idle += 1
            cpu_relax()
            continue
        idle = 0
        seen.last_ns = clock_monotonic_ns()
        if seen.first_ns == 0:
            seen.first_ns = seen.last_ns
        seen.lapped += lapped
        seen.received += count
        expected += lapped
        for i in range(count):
            seen.repeated += cursor._headers[i].index < expected
            seen.skipped += cursor._headers[i].index > expected
            expected = cursor._headers[i].index + 1
            if cursor._headers[i].kind == KIND_RESTART:
                seen.restarts += 1
            else:
                seen.torn += _torn(
                    &cursor._headers[i],
                    <const uint64_t*>(cursor._payloads + cursor._offsets[i]))
    return 0


cdef bint _torn(const Record* record, const uint64_t* words) noexcept nogil:
    cdef uint64_t base = _base(record.index, record.position)
    cdef uint64_t size = record.length - RECORD_SIZE
    cdef uint64_t whole = size // 8, wrong = 0, j
    for j in range(whole):
        wrong |= words[j] ^ (base + _step(j))
    if size % 8 != 0:  # behind the payload there are zeros
        wrong |= words[whole] ^ ((base + _step(whole)) & ~(~<uint64_t>0 << (8 * (size % 8))))
    return (wrong != 0
            or record.kind != KIND_MESSAGE
            or record.flags != <uint16_t>base
            or record.received_ns != <int64_t>base
            or record.published_ns != <int64_t>~base
            or record.object != <uint32_t>size
            or record.checksum != 0
            or record.number != record.index)
