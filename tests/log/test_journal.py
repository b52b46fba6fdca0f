"""Journals return records in order, whatever happens to the writer, the files and the disk."""

import functools
import itertools
import os
import random
import threading
from pathlib import Path

import pytest

from udpfast.core.crc32c import crc32c
from udpfast.core.layout import Kind
from udpfast.errors import WriterExistsError
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import SEGMENT_ENTRY, Segment, list_segments, segment_path
from udpfast.shm.lock import open_existing

SEGMENT = 1 << 18
MESSAGE = int(Kind.MESSAGE)


@functools.cache  # its generator takes longer than all else of a record
def payload(number, size=200):
    """Return a payload that contains its number; its size varies."""
    return random.Random(number).randbytes(8 + number * 37 % size)


def fill(journal, first, count, time_ns=1_000):
    """Append records numbered from `first`, one per microsecond."""
    for number in range(first, first + count):
        at_ns = time_ns + number * 1000
        journal.append(MESSAGE, payload(number), received_ns=number, published_ns=at_ns)


def read(directory, **options):
    """Return the numbers of all records, after comparing each one's payload."""
    numbers = []
    with JournalCursor.attach(directory, follow=False, **options) as cursor:
        while not cursor.ended:
            headers = cursor.headers[: cursor.poll()]
            written, places = headers["received_ns"].tolist(), headers["index"].tolist()
            for i, (number, place) in enumerate(zip(written, places, strict=True)):
                assert cursor.payload(i) == payload(number)
                assert not numbers or place > 0
                numbers.append(number)
    return numbers


@pytest.fixture
def directory(tmp_path):
    """Return the directory of a journal."""
    return tmp_path / "journal"


def test_segment_that_was_not_begun_is_not_written(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        fill(journal, 0, 10)
        journal.prepare()
        away = directory.rename(directory.with_name("away"))
        with pytest.raises(FileNotFoundError):
            journal.roll(0)
        away.rename(directory)
        fill(journal, 10, 10)
    assert read(directory) == list(range(20))


def test_journal_of_many_segments_is_read_back(directory):
    with Journal.open(directory, segment_bytes=SEGMENT, name="deribit") as journal:
        fill(journal, 0, 5000)
        assert journal.index == 5000
    assert read(directory) == list(range(5000))
    numbers = list_segments(directory)
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 3
    infos = [Segment.open(segment_path(directory, number)).info() for number in numbers]
    for before, after in itertools.pairwise(infos):
        assert (before.end_position, before.end_index) == (after.position, after.index)
        assert before.last_ns < after.first_ns
    assert all(info.durable and info.name == "deribit" for info in infos)
    state = journal_state(directory)
    assert state.closed and not state.alive
    assert state.synced_position == state.position == infos[-1].end_position
    assert state.synced_index == 5000


def test_journal_that_is_closed_while_it_is_looked_at_is_closed(directory, monkeypatch):
    journal = Journal.open(directory, segment_bytes=SEGMENT)
    opened = []

    def close_at_the_second(*arguments):  # which looks whether the writer's lock is held
        opened.append(arguments)
        if len(opened) == 2:
            journal.close()
        return open_existing(*arguments)

    monkeypatch.setattr("udpfast.shm.region.open_existing", close_at_the_second)
    state = journal_state(directory)
    assert (len(opened), state.alive, state.closed) == (2, False, True)


def test_journal_opened_again_goes_on(directory):
    for part in range(4):
        with Journal.open(directory, segment_bytes=SEGMENT) as journal:
            assert journal.index == part * 700
            assert journal.recovery.cut_bytes == 0 and journal.recovery.notes == ()
            fill(journal, part * 700, 700)
    assert read(directory) == list(range(2800))
    assert journal_state(directory).epoch == 4


def test_journal_has_one_writer(directory):
    with Journal.open(directory), pytest.raises(WriterExistsError):
        Journal.open(directory)


def test_journal_open_is_followed_and_ends_when_closed(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        cursor = JournalCursor.attach(directory)
        seen = 0
        for part in range(20):
            assert cursor.poll() == 0 and not cursor.ended
            fill(journal, part * 100, 100)
            while count := cursor.poll():
                seen += count
            assert seen == part * 100 + 100
    while not cursor.ended:
        assert cursor.poll() == 0
    cursor.close()


def test_journal_cursor_starts_and_ends_at_times_and_positions(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        fill(journal, 0, 6000)
        positions = []
        with JournalCursor.attach(directory, follow=False, limit=6000) as cursor:
            while not cursor.ended:
                positions += cursor.headers["position"][: cursor.poll()].tolist()
        draw = random.Random(1)
        for _ in range(50):
            first, last = sorted(draw.sample(range(6001), 2))
            wanted = list(range(first, last))
            bounds = [first * 1000 + draw.randint(1, 1000), last * 1000 + draw.randint(1, 1000)]
            start, end = (("time", bound) for bound in bounds)
            assert read(directory, start=start, end=end) == wanted
            positions.append(journal.position)
            start, end = (("position", positions[number]) for number in (first, last))
            assert read(directory, start=start, end=end) == wanted
            positions.pop()
        assert read(directory, start="tail") == []
        assert read(directory, start=("time", 1 << 62)) == []


def test_journal_records_of_any_size_are_copied_padded_and_summed(directory):
    contents = [random.Random(size).randbytes(size) for size in [*range(513), 4095, 65_537]]
    with Journal.open(directory, segment_bytes=1 << 20) as journal:
        for content in contents:
            journal.append(MESSAGE, content)
    segment = Segment.open(segment_path(directory, 1))
    records = segment.view()[-segment.info().capacity_bytes :]
    for content in contents:
        size = 64 + (len(content) + 7 & ~7)
        record, records = bytearray(records[:size]), records[size:]
        checksum = int.from_bytes(record[60:64], "little")
        record[60:64] = bytes(4)
        assert record[64:] == content + bytes(-len(content) % 8)
        assert checksum == crc32c(record, tables=True)


def test_journal_index_names_a_record_per_stride(directory):
    with Journal.open(directory, segment_bytes=1 << 20) as journal:
        fill(journal, 0, 5000)
    entries = Segment.open(segment_path(directory, 1)).index()
    assert entries.dtype == SEGMENT_ENTRY
    assert len(entries) == 1 + (journal.position // 65536)
    assert (entries["before_ns"][1:] == entries["index"][1:] * 1000).all()


def test_journal_segment_not_ready_is_said_and_not_waited_for(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        assert not journal.ready and not journal.roll(0)
        assert journal.prepare() and not journal.prepare()
        assert journal.roll(5) and journal.opened
        fill(journal, 0, 1)
        journal.populate(1 << 30)


def test_journal_oldest_segments_are_removed_and_counted_as_missed(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        fill(journal, 0, 6000)
        cursor = JournalCursor.attach(directory, limit=100)
        assert cursor.poll() == 100
        journal.sync(1)
        before = journal.size_bytes()
        freed = journal.remove_oldest() + journal.remove_oldest()
        assert freed > 0 and journal.size_bytes() == before - freed
        first = Segment.open(segment_path(directory, 3)).info().index
        count, missed, at = 100, 0, []
        while polled := cursor.poll():
            if cursor.missed:
                missed += cursor.missed
                at.append(int(cursor.headers[0]["index"]))
            count += polled
        # The open segment can be read to its end, but the next one is gone.
        assert at == [first] and count + missed == 6000
        assert read(directory)[0] == first
        while journal.remove_oldest():
            pass
        assert len(list_segments(directory)) == 1
        cursor.close()
    assert journal_state(directory).removed > 2


def test_journal_synced_position_follows_sync_only(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        fill(journal, 0, 3000)
        assert journal.state().synced_position == 0
        assert journal.sync(7) == journal.position == journal.state().synced_position
        synced = journal.position
        fill(journal, 3000, 1)
        assert journal.state().synced_position == synced
        assert journal.state().synced_ns == 7


def test_journal_calls_nothing_synced_behind_a_sync_that_failed(directory):
    with Journal.open(directory, segment_bytes=SEGMENT) as journal:
        fill(journal, 0, 10)
        synced = journal.sync(1)
        path = segment_path(directory, 1)
        fd = next(int(each.name) for each in Path("/proc/self/fd").iterdir()
                  if each.exists() and each.resolve() == path)  # fmt: skip
        kept = os.dup(fd)
        with Path("/dev/null").open("wb") as null:  # cannot be synced
            os.dup2(null.fileno(), fd)
        fill(journal, 10, 10)
        with pytest.raises(OSError, match="sync"):
            journal.sync(2)
        os.dup2(kept, fd)
        os.close(kept)
        # After a failed sync, a successful one proves nothing: the kernel may have dropped data.
        assert journal.sync(3) == synced and journal.state().synced_ns == 1
        fill(journal, 20, 4000)
    infos = [Segment.open(segment_path(directory, n)).info() for n in list_segments(directory)]
    assert not any(info.durable for info in infos) and read(directory) == list(range(4020))


def test_journal_without_syncs_is_not_durable(directory):
    with Journal.open(directory, segment_bytes=SEGMENT, durable=False) as journal:
        fill(journal, 0, 3000)
        assert journal.sync(7) == 0
    infos = [Segment.open(segment_path(directory, n)).info() for n in list_segments(directory)]
    assert all(info.end_position is not None and not info.durable for info in infos)
    assert read(directory) == list(range(3000))


def test_journal_gives_unused_space_back(directory):
    with Journal.open(directory, segment_bytes=1 << 24) as journal:
        fill(journal, 0, 10)
    assert segment_path(directory, 1).stat().st_blocks * 512 < 1 << 16


def test_journal_segments_made_while_others_begin_lose_no_record(directory):
    # The keeper allocates the next segment just when the writer begins to fill the prepared one.
    stop = threading.Event()
    with Journal.open(directory, segment_bytes=SEGMENT, durable=False) as journal:

        def keep():
            while not stop.is_set():
                journal.prepare()
                journal.sync(1)

        keeper = threading.Thread(target=keep)
        journal.prepare()  # from here on only the keeper does this
        journal.roll(0)
        keeper.start()
        for number in range(300):
            journal.append(MESSAGE, payload(number), received_ns=number, published_ns=number)
            while not journal.roll(number):
                stop.wait(1e-5)  # lets the thread of the keeper run
        stop.set()
        keeper.join()
    assert read(directory) == list(range(300))


def test_journal_size_leaves_out_a_file_that_is_renamed_meanwhile(directory):
    with Journal.open(directory, segment_bytes=1 << 18) as journal:
        journal.append(Kind.MESSAGE, b"first")
        size = journal.size_bytes()
        (directory / "next.segment").symlink_to(directory / "00000009.segment")  # a dangling link
        assert journal.size_bytes() == size > 0
