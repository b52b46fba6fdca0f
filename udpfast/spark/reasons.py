"""Every reason for a loss that a record can state, and its words in a report.

A reason is the record's kind and its own word: GAP_TIME, LAPPED_DISK. `silver.deliveries` makes
reasons, `losses` sums them up in columns, and `answers` puts them into words.
"""

from __future__ import annotations

from udpfast.core.layout import GapReason, LappedReason

__all__ = ["IN_GAPS", "LOST", "OF_MESSAGES", "OF_RECORDS", "lost_by"]


def lost_by(reason: str) -> str:
    """Return the name of the column with the losses for a reason."""
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

#: The words that follow "because", by reason.
LOST = {
    name: _WORDS.get(name, f"of {name}")
    for name in (
        *(f"GAP_{each}" for each in (*GapReason.__members__, "OTHER")),
        "SESSION_UNSEEN",
        "SESSION_DISCARDED",
        *(f"LAPPED_{each}" for each in (*LappedReason.__members__, "OTHER")),
    )
}
#: Reasons for lost records, for lost messages, and of the latter those that GAP reports.
OF_RECORDS = tuple(name for name in LOST if name.startswith("LAPPED_"))
OF_MESSAGES = tuple(name for name in LOST if name not in OF_RECORDS)
IN_GAPS = tuple(name for name in LOST if name.startswith("GAP_"))
