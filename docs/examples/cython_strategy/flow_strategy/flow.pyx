"""The flow of each symbol, bought less sold since the last doubt, in a loop without Python.

A signal is a flow beyond a threshold while a quote is known. Python is called only for signals; the
loop over the records of a batch does not hold the GIL.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from udpfast.client.batch cimport Batch, batch_header, batch_payload
from udpfast.client.reader cimport READER_FOREVER, Reader
from udpfast.core.layout cimport (
    KIND_GAP, KIND_RESTART, KIND_SESSION, KIND_STALE, ObjectState, RECORD_DOUBT,
)
from udpfast.core.update_kinds cimport KIND_TOP_OF_BOOK, KIND_TRADES
from udpfast.market.updates cimport TopOfBook, Trade, Trades

from udpfast.client.compiled import check_layouts

__all__ = ["Flow"]

cdef extern from "udpfast.h":
    uint64_t UDPFAST_RING_LAYOUT

check_layouts(UDPFAST_RING_LAYOUT)

cdef enum:
    SYMBOLS = 65536              # ids are dense, and begin at 1: far more than a feed has
    SIDE_BUY = 1                 # schema Side, of the taker

cdef struct Symbol:
    double middle                # of the last quote; 0: none that is sure since the last doubt
    double flow                  # bought less sold, in money


cdef class Flow:
    """Follow the flow of trades of every symbol of a feed.

    Parameters
    ----------
    threshold : float
        A flow beyond it, either way, is a signal, and begins again at 0.
    """

    cdef readonly int64_t records, doubts, signals
    cdef double _threshold
    cdef Symbol* _symbols

    def __cinit__(self, double threshold):
        self._threshold = threshold
        self._symbols = <Symbol*> calloc(SYMBOLS, sizeof(Symbol))
        if self._symbols == NULL:
            raise MemoryError("no room for symbols")

    def __dealloc__(self):
        free(self._symbols)

    def run(self, Reader reader not None, signal):
        """Follow a reader until its ring is closed; call `signal(symbol, flow, middle)`."""
        cdef Batch batch
        cdef Symbol* symbol
        cdef uint32_t symbol_id
        cdef int64_t i
        while True:
            batch = reader.next_batch(4096, READER_FOREVER)
            if batch is None:
                return
            if batch.lapped:
                self._doubt()
            i = 0
            while i < batch.count:
                with nogil:
                    symbol_id = self._step(batch, &i)
                if symbol_id:
                    symbol = self._symbols + symbol_id
                    self.signals += 1
                    signal(batch.names[symbol_id], symbol.flow, symbol.middle)
                    symbol.flow = 0

    cdef uint32_t _step(self, Batch batch, int64_t* i) noexcept nogil:
        # Look at the records from i on: all of them (0), or up to a signal, whose symbol it is.
        # CONNECTION is no doubt here: a feed that is dead or stuck brings no trades, so no signal.
        # A strategy with quotes in the market has to react to it (KIND_CONNECTION).
        cdef uint32_t symbol_id
        cdef uint16_t kind
        while i[0] < batch.count:
            symbol_id = 0
            kind = batch_header(batch, i[0]).kind
            if kind == KIND_TOP_OF_BOOK:
                self._quote(
                    <const TopOfBook*> batch_payload(batch, i[0]),
                    not batch_header(batch, i[0]).flags & RECORD_DOUBT)
            elif kind == KIND_TRADES:
                symbol_id = self._trades(batch_payload(batch, i[0]))
            elif kind == KIND_GAP or kind == KIND_SESSION or kind == KIND_RESTART:
                self._doubt()
            elif kind == KIND_STALE:
                self._stale(<const ObjectState*> batch_payload(batch, i[0]))
            self.records += 1
            i[0] += 1
            if symbol_id:
                return symbol_id
        return 0

    cdef void _quote(self, const TopOfBook* top, bint sure) noexcept nogil:
        if top.header.symbol_id < SYMBOLS:
            self._symbols[top.header.symbol_id].middle = (
                0.5 * (top.bid_price + top.ask_price) if sure else 0)

    cdef uint32_t _trades(self, const uint8_t* payload) noexcept nogil:
        cdef const Trades* trades = <const Trades*> payload
        cdef const Trade* rows = <const Trade*> (payload + sizeof(Trades))
        cdef uint32_t i, symbol_id = trades.header.symbol_id
        cdef Symbol* symbol = self._symbols + symbol_id
        if symbol_id >= SYMBOLS or symbol_id == 0:
            return 0
        for i in range(trades.header.row_count):
            if rows[i].side == SIDE_BUY:
                symbol.flow += rows[i].price * rows[i].quantity
            else:
                symbol.flow -= rows[i].price * rows[i].quantity
        if symbol.middle > 0 and not -self._threshold <= symbol.flow <= self._threshold:
            return symbol_id
        return 0

    cdef void _doubt(self) noexcept nogil:
        # What was missed may have been trades: begin again, with the next quote.
        self.doubts += 1
        memset(self._symbols, 0, SYMBOLS * sizeof(Symbol))

    cdef void _stale(self, const ObjectState* state) noexcept nogil:
        # The same, of one symbol alone.
        self.doubts += 1
        if state.symbol_id < SYMBOLS:
            memset(self._symbols + state.symbol_id, 0, sizeof(Symbol))
