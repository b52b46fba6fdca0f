"""A run of records as numpy arrays: headers, updates of one kind, and payloads in place."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from udpfast.core.layout cimport RECORD_SIZE

import numpy as np

from udpfast.client.kinds import kind_of
from udpfast.core.layout import CONTROL_DTYPES, Kind
from udpfast.errors import FormatError, shown
from udpfast.market.updates import UPDATE_DTYPES, view_update

__all__ = ["Batch", "BatchMemory"]

cdef dict _DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}


@cython.final
cdef class BatchMemory:
    """The arrays that the batches of one reader share.

    Parameters
    ----------
    headers : numpy.ndarray
        dtype `RECORD`.
    offsets : numpy.ndarray
        dtype uint64: where each payload begins in `payloads`, in bytes.
    payloads : numpy.ndarray
        dtype uint8.
    """

    def __init__(self, headers, offsets, payloads):
        self.headers = <Record*> <size_t> headers.ctypes.data
        self.offsets = <uint64_t*> <size_t> offsets.ctypes.data
        self.payloads = <uint8_t*> <size_t> payloads.ctypes.data
        self.headers_array = _read_only(headers)
        self.offsets_array = _read_only(offsets)
        self.payloads_array = _read_only(payloads)


@cython.final
@cython.freelist(8)
cdef class Batch:
    """Batch(*args, **kwargs)\n--\n
    Records of one `Reader.poll`, in ring order; records are missed only before the first one.

    Views (`headers`, `offsets`, `payloads`, `payload`, `update`) point into the reader's memory.
    They are valid until the reader's next poll, wait or iteration step, which overwrites them: a
    view that you kept then shows other records, without an error. Asking an older batch for a view
    raises ValueError. `select` and `copy` return memory of their own.

    Attributes
    ----------
    lapped : int
        Exact number of records missed before the first one of this batch; usually 0.
    names : NameCache
        Names by the ids in the updates: `batch.names[update.header["symbol_id"]]`.
    """

    def __init__(self):
        raise TypeError("only Reader.poll makes a Batch")

    def __len__(self) -> int:
        """Return the number of records; 0 if the poll timed out."""
        return self.count

    def __iter__(self):
        # A loop over single records is slow, and does not see what was missed before them.
        raise TypeError(
            "a Batch is not iterable: for single records, write `for record in reader`; of a "
            "batch, use batch.headers, batch.select('top_of_book') or batch.to_polars('trades'), "
            "or batch.update(i) for i in range(len(batch))")

    def __getitem__(self, key):
        # A record object for each index would be slow, too.
        raise TypeError(
            f"a Batch has no items, was asked for [{shown(key)}]: record i is batch.headers[i] "
            "with batch.update(i) or batch.payload(i); all of a kind are "
            "batch.select('top_of_book')")

    @property
    def headers(self):
        """The record headers: shape (n,), dtype `core.layout.RECORD`, valid until the next poll.

        `batch.headers["number"]` is a column. Both are views, which the next poll overwrites: keep
        `batch.headers.copy()`.
        """
        self.check()
        return self.memory.headers_array[self.first:self.first + self.count]

    @property
    def offsets(self):
        """Where each payload begins in `payloads`: shape (n,), uint64, multiples of 8 bytes.

        For loops that Numba compiles, together with `payloads`. Valid until the next poll.
        """
        self.check()
        return self.memory.offsets_array[self.first:self.first + self.count]

    @property
    def payloads(self):
        """The memory that holds all payloads: uint8, read-only, valid until the next poll.

        Payload `i` has `headers["length"][i] - 64` bytes at `offsets[i]`.
        """
        self.check()
        return self.memory.payloads_array

    def payload(self, int64_t i) -> memoryview:
        """Return the payload of record `i`, read-only, valid until the next poll."""
        self.check()
        if not 0 <= i < self.count:
            raise IndexError(f"expected a record from 0 to {self.count - 1}, found {i}")
        cdef uint64_t start = self.memory.offsets[self.first + i]
        cdef uint64_t size = batch_header(self, i).length - RECORD_SIZE
        return self.memory.payloads_array[start:start + size].data

    def update(self, int64_t i):
        """Return the payload of record `i` as an `Update`, valid until the next poll.

        Raises
        ------
        FormatError
            The record carries no update (its kind is below 16), or its payload is too short.
        """
        payload = self.payload(i)
        return view_update(batch_header(self, i).kind, payload)

    def select(self, kind):
        """Gather the fixed part of every payload of one kind into one array.

        Parameters
        ----------
        kind : Kind or str
            A kind with a fixed layout, GAP .. RESTART or BOOK .. CUSTOM_METRICS, or its name:
            `batch.select("top_of_book")`.

        Returns
        -------
        numpy.ndarray
            A contiguous copy of shape (m,), dtype `UPDATE_DTYPES[kind]` or `CONTROL_DTYPES[kind]`.
            Row i belongs to `batch.headers[batch.headers["kind"] == kind][i]`.

        Raises
        ------
        FormatError
            The kind has no fixed layout, or a payload is shorter than its layout.
        """
        kind = kind_of(kind)
        dtype = _DTYPES.get(kind)
        if dtype is None:
            raise FormatError(f"kind must have a fixed layout, was {kind.name}")
        cdef uint16_t wanted = kind
        cdef int64_t size = dtype.itemsize
        cdef int64_t i, matches = 0
        cdef uint8_t* target
        self.check()
        for i in range(self.count):
            matches += batch_header(self, i).kind == wanted
        selected = np.empty(matches, dtype)
        target = <uint8_t*> <size_t> selected.ctypes.data
        for i in range(self.count):
            if batch_header(self, i).kind != wanted:
                continue
            if batch_header(self, i).length < RECORD_SIZE + size:
                raise FormatError(
                    f"{Kind(kind).name} takes at least {size} bytes, found "
                    f"{batch_header(self, i).length - RECORD_SIZE} in record "
                    f"{batch_header(self, i).index}")
            memcpy(target, batch_payload(self, i), size)
            target += size
        return selected

    def table(self, kind=None):
        """Return an Arrow table that owns its memory, for pyarrow, polars, pandas and others.

        Parameters
        ----------
        kind : Kind or str, optional
            Only records of this kind (a member or its name), with the columns of its table in an
            export (names, types, values), those of its other fields, and a list column for its
            rows. None: all records, with the columns of `messages` and payloads as bytes.

        Returns
        -------
        ArrowTable
            Has the Arrow PyCapsule interface: `pyarrow.table(batch.table(Kind.TOP_OF_BOOK))`.

        Raises
        ------
        FormatError
            The kind has no fixed layout, or a payload is too short for its layout or its rows.
        """
        from udpfast.client.arrow import record_table, update_table

        return record_table(self) if kind is None else update_table(self, kind_of(kind))

    def to_pandas(self, kind=None):
        """Return a pandas DataFrame of `table(kind)`: `pip install 'udpfast[pandas]'`."""
        return self.table(kind).to_pandas()

    def to_polars(self, kind=None):
        """Return a polars DataFrame of `table(kind)`: `pip install 'udpfast[polars]'`."""
        return self.table(kind).to_polars()

    def __arrow_c_schema__(self):
        """Return a capsule of the schema of `table()`."""
        return self.table().__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """Return capsules of schema and array of `table()`: all records, copied."""
        return self.table().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        """Return a capsule of a stream of `table()`: all records, copied, in one array."""
        return self.table().__arrow_c_stream__(requested_schema)

    def copy(self) -> Batch:
        """Return a batch with the same records in its own memory, valid for as long as it lives."""
        cdef Batch copied
        self.check()
        headers = self.headers.copy()
        offsets = self.memory.offsets_array[self.first:self.first + self.count].copy()
        payloads = self.memory.payloads_array[:0]
        if self.count:
            offsets -= offsets[0]
            start = self.memory.offsets[self.first]
            size = (self.memory.offsets[self.first + self.count - 1] - start
                    + batch_header(self, self.count - 1).length - RECORD_SIZE)
            payloads = self.memory.payloads_array[start:start + size].copy()
        copied = batch_of(BatchMemory(headers, offsets, payloads), 0, self.count, self.lapped,
                          self.names, None)
        copied._feeds = self.feeds()
        return copied

    def __bytes__(self) -> bytes:
        """Return the bytes of all records (header and payload), one after the other."""
        cdef int64_t i, size = 0
        cdef bytes joined
        cdef char* target
        self.check()
        for i in range(self.count):
            size += batch_header(self, i).length
        joined = PyBytes_FromStringAndSize(NULL, size)
        target = PyBytes_AS_STRING(joined)
        for i in range(self.count):
            memcpy(target, batch_header(self, i), RECORD_SIZE)
            memcpy(target + RECORD_SIZE, batch_payload(self, i),
                   batch_header(self, i).length - RECORD_SIZE)
            target += batch_header(self, i).length
        return joined

    def __repr__(self) -> str:
        lapped = f", {self.lapped} missed before" if self.lapped else ""
        return f"<Batch of {self.count} records{lapped}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: count, first and last index of each kind."""
        from udpfast.client.notebook import batch_html

        return batch_html(self)

    cdef tuple feeds(self):
        return self._feeds if self.source is None else self.source.feeds()

    cdef int check(self) except -1:
        if self.memory.polls != self._poll:
            raise ValueError(
                "this batch is no longer valid, because its reader has looked for more records: "
                "use it before the next poll, wait or iteration step, or keep batch.copy()")
        return 0


cdef Batch batch_of(
        BatchMemory memory, int64_t first, int64_t count, uint64_t lapped, NameCache names,
        Source source):
    cdef Batch batch = Batch.__new__(Batch)
    batch.memory = memory
    batch.first = first
    batch.count = count
    batch.lapped = lapped
    batch.names = names
    batch.source = source
    batch._poll = memory.polls
    return batch


cdef _read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view
