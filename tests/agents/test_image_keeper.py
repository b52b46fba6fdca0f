"""The image keeper: what it keeps, what it says when it missed something, and how it ends."""

import ctypes
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.instance import Instance, small_image
from tests.shared import ROOT
from tests.waiting import PATIENCE_S
from udpfast import Books, ImageError, Kind, Reader, ReadRecord, RecordFlag
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.archive.feed_cursor import RingFeedCursor
from udpfast.client.image_join import ImageJoin
from udpfast.config import ImageConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.layout import (
    CONNECTION,
    GAP,
    LAPPED,
    OBJECT_STATE,
    SESSION,
    ObjectStatus,
    Stream,
)
from udpfast.errors import UdpfastError
from udpfast.log.cursor import RingCursor
from udpfast.log.readers import list_readers
from udpfast.log.ring import Ring
from udpfast.market.updates import (
    GATEWAY_STATUS,
    MARKET_STATUS,
    ORDERS,
    PAYLOAD_HASH,
    STATISTIC,
    STATISTICS,
    TOP_OF_BOOK,
    TRADE,
    TRADES,
)
from udpfast.shm.image import has_image, note_image

ALWAYS = 1 << 62
BORN_NS = 416  # RingHeader.born_ns


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path / "feed")
    yield instance
    instance.close()


def keep(instance: Instance, **settings: Any) -> ImageKeeper:
    """Return a keeper that has read everything and written its image."""
    keeper = ImageKeeper(small_image(objects=64, **settings), instance.directory)
    keeper.on_start()
    catch_up(keeper)
    return keeper


def catch_up(keeper: ImageKeeper) -> None:
    while keeper.work(ALWAYS):
        pass
    keeper.publish()


def session(instance: Instance, session_id: int = 1) -> None:
    payload = np.zeros((), SESSION)
    payload["new_id"] = session_id
    instance.append(Kind.SESSION, payload.tobytes(), session=session_id)


def state(instance: Instance, kind: Kind, **fields: int) -> None:
    payload = np.zeros((), OBJECT_STATE)
    payload["status"] = ObjectStatus.LIVE if kind is Kind.RECOVERED else ObjectStatus.STALE
    instance.append(kind, payload.tobytes(), object_type=3, object_id=7, session=1, **fields)


def gap(instance: Instance) -> None:
    instance.append(Kind.GAP, np.zeros((), GAP).tobytes())


def live_book(instance: Instance) -> None:
    """Append what a feed says of an object that it sees from the session's beginning."""
    session(instance)
    state(instance, Kind.RECOVERED)
    instance.book([(10, 1), (9, 2)], [(11, 3)], snapshot=True, number=100)
    instance.ring.flush()


def leave_image_of_what_the_ring_forgot(instance: Instance) -> None:
    """Keep a book's image beyond the session's beginning, which is overwritten."""
    live_book(instance)
    for i in range(8_000):
        instance.top(i, i + 1, object_type=6, session=1)
        if i == 10:
            keeper = keep(instance)
        if i > 10:
            catch_up(keeper)
    keeper.on_stop()
    instance.ring.flush()


def image_of(instance: Instance) -> list[ReadRecord]:
    """Return what a late reader is given before the ring."""
    records = []
    with Reader(instance.address, image=True) as reader:
        while reader.joining:
            records.append(next(reader))
    assert all(RecordFlag.SNAPSHOT in record.flags for record in records)
    return records


def kinds(records: list[ReadRecord]) -> list[Kind]:
    return [record.kind for record in records]


def test_image_holds_the_last_value_of_every_kind(instance: Instance) -> None:
    live_book(instance)
    instance.append(Kind.CONNECTION, np.array([(5, 0, 9)], CONNECTION).tobytes())
    for status in (5, 1):  # of a line, which is silent; a channel's word is another thing
        instance.append(Kind.CONNECTION, np.array([(status, 1, 7)], CONNECTION).tobytes())
    for price in (20.0, 21.0):
        trades = instance.update(TRADES, "binance-usdm", "BTCUSDT", row_count=1)
        row = np.zeros(1, TRADE)
        row["price"] = price
        instance.append(Kind.TRADES, trades.tobytes() + row.tobytes(), 32, object_type=4, session=1)
    status = instance.update(MARKET_STATUS, "binance-usdm", "BTCUSDT", trading_status=7)
    instance.append(Kind.MARKET_STATUS, status.tobytes(), object_type=5, session=1)
    for account in (b"one", b"two", b"one"):
        gateway = np.zeros((), GATEWAY_STATUS)
        gateway["account"], gateway["supported"] = account, len(account) + instance.number
        instance.append(Kind.GATEWAY_STATUS, gateway.tobytes(), 32, session=1)
    instance.top(1.0, 2.0, object_type=6, session=1)
    instance.top(1.5, 2.5, object_type=6, session=1)
    instance.ring.flush()
    keeper = keep(instance)
    records = image_of(instance)
    found = kinds(records)
    assert found[:3] == [Kind.SESSION, Kind.CONNECTION, Kind.CONNECTION]
    assert [one.data.tolist() for one in records[1:3]] == [(5, 0, 9), (1, 1, 7)]
    by_kind = {record.kind: record for record in records}
    assert by_kind[Kind.TRADES].rows["price"].tolist() == [21.0]
    assert by_kind[Kind.TOP_OF_BOOK].data["bid_price"] == 1.5
    assert by_kind[Kind.MARKET_STATUS].data["trading_status"] == 7
    assert by_kind[Kind.BOOK].bids["price"].tolist() == [10, 9]
    assert by_kind[Kind.BOOK].symbol == "BTCUSDT"
    assert by_kind[Kind.BOOK].stream == Stream.SNAPSHOT
    assert found.count(Kind.GATEWAY_STATUS) == 2
    keeper.on_stop()


def test_rows_of_statistics_are_merged_by_type(instance: Instance) -> None:
    session(instance)
    for rows in ([(1, 10.0), (2, 20.0)], [(2, 21.0), (3, 30.0)], [(1, 11.0)]):
        update = instance.update(
            STATISTICS, "x", "y", row_count=len(rows), update_type=2, present=2
        )
        values = np.zeros(len(rows), STATISTIC)
        values["type"], values["value"] = zip(*rows, strict=True)
        instance.append(
            Kind.STATISTICS, update.tobytes() + values.tobytes(), 32, object_type=4, session=1
        )
    instance.ring.flush()
    keeper = keep(instance)
    (record,) = [record for record in image_of(instance) if record.kind is Kind.STATISTICS]
    assert dict(zip(record.rows["type"].tolist(), record.rows["value"].tolist(), strict=True)) == {
        1: 11.0,
        2: 21.0,
        3: 30.0,
    }
    assert record.data["update_type"] == 1
    keeper.on_stop()


def test_stale_object_and_doubted_object_are_said_to_be_so(instance: Instance) -> None:
    live_book(instance)
    gap(instance)
    instance.ring.flush()
    keeper = keep(instance)
    record = image_of(instance)[-1]
    assert (record.kind, record.data["status"]) == (Kind.STALE, ObjectStatus.UNKNOWN)
    state(instance, Kind.STALE, number=102, follows=101)
    instance.ring.flush()
    record = image_of(instance)[-1]
    assert (record.kind, record.data["status"]) == (Kind.STALE, ObjectStatus.STALE)
    keeper.on_stop()


def test_book_in_doubt_is_sound_once_the_feed_is_sure(instance: Instance) -> None:
    live_book(instance)
    gap(instance)
    instance.ring.flush()
    keeper = keep(instance)
    with Reader(instance.address, image=True) as reader:
        books = Books(reader)
        books.poll(timeout=0)
        (book,) = books.values()
        assert book.stale
        state(instance, Kind.RECOVERED, number=105, follows=100)
        instance.book([(10, 5)], [], number=105, follows=100)
        books.poll(timeout=0)
        assert not book.stale
        assert book.bids().tolist() == [[10, 5], [9, 2]]
    keeper.on_stop()


def test_reader_that_joins_between_recovered_and_its_snapshot_gets_a_sound_book(
    instance: Instance,
) -> None:
    session(instance)
    state(instance, Kind.RECOVERED)
    instance.ring.flush()
    keeper = keep(instance)
    with Reader(instance.address, image=True) as reader:
        books = Books(reader)
        books.poll(timeout=0)
        instance.book([(10, 1)], [(11, 3)], snapshot=True, number=100)
        books.poll(timeout=0)
        (book,) = books.values()
        assert not book.stale
    keeper.on_stop()


def test_image_of_a_new_session_knows_nothing_of_the_old_one(instance: Instance) -> None:
    live_book(instance)
    keeper = keep(instance)
    session(instance, 2)
    instance.book([(5, 1)], [], "ETHUSDT", snapshot=True, session=2)
    instance.ring.flush()
    for _ in range(2):  # from the image of the old session, and from that of the new one
        records = image_of(instance)
        assert [record.symbol for record in records if record.kind is Kind.BOOK] == ["ETHUSDT"]
        catch_up(keeper)
    keeper.on_stop()


def test_depth_cuts_books_and_says_so(instance: Instance) -> None:
    live_book(instance)
    keeper = keep(instance, depth=1)
    (record,) = [record for record in image_of(instance) if record.kind is Kind.BOOK]
    assert record.bids["price"].tolist() == [10]
    assert RecordFlag.TRUNCATED in record.flags
    keeper.on_stop()


def test_keeper_that_was_lapped_says_so_until_a_snapshot_comes(instance: Instance) -> None:
    live_book(instance)
    keeper = keep(instance)
    for i in range(20_000):
        instance.book([(10, i + 1)], [], number=101 + i, follows=100 + i)
    instance.ring.flush()
    with pytest.raises(ImageError, match=r"overwritten the records after position \d+"):
        Reader(instance.address, image=True)
    catch_up(keeper)
    assert keeper.lapped > 0
    records = image_of(instance)
    assert kinds(records) == [Kind.BOOK, Kind.STALE]
    assert records[1].data["status"] == ObjectStatus.WAITING
    instance.book([(7, 7)], [], snapshot=True, number=90_000, follows=89_999)
    instance.ring.flush()
    assert kinds(image_of(instance)) == [Kind.RECOVERED, Kind.BOOK]
    keeper.on_stop()


def test_image_of_a_keeper_that_stopped_serves_as_long_as_the_ring_holds_the_rest(
    instance: Instance,
) -> None:
    live_book(instance)
    keep(instance).on_stop()
    instance.book([(10, 5)], [], number=101, follows=100)
    instance.ring.flush()
    (record,) = [record for record in image_of(instance) if record.kind is Kind.BOOK]
    assert record.bids["quantity"].tolist() == [5, 2]


def test_keeper_goes_on_with_the_image_that_another_left(instance: Instance) -> None:
    leave_image_of_what_the_ring_forgot(instance)
    other = keep(instance)
    assert other.lapped == 0
    assert Kind.RECOVERED in kinds(image_of(instance))
    other.on_stop()
    (instance.directory / "image").unlink()
    third = keep(instance)
    assert third.lapped > 0
    assert Kind.RECOVERED not in kinds(image_of(instance))
    third.on_stop()


def test_keeper_does_not_go_on_with_the_image_of_another_ring_in_the_same_inode(
    instance: Instance,
) -> None:
    # On a disk a new file often has the number of the one that was removed before it.
    leave_image_of_what_the_ring_forgot(instance)
    born_ns = instance.ring.region.view()[BORN_NS : BORN_NS + 8].cast("q")
    born_ns[0] += 1
    other = keep(instance)
    assert other.lapped > 0
    assert Kind.RECOVERED not in kinds(image_of(instance))
    other.on_stop()


def test_writer_that_takes_over_begins_an_image_anew(instance: Instance) -> None:
    live_book(instance)
    keeper = keep(instance)
    instance.ring.region.close()  # as if it had died
    instance.ring = Ring.create(instance.directory, 1 << 20, PAYLOAD_HASH)
    with pytest.raises(ImageError, match="that of an earlier one"):
        Reader(instance.address, image=True)
    keeper.publish()
    with pytest.raises(ImageError, match="has not yet reported that it took over"):
        Reader(instance.address, image=True)
    instance.ring.announce_restart(1)
    instance.ring.flush()
    assert image_of(instance) == []
    live_book(instance)
    assert kinds(image_of(instance)) == [Kind.SESSION, Kind.RECOVERED, Kind.BOOK]
    keeper.on_stop()
    late = keep(instance)  # begins where the present writer began
    assert late.lapped == 0
    late.on_stop()


def test_objects_without_room_are_waiting(instance: Instance) -> None:
    session(instance)
    for number in range(100):
        rows = [(i + 1.0, 1.0) for i in range(50)]
        frame = {"object_id": number, "object_type": 3, "session": 1}
        instance.append(Kind.RECOVERED, np.zeros((), OBJECT_STATE).tobytes(), **frame)
        instance.book(rows[::-1], [], snapshot=True, **frame)
    instance.ring.flush()
    keeper = keep(instance, capacity_bytes=1 << 16)
    found = kinds(image_of(instance))
    assert 0 < found.count(Kind.BOOK) == found.count(Kind.RECOVERED) < 64
    assert found.count(Kind.STALE) > 0
    assert len(found) < 2 * 64 + 1
    keeper.on_stop()


@pytest.mark.parametrize("spare_bytes", [0, 256, 1024, 8192])
def test_object_that_grew_out_of_the_image_is_not_what_it_was(
    instance: Instance, spare_bytes: int
) -> None:
    def books(quantity: float, count: int, snapshot: bool) -> None:
        for number in range(8):
            frame = {"object_id": number, "object_type": 3, "session": 1}
            if snapshot:
                instance.append(Kind.RECOVERED, np.zeros((), OBJECT_STATE).tobytes(), **frame)
            rows = [(i + 1.0, quantity) for i in range(count)]
            instance.book(rows[::-1], [], f"S{number}", snapshot, **frame)
        instance.ring.flush()

    session(instance)
    books(1.0, 40, snapshot=True)
    # Room for the mark, for each entry once, and a little more.
    keeper = keep(instance, capacity_bytes=2 * 512 + 8 * 2048 + spare_bytes)
    assert kinds(image_of(instance)).count(Kind.BOOK) > 0
    books(2.0, 200, snapshot=False)
    catch_up(keeper)
    found = Books()
    for record in image_of(instance):
        found.apply(record)
    assert all(book.stale for book in found.values() if len(book.bids()) != 200)
    keeper.on_stop()


def test_keeper_runs_as_an_agent_and_ends_with_its_ring(instance: Instance) -> None:
    live_book(instance)
    runner = AgentRunner(ImageKeeper(ImageConfig(objects=64), instance.directory), idle="sleep")
    runner.start()
    instance.ring.close()
    assert runner.join(PATIENCE_S)
    with pytest.warns(RuntimeWarning, match="has ended"):
        reader = Reader(instance.address, image=True)
    with reader:
        found = kinds(list(reader))
    assert found == [Kind.CONNECTION, Kind.SESSION, Kind.RECOVERED, Kind.BOOK]


def test_reader_without_an_image_is_told_what_to_do(instance: Instance) -> None:
    with pytest.raises(ImageError, match=r"there is none; .* \[image\] enabled = true"):
        Reader(instance.address, image=True)


def test_reader_of_a_feed_that_keeps_no_image_is_told_at_once(instance: Instance) -> None:
    with pytest.raises(ImageError, match="there is none"):
        Reader(instance.address, image=True, timeout=None)


def test_reader_waits_for_a_keeper_that_will_begin(instance: Instance) -> None:
    live_book(instance)
    note_image(instance.directory, kept=True)
    assert not has_image(instance.directory)
    with pytest.raises(ImageError, match="its keeper has not begun it yet"):
        Reader(instance.address, image=True)
    made: list[ImageKeeper] = []
    keeper = threading.Timer(0.05, lambda: made.append(keep(instance)))
    keeper.start()
    with Reader(instance.address, image=True, timeout=None) as reader:
        assert has_image(instance.directory)
        assert next(reader).kind is Kind.SESSION
    keeper.join()
    made[0].on_stop()


def test_image_of_an_earlier_run_is_gone_once_the_feed_keeps_none(instance: Instance) -> None:
    live_book(instance)
    keep(instance).on_stop()
    note_image(instance.directory, kept=True)
    assert has_image(instance.directory)
    note_image(instance.directory, kept=False)
    with pytest.raises(ImageError, match="there is none"):
        Reader(instance.address, image=True, timeout=None)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_image_never_crashes_who_joins(instance: Instance, seed: int) -> None:
    live_book(instance)
    keeper = keep(instance, capacity_bytes=1 << 16)
    rng = np.random.default_rng(seed)
    path = instance.directory / "image"
    sound = np.frombuffer(path.read_bytes(), np.uint8)
    places = np.flatnonzero(sound)
    places = np.concatenate((places[places > 128], np.arange(4096, 4300)))
    outcomes = {True: 0, False: 0}
    memory = np.memmap(path, np.uint8, "r+")
    for _ in range(500):
        memory[:] = sound
        for place in rng.choice(places, rng.integers(1, 4)):
            memory[place] = rng.integers(256)
        with RingCursor.attach(instance.directory, payload_hash=PAYLOAD_HASH) as cursor:
            try:
                join = ImageJoin(instance.directory, RingFeedCursor(cursor), 0.0)
            except UdpfastError:
                outcomes[False] += 1
            else:
                assert join.payload_max < 1 << 20
                outcomes[True] += 1
    memory[:] = sound
    assert min(outcomes.values()) > 20
    keeper.on_stop()


def test_keeper_is_listed_among_the_readers_with_its_lag(instance: Instance) -> None:
    live_book(instance)
    keeper = keep(instance)
    for number in range(5):
        instance.top(float(number), number + 1.0)
    instance.ring.flush()

    def listed() -> tuple[str, int, int, int]:
        (info,) = list_readers(instance.directory)
        assert info.alive
        assert info.began_index + info.read + info.lapped == info.index
        return info.name, info.index, info.read, info.lapped

    assert listed() == ("image", 3, 3, 0)
    catch_up(keeper)
    assert listed() == ("image", 8, 8, 0)
    for number in range(20_000):  # more than the ring holds
        instance.top(float(number), number + 1.0)
    instance.ring.flush()
    catch_up(keeper)
    name, index, read, lapped = listed()
    assert (name, index) == ("image", instance.ring.index)
    assert lapped == keeper.lapped == index - read > 0
    keeper.on_stop()
    assert list_readers(instance.directory) == []


def without_memory(directory: Path) -> None:
    """Keep an image of a book whose next update finds no memory: in a process of its own."""
    instance = Instance(directory, 1 << 24)
    live_book(instance)
    keeper = keep(instance, capacity_bytes=1 << 24)
    rows = [(100.0 + i, 1.0) for i in range(20_000)]
    instance.book([], rows, number=101, follows=100)
    instance.ring.flush()
    before = keeper.position, keeper.index
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
    malloc.restype, free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    blocks = (ctypes.c_void_p * 10_000)()
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), limits[1]))
    taken = 0  # what was freed since the process began would do for the update: take it away
    while block := malloc(1 << 16):
        blocks[taken] = block
        taken += 1
    done = keeper.work(ALWAYS)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    for block in blocks[:taken]:
        free(block)
    assert done == -errno.ENOMEM
    assert (keeper.position, keeper.index) == before
    keeper.on_stop()  # its image ends before the update: who joins reads that in the ring
    with Reader(instance.address, image=True) as reader:
        books = Books(reader)
        while len(books.poll(timeout=0)):
            pass
    (book,) = books.values()
    assert not book.stale
    assert book.levels == (2, 20_001)


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer needs memory of its own"
)
def test_update_without_memory_is_not_taken_for_contained(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from tests.agents.test_image_keeper import without_memory; "
        "without_memory(pathlib.Path(sys.argv[1]))"
    )
    # Large blocks come from the kernel each, and so can be refused.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "feed"],
        check=False, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_lapped_keeper_does_not_believe_a_snapshot_that_the_feed_may_doubt(
    instance: Instance,
) -> None:
    live_book(instance)
    keeper = keep(instance)
    for _ in range(12):  # a gap may be among them
        instance.append(Kind.MESSAGE, bytes(100_000))
    instance.ring.flush()
    catch_up(keeper)
    assert keeper.lapped > 0
    assert kinds(image_of(instance)) == [Kind.BOOK, Kind.STALE]
    instance.book([(7, 7)], [], snapshot=True, stream=1, number=3, follows=90_000)
    instance.ring.flush()
    catch_up(keeper)
    records = image_of(instance)
    assert kinds(records) == [Kind.BOOK, Kind.STALE]
    assert records[1].data["status"] == ObjectStatus.UNKNOWN
    state(instance, Kind.RECOVERED, number=90_001, follows=90_000)
    instance.ring.flush()
    catch_up(keeper)
    assert kinds(image_of(instance)) == [Kind.RECOVERED, Kind.BOOK]
    keeper.on_stop()


def gateway(instance: Instance, account: bytes, supported: int = 0, flags: int = 32) -> None:
    update = np.zeros((), GATEWAY_STATUS)
    update["account"], update["supported"] = account, supported
    instance.append(Kind.GATEWAY_STATUS, update.tobytes(), flags, object_type=9, session=1)
    instance.ring.flush()


def accounts(records: list[ReadRecord]) -> dict[bytes, int]:
    return {
        bytes(record.data["account"]): int(record.data["supported"])
        for record in records
        if record.kind is Kind.GATEWAY_STATUS
    }


def test_values_of_an_object_beyond_their_limit_are_counted_and_it_waits(
    instance: Instance,
) -> None:
    session(instance)
    keeper = keep(instance)
    for number in range(1_500):
        gateway(instance, b"account-%d" % number, number)
        if number % 500 == 499:
            catch_up(keeper)
    gateway(instance, b"account-0", 7)  # one that is known is still kept
    catch_up(keeper)
    assert keeper.refused == (0, 1_500 - 1_024)
    records = image_of(instance)
    found = accounts(records)
    assert len(found) == 1_024
    assert found[b"account-0"] == 7
    assert records[-1].kind is Kind.STALE
    keeper.on_stop()


def test_values_that_a_cut_text_does_not_tell_apart_are_not_merged(instance: Instance) -> None:
    session(instance)
    gateway(instance, b"one", 1)
    for number in range(3):
        gateway(instance, b"a" * 32, 2 + number, 32 | RecordFlag.TRUNCATED)
    keeper = keep(instance)
    assert keeper.refused == (0, 3)
    assert accounts(image_of(instance)) == {b"one": 1}
    assert image_of(instance)[-1].kind is Kind.STALE
    keeper.on_stop()


def test_instruments_without_a_name_are_not_merged(instance: Instance) -> None:
    session(instance)
    for price in (1.0, 2.0):
        top = instance.update(TOP_OF_BOOK, "binance-usdm", "", bid_price=price)
        top["symbol_id"] = 0  # it was too long for the table
        instance.append(
            Kind.TOP_OF_BOOK, top.tobytes(), 32 | RecordFlag.TRUNCATED, object_type=6, session=1
        )
    instance.ring.flush()
    keeper = keep(instance)
    assert keeper.refused == (0, 2)
    assert Kind.TOP_OF_BOOK not in kinds(image_of(instance))
    keeper.on_stop()


def test_object_that_names_another_symbol_has_the_book_of_that_alone(instance: Instance) -> None:
    live_book(instance)
    instance.book([(20, 1)], [], "ETHUSDT", snapshot=True, number=101, follows=100)
    instance.ring.flush()
    keeper = keep(instance)
    books = [record for record in image_of(instance) if record.kind is Kind.BOOK]
    assert [(record.symbol, len(record.bids)) for record in books] == [("ETHUSDT", 1)]
    instance.book([(21, 1)], [], "BTCUSDT", number=102, follows=101)
    instance.ring.flush()
    catch_up(keeper)
    assert kinds(image_of(instance)) == [Kind.SESSION, Kind.STALE], "nothing that it builds on"
    keeper.on_stop()


@pytest.mark.parametrize("quantity", [float("nan"), -1.0])
@pytest.mark.parametrize("snapshot", [False, True])
def test_level_that_is_no_number_puts_the_book_in_doubt_as_a_strategy_has_it(
    instance: Instance, snapshot: bool, quantity: float
) -> None:
    live_book(instance)
    instance.book([(10, quantity), (8, 1)], [(11, 3)], snapshot=snapshot, number=101, follows=100)
    instance.ring.flush()
    keeper = keep(instance)
    found = []
    for image in (False, True):
        with Reader(instance.address, start=None if image else "begin", image=image) as reader:
            books = Books(reader)
            while len(books.poll(timeout=0)):
                pass
            (book,) = books.values()
            found.append((book.bids().tolist(), book.stale))
    assert found[0] == found[1] == ([[10.0, 1.0], [9.0, 2.0], [8.0, 1.0]][2 * snapshot :], True)
    keeper.on_stop()


def stale_to_late_readers(instance: Instance) -> dict[str, bool]:
    """Return by symbol whether a late reader's book is stale, and check those who were there."""
    found = []
    for image in (False, True):
        with Reader(instance.address, start=None if image else "begin", image=image) as reader:
            books = Books(reader)
            while len(books.poll(timeout=0)):
                pass
            found.append({symbol: book.stale for (_, symbol), book in books.items()})
    assert found[0] == found[1]
    return found[1]


def test_records_that_the_ring_itself_misses_put_every_value_in_doubt(instance: Instance) -> None:
    # A journal that is published once more lacks what was lost of it, and its ring says so.
    live_book(instance)
    instance.append(Kind.LAPPED, np.array([(5, 0, 0)], LAPPED).tobytes())
    instance.ring.flush()
    keeper = keep(instance)
    assert keeper.lapped == 5
    assert stale_to_late_readers(instance) == {"BTCUSDT": True}
    instance.book([(7, 7)], [], snapshot=True, number=102, follows=101)
    instance.ring.flush()
    catch_up(keeper)
    assert stale_to_late_readers(instance) == {"BTCUSDT": False}
    keeper.on_stop()


def test_doubt_of_what_has_no_gate_reaches_a_late_reader(instance: Instance) -> None:
    ungated = {"flags": RecordFlag.UNGATED, "object_type": 0, "object_id": 0}
    session(instance)
    for symbol in ("BTCUSDT", "ETHUSDT"):
        instance.book([(10, 1)], [(11, 1)], symbol, snapshot=True, **ungated)
    instance.ring.flush()
    keeper = keep(instance)
    assert stale_to_late_readers(instance) == {"BTCUSDT": False, "ETHUSDT": False}
    gap(instance)
    instance.book([(10, 2)], [(11, 2)], "ETHUSDT", snapshot=True, **ungated)
    instance.ring.flush()
    catch_up(keeper)
    assert stale_to_late_readers(instance) == {"BTCUSDT": True, "ETHUSDT": False}
    keeper.on_stop()


@pytest.mark.parametrize("kind", [Kind.TOP_OF_BOOK, Kind.ORDERS])
def test_another_value_of_an_ungated_object_does_not_end_the_doubt_of_its_book(
    instance: Instance, kind: Kind
) -> None:
    ungated = {"flags": RecordFlag.UNGATED, "object_type": 0, "object_id": 0}
    session(instance)
    instance.book([(10, 1)], [(11, 1)], snapshot=True, **ungated)
    gap(instance)
    if kind is Kind.ORDERS:
        update = instance.update(ORDERS, "binance-usdm", "BTCUSDT", update_type=1)
        instance.append(kind, update.tobytes(), RecordFlag.UNGATED, session=1)
    else:
        instance.top(10, 11, session=1, **ungated)
    instance.ring.flush()
    keeper = keep(instance)
    assert stale_to_late_readers(instance) == {"BTCUSDT": True}
    instance.book([(10, 2)], [(11, 2)], snapshot=True, **ungated)
    instance.ring.flush()
    catch_up(keeper)
    assert stale_to_late_readers(instance) == {"BTCUSDT": False}
    keeper.on_stop()


def test_first_rows_without_a_gate_behind_a_gap_are_in_doubt(instance: Instance) -> None:
    # Rows that were lost may have been of a symbol that was not seen before.
    session(instance)
    gap(instance)
    update = instance.update(STATISTICS, "x", "y", row_count=1, update_type=2, present=2)
    values = np.zeros(1, STATISTIC)
    values["type"], values["value"] = 1, 10.0
    instance.append(
        Kind.STATISTICS, update.tobytes() + values.tobytes(), RecordFlag.UNGATED, session=1
    )
    instance.ring.flush()
    keeper = keep(instance)
    assert kinds(image_of(instance)) == [Kind.SESSION, Kind.STATISTICS, Kind.STALE]
    keeper.on_stop()


def test_update_that_does_not_say_of_what_it_is_puts_all_in_doubt(instance: Instance) -> None:
    live_book(instance)
    instance.append(Kind.BOOK, bytes(8), object_type=3, object_id=8, session=1)
    instance.ring.flush()
    keeper = keep(instance)
    assert kinds(image_of(instance)) == [Kind.BOOK, Kind.STALE]
    keeper.on_stop()
