"""A journal after a crash opens as a valid prefix, and never gives an invalid record."""

import pytest

from lab.journal_corners import check_clocks, check_corners, check_live_copies
from lab.journalcheck import (
    check_bit_flips,
    check_cuts,
    check_dropped_pages,
    check_kills,
    read,
    reopen,
    write,
)
from udpfast.core.layout import Kind
from udpfast.errors import RegionError
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_map import journal_map
from udpfast.log.journal_state import journal_identity
from udpfast.log.segment import list_segments, segment_path
from udpfast.log.verify import verify_segments

SEGMENT = 1 << 18


def test_journal_cut_anywhere_is_a_valid_prefix(tmp_path):
    assert check_cuts(tmp_path, cuts=32, seed=1) == 32


def test_journal_with_a_flipped_bit_hands_out_no_invalid_record(tmp_path):
    assert check_bit_flips(tmp_path, flips=100, seed=1) == 100


def test_journal_that_lost_pages_is_valid_up_to_what_was_synced(tmp_path):
    assert check_dropped_pages(tmp_path, images=25, seed=1) == 25


@pytest.mark.parametrize(
    ("check", "count"), [(check_corners, 12), (check_clocks, 5), (check_live_copies, 3)]
)
def test_journal_whatever_became_of_its_files_adds_up(tmp_path, check, count):
    assert check(tmp_path / "work", count, 1) == count


def test_journal_taken_up_again_without_what_came_then_does_not_end_there(tmp_path):
    directory = tmp_path / "journal"
    for number in (1, 2):  # one writer and one segment each
        with Journal.open(directory, segment_bytes=SEGMENT) as journal:
            journal.append(Kind.MESSAGE, b"of writer %d" % number)
    segment_path(directory, 2).unlink()
    (directory / "journal").unlink()
    with JournalCursor.attach(directory, follow=False) as cursor:
        assert cursor.poll() == 1
        with pytest.raises(RegionError, match="more records may have been lost"):
            cursor.poll()


def test_journal_whose_own_file_lost_its_page_is_known_by_its_segments(tmp_path):
    directory = tmp_path / "journal"
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        journal.append(Kind.MESSAGE, b"one")
        identity = journal.identity
    content = bytearray((directory / "journal").read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    (directory / "journal").write_bytes(content)
    assert journal_identity(directory) == identity


def test_journal_damaged_at_its_end_goes_on_behind_what_was_written(tmp_path):
    directory = tmp_path / "journal"
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        for number in range(10):
            journal.append(Kind.MESSAGE, b"before %d" % number)
        image = segment_path(directory, 1).read_bytes()  # not sealed, as after a crash
    content = bytearray(image)
    content[image.index(b"before 5")] ^= 1
    segment_path(directory, 1).write_bytes(content)
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        assert journal.index == 10 and journal.recovery.missing == 1
        assert journal.recovery.cut_bytes == 0
        journal.append(Kind.MESSAGE, b"behind 9")
        with JournalCursor.attach(directory, follow=False) as cursor:
            assert cursor.poll() == 5 and cursor.missed == 0
            assert cursor.poll() == 4 and cursor.missed == 1
            assert bytes(cursor.payload(0)) == b"before 6"
            assert cursor.poll() == 1 and cursor.missed == 0
            assert bytes(cursor.payload(0)) == b"behind 9"


@pytest.mark.parametrize("known", [True, False], ids=["end known", "end lost"])
@pytest.mark.parametrize("sealed", [True, False])
def test_damaged_record_costs_no_record_behind_it_and_opening_none_either(tmp_path, known, sealed):
    directory = tmp_path / "journal"
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        for number in range(10):
            journal.append(Kind.MESSAGE, b"before %d" % number)
        image = segment_path(directory, 1).read_bytes()  # not sealed, as after a crash
    content = bytearray(segment_path(directory, 1).read_bytes() if sealed else image)
    content[image.index(b"before 5")] ^= 1
    segment_path(directory, 1).write_bytes(content)
    if not known:
        (directory / "journal").unlink()
    (check,) = verify_segments(directory)
    assert (check.records, check.missing) == (9, 1)
    Journal.open(directory, segment_bytes=SEGMENT).__exit__(None, None, None)
    assert [(each.records, each.missing) for each in verify_segments(directory)][:1] == [(9, 1)]
    with JournalCursor.attach(directory, follow=False) as cursor:
        found = []
        while count := cursor.poll():
            found += [bytes(cursor.payload(i)) for i in range(count)]
        assert cursor.missed_total == 1
    kept = [b"before %d" % number for number in range(10) if number != 5]
    assert [payload for payload in found if payload.startswith(b"before")] == kept


def test_journal_with_a_record_at_another_s_place_does_not_hand_it_out(tmp_path):
    directory = tmp_path / "journal"
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        for number in range(10):
            journal.append(Kind.MESSAGE, b"record %d" % number)
    content = bytearray(segment_path(directory, 1).read_bytes())
    third, fourth, size = content.index(b"record 3"), content.index(b"record 4"), 64 + 8
    content[fourth - 64 : fourth + 8] = content[third - 64 : third + 8]  # a misplaced write
    assert fourth - third == size
    segment_path(directory, 1).write_bytes(content)
    with JournalCursor.attach(directory, follow=False) as cursor:
        count = cursor.poll()
        assert [bytes(cursor.payload(i)) for i in range(count)] == [
            b"record %d" % i for i in range(4)
        ]
        count = cursor.poll()
        assert [bytes(cursor.payload(i)) for i in range(count)] == [
            b"record %d" % i for i in range(5, 10)
        ]
        assert cursor.poll() == 0 and cursor.missed_total == 1


def test_recorder_killed_loses_nothing_that_a_reader_could_see(tmp_path):
    assert check_kills(tmp_path, kills=4, seed=1) == 4


def test_journal_with_a_foreign_segment_reads_none_of_it(tmp_path):
    directory = tmp_path / "journal"
    write(directory, records=2000, synced=0)
    assert list_segments(directory) == [1, 2]
    write(tmp_path / "other", records=3000, synced=0)
    (tmp_path / "other" / "00000003.segment").rename(segment_path(directory, 3))
    segment_path(directory, 2).unlink()
    found, missed = read(directory)
    assert found == list(range(len(found))) and len(found) + missed == 2000
    with reopen(directory) as journal:
        assert journal.index == 2000
        assert (directory / "00000003.segment.aside-1").exists()
        assert "expected journal" in journal.recovery.notes[0]


@pytest.mark.parametrize("page", [0, 1])
def test_journal_with_a_zeroed_page_of_its_file_ends(tmp_path, page):
    directory = tmp_path / "journal"
    write(directory, records=100, synced=100)
    with (directory / "journal").open("r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))
    with JournalCursor.attach(directory) as cursor:
        assert cursor.poll() == 100
        with pytest.raises(RegionError, match="read up to record 100, but more records may"):
            cursor.poll()
    with reopen(directory) as journal:  # the writer repairs it
        assert journal.index == 100 and "set aside as journal.aside-1" in journal.recovery.notes[0]
        assert journal.made
    assert read(directory) == (list(range(100)), 0)


def test_journal_of_another_s_file_is_refused_and_set_right(tmp_path):
    write(tmp_path / "one", records=100, synced=100)
    write(tmp_path / "other", records=200, synced=100)
    identity = journal_identity(tmp_path / "one")
    (tmp_path / "other" / "journal").rename(tmp_path / "one" / "journal")
    with pytest.raises(RegionError, match="like the segments"):
        JournalCursor.attach(tmp_path / "one")
    with pytest.raises(RegionError, match="like the segments"):  # so does an export
        journal_identity(tmp_path / "one")
    with reopen(tmp_path / "one") as journal:
        assert journal.identity == identity and journal.index == 100
    assert read(tmp_path / "one") == (list(range(100)), 0)


def test_segments_of_two_journals_without_a_file_that_says_which_are_all_refused(tmp_path):
    for number, name in ((1, "one"), (2, "other")):
        write(tmp_path / name, records=6000, synced=6000)
        (tmp_path / "both").mkdir(exist_ok=True)
        segment_path(tmp_path / name, number).rename(segment_path(tmp_path / "both", number))
    checks = list(verify_segments(tmp_path / "both"))
    assert [check.info for check in checks] == [None, None]
    assert all("expected the segments of one journal" in check.problems[0] for check in checks)
    with pytest.raises(FileNotFoundError):
        journal_map(tmp_path / "both")


def test_journal_map_names_each_part_and_what_is_lost(tmp_path):
    directory = tmp_path / "journal"
    write(directory, records=6000, synced=6000)
    before = journal_map(directory)
    assert [part.number for part in before.parts] == list_segments(directory)
    assert before.identity == journal_identity(directory) and not before.ignored
    assert sum(part.records for part in before.parts) == 6000
    assert before.parts[0].first_ns == 1 and before.parts[-1].last_ns == 6000
    content = bytearray(segment_path(directory, 2).read_bytes())
    content[40] ^= 1
    segment_path(directory, 2).write_bytes(content)
    lost = journal_map(directory).parts[1]
    assert lost.lost and "expected checksum" in lost.problem
    for name in ("position", "index", "end_position", "end_index"):
        assert getattr(lost, name) == getattr(before.parts[1], name)
