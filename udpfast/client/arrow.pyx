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
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from udpfast.client.batch cimport Batch

from itertools import pairwise

import numpy as np

from udpfast.core.layout import Kind
from udpfast.core.optional import load_optional
from udpfast.errors import FormatError
from udpfast.market.block import Block
from udpfast.market.columns import Lists, Selected, Texts, Words, column_values
from udpfast.market.tables import frame_columns

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

#: Arrow's format string by type of column.
_FORMATS = {
    "boolean": b"b", "int": b"i", "long": b"l", "double": b"g", "timestamp": b"tsu:UTC",
    "date": b"tdD",
}


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
    """Return a table of all records of a batch, with the columns of the table `messages`."""
    return _table(batch, None)


def update_table(Batch batch not None, kind: Kind) -> ArrowTable:
    """Return a table of the records of one kind: `market.tables.frame_columns(kind)`.

    The rows of a payload (levels, orders, trades) are in `rows`, a column of lists of structs.

    Raises
    ------
    FormatError
        The kind has no fixed layout, or a payload is too short for its layout or its rows.
    """
    if frame_columns(kind) is None:
        raise FormatError(f"kind must have a fixed layout, was {kind.name}")
    return _table(batch, kind)


cdef ArrowTable _table(Batch batch, kind):
    cdef ArrowTable table = ArrowTable.__new__(ArrowTable)
    frame = frame_columns(kind)
    block = Block(batch.headers, batch.offsets, batch.payloads, batch.count)
    kinds = () if kind is None else (kind,)
    names = batch.names.words()
    records = Selected(block, kinds, False, names)
    columns = [_column(batch, records, each) for each in frame.columns]
    if frame.rows:
        rows = Selected(block, kinds, True, names)
        items = _Column(
            "item", b"+s", rows.rows.count, [None],
            children=[_column(batch, rows, each) for each in frame.row_columns])
        columns.append(_list(frame.rows, _offsets(records.rows.counts()), items))
    table._root = _Column("", b"+s", records.rows.count, [None], children=columns)
    return table


def _column(Batch batch, selected, column):
    """Return a column of the selected records, or of their rows."""
    if column.source == "feed":
        return _words(column.name, _feeds(batch, selected))
    values = column_values(selected, column)
    if isinstance(values, Words):
        return _words(column.name, values)
    if isinstance(values, Lists):
        fields = [_Column(name, b"g", len(values.rows),
                          [None, np.ascontiguousarray(values.rows[name])])
                  for name in values.rows.dtype.names]
        items = _Column("item", b"+s", len(values.rows), [None], children=fields)
        return _list(column.name, values.offsets, items)
    if isinstance(values, Texts):
        if column.type == "binary":
            return _Column(column.name, b"z", len(values.offsets) - 1, [None, *values])
        return _texts(column.name, values)
    numbers = values.values
    if column.type == "boolean":
        numbers = np.packbits(numbers, bitorder="little")
    return _valid(column.name, _FORMATS[column.type], len(values.values), numbers, values.absent)


def _feeds(Batch batch, selected):
    """Return the feed of each record; apps' messages are of the log itself."""
    feed, own = batch.feeds()
    of_apps = selected.record("kind") >= Kind.BUS
    return Words(of_apps.astype(np.int32), [feed or None, own or None])


def _valid(name, form, count, values, absent):
    """Return a column of numbers, null where `absent` is true."""
    nulls = 0 if absent is None else int(np.count_nonzero(absent))
    valid = np.packbits(~absent, bitorder="little") if nulls else None
    return _Column(name, form, count, [valid, np.ascontiguousarray(values)], nulls=nulls)


def _list(name, offsets, items):
    return _Column(
        name, b"+l", len(offsets) - 1, [None, np.ascontiguousarray(offsets)], children=[items])


def _offsets(counts):
    return np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])


def _texts(name, values):
    """Return a column of texts: an empty one is null; invalid UTF-8 becomes U+FFFD."""
    offsets, data = values
    if data.size and data.max() > 0x7F:
        # A text may have been cut inside a character. Libraries do not check: polars panics.
        # So replace what is not valid UTF-8.
        raw, at = data.tobytes(), offsets.tolist()
        words = [raw[i:j].decode(errors="replace").encode() for i, j in pairwise(at)]
        offsets = _offsets([len(word) for word in words])
        data = np.frombuffer(b"".join(words) or b"\0", np.uint8)
    absent = np.diff(offsets) == 0
    nulls = int(np.count_nonzero(absent))
    valid = np.packbits(~absent, bitorder="little") if nulls else None
    return _Column(name, b"u", len(absent), [valid, offsets, data], nulls=nulls)


def _words(name, values):
    """Return a dictionary column; its categories are all words known and those in use.

    Different numbers may have one word, but pandas requires distinct categories.
    """
    cdef _Column column
    words = values.words
    numbers = np.minimum(values.numbers.astype(np.intp, copy=False), len(words))
    used = np.zeros(len(words) + 1, np.bool_)
    used[numbers] = True
    places = {words[each]: place for place, each in enumerate(values.known)}
    of_number = np.full(len(words) + 1, -1, np.int32)
    for number in np.flatnonzero(used[:len(words)]).tolist():
        word = words[number]
        if word is not None:
            of_number[number] = places.setdefault(word, len(places))
    codes = of_number[numbers]
    absent = codes < 0
    if values.absent is not None:
        absent |= values.absent
    column = _valid(name, b"i", len(codes), np.maximum(codes, 0), absent)
    texts = [word.encode() for word in places]
    column.dictionary = _Column("", b"u", len(texts), [
        None, _offsets([len(text) for text in texts]),
        np.frombuffer(b"".join(texts) or b"\0", np.uint8)])
    return column


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
