"""What a decoder found instead of an update."""

import enum

__all__ = ["Outcome"]


class Outcome(enum.IntEnum):
    """What a decoder found instead of an update; the values are negative, as kinds never are."""

    REFUSED = OUTCOME_REFUSED
    NONE = OUTCOME_NONE
    OPAQUE = OUTCOME_OPAQUE
    UNKNOWN = OUTCOME_UNKNOWN
    ROOM = OUTCOME_ROOM
    STREAM_STATUS = OUTCOME_STREAM_STATUS
