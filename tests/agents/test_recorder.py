"""The recorder: from ring to journal, whatever became of it, of the ring and of the disk."""

import errno
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.client.instance import Instance
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.recorder import Recorder, _Keeping
from udpfast.archive.feed_settings import write_feed
from udpfast.cli.export import export
from udpfast.cli.verify import verify
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig, parse_feed
from udpfast.core.agent import AgentRunner
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import ConfigError, RingClosedError
from udpfast.export.segments import journal_head, journal_parts
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import journal_state
from udpfast.log.readers import list_readers
from udpfast.log.ring import Ring
from udpfast.log.segment import Segment, list_segments, segment_path
from udpfast.log.verify import unknown_losses

SEGMENT = 1 << 18
PIECE = bytes(1000)


@pytest.fixture
def instance(tmp_path):
    """Return a fresh instance, closed at the end."""
    instance = Instance(tmp_path / "feed", 1 << 22)
    yield instance
    instance.close()


def recorder_of(instance, tmp_path, **options):
    """Return a recorder into `tmp_path / "journal"`, started."""
    options = {"segment_bytes": SEGMENT, "sync_ms": 1} | options
    config = RecordConfig(directory=str(tmp_path / "journal"), **options)
    recorder = Recorder(config, instance.directory, "feed")
    recorder.on_start()
    return recorder


def drive(recorder, turns=200_000):
    """Let it work until nothing is left to do."""
    idle = 0
    for now_ns in range(turns):
        idle = 0 if recorder.work(now_ns) > 0 else idle + 1
        assert recorder.recordings[0].failure is None
        if idle > 3 and recorder.recordings[0].backlog == 0:
            return
        if idle:
            recorder.keep()
    raise AssertionError("expected an end of its work")


def numbers_of(directory):
    """Return the seqnos of a journal's records; of a LAPPED, -missed."""
    found = []
    with JournalCursor.attach(directory, follow=False) as cursor:
        while not cursor.ended:
            for i in range(cursor.poll()):
                if cursor.headers[i]["kind"] == Kind.LAPPED:
                    found.append(-int.from_bytes(cursor.payload(i)[:8], "little"))
                else:
                    found.append(int(cursor.headers[i]["number"]))
    return found


def test_recorder_keeps_what_the_ring_carries_with_names(instance, tmp_path):
    for number in range(500):
        instance.top(number, number + 1, symbol=f"S{number % 7}")
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    instance.top(1, 2, symbol="LATER")
    drive(recorder)
    recorder.on_stop()
    with Reader(instance.address, start="begin") as ring:
        expected = ring.poll()
        live = [expected.payload(i).tobytes() for i in range(len(expected))]
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        records = list(reader)
    assert [bytes(record.payload) for record in records] == live
    assert [record.symbol for record in records] == [f"S{n % 7}" for n in range(500)] + ["LATER"]
    assert [record.index for record in records] == list(range(501))


def test_recorder_started_again_goes_on_without_a_hole(instance, tmp_path):
    for part in range(5):
        for _ in range(300):
            instance.append(Kind.MESSAGE, PIECE)
        recorder = recorder_of(instance, tmp_path)
        drive(recorder)
        recorder.on_stop()
        assert numbers_of(tmp_path / "journal") == list(range(1, 300 * (part + 1) + 1))


def test_recorder_killed_before_it_noted_how_far_it_was_repeats_nothing(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    for _ in range(10):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    noted = (tmp_path / "journal" / "journal").read_bytes()
    for _ in range(10):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    image = tmp_path / "killed" / "journal"  # what the files are then
    shutil.copytree(tmp_path / "journal", image)
    (image / "journal").write_bytes(noted)
    recorder.on_stop()
    recorder = recorder_of(instance, tmp_path / "killed")
    for _ in range(10):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.on_stop()
    assert numbers_of(image) == list(range(1, 31))


def test_recorder_says_among_the_readers_how_many_records_it_took(instance, tmp_path):
    for _ in range(2):  # the second one goes on, and has not taken what the first one did
        for _ in range(300):
            instance.append(Kind.MESSAGE, PIECE)
        recorder = recorder_of(instance, tmp_path)
        drive(recorder)
        recorder.work(1_000_000_000)
        (reader,) = list_readers(instance.directory)
        assert (reader.name, reader.read, reader.lapped) == ("record", 300, 0)
        recorder.on_stop()


@pytest.mark.parametrize("what", ["away", "stopped"])
def test_recorder_that_comes_back_takes_what_the_ring_holds_and_says_what_it_missed(
    instance, tmp_path, what
):
    for _ in range(100):
        instance.append(Kind.MESSAGE, PIECE)
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    if what == "away":
        recorder.on_stop()
    for _ in range(10_000):  # comes round
        instance.append(Kind.MESSAGE, PIECE)
    instance.ring.flush()
    if what == "away":
        recorder = recorder_of(instance, tmp_path)
    recorder.work(1)
    for _ in range(100):  # before it has read on, the feed does
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.work(1_000_000_000)
    (reader,) = list_readers(instance.directory)
    assert reader.began_index + reader.read + reader.lapped == 10_200
    missed_before = recorder.recordings[0].missed_before
    recorder.on_stop()
    found = numbers_of(tmp_path / "journal")
    assert found[:100] == list(range(1, 101))
    first = 101 - found[100]
    assert found[101:] == list(range(first, 10_201))
    held = instance.ring.capacity_bytes // (len(PIECE) + 64)
    assert len(found) - 101 >= held * 3 // 4
    assert missed_before == (-found[100] if what == "away" else 0)
    assert journal_state(tmp_path / "journal").lapped == -found[100]
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        laps = [record for record in reader if record.kind is Kind.LAPPED]
    assert [lap.lapped for lap in laps] == [-found[100]]
    assert laps[0].data["reason"] == LappedReason.READER


def test_recorder_goes_on_with_another_ring_and_other_names(instance, tmp_path):
    instance.top(1, 2, symbol="OLD")
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    recorder.on_stop()
    instance.close()
    (instance.directory / "names").unlink()
    other = Instance(instance.directory, 1 << 22)
    other.top(3, 4, symbol="NEW")
    recorder = recorder_of(other, tmp_path)
    drive(recorder)
    recorder.on_stop()
    other.close()
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        assert [record.symbol for record in reader] == ["OLD", "NEW"]


def kill(instance):
    """Leave an instance as a killed writer does: the locks go, nothing is closed."""
    instance.ring.region.close()
    instance.names_region.close()


@pytest.mark.parametrize("how", ["killed", "closed", "failed"])
@pytest.mark.parametrize("capacity", [1 << 22, 1 << 23])
@pytest.mark.parametrize("more", [0, 100])
def test_recorder_behind_a_ring_that_was_replaced_says_exactly_what_it_lacks(
    instance, tmp_path, how, capacity, more
):
    recorder = recorder_of(instance, tmp_path)
    for _ in range(100):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.on_stop()
    for _ in range(300):
        instance.append(Kind.MESSAGE, PIECE)
    if how == "killed":
        kill(instance)
    else:
        instance.ring.close(failed=how == "failed")
        instance.close()
    other = Instance(instance.directory, capacity)
    other.number = other.ring.index
    for _ in range(more):
        other.append(Kind.MESSAGE, PIECE)
    recorder = recorder_of(other, tmp_path)
    drive(recorder)
    recorder.on_stop()
    other.close()
    found = numbers_of(tmp_path / "journal")
    missing = [] if how == "killed" and capacity == 1 << 22 else [-300]
    kept = list(range(1, 101)) if missing else list(range(1, 401))
    assert found == kept + missing + list(range(401, 401 + more))


def test_recorder_goes_on_in_the_ring_that_takes_the_place_of_its_own(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    for capacity in (1 << 23, 1 << 21, 1 << 22):
        for _ in range(100):
            instance.append(Kind.MESSAGE, PIECE)
        kill(instance)
        other = Instance(instance.directory, capacity)
        other.number, instance = instance.number, other
    drive(recorder)
    instance.append(Kind.MESSAGE, PIECE)
    instance.close()
    drive(recorder)
    assert recorder.recordings[0].ended
    recorder.on_stop()
    # The files between the first and the last are gone: nobody had them open.
    assert numbers_of(tmp_path / "journal") == [*range(1, 101), -200, 301]


@pytest.mark.parametrize("how", [{}, {"failed": True}, {"again": True}])
def test_recorder_ends_with_its_feed_in_whichever_way_that_ended(instance, tmp_path, how):
    recorder = recorder_of(instance, tmp_path)
    for _ in range(3):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    assert not recorder.recordings[0].ended
    instance.append(Kind.MESSAGE, PIECE)
    instance.ring.close(**how)
    drive(recorder)
    assert recorder.recordings[0].ended
    recorder.on_stop()
    assert numbers_of(tmp_path / "journal") == [1, 2, 3, 4]
    # The next feed has begun, and put out two more, when its own recorder begins.
    instance.close()
    other = Instance(instance.directory, 1 << 22)
    other.number = other.ring.index
    for _ in range(2):
        other.append(Kind.MESSAGE, PIECE)
    recorder = recorder_of(other, tmp_path)
    drive(recorder)
    other.close()
    recorder.on_stop()
    assert numbers_of(tmp_path / "journal") == [1, 2, 3, 4, 5, 6]


def test_recorder_takes_all_that_is_left_in_a_file_whose_begin_was_overwritten(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    for _ in range(100):
        instance.append(Kind.MESSAGE, PIECE)
    kill(instance)
    other = Instance(instance.directory, 1 << 18)
    other.number = instance.number
    for _ in range(1000):
        other.append(Kind.MESSAGE, PIECE)
    other.ring.flush()
    with Reader(other.address, start="oldest") as reader:
        left = [next(reader).number for _ in range(reader.lag)]
    assert 101 < left[0] < left[-1] == 1100
    drive(recorder)
    other.close()
    recorder.on_stop()
    assert numbers_of(tmp_path / "journal") == [*range(1, 101), 101 - left[0], *left]


def test_recorder_says_what_a_log_lacks_before_it_goes_on_with_another(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    for capacity in (1 << 23, 1 << 21):
        for _ in range(100):
            instance.append(Kind.MESSAGE, PIECE)
        kill(instance)
        other = Instance(instance.directory, capacity)
        other.number, instance = instance.number, other
    drive(recorder)  # it lacks what the file between had
    kill(instance)
    (instance.directory / "ring").unlink()
    other = Instance(instance.directory, 1 << 22)
    other.append(Kind.MESSAGE, PIECE)
    recorder.work(1 << 40)  # it looks for another file now and then
    drive(recorder)
    recorder.on_stop()
    other.close()
    assert numbers_of(tmp_path / "journal") == [*range(1, 101), -100, -1, 1]
    journal = tmp_path / "journal"
    begins = [
        Segment.open(segment_path(journal, number)).info().source_index
        for number in list_segments(journal)
    ]
    assert begins == [0, 0]


@pytest.mark.parametrize("complete", [False, True])
def test_recorder_of_another_log_says_that_nobody_knows_what_is_missing(
    instance, tmp_path, complete
):
    recorder = recorder_of(instance, tmp_path)
    for _ in range(100):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    if complete:
        instance.close()
        drive(recorder)
    recorder.on_stop()
    instance.close()
    shutil.rmtree(instance.directory)  # the host begins anew
    other = Instance(instance.directory, 1 << 22)
    other.append(Kind.MESSAGE, PIECE)
    recorder = recorder_of(other, tmp_path)
    drive(recorder)
    recorder.on_stop()
    other.close()
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        said = [record.data["reason"] for record in reader if record.kind is Kind.LAPPED]
    assert said == [] if complete else [LappedReason.UNKNOWN]
    assert unknown_losses(tmp_path / "journal") == (0 if complete else 1)
    checked = CliRunner().invoke(verify, [str(tmp_path / "journal")])
    assert ("once an unknown number of records" in checked.output) is not complete
    out = [str(tmp_path / "journal"), str(tmp_path / "out")]
    exported = CliRunner().invoke(export, out)
    assert (" 0 + ? lost" in exported.output) is not complete
    assert numbers_of(tmp_path / "journal")[100:] == ([] if complete else [-1]) + [1]


def test_recorder_of_a_journal_of_which_nothing_can_be_read_says_so(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.on_stop()
    for name in ("journal", "00000001.segment"):
        (tmp_path / "journal" / name).write_bytes(bytes(8192))
    recorder = recorder_of(instance, tmp_path)
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.on_stop()
    assert numbers_of(tmp_path / "journal") == [-1, 1, 2]


@pytest.mark.parametrize("behind", [False, True])
def test_recorder_takes_the_names_of_the_writer_that_comes_next(instance, tmp_path, behind):
    recorder = recorder_of(instance, tmp_path)
    instance.top(1, 2, symbol="OLD")
    if not behind:
        drive(recorder)
    kill(instance)
    (instance.directory / "names").unlink()
    other = Instance(instance.directory, 1 << 22)
    assert other.ring.restarted
    other.ring.announce_restart(1)
    other.top(3, 4, symbol="NEW")
    drive(recorder)
    recorder.on_stop()
    other.close()
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        found = [record.symbol for record in reader if record.kind is Kind.TOP_OF_BOOK]
    assert found[-1] == "NEW"
    assert found == ["OLD", "NEW"]


def test_recorder_ends_when_the_ring_is_closed_and_read(instance, tmp_path):
    config = RecordConfig(directory=str(tmp_path / "journal"), segment_bytes=SEGMENT)
    for _ in range(1000):
        instance.append(Kind.MESSAGE, PIECE)
    runner = AgentRunner(Recorder(config, instance.directory, "feed"))
    runner.start()
    instance.ring.close()
    assert runner.join(PATIENCE_S)
    assert numbers_of(tmp_path / "journal") == list(range(1, 1001))
    state = journal_state(tmp_path / "journal")
    assert state.closed and state.synced_index == 1000


def test_recorder_that_syncs_each_batch_takes_no_other_before(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path, sync="batch")
    recorder.on_stop()
    recorder = recorder_of(instance, tmp_path, sync="batch", sync_ms=3_600_000)
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.on_stop()
    assert journal_state(tmp_path / "journal").synced_index == 1


def test_reader_up_to_a_time_ends_though_nothing_later_comes(instance, tmp_path):
    for number in range(500):
        instance.top(number, number + 1)
    recorder = recorder_of(instance, tmp_path)
    end_ns = realtime_ns()
    with Reader(f"journal:{tmp_path / 'journal'}", end=end_ns) as reader:
        drive(recorder)
        assert len(reader.poll()) == 500
        looks = 0

        def has_ended():
            nonlocal looks
            looks += 60_000_000
            recorder.work(10**12 + looks)
            recorder.keep()
            try:
                assert len(reader.poll(timeout=0.01)) == 0
            except RingClosedError:
                return True

        wait_until(has_ended, "the end of the part")
        assert realtime_ns() - end_ns >= 200_000_000  # some might have been on their way
    recorder.on_stop()


def test_reader_up_to_a_time_waits_for_what_is_not_in_the_journal_yet(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    for number in range(100):
        instance.top(number, number + 1)
    with Reader(f"journal:{tmp_path / 'journal'}", end=realtime_ns()) as reader:
        for _ in range(10):
            recorder.keep()
            assert len(reader.poll(timeout=0.05)) == 0
        drive(recorder)
        assert len(reader.poll()) == 100
    recorder.on_stop()


def test_recorder_begins_a_new_segment_when_its_time_is_over(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path, segment_s=1)
    for hour in range(3):
        instance.append(Kind.MESSAGE, PIECE)
        for _ in range(10):
            recorder.keep()
            recorder.work(hour * 10_000_000_000_000_000)
    recorder.on_stop()
    assert len(list_segments(tmp_path / "journal")) == 3
    assert numbers_of(tmp_path / "journal") == [1, 2, 3]


def test_recorder_ends_a_segment_when_its_time_is_over_though_nothing_comes(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path, segment_s=1)
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.recordings[0].journal.sync(1)
    for second in range(10):
        recorder.keep()
        recorder.work(second * 1_000_000_000 + monotonic_ns())
    wait_until(lambda: not recorder.recordings[0].journal.ending, "the segment sealed")
    journal = tmp_path / "journal"
    assert [part.finished for part in journal_parts(journal)] == [True]
    assert list_segments(journal) == [1, 2]  # one that waits, and no more
    recorder.on_stop()


def test_recorder_counts_a_segment_s_time_from_its_first_record(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path, segment_s=100)
    begin_ns = monotonic_ns()
    for second in (0, 1, 300, 500, 501, 598):
        if second not in (0, 300):
            instance.append(Kind.MESSAGE, PIECE)
        recorder.keep()
        recorder.work(begin_ns + second * 1_000_000_000)
        recorder.keep()
    recorder.on_stop()
    assert numbers_of(tmp_path / "journal") == [1, 2, 3, 4]
    assert list_segments(tmp_path / "journal") == [1, 2]


def test_journal_not_synced_any_more_is_read_to_its_end(instance, tmp_path):
    for sync in ("interval", "none"):
        recorder = recorder_of(instance, tmp_path, sync=sync)
        instance.append(Kind.MESSAGE, PIECE)
        drive(recorder)
        if sync == "interval":
            recorder.on_stop()
    assert journal_head(tmp_path / "journal").index == 2
    recorder.on_stop()


def test_recorder_keeps_no_more_bytes_than_it_may(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path, keep_bytes=4 * SEGMENT)
    for _ in range(20):
        for _ in range(200):
            instance.append(Kind.MESSAGE, PIECE)
        drive(recorder)
    recorder.on_stop()
    found = numbers_of(tmp_path / "journal")
    assert found[-1] == 4000 and found == list(range(found[0], 4001)) and found[0] > 1
    assert journal_state(tmp_path / "journal").removed > 5


def test_recorder_with_a_lower_limit_than_before_says_what_it_removes(instance, tmp_path, capfd):
    recorder = recorder_of(instance, tmp_path)
    for _ in range(20):
        for _ in range(200):
            instance.append(Kind.MESSAGE, PIECE)
        drive(recorder)
    recorder.on_stop()
    recorder = recorder_of(instance, tmp_path, keep_bytes=4 * SEGMENT)
    drive(recorder)
    recorder.on_stop()
    removed = journal_state(tmp_path / "journal").removed
    assert removed > 5
    said = capfd.readouterr().err
    assert f"{tmp_path}/journal: removed the {removed} oldest segments" in said
    assert said.count("removed") == 1 and "record.keep_bytes = 1,048,576" in said


def test_recorder_writes_into_no_journal_of_another_feed(instance, tmp_path):
    lines = [{"name": "A", "address": "127.0.0.1:9001"}]
    write_feed(parse_feed({"name": "feed", "incremental": {"lines": lines}}), instance.directory)
    recorder_of(instance, tmp_path).on_stop()
    config = RecordConfig(directory=str(tmp_path / "journal"))
    other = Recorder(config, instance.directory, "twin")
    with pytest.raises(ConfigError, match=r"a journal of twin, .* is one of the feed feed"):
        other.on_start()
    recorder_of(instance, tmp_path).on_stop()


def test_recorder_of_records_and_raw_keeps_one_limit(instance, tmp_path):
    capture = Ring.create(instance.directory / "capture", 1 << 22)
    limit = 1 << 23
    recorder = recorder_of(instance, tmp_path, keep_bytes=limit, what="both", segment_bytes=1 << 22)
    for _ in range(30):
        for _ in range(200):
            instance.append(Kind.MESSAGE, PIECE)
            capture.append(Kind.DATAGRAM, PIECE)
        capture.flush()
        drive(recorder)
        kept = sum(path.stat().st_blocks * 512 for path in (tmp_path / "journal").rglob("*"))
        assert kept < limit + (1 << 17)  # and what says whose they are
    recorder.on_stop()
    capture.close()
    found = numbers_of(tmp_path / "journal")
    assert found[-1] == 6000 and found == list(range(found[0], 6001)) and found[0] > 1
    assert journal_state(tmp_path / "journal" / "raw").removed > 1


def test_recorder_on_a_full_disk_seals_what_waits_before_it_drops(instance, tmp_path, small_disk):
    recorder = recorder_of(instance, small_disk, full="oldest", sync_ms=3_600_000)
    fill_disk(instance, recorder)
    drive(recorder)
    assert not recorder.recordings[0].dropping
    recorder.on_stop()
    assert journal_state(small_disk / "journal").dropped == 0


@pytest.mark.parametrize("damage", ["deleted", "zeroed"])
def test_recorder_without_the_file_journal_repeats_nothing(instance, tmp_path, damage):
    for number in range(3):
        for _ in range(200):
            instance.append(Kind.MESSAGE, PIECE)
        recorder = recorder_of(instance, tmp_path)
        drive(recorder)
        recorder.on_stop()
        path = tmp_path / "journal" / "journal"
        path.unlink() if damage == "deleted" else path.write_bytes(bytes(8192))
        assert numbers_of(tmp_path / "journal") == list(range(1, 200 * (number + 1) + 1))


def test_recorder_of_a_relative_directory_records_all_below_it(instance, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "elsewhere"))
    capture = Ring.create(instance.directory / "capture", 1 << 22)
    recorder = Recorder(RecordConfig(directory="./kept", what="both"), instance.directory, "feed")
    recorder.on_start()
    recorder.on_stop()
    capture.close()
    assert (tmp_path / "kept" / "journal").exists()
    assert (tmp_path / "kept" / "raw" / "journal").exists()
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def small_disk(tmp_path):
    """Return a file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"mounting a small file system: {done.stderr}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill_disk(instance, recorder, rounds=20):
    """Publish more than the disk holds; the ring never waits."""
    for _ in range(rounds):
        for _ in range(200):
            instance.append(Kind.MESSAGE, PIECE)
        for now_ns in range(30):
            recorder.work(now_ns)
            recorder.keep()


def test_recorder_on_a_full_disk_stops_and_goes_on_when_there_is_room(
    instance, tmp_path, small_disk
):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    instance.append(Kind.MESSAGE, PIECE)
    with pytest.raises(OSError, match="No space left"):
        config = RecordConfig(
            directory=str(small_disk / "journal"), segment_bytes=SEGMENT, full="stop"
        )
        runner = AgentRunner(Recorder(config, instance.directory, "feed"))
        with runner:
            for _ in range(1000):
                instance.append(Kind.MESSAGE, PIECE)
            runner.join(PATIENCE_S)
    kept = numbers_of(small_disk / "journal")
    assert kept == list(range(1, len(kept) + 1)) and 0 < len(kept) < 1001
    ballast.unlink()
    recorder = recorder_of(instance, small_disk)
    drive(recorder)
    recorder.on_stop()
    assert numbers_of(small_disk / "journal")[: len(kept) + 10] == list(range(1, len(kept) + 11))


def test_recorder_on_a_full_disk_drops_counts_and_goes_on(instance, tmp_path, small_disk):
    recorder = recorder_of(instance, small_disk, full="drop")
    fill_disk(instance, recorder)
    assert recorder.recordings[0].dropping and recorder.recordings[0].backlog == 0
    assert recorder.recordings[0].journal.remove_oldest()
    assert recorder.recordings[0].journal.remove_oldest()
    published = instance.number
    instance.append(Kind.MESSAGE, PIECE)
    # The keeper tries again after a while; then the first word is what is missing.
    while recorder.recordings[0].dropping:
        recorder.keep()
    drive(recorder)
    recorder.on_stop()
    found = numbers_of(small_disk / "journal")
    assert found[-2:] == [-journal_state(small_disk / "journal").dropped, published + 1]
    assert found[-3] - found[-2] == published and min(found[:-2]) > 0


def test_recorder_on_a_full_disk_removes_the_oldest(instance, tmp_path, small_disk):
    recorder = recorder_of(instance, small_disk, full="oldest")
    fill_disk(instance, recorder)
    drive(recorder)
    recorder.on_stop()
    found = numbers_of(small_disk / "journal")
    assert found == list(range(found[0], instance.number + 1)) and found[0] > 1
    assert journal_state(small_disk / "journal").dropped == 0


def test_recorder_on_a_failing_disk_removes_nothing(instance, tmp_path, monkeypatch):
    recorder = recorder_of(instance, tmp_path, full="oldest")
    for _ in range(3):
        for _ in range(200):
            instance.append(Kind.MESSAGE, PIECE)
        drive(recorder)
    with monkeypatch.context() as patches:
        patches.setattr("udpfast.log.journal.SegmentFace", BrokenDisk)
        while not recorder.recordings[0].dropping:
            instance.append(Kind.MESSAGE, PIECE)
            recorder.work(1)
            recorder.keep()
        assert recorder.recordings[0].journal.state().removed == 0
    while recorder.recordings[0].dropping:
        recorder.keep()
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.on_stop()
    found = numbers_of(tmp_path / "journal")
    assert found[0] == 1 and journal_state(tmp_path / "journal").removed == 0
    assert sum(max(1, -number) for number in found) == instance.number


class BrokenDisk:
    @staticmethod
    def prepare(path, capacity_bytes):
        raise OSError(errno.EIO, "Input/output error", str(path))


def test_recorder_on_a_stalled_disk_never_waits_and_counts_what_it_missed(
    instance, tmp_path, monkeypatch
):
    moves, look = threading.Event(), _Keeping.look

    def stall(self, now_ns):
        moves.wait(PATIENCE_S)  # as a sync may: the keeper's thread waits for the disk
        look(self, now_ns)

    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    monkeypatch.setattr(_Keeping, "look", stall)
    while recorder.recordings[0].cursor.lapped_total == 0:
        for _ in range(100):
            instance.append(Kind.MESSAGE, PIECE)
        recorder.work(1)  # the live path and this thread go on
        if recorder.recordings[0].backlog > 10_000:  # more than the ring holds
            moves.set()
    drive(recorder)
    recorder.on_stop()
    found = numbers_of(tmp_path / "journal")
    (missed,) = (-number for number in found if number < 0)
    state = journal_state(tmp_path / "journal")
    assert (state.lapped, state.dropped) == (missed, 0)
    assert len(found) - 1 + missed == instance.number


@pytest.mark.parametrize("sync", ["interval", "batch"])
def test_recorder_whose_syncs_fail_says_so_and_records_on(instance, tmp_path, sync):
    recorder = recorder_of(instance, tmp_path, full="drop", sync=sync)
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    recorder.keep()
    # No disk fails on demand; a descriptor that cannot be synced stands for one that does.
    with Path("/dev/null").open("wb") as null:
        os.dup2(null.fileno(), _descriptor_of(tmp_path / "journal" / "00000001.segment"))
    for _ in range(10):
        instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    while not recorder.recordings[0].journal.failed:
        recorder.keep()
    instance.append(Kind.MESSAGE, PIECE)
    drive(recorder)
    state = recorder.recordings[0].journal.state()
    assert state.sync_errors > 0 and recorder.recordings[0].journal.failed
    # The keeper's thread may have synced the one that came before the disk failed.
    assert state.index == 12 and state.synced_index <= 1
    with pytest.raises(OSError, match="sync"):
        recorder.on_stop()
    assert numbers_of(tmp_path / "journal") == list(range(1, 13))


def _descriptor_of(path):
    for each in Path("/proc/self/fd").iterdir():
        if each.exists() and each.resolve() == path:
            return int(each.name)
    raise AssertionError(f"expected {path} to be open")


def test_recorder_of_raw_capture_needs_a_capture_ring(instance, tmp_path):
    with pytest.raises(FileNotFoundError):
        recorder_of(instance, tmp_path, what="both")
    capture = Ring.create(instance.directory / "capture", 1 << 20)
    capture.append(Kind.DATAGRAM, bytes(16) + b"datagram")
    recorder = recorder_of(instance, tmp_path, what="both")
    capture.close()
    instance.ring.close()
    while recorder.work(1) >= 0:
        recorder.keep()
    recorder.on_stop()
    assert journal_state(tmp_path / "journal" / "raw").index == 1
