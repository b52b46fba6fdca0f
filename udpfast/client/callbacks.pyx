"""A strategy as an object with a method per kind of record: `on_book`, `on_trade`, `on_gap`..."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint16_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.books cimport Books
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport (
    READER_CLOSED, READER_FOREVER, Reader, reader_deadline, reader_in_memory)
from udpfast.client.record cimport ReadRecord
from udpfast.core.layout cimport KIND_LAPPED


from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, RingClosedError, similar, unexpected_keyword

__all__ = ["CALLBACK_NAMES", "Callbacks"]

#: The method's name for each kind. One call per record: `on_trade` gets a summary of trades.
CALLBACK_NAMES = {
    kind: "on_trade" if kind is Kind.TRADES else f"on_{kind.name.lower()}"
    for kind in Kind if kind is not Kind.PAD
}


@cython.final
cdef class Callbacks:
    """Callbacks(reader, strategy, *, books=None)\n--\n
    Call a strategy's methods for the records of a reader, in ring order, in this thread.

    The methods are called `on_book`, `on_trade`, `on_gap`, ... (`CALLBACK_NAMES`), take one
    `ReadRecord`, and return nothing. `on_other` gets what has no method of its own. Records of
    kinds without a method are passed over without a Python object. An exception ends the call
    that it came out of; the next call goes on with the record behind.

    Parameters
    ----------
    reader : Reader
    strategy : object
        With at least one such method; another one that begins with `on_` is refused, because it
        would never be called.
    books : Books, optional
        Every record is applied to it before its method is called, whether there is one or not:
        `books[record.exchange, record.symbol]` is then the book after that record.

    Attributes
    ----------
    reader : Reader
    books : Books or None

    Raises
    ------
    ConfigError
        The strategy has no method to call, or one that no kind has.
    """

    def __init__(self, Reader reader not None, strategy, *, Books books=None, **unknown):
        if unknown:
            raise unexpected_keyword(Callbacks, unknown)
        self.reader = reader
        self.books = books
        self._methods = _methods(strategy)

    def run(self) -> int:
        """Call until the writer closed the ring, `stop` was called, or the reader was closed.

        Returns
        -------
        int
            How many calls were made.

        Raises
        ------
        RingClosedError
            Another file took the ring's place: open a new reader.
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
        """Call for what is there: one run of records, at most the reader's `batch`.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the first; 0: not at all. None: until something comes.

        Returns
        -------
        int
            How many calls were made.

        Raises
        ------
        RingClosedError
            All was read, and the writer closed the ring; or another file took its place.
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
        """End `run` (or `poll`) behind the current call: for use in a method of the strategy.

        If that method called `poll` itself, all of them end.
        """
        self._stopped = True


cdef _enter(Callbacks callbacks):
    # A poll that a callback makes goes on with what the one around it was told: to stop.
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
        memory = reader._memory  # another one behind a callback that polled
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
            reader.skip()  # first: a RESTART renews the names
            books._of(reader._source.names)._accept(
                memory.headers + i, memory.payloads + memory.offsets[i], reader._source.names)
        if method is not None:
            method(record)
            calls += 1
    return calls


def _methods(strategy):
    """The strategy's bound methods, by kind."""
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
