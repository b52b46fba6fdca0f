"""Find the place of a ring's record in a journal."""

import numpy as np

from udpfast.core.layout import LAPPED, Kind, LappedReason
from udpfast.log.journal import Journal
from udpfast.log.journal_place import find_later
from udpfast.market.updates import LAYOUTS

BEFORE, LATER = b"A" * 16, b"B" * 16


def lapped(missed, reason):
    """Return the payload of a LAPPED."""
    told = np.zeros(1, LAPPED)
    told["missed"], told["reason"] = missed, reason
    return told.tobytes()


def roll(journal, source):
    """Begin a segment at the first record of a log."""
    journal.note_source(source)
    journal.prepare()
    assert journal.roll(0)


def test_log_begins_with_what_is_said_of_the_one_before(tmp_path):
    with Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=1 << 18) as journal:
        roll(journal, BEFORE)
        journal.append(Kind.MESSAGE, bytes(24))
        roll(journal, LATER)  # its recorder had only this to report
        journal.append(Kind.LAPPED, lapped(1, LappedReason.UNKNOWN))
        said = journal.index - 1
        roll(journal, LATER)
        journal.append(Kind.LAPPED, lapped(299, LappedReason.READER))
        journal.append(Kind.MESSAGE, bytes(24))
        journal.flush(0)
        (found,) = find_later(journal.directory, {BEFORE}, LAYOUTS)
    assert (found.segment.index, found.index) == (said, 299)
