"""History, then live: a ring's records from its journal and then from the ring, each once."""

import shutil

import pytest

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from udpfast.agents.feed.recorder import Recorder
from udpfast.client import appearing
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import Kind, LappedReason, Stream
from udpfast.errors import ConfigError, NotReadyError, RegionError
from udpfast.log.journal import Journal
from udpfast.log.segment import list_segments, segment_file_bytes, segment_path
from udpfast.market.updates import LAYOUTS

START_NS = 1_800_000_000_000_000_000


@pytest.fixture
def instance(tmp_path):
    """Return a fresh instance whose ring is soon overwritten, closed at the end."""
    instance = Instance(tmp_path / "feed", 1 << 20)
    yield instance
    instance.close()


def publish(instance, first, count):
    """Publish records with their number as contents, one per nanosecond."""
    for number in range(first, first + count):
        instance.ring.append(
            Kind.MESSAGE, b"%08d" % number + bytes(1000), published_ns=START_NS + number
        )
    instance.ring.flush()


def record(instance, tmp_path, **options):
    """Record all records that are in the ring now."""
    recorder = recorder_of(instance, tmp_path, **options)
    drive(recorder)
    return recorder


def numbers(reader, count):
    """Return the numbers of the next records."""
    found = []
    while len(found) < count:
        batch = reader.poll(timeout=5)
        assert batch.lapped == 0 and len(batch)
        found += [int(bytes(batch.payload(i))[:8]) for i in range(len(batch))]
    return found


def test_ring_from_a_time_begins_in_its_journal(instance, tmp_path):
    recorder = None
    for first in range(0, 3000, 500):  # three times what the ring holds
        publish(instance, first, 500)
        recorder = recorder or recorder_of(instance, tmp_path)
        drive(recorder)
    with Reader(instance.address, start=START_NS + 100) as reader:
        assert numbers(reader, 2900) == list(range(100, 3000))
        assert reader.origin.startswith("journal:")
        publish(instance, 3000, 10)  # not recorded yet
        assert numbers(reader, 10) == list(range(3000, 3010))
        assert reader.origin == instance.address and reader.lapped == 0
        drive(recorder)
        publish(instance, 3010, 10)
        assert numbers(reader, 10) == list(range(3010, 3020))
    recorder.on_stop()


def test_ring_from_a_time_has_what_is_not_recorded_yet(instance, tmp_path):
    publish(instance, 0, 100)
    recorder = record(instance, tmp_path)
    publish(instance, 100, 100)
    with Reader(instance.address, start=START_NS + 150) as reader:
        assert numbers(reader, 50) == list(range(150, 200))
    recorder.on_stop()


def test_ring_from_a_time_says_what_neither_has(instance, tmp_path):
    publish(instance, 0, 100)
    record(instance, tmp_path).on_stop()
    publish(instance, 100, 2000)  # nobody records
    with Reader(instance.address, start=START_NS) as reader:
        assert numbers(reader, 100) == list(range(100))
        batch = reader.poll(timeout=5)
        first = int(bytes(batch.payload(0))[:8])
        assert batch.lapped == first - 100 > 0


def test_ring_from_a_time_goes_on_in_a_journal_that_is_far_ahead(instance, tmp_path):
    publish(instance, 0, 500)
    recorder = record(instance, tmp_path)
    with Reader(instance.address, start=START_NS, batch=100) as reader:
        assert numbers(reader, 100) == list(range(100))
        for first in range(500, 2500, 500):
            publish(instance, first, 500)
            drive(recorder)
        assert numbers(reader, 2400) == list(range(100, 2500))
        assert reader.lapped == 0
    recorder.on_stop()


def test_ring_from_a_time_before_all_there_is_says_what_is_missing(instance, tmp_path):
    publish(instance, 0, 2000)  # the first of them are overwritten before anybody records them
    recorder = record(instance, tmp_path)
    with Reader(instance.address, start=START_NS) as reader:
        batch = reader.poll(timeout=5)
        assert batch.lapped == int(bytes(batch.payload(0))[:8]) > 0
    with Reader(instance.address, start=START_NS + 1990) as reader:
        assert numbers(reader, 10) == list(range(1990, 2000))
    recorder.on_stop()


def test_ring_from_a_time_says_all_that_is_missing_where_the_journal_has_no_record(
    instance, tmp_path
):
    publish(instance, 0, 2000)
    recorder_of(instance, tmp_path).on_stop()  # knows only where it would begin
    instance.ring.region.close()
    instance.names_region.close()
    other = Instance(instance.directory, 1 << 21)
    recorder_of(other, tmp_path).on_stop()  # says what is missing from there on
    publish(other, 2000, 5)
    with Reader(other.address, start="2000-01-01T00:00Z") as reader:
        batch = reader.poll(timeout=5)
        assert (batch.lapped, int(bytes(batch.payload(0))[:8])) == (2000, 2000)
    other.close()


def test_ring_from_a_later_time_waits_for_it(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    with Reader(instance.address, start=START_NS + 15) as reader:
        publish(instance, 10, 3)
        assert len(reader.poll(timeout=0)) == 0
        drive(recorder)
        publish(instance, 13, 7)
        assert numbers(reader, 5) == list(range(15, 20))
        publish(instance, 3, 1)  # the clock was set back
        assert numbers(reader, 1) == [3] and reader.lapped == 0
    recorder.on_stop()


def test_ring_from_a_much_later_time_says_so(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    said = r"2027-01-16T08:00:00.000000000Z, but .* 2027-01-15T08:00:00.000000009Z"
    for address in (instance.address, both(instance, tmp_path)[0]):
        with (
            pytest.warns(RuntimeWarning, match=said),
            Reader(address, start="2027-01-16T08:00Z") as reader,
        ):
            publish(instance, 0, 1)
            drive(recorder)
            assert len(reader.poll(timeout=0)) == 0
    recorder.on_stop()
    instance.ring.close()
    for address in (instance.address, both(instance, tmp_path)[0]):
        with pytest.raises(ConfigError, match=r"nothing from 2027-01-16T08:00:00.0+Z"):
            Reader(address, start="2027-01-16T08:00Z")


def test_ring_from_a_time_without_a_journal_is_refused(instance):
    with pytest.raises(ConfigError, match="no journal has its records"):
        Reader(instance.address, start=START_NS)


def test_journal_and_its_own_ring_give_each_record_once(instance, tmp_path):
    publish(instance, 0, 300)
    recorder = record(instance, tmp_path)
    addresses = [f"journal:{tmp_path / 'journal'}", instance.address]
    for order in (addresses, addresses[::-1]):
        with Reader(order) as reader:
            assert numbers(reader, 300) == list(range(300))
            assert reader.origin == addresses[0]
    with Reader(addresses) as reader:
        publish(instance, 300, 10)
        assert numbers(reader, 310) == list(range(310))
        assert reader.origin == addresses[1]
    recorder.on_stop()


def test_journal_that_went_on_with_another_ring_is_not_this_one_s(instance, tmp_path):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    other = Instance(tmp_path / "other", 1 << 20)
    config = RecordConfig(directory=str(tmp_path / "journal"), segment_bytes=1 << 18)
    recorder = Recorder(config, other.directory, "other")
    recorder.on_start()
    publish(other, 0, 10)
    drive(recorder)
    recorder.on_stop()
    with pytest.raises(ConfigError, match="no journal has its records"):
        Reader(instance.address, start=START_NS)
    other.close()


def test_ring_from_a_time_follows_it_into_a_file_with_larger_records(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    with Reader(instance.address, start=START_NS, batch=4, buffer_bytes=1) as reader:
        assert numbers(reader, 10) == list(range(10))
        publish(instance, 10, 1)
        assert numbers(reader, 1) == [10]  # it went over to the ring
        instance.names_region.close()
        instance.ring.region.close()
        other = Instance(instance.directory, 1 << 22)
        large = b"%08d" % 11 + bytes(range(256)) * (other.ring.payload_max // 256 - 1)
        assert len(large) > instance.ring.payload_max
        other.ring.append(Kind.MESSAGE, large, published_ns=START_NS + 11)
        publish(other, 12, 10)
        found = []
        while len(found) < 11:
            found += [record for record in [next(reader)] if record.stream != Stream.NONE]
        assert bytes(found[0].payload) == large
        assert [int(bytes(each.payload)[:8]) for each in found] == list(range(11, 22))
        other.close()
    recorder.on_stop()


def read_all(address, **options):
    """Return the numbers of all current records, and how many are reported missing."""
    with Reader(address, **options) as reader:
        found = []
        while reader.wait(0):
            record = next(reader)
            found += [int(bytes(record.payload)[:8])] if record.kind is Kind.MESSAGE else []
        return found, reader.lapped


def both(instance, tmp_path):
    return [f"journal:{tmp_path / 'journal'}", instance.address]


def test_journal_that_is_empty_at_first_belongs_to_its_ring(instance, tmp_path):
    recorder = recorder_of(instance, tmp_path)
    with (
        Reader(both(instance, tmp_path)) as listed,
        Reader(instance.address, start=START_NS) as timed,
    ):
        publish(instance, 0, 100)
        drive(recorder)
        for reader in (listed, timed):
            assert numbers(reader, 100) == list(range(100))
            assert not reader.wait(0)
    recorder.on_stop()


def test_journal_that_is_empty_yet_says_where_it_begins(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = recorder_of(instance, tmp_path)  # will have these, and has none of them yet
    instance.ring.region.close()
    instance.names_region.close()
    other = Instance(instance.directory, 1 << 21)
    publish(other, 10, 5)
    with Reader(both(other, tmp_path), start="begin") as reader:
        batch = reader.poll(timeout=5)
        assert (batch.lapped, int(bytes(batch.payload(0))[:8])) == (10, 10)
    recorder.on_stop()
    other.close()


@pytest.mark.filterwarnings("ignore:.*its writer .* has ended")
@pytest.mark.parametrize("start", [None, "oldest", "begin", START_NS, ("position", 0)])
def test_feed_and_recorder_that_were_stopped_leave_each_record_once(instance, tmp_path, start):
    publish(instance, 0, 1500)
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    instance.ring.close()
    while recorder.work(0) >= 0 and not recorder.recordings[0].ended:
        pass
    recorder.on_stop()
    first = read_all(f"journal:{tmp_path / 'journal'}")[0][0]
    lost = first if start == START_NS else 0  # of those only a time asks for
    expected = (list(range(first, 1500)), lost)
    assert read_all(both(instance, tmp_path), start=start) == expected
    if start == START_NS:
        assert read_all(instance.address, start=start) == expected


def test_ring_goes_on_at_its_oldest_record_where_the_journal_ends_before(instance, tmp_path):
    publish(instance, 0, 100)
    record(instance, tmp_path).on_stop()
    publish(instance, 100, 2000)
    left, _ = read_all(instance.address, start="oldest")
    expected = ([*range(100), *left], left[0] - 100)
    assert left[-1] == 2099 and read_all(both(instance, tmp_path)) == expected


def test_damage_at_the_end_of_a_journal_is_made_good_by_the_ring(instance, tmp_path):
    publish(instance, 0, 100)
    recorder = record(instance, tmp_path)
    path = segment_path(tmp_path / "journal", list_segments(tmp_path / "journal")[-1])
    with path.open("r+b") as segment:
        at = segment.read().index(b"%08d" % 95)
        segment.seek(at)
        segment.write(bytes(2000))
    assert read_all(f"journal:{tmp_path / 'journal'}")[0][:96] != list(range(96))
    assert read_all(both(instance, tmp_path)) == (list(range(100)), 0)
    recorder.on_stop()


def test_damage_in_a_journal_does_not_hide_what_a_reader_of_its_ring_lacks(tmp_path):
    instance = Instance(tmp_path / "small", 1 << 15)  # so that one entry counts the whole segment
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    with Reader(both(instance, tmp_path), start="tail") as reader:
        for first in (10, 210):
            publish(instance, first, 200)  # the first of them are overwritten
            drive(recorder)
        with segment_path(tmp_path / "journal", 1).open("r+b") as segment:
            at = segment.read().index(b"%08d" % 5)
            segment.seek(at)
            segment.write(b"damage")
        batch = reader.poll(timeout=5)
        assert 100 < batch.lapped == int(bytes(batch.payload(0))[:8]) - 10 < 200
    recorder.on_stop()
    instance.close()


def test_ring_has_what_a_recorder_lacks_also_behind_damage(tmp_path):
    instance = Instance(tmp_path / "small", 1 << 15)
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    publish(instance, 10, 200)  # the first of them are overwritten
    drive(recorder)  # it goes on amid what is left
    with segment_path(tmp_path / "journal", 1).open("r+b") as segment:
        at = segment.read().index(b"%08d" % 5)
        segment.seek(at)
        segment.write(b"damage")
    left, _ = read_all(instance.address, start="oldest")
    recorded, _ = read_all(f"journal:{tmp_path / 'journal'}")
    assert len(left) > len([each for each in recorded if each >= 10])
    expected = [*range(5), *range(6, 10), *left], 1 + left[0] - 10
    assert read_all(both(instance, tmp_path)) == expected
    recorder.on_stop()
    instance.close()


@pytest.mark.parametrize("start", [START_NS, "begin"])
def test_journal_lost_before_it_is_read_is_made_good_by_the_ring(instance, tmp_path, start):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    with Reader(both(instance, tmp_path), start=start) as reader:
        shutil.rmtree(tmp_path / "journal")
        record(instance, tmp_path).on_stop()
        assert numbers(reader, 10) == list(range(10))


def test_journal_lost_before_it_is_read_is_made_good_though_none_of_it_could_be(instance, tmp_path):
    for first in (0, 3):
        publish(instance, first, 3)
        record(instance, tmp_path).on_stop()  # a segment each
    with segment_path(tmp_path / "journal", 1).open("r+b") as segment:
        segment.seek(segment_file_bytes(1 << 18) - (1 << 18))
        segment.write(b"damage" * 540)
    with Reader(both(instance, tmp_path), start=("position", 0)) as reader:
        shutil.rmtree(tmp_path / "journal")
        publish(instance, 6, 4)
        assert numbers(reader, 10) == list(range(10))


def test_journal_moved_away_before_it_is_read_from_amid_it_is_made_good_by_the_ring(
    instance, tmp_path
):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        position = int(reader.poll().headers["position"][5])
    with Reader(both(instance, tmp_path), start=("position", position)) as reader:
        (tmp_path / "journal").rename(tmp_path / "away")
        publish(instance, 10, 5)
        with pytest.warns(UserWarning, match="names of instruments are not known"):
            assert numbers(reader, 10) == list(range(5, 15))


@pytest.mark.parametrize("timed", [False, True])
def test_journal_whose_file_was_made_anew_belongs_to_its_ring(instance, tmp_path, timed):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    (tmp_path / "journal" / "journal").unlink()
    recorder = recorder_of(instance, tmp_path)  # it has not recorded anything yet
    address = instance.address if timed else both(instance, tmp_path)
    assert read_all(address, start=START_NS) == (list(range(10)), 0)
    recorder.on_stop()


@pytest.mark.parametrize("content", [None, b"damage"])
@pytest.mark.parametrize("timed", [False, True])
def test_journal_without_its_file_is_not_read_as_another_feed(instance, tmp_path, timed, content):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    file = tmp_path / "journal" / "journal"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o600)
    address = instance.address if timed else both(instance, tmp_path)
    with pytest.raises(RegionError, match=r"the file `journal` .*, found .* --repair` "):
        Reader(address, start=START_NS)
    Journal.open(tmp_path / "journal", LAYOUTS).close()  # repairs it
    assert read_all(address, start=START_NS) == (list(range(10)), 0)


def test_journal_of_another_feed_without_its_file_is_read_beside_a_ring(instance, tmp_path):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    (tmp_path / "journal" / "journal").unlink()
    other = Instance(tmp_path / "other", 1 << 15)
    publish(other, 10, 1)
    with Reader(both(other, tmp_path), start="begin") as reader:
        assert sorted(numbers(reader, 11)) == list(range(11))
    other.close()


@pytest.mark.parametrize("start", [START_NS, "begin"])
def test_journal_of_a_lost_ring_is_its_feed_s_though_its_last_segment_is_damaged(tmp_path, start):
    instance = Instance(tmp_path / "feed", 1 << 15)
    for first in (0, 5):
        publish(instance, first, 5)
        record(instance, tmp_path).on_stop()  # a segment each
    with segment_path(tmp_path / "journal", 2).open("r+b") as segment:
        segment.write(b"damage")
    instance = lose_ring(instance)
    publish(instance, 10, 5)
    with Reader(both(instance, tmp_path), start=start) as reader:
        found, missing = read_on(reader, 14)
        assert found == [*range(5), *range(10, 15)] and missing > 0
        recorder = record(instance, tmp_path)
        publish(instance, 15, 5)
        drive(recorder)
        assert read_on(reader, 19) == (list(range(15, 20)), 0)
        recorder.on_stop()
    instance.close()


def lose_count(instance, tmp_path, recorder=None):
    """Record so that damage in the first of two segments hides how many records it stands for.

    A recorder has the first 10 records already.
    """
    if recorder is None:
        publish(instance, 0, 10)
        recorder = record(instance, tmp_path)
    publish(instance, 10, 190)  # the first of them are overwritten
    drive(recorder)
    recorder.on_stop()
    with segment_path(tmp_path / "journal", 1).open("r+b") as segment:
        content = segment.read()
        for number, size in (9, 1200), (199, 6):  # how many, and where to count back from
            segment.seek(content.index(b"%08d" % number))
            segment.write(bytes(size))


def read_on(reader, until):
    """Read until a record; return the numbers of all, and how many are missing."""
    found, missing = [], 0
    while not found or found[-1] < until:
        batch = reader.poll(timeout=5)
        missing += batch.lapped
        found += [int(bytes(batch.payload(i))[:8]) for i in range(len(batch))]
    return found, missing


def read_while_it_is_lost(instance, tmp_path):
    """Read on while the journal is lost; return `read_on` before and behind, and all missed."""
    publish(instance, 200, 5)
    record(instance, tmp_path).on_stop()
    with Reader(both(instance, tmp_path), start="begin", batch=1) as reader:
        before = read_on(reader, 197)
        shutil.rmtree(tmp_path / "journal")
        return before, read_on(reader, 204), reader.lapped


def test_ring_goes_on_behind_a_lost_journal_whose_damage_hides_the_count(tmp_path):
    instance = Instance(tmp_path / "small", 1 << 15)
    lose_count(instance, tmp_path)
    (before, missing), (found, more), lapped = read_while_it_is_lost(instance, tmp_path)
    found = before + found
    assert found == sorted(set(found)) and found[-7:] == list(range(198, 205))
    assert missing + more == 205 - len(found) == lapped
    instance.close()


def lose_ring(instance):
    """Lose the ring of a killed feed, and its names; return the next feed's instance."""
    instance.ring.region.close()
    instance.names_region.close()
    (instance.directory / "ring").unlink()
    return Instance(instance.directory, 1 << 15)


def test_ring_is_not_read_again_behind_damage_that_hides_the_count(tmp_path):
    instance = Instance(tmp_path / "small", 1 << 15)
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    with Reader(both(instance, tmp_path), start="begin", batch=1) as reader:
        lose_count(instance, tmp_path, recorder)
        instance = lose_ring(instance)
        publish(instance, 200, 5)
        record(instance, tmp_path).on_stop()
        found, missing = read_on(reader, 204)
        assert found == sorted(set(found)) and found[-7:] == list(range(198, 205))
        assert missing == 205 - len(found) + 1  # of the log before nobody knows how many
    instance.close()


def test_damage_where_a_segment_begins_is_said_though_it_hides_the_count(tmp_path):
    instance = Instance(tmp_path / "small", 1 << 15)
    for first, count in (0, 10), (10, 200):
        publish(instance, first, count)
        record(instance, tmp_path).on_stop()  # the second segment begins with what is missing
    instance = lose_ring(instance)
    publish(instance, 210, 5)
    record(instance, tmp_path).on_stop()
    with segment_path(tmp_path / "journal", 2).open("r+b") as segment:
        segment.seek(segment_file_bytes(1 << 18) - (1 << 18))
        segment.write(b"damage")
    with Reader(both(instance, tmp_path), start="begin") as reader:
        assert numbers(reader, 10) == list(range(10))
        batch = reader.poll(timeout=5)
        assert int(bytes(batch.payload(0))[:8]) > 10 and batch.lapped == 1
    instance.close()


@pytest.mark.parametrize("more", [0, 2])
def test_ring_has_what_a_journal_lacks_before_it_counts_again_behind_damage(tmp_path, more):
    instance = Instance(tmp_path / "small", 1 << 15)
    lose_count(instance, tmp_path)
    for first, count in (200, 5), (205, more):
        publish(instance, first, count)
        record(instance, tmp_path).on_stop()  # a segment each
    segment_path(tmp_path / "journal", 2).unlink()
    with Reader(both(instance, tmp_path), start="begin", batch=1) as reader:
        publish(instance, 205 + more, 1)
        found, missing = read_on(reader, 205 + more)
        assert found == sorted(set(found)) and found[-8 - more :] == list(range(198, 206 + more))
        assert missing == 206 + more - len(found)
    instance.close()


def test_another_log_goes_on_behind_a_lost_journal_whose_damage_hides_the_count(tmp_path):
    instance = Instance(tmp_path / "small", 1 << 15)
    lose_count(instance, tmp_path)
    instance = lose_ring(instance)
    (_, missing), (found, more), _ = read_while_it_is_lost(instance, tmp_path)
    assert found == [198, *range(200, 205)]
    assert missing > 1 <= more  # nobody knows how many
    instance.close()


def test_what_is_overwritten_in_the_ring_comes_from_the_journal(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    with Reader(both(instance, tmp_path), batch=5) as reader:
        assert numbers(reader, 10) == list(range(10))
        publish(instance, 10, 1)
        assert numbers(reader, 1) == [10]  # it reads the ring
        for first in range(11, 3011, 500):
            publish(instance, first, 500)
            drive(recorder)
        assert numbers(reader, 3000) == list(range(11, 3011))
        assert reader.lapped == 0
    recorder.on_stop()


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_what_is_overwritten_comes_from_a_journal_that_lost_its_file(tmp_path, stopped, timed):
    instance = Instance(tmp_path / "small", 1 << 15)
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    start = START_NS + 5 if timed else "begin"
    with Reader(both(instance, tmp_path), start=start) as reader:
        assert read_on(reader, 9)[1] == 0
        for first in range(10, 400, 10):
            publish(instance, first, 10)
            drive(recorder)
        if stopped:
            recorder.on_stop()
        (tmp_path / "journal" / "journal").unlink()
        assert read_on(reader, 399) == (list(range(10, 400)), 0)
        publish(instance, 400, 5)
        assert read_on(reader, 404) == (list(range(400, 405)), 0)
    instance.close()


def test_feed_and_recorder_that_were_started_again_go_on_for_who_reads_history(instance, tmp_path):
    publish(instance, 0, 300)
    recorder = record(instance, tmp_path)
    with Reader(both(instance, tmp_path), batch=50) as reader:
        assert numbers(reader, 50) == list(range(50))
        instance.ring.close()
        instance.names_region.close()
        other = Instance(instance.directory, 1 << 21)
        recorder.on_stop()
        recorder = recorder_of(other, tmp_path)
        publish(other, 300, 100)
        drive(recorder)
        publish(other, 400, 100)
        assert numbers(reader, 450) == list(range(50, 500))
        assert reader.lapped == 0
        recorder.on_stop()
    other.close()


def test_journal_that_grew_while_a_log_before_was_read_is_counted_right(instance, tmp_path):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    other = instance
    for _ in range(2):  # the journal has no record of the log between
        other.ring.region.close()
        other.names_region.close()
        (other.directory / "ring").unlink()
        other = Instance(other.directory, 1 << 17)
        recorder_of(other, tmp_path).on_stop()
    recorder = recorder_of(other, tmp_path)
    publish(other, 10, 10)
    drive(recorder)
    with Reader(both(other, tmp_path), batch=5) as reader:
        assert numbers(reader, 5) == list(range(5))
        for first in range(20, 320, 50):  # the ring has not all of it any more
            publish(other, first, 50)
            drive(recorder)
        found = []
        while reader.wait(0):
            each = next(reader)
            if each.kind is Kind.MESSAGE:
                found.append(int(bytes(each.payload)[:8]))
        assert found == list(range(5, 320)) and reader.lapped == 1  # nobody knows of the first log
    recorder.on_stop()
    other.close()


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_journal_without_the_begin_of_a_log_does_not_say_that_the_one_before_was_whole(
    instance, tmp_path, how
):
    publish(instance, 0, 10)
    record(instance, tmp_path).on_stop()
    with Reader(both(instance, tmp_path), start="tail") as reader:
        publish(instance, 10, 10)
        assert numbers(reader, 10) == list(range(10, 20))
        instance.ring.region.close()
        instance.names_region.close()
        (instance.directory / "ring").unlink()
        other = Instance(instance.directory, 1 << 18)
        recorder = recorder_of(other, tmp_path)
        for first in range(0, 500, 50):
            publish(other, first, 50)
            drive(recorder)
        path = segment_path(tmp_path / "journal", 2)  # it said what nobody knows of the first log
        if how == "lost":
            path.unlink()
        else:
            with path.open("r+b") as segment:
                segment.seek(segment_file_bytes(1 << 18) - (1 << 18) + 64)
                segment.write(b"damage")
        told = next(reader)
        assert told.kind is Kind.LAPPED and told.data["reason"] == LappedReason.UNKNOWN
        assert told.lapped == int(bytes(next(reader).payload)[:8]) + 1
        recorder.on_stop()
        other.close()


def test_journal_that_only_says_what_is_missing_does_not_hide_it(instance, tmp_path):
    publish(instance, 0, 10)
    recorder_of(instance, tmp_path).on_stop()
    with Reader(both(instance, tmp_path)) as reader:
        publish(instance, 10, 2000)  # the first are overwritten
        recorder_of(instance, tmp_path).on_stop()
        batch = reader.poll(timeout=5)
        assert batch.lapped == int(bytes(batch.payload(0))[:8]) > 0


def test_journal_begun_anew_has_what_the_one_before_lacks(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    publish(instance, 10, 2000)
    drive(recorder)  # it was overtaken
    with Reader(both(instance, tmp_path), batch=5) as reader:
        assert numbers(reader, 5) == list(range(5))
        recorder.on_stop()
        shutil.rmtree(tmp_path / "journal")
        recorder = record(instance, tmp_path)
        first = read_all(f"journal:{tmp_path / 'journal'}")[0][0]
        publish(instance, 2010, 500)  # the ring has only the later half of that
        drive(recorder)
        found = []
        while reader.wait(0):
            each = next(reader)
            found += [int(bytes(each.payload)[:8])] if each.kind is Kind.MESSAGE else []
        assert found == [*range(5, 10), *range(first, 2510)] and reader.lapped == first - 10
    recorder.on_stop()


@pytest.fixture
def meanwhile(monkeypatch):
    """Return a list of calls: a waiting reader makes one at each of its looks."""
    steps = []
    real = appearing.time

    class Clock:
        monotonic = real.monotonic

        @staticmethod
        def sleep(seconds):
            steps.pop(0)()

    monkeypatch.setattr(appearing, "time", Clock)
    return steps


def test_journal_that_is_not_there_yet_is_waited_for(instance, tmp_path, meanwhile):
    publish(instance, 0, 10)
    recorders = []
    meanwhile += [
        lambda: None,
        (tmp_path / "journal").mkdir,
        lambda: recorders.append(record(instance, tmp_path)),
    ]
    with Reader(f"journal:{tmp_path / 'journal'}", timeout=60) as reader:
        assert numbers(reader, 10) == list(range(10)) and not meanwhile
    recorders[0].on_stop()


@pytest.mark.parametrize("timed", [False, True])
def test_journal_of_a_ring_that_is_not_there_yet_is_waited_for(
    instance, tmp_path, meanwhile, timed
):
    publish(instance, 0, 10)
    recorders = []
    meanwhile += [
        lambda: publish(instance, 10, 2000),  # the ring has not the first any more
        lambda: recorders.append(recorder_of(instance, tmp_path)),
    ]
    address = instance.address if timed else both(instance, tmp_path)
    with Reader(address, start=START_NS if timed else None, timeout=60) as reader:
        assert not meanwhile
        publish(instance, 2010, 10)
        drive(recorders[0])
        found = []
        while reader.wait(0):
            each = next(reader)
            found += [int(bytes(each.payload)[:8])] if each.kind is Kind.MESSAGE else []
        assert found == list(range(found[0], 2020)) and reader.lapped in (0, found[0])
    recorders[0].on_stop()


def test_ring_that_a_reader_found_has_what_came_before_the_journal(instance, tmp_path, meanwhile):
    publish(instance, 0, 10)
    started = []

    def restart():
        instance.ring.close()
        instance.names_region.close()
        started.append(Instance(instance.directory, 1 << 21))
        started.append(recorder_of(started[0], tmp_path))

    meanwhile.append(restart)
    with Reader(both(instance, tmp_path), start="begin", timeout=60) as reader:
        publish(started[0], 10, 10)
        assert numbers(reader, 20) == list(range(20))
    started[1].on_stop()
    started[0].close()


def test_what_is_waited_for_in_vain_is_named(instance, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such journal"):
        Reader(f"journal:{tmp_path / 'journal'}", timeout=0.02)
    with pytest.raises(FileNotFoundError, match="no such journal"):
        Reader(both(instance, tmp_path), timeout=0.02)
    with pytest.raises(FileNotFoundError, match="no ring"):
        Reader([f"ring:{tmp_path / 'none'}", instance.address], timeout=0.02)
    (tmp_path / "journal").mkdir(mode=0o700)
    with pytest.raises(FileNotFoundError, match="it has no segments"):
        Reader(f"journal:{tmp_path / 'journal'}")


def test_journal_that_was_just_begun_is_nobody_s_yet(instance, tmp_path):
    with (
        Journal.open(tmp_path / "journal", LAYOUTS),
        pytest.raises(NotReadyError, match="just begun"),
    ):
        Reader(both(instance, tmp_path))


def test_position_behind_the_end_of_the_journal_is_refused(instance, tmp_path):
    publish(instance, 0, 10)
    recorder = record(instance, tmp_path)
    with pytest.raises(ConfigError, match=r"start must be position .* or earlier"):
        Reader(both(instance, tmp_path), start=("position", 1 << 40))
    recorder.on_stop()


@pytest.mark.parametrize("batch", [1, 4096])
@pytest.mark.parametrize("first", ["journal", "ring"])
def test_names_and_batches_of_any_size_go_through_the_seam(instance, tmp_path, batch, first):
    recorder = recorder_of(instance, tmp_path)
    addresses = both(instance, tmp_path)
    if first == "ring":
        addresses.reverse()
    # The journal has no segment yet, and the ring no record.
    with (
        Reader(f"journal:{tmp_path / 'journal'}", batch=batch) as recorded,
        Reader(addresses, symbols={"A"}, batch=batch) as reader,
    ):
        for symbol in ("A", "B"):
            instance.top(1.0, 2.0, symbol=symbol)
        instance.ring.flush()
        drive(recorder)
        instance.top(3.0, 4.0, symbol="A")
        instance.ring.flush()
        assert [next(reader).symbol for _ in range(2)] == ["A", "A"]
        assert not reader.wait(0)
        assert [next(recorded).symbol for _ in range(2)] == ["A", "B"]
    recorder.on_stop()
