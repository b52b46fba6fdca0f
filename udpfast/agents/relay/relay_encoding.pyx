"""Updates as a Roq gateway's messages: what a relay publishes, before it has a number."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport MESSAGE_SIZE_MAX
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_TOP_OF_BOOK, KIND_TRADES
from udpfast.market.book cimport UPDATE_TYPE_SNAPSHOT
from udpfast.market.names cimport NameTable, names_get
from udpfast.market.updates cimport *
from udpfast.payload.roq.encode cimport (
    LEVEL_ENCODED_MAX, LEVEL_VTABLES_MAX, TRADE_ENCODED_MAX, VALUE_ENCODED_MAX,
    encode_book_update, encode_top_of_book_update, encode_trades_update)

from udpfast.errors import FormatError
from udpfast.payload.roq.encode import encode_update

__all__ = ["RelayEncoding"]

cdef enum:
    TEXTS_MAX = 256              # exchange and symbol
    ENCODED_MAX = (VALUE_ENCODED_MAX + TEXTS_MAX + LEVEL_VTABLES_MAX
                   + ROWS_MAX * LEVEL_ENCODED_MAX)


cdef class RelayEncoding:
    """Encodes one update at a time into memory of its own."""

    def __cinit__(self):
        self.encoded = <uint8_t*>calloc(1, ENCODED_MAX)
        self.rows = <Level*>calloc(ROWS_MAX, sizeof(Level))
        if self.encoded == NULL or self.rows == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.encoded)
        free(self.rows)

    def use_names(self, NameTable names or None) -> None:
        """Turn the ids of records into names by this table from now on; None: they have none."""
        self._names_table = names
        self.has_names = names is not None
        if names is not None:
            self.names = names.names

    cdef uint32_t _encode(
            self, int kind, const uint8_t* fixed, const uint8_t* rows, uint32_t size,
            int64_t created_ns, bint whole) noexcept nogil:
        # Into `encoded`, which is zeros: the message's size; 0: it fits none. `size`: of both; the
        # rows of a kind that has no encoder here follow what is fixed.
        cdef Book book
        cdef TopOfBook top
        cdef Trades trades
        cdef uint32_t done
        if kind == KIND_BOOK:
            memcpy(&book, fixed, sizeof(Book))
            if book.header.row_count > ROWS_MAX:
                return 0
            self._stamp(&book.header, created_ns)
            done = encode_book_update(
                self.encoded, &book, <const Level*>rows, self._text(book.header.exchange_id),
                self._text(book.header.symbol_id))
        elif kind == KIND_TOP_OF_BOOK:
            memcpy(&top, fixed, sizeof(TopOfBook))
            self._stamp(&top.header, created_ns)
            done = encode_top_of_book_update(
                self.encoded, &top, self._text(top.header.exchange_id),
                self._text(top.header.symbol_id))
        elif kind == KIND_TRADES:
            memcpy(&trades, fixed, sizeof(Trades))
            if trades.header.row_count > ENCODED_MAX // TRADE_ENCODED_MAX - 8:
                return 0
            self._stamp(&trades.header, created_ns)
            done = encode_trades_update(
                self.encoded, &trades, <const Trade*>rows, self._text(trades.header.exchange_id),
                self._text(trades.header.symbol_id))
        else:
            done = self._encode_slowly(kind, fixed, size, created_ns, whole)
        if unlikely(done > MESSAGE_SIZE_MAX):
            memset(self.encoded, 0, done)
            return 0
        return done

    cdef uint32_t _encode_slowly(
            self, int kind, const uint8_t* payload, uint32_t size,
            int64_t created_ns, bint whole) noexcept nogil:
        # By the official runtime: kinds that change a few times a day.
        with gil:
            return self._encode_any(kind, (<const char*>payload)[:size], created_ns, whole)

    cdef uint32_t _encode_any(
            self, int kind, bytes payload, int64_t created_ns, bint whole) noexcept:
        cdef bytearray update = bytearray(payload)
        cdef UpdateHeader* header = <UpdateHeader*><char*>update
        cdef bytes encoded
        if self._names_table is None:
            return 0
        self._stamp(header, created_ns)
        if whole:
            header.update_type = UPDATE_TYPE_SNAPSHOT
        try:
            encoded = bytes(encode_update(kind, update, self._names_table))
        except (FormatError, ValueError):  # a value that its own schema does not take
            return 0
        if len(encoded) > MESSAGE_SIZE_MAX:
            return 0
        memcpy(self.encoded, PyBytes_AS_STRING(encoded), len(encoded))
        return <uint32_t>len(encoded)

    cdef inline void _stamp(self, UpdateHeader* header, int64_t created_ns) noexcept nogil:
        # When it was made is its origin's to say, or else when it came; when it is sent, ours.
        if not header.present & PRESENT_SOURCE_INFO or header.source_create_time_utc == 0:
            header.source_create_time_utc = <uint64_t>created_ns
        header.present |= PRESENT_SOURCE_INFO
        header.source_send_time_utc = <uint64_t>self.unix_ns
        header.source_send_time = <uint64_t>self.now_ns

    cdef inline Text _text(self, uint32_t name_id) noexcept nogil:
        cdef Text text
        text.size = 0
        text.start = names_get(&self.names, name_id, &text.size) if self.has_names else NULL
        return text
