"""Why something is missing: every reason that a record can give, and the words for it.

A reason has the kind of the record and its own word: GAP_TIME, LAPPED_DISK. `silver.deliveries`
makes them, `losses` adds them up by column, and `answers` says them.
"""

from __future__ import annotations

from udpfast.core.layout import GapReason, LappedReason

__all__ = ["IN_GAPS", "LOST", "OF_MESSAGES", "OF_RECORDS", "lost_by"]


def lost_by(reason: str) -> str:
    """Return the column of what was lost for a reason."""
    return f"lost_by_{reason.lower()}"


_WORDS = {
    "GAP_COUNT": "too many later messages arrived first",
    "GAP_TIME": "they did not arrive in time on any line",
    "GAP_WINDOW_FULL": "the window was full",
    "GAP_FINISH": "the feed ended",
    "GAP_ANEW": "the publisher numbered anew before they came",
    "GAP_DAMAGED": "they arrived, but were no messages of the protocol",
    "GAP_STREAM_REFUSED": "they were of streams beyond wire.streams_max",
    "GAP_OTHER": "of a reason that this version does not know",
    "SESSION_UNSEEN": "they arrived before the feed believed the new session",
    "SESSION_DISCARDED": "their session ended while they waited for earlier ones",
    "LAPPED_READER": "the recorder was too slow and was lapped",
    "LAPPED_DISK": "the recorder could not write to its disk",
    "LAPPED_DAMAGE": "the journal is damaged, or segments of it are gone",
    "LAPPED_UNKNOWN": "the feed began another log before the recorder had read all of the last one",
    "LAPPED_OTHER": "of a reason that this version does not know",
}

#: By reason: the words that follow "because".
LOST = {
    name: _WORDS.get(name, f"of {name}")
    for name in (
        *(f"GAP_{each}" for each in (*GapReason.__members__, "OTHER")),
        "SESSION_UNSEEN",
        "SESSION_DISCARDED",
        *(f"LAPPED_{each}" for each in (*LappedReason.__members__, "OTHER")),
    )
}
#: Those of messages, of these what a GAP reported, and those of records.
OF_RECORDS = tuple(name for name in LOST if name.startswith("LAPPED_"))
OF_MESSAGES = tuple(name for name in LOST if name not in OF_RECORDS)
IN_GAPS = tuple(name for name in LOST if name.startswith("GAP_"))
