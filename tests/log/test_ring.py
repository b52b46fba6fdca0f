"""A ring in one process: a reader gets exactly the written records, or learns what it missed."""

import functools
import os
import random
import threading

import numpy as np
import pytest

from bench.loops.ring_hop import look
from lab.ringload import LoadResult, read_load, write_load
from udpfast.core.layout import RESTART, Kind
from udpfast.errors import FormatError, RegionError, RingClosedError, WriterExistsError
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import RING_KIND, RING_LAYOUT, Ring
from udpfast.shm.lock import lock_existing, open_existing
from udpfast.shm.region import Region

CAPACITY = 4096


@pytest.fixture
def ring(tmp_path):
    with Ring.create(tmp_path / "ring", CAPACITY) as ring:
        yield ring


@pytest.fixture
def cursor(ring):
    with RingCursor.attach(ring.region.path, start="begin") as cursor:
        yield cursor


@functools.cache  # its generator takes longer than all else of a record
def payload_of(index):
    """Return a payload of 0 to 240 bytes, different for each index."""
    return random.Random(index).randbytes(index * 7 % 241)


def append_many(ring, first, count):
    for index in range(first, first + count):
        assert ring.index == index
        ring.append(Kind.MESSAGE, payload_of(index), received_ns=index)


def read_all(cursor):
    """Read all new records; compare their payloads, and return their indices."""
    indices = []
    while count := cursor.poll():
        for i in range(count):
            header = cursor.headers[i]
            assert header["received_ns"] == header["index"]
            assert bytes(cursor.payload(i)) == payload_of(int(header["index"]))
            indices.append(int(header["index"]))
    return indices


def test_ring_new_has_nothing_to_read(cursor):
    assert cursor.poll() == 0
    assert cursor.tail_index == 0


def test_look_after_one_in_vain_returns_the_first_record_alone(ring, cursor):
    assert look(cursor)[0] == 0
    append_many(ring, 0, 5)
    assert [look(cursor)[0] for _ in range(3)] == [1, 4, 0]
    append_many(ring, 5, 5)
    assert cursor.poll() == 5


def test_look_in_vain_before_a_pad_returns_the_record_behind_it(ring, cursor):
    ring.append(Kind.MESSAGE, bytes(440))
    while ring.position + 504 <= CAPACITY:
        ring.append(Kind.MESSAGE, bytes(440))
    while look(cursor)[0]:
        pass
    ring.append(Kind.MESSAGE, bytes(440))  # does not fit in front of the end
    assert look(cursor)[0] == 1
    assert cursor.headers[0]["position"] == CAPACITY


def test_rest_grows_behind_a_fast_writer_and_ends_with_a_slow_one(tmp_path):
    with Ring.create(tmp_path, 1 << 16) as ring, RingCursor.attach(tmp_path, "begin") as cursor:
        rests = []
        for size in (20, 20, 20, 5):
            append_many(ring, ring.index, size)
            count, rest = look(cursor)
            assert count == size
            rests.append(rest)
    assert rests == [4, 12, 28, 0]


def test_rest_of_a_reader_that_is_behind_does_not_change(ring):
    with RingCursor.attach(ring.region.path, start="begin", limit=8) as cursor:
        append_many(ring, 0, 20)
        assert [look(cursor) for _ in range(3)] == [(8, 0), (8, 0), (4, 4)]


def test_record_appended_is_read_back_whole(ring, cursor):
    fields = {"line": 3, "number": 1 << 40, "object": 7, "flight_ns": -9, "stream": 1, "session": 2}
    position = ring.append(Kind.BOOK, b"levels", flags=5, received_ns=-7, published_ns=8, **fields)
    assert cursor.poll() == 1
    header = cursor.headers[0]
    assert (position, header["position"], header["index"]) == (0, 0, 0)
    assert (header["length"], header["kind"], header["flags"]) == (64 + 6, Kind.BOOK, 5)
    assert (header["received_ns"], header["published_ns"]) == (-7, 8)
    assert {name: header[name] for name in fields} == fields
    assert bytes(cursor.payload(0)) == b"levels"
    assert cursor.lapped == 0


def test_ring_many_laps_read_in_step_miss_nothing(ring, cursor):
    read = []
    for first in range(0, 4000, 8):
        append_many(ring, first, 8)
        read += read_all(cursor)
    assert read == list(range(4000))
    assert cursor.lapped_total == 0
    assert ring.position > 100 * CAPACITY


@pytest.mark.parametrize("seed", range(20))
def test_reader_lapped_at_random_is_told_the_exact_number(ring, cursor, seed):
    rng = random.Random(seed)
    read, expected = 0, 0
    while ring.index < 5000:
        append_many(ring, ring.index, rng.randrange(60))
        while count := cursor.poll(rng.randrange(1, 50)):
            expected += cursor.lapped
            assert cursor.headers["index"][:count].tolist() == list(
                range(expected, expected + count)
            )
            expected += count
            read += count
    assert expected == ring.index
    assert read + cursor.lapped_total == ring.index
    assert cursor.lapped_total > 0


def test_poll_limit_splits_what_is_there(ring, cursor):
    append_many(ring, 0, 10)
    assert [cursor.poll(4) for _ in range(4)] == [4, 4, 2, 0]


def test_poll_room_smaller_than_what_is_there_stops_before_it(ring):
    with RingCursor.attach(ring.region.path, start="begin", room_bytes=0) as cursor:
        for _ in range(3):
            ring.append(Kind.MESSAGE, bytes(ring.payload_max - 100))
        assert [cursor.poll() for _ in range(4)] == [1, 1, 1, 0]


def test_payload_largest_passes_and_larger_is_refused(ring, cursor):
    assert ring.payload_max == CAPACITY // 8 - 64
    ring.append(Kind.MESSAGE, bytes(ring.payload_max))
    with pytest.raises(ValueError, match="payload must have at most 448 bytes, has 449"):
        ring.append(Kind.MESSAGE, bytes(ring.payload_max + 1))
    assert cursor.poll() == 1


def test_record_padding_is_zero_whatever_was_there(ring):
    for _ in range(200):
        ring.append(Kind.MESSAGE, b"\xff" * 137)
    position = ring.append(Kind.MESSAGE, b"\xff" * 3)
    at = 4096 + position % CAPACITY
    assert ring.region.view()[at + 64 : at + 72].tobytes() == b"\xff\xff\xff\0\0\0\0\0"


def test_start_tail_reads_the_next_record_even_if_nothing_was_flushed(ring):
    append_many(ring, 0, 30)
    with RingCursor.attach(ring.region.path, start="tail") as cursor:
        assert (cursor.index, cursor.poll()) == (30, 0)
        append_many(ring, 30, 2)
        assert read_all(cursor) == [30, 31]


def test_start_latest_reads_the_newest_flushed_record(ring):
    append_many(ring, 0, 300)
    ring.flush()
    append_many(ring, 300, 1)
    with RingCursor.attach(ring.region.path, start="latest") as cursor:
        assert read_all(cursor) == [299, 300]
        assert cursor.lapped_total == 0


def test_start_begin_overwritten_is_refused(ring):
    append_many(ring, 0, 300)
    with pytest.raises(FormatError, match="the first, has been overwritten"):
        RingCursor.attach(ring.region.path, start="begin")


def test_start_writer_begins_where_the_present_writer_did(tmp_path):
    with Ring.create(tmp_path / "ring", CAPACITY) as first:
        append_many(first, 0, 300)
        with RingCursor.attach(tmp_path / "ring", start="latest") as cursor:
            with pytest.raises(FormatError, match="the first, has been overwritten"):
                RingCursor.attach(tmp_path / "ring", start="writer")
            first.flush()
            first.region.close()  # as if the process had died
            with Ring.create(tmp_path / "ring", CAPACITY) as second:
                append_many(second, 300, 3)
                with RingCursor.attach(tmp_path / "ring", start="writer") as late:
                    assert late.index == 300
                    assert late.poll() == 3
            assert cursor.epoch == 2


def test_seek_goes_on_where_another_cursor_stands(ring):
    append_many(ring, 0, 10)
    with RingCursor.attach(ring.region.path, start="begin") as one:
        one.poll(4)
        with RingCursor.attach(ring.region.path) as other:
            other.seek(one.position, one.index)
            assert other.poll() == 6
            assert other.headers["index"][0] == 4
            other.seek(one.position + 8, one.index)
            with pytest.raises(FormatError, match="found no valid record"):
                other.poll()
            with pytest.raises(ValueError, match="multiple of 8"):
                other.seek(one.position + 1, one.index)


def test_start_unknown_is_refused(ring):
    with pytest.raises(ValueError, match=r"start .*tail, latest, begin, writer, oldest"):
        RingCursor.attach(ring.region.path, start="end")


@pytest.mark.parametrize("capacity", [0, 2048, 4097, 12288])
def test_ring_capacity_not_a_power_of_two_is_refused(tmp_path, capacity):
    with pytest.raises(ValueError, match=rf"power of two.* 4096.* {capacity}"):
        Ring.create(tmp_path / "ring", capacity)


def test_ring_closed_ends_readers_after_the_last_record(ring, cursor):
    append_many(ring, 0, 3)
    ring.close()
    assert read_all_until_closed(cursor) == [0, 1, 2]


def read_all_until_closed(cursor, why="closed it after"):
    indices = []
    with pytest.raises(RingClosedError, match=why):
        while True:
            indices += cursor.headers["index"][: cursor.poll()].tolist()
    return indices


def test_ring_second_writer_is_refused_with_the_first_ones_pid(ring):
    with pytest.raises(WriterExistsError, match=r"found process \d+"):
        Ring.create(ring.region.path, CAPACITY)


@pytest.mark.parametrize("records", [0, 1, 5, 300])
def test_ring_writer_dead_is_taken_over_where_it_ended(ring, cursor, records):
    append_many(ring, 0, records)
    position = ring.position
    ring.region.close()  # as a kill does: nothing is flushed or closed
    with Ring.create(ring.region.path, CAPACITY) as second:
        assert (second.restarted, second.epoch) == (True, 2)
        assert (second.index, second.position) == (records, position)
        second.announce_restart(99)
        while count := cursor.poll():
            newest, payload = cursor.headers[count - 1].copy(), bytes(cursor.payload(count - 1))
        assert newest["kind"] == Kind.RESTART
        assert newest["index"] == records
        assert np.frombuffer(payload, RESTART)[0].tolist() == (2, 99)
        assert cursor.epoch == 2


@pytest.mark.parametrize("records", [0, 5, 300])
def test_ring_that_is_left_for_the_next_writer_is_no_end(ring, cursor, records):
    append_many(ring, 0, records)
    ring.close(again=True)
    assert read_all(cursor)[-1:] == list(range(records))[-1:]  # without an END after them
    assert (cursor.life, cursor.closed_by_writer, cursor.follow()) == ("left", False, None)
    with Ring.create(ring.region.path, CAPACITY) as second:
        assert (second.restarted, second.epoch, second.index) == (True, 2, records)
        append_many(second, records, 3)
        assert (cursor.follow(), cursor.life) == (True, "running")
        assert read_all(cursor) == [records, records + 1, records + 2]


def test_cursor_goes_on_behind_a_closed_ring_only_if_asked_to(ring, cursor):
    append_many(ring, 0, 5)
    ring.close()
    with Ring.create(ring.region.path, CAPACITY) as second:
        append_many(second, 5, 3)
        assert cursor.poll() == 5
        assert (cursor.follow(), cursor.follow(closed=True)) == (None, True)
        assert read_all(cursor) == [5, 6, 7]


def test_writer_that_closes_while_it_is_looked_for_has_finished(ring, cursor, monkeypatch):
    def close_first(*arguments):
        ring.close()
        return open_existing(*arguments)

    monkeypatch.setattr("udpfast.shm.region.open_existing", close_first)
    assert cursor.life == "finished"


@pytest.mark.parametrize("records", [0, 5, 300])
def test_ring_of_a_writer_that_failed_is_no_end_and_the_next_one_goes_on(ring, cursor, records):
    append_many(ring, 0, records)
    assert cursor.life == "running"
    ring.close(failed=True)
    assert read_all(cursor)[-1:] == list(range(records))[-1:]  # without an END after them
    assert (cursor.life, cursor.closed_by_writer, cursor.follow()) == ("failed", False, None)
    with Ring.create(ring.region.path, CAPACITY) as second:  # its memory may be damaged
        assert (second.restarted, second.epoch, second.index) == (True, 2, records)
        assert cursor.life == "gone"
        assert read_all_until_closed(cursor, "another file has taken its place") == []
        append_many(second, records, 3)
        assert (cursor.follow(), cursor.life) == (True, "running")
        assert read_all(cursor) == [records, records + 1, records + 2]
    assert cursor.life == "finished"


@pytest.mark.parametrize("records", [0, 2, 300])
def test_ring_of_other_capacity_goes_on_with_the_log_of_the_old_one(ring, cursor, records):
    append_many(ring, 0, records)
    log, position = ring.log, ring.position
    ring.region.close()
    with Ring.create(ring.region.path, 2 * CAPACITY) as second:
        assert (second.restarted, second.epoch, second.log) == (True, 2, log)
        assert (second.index, second.position) == (records, position)
        last = read_all_until_closed(cursor, "another file has taken its place")[-1:]
        assert last == list(range(records))[-1:]
        append_many(second, records, 5)
        assert cursor.follow() is True
        assert read_all(cursor) == list(range(records, records + 5))
        assert cursor.follow() is None


@pytest.mark.parametrize("again", [0, 1, 200])
def test_follow_over_files_that_are_gone_says_exactly_what_was_missed(ring, cursor, again):
    append_many(ring, 0, 10)
    assert cursor.poll() == 10
    append_many(ring, 10, 3)  # the cursor still has the old file
    path, capacity = ring.region.path, CAPACITY
    ring.region.close()
    for _ in range(3):
        capacity *= 2
        with Ring.create(path, capacity) as between:
            append_many(between, between.index, 100)
            between.region.close()
    last = Ring.create(path, capacity)
    append_many(last, last.index, again)
    assert (cursor.poll(), cursor.follow()) == (3, True)
    assert cursor.poll() > 0
    assert cursor.lapped == int(cursor.headers[0]["index"]) - 13 > 0
    last.close()


def test_follow_into_another_log_says_so(ring, cursor):
    append_many(ring, 0, 10)
    ring.region.path.unlink()
    with Ring.create(ring.region.path, CAPACITY) as second:
        second.append(Kind.MESSAGE, payload_of(0))
        assert (cursor.poll(), cursor.poll(), second.log == ring.log) == (10, 0, False)
        assert cursor.follow() is False
        assert (cursor.poll(), cursor.index, cursor.lapped) == (1, 1, 0)


def test_follow_stays_while_there_is_something_to_read(ring, cursor):
    append_many(ring, 0, 10)
    ring.region.close()
    with Ring.create(ring.region.path, 2 * CAPACITY):
        assert cursor.follow() is None
        assert cursor.poll() == 10
        assert cursor.follow() is True


@pytest.mark.parametrize("start", ["begin", "writer", "oldest", "latest", "tail"])
@pytest.mark.parametrize("records", [0, 1, 1000])
def test_cursor_starts_in_a_file_that_goes_on_with_a_log(ring, start, records):
    append_many(ring, 0, 300)
    ring.close()
    with Ring.create(ring.region.path, 2 * CAPACITY) as second:
        append_many(second, 300, min(records, 20))
        first = {"tail": second.index, "latest": max(300, second.index - 1)}.get(start, 300)
        second.flush()
        with RingCursor.attach(second.region.path, start) as cursor:
            assert cursor.index == first
            assert cursor.poll() == second.index - first
        append_many(second, second.index, records)
        second.flush()
        with RingCursor.attach(second.region.path, "oldest") as cursor:
            assert 300 <= cursor.index <= second.index
            assert read_all(cursor)[-1:] == [second.index - 1][: second.index - 300]


def test_ring_closed_cleanly_goes_on_in_a_file_of_its_own(ring):
    append_many(ring, 0, 2)
    ring.close()
    with Ring.create(ring.region.path, CAPACITY) as second:
        assert (second.restarted, second.epoch, second.index) == (True, 2, 2)


def test_ring_not_published_leaves_the_old_one_as_it_was(ring, cursor):
    append_many(ring, 0, 2)
    ring.region.close()
    content = ring.region.path.read_bytes()
    for capacity in (CAPACITY, 2 * CAPACITY):
        Ring.create(ring.region.path, capacity, publish=False).close()
        assert ring.region.path.read_bytes() == content
    assert sorted(each.name for each in ring.region.path.parent.iterdir()) == ["ring"]


def test_ring_of_another_payload_hash_is_refused(tmp_path):
    with (
        Ring.create(tmp_path / "ring", CAPACITY, payload_hash=7),
        pytest.raises(RegionError, match=r"expected layout hash '.*', found '.*'"),
    ):
        RingCursor.attach(tmp_path / "ring", payload_hash=8)


def test_cursor_after_close_refuses_to_poll(cursor):
    cursor.close()
    with pytest.raises(ValueError, match="is closed"):
        cursor.poll()


def test_ring_after_close_refuses_to_append(ring):
    ring.close()
    with pytest.raises(ValueError, match="is closed"):
        ring.append(Kind.MESSAGE, b"")


def scribble(ring, seed, share):
    """Overwrite words of the data, as a faulty writer would."""
    rng = random.Random(seed)
    with Region.attach(ring.region.path, RING_KIND, RING_LAYOUT, writable=True) as region:
        view = region.view()
        for at in range(4096, 4096 + CAPACITY, 8):
            if rng.random() < share:
                view[at : at + 8] = rng.choice(
                    [
                        rng.randbytes(8),
                        b"\xff" * 8,
                        (64).to_bytes(8, "little"),
                        rng.randrange(CAPACITY).to_bytes(4, "little") + b"\1\0\0\0",
                    ]
                )


@pytest.mark.parametrize("seed", range(200))
def test_reader_of_scribbled_ring_stays_inside_and_says_so(ring, seed):
    append_many(ring, 0, 10)
    with RingCursor.attach(ring.region.path, start="begin") as cursor:
        ring.flush()
        scribble(ring, seed, share=0.3)
        read = []
        with pytest.raises(FormatError, match="found no valid record"):
            for _ in range(11):
                read += cursor.headers["index"][: cursor.poll(1)].tolist()
        assert read == list(range(len(read)))


def test_ring_damaged_is_replaced_not_taken_over(ring):
    append_many(ring, 0, 10)
    ring.flush()
    with Region.attach(ring.region.path, RING_KIND, RING_LAYOUT, writable=True) as region:
        at = 4096 + ring.position
        region.view()[at : at + 8] = b"\xff" * 8
    log = ring.log
    ring.region.close()
    with Ring.create(ring.region.path, CAPACITY) as second:
        assert (second.restarted, second.index, second.log != log) == (True, 0, True)


def test_ring_header_has_its_literal_offsets(ring):
    append_many(ring, 0, 9)
    ring.flush()
    words = ring.region.view()[:512].cast("Q")
    positions = [words[offset // 8] for offset in (256, 264, 272)]
    with RingCursor.attach(ring.region.path, start="latest") as cursor:
        assert positions == [cursor.position, ring.position, 9]
    assert words[128 // 8] >= ring.position + 8  # intent
    assert (words[384 // 8], words[392 // 8]) == (1, 1)  # state OPEN, epoch
    assert words[424 // 8 : 440 // 8].tobytes() == ring.log
    assert words[440 // 8 : 464 // 8].tolist() == [1, 0, 0]  # generation, first, first_index
    assert words[464 // 8 : 480 // 8].tolist() == [0, 0]  # session, names


def test_close_in_a_forked_child_leaves_the_writer_its_ring(ring, cursor):
    child = os.fork()
    if child == 0:
        ring.close()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert not cursor.closed_by_writer
    with pytest.raises(WriterExistsError):
        Ring.create(ring.region.path, CAPACITY)
    ring.append(Kind.MESSAGE, b"still its own")
    assert cursor.poll() == 1


@pytest.mark.parametrize("size", [0, 8, 100, 448])
@pytest.mark.parametrize("records", [0, 1, 5, 100, 1000, 1001, 1002])
def test_cursor_at_the_oldest_reads_all_that_is_left_in_order(tmp_path, size, records):
    with Ring.create(tmp_path, 4096) as ring:
        for number in range(records):
            ring.append(Kind.MESSAGE, number.to_bytes(8, "little") * (size // 8))
        ring.flush()
        with RingCursor.attach(tmp_path, "oldest") as cursor:
            first = cursor.index
            count = cursor.poll()
            assert cursor.headers["index"][:count].tolist() == list(range(first, records))
            # The whole ring, except for a chunk, the largest record and a PAD.
            held = 4096 - 4096 // 16 - 2 * (64 + size) - 8
            assert count >= min(records, held // (64 + size + 8))
            assert cursor.lapped == 0


def test_cursor_at_the_oldest_is_not_taken_in_by_a_payload_that_looks_like_a_record(tmp_path):
    """The search may begin within a payload that the publisher chose."""
    with Ring.create(tmp_path, 4096) as ring:
        for _ in range(200):
            # Words of 8 bytes: a commit word (64 bytes, kind MESSAGE), a position and an index.
            at = (ring.position + 64) + 8 * np.arange(48)
            fake = np.tile(np.array([64 | int(Kind.MESSAGE) << 32, 0, 0, 0, 0, 0, 0, 0], "<u8"), 6)
            fake[1::8] = at[0::8]
            ring.append(Kind.MESSAGE, fake.tobytes())
        ring.flush()
        with RingCursor.attach(tmp_path, "oldest") as cursor:
            count = cursor.poll()
            assert count > 0
            assert cursor.headers["index"][:count].tolist() == list(range(200 - count, 200))
            assert set(cursor.headers["length"][:count].tolist()) == {64 + 384}


def test_cursor_at_the_oldest_beside_a_writer_reads_on(tmp_path):
    with Ring.create(tmp_path, 1 << 14) as ring:
        enough = threading.Event()

        def write():
            while not enough.is_set():
                write_load(ring, 20_000, 0, 100)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(20):
                with RingCursor.attach(tmp_path, "oldest") as cursor:
                    result = LoadResult()
                    read_load(cursor, result, idle_polls_max=100)
                    assert (result.torn, result.skipped, result.repeated) == (0, 0, 0)
        finally:
            enough.set()
            thread.join()


def test_oldest_record_is_looked_for_within_the_ring_whatever_its_tail_says(tmp_path):
    with Ring.create(tmp_path, CAPACITY) as ring:
        append_many(ring, 0, 100)
        ring.flush()
        words = np.memmap(tmp_path / "ring", np.uint64, "r+")
        words[256 // 8 + 1] = 1 << 63
        words[4096 // 8 :] = 0
        with RingCursor.attach(tmp_path, "oldest") as cursor:
            assert cursor.poll() == 0


@pytest.mark.parametrize(("state", "capacity"), [("killed", 2 * CAPACITY), ("closed", CAPACITY)])
def test_start_that_replaces_a_ring_locks_it_only_where_starts_meet(
    tmp_path, monkeypatch, state, capacity
):
    locked = []

    def lock(fd, path):
        locked.append((path.name, (tmp_path / ".ring.next").exists()))
        return lock_existing(fd, path)

    with Ring.create(tmp_path, CAPACITY) as ring:
        if state == "killed":
            ring.region.close()
    monkeypatch.setattr("udpfast.shm.region.lock_existing", lock)
    Ring.create(tmp_path, capacity).close()
    assert locked == [("ring", True)]


def test_cursor_at_the_oldest_has_what_was_never_flushed(tmp_path):
    with Ring.create(tmp_path, 1 << 16) as ring:
        ring.append(Kind.MESSAGE, b"first")
        with RingCursor.attach(tmp_path, "oldest") as cursor:
            assert cursor.poll() == 1
            assert bytes(cursor.payload(0)) == b"first"
