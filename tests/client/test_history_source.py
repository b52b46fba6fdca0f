"""History, then live: a ring's records from its journal and then from itself, each of them once."""

import pytest

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from udpfast.agents.recorder import Recorder
from udpfast.client.reader import Reader
from udpfast.config import RecordConfig
from udpfast.core.layout import Kind, Stream
from udpfast.errors import ConfigError

START_NS = 1_800_000_000_000_000_000


@pytest.fixture
def instance(tmp_path):
    """Return a fresh instance whose ring is soon overwritten, closed at the end."""
    instance = Instance(tmp_path / "feed", 1 << 20)
    yield instance
    instance.close()


def publish(instance, first, count):
    """Publish records that tell their number, one a nanosecond."""
    for number in range(first, first + count):
        instance.ring.append(
            Kind.MESSAGE, b"%08d" % number + bytes(1000), published_ns=START_NS + number
        )
    instance.ring.flush()


def record(instance, tmp_path, **options):
    """Record all that is in the ring by now."""
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
