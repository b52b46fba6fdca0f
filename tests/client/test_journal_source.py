"""`Reader("journal:...")`: what was kept, from a time to a time."""

from datetime import UTC, datetime

import pytest

from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import Pacer
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import ConfigError
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.journal import Journal
from udpfast.shm.segment import segment_path

START_NS = int(datetime(2026, 8, 21, 9, 30, tzinfo=UTC).timestamp()) * 1_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def directory(tmp_path):
    """Return a journal of 100 records, one per second from 09:30."""
    with Journal.open(tmp_path / "journal", PAYLOAD_HASH, segment_bytes=1 << 18) as journal:
        for number in range(100):
            journal.append(
                Kind.MESSAGE,
                b"%d" % number,
                received_ns=number,
                published_ns=START_NS + number * SECOND,
            )
    return tmp_path / "journal"


def numbers(directory, **options):
    """Return what an iteration reads."""
    with Reader(f"journal:{directory}", **options) as reader:
        return [int(bytes(record.payload)) for record in reader]


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
    ],
)
def test_journal_is_read_from_a_time_as_people_write_it(directory, start):
    assert numbers(directory, start=start) == list(range(10, 100))
    assert numbers(directory, end=start) == list(range(10))
    assert numbers(directory, start=start, end="2026-08-21T09:30:20Z") == list(range(10, 20))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": "2026-08-21T09:30"}, "must say its time zone"),
        ({"start": "yesterday"}, "must be a time"),
        ({"end": 1.5}, "must be a time"),
    ],
)
def test_journal_time_that_is_none_is_refused(directory, options, expected):
    with pytest.raises(ConfigError, match=expected):
        Reader(f"journal:{directory}", **options)


def test_ring_has_no_end_in_time(instance):
    with pytest.raises(ConfigError, match="end must be None"):
        Reader(instance.address, end=1)


def test_journal_that_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such journal"):
        Reader(f"journal:{tmp_path}/none")


def test_journal_open_is_followed(tmp_path):
    journal = Journal.open(tmp_path / "journal", PAYLOAD_HASH, segment_bytes=1 << 18)
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
    place = content.index(b"97", 4096) - 97 * size
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
