"""One record for a strategy: its own copy of the bytes, with fields by name and numpy views."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from udpfast.core.layout cimport KIND_BUS, KIND_LAPPED, Lapped, RECORD_SIZE
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.market.name_ids cimport NameIds, record_name_ids

from weakref import WeakSet

import numpy as np

from udpfast.core.layout import CONTROL_DTYPES, Kind, RecordFlag
from udpfast.errors import FormatError, did_you_mean
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES, view_update

__all__ = ["NameCache", "ReadRecord"]

cdef enum:
    FLIGHT_MAX = 2147483647      # flight_ns is limited to this: the true value may be larger

# Members by value, so that `record.kind is Kind.BOOK` does not call the enum. Includes numbers that
# this version does not know.
cdef dict _KINDS = {kind: Kind(kind) for kind in range(1, 64)}
cdef dict _DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}


@cython.final
cdef class Reading:
    """What one Reader reads."""

    def __init__(self, str address not None):
        self.address = address
        self.books = WeakSet()


@cython.final
cdef class NameCache:
    """Names by id as `str`, each decoded once.

    Parameters
    ----------
    table : NameTable or None
        The table of names; None: no name is known.
    """

    def __init__(self, table=None):
        self.table = table
        self.senders = {}
        self._names = [None]

    cdef object name(self, uint32_t name_id):
        cdef list names = self._names
        if name_id < <uint32_t> len(names):
            return names[name_id]
        if self.table is None:
            return None
        known = len(self.table)
        if name_id > known:
            return None
        names.extend([self.table[i] for i in range(len(names), known + 1)])
        return names[name_id]

    cdef list words(self):
        # The names by id that are known by now; None for 0.
        if self.table is not None:
            self.name(<uint32_t> len(self.table))
        return self._names

    def __getitem__(self, uint32_t name_id):
        """Return the name with that id; None for 0 and for an id that was not published."""
        return self.name(name_id)


@cython.final
@cython.freelist(64)
cdef class ReadRecord:
    """ReadRecord(*args, **kwargs)\n--\n
    A record read from a ring. It owns its bytes: keep it as long as you like.

    Made by `Reader`. Times are UNIX nanoseconds; arrays are read-only views of the record's bytes.
    """

    def __init__(self):
        raise TypeError("only iterating over a Reader makes a ReadRecord")

    @property
    def kind(self):
        """The record's kind: a member of `Kind`, which may be compared with `is`."""
        return _KINDS[self._record.kind]

    @property
    def flags(self):
        """The record's `RecordFlag` bits."""
        return RecordFlag(self._record.flags)

    @property
    def exchange(self):
        """The exchange's name; None if the record names none (or it is not known yet)."""
        cdef const NameIds* ids = record_name_ids(self._record, record_payload(self))
        return None if ids == NULL else self._names.name(ids.exchange_id)

    @property
    def symbol(self):
        """The symbol's name; None if the record names none (or it is not known yet)."""
        cdef const NameIds* ids = record_name_ids(self._record, record_payload(self))
        return None if ids == NULL else self._names.name(ids.symbol_id)

    @property
    def stream(self) -> int:
        """The record's stream in the feed: 0 incremental, 1 snapshot; 65,535: no stream."""
        return self._record.stream

    @property
    def session(self) -> int:
        """Ordinal of the stream's session in this log, from 1; SESSION has the publisher's id."""
        return self._record.session

    @property
    def number(self) -> int:
        """The record's number in its stream; 0 for records that udpfast made itself."""
        return self._record.number

    @property
    def object(self) -> int:
        """The publisher's number of the object; `(type << 16) | id` if it has both."""
        return self._record.object

    @property
    def sent_ns(self) -> int | None:
        """When it was sent, UNIX ns by the sender's clock; None: unknown, or off by 2 s or more."""
        flight_ns = self._record.flight_ns
        if self._record.kind == KIND_BUS or not -FLIGHT_MAX < flight_ns < FLIGHT_MAX:
            return None
        return self._record.received_ns - flight_ns

    @property
    def sender(self) -> str | None:
        """Name of the app that sent a bus message; None for other kinds, or if it is unknown."""
        if self._record.kind != KIND_BUS:
            return None
        return self._names.senders.get(self._record.object & 0xFFFF)

    @property
    def type(self) -> int:
        """The `type` given to `send`, of a bus message; else the upper half of `object`."""
        return self._record.object >> 16

    @property
    def incarnation(self) -> int:
        """Ordinal of the sender's outbox, from 1, of a bus message; else 0."""
        return <uint32_t> self._record.flight_ns if self._record.kind == KIND_BUS else 0

    @property
    def received_ns(self) -> int:
        """When the message's first datagram was received, UNIX ns."""
        return self._record.received_ns

    @property
    def published_ns(self) -> int:
        """When the subscriber handled the batch, by its clock, UNIX ns."""
        return self._record.published_ns

    @property
    def position(self) -> int:
        """Byte offset of the record in its ring's whole history."""
        return self._record.position

    @property
    def index(self) -> int:
        """Ordinal of the record in its ring's whole history; of LAPPED: the first one missed."""
        return self._record.index

    @property
    def line(self) -> int:
        """The line whose fragment completed the message, 0-based."""
        return self._record.line

    @property
    def lapped(self) -> int:
        """How many records the reader missed here; 0 unless the kind is LAPPED."""
        cdef Lapped lapped
        lapped.missed = 0
        if self._record.kind == KIND_LAPPED:
            memcpy(&lapped, record_payload(self), sizeof(lapped.missed))
        return lapped.missed

    @property
    def payload(self) -> memoryview:
        """The payload's bytes, read-only."""
        return memoryview(self._bytes)[RECORD_SIZE:]

    @property
    def data(self):
        """The payload's fixed part as a numpy scalar: `record.data["bid_price"]`.

        The dtype is `UPDATE_DTYPES[kind]` or `CONTROL_DTYPES[kind]`; docs/records.md says what each
        field means, its unit, and what it holds if nothing is stated. None for kinds without a
        fixed layout (MESSAGE).
        """
        dtype = _DTYPES.get(self._record.kind)
        return None if dtype is None else np.frombuffer(self._bytes, dtype, 1, RECORD_SIZE)[0]

    @property
    def update(self):
        """The payload as an `Update` (header, rows, bids, asks).

        Raises
        ------
        FormatError
            The kind carries no update (it is below 16).
        """
        return view_update(self._record.kind, self.payload)

    @property
    def rows(self):
        """The payload's rows as an array: levels, orders, trades; empty if the kind has none.

        Shape (n,), dtype `ROW_DTYPES[kind]`: price and quantity (float64), side (uint8: 1 buy, 2
        sell) of trades and orders, ... docs/records.md lists all.
        """
        return self.update.rows

    @property
    def bids(self):
        """The bid levels of a BOOK, in published order; `FormatError` for any other kind.

        Shape (n,), dtype `udpfast.market.updates.LEVEL`: price, quantity (float64; 0 removes the
        level), number_of_orders, ...
        """
        return _book_update(self).bids

    @property
    def asks(self):
        """The ask levels of a BOOK, in published order, as `bids` has the bids."""
        return _book_update(self).asks

    def __getattr__(self, str name):
        # Called only for missing attributes: point to `data` if it is a field of the payload.
        raise AttributeError(_missing(self, name), name=name, obj=self)

    def __bytes__(self) -> bytes:
        """Return header and payload as they are in the ring, without padding."""
        return self._bytes

    def __repr__(self) -> str:
        return f"<ReadRecord {self}>"

    def __str__(self) -> str:
        """Return one line: kind, time of receipt, names, number and content."""
        from udpfast.client.record_words import record_line

        return record_line(self)

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: each field of header and payload, and the rows."""
        from udpfast.client.notebook import record_html

        return record_html(self)


def _book_update(record):
    if record.kind is not Kind.BOOK:
        raise FormatError(f"only a BOOK has bids and asks, not {record.kind.name}")
    return record.update


def _missing(record, name) -> str:
    """Return the message for a missing attribute: where it is, or which names are similar."""
    dtype = _DTYPES.get(record.kind)
    fields = dtype.names if dtype is not None else ()
    if name in fields:
        return f"{name!r} is a field of this record's data: record.data[{name!r}]"
    if record.kind in ROW_DTYPES and name in ROW_DTYPES[record.kind].names:
        return f"{name!r} is a field of this record's rows: record.rows[{name!r}]"
    near = did_you_mean(name, [*fields, *[each for each in dir(ReadRecord) if each[0] != "_"]])
    return f"a record of kind {record.kind.name} has no {name!r}{near}"


cdef ReadRecord record_copy(const Record* header, const uint8_t* payload, NameCache names):
    cdef ReadRecord record = ReadRecord.__new__(ReadRecord)
    cdef char* data
    record._bytes = PyBytes_FromStringAndSize(NULL, header.length)
    data = PyBytes_AS_STRING(record._bytes)
    memcpy(data, header, RECORD_SIZE)
    memcpy(data + RECORD_SIZE, payload, header.length - RECORD_SIZE)
    record._record = <const Record*> data
    record._names = names
    return record


cdef ReadRecord record_lapped(
        uint64_t index, uint64_t position, uint64_t count, uint32_t reason, NameCache names):
    # Make the LAPPED record, which is in no ring: how many records the reader missed, and where.
    cdef Record header
    cdef Lapped lapped
    doubt_record_lapped(&header, &lapped, count, reason, 0)
    header.position = position
    header.index = index
    return record_copy(&header, <const uint8_t*> &lapped, names)
