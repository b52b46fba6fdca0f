"""A strategy as an object with a method per kind of record: `on_book`, `on_trade`, `on_gap`..."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint16_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.books cimport Books
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport (
    READER_CLOSED, READER_FOREVER, Reader, reader_deadline, reader_in_memory, reader_names)
from udpfast.client.record cimport ReadRecord
from udpfast.core.layout cimport KIND_LAPPED


from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, RingClosedError, similar, unexpected_keyword

__all__ = ["CALLBACK_NAMES", "Callbacks"]

#: The method's name by kind. There is one call per record: `on_trade` gets a whole trade summary.
CALLBACK_NAMES = {
    kind: "on_trade" if kind is Kind.TRADES else f"on_{kind.name.lower()}"
    for kind in Kind if kind is not Kind.PAD
}


@cython.final
cdef class Callbacks:
    """Callbacks(reader, strategy, *, books=None)\n--\n
    Call a strategy's methods for the records of a reader, in ring order, in the calling thread.

    The methods are named `on_book`, `on_trade`, `on_gap`, ... (`CALLBACK_NAMES`), take one
    `ReadRecord`, and return nothing. `on_other` gets records of all kinds without a method of their
    own; without it, such records are skipped and no Python object is made. An exception of a method
    leaves `run` or `poll`; the next call continues with the record behind.

    Parameters
    ----------
    reader : Reader
        The reader whose records are dispatched.
    strategy : object
        An object with at least one such method. Any other method that begins with `on_` is refused,
        because it would never be called.
    books : Books, optional
        Every record is applied to it before its method is called, even if it has none:
        `books[record.exchange, record.symbol]` is the book after that record.

    Attributes
    ----------
    reader : Reader
    books : Books or None

    Raises
    ------
    ConfigError
        The strategy has no callback, or an `on_` method that belongs to no kind.
    """

    def __init__(self, Reader reader not None, strategy, *, Books books=None, **unknown):
        if unknown:
            raise unexpected_keyword(Callbacks, unknown)
        self.reader = reader
        self.books = books
        self._methods = _methods(strategy)

    def run(self) -> int:
        """Dispatch records until the ring ends, `stop` is called, or the reader is closed.

        Blocks while there are no records.

        Returns
        -------
        int
            Number of calls made.

        Raises
        ------
        RingClosedError
            Another file replaced the ring's: open a new reader.
        """
        cdef int64_t calls = 0
        _enter(self)
        try:
            while not (self._stopped or self.reader._closed()) and (
                    self.reader.ahead(self.reader._batch, READER_FOREVER) != READER_CLOSED):
                calls += _dispatch(self)
                PyErr_CheckSignals()
        finally:
            self._depth -= 1
        return calls

    def poll(self, timeout=None) -> int:
        """Dispatch one run of records, at most the reader's `batch` (4,096 by default).

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the first record; 0: do not wait; None: no limit.

        Returns
        -------
        int
            Number of calls made.

        Raises
        ------
        RingClosedError
            The writer closed the ring and all of it was read, or another file replaced the ring's.
        """
        self.reader._check_open()
        cdef int64_t ahead = self.reader.ahead(self.reader._batch, reader_deadline(timeout))
        if ahead == READER_CLOSED:
            self.reader._check_open()
            raise RingClosedError(
                f"{self.reader.address}: everything has been read, and the writer has closed it")
        _enter(self)
        try:
            return _dispatch(self) if ahead else 0
        finally:
            self._depth -= 1

    def stop(self) -> None:
        """End `run` or `poll` after the current call; for use in a method of the strategy.

        If a method called `poll` itself, the inner and the outer one end.
        """
        self._stopped = True


cdef _enter(Callbacks callbacks):
    # Only the outermost poll or run resets the request to stop.
    if callbacks._depth == 0:
        callbacks._stopped = False
    callbacks._depth += 1


cdef int64_t _dispatch(Callbacks callbacks) except -1:
    cdef Reader reader = callbacks.reader
    cdef BatchMemory memory
    cdef Books books = callbacks.books
    cdef ReadRecord record
    cdef uint16_t kind
    cdef int64_t calls = 0
    cdef int64_t i
    while not (callbacks._stopped or reader._closed()) and reader_in_memory(reader):
        memory = reader._memory  # read anew: a callback may have polled
        kind = reader.kind_ahead()
        method = callbacks._methods[kind] if kind < FILTER_KINDS else None
        if method is None and books is None:
            reader.skip()
            continue
        if kind == KIND_LAPPED or method is not None:
            record = reader.take()
            if books is not None:
                books.apply(record)
        else:
            i = reader._next
            reader.skip()  # before the names are used: a RESTART renews them
            books._of(reader_names(reader))._accept(
                memory.headers + i, memory.payloads + memory.offsets[i], reader._source.names)
        if method is not None:
            method(record)
            calls += 1
    return calls


def _methods(strategy):
    """Return the strategy's bound methods, by kind."""
    known = {*CALLBACK_NAMES.values(), "on_other"}
    found = {name for name in dir(strategy) if name.startswith("on_")}
    for name in sorted(found - known):
        close = similar(name, known, 1)
        raise ConfigError(
            f"{name} is not a callback's name{f': did you mean {close[0]}?' if close else ''}")
    if not found:
        names = ", ".join(sorted(known))
        raise ConfigError(f"{strategy!r} has no callbacks: expected at least one of {names}")
    other = getattr(strategy, "on_other", None)
    methods = [None] * FILTER_KINDS
    for kind, name in CALLBACK_NAMES.items():
        methods[kind] = getattr(strategy, name, other)
    return methods
