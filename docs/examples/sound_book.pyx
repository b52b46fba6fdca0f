# cython: language_level=3
"""Quote around one book, in a loop without the GIL, and never on a book that may be wrong.

    include=$(python -c 'import udpfast; print(udpfast.get_include())')
    CFLAGS="-I$include" cythonize -i sound_book.pyx
    python -c 'import sound_book; sound_book.main("ring:deribit", "deribit", "BTC-PERPETUAL")'

The reader and the books are those of C (udpfast.h), so nothing in the loop needs Python, not even
waiting or a doubt. It returns to Python when there is something to do; a strategy that has to be
fast does that in the loop, too.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint16_t

from udpfast.core.layout cimport KIND_LAPPED

from udpfast import Kind

cdef extern from "udpfast.h" nogil:
    int UDPFAST_ENDED, UDPFAST_START_TAIL, UDPFAST_WAIT_SLEEP
    cdef struct udpfast_record:
        uint16_t kind
    cdef struct udpfast_reader:
        char* problem
    cdef struct udpfast_books:
        char* problem
    cdef struct udpfast_order_book:
        int stale
    cdef struct udpfast_best:
        double bid_price, ask_price
    int udpfast_reader_open_wait(
        udpfast_reader* reader, const char* address, int start, int64_t timeout_ns)
    int udpfast_reader_join(
        udpfast_reader* reader, udpfast_books* books, udpfast_books* orders, int64_t timeout_ns)
    int64_t udpfast_reader_wait(
        udpfast_reader* reader, const udpfast_record** records, int64_t limit, int how,
        int64_t timeout_ns)
    void udpfast_reader_close(udpfast_reader* reader)
    int udpfast_books_open(udpfast_books* books)
    int udpfast_books_apply(
        udpfast_books* books, udpfast_reader* reader, const udpfast_record* record,
        udpfast_order_book** updated)
    udpfast_order_book* udpfast_books_find(
        const udpfast_books* books, const char* exchange, const char* symbol)
    udpfast_best udpfast_order_book_best(const udpfast_order_book* book)
    void udpfast_books_close(udpfast_books* books)


cdef class Quoter:
    cdef udpfast_reader reader
    cdef udpfast_books books
    cdef bytes exchange, symbol
    cdef bint quoting
    cdef double bid, ask         # the book's best prices, around which we quote
    cdef uint16_t kind           # of the last record

    def __init__(self, address, exchange, symbol):
        self.exchange, self.symbol = exchange.encode(), symbol.encode()
        # Who begins late has missed records, as one who was lapped.
        self.kind = KIND_LAPPED
        if udpfast_books_open(&self.books) < 0:
            raise OSError(self.books.problem.decode())
        if udpfast_reader_open_wait(
                &self.reader, address.encode(), UDPFAST_START_TAIL, 30_000_000_000) < 0:
            raise OSError(self.reader.problem.decode())

    def __dealloc__(self):
        udpfast_reader_close(&self.reader)
        udpfast_books_close(&self.books)

    def run(self):
        """Follow the feed until it ends; raise OSError if it is lost."""
        cdef const char* exchange = self.exchange
        cdef const char* symbol = self.symbol
        cdef int64_t got = 0
        try:
            while got >= 0:
                PyErr_CheckSignals()     # Ctrl-C
                with nogil:
                    got = self._follow(exchange, symbol)
                if got > 0 and self.quoting:
                    print(f"quote {self.bid:g} {self.ask:g}", flush=True)
                elif got > 0:
                    print(f"cancel: {Kind(self.kind).name}", flush=True)
        finally:
            if self.quoting:             # nobody would look after it any longer
                print("cancel: end", flush=True)
        if got != UDPFAST_ENDED:
            raise OSError(self.reader.problem.decode())

    cdef int64_t _follow(self, const char* exchange, const char* symbol) noexcept nogil:
        # Follow the feed until the quote has to change (1). 0: no record came for 0.1 s; below 0:
        # the end.
        cdef const udpfast_record* record
        cdef udpfast_order_book* updated
        cdef int64_t got
        while True:
            if self._look(udpfast_books_find(&self.books, exchange, symbol)):
                return 1
            if self.kind == KIND_LAPPED:
                # All books are stale, and quotes are cancelled. Take the books from the feed's
                # image; without one, each is stale until its next snapshot.
                udpfast_reader_join(&self.reader, &self.books, NULL, 1_000_000_000)
                self.kind = 0
                continue
            got = udpfast_reader_wait(
                &self.reader, &record, 1, UDPFAST_WAIT_SLEEP, 100_000_000)
            if got <= 0:
                return got
            self.kind = record.kind
            # GAP, STALE, CONNECTION, SESSION, RESTART and LAPPED make books stale here, and what
            # ends a doubt makes them sound. An update that fails leaves its book stale.
            udpfast_books_apply(&self.books, &self.reader, record, &updated)

    cdef bint _look(self, const udpfast_order_book* book) noexcept nogil:
        # Return whether the quote has to change. Of a stale or one-sided book there is none.
        cdef udpfast_best best
        cdef bint quoted = self.quoting
        self.quoting = False
        if book != NULL and not book.stale:
            best = udpfast_order_book_best(book)
            self.quoting = best.bid_price < best.ask_price   # no: a side is empty, its price is NaN
        if not self.quoting:
            return quoted
        if quoted and best.bid_price == self.bid and best.ask_price == self.ask:
            return False
        self.bid, self.ask = best.bid_price, best.ask_price
        return True


def main(address, exchange, symbol):
    """Print quotes, and why they are cancelled, until the feed ends."""
    Quoter(address, exchange, symbol).run()
