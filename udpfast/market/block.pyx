"""Rows of a table in a run of records: located once, then copied column by column."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.layout cimport KIND_BUS, KIND_UPDATES, RECORD_SIZE, Record
from udpfast.core.update_kinds cimport KIND_BOOK
from udpfast.market.book cimport update_replaces
from udpfast.market.name_ids cimport NameIds, record_name_ids
from udpfast.market.update_header cimport PRESENT_MORE, UpdateHeader
from udpfast.market.updates cimport Book

import numpy as np

from udpfast.core.layout import CONTROL_DTYPES, RECORD, Kind
from udpfast.errors import FormatError
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES

__all__ = ["Block", "Rows"]

cdef enum:
    KINDS = 64                   # every kind is less than this
    DAY_S = 86_400
    # The structures that a column's field can be in
    BASE_RECORD = 0
    BASE_PAYLOAD = 1
    BASE_ROW = 2
    BASE_UPDATE = 3              # the payload if it is an update; otherwise zeros
    BASE_IDS = 4                 # ids of exchange and symbol if the record has them; else zeros
    BASE_COUNT = 5

cdef struct KindLayout:
    int64_t fixed                # bytes of a payload without its rows
    int64_t row                  # bytes of one row; 0: the kind has no rows

cdef struct Layouts:
    KindLayout kind[KINDS]

cdef Layouts _make_layouts():
    cdef Layouts made
    memset(&made, 0, sizeof(made))
    for kind, dtype in {**CONTROL_DTYPES, **UPDATE_DTYPES}.items():
        made.kind[<int> kind].fixed = dtype.itemsize
        made.kind[<int> kind].row = ROW_DTYPES[kind].itemsize if kind in ROW_DTYPES else 0
    return made

cdef Layouts _LAYOUTS = _make_layouts()
cdef uint8_t[128] _ZEROS
memset(_ZEROS, 0, sizeof(_ZEROS))

_BASES = {"record": BASE_RECORD, "payload": BASE_PAYLOAD, "row": BASE_ROW,
          "update": BASE_UPDATE, "ids": BASE_IDS}

if sizeof(UpdateHeader) > sizeof(_ZEROS):
    raise ImportError(f"UpdateHeader has {sizeof(UpdateHeader)} bytes, more than 128")


@cython.final
cdef class Block:
    """Consecutive records in the arrays of a cursor, which are referenced and not copied.

    Parameters
    ----------
    headers : numpy.ndarray
        dtype `RECORD`.
    offsets : numpy.ndarray
        dtype uint64: where each payload begins in `payloads`, in bytes.
    payloads : numpy.ndarray
        dtype uint8.
    count : int
        Number of records; the arrays may be longer.

    Attributes
    ----------
    count : int
        Number of records.
    """

    def __init__(
            self, headers: NDArray[Any], offsets: NDArray[np.uint64], payloads: NDArray[np.uint8],
            int64_t count):
        if headers.dtype != RECORD or offsets.dtype != np.uint64 or payloads.dtype != np.uint8:
            raise ValueError("headers, offsets and payloads must be of RECORD, uint64 and uint8, "
                             f"were of {headers.dtype}, {offsets.dtype} and {payloads.dtype}")
        if not 0 <= count <= min(len(headers), len(offsets)):
            raise ValueError(f"count must be 0 to {min(len(headers), len(offsets))}, was {count}")
        self._arrays = (headers, offsets, payloads)
        self.records = <const Record*> <size_t> headers.ctypes.data
        self.offsets = <const uint64_t*> <size_t> offsets.ctypes.data
        self.payloads = <const uint8_t*> <size_t> payloads.ctypes.data
        self.count = count

    @property
    def headers(self) -> NDArray[Any]:
        """The records' headers: shape (count,), dtype `RECORD`; a view of the cursor's array."""
        return self._arrays[0][:self.count]

    def partitions(self) -> tuple[NDArray[np.int32], list[tuple[int, int, int]]]:
        """Return the partition of each record, and the list of partitions.

        Returns
        -------
        numpy.ndarray
            shape (count,), dtype int32: index of each record's partition in the list.
        list of (int, int, int)
            UNIX day of `published_ns`, stream, session; in the order of their first records.
        """
        cdef int32_t[::1] codes = np.empty(self.count, np.int32)
        cdef dict known = {}
        cdef int64_t i, day, last_day = 0
        cdef int32_t code = -1
        cdef const Record* record
        cdef uint32_t last = 0, key
        for i in range(self.count):
            record = self.records + i
            day = _day(record.published_ns)
            key = (<uint32_t> record.session << 16) | record.stream
            if code < 0 or key != last or day != last_day:
                last, last_day = key, day
                code = known.setdefault((day, record.stream, record.session), len(known))
            codes[i] = code
        return np.asarray(codes), list(known)

    def ids(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the exchange id and the symbol id of each record; 0: none.

        Returns
        -------
        tuple of numpy.ndarray
            Two arrays of shape (count,), dtype uint32.
        """
        cdef int64_t i
        cdef uint32_t[::1] exchanges = np.empty(self.count, np.uint32)
        cdef uint32_t[::1] symbols = np.empty(self.count, np.uint32)
        cdef const uint8_t* at
        for i in range(self.count):
            at = _ids(self.records + i, self.payloads + self.offsets[i])
            memcpy(&exchanges[i], at, 4)
            memcpy(&symbols[i], at + 4, 4)
        return np.asarray(exchanges), np.asarray(symbols)

    def between(self, uint64_t position, uint64_t end_position) -> int:
        """Return how many records have a position in [position, end_position)."""
        cdef int64_t i, count = 0
        for i in range(self.count):
            count += position <= self.records[i].position < end_position
        return count

    def select(
            self, uint64_t kinds, bint rows=False, keep: NDArray[np.bool_] | None = None) -> Rows:
        """Find the rows of a table.

        Parameters
        ----------
        kinds : int
            Bit n selects records of kind n.
        rows : bool
            True: a table row per row of a payload; False: one per record.
        keep : numpy.ndarray, optional
            shape (count,), dtype bool: False leaves the record out.

        Raises
        ------
        FormatError
            A payload is too short for its kind or its number of rows.
        """
        cdef const uint8_t[::1] wanted
        cdef const uint8_t* kept = NULL
        cdef int64_t count
        cdef Rows found = Rows.__new__(Rows)
        if keep is not None:
            if len(keep) != self.count:
                raise ValueError(f"keep must have {self.count} entries, had {len(keep)}")
            wanted = np.ascontiguousarray(keep, np.uint8)
            if self.count:
                kept = &wanted[0]
        count = self._count(kinds, rows, kept)
        if count < 0:
            self._refuse(-count - 1)
        found._allocate(count, self)
        self._fill(found, kinds, rows, kept)
        return found

    cdef int64_t _count(self, uint64_t kinds, bint rows, const uint8_t* keep) noexcept nogil:
        # Return the number of rows, or -1 - i if record i is too short.
        cdef int64_t i, size, number, count = 0
        cdef uint16_t kind
        cdef KindLayout layout
        for i in range(self.count):
            kind = self.records[i].kind
            if kind >= KINDS or not (kinds >> kind) & 1 or (keep != NULL and not keep[i]):
                continue
            layout = _LAYOUTS.kind[kind]
            size = self.records[i].length - RECORD_SIZE
            if size < layout.fixed:
                return -1 - i
            number = 0
            if layout.row:
                number = _row_count(kind, self.payloads + self.offsets[i])
                if size < layout.fixed + number * layout.row:
                    return -1 - i
            count += number if rows else 1
        return count

    cdef void _fill(
            self, Rows found, uint64_t kinds, bint rows, const uint8_t* keep) noexcept nogil:
        cdef int64_t i, j, number, n = 0, bids
        cdef uint16_t kind
        cdef const Record* record
        cdef const uint8_t* payload
        cdef const uint8_t* ids
        cdef const uint8_t* update
        cdef KindLayout layout
        for i in range(self.count):
            record = self.records + i
            kind = record.kind
            if kind >= KINDS or not (kinds >> kind) & 1 or (keep != NULL and not keep[i]):
                continue
            layout = _LAYOUTS.kind[kind]
            payload = self.payloads + self.offsets[i]
            ids = _ids(record, payload)
            update = payload if kind >= KIND_UPDATES and layout.fixed else _ZEROS
            number = _row_count(kind, payload) if rows else 1
            bids = (<const Book*> payload).bid_count if kind == KIND_BOOK else 0
            for j in range(number):
                found.base[BASE_RECORD][n] = <const uint8_t*> record
                found.base[BASE_PAYLOAD][n] = payload
                found.base[BASE_ROW][n] = payload + layout.fixed + j * layout.row
                found.base[BASE_UPDATE][n] = update
                found.base[BASE_IDS][n] = ids
                found.ordinal[n] = <int32_t> j
                found.ask[n] = j >= bids
                n += 1

    cdef const UpdateHeader* update(self, int64_t i) noexcept nogil:
        # Return the update of record i; NULL if it has none.
        cdef const Record* record = self.records + i
        if not KIND_UPDATES <= record.kind < KINDS or not _LAYOUTS.kind[record.kind].fixed:
            return NULL
        if record.length < RECORD_SIZE + <int32_t> sizeof(UpdateHeader):
            return NULL
        return <const UpdateHeader*> (self.payloads + self.offsets[i])

    def _refuse(self, int64_t i):
        record = self._arrays[0][i]
        kind = record["kind"]
        raise FormatError(
            f"record {record['index']}: {Kind(kind).name} of "
            f"{record['length'] - RECORD_SIZE} bytes at position {record['position']} is too short "
            "for its number of rows: expected at least "
            f"{_LAYOUTS.kind[<int> kind].fixed} bytes and its rows")


@cython.final
cdef class Rows:
    """The rows of a table in a block; valid until the block's arrays are overwritten.

    Made by `Block.select`.

    Attributes
    ----------
    count : int
        Number of rows.
    ordinals : NDArray[np.int32]
        shape (count,), dtype int32: index of each row within its record.
    asks : NDArray[np.bool_]
        shape (count,), dtype bool: whether a row of a book is of the ask side.
    """

    def __init__(self):
        raise TypeError("Rows are made by Block.select")

    cdef _allocate(self, int64_t count, Block block):
        cdef int i
        self.count = count
        self._block = block
        self.ordinals = np.empty(count, np.int32)
        self.asks = np.empty(count, np.bool_)
        self._addresses = np.empty((BASE_COUNT, count), np.uint64)
        for i in range(BASE_COUNT):
            self.base[i] = <const uint8_t**> <size_t> self._addresses[i].ctypes.data
        self.ordinal = <int32_t*> <size_t> self.ordinals.ctypes.data
        self.ask = <uint8_t*> <size_t> self.asks.ctypes.data

    def column(
            self, base: Literal['record', 'payload', 'row', 'update', 'ids'], int64_t offset,
            dtype: np.dtype[Any] | type[np.generic]) -> NDArray[Any]:
        """Return a copy of one field of each row.

        Parameters
        ----------
        base : str
            The structure that has the field: "record", "payload", "row", "update" (zeros if the
            payload is not an update) or "ids" (exchange_id and symbol_id; zeros if there are none).
        offset : int
            Offset of the field in that structure, in bytes.
        dtype : numpy.dtype
            Type of the field, of 1, 2, 4 or 8 bytes.
        """
        values = np.empty(self.count, dtype)
        cdef uint8_t* target = <uint8_t*> <size_t> values.ctypes.data
        cdef const uint8_t** at = self.base[<int> _BASES[base]]
        cdef int64_t i, size = values.itemsize
        with nogil:
            if size == 8:
                for i in range(self.count):
                    memcpy(target + 8 * i, at[i] + offset, 8)
            elif size == 4:
                for i in range(self.count):
                    memcpy(target + 4 * i, at[i] + offset, 4)
            elif size == 2:
                for i in range(self.count):
                    memcpy(target + 2 * i, at[i] + offset, 2)
            else:
                for i in range(self.count):
                    memcpy(target + i, at[i] + offset, 1)
        return values

    def texts(
            self, base: Literal['record', 'payload', 'row', 'update', 'ids'], int64_t offset,
            int64_t width) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return a text field of fixed width of each row, without the zeros that pad it.

        Returns
        -------
        numpy.ndarray, numpy.ndarray
            Where each text begins: shape (count + 1,), dtype int32; the joined texts: dtype uint8.
        """
        cdef int32_t[::1] offsets = np.zeros(self.count + 1, np.int32)
        cdef const uint8_t** at = self.base[<int> _BASES[base]]
        cdef int64_t i, size, used = 0
        cdef uint8_t[::1] text
        for i in range(self.count):
            used += _text_size(at[i] + offset, width)
            if used > 0x7FFFFFFF:
                raise FormatError(f"{self.count} rows have more than 2 GiB of text")
            offsets[i + 1] = <int32_t> used
        text = np.empty(max(used, 1), np.uint8)
        for i in range(self.count):
            size = offsets[i + 1] - offsets[i]
            memcpy(&text[0] + offsets[i], at[i] + offset, size)
        return np.asarray(offsets), np.asarray(text)[:used]

    def payloads(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the payload of each row's record, in the form of `texts`."""
        cdef int32_t[::1] offsets = np.zeros(self.count + 1, np.int32)
        cdef const uint8_t** records = self.base[BASE_RECORD]
        cdef const uint8_t** at = self.base[BASE_PAYLOAD]
        cdef int64_t i, used = 0
        cdef uint8_t[::1] data
        for i in range(self.count):
            used += (<const Record*> records[i]).length - RECORD_SIZE
            if used > 0x7FFFFFFF:
                raise FormatError(f"{self.count} records have payloads of more than 2 GiB")
            offsets[i + 1] = <int32_t> used
        data = np.empty(max(used, 1), np.uint8)
        for i in range(self.count):
            memcpy(&data[0] + offsets[i], at[i], offsets[i + 1] - offsets[i])
        return np.asarray(offsets), np.asarray(data)[:used]

    def snapshots(self) -> NDArray[np.bool_]:
        """Return whether each row's record replaces its object's state: dtype bool."""
        values = np.empty(self.count, np.bool_)
        cdef uint8_t[::1] found = values.view(np.uint8)
        cdef const Record* record
        cdef const UpdateHeader* update
        cdef int64_t i
        for i in range(self.count):
            record = <const Record*> self.base[BASE_RECORD][i]
            update = <const UpdateHeader*> self.base[BASE_UPDATE][i]
            if record.kind >= KIND_BUS:
                update = <const UpdateHeader*> _ZEROS
            found[i] = update_replaces(record.flags, update.update_type)
        return values

    def goes_on(self) -> NDArray[np.bool_]:
        """Return whether each row's update is continued in the next of its object: dtype bool."""
        cdef UpdateHeader update
        offset = <size_t> &update.present - <size_t> &update
        return self.column("update", offset, np.uint32) & <int> PRESENT_MORE != 0

    def sizes(self) -> NDArray[np.int32]:
        """Return the size of each payload in bytes: dtype int32."""
        return self.column("record", 0, np.int32) - <int> RECORD_SIZE

    def counts(self) -> NDArray[np.int32]:
        """Return the number of payload rows of each row's record: dtype int32."""
        cdef int32_t[::1] counts = np.zeros(self.count, np.int32)
        cdef const uint8_t* record
        cdef int64_t i
        for i in range(self.count):
            record = self.base[BASE_RECORD][i]
            counts[i] = <int32_t> _row_count(
                (<const Record*> record).kind, self.base[BASE_PAYLOAD][i])
        return np.asarray(counts)

    def nested(self, dtype: np.dtype[Any]) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Return the payload rows of each record; the selection must be made with `rows=False`.

        Returns
        -------
        numpy.ndarray, numpy.ndarray
            Where the rows of each record begin: shape (count + 1,), dtype int32; all rows.
        """
        cdef int32_t[::1] offsets = np.zeros(self.count + 1, np.int32)
        cdef int64_t i, size, row = dtype.itemsize
        cdef const Record* record
        cdef uint8_t* target
        for i in range(self.count):
            record = <const Record*> self.base[BASE_RECORD][i]
            offsets[i + 1] = offsets[i] + <int32_t> _row_count(
                record.kind, self.base[BASE_PAYLOAD][i])
        rows = np.empty(offsets[self.count], dtype)
        target = <uint8_t*> <size_t> rows.ctypes.data
        for i in range(self.count):
            size = row * (offsets[i + 1] - offsets[i])
            memcpy(target, self.base[BASE_ROW][i], size)
            target += size
        return np.asarray(offsets), rows


cdef inline int64_t _day(int64_t unix_ns) noexcept nogil:
    # Round down; with cdivision // rounds towards zero.
    cdef int64_t day_ns = <int64_t> DAY_S * 1_000_000_000
    cdef int64_t day = unix_ns // day_ns
    return day - 1 if unix_ns < day * day_ns else day


cdef inline int64_t _row_count(uint16_t kind, const uint8_t* payload) noexcept nogil:
    cdef const Book* book = <const Book*> payload
    if kind == KIND_BOOK:
        return <int64_t> book.bid_count + book.ask_count
    return book.header.row_count


cdef inline const uint8_t* _ids(const Record* record, const uint8_t* payload) noexcept nogil:
    # Return a pointer to a record's exchange_id, which symbol_id follows.
    cdef const NameIds* ids = record_name_ids(record, payload)
    if ids == NULL:
        return _ZEROS
    return <const uint8_t*>ids


cdef inline int64_t _text_size(const uint8_t* at, int64_t width) noexcept nogil:
    cdef int64_t size = 0
    while size < width and at[size]:
        size += 1
    return size
