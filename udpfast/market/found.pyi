import enum

__all__ = ["Outcome"]

class Outcome(enum.IntEnum):
    REFUSED = -1
    NONE = -2
    OPAQUE = -3
    UNKNOWN = -4
    ROOM = -5
    STREAM_STATUS = -6
