"""A LAPPED record, whoever writes it, names no stream of the feed and no sender."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from udpfast import Kind, Reader, ReadRecord
from udpfast.agents.feed.republisher import Republisher
from udpfast.core.layout import LappedReason, Stream
from udpfast.export.exporter import Exporter
from udpfast.log.segment import list_segments, segment_path


@pytest.fixture
def lapped_journal(tmp_path: Path) -> Path:
    """Return a journal whose recorder was away while the ring wrapped around."""
    instance = Instance(tmp_path / "feed", 1 << 16)
    instance.append(Kind.MESSAGE, b"first")
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    recorder.on_stop()
    for _ in range(2000):
        instance.append(Kind.MESSAGE, bytes(100))
    instance.ring.flush()
    recorder = recorder_of(instance, tmp_path)
    drive(recorder)
    recorder.on_stop()
    instance.close()
    return tmp_path / "journal"


def lapped_of(address: str, **options: str) -> ReadRecord:
    with Reader(address, **options) as reader:
        return next(record for record in reader if record.kind is Kind.LAPPED)


def check(record: ReadRecord, reason: LappedReason) -> None:
    assert (record.stream, record.sent_ns, record.number) == (Stream.NONE, None, 0)
    assert (record.data["reason"], record.lapped > 0) == (reason, True)


def test_lapped_of_a_recorder_is_of_no_stream_and_was_sent_by_nobody(lapped_journal: Path) -> None:
    check(lapped_of(f"journal:{lapped_journal}"), LappedReason.READER)


def test_lapped_of_a_reader_is_of_no_stream_and_was_sent_by_nobody(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", 1 << 16)
    with Reader(instance.address) as reader:
        for _ in range(2000):
            instance.append(Kind.MESSAGE, bytes(100))
        instance.ring.flush()
        check(next(reader), LappedReason.READER)
    instance.close()


def test_lapped_of_a_damaged_journal_is_of_no_stream_and_was_sent_by_nobody(
    lapped_journal: Path,
) -> None:
    path = segment_path(lapped_journal, list_segments(lapped_journal)[0])
    content = bytearray(path.read_bytes())
    at = content.index(b"first")
    content[at] ^= 1
    path.write_bytes(content)
    check(lapped_of(f"journal:{lapped_journal}"), LappedReason.DAMAGE)


def test_lapped_of_a_republished_journal_is_of_no_stream_and_was_sent_by_nobody(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "again"
    directory.mkdir(mode=0o700)
    republisher = Republisher(directory, 1 << 20)
    republisher.say_missed(7, 1_000)
    republisher.close()
    check(lapped_of(f"ring:{directory}", start="begin"), LappedReason.DAMAGE)


def test_lapped_of_a_recorder_is_exported_under_no_stream(
    lapped_journal: Path, tmp_path: Path
) -> None:
    list(Exporter(lapped_journal, tmp_path / "tables").run())
    rows = ds.dataset(tmp_path / "tables" / "events", partitioning="hive").to_table().to_pylist()
    assert [row["stream"] for row in rows if row["kind"] == "LAPPED"] == [Stream.NONE]
