"""The order book of price levels that a strategy keeps from `Kind.BOOK` records."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport ENOMEM
from libc.math cimport NAN

from udpfast.core.layout cimport RECORD_SNAPSHOT
from udpfast.core.update_kinds cimport KIND_BOOK

import numpy as np
from numpy._core._multiarray_umath import _ARRAY_API

from udpfast.core.optional import load_optional
from udpfast.errors import FormatError, unexpected_keyword

__all__ = ["OrderBook"]

# PyArray_New of numpy's C interface, by its place in the table of functions. The places are part of
# numpy's ABI, as is that an array's object begins with the pointer to its data. To take both from
# numpy's headers, every installation would have to install numpy a first time to compile this.
ctypedef object (*NewArray)(
    object kind, int dimensions, const Py_ssize_t* shape, int dtype, const Py_ssize_t* strides,
    void* data, int item_size, int flags, PyObject* base)

cdef enum:
    NEW_ARRAY_PLACE = 93
    NUMPY_DOUBLE = 12

cdef NewArray new_array = (
    <NewArray*> PyCapsule_GetPointer(_ARRAY_API, NULL))[NEW_ARRAY_PLACE]
cdef object ARRAY = np.ndarray


@cython.final
cdef class OrderBook:
    """OrderBook(*, levels_max=1048576)\n--\n
    Bids and asks by price, kept current by the records of one instrument.

    Not thread-safe; one strategy owns it.

    Parameters
    ----------
    levels_max : int
        Most levels per side. Further ones are refused, counted in `levels_refused`, and make the
        book stale until a snapshot that fits.
    """

    def __cinit__(self, *, levels_max: int = 1 << 20, **unknown):
        if unknown:
            raise unexpected_keyword(OrderBook, unknown)
        if not 0 < levels_max <= 1 << 28:
            raise ValueError(f"levels_max must be 1 to {1 << 28}, was {levels_max}")
        self.levels_max = levels_max
        self.book.bids.sign = 1
        self.book.asks.sign = -1
        if self.reserve(64) < 0:
            raise MemoryError

    def __dealloc__(self):
        PyMem_RawFree(self.book.bids.levels)
        PyMem_RawFree(self.book.asks.levels)

    cdef int reserve(self, uint64_t more) noexcept nogil:
        # Make room for `more` levels on each side, up to levels_max in all. Return 0, or -ENOMEM.
        if (_reserve(&self.book.bids, more, self.levels_max) < 0
                or _reserve(&self.book.asks, more, self.levels_max) < 0):
            return -ENOMEM
        return 0

    cdef void swap(self, OrderBook other) noexcept:
        # Exchange the contents of two books.
        cdef PriceBook book = self.book
        self.book = other.book
        other.book = book

    def apply(self, update, *, snapshot: bool = False) -> None:
        """Apply a book update: the payload of a `Kind.BOOK` record, or such a record.

        A level of quantity 0 is removed; a side without rows does not change. A snapshot (by the
        update's own type, the record's flag, or `snapshot`) replaces both sides and makes the book
        live. An update of type stale marks the book stale.

        Parameters
        ----------
        update : bytes-like, or a record with `kind`, `flags` and `payload`
        snapshot : bool
            Replace both sides whatever the update's own type is.

        Raises
        ------
        FormatError
            The record's kind is not `Kind.BOOK`, or the payload is shorter than its counts say.
        """
        cdef Py_buffer view
        cdef int64_t room
        payload = getattr(update, "payload", None)
        if payload is None:
            payload = update
        else:
            if update.kind != KIND_BOOK:
                raise FormatError(f"a book takes records of kind BOOK, was {update.kind!r}")
            snapshot = snapshot or update.flags & RECORD_SNAPSHOT
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            room = book_room(<const uint8_t*> view.buf, view.len)
            if room < 0:
                raise FormatError(
                    f"a book update of {view.len} bytes is too short for its number of levels")
            if self.reserve(room) < 0:
                raise MemoryError
            book_apply(&self.book, <const uint8_t*> view.buf, snapshot)
        finally:
            PyBuffer_Release(&view)

    cdef object _levels(self, const BookSide* side, object count):
        cdef uint32_t wanted = side.count, i
        cdef Py_ssize_t[2] shape
        cdef double* out
        if count is not None:
            wanted = min(wanted, <uint32_t> max(0, min(count, self.levels_max)))
        shape[0] = wanted
        shape[1] = 2
        # Half the time of numpy.empty.
        levels = new_array(ARRAY, 2, shape, NUMPY_DOUBLE, NULL, NULL, 0, 0, NULL)
        out = (<double**> (<PyObject*> levels + 1))[0]
        for i in range(wanted):
            out[2 * i] = book_side_price(side, i)
            out[2 * i + 1] = book_side_quantity(side, i)
        return levels

    def bids(self, count: int | None = None) -> np.ndarray:
        """Return the best bids.

        Parameters
        ----------
        count : int, optional
            Return at most this many levels; default all.

        Returns
        -------
        numpy.ndarray
            Shape (n, 2), float64: price, quantity; the best first. A copy.
        """
        return self._levels(&self.book.bids, count)

    def asks(self, count: int | None = None) -> np.ndarray:
        """Return the best asks, as `bids` does the bids."""
        return self._levels(&self.book.asks, count)

    def best(self) -> tuple[float, float, float, float]:
        """Return bid price, bid quantity, ask price, ask quantity; an empty side is NaN and 0."""
        cdef const BookSide* bids = &self.book.bids
        cdef const BookSide* asks = &self.book.asks
        return (
            book_side_price(bids, 0) if bids.count else NAN,
            book_side_quantity(bids, 0) if bids.count else 0,
            book_side_price(asks, 0) if asks.count else NAN,
            book_side_quantity(asks, 0) if asks.count else 0)

    @property
    def mid(self) -> float:
        """The middle between best bid and best ask; NaN if a side is empty."""
        bid, _, ask, _ = self.best()
        return 0.5 * bid + 0.5 * ask

    @property
    def spread(self) -> float:
        """Best ask minus best bid: negative if the book is crossed, NaN if a side is empty."""
        bid, _, ask, _ = self.best()
        return ask - bid

    def depth(self, count: int = 10) -> np.ndarray:
        """Return the best levels of both sides next to each other.

        Parameters
        ----------
        count : int
            Levels per side.

        Returns
        -------
        numpy.ndarray
            Shape (count,), fields bid_price, bid_quantity, ask_price, ask_quantity; the best first.
            If a side has fewer levels, the rest has price NaN and quantity 0. A copy.
        """
        if count < 0:
            raise ValueError(f"count must be 0 or more levels, was {count}")
        found = np.zeros(count, [(name, np.float64) for name in (
            "bid_price", "bid_quantity", "ask_price", "ask_quantity")])
        for side, levels in (("bid", self.bids(count)), ("ask", self.asks(count))):
            found[f"{side}_price"] = np.nan
            found[f"{side}_price"][:len(levels)] = levels[:, 0]
            found[f"{side}_quantity"][:len(levels)] = levels[:, 1]
        return found

    def to_pandas(self, count: int | None = None):
        """Return `depth(count)`, by default all levels, as a pandas DataFrame.

        Needs pandas: `pip install 'udpfast[pandas]'`.
        """
        pandas = load_optional("pandas", "pandas")
        return pandas.DataFrame(self.depth(max(self.levels) if count is None else count))

    def to_polars(self, count: int | None = None):
        """Return `depth(count)`, by default all levels, as a polars DataFrame.

        Needs polars: `pip install 'udpfast[polars]'`.
        """
        polars = load_optional("polars", "polars")
        return polars.DataFrame(self.depth(max(self.levels) if count is None else count))

    @property
    def levels(self) -> tuple[int, int]:
        """The numbers of bid levels and of ask levels."""
        return self.book.bids.count, self.book.asks.count

    @property
    def crossed(self) -> bool:
        """True if the best bid is at or above the best ask."""
        return (self.book.bids.count > 0 and self.book.asks.count > 0
                and book_side_price(&self.book.bids, 0) >= book_side_price(&self.book.asks, 0))

    @property
    def stale(self) -> bool:
        """True if the book must not be trusted: an update was lost, or a level refused."""
        return self.book.stale

    @property
    def partial(self) -> bool:
        """True in the middle of an event: the next update of the book completes or continues it.

        A venue's event may be several updates (PRESENT_MORE in `present`); the book is not wrong
        meanwhile, but may be crossed.
        """
        return self.book.partial

    @property
    def removals_unknown(self) -> int:
        """How many removals of levels came for levels that did not exist."""
        return self.book.removals_unknown

    @property
    def levels_refused(self) -> int:
        """How many levels were refused: NaN, a quantity below 0, or more than `levels_max`."""
        return self.book.levels_refused

    def mark_stale(self) -> None:
        """Mark the book as not to be trusted (`Kind.STALE`, `Kind.GAP`); its levels stay."""
        self.book.stale = True

    def mark_live(self) -> None:
        """Mark the book as sound again (`Kind.RECOVERED`)."""
        self.book.stale = False

    def clear(self) -> None:
        """Remove all levels (`Kind.SESSION`, `Kind.RESTART`); memory and counts stay."""
        self.book.bids.count = 0
        self.book.asks.count = 0
        self.book.stale = self.book.partial = False

    def __repr__(self) -> str:
        bid, bid_quantity, ask, ask_quantity = self.best()
        bids, asks = self.levels
        below = f"{bid_quantity:.12g} x {bid:.12g}" if bids else "no bids"
        above = f"{ask:.12g} x {ask_quantity:.12g}" if asks else "no asks"
        state = "STALE" if self.stale else "CROSSED" if self.crossed else "sound"
        return f"<OrderBook {below} | {above}, {bids} + {asks} levels, {state}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: the best ten levels, stale or sound."""
        from udpfast.market.notebook import book_html

        return book_html(self)


cdef int _reserve(BookSide* side, uint64_t more, uint64_t levels_max) noexcept nogil:
    # Doubling keeps copies rare.
    cdef uint64_t wanted = min(levels_max, side.count + more)
    cdef void* memory
    if wanted <= side.capacity:
        return 0
    wanted = min(levels_max, max(wanted, 2 * <uint64_t> side.capacity))
    memory = PyMem_RawRealloc(side.levels, wanted * sizeof(PriceLevel))
    if memory == NULL:
        return -ENOMEM
    side.levels = <PriceLevel*> memory
    side.capacity = <uint32_t> wanted
    return 0
