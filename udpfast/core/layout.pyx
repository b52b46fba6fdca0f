"""The shared layouts in Python: enums, numpy dtypes, and the hash that regions carry."""

import enum
import hashlib
import sys

import numpy as np

from udpfast.core.update_kinds cimport *

__all__ = [
    "CAPTURE",
    "CLOCK",
    "CONNECTION",
    "CONTROL_DTYPES",
    "DISAGREEMENT",
    "FRAME",
    "GAP",
    "LAPPED",
    "OBJECT_STATE",
    "ORDER_ENTRY",
    "RECORD",
    "RESTART",
    "ROLLBACK",
    "SENDER_ENTRY",
    "SESSION",
    "Channel",
    "ClockReason",
    "ConnectionScope",
    "ConnectionStatus",
    "Encoding",
    "GapReason",
    "Kind",
    "LappedReason",
    "ObjectStatus",
    "ObjectWait",
    "RecordFlag",
    "SessionReason",
    "Stream",
    "layout_hash",
]

if sys.byteorder != "little":
    raise ImportError("udpfast needs a little-endian host: its layouts are read in place")


class Channel(enum.IntEnum):
    """The two channels of a feed (docs/protocol.md)."""

    INCREMENTAL = CHANNEL_INCREMENTAL
    SNAPSHOT = CHANNEL_SNAPSHOT


class Stream(enum.IntEnum):
    """The numbering of the feed that a record belongs to."""

    INCREMENTAL = CHANNEL_INCREMENTAL
    SNAPSHOT = CHANNEL_SNAPSHOT
    NONE = STREAM_NONE


class Encoding(enum.IntEnum):
    """Payload encodings that the wire names (docs/protocol.md)."""

    NATIVE = ENCODING_NATIVE
    FLATBUFFERS = ENCODING_FLATBUFFERS


#: Upper limit of the kinds of all versions.
_KINDS_END = 64


class Kind(enum.IntEnum):
    """What a record is: a doubt or an event of the feed (below 16), a decoded update, or a record
    of a bus (from 48 on).

    docs/records.md says what each is and which fields it has; `record.data.dtype` lists those of
    a record's payload.
    """

    PAD = KIND_PAD
    MESSAGE = KIND_MESSAGE
    GAP = KIND_GAP
    SESSION = KIND_SESSION
    STALE = KIND_STALE
    RECOVERED = KIND_RECOVERED
    CONNECTION = KIND_CONNECTION
    DISAGREEMENT = KIND_DISAGREEMENT
    RESTART = KIND_RESTART
    LAPPED = KIND_LAPPED
    DATAGRAM = KIND_DATAGRAM
    CLOCK = KIND_CLOCK
    BOOK = KIND_BOOK
    ORDERS = KIND_ORDERS
    TOP_OF_BOOK = KIND_TOP_OF_BOOK
    TRADES = KIND_TRADES
    STATISTICS = KIND_STATISTICS
    REFERENCE_DATA = KIND_REFERENCE_DATA
    MARKET_STATUS = KIND_MARKET_STATUS
    GATEWAY_STATUS = KIND_GATEWAY_STATUS
    GATEWAY_SETTINGS = KIND_GATEWAY_SETTINGS
    EXTERNAL_LATENCY = KIND_EXTERNAL_LATENCY
    CUSTOM_METRICS = KIND_CUSTOM_METRICS
    BUS = KIND_BUS
    SENDER = KIND_SENDER
    SENDERS = KIND_SENDERS
    ROLLBACK = KIND_ROLLBACK
    ORDER = KIND_ORDER

    @classmethod
    def _missing_(cls, value):
        # A kind of a later version, in a journal that it wrote: it has a number and no name.
        if not isinstance(value, (int, np.integer)) or not 0 < value < _KINDS_END:
            return None
        kind = int.__new__(cls, value)
        kind._name_ = f"KIND_{value}"
        kind._value_ = int(value)
        return kind


class RecordFlag(enum.IntFlag):
    """Bits of a record's `flags`; docs/records.md lists all.

    SNAPSHOT: the complete state of its object. RELEASED: it waited for a snapshot. TRUNCATED: a
    text or list was cut. NO_TIMESTAMP: `received_ns` is the loop's clock. UNGATED: passed without
    a check of its object. FIRST: its object had nothing before. DOUBT: the feed did not know
    whether the book of its instrument is sound. HEARTBEAT: inside the feed only.
    """

    SNAPSHOT = RECORD_SNAPSHOT
    HEARTBEAT = RECORD_HEARTBEAT
    RELEASED = RECORD_RELEASED
    TRUNCATED = RECORD_TRUNCATED
    NO_TIMESTAMP = RECORD_NO_TIMESTAMP
    UNGATED = RECORD_UNGATED
    FIRST = RECORD_FIRST
    DOUBT = RECORD_DOUBT


class GapReason(enum.IntEnum):
    """The criterion by which missing seqnos were declared lost (docs/protocol.md)."""

    COUNT = GAP_COUNT
    TIME = GAP_TIME
    WINDOW_FULL = GAP_WINDOW_FULL
    FINISH = GAP_FINISH
    ANEW = GAP_ANEW
    DAMAGED = GAP_DAMAGED
    STREAM_REFUSED = GAP_STREAM_REFUSED


class LappedReason(enum.IntEnum):
    """Why records are missing at a LAPPED."""

    READER = LAPPED_READER
    DISK = LAPPED_DISK
    DAMAGE = LAPPED_DAMAGE
    UNKNOWN = LAPPED_UNKNOWN


class ClockReason(enum.IntEnum):
    """What the loop did at the time of a CLOCK."""

    EXPIRE = CLOCK_EXPIRE
    FINISH = CLOCK_FINISH
    DOUBT = CLOCK_DOUBT


class SessionReason(enum.IntEnum):
    """Why a session began (docs/protocol.md)."""

    FIRST = SESSION_FIRST
    NEW_ID = SESSION_NEW_ID
    SAME_ID = SESSION_SAME_ID
    RESUMED = SESSION_RESUMED


class ObjectStatus(enum.IntEnum):
    """How far an object's state can be trusted (docs/protocol.md)."""

    WAITING = OBJECT_WAITING
    LIVE = OBJECT_LIVE
    UNKNOWN = OBJECT_UNKNOWN
    STALE = OBJECT_STALE


class ObjectWait(enum.IntEnum):
    """What an object that is not LIVE waits for."""

    NONE = WAIT_NONE
    SNAPSHOT = WAIT_SNAPSHOT
    SNAPSHOT_SILENT = WAIT_SNAPSHOT_SILENT
    SNAPSHOT_ABSENT = WAIT_SNAPSHOT_ABSENT


class ConnectionStatus(enum.IntEnum):
    """Whether the subject of a CONNECTION is heard (docs/protocol.md)."""

    DISCONNECTED = CONNECTION_DISCONNECTED
    READY = CONNECTION_READY


class ConnectionScope(enum.IntEnum):
    """The subject of a CONNECTION."""

    CHANNEL = CONNECTION_CHANNEL
    LINE = CONNECTION_LINE
    WRITER = CONNECTION_WRITER
    FANOUT = CONNECTION_FANOUT
    LOOP = CONNECTION_LOOP


#: The 16-byte wire header.
FRAME = np.dtype([
    ("control", "u1"), ("fragment", "u1"), ("fragment_max", "u1"), ("object_type", "u1"),
    ("object_id", "<u2"), ("session_id", "<u2"), ("seqno", "<u4"), ("last_seqno", "<u4"),
])

#: The 64-byte record header.
RECORD = np.dtype([
    ("length", "<i4"), ("kind", "u1"), ("line", "u1"), ("flags", "<u2"), ("position", "<u8"),
    ("index", "<u8"), ("received_ns", "<i8"), ("published_ns", "<i8"), ("number", "<u8"),
    ("object", "<u4"), ("flight_ns", "<i4"), ("stream", "<u2"), ("session", "<u2"),
    ("checksum", "<u4"),
])

#: Payload of `Kind.GAP`.
GAP = np.dtype([
    ("first", "<u8"), ("last", "<u8"), ("count", "<u8"), ("waited_ns", "<i8"), ("reason", "<u4"),
    ("reserved", "<u4"),
])

#: Payload of `Kind.SESSION`.
SESSION = np.dtype([
    ("old_id", "<u8"), ("new_id", "<u8"), ("first_number", "<u8"), ("unseen", "<u8"),
    ("reason", "<u4"), ("discarded", "<u4"), ("stream", "<u4"), ("reserved", "<u4"),
])

#: Payload of `Kind.STALE` and `Kind.RECOVERED`.
OBJECT_STATE = np.dtype([
    ("object", "<u4"), ("status", "u1"), ("waits", "u1"), ("continues", "u1"), ("reserved", "u1"),
    ("applied", "<u8"), ("exchange_id", "<u4"), ("symbol_id", "<u4"),
])

#: Payload of `Kind.CONNECTION`.
CONNECTION = np.dtype([("status", "<u4"), ("scope", "<u4"), ("silent_ns", "<i8")])

#: Payload of `Kind.DISAGREEMENT`.
DISAGREEMENT = np.dtype([
    ("number", "<u8"), ("hash_first", "<u4"), ("hash_other", "<u4"), ("fragment", "<u2"),
    ("line_first", "u1"), ("line_other", "u1"), ("reserved", "<u4"),
])

#: Payload of `Kind.RESTART`.
RESTART = np.dtype([("epoch", "<u8"), ("restarted_ns", "<i8")])

#: Payload of `Kind.LAPPED`.
LAPPED = np.dtype([("missed", "<u8"), ("reason", "<u4"), ("reserved", "<u4")])

#: Precedes the datagram in the payload of `Kind.DATAGRAM`.
CAPTURE = np.dtype([("now_ns", "<i8"), ("flags", "<u4"), ("address", "<u4")])

#: Payload of `Kind.CLOCK`.
CLOCK = np.dtype([("now_ns", "<i8"), ("reason", "<u4"), ("reserved", "<u4")])

#: Payload of `Kind.SENDER`. The payload of `Kind.SENDERS` has one for each sender.
SENDER_ENTRY = np.dtype([
    ("sender", "<u4"), ("incarnation", "<u4"), ("next", "<u8"), ("position", "<u8"),
    ("nonce", "<u8"), ("reserved", "<u8"), ("name", "S32"), ("host", "S32"),
])

#: Payload of `Kind.ROLLBACK`.
ROLLBACK = np.dtype([("records", "<u8"), ("position", "<u8")])

#: Payload of `Kind.ORDER`.
ORDER_ENTRY = np.dtype([
    ("input", "<u4"), ("flags", "<u4"), ("first", "<u8"), ("end", "<u8"), ("first_index", "<u8"),
    ("count", "<u8"),
])

#: The payload dtype of each kind that has one and is not an update. For DATAGRAM it is the
#: beginning of the payload.
CONTROL_DTYPES = {
    Kind.GAP: GAP,
    Kind.SESSION: SESSION,
    Kind.STALE: OBJECT_STATE,
    Kind.RECOVERED: OBJECT_STATE,
    Kind.CONNECTION: CONNECTION,
    Kind.DISAGREEMENT: DISAGREEMENT,
    Kind.RESTART: RESTART,
    Kind.LAPPED: LAPPED,
    Kind.DATAGRAM: CAPTURE,
    Kind.CLOCK: CLOCK,
    Kind.SENDER: SENDER_ENTRY,
    Kind.ROLLBACK: ROLLBACK,
    Kind.ORDER: ORDER_ENTRY,
}

_STRUCT_SIZES = {
    "Frame": (sizeof(Frame), FRAME),
    "Record": (sizeof(Record), RECORD),
    "Gap": (sizeof(Gap), GAP),
    "Session": (sizeof(Session), SESSION),
    "ObjectState": (sizeof(ObjectState), OBJECT_STATE),
    "Connection": (sizeof(Connection), CONNECTION),
    "Disagreement": (sizeof(Disagreement), DISAGREEMENT),
    "Restart": (sizeof(Restart), RESTART),
    "Lapped": (sizeof(Lapped), LAPPED),
    "Capture": (sizeof(Capture), CAPTURE),
    "Clock": (sizeof(Clock), CLOCK),
    "SenderEntry": (sizeof(SenderEntry), SENDER_ENTRY),
    "Rollback": (sizeof(Rollback), ROLLBACK),
    "OrderEntry": (sizeof(OrderEntry), ORDER_ENTRY),
}
for _name, (_size, _dtype) in _STRUCT_SIZES.items():
    if _size != _dtype.itemsize:
        raise ImportError(f"struct {_name} has {_size} bytes, its dtype {_dtype.itemsize}")
if sizeof(Frame) != FRAME_SIZE or sizeof(Record) != RECORD_SIZE:
    raise ImportError("FRAME_SIZE or RECORD_SIZE is not the size of its struct")


def layout_hash(*dtypes: np.dtype) -> int:
    """Return a 64-bit hash of field names, types and offsets.

    Two processes whose hashes differ must not share a region: regions carry the hash, and
    attaching compares it.

    Parameters
    ----------
    *dtypes : numpy.dtype
        Structured dtypes, in an order that is part of the hash.
    """
    text = ";".join(
        ",".join(f"{name}:{dtype.fields[name][0].str}@{dtype.fields[name][1]}"
                 for name in dtype.names) + f"={dtype.itemsize}"
        for dtype in dtypes)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
