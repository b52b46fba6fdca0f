"""Journals after a crash: what opens is a valid prefix, and never an invalid record."""

from udpfast.core.layout import Kind
from udpfast.shm.journal import Journal
from udpfast.shm.journal_cursor import JournalCursor
from udpfast.shm.segment import list_segments, segment_path
from udpfast.testing.journalcheck import (
    check_bit_flips,
    check_cuts,
    check_dropped_pages,
    check_kills,
    read,
    reopen,
    write,
)


def test_journal_cut_anywhere_is_a_valid_prefix(tmp_path):
    assert check_cuts(tmp_path, cuts=32, seed=1) == 32


def test_journal_with_a_flipped_bit_hands_out_no_invalid_record(tmp_path):
    assert check_bit_flips(tmp_path, flips=100, seed=1) == 100


def test_journal_that_lost_pages_is_valid_up_to_what_was_synced(tmp_path):
    assert check_dropped_pages(tmp_path, images=25, seed=1) == 25


def test_journal_that_was_cut_never_shows_what_lay_behind(tmp_path):
    directory = tmp_path / "journal"
    with Journal.open(directory) as journal:
        for number in range(10):
            journal.append(Kind.MESSAGE, b"before %d" % number)
        image = segment_path(directory, 1).read_bytes()  # not sealed: as a crash leaves it
    content = bytearray(image)
    content[image.index(b"before 5")] ^= 1
    segment_path(directory, 1).write_bytes(content)
    with Journal.open(directory) as journal:
        assert journal.index == 5 and journal.recovery.cut_bytes > 0
        # As long as the damaged one: record 6 of before would be the next, with the right numbers.
        journal.append(Kind.MESSAGE, b"behind 5")
        with JournalCursor.attach(directory, follow=False) as cursor:
            assert cursor.poll() == 6 and bytes(cursor.payload(5)) == b"behind 5"
            assert cursor.poll() == 0 and cursor.missed_total == 0


def test_journal_with_a_record_at_another_s_place_does_not_hand_it_out(tmp_path):
    directory = tmp_path / "journal"
    with Journal.open(directory) as journal:
        for number in range(10):
            journal.append(Kind.MESSAGE, b"record %d" % number)
    content = bytearray(segment_path(directory, 1).read_bytes())
    third, fourth, size = content.index(b"record 3"), content.index(b"record 4"), 64 + 8
    content[fourth - 64 : fourth + 8] = content[third - 64 : third + 8]  # a write gone astray
    assert fourth - third == size
    segment_path(directory, 1).write_bytes(content)
    with JournalCursor.attach(directory, follow=False) as cursor:
        count = cursor.poll()
        assert [bytes(cursor.payload(i)) for i in range(count)] == [
            b"record %d" % i for i in range(4)
        ]
        assert cursor.poll() == 0 and cursor.missed_total == 6


def test_recorder_killed_loses_nothing_that_a_reader_could_see(tmp_path):
    assert check_kills(tmp_path, kills=4, seed=1) == 4


def test_journal_segments_behind_one_that_a_power_cut_took_are_not_read(tmp_path):
    directory = tmp_path / "journal"
    write(directory, records=2000, synced=0)
    assert list_segments(directory) == [1, 2]
    write(tmp_path / "other", records=3000, synced=0)
    (tmp_path / "other" / "00000003.segment").rename(segment_path(directory, 3))
    segment_path(directory, 2).unlink()
    found, missed = read(directory)
    assert found == list(range(len(found))) and missed == 0
    with reopen(directory) as journal:
        assert journal.index == len(found)
