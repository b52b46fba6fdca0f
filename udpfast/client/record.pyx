"""One record as a strategy sees it: its own copy of the bytes, fields by name, views by numpy."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from udpfast.core.layout cimport KIND_BUS, KIND_LAPPED, Lapped, RECORD_SIZE
from udpfast.log.doubt_records cimport doubt_record_lapped
from udpfast.market.name_ids cimport NameIds, record_name_ids

import numpy as np

from udpfast.core.layout import CONTROL_DTYPES, Kind, RecordFlag
from udpfast.errors import did_you_mean
from udpfast.market.updates import UPDATE_DTYPES, view_update

__all__ = ["NameCache", "ReadRecord"]

cdef enum:
    FLIGHT_MAX = 2147483647      # or more

# Members by value: `record.kind is Kind.BOOK` must not cost a call of the enum.
cdef dict _KINDS = {kind: Kind(kind) for kind in range(1, 64)}  # also what only others know
cdef dict _DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}


@cython.final
cdef class NameCache:
    """Names by id as `str`, each decoded once.

    Parameters
    ----------
    table : NameTable or None
        None: no name is ever known.
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
        """What the record is: a `Kind` member, to be compared with `is`."""
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
        """Which stream of the feed it is of: 0 incremental, 1 snapshot; 65,535: of none."""
        return self._record.stream

    @property
    def session(self) -> int:
        """Ordinal of the stream's session in this log, from 1; SESSION says what it is called."""
        return self._record.session

    @property
    def number(self) -> int:
        """Its number in its stream; 0 for records that udpfast made itself."""
        return self._record.number

    @property
    def object(self) -> int:
        """The publisher's number of the object; `(type << 16) | id` where it has both."""
        return self._record.object

    @property
    def sent_ns(self) -> int | None:
        """When its sender sent it, UNIX ns by its own clock; None: not said, or 2 s off and more.
        """
        flight_ns = self._record.flight_ns
        if self._record.kind == KIND_BUS or not -FLIGHT_MAX < flight_ns < FLIGHT_MAX:
            return None
        return self._record.received_ns - flight_ns

    @property
    def sender(self) -> str | None:
        """Name of the app that sent a bus's message. None: it is no such message, or not known."""
        if self._record.kind != KIND_BUS:
            return None
        return self._names.senders.get(self._record.object & 0xFFFF)

    @property
    def type(self) -> int:
        """Type of a bus's message, as given to `send`; otherwise the upper half of `object`."""
        return self._record.object >> 16

    @property
    def incarnation(self) -> int:
        """Which outbox of its sender's name a bus's message came through, from 1; otherwise 0."""
        return <uint32_t> self._record.flight_ns if self._record.kind == KIND_BUS else 0

    @property
    def received_ns(self) -> int:
        """When the message's first datagram was received, UNIX ns."""
        return self._record.received_ns

    @property
    def published_ns(self) -> int:
        """The subscriber's clock when it handled the batch, UNIX ns."""
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

        Its dtype is `UPDATE_DTYPES[kind]` or `CONTROL_DTYPES[kind]`. None for kinds without one
        (MESSAGE).
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
        """The payload's rows as an array: levels, orders, trades; empty if the kind has none."""
        return self.update.rows

    @property
    def bids(self):
        """The bid levels of a BOOK, in published order."""
        return self.update.bids

    @property
    def asks(self):
        """The ask levels of a BOOK, in published order."""
        return self.update.asks

    def __getattr__(self, str name):
        # Only for what it does not have. A field of the payload is in `data`: say so.
        raise AttributeError(_missing(self, name), name=name, obj=self)

    def __bytes__(self) -> bytes:
        """Return header and payload, as they lie in the ring (without padding)."""
        return self._bytes

    def __repr__(self) -> str:
        return f"<ReadRecord {self}>"

    def __str__(self) -> str:
        """Return one line: what it is, of whom, and what it says."""
        from udpfast.client.record_words import record_line

        return record_line(self)

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: each field of header and payload, and the rows."""
        from udpfast.client.notebook import record_html

        return record_html(self)


def _missing(record, name) -> str:
    """Return where an attribute is that a record does not have, or which ones are similar."""
    dtype = _DTYPES.get(record.kind)
    fields = dtype.names if dtype is not None else ()
    if name in fields:
        return f"{name!r} is a field of this record's data: record.data[{name!r}]"
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
    # The record that no ring carries: what the reader missed, where it missed it.
    cdef Record header
    cdef Lapped lapped
    doubt_record_lapped(&header, &lapped, count, reason, 0)
    header.position = position
    header.index = index
    return record_copy(&header, <const uint8_t*> &lapped, names)
