"""Copies of a journal: one that a recorder continues gets an identity of its own."""

import os
import shutil

import pytest

from udpfast.core.layout import Kind
from udpfast.errors import RegionError
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_map import journal_map
from udpfast.log.journal_state import journal_identity
from udpfast.log.segment import list_segments, segment_path

SEGMENT = 1 << 18


@pytest.fixture
def original(tmp_path):
    """Return a journal of three segments and 30 records."""
    directory = tmp_path / "original"
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        for number in range(30):
            if number in (10, 20):
                journal.prepare()
                journal.roll(number)
            append(journal, number)
    return directory


def append(journal, number):
    """Append a record that contains its number."""
    journal.append(Kind.MESSAGE, b"%d" % number, received_ns=number)


def read(directory):
    """Return the numbers of the records in a journal, and how many are missing."""
    found = []
    with JournalCursor.attach(directory, follow=False) as cursor:
        while count := cursor.poll():
            found += [int(bytes(cursor.payload(i))) for i in range(count)]
        return found, cursor.missed_total


def test_copy_that_is_only_read_is_the_same_journal(original, tmp_path):
    shutil.copytree(original, tmp_path / "copy")
    assert journal_identity(tmp_path / "copy") == journal_identity(original)
    assert read(tmp_path / "copy") == (list(range(30)), 0)


@pytest.mark.parametrize("renamed", [True, False])
def test_journal_that_is_renamed_or_reached_by_a_link_stays_the_same(original, tmp_path, renamed):
    identity = journal_identity(original)
    if renamed:
        original.rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").symlink_to(original)
    with Journal.open(tmp_path / "elsewhere", segment_bytes=SEGMENT) as journal:
        append(journal, 30)
    assert journal_identity(tmp_path / "elsewhere") == identity


def test_copy_that_is_recorded_on_is_another_journal_with_all_records(original, tmp_path):
    copy, identity = tmp_path / "copy", journal_identity(original)
    shutil.copytree(original, copy)
    reader = JournalCursor.attach(copy)
    with (
        Journal.open(copy, segment_bytes=SEGMENT) as journal,
        Journal.open(original, segment_bytes=SEGMENT) as first,
    ):
        assert "is a copy of journal" in journal.recovery.notes[0]
        assert first.recovery.notes == () and first.identity == identity
        assert journal.identity != identity
        append(journal, 31)
        append(first, 30)
        assert journal_identity(copy) == journal.identity
    assert read(copy) == ([*range(30), 31], 0)
    assert read(original) == (list(range(31)), 0)
    assert {part.lost for part in journal_map(copy).parts} == {False}
    with reader, pytest.raises(RegionError, match="a copy of it was recorded to"):
        while not reader.ended:
            reader.poll()
    # Neither journal accepts a segment of the other.
    shutil.copy(segment_path(original, 4), segment_path(copy, 4))
    assert read(copy) == (list(range(30)), 1)
    with Journal.open(copy, segment_bytes=SEGMENT) as journal:
        assert "set aside" in journal.recovery.notes[0]


def test_copy_whose_writer_was_killed_as_it_became_a_journal_becomes_one(
    original, tmp_path, monkeypatch
):
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    sync = os.fsync

    def killed(fd):
        raise OSError(5, "killed here")

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(OSError, match="cannot sync"):
        Journal.open(copy, segment_bytes=SEGMENT)
    monkeypatch.setattr(os, "fsync", sync)
    identity = journal_identity(copy)
    shutil.copytree(copy, tmp_path / "second")
    for directory, same in ((copy, True), (tmp_path / "second", False)):
        with Journal.open(directory, segment_bytes=SEGMENT) as journal:
            assert (journal.identity == identity) == same
            append(journal, 30)
        assert read(directory) == (list(range(31)), 0)
        assert list_segments(directory) == [1, 2, 3, 4]


def test_copy_whose_segments_are_links_leaves_those_of_the_original(original, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    shutil.copy(original / "journal", copy / "journal")
    for number in list_segments(original):
        os.link(segment_path(original, number), segment_path(copy, number))
    with Journal.open(copy, segment_bytes=SEGMENT) as journal:
        append(journal, 30)
    assert read(copy) == (list(range(31)), 0)
    assert read(original) == (list(range(30)), 0)


@pytest.mark.parametrize("place", [0, 1])
def test_mark_that_is_damaged_costs_no_record(tmp_path, place):
    directory = tmp_path / "journal"
    journal = Journal.open(directory, segment_bytes=SEGMENT)
    for number in range(10):
        append(journal, number)
    shutil.copytree(directory, tmp_path / "killed")
    journal.close()
    header = tmp_path / "killed" / "journal"
    content = bytearray(header.read_bytes())
    content[4096 + 128 + 128 * place + 40] ^= 1
    header.write_bytes(content)
    os.truncate(segment_path(tmp_path / "killed", 1), 8192)  # and all records are gone
    assert read(tmp_path / "killed") == ([], 10)


def test_journal_with_segments_of_another_sets_them_aside(original, tmp_path):
    # A file `journal` that was not moved identifies the journal of its directory.
    other = tmp_path / "other"
    with Journal.open(other, segment_bytes=SEGMENT) as journal:
        append(journal, 100)
    identity = journal_identity(original)
    for number in list_segments(original):
        segment_path(original, number).unlink()
    shutil.copy(segment_path(other, 1), segment_path(original, 1))
    with Journal.open(original, segment_bytes=SEGMENT) as journal:
        assert journal.identity == identity
        assert (journal.recovery.set_aside, journal.recovery.missing) == (1, 30)
        append(journal, 30)
    assert read(original) == ([30], 30)
