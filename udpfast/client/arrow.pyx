"""Batches as Arrow columns, through the C data interface in PyCapsules, which many libraries take.

https://arrow.apache.org/docs/format/CDataInterface.html and CDataInterface/PyCapsuleInterface.html.
A batch views memory that the next poll overwrites, but Arrow arrays live as long as they are
referenced: so the records are copied once, column by column. No Arrow library needs to be
installed.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.client.batch cimport Batch, batch_header, batch_payload
from udpfast.core.layout cimport RECORD_SIZE
from udpfast.market.name_ids cimport NameIds, record_name_ids

import numpy as np

from udpfast.core.layout import Kind
from udpfast.core.optional import load_optional
from udpfast.errors import FormatError
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, UPDATE_WORDS

__all__ = ["ArrowTable", "record_table", "update_table"]

cdef extern from *:
    """
    #include <stdint.h>
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
        int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
        const char *(*get_last_error)(struct ArrowArrayStream *);
        void (*release)(struct ArrowArrayStream *);
        void *private_data;
    };
    """
    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept
        void* private_data

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept
        void* private_data

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
        const char* (*get_last_error)(ArrowArrayStream*) noexcept
        void (*release)(ArrowArrayStream*) noexcept
        void* private_data

cdef enum:
    ARROW_NULLABLE = 2

#: Arrow's format string by numpy's kind and size.
_FORMATS = {
    "u1": b"C", "u2": b"S", "u4": b"I", "u8": b"L", "i1": b"c", "i2": b"s", "i4": b"i", "i8": b"l",
    "f4": b"f", "f8": b"g",
}
#: Columns of UNIX times, and the nanoseconds in their unit. 0 means no time and becomes null.
_TIMES = {
    **dict.fromkeys(
        ("received_ns", "published_ns", "restarted_ns", "source_send_time_utc",
         "source_create_time_utc", "exchange_time_utc", "sending_time_utc"), 1),
    **dict.fromkeys(
        ("begin_time_utc", "end_time_utc", "expiry_datetime", "expiry_datetime_utc"),
        1_000_000_000),
}
#: Columns of days since the UNIX epoch. 0 means no date and becomes null.
_DAYS = ("issue_date", "settlement_date")
#: Words of updates' enumerations, by field, without the value 0, which means undefined.
_STATED_WORDS = {
    field: {number: word for number, word in words.items() if number}
    for field, words in UPDATE_WORDS.items()
}
#: Columns of a record's header, which come before those of its update.
_HEADER = ("index", "received_ns", "published_ns", "flags", "number", "session")


@cython.final
cdef class _Column:
    # An Arrow array: its schema struct and its array struct are made from this. Owns the buffers.
    cdef bytes format
    cdef bytes name
    cdef int64_t length
    cdef int64_t null_count
    cdef list buffers            # numpy arrays; None: no validity bitmap
    cdef list children
    cdef _Column dictionary

    def __init__(self, name, format, length, buffers, *, children=(), dictionary=None, nulls=0):
        self.name = name.encode()
        self.format = format
        self.length = length
        self.buffers = list(buffers)
        self.children = list(children)
        self.dictionary = dictionary
        self.null_count = nulls


@cython.final
cdef class ArrowTable:
    """Columns for `pyarrow.table(table)`, `polars.DataFrame(table)`, pandas and others.

    Made by `Batch.table`. It owns its memory.
    """

    cdef _Column _root

    def __init__(self):
        raise TypeError("only Batch.table makes an ArrowTable")

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return [(<_Column> child).name.decode() for child in self._root.children]

    def to_pandas(self):
        """Return a pandas DataFrame: `pip install 'udpfast[pandas]'`."""
        load_optional("pandas", "pandas")
        pyarrow = load_optional("pyarrow", "pandas")
        return pyarrow.table(self).to_pandas(use_threads=False)

    def to_polars(self):
        """Return a polars DataFrame: `pip install 'udpfast[polars]'`."""
        return load_optional("polars", "polars").DataFrame(self)

    def __repr__(self) -> str:
        return f"<ArrowTable of {len(self)} rows: {', '.join(self.column_names)}>"

    def __len__(self):
        """Return the number of rows."""
        return self._root.length

    def __arrow_c_schema__(self) -> object:
        """Return a capsule of the schema: a struct, a field per column."""
        return _schema_capsule(self._root)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return capsules of the schema and of one array of structs."""
        return _schema_capsule(self._root), _array_capsule(self._root)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of a stream of one array."""
        return _stream_capsule(self._root)


# --- columns of records -----------------------------------------------------------------------


def record_table(Batch batch not None) -> ArrowTable:
    """Return a table of all records of a batch: header fields, names, payload as bytes."""
    cdef int64_t i, used = 0, size, count = batch.count
    cdef int64_t[::1] offsets = np.zeros(count + 1, np.int64)
    cdef uint8_t[::1] payloads
    batch.check()
    for i in range(count):
        used += batch_header(batch, i).length - RECORD_SIZE
        offsets[i + 1] = used
    payloads = np.empty(max(used, 1), np.uint8)
    for i in range(count):
        size = offsets[i + 1] - offsets[i]
        memcpy(&payloads[0] + offsets[i], batch_payload(batch, i), size)
    headers = batch.headers
    exchanges, symbols = _name_ids(batch, None)
    kinds, inverse = np.unique(headers["kind"], return_inverse=True)
    columns = [_words("kind", inverse, [Kind(kind).name for kind in kinds])]
    columns += _fields(headers, [name for name in headers.dtype.names
                                 if name not in ("length", "kind", "checksum")])
    columns += [_names("exchange", exchanges, batch.names), _names("symbol", symbols, batch.names)]
    columns.append(_Column(
        "payload", b"Z", count, [None, np.asarray(offsets), np.asarray(payloads)]))
    return _table(columns, count)


def update_table(Batch batch not None, kind: Kind) -> ArrowTable:
    """Return a table of the records of one kind: header fields, names, and payload fields.

    The rows of a payload (levels, orders, trades) are in `rows`, a column of lists of structs.

    Raises
    ------
    FormatError
        The kind has no fixed layout, or a payload is too short for its layout or its rows.
    """
    fixed = batch.select(kind)
    headers = batch.headers
    headers = headers[headers["kind"] == kind]
    columns = _fields(headers, _HEADER)
    if "exchange_id" in fixed.dtype.names:
        exchanges, symbols = _name_ids(batch, kind)
        columns += [
            _names("exchange", exchanges, batch.names), _names("symbol", symbols, batch.names)]
    taken = {(<_Column> column).name.decode() for column in columns}
    columns += _fields(fixed, [name for name in fixed.dtype.names
                               if name not in ("exchange_id", "symbol_id") and name not in taken],
                       _enumerations(kind))
    if kind in ROW_DTYPES:
        columns.append(_rows(batch, kind, fixed["row_count"]))
    return _table(columns, len(fixed))


cdef ArrowTable _table(columns, length):
    cdef ArrowTable table = ArrowTable.__new__(ArrowTable)
    table._root = _Column("", b"+s", length, [None], children=columns)
    return table


cdef _name_ids(Batch batch, kind):
    # Return the exchange ids and symbol ids of all records, or of one kind; 0: no such name.
    cdef int64_t i, n = 0
    cdef uint32_t wanted = 0 if kind is None else kind
    cdef uint32_t[::1] exchanges = np.zeros(batch.count, np.uint32)
    cdef uint32_t[::1] symbols = np.zeros(batch.count, np.uint32)
    cdef const NameIds* ids
    for i in range(batch.count):
        if wanted and batch_header(batch, i).kind != wanted:
            continue
        ids = record_name_ids(batch_header(batch, i), batch_payload(batch, i))
        if ids != NULL:
            exchanges[n], symbols[n] = ids.exchange_id, ids.symbol_id
        n += 1
    return np.asarray(exchanges)[:n], np.asarray(symbols)[:n]


def _enumerations(kind):
    """Return the words of a kind's enumerations, by field; an update's 0 has none (null)."""
    if kind in UPDATE_DTYPES:
        return _STATED_WORDS
    return {field: words for (of, field), words in CONTROL_WORDS.items() if of == kind}


def _fields(array, names, enumerations=None):
    """Return the named columns of a structured array; reserved fields are left out."""
    columns = []
    for name in names:
        dtype = array.dtype[name]
        if enumerations and name in enumerations:
            columns.append(_enumeration(name, array[name], enumerations[name]))
        elif dtype.kind == "S":
            columns.append(_texts(name, array[name].tolist()))
        elif name in _TIMES:
            columns.append(_times(name, array[name]))
        elif name in _DAYS:
            columns.append(_valid(name, b"tdD", array[name], array[name] != 0))
        elif dtype.kind in "uif" and not name.startswith("reserved"):
            columns.append(_Column(name, _FORMATS[dtype.str[1:]], len(array),
                                   [None, np.ascontiguousarray(array[name])]))
    return columns


def _times(name, values):
    """Return a column of UTC times; null if there is none or its ns do not fit 64 bits."""
    scale = _TIMES[name]
    most = np.iinfo(np.int64).max // scale
    known = (values != 0) & (values <= most)
    if values.dtype.kind == "i":
        known &= values >= -most
    return _valid(name, b"tsn:UTC", np.where(known, values, 0).astype(np.int64) * scale, known)


def _valid(name, form, values, known):
    """Return a column of numbers, null where `known` is false."""
    nulls = int(len(known) - np.count_nonzero(known))
    valid = np.packbits(known, bitorder="little") if nulls else None
    return _Column(name, form, len(values), [valid, np.ascontiguousarray(values)], nulls=nulls)


def _texts(name, values):
    """Return a column of strings, given as bytes; invalid UTF-8 becomes U+FFFD."""
    joined = b"".join(values)
    if not joined.isascii():
        # A text may have been cut inside a character. Libraries do not check: polars panics.
        # So replace what is not valid UTF-8.
        values = [value.decode(errors="replace").encode() for value in values]
        joined = b"".join(values)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    text = np.frombuffer(joined or b"\0", np.uint8)
    return _Column(name, b"u", len(values), [None, offsets, text])


def _words(name, places, words):
    """Return a dictionary column: `places` are indices into `words`; -1 becomes null."""
    cdef _Column column
    column = _valid(name, b"i", np.maximum(places, 0).astype(np.int32), places >= 0)
    column.dictionary = _texts("", [word.encode() for word in words])
    return column


def _enumeration(name, numbers, words):
    """Return a column of words with all of them as categories; a number without one is null."""
    beyond = max(words) + 1
    places = np.full(beyond + 1, -1, np.int32)
    places[list(words)] = np.arange(len(words), dtype=np.int32)
    return _words(name, places[np.minimum(numbers, beyond)], words.values())


def _names(name, ids, names):
    """Return a column of exchanges or symbols by id; null for an id without a name."""
    found, inverse = np.unique(ids, return_inverse=True)
    # Different ids may have one name, but pandas requires distinct categories.
    places = {}
    words = [names[name_id] for name_id in found.tolist()]
    of_id = [-1 if word is None else places.setdefault(word, len(places)) for word in words]
    return _words(name, np.array(of_id, np.int64)[inverse], list(places))


def _rows(Batch batch, kind, counts):
    """Return a column of the rows of each payload of one kind, as lists of structs."""
    cdef int64_t fixed = UPDATE_DTYPES[kind].itemsize
    cdef int64_t row = ROW_DTYPES[kind].itemsize
    cdef uint16_t wanted = kind
    cdef int64_t i, n = 0, size
    cdef int32_t[::1] offsets = np.zeros(len(counts) + 1, np.int32)
    cdef uint32_t[::1] rows_of = np.ascontiguousarray(counts, np.uint32)
    cdef uint8_t* target
    for i in range(batch.count):  # check the counts first: they may come from another host
        if batch_header(batch, i).kind != wanted:
            continue
        if batch_header(batch, i).length < RECORD_SIZE + fixed + row * rows_of[n]:
            raise FormatError(
                f"record {batch_header(batch, i).index}: {Kind(kind).name} of "
                f"{batch_header(batch, i).length - RECORD_SIZE} bytes is too short for its "
                "number of rows")
        offsets[n + 1] = offsets[n] + <int32_t> rows_of[n]
        n += 1
    rows = np.zeros(offsets[n], ROW_DTYPES[kind])
    target = <uint8_t*> <size_t> rows.ctypes.data
    n = 0
    for i in range(batch.count):
        if batch_header(batch, i).kind != wanted:
            continue
        size = row * rows_of[n]
        memcpy(target, batch_payload(batch, i) + fixed, size)
        target += size
        n += 1
    fields = _fields(rows, rows.dtype.names, _STATED_WORDS)
    items = _Column("item", b"+s", len(rows), [None], children=fields)
    return _Column("rows", b"+l", len(counts), [None, np.asarray(offsets)], children=[items])


# --- the C data interface ---------------------------------------------------------------------


cdef int _export_schema(_Column column, ArrowSchema* out) except -1:
    cdef int64_t i, n = len(column.children)
    memset(out, 0, sizeof(ArrowSchema))
    out.format = column.format
    out.name = column.name
    out.flags = ARROW_NULLABLE
    out.private_data = <void*> column
    Py_INCREF(column)
    out.release = &_release_schema
    if n:
        out.children = <ArrowSchema**> _zeroed(n * sizeof(ArrowSchema*))
        out.n_children = n
        for i in range(n):
            out.children[i] = <ArrowSchema*> _zeroed(sizeof(ArrowSchema))
            _export_schema(column.children[i], out.children[i])
    if column.dictionary is not None:
        out.dictionary = <ArrowSchema*> _zeroed(sizeof(ArrowSchema))
        _export_schema(column.dictionary, out.dictionary)
    return 0


cdef int _export_array(_Column column, ArrowArray* out) except -1:
    cdef int64_t i, n = len(column.children)
    memset(out, 0, sizeof(ArrowArray))
    out.length = column.length
    out.null_count = column.null_count
    out.private_data = <void*> column
    Py_INCREF(column)
    out.release = &_release_array
    out.buffers = <const void**> _zeroed(len(column.buffers) * sizeof(void*))
    out.n_buffers = len(column.buffers)
    for i in range(out.n_buffers):
        if column.buffers[i] is not None:
            out.buffers[i] = <const void*> <size_t> column.buffers[i].ctypes.data
    if n:
        out.children = <ArrowArray**> _zeroed(n * sizeof(ArrowArray*))
        out.n_children = n
        for i in range(n):
            out.children[i] = <ArrowArray*> _zeroed(sizeof(ArrowArray))
            _export_array(column.children[i], out.children[i])
    if column.dictionary is not None:
        out.dictionary = <ArrowArray*> _zeroed(sizeof(ArrowArray))
        _export_array(column.dictionary, out.dictionary)
    return 0


cdef void* _zeroed(size_t size) except NULL:
    cdef void* memory = calloc(1, size)
    if memory == NULL:
        raise MemoryError(f"not enough memory for {size} bytes")
    return memory


# A consumer may have moved a child out, whose release is NULL then. Called from any thread.
cdef void _release_schema(ArrowSchema* schema) noexcept with gil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i] != NULL:
            if schema.children[i].release != NULL:
                schema.children[i].release(schema.children[i])
            free(schema.children[i])
    if schema.dictionary != NULL:
        if schema.dictionary.release != NULL:
            schema.dictionary.release(schema.dictionary)
        free(schema.dictionary)
    free(schema.children)
    Py_DECREF(<object> schema.private_data)
    schema.release = NULL


cdef void _release_array(ArrowArray* array) noexcept with gil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i] != NULL:
            if array.children[i].release != NULL:
                array.children[i].release(array.children[i])
            free(array.children[i])
    if array.dictionary != NULL:
        if array.dictionary.release != NULL:
            array.dictionary.release(array.dictionary)
        free(array.dictionary)
    free(array.children)
    free(array.buffers)
    Py_DECREF(<object> array.private_data)
    array.release = NULL


cdef _schema_capsule(_Column column):
    cdef ArrowSchema* schema = <ArrowSchema*> _zeroed(sizeof(ArrowSchema))
    capsule = PyCapsule_New(schema, "arrow_schema", &_free_schema)
    _export_schema(column, schema)
    return capsule


cdef _array_capsule(_Column column):
    cdef ArrowArray* array = <ArrowArray*> _zeroed(sizeof(ArrowArray))
    capsule = PyCapsule_New(array, "arrow_array", &_free_array)
    _export_array(column, array)
    return capsule


cdef void _free_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


@cython.final
cdef class _Stream:
    cdef _Column column
    cdef bint handed_out


cdef _stream_capsule(_Column column):
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> _zeroed(sizeof(ArrowArrayStream))
    cdef _Stream state = _Stream.__new__(_Stream)
    state.column = column
    stream.private_data = <void*> state
    Py_INCREF(state)
    stream.get_schema = &_stream_schema
    stream.get_next = &_stream_next
    stream.get_last_error = &_stream_error
    stream.release = &_release_stream
    return PyCapsule_New(stream, "arrow_array_stream", &_free_stream)


cdef int _stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    try:
        _export_schema((<_Stream> stream.private_data).column, out)
    except MemoryError:
        return EIO
    return 0


cdef int _stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef _Stream state = <_Stream> stream.private_data
    if state.handed_out:
        memset(out, 0, sizeof(ArrowArray))  # release is NULL: the end of the stream
        return 0
    state.handed_out = True
    try:
        _export_array(state.column, out)
    except MemoryError:
        return EIO
    return 0


cdef const char* _stream_error(ArrowArrayStream* stream) noexcept:
    return "out of memory"  # the only possible error


cdef void _release_stream(ArrowArrayStream* stream) noexcept with gil:
    Py_DECREF(<object> stream.private_data)
    stream.release = NULL


cdef void _free_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream
    stream = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)
