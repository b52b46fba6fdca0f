"""If a store cannot send records to its copies any more, both hosts report it in a sentence."""

import itertools
from pathlib import Path

import pytest

from tests.archive.test_store import BYTES, content, fill
from tests.bus.drive import MS, Copy, S, lead, register
from udpfast.archive.store import StoreLog
from udpfast.bus.hello import RefuseReason
from udpfast.bus.log import Store
from udpfast.log.segment import Segment, list_segments, segment_path

MESSAGES = 9000


@pytest.fixture
def written(tmp_path: Path) -> Store:
    log = StoreLog(tmp_path / "S", "orders", segment_bytes=BYTES, create=True)
    seq = lead(Store(log, "S"))
    register(seq)
    fill(seq, 1, MESSAGES)
    assert log.count >= 3
    return seq.store


def empty(tmp_path: Path) -> Store:
    return Store(StoreLog(tmp_path / "one", "orders", segment_bytes=BYTES, copied=True), "one")


def follow(link: Copy) -> Copy:
    """Copy for three seconds, with room for each segment as it is needed."""
    for _ in range(300):
        link.pump()
        if link.receiver.store.log.identity != bytes(16):
            link.receiver.store.log.keep()
        link.work(10 * MS)
        if link.source.closed or link.receiver.closed:
            break
    return link


def again(source: Store, copy: Store) -> Copy:
    link = follow(Copy(source, copy))
    for end in (link.source, link.receiver):
        end.close("over")
    return link


def place_of(source: Store, number: int) -> tuple[int, Path, int]:
    """Return the position of a record, its file, and its offset there."""
    record = next(itertools.islice(source.log.records(0, source.end), number, None))
    position = int.from_bytes(record[8:16], "little")
    for segment in reversed(list_segments(source.log.directory)):
        path = segment_path(source.log.directory, segment)
        info = Segment.open(path).info()
        if info.position <= position:
            first = path.stat().st_size - info.capacity_bytes
            return position, path, first + position - info.position
    raise AssertionError(position)


def change(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


@pytest.mark.parametrize("what", ["no commit word", "a longer one", "a shorter one", "payload"])
def test_record_that_is_damaged_at_the_source_is_named_by_both(
    tmp_path: Path, written: Store, what: str
) -> None:
    position, path, at = place_of(written, 100)
    before = path.read_bytes()[at : at + 72]
    changed = {
        "no commit word": bytes(8),
        "a longer one": (0xFFFFFFF0).to_bytes(4, "little"),
        "a shorter one": (8).to_bytes(4, "little"),
        "payload": before[:64] + bytes([before[64] ^ 1]),
    }[what]
    change(path, at, changed)
    copy = empty(tmp_path)
    link = again(written, copy)
    assert copy.end == position
    link = again(written, copy)
    assert link.receiver.refused.reason is RefuseReason.DAMAGED
    assert link.receiver.refused.at == position
    assert link.receiver.failed
    assert f"position {position}" in link.receiver.closed
    assert f"position {position} is damaged" in written.damage
    assert written.said.count(written.damage) == 1
    change(path, at, before)
    again(written, copy)
    assert content(copy) == content(written)


def test_damaged_end_of_a_segment_hides_no_later_one(tmp_path: Path, written: Store) -> None:
    second = Segment.open(segment_path(written.log.directory, list_segments(tmp_path / "S")[1]))
    path = segment_path(written.log.directory, list_segments(tmp_path / "S")[0])
    info = Segment.open(path).info()
    at = path.stat().st_size - info.capacity_bytes + second.info().position - info.position
    change(path, at, bytes(8))
    copy = empty(tmp_path)
    again(written, copy)
    assert content(copy) == content(written)
    assert written.damage == ""


def test_source_that_stands_still_where_nothing_is_wrong_lives(
    tmp_path: Path, written: Store
) -> None:
    copy = empty(tmp_path)
    link = follow(Copy(written, copy))
    for _ in range(30):
        link.work(100 * MS)
    assert not link.source.closed
    assert written.damage == ""


def test_segment_that_is_deleted_under_its_daemon_is_named_by_both(
    tmp_path: Path, written: Store
) -> None:
    copy = empty(tmp_path)
    numbers = list_segments(written.log.directory)
    position = Segment.open(segment_path(written.log.directory, numbers[1])).info().position
    segment_path(written.log.directory, numbers[1]).unlink()
    link = again(written, copy)
    link = again(written, copy)
    assert copy.end == position
    assert link.receiver.refused.reason is RefuseReason.DAMAGED
    assert f"position {position} is damaged or missing" in written.damage
    assert written.log.stands_at(position) is None
    assert written.log.checksum_at(position) is None


def test_place_before_the_first_segment_has_no_record(tmp_path: Path, written: Store) -> None:
    written.log.close()
    segment_path(tmp_path / "S", 1).unlink()
    log = StoreLog(tmp_path / "S", "orders", segment_bytes=BYTES)
    assert any("first segments" in note for note in log.notes)
    assert log.first()[0] > 0
    assert log.run(0, log.end, 1 << 62) == (0, 0)
    assert list(log.records(0, log.end)) == []
    assert log.stands_at(0) is None
    assert not log.is_whole(0)


def test_copy_is_not_said_to_differ_from_a_damaged_record(tmp_path: Path, written: Store) -> None:
    copy = empty(tmp_path)
    again(written, copy)
    position, path, at = place_of(written, written.log.end_index - 1)
    assert copy.log.last[0] == position
    change(path, at + 60, bytes(4))  # its checksum
    link = Copy(written, copy, now_ns=S).pump()
    assert link.receiver.refused.reason is RefuseReason.DAMAGED
