"""IEX messages into updates. The rules are in `updates.pxd`; columns are made by `decode`."""

from typing import NamedTuple

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport RECORD_SNAPSHOT, RECORD_TRUNCATED, RECORD_UNGATED
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_MARKET_STATUS, KIND_TOP_OF_BOOK, KIND_TRADES
from udpfast.market.found cimport (
    OUTCOME_OPAQUE, OUTCOME_REFUSED, OUTCOME_ROOM, OUTCOME_UNKNOWN, Found)
from udpfast.market.names cimport Names, NameTable, names_intern
from udpfast.market.update_header cimport (
    PRESENT_ASKS,
    PRESENT_LAYER,
    PRESENT_MORE,
    PRESENT_ROW_TEXT,
    PRESENT_ROWS,
    Level,
    UpdateHeader,
)
from udpfast.market.updates cimport Book, MarketStatus, TopOfBook, Trade, Trades
from udpfast.wire.load cimport le32, le64

from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.found import Outcome

__all__ = ["IexDecoded", "IexDecoder"]

cdef enum:  # where the fields of a message are; LAYOUTS in layouts.py has those of all types
    FLAGS = 1
    TIME = 2
    SYMBOL = 10
    SIZE = 18                    # of trades and levels
    PRICE = 22
    TRADE_ID = 30
    BID_SIZE = 18                # of quotes
    BID_PRICE = 22
    ASK_PRICE = 30
    ASK_SIZE = 38
    SYMBOL_SIZE = 8
    EVENT_COMPLETE = 1           # in the flags of a level

cdef enum:  # values of the schema
    UPDATE_SNAPSHOT = 1
    UPDATE_INCREMENTAL = 2
    PRECISION_QUANTITY = 1       # decimal digits + 1
    PRECISION_PRICE = 5
    STATUS_UNDEFINED = 0
    STATUS_PRE_OPEN = 2
    STATUS_OPEN = 5
    STATUS_HALT = 7

cdef enum:  # beside the symbol's id, which is below 2^24: objects of their own
    OBJECT_TRADES = 0x40000000
    OBJECT_STATUS = 0x80000000

cdef double PRICE_UNIT = 10_000.0


cdef inline uint32_t layout_size(uint8_t kind) noexcept nogil:
    # Bytes of a type; 0: none that we know.
    if kind == c"8" or kind == c"5":
        return 30
    if kind == c"T" or kind == c"B":
        return 38
    if kind == c"Q":
        return 42
    if kind == c"H":
        return 22
    if kind == c"O" or kind == c"E":
        return 18
    if kind == c"P":
        return 19
    if kind == c"D":
        return 31
    if kind == c"S":
        return 10
    if kind == c"X":
        return 26
    return 80 if kind == c"A" else 0


cdef inline double price_at(const uint8_t* at) noexcept nogil:
    # The double that is nearest to the decimal price.
    return <double><int64_t>le64(at) / PRICE_UNIT


cdef inline uint32_t symbol_size(const uint8_t* symbol) noexcept nogil:
    cdef uint32_t size = SYMBOL_SIZE
    while size and symbol[size - 1] == c" ":
        size -= 1
    return size


cdef int32_t iex_decode(
        IexState* state, const IexMessage* message, uint8_t* into, uint32_t room, Names* names,
        Found* found) noexcept nogil:
    cdef uint8_t kind = message.data[0] if message.size else 0
    cdef uint32_t size = layout_size(kind)
    memset(found, 0, sizeof(Found))
    # What is behind a layout is of a later version of it.
    if unlikely(message.size < max(size, <uint32_t>1)):
        return OUTCOME_REFUSED
    if unlikely(size == 0):
        return OUTCOME_UNKNOWN
    if state.deep and (kind == c"8" or kind == c"5"):
        return decode_level(state, message, into, room, names, found)
    if not state.deep and kind == c"Q":
        return decode_quote(message, into, room, names, found)
    if kind == c"T":
        return decode_trade(message, into, room, names, found)
    if kind == c"H" or kind == c"O":
        return decode_status(state, message, into, room, names, found)
    return OUTCOME_OPAQUE


cdef UpdateHeader* update_begin(
        const IexMessage* message, uint8_t* into, uint32_t room, uint32_t size, Names* names,
        Found* found) noexcept nogil:
    # All zero but for what every update has. NULL: there is no room for it.
    cdef UpdateHeader* header = <UpdateHeader*>into
    found.size = size
    if unlikely(room < size):
        return NULL
    memset(into, 0, size)
    header.exchange_time_utc = <int64_t>le64(message.data + TIME)
    header.exchange_sequence = message.number
    header.sending_time_utc = message.sent_ns
    header.price_precision = PRECISION_PRICE
    header.quantity_precision = PRECISION_QUANTITY
    found.exchange_id = names_intern(names, b"IEX", 3)
    found.symbol_id = names_intern(names, message.data + SYMBOL, symbol_size(message.data + SYMBOL))
    found.names_full = (found.exchange_id == 0) + (found.symbol_id == 0)
    found.object = found.symbol_id
    found.flags = RECORD_UNGATED
    if unlikely(found.names_full):
        found.flags |= RECORD_TRUNCATED
    header.exchange_id = found.exchange_id
    header.symbol_id = found.symbol_id
    return header


cdef inline void complete(Found* found) noexcept nogil:
    # The update is all that its object is. Symbols without an id share one, which is never sound.
    found.flags |= RECORD_SNAPSHOT if found.symbol_id else 0


cdef int32_t decode_quote(
        const IexMessage* message, uint8_t* into, uint32_t room, Names* names,
        Found* found) noexcept nogil:
    cdef TopOfBook* top = <TopOfBook*>into
    cdef const uint8_t* data = message.data
    cdef UpdateHeader* header = update_begin(
        message, into, room, sizeof(TopOfBook), names, found)
    if unlikely(header == NULL):
        return OUTCOME_ROOM
    header.present = PRESENT_LAYER
    header.update_type = UPDATE_SNAPSHOT
    top.bid_quantity = le32(data + BID_SIZE)
    top.bid_price = side_price(data + BID_PRICE, top.bid_quantity)
    top.ask_quantity = le32(data + ASK_SIZE)
    top.ask_price = side_price(data + ASK_PRICE, top.ask_quantity)
    complete(found)
    return KIND_TOP_OF_BOOK


cdef inline double side_price(const uint8_t* at, double quantity) noexcept nogil:
    # No such side is published as size 0 at price 0.
    return NAN if quantity == 0 and le64(at) == 0 else price_at(at)


cdef int32_t decode_trade(
        const IexMessage* message, uint8_t* into, uint32_t room, Names* names,
        Found* found) noexcept nogil:
    cdef Trade* row = <Trade*>(into + sizeof(Trades))
    cdef const uint8_t* data = message.data
    cdef UpdateHeader* header = update_begin(
        message, into, room, sizeof(Trades) + sizeof(Trade), names, found)
    if unlikely(header == NULL):
        return OUTCOME_ROOM
    header.present = PRESENT_ROWS
    header.row_count = 1
    row.price = price_at(data + PRICE)
    row.quantity = le32(data + SIZE)
    row.present = PRESENT_ROW_TEXT
    write_number(row.trade_id, <int64_t>le64(data + TRADE_ID))
    found.object |= OBJECT_TRADES
    return KIND_TRADES


cdef void write_number(char* text, int64_t number) noexcept nogil:
    # In decimal: 20 characters at most.
    cdef uint64_t rest = <uint64_t>number if number >= 0 else 0 - <uint64_t>number
    cdef char digits[20]
    cdef int count = 0
    while True:
        digits[count] = <char>(c"0" + rest % 10)
        count += 1
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        text[0] = c"-"
        text += 1
    while count:
        count -= 1
        text[0] = digits[count]
        text += 1


cdef int32_t decode_level(
        IexState* state, const IexMessage* message, uint8_t* into, uint32_t room, Names* names,
        Found* found) noexcept nogil:
    cdef Book* book = <Book*>into
    cdef Level* level = <Level*>(into + sizeof(Book))
    cdef const uint8_t* data = message.data
    cdef bint buy = data[0] == c"8"
    cdef bint whole
    cdef UpdateHeader* header = update_begin(
        message, into, room, sizeof(Book) + sizeof(Level), names, found)
    if unlikely(header == NULL):
        return OUTCOME_ROOM
    level.price = price_at(data + PRICE)
    level.quantity = le32(data + SIZE)
    whole = begins_book(state, message.stream, found.symbol_id)
    if whole:
        header.update_type = UPDATE_SNAPSHOT
        header.present = PRESENT_ROWS | PRESENT_ASKS
        complete(found)
    else:
        header.update_type = UPDATE_INCREMENTAL
        header.present = PRESENT_ROWS if buy else PRESENT_ASKS
    if not data[FLAGS] & EVENT_COMPLETE:
        header.present |= PRESENT_MORE
    header.row_count = 1
    book.bid_count = buy
    book.ask_count = not buy
    return KIND_BOOK


cdef bint begins_book(IexState* state, uint16_t stream, uint32_t symbol_id) noexcept nogil:
    # Whether this is the first level of the symbol's book, and all that there is in it.
    cdef IexSymbol* symbol
    cdef IexStream* own
    if unlikely(stream >= IEX_STREAMS or symbol_id == 0 or symbol_id > state.symbols_max):
        return False
    own = &state.streams[stream]
    symbol = &state.symbols[symbol_id]
    if not own.whole or symbol.run == own.run:
        return False
    if unlikely(symbol.stream != stream and symbol.run
                and symbol.run == state.streams[symbol.stream].run):
        return False             # two streams have this symbol now: no book of it is the one
    symbol.run = own.run
    symbol.stream = stream
    return True


cdef int32_t decode_status(
        IexState* state, const IexMessage* message, uint8_t* into, uint32_t room, Names* names,
        Found* found) noexcept nogil:
    cdef MarketStatus* update = <MarketStatus*>into
    cdef IexSymbol nobody
    cdef IexSymbol* symbol = &nobody
    cdef uint32_t since = 1      # of what is in no table: nothing else was heard
    cdef uint8_t said = message.data[FLAGS]
    cdef UpdateHeader* header = update_begin(
        message, into, room, sizeof(MarketStatus), names, found)
    if unlikely(header == NULL):
        return OUTCOME_ROOM
    found.object |= OBJECT_STATUS
    header.update_type = UPDATE_SNAPSHOT
    memset(&nobody, 0, sizeof(IexSymbol))
    if (message.stream < IEX_STREAMS and state.streams[message.stream].since
            and 0 < found.symbol_id <= state.symbols_max):
        since = state.streams[message.stream].since
        symbol = &state.symbols[found.symbol_id]
    if message.data[0] == c"O":
        symbol.halt = said
        symbol.halt_since = since
    else:
        symbol.status = said
        symbol.status_since = since
    update.trading_status = trading_status(
        symbol.status if symbol.status_since == since else 0,
        symbol.halt if symbol.halt_since == since else 0)
    complete(found)
    return KIND_MARKET_STATUS


cdef inline uint8_t trading_status(uint8_t status, uint8_t halt) noexcept nogil:
    # By the characters that were last heard, 0: none since the last gap. One halt is enough; to say
    # that a symbol trades takes both.
    if status == c"H" or halt == c"O":
        return STATUS_HALT
    if halt != c"N":
        return STATUS_UNDEFINED
    if status == c"T":
        return STATUS_OPEN
    return STATUS_PRE_OPEN if status == c"O" or status == c"P" else STATUS_UNDEFINED


class IexDecoded(NamedTuple):
    """What became of one message.

    Attributes
    ----------
    kind : Kind or Outcome
        The update's kind, or why there is none.
    payload : bytes
        The update, laid out by `UPDATE_DTYPES[kind]`; empty without one.
    flags : RecordFlag
        `SNAPSHOT`: all that its object is; without it an event, or a change. `TRUNCATED`: a name
        got no id. All are `UNGATED`.
    object : int
        Whose: the symbol's id; of trades plus 2^30, of statuses plus 2^31.
    exchange_id, symbol_id : int
        Ids of the name table; 0 = the table is full.
    """

    kind: Kind | Outcome
    payload: bytes
    flags: RecordFlag
    object: int
    exchange_id: int
    symbol_id: int


@cython.final
cdef class IexDecoder:
    """IexDecoder(names, *, deep)\n--\n
    Decodes messages as a feed's loop does.

    Parameters
    ----------
    names : NameTable
        Takes the symbols.
    deep : bool
        DEEP: price levels become BOOK. Otherwise TOPS: quotes become TOP_OF_BOOK.
    """

    cdef IexState state
    cdef NameTable names
    cdef bytearray memory
    cdef bytearray space

    def __cinit__(self, NameTable names not None, *, deep):
        cdef uint64_t capacity = names.names.capacity
        self.names = names
        self.memory = bytearray(iex_memory_size(capacity))
        self.space = bytearray(256)
        iex_init(&self.state, <uint8_t*><char*>self.memory, capacity, deep)

    def session(self, first_number: int, unseen: int = 0, stream: int = 0) -> None:
        """Begin a session of a stream.

        Parameters
        ----------
        first_number : int
            What is delivered begins with it.
        unseen : int
            Numbers before it that were not seen.
        stream : int
            Ordinal of the stream.
        """
        iex_session(&self.state, stream, first_number, unseen)

    def gap(self, stream: int = 0) -> None:
        """Lose messages of a stream."""
        iex_gap(&self.state, stream)

    def decode(
            self, const uint8_t[::1] data, *, number: int = 0, stream: int = 0, sent_ns: int = 0,
            room: int | None = None) -> IexDecoded:
        """Decode one message.

        Parameters
        ----------
        data : bytes-like
            The message, without the length in front of it.
        number, stream, sent_ns : int
            Its number, the ordinal of its stream, and when the venue sent it, in UNIX ns.
        room : int, optional
            Bytes that the update may take; default: as many as it needs.
        """
        cdef IexMessage message
        cdef Found found
        cdef uint8_t nothing = 0
        cdef uint8_t* into = <uint8_t*><char*>self.space
        cdef uint32_t size = len(self.space) if room is None else min(room, len(self.space))
        cdef int32_t result
        message.size = <uint32_t>data.shape[0]
        message.data = &data[0] if message.size else &nothing
        message.stream = stream
        message.number = number
        message.sent_ns = sent_ns
        with nogil:
            result = iex_decode(&self.state, &message, into, size, &self.names.names, &found)
        return IexDecoded(
            Kind(result) if result > 0 else Outcome(result),
            PyBytes_FromStringAndSize(<const char*>into, found.size) if result > 0 else b"",
            RecordFlag(found.flags), found.object, found.exchange_id, found.symbol_id)
