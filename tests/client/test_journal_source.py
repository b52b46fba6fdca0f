"""`Reader("journal:...")`: recorded messages, also of a range of time."""

import shutil
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from tests.layouts import OLDER
from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import Pacer
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.core.layout import (
    LAPPED,
    ConnectionScope,
    ConnectionStatus,
    Kind,
    LappedReason,
    RecordFlag,
)
from udpfast.errors import ConfigError, RegionError
from udpfast.log.journal import Journal
from udpfast.log.journal_layouts import layouts_path
from udpfast.log.segment import segment_path
from udpfast.market.updates import LAYOUTS

START_NS = int(datetime(2026, 8, 21, 9, 30, tzinfo=UTC).timestamp()) * 1_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def directory(tmp_path):
    """Return a journal of 100 records, one per second from 09:30."""
    with Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=1 << 18) as journal:
        for number in range(100):
            journal.append(
                Kind.MESSAGE,
                b"%d" % number,
                received_ns=number,
                published_ns=START_NS + number * SECOND,
            )
    return tmp_path / "journal"


def numbers(directory, **options):
    """Return the records of an iteration."""
    with Reader(f"journal:{directory}", **options) as reader:
        return [int(bytes(record.payload)) for record in reader]


def test_what_is_missing_has_room_to_be_said_though_no_record_is_readable(directory):
    with segment_path(directory, 1).open("r+b") as segment:
        segment.write(b"damage")
    with Reader(f"journal:{directory}", buffer_bytes=0) as reader:
        batch = reader.poll()
        told = np.frombuffer(batch.payload(0), LAPPED)[0]
        assert (told["missed"], told["reason"]) == (100, LappedReason.DAMAGE)


def test_journal_is_read_from_its_beginning_to_its_end(directory):
    assert numbers(directory) == list(range(100))
    with Reader(f"journal:{directory}") as reader:
        batch = reader.poll()
        assert len(batch) == 100 and batch.lapped == 0
        assert reader.index == 100 and reader.lag == 0 and reader.epoch == 1


@pytest.mark.parametrize(
    "start",
    [
        "2026-08-21T09:30:10Z",
        "2026-08-21T11:30:10+02:00",
        datetime(2026, 8, 21, 9, 30, 10, tzinfo=UTC),
        START_NS + 10 * SECOND,
        START_NS + 9 * SECOND + 1,
        np.int64(START_NS + 10 * SECOND),  # as an array of times has it
        np.uint64(START_NS + 10 * SECOND),
        ("time", np.int64(START_NS + 10 * SECOND)),
    ],
)
def test_journal_is_read_from_a_time_as_people_write_it(directory, start):
    assert numbers(directory, start=start) == list(range(10, 100))
    assert numbers(directory, end=start) == list(range(10))
    assert numbers(directory, start=start, end="2026-08-21T09:30:20Z") == list(range(10, 20))


def test_journal_is_read_from_the_position_that_a_batch_has(directory):
    with Reader(f"journal:{directory}") as reader:
        position = reader.poll().headers["position"][10]
    assert numbers(directory, start=("position", position)) == list(range(10, 100))
    assert numbers(directory, end=("position", position)) == list(range(10))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": "2026-08-21T09:30"}, "must have a time zone"),
        ({"start": "yesterday"}, "must be 'tail', 'begin', 'oldest' or a time"),
        ({"end": 1.5}, "end: expected nanoseconds since 1970 as an int"),
        ({"start": "9" * 5000}, "or a time"),
        ({"start": 10**5000}, "of this century"),
        ({"end": 1 << 63}, "of this century"),
        ({"start": float("nan")}, "start: expected nanoseconds since 1970 as an int"),
        ({"start": "\u0661"}, "or a time"),
        ({"start": True}, "or a time"),
        ({"start": np.True_}, "or a time"),
        ({"start": np.float64(1.5)}, "start: expected nanoseconds since 1970 as an int"),
        ({"start": ("time", "soon")}, "or a time"),
        ({"start": ("position", -1)}, "must be a position, 0 or more"),
        ({"end": ("position", 1 << 63)}, "must be a position, 0 or more"),
        ({"start": ("position", "1")}, "must be a position, 0 or more"),
        ({"start": ("position", 10**5000)}, "must be a position, 0 or more"),
        ({"start": ("index", 1)}, "or a time"),
        ({"start": ()}, "or a time"),
    ],
)
def test_journal_time_that_is_none_is_refused(directory, options, expected):
    with pytest.raises(ConfigError, match=expected):
        Reader(f"journal:{directory}", **options)


def test_journal_of_another_version_without_its_layouts_is_refused(tmp_path):
    with Journal.open(tmp_path / "journal", OLDER) as journal:
        journal.append(Kind.MESSAGE, b"1")
    layouts_path(tmp_path / "journal", OLDER.hash).unlink()
    with (
        Reader(f"journal:{tmp_path / 'journal'}") as reader,
        pytest.raises(RegionError, match=r"layouts-\w{16}\.json: expected the layouts of segments"),
    ):
        reader.poll(timeout=0)
    with pytest.raises(RegionError, match="expected the layouts of segments"):
        replay_records(tmp_path / "journal", "", Pacer(0), None, None)


def test_ring_has_no_end_in_time(instance):
    with pytest.raises(ConfigError, match="end must be None"):
        Reader(instance.address, end=1)


def test_journal_that_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such journal"):
        Reader(f"journal:{tmp_path}/none")


def test_journal_open_is_followed(tmp_path):
    journal = Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=1 << 18)
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        for number in range(3000):
            journal.append(Kind.MESSAGE, b"%d" % number)
            record = next(reader)
            assert int(bytes(record.payload)) == number
        assert len(reader.poll(timeout=0.0)) == 0
        journal.close()
        assert list(reader) == []


@pytest.mark.parametrize("first", [40, 97], ids=["inside", "at the end"])
def test_journal_damage_is_said_wherever_it_is(directory, first, monkeypatch):
    path = segment_path(directory, 1)
    content = bytearray(path.read_bytes())
    size = 72  # of a record here, header and payload
    place = content.index(b"97".ljust(8, b"\0"), 4096) - 97 * size
    for number in range(first, first + 3):
        assert content[place + number * size :].startswith(b"%d" % number)
        content[place + number * size] ^= 1
    path.write_bytes(content)
    with Reader(f"journal:{directory}") as reader:
        records = list(reader)
        doubts = [record for record in records if record.kind is Kind.LAPPED]
        lost = 101 - len(records)  # what lies behind damage is found by the index, or by the seal
        assert [(each.lapped, each.data["reason"]) for each in doubts] == [
            (lost, LappedReason.DAMAGE)
        ]
        assert reader.lapped == lost >= 3
    monkeypatch.setenv("UDPFAST_SHM", str(directory.parent / "shm"))
    for target in ("", "ring:again"):
        found = replay_records(directory, target, Pacer(0), None, None)
        assert found["missed"] == lost
    with Reader("ring:again", start="begin") as reader:
        assert [(record.kind, record.lapped) for record in reader] == [
            (record.kind, record.lapped) for record in records
        ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": "2027-01-01T00:00Z"}, "from 2027-01-01T00:00:00.000000000Z on"),
        ({"start": ("position", 7200)}, "from position 7200 on"),
        ({"end": START_NS}, "before 2026-08-21T09:30:00.000000000Z"),
        ({"end": ("position", 0)}, "before position 0"),
    ],
)
@pytest.mark.parametrize("sealed", [True, False])
def test_part_of_a_journal_outside_it_is_refused_with_what_it_covers(
    directory, options, expected, sealed
):
    if not sealed:  # as a writer that was killed leaves it
        with segment_path(directory, 1).open("r+b") as file:
            file.seek(512)
            file.write(bytes(80))
    covers = "2026-08-21T09:30:00.000000000Z to 2026-08-21T09:31:39.000000000Z, positions 0 to 7200"
    with pytest.raises(ConfigError, match=f"covers {covers}: it has nothing {expected}"):
        Reader(f"journal:{directory}", **options)


def write(directory, *payloads, failed=False):
    """Write these records as one writer does, from its start to its end."""
    journal = Journal.open(directory, LAYOUTS, segment_bytes=1 << 18)
    for payload in payloads:
        journal.append(Kind.MESSAGE, payload, published_ns=1)
    journal.close(failed=failed)


def take(reader, count):
    """Return so many records: payloads, and of a CONNECTION its status and scope."""
    found = []
    for _ in range(count):
        assert reader.wait(10)
        record = next(reader)
        said = record.data if record.kind == Kind.CONNECTION else None
        found.append(
            bytes(record.payload) if said is None else (int(said["status"]), int(said["scope"]))
        )
    return found


GONE = (ConnectionStatus.DISCONNECTED, ConnectionScope.FANOUT)
BACK = (ConnectionStatus.READY, ConnectionScope.FANOUT)


@pytest.mark.parametrize("failed", [False, True])
def test_journal_without_an_end_goes_on_with_its_next_writer(tmp_path, failed):
    write(tmp_path / "j", b"1", failed=failed)
    with Reader(f"journal:{tmp_path / 'j'}", end="never") as reader:
        assert take(reader, 2) == [b"1", GONE]
        assert (reader.wait(0), reader.state) == (False, "failed" if failed else "ended")
        write(tmp_path / "j", b"2", b"3")
        assert take(reader, 3) == [b"2", b"3", GONE]
        assert (reader.index, reader.lapped, reader.lag) == (3, 0, 0)
        journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
        journal.append(Kind.MESSAGE, b"4")
        journal.flush(1)
        journal.note_current(1)
        assert (take(reader, 2), reader.state) == ([b"4", BACK], "alive")
        journal.close()


@pytest.mark.parametrize("says", [True, False])
def test_ready_waits_for_all_that_was_published_before_the_next_writer_was_seen(tmp_path, says):
    write(tmp_path / "j", b"1")
    with Reader(f"journal:{tmp_path / 'j'}", end="never", batch=1) as reader:
        assert take(reader, 2) == [b"1", GONE]
        journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
        journal.append(Kind.MESSAGE, b"2", published_ns=START_NS - 2)
        journal.flush(START_NS)
        assert (take(reader, 1), reader.wait(0)) == ([b"2"], False)
        lapped = np.zeros(1, LAPPED).tobytes()
        for kind, payload, published_ns in (
            (Kind.LAPPED, lapped, START_NS + 2),  # those that it counts come behind it
            (Kind.MESSAGE, b"3", START_NS - 1),
        ):
            journal.append(kind, payload, published_ns=published_ns)
            journal.flush(START_NS + 3)
            assert (take(reader, 1), reader.wait(0)) == ([payload], False)
        journal.note_current(START_NS - 1)
        assert not reader.wait(0)
        journal.append(Kind.MESSAGE, b"4", published_ns=START_NS - says)
        journal.flush(START_NS + 4)
        if says:
            journal.note_current(START_NS)
        assert take(reader, 2) == [b"4", BACK]
        assert not reader.wait(0)
        journal.append(Kind.MESSAGE, b"5")
        journal.close()
        assert take(reader, 2) == [b"5", GONE]


@pytest.mark.parametrize("killed", [False, True])
def test_ready_needs_no_record_of_the_next_writer(tmp_path, killed):
    write(tmp_path / "j", b"1")
    journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
    journal.note_current(time.time_ns() + SECOND)
    with Reader(f"journal:{tmp_path / 'j'}", end="never") as reader:
        books = Books(reader)
        assert take(reader, 1) == [b"1"]
        journal.region.close() if killed else journal.close()
        assert take(reader, 1) == [GONE]
        journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
        assert not reader.wait(0.05)  # it does not know yet what it lacks
        journal.note_current(time.time_ns())
        assert take(reader, 1) == [BACK]
        assert (reader.wait(0.05), reader.state, books.catch_up()) == (False, "alive", 0)
        journal.close()
        assert take(reader, 1) == [GONE]
        write(tmp_path / "j")
        assert not reader.wait(0.05)


def test_next_writer_is_not_current_as_of_the_one_before_whose_clock_was_ahead(tmp_path):
    journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
    journal.append(Kind.MESSAGE, b"1")
    journal.note_current(9)
    journal.close()
    with Reader(f"journal:{tmp_path / 'j'}", end="never") as reader:
        assert take(reader, 2) == [b"1", GONE]
        journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
        journal.append(Kind.MESSAGE, b"2")
        journal.flush(5)
        assert (take(reader, 1), reader.wait(0)) == ([b"2"], False)
        journal.note_current(5)
        assert take(reader, 1) == [BACK]
        journal.close()


def test_catch_up_takes_what_is_said_of_the_writer(tmp_path):
    write(tmp_path / "j", b"1")
    with Reader(f"journal:{tmp_path / 'j'}", end="never") as reader:
        books = Books(reader)
        assert [books.catch_up(), books.catch_up()] == [2, 0]
        journal = Journal.open(tmp_path / "j", LAYOUTS, segment_bytes=1 << 18)
        journal.append(Kind.MESSAGE, b"2", published_ns=1)
        journal.flush(2)
        journal.note_current(2)
        assert reader.wait(10)
        assert [books.catch_up(), books.catch_up()] == [2, 0]
        journal.append(Kind.MESSAGE, b"3", published_ns=1)
        journal.close()
        assert [books.catch_up(), books.catch_up()] == [2, 0]


def test_journal_without_an_end_is_read_on_among_others(tmp_path):
    for name in "ab":
        write(tmp_path / name, name.encode())
    with Reader([f"journal:{tmp_path / name}" for name in "ab"], end="never") as reader:
        assert take(reader, 4) == [b"a", b"b", GONE, GONE]
        journal = Journal.open(tmp_path / "a", LAYOUTS, segment_bytes=1 << 18)
        journal.append(Kind.MESSAGE, b"c")
        journal.flush(1)
        journal.note_current(1)
        assert take(reader, 2) == [b"c", BACK]
        journal.close()
        assert take(reader, 1) == [GONE]
        assert reader.origin == f"journal:{tmp_path / 'a'}"


def test_end_of_a_journal_that_is_written_is_told_among_others(tmp_path):
    journal = Journal.open(tmp_path / "live", LAYOUTS, segment_bytes=1 << 18)
    write(tmp_path / "recorded", b"1")
    addresses = [f"journal:{tmp_path / name}" for name in ("recorded", "live")]
    with Reader(addresses) as reader, Reader(addresses, end=time.time_ns()) as ends:
        journal.append(Kind.MESSAGE, b"2", published_ns=2)
        journal.flush(2)
        assert take(reader, 2) == take(ends, 2) == [b"1", b"2"]
        journal.close()
        assert (take(reader, 1), reader.origin) == ([GONE], addresses[1])
        assert list(reader) == list(ends) == []
    for alone in (addresses, addresses[1]):  # both are recordings now
        with Reader(alone) as reader:
            assert {record.kind for record in reader} == {Kind.MESSAGE}


def test_journal_without_an_end_that_is_begun_again_is_refused(tmp_path):
    write(tmp_path / "j", b"1")
    with Reader(f"journal:{tmp_path / 'j'}", end="never") as reader:
        assert take(reader, 2) == [b"1", GONE]
        shutil.rmtree(tmp_path / "j")
        write(tmp_path / "j", b"2", b"3")
        with pytest.raises(RegionError, match="the journal was begun again"):
            reader.wait(10)


@pytest.mark.parametrize("read", ["one by one", "poll", "catch_up"])
@pytest.mark.parametrize("lacks", [False, True])
def test_books_of_a_journal_without_an_end_are_stale_until_all_is_told(tmp_path, lacks, read):
    """The bid of 10 is gone when the next recorder begins; whether records are missing or not."""
    instance = Instance(tmp_path / "feed", 1 << 14)
    instance.book([(10.0, 1.0)], [], flags=RecordFlag.UNGATED, snapshot=True)
    instance.ring.flush()
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    recorder.on_stop()
    sound = []

    def look():
        book = books["binance-usdm", "BTCUSDT"]
        if not book.stale:
            sound.append(book.best()[0])

    def take_all(until):
        while not until():
            assert reader.wait(10)
            if read == "one by one":
                books.apply(next(reader))
            elif read == "poll":
                books.poll()
            else:
                books.catch_up()
            look()

    with Reader(f"journal:{tmp_path / 'journal'}", end="never") as reader:
        books = Books(reader)
        take_all(lambda: reader.index > 0 and books["binance-usdm", "BTCUSDT"].stale)
        assert sound == ([] if read == "catch_up" else [10.0])
        sound.clear()
        for turn in range(1000 if lacks else 2):
            instance.book([(6.0 - turn % 2, 1.0)], [], flags=RecordFlag.UNGATED, snapshot=True)
        instance.ring.flush()
        recorder = recorder_of(instance, tmp_path)
        drive(recorder)
        take_all(lambda: reader.index == recorder.recordings[0].journal.state().index)
        assert sound == []
        for turn in range(1, 4):  # it looks whether there is more, and says from when on not
            recorder.work(turn * 10**10)
        recorder.keep()
        take_all(lambda: sound)
        assert sound == [5.0]
        recorder.on_stop()
    instance.close()


def test_journal_without_an_end_that_is_removed_is_refused_each_time(tmp_path):
    write(tmp_path / "j", b"1")
    with Reader(f"journal:{tmp_path / 'j'}", end="never") as reader:
        assert take(reader, 2) == [b"1", GONE]
        (tmp_path / "j").rename(tmp_path / "moved")
        for _ in range(3):
            with pytest.raises(RegionError, match="found it removed after record 1"):
                reader.wait(10)
        (tmp_path / "moved").rename(tmp_path / "j")
        write(tmp_path / "j", b"2")
        assert take(reader, 2) == [b"2", GONE]


def test_only_a_journal_may_have_no_end(instance):
    with pytest.raises(ConfigError, match="end must be None unless the address is 'journal"):
        Reader(instance.address, end="never")


def test_part_of_a_journal_that_ends_before_it_begins_is_refused(directory):
    with pytest.raises(ConfigError, match="expected an end after position 720, found position 72"):
        Reader(f"journal:{directory}", start=("position", 720), end=("position", 72))


def test_reader_may_wait_for_what_a_living_recorder_will_write(tmp_path):
    journal = Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=1 << 18)
    journal.append(Kind.MESSAGE, b"1", published_ns=START_NS)
    with Reader(f"journal:{tmp_path / 'journal'}", start=START_NS + 1) as reader:
        assert len(reader.poll(timeout=0)) == 0
        journal.append(Kind.MESSAGE, b"2", published_ns=START_NS + 1)
        assert bytes(next(reader).payload) == b"2"
    journal.close()


def test_empty_journal_has_no_part_to_be_outside_of(tmp_path):
    Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=1 << 18).close()
    assert numbers(tmp_path / "journal", start=START_NS) == []


@pytest.mark.parametrize("options", [{"batch": 1}, {"batch": 4, "buffer_bytes": 1000}, {}])
def test_journal_that_is_empty_at_first_has_room_for_any_record_later(tmp_path, options):
    with Journal.open(tmp_path / "j", LAYOUTS, name="x", segment_bytes=1 << 18) as journal:
        journal.flush(1)
        with Reader(f"journal:{tmp_path / 'j'}", **options) as reader:
            assert not reader.wait(0)
            sizes = [100_000, 10, 50_000]
            for size in sizes:
                journal.append(Kind.MESSAGE, bytes(size), published_ns=1)
            assert [len(next(reader).payload) for _ in sizes] == sizes


def test_writer_of_a_journal_is_alive_until_it_closes_it(tmp_path):
    journal = Journal.open(tmp_path / "j", LAYOUTS, name="x", segment_bytes=1 << 18)
    journal.append(Kind.MESSAGE, b"m", published_ns=1)
    with Reader(f"journal:{tmp_path / 'j'}") as reader:
        assert (reader.alive, reader.state) == (True, "alive")
        journal.close()
        assert (reader.alive, reader.state) == (False, "ended")
    assert (reader.alive, reader.state) == (False, "closed")
