"""A store on disk works for the bus, and it is a journal for everything that reads journals."""

import errno
import os
from pathlib import Path

import pytest

from tests.bus.drive import T0, Copy, lead, numbers, register, send
from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.archive.store import StoreLog, StoreView, store_lineage
from udpfast.bus.log import Store
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import epoch_after
from udpfast.config.bus import StoreConfig
from udpfast.errors import WriterExistsError
from udpfast.log.verify import verify_segments

BYTES = 1 << 18


def opened(folder: Path, *, create: bool = False, **options) -> Store:
    return Store(StoreLog(folder, "orders", segment_bytes=BYTES, create=create), "S", **options)


def fill(seq, first: int, last: int) -> None:
    for number in range(first, last + 1):
        send(seq, number)
        seq.store.log.keep(sync=number % 500 == 0)
    seq.store.log.flush()


def content(kept) -> bytes:
    return b"".join(kept.log.records(kept.log.first()[0], kept.end))


def copied(source: Store, other: Store) -> Copy:
    """Return a link after it has copied everything, with room for each segment as it is needed."""
    link = Copy(source, other)
    for _ in range(20):
        link.pump()
        other.log.keep()
        link.work(1_000_000)
    return link


def files(folder: Path) -> list[bytes]:
    # Header and records; each copy has seals of its own.
    return [
        path.read_bytes()[:512] + path.read_bytes()[4096:]
        for path in sorted(folder.glob("*.segment"))
        if path.name != "next.segment"
    ]


def test_copy_on_disk_has_the_same_files(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 4000)
    other = opened(tmp_path / "b")
    copied(seq.store, other)
    assert content(other) == content(seq.store)
    assert other.log.count > 1
    seq.store.log.close()
    other.log.close()
    assert files(tmp_path / "a") == files(tmp_path / "b")
    for name in "ab":
        checks = list(verify_segments(tmp_path / name))
        assert not [problem for check in checks for problem in check.problems]
        assert sum(check.records for check in checks) == other.log.end_index


def test_segment_left_empty_by_a_stop_in_good_order_is_not_followed_by_another(
    tmp_path: Path,
) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 100)
    other = opened(tmp_path / "b")
    link = copied(seq.store, other)
    seq.store.log.keep()
    assert seq.store.log.roll()
    seq.store.log.close()
    seq = lead(opened(tmp_path / "a"))
    fill(seq, 101, 4000)
    for end in (link.source, link.receiver):
        end.close("over")
    copied(seq.store, other)
    assert content(other) == content(seq.store)
    seq.store.log.close()
    other.log.close()
    assert [path.name for path in sorted((tmp_path / "a").glob("*.segment"))] == [
        path.name for path in sorted((tmp_path / "b").glob("*.segment"))
    ]
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_first_segment_left_empty_by_a_stop_is_begun_again(tmp_path: Path) -> None:
    log = StoreLog(tmp_path / "a", "orders", segment_bytes=BYTES, create=True)
    log.keep()
    assert log.roll()
    log.close()
    seq = lead(opened(tmp_path / "a"))
    register(seq)
    fill(seq, 1, 100)
    other = opened(tmp_path / "b")
    copied(seq.store, other)
    assert content(other) == content(seq.store)
    assert seq.store.log.count == 1
    seq.store.log.close()
    other.log.close()
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_segment_of_a_number_that_is_there_never_replaces_it(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 100)
    seq.store.log.keep()
    seq.store.log.roll()
    header = seq.store.log.segment_header(seq.store.end)
    seq.store.log.keep()
    before = files(tmp_path / "a")
    with pytest.raises(ValueError, match="does not fit a copy"):
        seq.store.log.roll(header)
    assert files(tmp_path / "a") == before
    seq.store.log.close()


def test_store_opened_again_goes_on_at_its_end(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 2500)
    end, last = seq.store.end, seq.store.log.last
    with pytest.raises(WriterExistsError):
        StoreLog(tmp_path / "a", "orders")
    seq.store.log.close()
    again = opened(tmp_path / "a")
    assert (again.end, again.log.last) == (end, last)
    assert again.was_writer
    seq = lead(again)
    fill(seq, 2400, 2600)
    assert numbers(again) == list(range(1, 2601))
    again.log.close()


@pytest.mark.parametrize("back", [1, 1500, 3500])
def test_records_set_aside_are_kept_and_the_store_goes_on(tmp_path: Path, back: int) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 4000)
    before = content(seq.store)
    places = [int.from_bytes(r[8:16], "little")
              for r in seq.store.log.records(0, seq.store.end)]  # fmt: skip
    at = places[-back]
    view = StoreView(tmp_path / "a")
    assert view.checksum_at(at) is not None
    assert seq.store.cut(at) == back
    assert content(seq.store) == before[:at]
    assert list(seq.store.log.directory.glob("*.aside-*"))
    view.forget()
    assert view.checksum_at(at) is None
    again = lead(seq.store)
    fill(again, 4001 - back, 4000)
    assert numbers(again.store) == list(range(1, 4001))
    again.store.log.close()
    checks = list(verify_segments(tmp_path / "a"))
    assert not [problem for check in checks for problem in check.problems]


def test_host_that_had_no_room_to_write_follows_again(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    number = 0
    while seq.store.end < BYTES - 500:  # the next datagram may need a segment
        number += 1
        send(seq, number)
    other = opened(tmp_path / "b")
    Copy(seq.store, other).pump().source.close("cut")
    send(seq, number + 1)
    assert lead(other, promoted=True).full  # no segment was made ready
    epoch = epoch_after(other.promised, 1, promoted=True)
    assert other.fence(epoch)
    seq.store.log.keep()
    other.log.keep()
    send(Sequencer(seq.store, epoch, 0, T0), number + 2, 20)
    Copy(seq.store, other).pump()
    assert content(other) == content(seq.store)
    seq.store.log.close()
    other.log.close()
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_view_follows_what_is_written(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    view = StoreView(tmp_path / "a")
    position, found = 0, b""
    for first in range(1, 4001, 500):
        fill(seq, first, first + 499)
        for record in view.records(position, seq.store.end):
            found += record
            position += len(record)
    assert found == content(seq.store)
    seq.store.log.close()


def test_copy_killed_behind_its_first_segments_header_has_that_segment_once(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 20)
    other = opened(tmp_path / "b")
    other.adopt(seq.store.identity, 0, 0, [])
    assert other.log.roll(seq.store.log.segment_header(0))
    other.log.close()
    other = opened(tmp_path / "b")
    link = Copy(seq.store, other)
    for _ in range(3):
        link.pump()
        other.log.keep()
        link.work(1_000_000)
    assert content(other) == content(seq.store)
    assert other.log.count == 1
    other.log.close()
    assert not [p for check in verify_segments(tmp_path / "b") for p in check.problems]


def test_store_knows_as_it_is_opened_whether_its_last_records_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    seq = lead(opened(folder, create=True))
    register(seq)
    for nonce in range(2, 4):
        segments, number = seq.store.log.count, 0
        while (
            seq.store.log.count == segments and number < 9999
        ):  # to the first record of the next segment
            number += 1
            send(seq, number, incarnation=nonce - 1)
            seq.store.log.keep()
        end = seq.store.end
        seq.store.log.close()
        store = opened(folder)
        assert (store.log.damaged_at, store.end) == (-1, end)
        seq = lead(store)
        register(seq, nonce=nonce)


def test_store_that_has_nothing_yet_has_nothing_damaged(tmp_path: Path) -> None:
    assert opened(tmp_path / "copy").log.damaged_at == -1
    assert opened(tmp_path / "new", create=True).log.damaged_at == -1


def test_store_knows_as_it_is_opened_that_synced_records_are_damaged(tmp_path: Path) -> None:
    seq = lead(opened(tmp_path, create=True))
    register(seq)
    fill(seq, 1, 500)  # the last one syncs
    seq.store.log.close()
    with (tmp_path / "00000001.segment").open("r+b") as segment:
        segment.seek(4096)
        segment.write(bytes(1 << 17))
    assert opened(tmp_path).log.damaged_at == 0


@pytest.mark.parametrize("state", [None, bytes(23), bytes(32), bytes(122), "cut", "earlier"])
def test_state_that_is_lost_or_damaged_is_read_from_the_records(tmp_path: Path, state) -> None:
    seq = lead(opened(tmp_path, create=True))
    seq = lead(seq.store)
    register(seq)
    store, path = seq.store, tmp_path / "bus.state"
    before = store.lineage.pairs, store.promised, store.was_writer
    store.log.close()
    if state is None:
        path.unlink()
    elif state == "cut":  # a whole file of a time without checksums
        path.write_bytes(path.read_bytes()[:40])
    elif state == "earlier":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        path.write_bytes(state)
    again = opened(tmp_path)
    assert (again.lineage.pairs, again.promised, again.was_writer) == before
    known = state in ("cut", "earlier")
    assert any("what this host had promised" in line for line in again.said) == (not known)
    aside = list(tmp_path.glob("bus.state.aside-*"))
    assert bool(aside) == isinstance(state, bytes)
    again.save()
    again.log.close()
    assert store_lineage(tmp_path).pairs == before[0]


def test_copy_that_was_closed_goes_on_in_the_segment_that_its_source_went_on_in(
    tmp_path: Path,
) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 100)
    other = opened(tmp_path / "b")
    Copy(seq.store, other).pump().source.close("over")
    view = StoreView(tmp_path / "b")
    assert view.checksum_at(other.log.last[0]) is not None
    other.log.close()
    for first in range(101, 1001, 100):
        fill(seq, first, first + 99)
        other = opened(tmp_path / "b")
        Copy(seq.store, other).pump().source.close("over")
        assert content(other) == content(seq.store)
        view.refresh()
        assert view.checksum_at(other.log.last[0]) is not None, "who reads it goes on, too"
        other.log.close()
    seq.store.log.close()
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert len(list(tmp_path.glob("b/0*.segment"))) == 1
    assert not list(tmp_path.glob("b/*.aside-*"))


def test_copy_without_room_for_its_last_segment_waits_for_it(tmp_path: Path, monkeypatch) -> None:
    seq = lead(opened(tmp_path / "a", create=True))
    register(seq)
    fill(seq, 1, 100)
    other = opened(tmp_path / "b")
    Copy(seq.store, other).pump().source.close("over")
    other.log.close()
    fill(seq, 101, 200)
    other = opened(tmp_path / "b")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        link = Copy(seq.store, other).pump()
        assert link.receiver.closed == "records beyond the end of their segment"
        assert link.receiver.failed
        assert "cannot continue in the last segment" in other.log.notes[-1]
    link.source.close("over")
    Copy(seq.store, other).pump()
    assert content(other) == content(seq.store)


def test_segments_are_kept_until_the_disk_has_the_senders_behind_them(tmp_path: Path) -> None:
    settings = StoreConfig("S", 9400, segment_bytes=BYTES, keep_segments=1)
    disk = StoreDisk(tmp_path, "orders", "S", settings, create=True)
    seq = lead(disk.store)
    register(seq)
    number = 0
    while disk.log.count < 2:
        number += 1
        send(seq, number)
        disk.log.keep(sync=False)
    disk.log.flush()
    disk.remove_old()
    assert disk.log.count == 2
    disk.log.keep()
    disk.remove_old()
    assert disk.log.count == 1
    disk.end({})
