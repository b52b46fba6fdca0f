"""Runs of records in a journal, with the indices that their source gave them."""

import numpy as np
import pytest

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from udpfast.core.layout import LAPPED, Kind, LappedReason
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_place import find_recorded, recorded_end
from udpfast.log.recorded_runs import RecordedRuns
from udpfast.log.segment import Segment, segment_file_bytes, segment_path
from udpfast.market.updates import LAYOUTS

SEGMENT = 1 << 18
BEFORE, LATER = b"A" * 16, b"B" * 16
PIECE = bytes(1000)


@pytest.fixture
def journal(tmp_path):
    """Return an open journal."""
    with Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=SEGMENT) as journal:
        yield journal


def roll(journal, source=BEFORE, source_index=0):
    """Begin a segment at a record of a log."""
    journal.note_source(source)
    journal.prepare()
    assert journal.roll(0, source_index=source_index)


def records(journal, numbers):
    """Append records that carry their index in the source."""
    for number in numbers:
        journal.append(Kind.MESSAGE, PIECE, number=number)
    journal.flush(0)


def lapped(journal, missed, reason=LappedReason.READER):
    """Append a LAPPED of a recorder, for records that it missed."""
    told = np.zeros(1, LAPPED)
    told["missed"], told["reason"] = missed, reason
    journal.append(Kind.LAPPED, told.tobytes())


def damage(journal, segment, index):
    """Overwrite some bytes of a record, given its index in the segment."""
    path = segment_path(journal.directory, segment)
    info = Segment.open(path).info()
    with path.open("r+b") as file:
        # All records have the same size, except LAPPED.
        file.seek(segment_file_bytes(info.capacity_bytes) - info.capacity_bytes + index)
        file.write(b"damage")


def runs_of(journal, limit=1024, **options):
    """Return log, indices and exactness of each run, and what comes next."""
    with JournalCursor.attach(
        journal.directory, follow=False, limit=limit, layouts=LAYOUTS, **options
    ) as cursor:
        runs = RecordedRuns(cursor)
        found = []
        for headers in runs:
            first = runs.index
            assert not runs.exact or headers["number"].tolist() == list(
                range(first, first + len(headers))
            )
            found.append((runs.log, first, first + len(headers), runs.exact))
        return found, (runs.log, runs.index, runs.exact)


@pytest.mark.parametrize("limit", [1, 7, 1024])
def test_runs_count_on_from_their_segment_and_over_what_was_missed(journal, limit):
    roll(journal)
    records(journal, range(10))
    lapped(journal, 90)
    records(journal, range(100, 110))
    roll(journal, source_index=110)
    records(journal, range(110, 120))
    found, end = runs_of(journal, limit)
    assert [index for _, first, end, _ in found for index in range(first, end)] == [
        *range(10),
        *range(100, 120),
    ]
    assert end == (BEFORE, 120, True)


def test_runs_are_of_one_log_each(journal):
    roll(journal)
    records(journal, range(5))
    roll(journal, LATER)
    lapped(journal, 1, LappedReason.UNKNOWN)
    lapped(journal, 3)
    records(journal, range(3, 5))
    found, end = runs_of(journal)
    assert found == [(BEFORE, 0, 5, True), (LATER, 3, 5, True)] and end == (LATER, 5, True)


def test_runs_behind_damage_are_counted_though_it_hides_a_lapped(journal):
    roll(journal)
    records(journal, range(10))
    lapped(journal, (1 << 31) + 990)
    records(journal, range((1 << 31) + 1000, (1 << 31) + 1200))
    damage(journal, 1, 9 * 1064 + 500)
    found, end = runs_of(journal)
    (log, first, behind, exact), last = found[0], found[-1]
    assert (log, first, behind, exact) == (BEFORE, 0, 9, True)
    assert last[1] > (1 << 31) + 1000 and last[3] and end == (BEFORE, (1 << 31) + 1200, True)
    found = find_recorded(journal.directory, BEFORE, (1 << 31) + 1150, LAYOUTS)
    assert found.index == (1 << 31) + 1150
    assert recorded_end(journal.directory, BEFORE, LAYOUTS) == ((1 << 31) + 1200, True)


def lapped_behind_damage(journal):
    """Write ten records, the sixth of them damaged, a LAPPED of 90, and ten more."""
    roll(journal)
    records(journal, range(10))
    lapped(journal, 90)
    records(journal, range(100, 110))
    damage(journal, 1, 5 * 1064)


def test_runs_behind_two_damages_count_what_a_lapped_between_them_stands_for(journal):
    lapped_behind_damage(journal)
    damage(journal, 1, 12 * 1064 + 80)
    found, end = runs_of(journal)
    assert found == [
        (BEFORE, 0, 5, True),
        (BEFORE, 6, 10, False),
        (BEFORE, 100, 102, False),
        (BEFORE, 103, 110, False),
    ]
    assert end == (BEFORE, 110, False)


def test_runs_from_amid_a_segment_count_what_a_lapped_behind_damage_stands_for(journal):
    lapped_behind_damage(journal)
    found = find_recorded(journal.directory, BEFORE, 10, LAYOUTS)
    assert (found.index, found.journal_index) == (100, 11)
    with JournalCursor.attach(
        journal.directory, ("position", found.position), follow=False, layouts=LAYOUTS
    ) as cursor:
        runs = RecordedRuns(cursor, BEFORE, found.index, found.journal_index)
        assert [(runs.index, headers["number"][0]) for headers in runs] == [(100, 100)]


@pytest.mark.parametrize("behind", ["nothing", "segment", "log", "damage"])
def test_runs_behind_damage_are_counted_back_from_the_next_segment(journal, behind):
    roll(journal)
    records(journal, range(5))
    lapped(journal, 5)
    records(journal, range(10, 20))
    damage(journal, 1, 5 * 1064)  # the LAPPED
    if behind == "log":
        roll(journal, LATER)
    elif behind != "nothing":
        roll(journal, source_index=20)
        records(journal, range(20, 25))
    if behind == "damage":
        damage(journal, 1, 10 * 1064 + 80)
    found, _ = runs_of(journal)
    exact = behind == "segment"
    assert found[1][1] == (10 if exact else 6) and found[1][3] == exact


def test_runs_behind_damage_are_counted_back_from_where_the_recorder_goes_on(tmp_path):
    instance = Instance(tmp_path / "feed", 1 << 15)
    recorder = recorder_of(instance, tmp_path)
    for first, last in ((0, 10), (10, 300)):  # most of the later ones are overwritten
        for number in range(first, last):
            instance.ring.append(Kind.MESSAGE, PIECE, number=number)
        instance.ring.flush()
        drive(recorder)
    journal = recorder.recordings[0].journal
    damage(journal, 1, 10 * 1064)  # the LAPPED
    (_, behind), _ = runs_of(journal)
    assert behind[1] > 250 and behind[2:] == (300, True)
    recorder.on_stop()
    instance.close()


def test_runs_behind_a_lost_segment_are_counted_by_the_next(journal):
    roll(journal)
    records(journal, range(5))
    roll(journal, source_index=5)
    lapped(journal, 95)
    records(journal, range(100, 105))
    roll(journal, source_index=105)
    records(journal, range(105, 110))
    segment_path(journal.directory, 2).unlink()
    found, _ = runs_of(journal)
    assert found == [(BEFORE, 0, 5, True), (BEFORE, 105, 110, True)]
    assert find_recorded(journal.directory, BEFORE, 5, LAYOUTS).index == 105
    assert find_recorded(journal.directory, BEFORE, 107, LAYOUTS).index == 107


def test_lost_segment_behind_a_log_may_be_of_another_one(journal):
    roll(journal)
    records(journal, range(6))
    roll(journal, LATER)
    records(journal, range(5))
    segment_path(journal.directory, 2).unlink()
    assert runs_of(journal) == ([(BEFORE, 0, 6, True)], (BEFORE, 6, False))


def test_end_of_a_log_whose_last_segment_is_lost_is_not_known(journal):
    roll(journal)
    records(journal, range(5))
    roll(journal, source_index=5)
    lapped(journal, 95)
    roll(journal, LATER)
    records(journal, range(1))
    segment_path(journal.directory, 2).unlink()
    end, exact = recorded_end(journal.directory, BEFORE, LAYOUTS)
    assert (end, exact) == (5, False)
    assert recorded_end(journal.directory, LATER, LAYOUTS) == (1, True)
    assert recorded_end(journal.directory, b"C" * 16, LAYOUTS) == (0, True)


def test_runs_from_a_position_amid_a_segment_are_counted(journal):
    roll(journal, source_index=1000)
    lapped(journal, 500)
    records(journal, range(1500, 1700))
    with JournalCursor.attach(journal.directory, follow=False) as cursor:
        cursor.poll()
        position = int(cursor.headers[150]["position"])
    found, _ = runs_of(journal, start=("position", position))
    assert found == [(BEFORE, 1649, 1700, True)]


@pytest.mark.parametrize("hidden", ["nothing", "damaged", "lost"])
@pytest.mark.parametrize("within", [False, True])
def test_begin_of_a_log_that_cannot_be_read_hides_what_the_one_before_lacks(
    journal, hidden, within
):
    # If a recorder did not see the end of the earlier log, it says so there and nowhere else.
    roll(journal)
    records(journal, range(5))
    roll(journal, LATER)
    begin = journal.position
    lapped(journal, 3)
    records(journal, range(3, 200))
    roll(journal, LATER, source_index=200)
    records(journal, range(200, 205))
    if hidden == "damaged":
        damage(journal, 2, 66)
    elif hidden == "lost":
        segment_path(journal.directory, 2).unlink()
    start = ("position", begin) if within else "begin"
    with JournalCursor.attach(journal.directory, start, follow=False, layouts=LAYOUTS) as cursor:
        runs = RecordedRuns(cursor, LATER, 0, 5) if within else RecordedRuns(cursor)
        found = [(runs.log, runs.unknown) for _ in runs]
    assert found[0] == ((LATER, hidden != "nothing") if within else (BEFORE, False))
    assert found[-1] == (LATER, hidden != "nothing")


@pytest.mark.parametrize("hidden", [False, True])
def test_recorder_that_began_a_log_twice_has_said_only_once_what_the_one_before_lacks(
    journal, hidden
):
    # At its first start it wrote nothing else.
    roll(journal)
    records(journal, range(5))
    roll(journal, LATER)
    lapped(journal, 1, LappedReason.UNKNOWN)
    journal.flush(0)
    roll(journal, LATER)
    lapped(journal, 3)
    records(journal, range(3, 10))
    if hidden:
        damage(journal, 2, 66)
    with JournalCursor.attach(journal.directory, follow=False, layouts=LAYOUTS) as cursor:
        runs = RecordedRuns(cursor)
        found = [(runs.log, runs.index, runs.unknown) for _ in runs]
    assert found == [(BEFORE, 0, False), (LATER, 3, True)]


def test_begin_of_the_first_log_of_a_journal_hides_nothing_of_one_before(journal):
    roll(journal)
    records(journal, range(100))
    damage(journal, 1, 66)
    with JournalCursor.attach(journal.directory, follow=False, layouts=LAYOUTS) as cursor:
        runs = RecordedRuns(cursor)
        assert [(runs.index > 0, runs.unknown) for _ in runs] == [(True, False)]


def test_number_of_a_lost_segment_is_not_given_again(tmp_path):
    for _ in range(2):
        with Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=SEGMENT) as journal:
            roll(journal)
            records(journal, range(3))
    segment_path(tmp_path / "journal", 2).unlink()
    with Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=SEGMENT) as journal:
        roll(journal)
        assert segment_path(journal.directory, 3).exists()
