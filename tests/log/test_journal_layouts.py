"""Journals of another version are read by the names of fields in the layouts beside them."""

import numpy as np
import pytest

from lab.aged import write_aged
from tests.layouts import NEWER, OLDER, layouts_with
from udpfast.core.layout import GAP, RECORD, Kind
from udpfast.core.layouts import CONTROL_LAYOUTS, Layouts
from udpfast.errors import FormatError, RegionError
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_layouts import journal_layouts, layouts_path, layouts_version
from udpfast.market.updates import LAYOUTS, view_update

SEGMENT = 1 << 18


def gaps(journal, first, count):
    for number in range(first, first + count):
        gap = np.zeros((), GAP)
        gap["first"], gap["last"], gap["count"] = number, number + 1, 2
        journal.append(Kind.GAP, gap.tobytes(), number=number, session=3, flight_ns=-7)


def numbers(directory, **where):
    found = []
    with JournalCursor.attach(directory, follow=False, layouts=LAYOUTS, **where) as cursor:
        while count := cursor.poll():
            for i in range(count):
                gap = np.frombuffer(cursor.payload(i), GAP, 1)[0]
                assert cursor.headers["number"][i] == gap["first"] == gap["last"] - 1
                assert cursor.headers["session"][i] == 3
                found.append(int(gap["first"]))
        assert cursor.missed_total == 0
    return found


@pytest.fixture
def directory(tmp_path):
    with Journal.open(tmp_path / "own", LAYOUTS, segment_bytes=SEGMENT) as journal:
        gaps(journal, 0, 300)
    return tmp_path


def aged(directory, layouts):
    write_aged(directory / "own", directory / "aged", LAYOUTS, layouts)
    return directory / "aged"


@pytest.mark.parametrize("layouts", [OLDER, NEWER])
def test_journal_of_another_version_is_read_by_name(directory, layouts):
    assert numbers(aged(directory, layouts)) == list(range(300))


@pytest.mark.parametrize("layouts", [OLDER, NEWER])
def test_journal_of_another_version_is_read_from_any_place_on(directory, layouts):
    journal = aged(directory, layouts)
    with JournalCursor.attach(journal, follow=False) as cursor:
        cursor.poll(100)
        position = cursor.position
    assert numbers(journal, start=("position", position)) == list(range(100, 300))
    assert numbers(journal, end=("position", position), limit=7) == list(range(100))


def test_what_an_older_version_did_not_say_has_its_default(directory):
    with JournalCursor.attach(aged(directory, OLDER), follow=False, layouts=LAYOUTS) as cursor:
        cursor.poll()
        assert cursor.headers["flight_ns"][0] == -(1 << 31)
        assert np.frombuffer(cursor.payload(0), GAP, 1)["reason"][0] == 0


def test_records_are_as_they_were_written_without_layouts(directory):
    with JournalCursor.attach(aged(directory, NEWER), follow=False) as cursor:
        count = cursor.poll()
        ends = cursor.headers["position"] + (cursor.headers["length"] + 7 & ~7)
        assert (ends[: count - 1] == cursor.headers["position"][1:count]).all()


def trades(directory, rows):
    # In that version trades had only their side: they are 17 times as large in this one.
    row = np.dtype([("side", "u1"), ("reserved9", "V7")])
    layouts = layouts_with(RECORD, {}, {Kind.TRADES: row})
    with Journal.open(directory / "trades", layouts, segment_bytes=SEGMENT) as journal:
        for count in rows:
            head = np.zeros((), LAYOUTS.payloads[int(Kind.TRADES)])
            head["row_count"] = count
            journal.append(Kind.TRADES, head.tobytes() + np.ones(count, row).tobytes())
    return directory / "trades"


def test_records_that_grow_come_in_several_polls(tmp_path):
    journal = trades(tmp_path, [1000, 3, 1000, 1000, 5, 5])
    found = []
    with JournalCursor.attach(journal, follow=False, layouts=LAYOUTS) as cursor:
        while count := cursor.poll():
            found.append(cursor.headers["index"][:count].tolist())
            for i in range(count):
                update = view_update(Kind.TRADES, cursor.payload(i))
                assert np.isnan(update.rows["price"]).all()
                assert (update.rows["side"] == 1).all()
    assert found == [[0, 1], [2], [3, 4, 5]]


def test_record_that_grows_beyond_the_room_is_an_error_until_there_is_more(tmp_path):
    journal = trades(tmp_path, [3, 4000, 3])
    with JournalCursor.attach(journal, follow=False, layouts=LAYOUTS) as cursor:
        assert cursor.poll() == 1
        for _ in range(2):
            with pytest.raises(FormatError, match="record 1 does not fit 262144 bytes"):
                cursor.poll()
        place = ("position", cursor.position)
    with JournalCursor.attach(
        journal, place, follow=False, layouts=LAYOUTS, room_bytes=1 << 20
    ) as cursor:
        assert cursor.poll() == 2


def test_journal_goes_on_in_the_layouts_of_its_next_writer(directory):
    journal = aged(directory, OLDER)
    with Journal.open(journal, LAYOUTS, segment_bytes=SEGMENT) as writer:
        assert writer.recovery.notes == ()
        gaps(writer, 300, 100)
    with Journal.open(journal, NEWER, segment_bytes=SEGMENT):
        pass
    assert numbers(journal) == list(range(400))
    assert {path.name for path in journal.glob("layouts-*")} == {
        layouts_path(journal, each.hash).name for each in (OLDER, LAYOUTS, NEWER)
    }


def test_segment_of_another_version_that_was_left_open_is_not_appended_to(directory):
    journal = aged(directory, OLDER)
    killed = directory / "killed"
    # The last segment is not sealed, as after a kill.
    killed.mkdir()
    for path in journal.iterdir():
        (killed / path.name).write_bytes(path.read_bytes())
    with (killed / "00000001.segment").open("r+b") as file:
        file.seek(512)
        file.write(bytes(80))
    with Journal.open(killed, LAYOUTS, segment_bytes=SEGMENT) as writer:
        gaps(writer, 300, 5)
    assert numbers(killed) == list(range(305))


def damage_nothing(path):
    path.unlink()


def damage_end(path):
    path.write_bytes(path.read_bytes()[:-200])


def damage_name(path):
    path.write_text(path.read_text().replace('"count"', '"court"'))


def damage_other(path):
    path.write_text(LAYOUTS.to_json("x"))


def damage_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [damage_nothing, damage_end, damage_name, damage_other, damage_folder]
)
def test_layouts_that_are_missing_or_damaged_are_one_error_and_nothing_is_lost(directory, damage):
    journal = aged(directory, OLDER)
    path = layouts_path(journal, OLDER.hash)
    sound = path.read_bytes()
    damage(path)
    with JournalCursor.attach(journal, follow=False, layouts=LAYOUTS) as cursor:
        for _ in range(2):
            with pytest.raises(RegionError, match=path.name):
                cursor.poll()
        assert cursor.index == 0
        if path.is_dir():
            path.rmdir()
        path.write_bytes(sound)
        assert cursor.poll() == 300
    assert numbers(journal) == list(range(300))


def test_layouts_of_the_same_version_are_not_needed_for_reading(directory):
    layouts_path(directory / "own", LAYOUTS.hash).unlink()
    assert numbers(directory / "own") == list(range(300))


def test_next_writer_makes_the_layouts_that_are_damaged_anew(directory):
    path = layouts_path(directory / "own", LAYOUTS.hash)
    damage_name(path)
    with Journal.open(directory / "own", LAYOUTS, segment_bytes=SEGMENT) as journal:
        (note,) = journal.recovery.notes
    assert "expected layouts with hash" in note
    assert "kept as" in note
    assert journal_layouts(directory / "own", LAYOUTS.hash).hash == LAYOUTS.hash
    assert layouts_version(directory / "own", LAYOUTS.hash) == "0.1.0"
    assert [each.name for each in path.parent.glob("*.aside-*")] == [f"{path.name}.aside-1"]


@pytest.mark.parametrize(("ours", "theirs"), [(LAYOUTS, CONTROL_LAYOUTS), (CONTROL_LAYOUTS, OLDER)])
def test_raw_captures_and_records_do_not_mix(tmp_path, ours: Layouts, theirs: Layouts):
    with Journal.open(tmp_path / "journal", theirs, segment_bytes=SEGMENT) as journal:
        journal.append(Kind.MESSAGE, b"x" * 40)
    with pytest.raises(RegionError, match="record to another directory"):
        Journal.open(tmp_path / "journal", ours, segment_bytes=SEGMENT)
    with (
        JournalCursor.attach(tmp_path / "journal", follow=False, layouts=ours) as cursor,
        pytest.raises(RegionError, match=r"expected .*, found "),
    ):
        cursor.poll()


def test_value_that_does_not_fit_ends_reading_before_its_record(directory):
    with Journal.open(directory / "wide", NEWER, segment_bytes=SEGMENT) as journal:
        for reason in (1, 2, 1 << 40, 3):
            gap = np.zeros((), NEWER.payloads[int(Kind.GAP)])
            gap["reason"] = reason
            journal.append(Kind.GAP, bytes(8) + gap.tobytes())
    with JournalCursor.attach(directory / "wide", follow=False, layouts=LAYOUTS) as cursor:
        assert cursor.poll(2) == 2
        for _ in range(2):
            with pytest.raises(FormatError, match=r"record 2: payloads of kind 3 has reason"):
                cursor.poll()
        assert cursor.index == 2
