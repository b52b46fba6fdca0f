import enum
from typing import Any

import numpy as np

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

class Channel(enum.IntEnum):
    INCREMENTAL = 0
    SNAPSHOT = 1

class Stream(enum.IntEnum):
    INCREMENTAL = 0
    SNAPSHOT = 1
    NONE = 65535

class Encoding(enum.IntEnum):
    NATIVE = 1
    FLATBUFFERS = 2

class Kind(enum.IntEnum):
    PAD = 1
    MESSAGE = 2
    GAP = 3
    SESSION = 4
    STALE = 5
    RECOVERED = 6
    CONNECTION = 7
    DISAGREEMENT = 8
    RESTART = 9
    LAPPED = 10
    DATAGRAM = 11
    CLOCK = 12
    BOOK = 16
    ORDERS = 17
    TOP_OF_BOOK = 18
    TRADES = 19
    STATISTICS = 20
    REFERENCE_DATA = 21
    MARKET_STATUS = 22
    GATEWAY_STATUS = 23
    GATEWAY_SETTINGS = 24
    EXTERNAL_LATENCY = 25
    CUSTOM_METRICS = 26
    BUS = 48
    SENDER = 49
    SENDERS = 50
    ROLLBACK = 51
    ORDER = 52

class RecordFlag(enum.IntFlag):
    SNAPSHOT = 1
    HEARTBEAT = 2
    RELEASED = 4
    TRUNCATED = 8
    NO_TIMESTAMP = 16
    UNGATED = 32
    FIRST = 64
    DOUBT = 128

class GapReason(enum.IntEnum):
    COUNT = 1
    TIME = 2
    WINDOW_FULL = 3
    FINISH = 4
    ANEW = 5
    DAMAGED = 6
    STREAM_REFUSED = 7

class LappedReason(enum.IntEnum):
    READER = 0
    DISK = 1
    DAMAGE = 2
    UNKNOWN = 3

class ClockReason(enum.IntEnum):
    EXPIRE = 1
    FINISH = 2
    DOUBT = 3

class SessionReason(enum.IntEnum):
    FIRST = 1
    NEW_ID = 2
    SAME_ID = 3
    RESUMED = 4

class ObjectStatus(enum.IntEnum):
    WAITING = 0
    LIVE = 1
    UNKNOWN = 2
    STALE = 3

class ObjectWait(enum.IntEnum):
    NONE = 0
    SNAPSHOT = 1
    SNAPSHOT_SILENT = 2
    SNAPSHOT_ABSENT = 3

class ConnectionStatus(enum.IntEnum):
    DISCONNECTED = 1
    READY = 5

class ConnectionScope(enum.IntEnum):
    CHANNEL = 0
    LINE = 1
    WRITER = 2
    FANOUT = 3
    LOOP = 4

FRAME: np.dtype[np.void]
RECORD: np.dtype[np.void]
GAP: np.dtype[np.void]
SESSION: np.dtype[np.void]
OBJECT_STATE: np.dtype[np.void]
CONNECTION: np.dtype[np.void]
DISAGREEMENT: np.dtype[np.void]
RESTART: np.dtype[np.void]
LAPPED: np.dtype[np.void]
CAPTURE: np.dtype[np.void]
CLOCK: np.dtype[np.void]
SENDER_ENTRY: np.dtype[np.void]
ROLLBACK: np.dtype[np.void]
ORDER_ENTRY: np.dtype[np.void]
CONTROL_DTYPES: dict[Kind, np.dtype[np.void]]

def layout_hash(*dtypes: np.dtype[Any]) -> int: ...
