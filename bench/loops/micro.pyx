"""Single operations in nogil loops, to be timed and to be counted in instructions.

    loop = DecodeLoop([payload, ...])
    loop.run(1_000_000)          # ns for a million payloads, one after another

Every loop checks what it did: a result that is not the expected one is an error, not a figure.
The C function of each is called `loop`, so that callgrind finds it by its name. `WindowLoop`, the
pipeline, is in `feed_cost`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport KIND_MESSAGE, RECORD_SIZE, Record
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport Ring, ring_claim, ring_commit, ring_poll
from udpfast.market.book cimport OrderBook, book_apply, book_room
from udpfast.market.names cimport NameTable
from udpfast.market.update_header cimport Level
from udpfast.market.updates cimport Book
from udpfast.payload.roq.decode cimport (
    DecodeContext, decode_any, decode_event, decode_init, decode_size_bound,
)
from udpfast.payload.roq.encode cimport Text, encode_book_update
from udpfast.payload.roq.flatbuffer cimport Verification, event_verify

__all__ = [
    "BookLoop", "DecodeLoop", "EncodeLoop", "Loop", "RingLoop", "VerifyLoop",
]

cdef enum:
    HEADER_SIZE = 16             # a payload lies behind its datagram's header


cdef class Loop:
    """An operation over buffers that take turns, each on cache lines of its own."""

    cdef uint8_t* memory
    cdef uint32_t[64] at
    cdef uint32_t[64] size
    cdef uint32_t mask

    def __cinit__(self, buffers: Sequence[Buffer], *arguments):
        cdef uint32_t total = 0, i
        cdef void* memory = NULL
        count = len(buffers)
        if not 0 < count <= 64 or count & (count - 1):
            raise ValueError(f"buffers must be 1, 2, 4 ... 64, were {count}")
        buffers = [bytes(buffer) for buffer in buffers]
        for i, buffer in enumerate(buffers):
            self.at[i] = total + HEADER_SIZE
            self.size[i] = <uint32_t> len(buffer)
            total = (total + HEADER_SIZE + self.size[i] + 63) & ~<uint32_t> 63
        if posix_memalign(&memory, 64, total):
            raise MemoryError
        self.memory = <uint8_t*> memory
        self.mask = <uint32_t> count - 1
        for i, buffer in enumerate(buffers):
            memcpy(self.memory + self.at[i], PyBytes_AS_STRING(buffer), self.size[i])

    def __dealloc__(self):
        free(self.memory)

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        return 0

    def run(self, int64_t count) -> int:
        """Return the ns that `count` operations took.

        Raises
        ------
        ValueError
            An operation did not do what it had to.
        """
        cdef int64_t started, elapsed, done
        with nogil:
            started = clock_monotonic_ns()
            done = self.loop(count)
            elapsed = clock_monotonic_ns() - started
        if done != count:
            raise ValueError(f"expected {count} operations, {done} were done")
        return elapsed


@cython.final
cdef class VerifyLoop(Loop):
    """Verify event payloads."""

    cdef DecodeContext context

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        cdef Verification result
        cdef int64_t i, done = 0
        cdef uint32_t slot
        for i in range(count):
            slot = <uint32_t> i & self.mask
            done += event_verify(self.memory + self.at[slot], self.size[slot],
                                 &self.context.shapes, &result) > 0
        return done


@cython.final
cdef class DecodeLoop(Loop):
    """Verify and decode event payloads, names included.

    Parameters
    ----------
    payloads : sequence of bytes
    general : bool
        By the general path alone.
    """

    cdef DecodeContext context
    cdef bint general
    cdef NameTable names
    cdef uint8_t* into
    cdef uint32_t room

    def __cinit__(self, payloads: Sequence[Buffer], bint general=False):
        cdef void* memory = NULL
        self.general = general
        decode_init(&self.context, 0xFF)
        self.names = NameTable(capacity=4096)
        self.room = (decode_size_bound(max(map(len, payloads))) + 63) & ~<uint32_t> 63
        if posix_memalign(&memory, 64, self.room):
            raise MemoryError
        self.into = <uint8_t*> memory
        memset(self.into, 0, self.room)

    def __dealloc__(self):
        free(self.into)

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        cdef int64_t i, done = 0
        cdef uint32_t slot
        if self.general:
            for i in range(count):
                slot = <uint32_t> i & self.mask
                done += decode_any(self.memory + self.at[slot], self.size[slot], self.into,
                                   self.room, &self.names.names, &self.context) > 0
            return done
        for i in range(count):
            slot = <uint32_t> i & self.mask
            done += decode_event(self.memory + self.at[slot], self.size[slot], self.into,
                                 self.room, &self.names.names, &self.context) > 0
        return done


@cython.final
cdef class EncodeLoop(Loop):
    """Encode the updates of `Kind.BOOK` that are given."""

    cdef uint8_t[65536] into

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        cdef int64_t i, done = 0
        cdef const Book* book
        cdef Text exchange, symbol
        exchange.start = <const uint8_t*> "binance-futures"
        exchange.size = 15
        symbol.start = <const uint8_t*> "BTCUSDT"
        symbol.size = 7
        for i in range(count):
            book = <const Book*> (self.memory + self.at[<uint32_t> i & self.mask])
            memset(self.into, 0, 1024)
            done += encode_book_update(
                self.into, book, <const Level*> (<const uint8_t*> book + sizeof(Book)), exchange,
                symbol) > 0
        return done


@cython.final
cdef class BookLoop(Loop):
    """Apply updates of `Kind.BOOK` to a book."""

    cdef OrderBook book

    def __cinit__(self, updates: Sequence[Buffer], OrderBook book not None):
        self.book = book

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        cdef int64_t i, done = 0
        cdef uint32_t slot
        for i in range(count):
            slot = <uint32_t> i & self.mask
            if book_room(self.memory + self.at[slot], self.size[slot]) > 0:
                book_apply(&self.book.book, self.memory + self.at[slot], False)
                done += 1
        return done


@cython.final
cdef class RingLoop(Loop):
    """Publish a record and poll it, by one thread: what ring and reader cost without a transfer.

    Parameters
    ----------
    payloads : sequence of bytes
    ring : Ring
    cursor : RingCursor
        Attached to that ring.
    """

    cdef Ring ring
    cdef RingCursor cursor

    def __cinit__(self, payloads: Sequence[Buffer], Ring ring not None, RingCursor cursor not None):
        self.ring = ring
        self.cursor = cursor

    cdef int64_t loop(self, int64_t count) noexcept nogil:
        cdef Record* record
        cdef int64_t i, done = 0
        cdef uint64_t lapped
        cdef uint32_t slot
        for i in range(count):
            slot = <uint32_t> i & self.mask
            record = ring_claim(&self.ring.writer, self.size[slot])
            if record == NULL:
                break
            memset(record, 0, RECORD_SIZE)
            memcpy(<uint8_t*> record + RECORD_SIZE, self.memory + self.at[slot], self.size[slot])
            ring_commit(&self.ring.writer, KIND_MESSAGE, 0, 0, self.size[slot])
            done += ring_poll(
                &self.cursor.reader, self.cursor._headers, self.cursor._offsets,
                self.cursor._payloads, self.cursor._room, 1, &lapped) == 1
        return done
