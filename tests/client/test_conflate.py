"""Conflation: the newest record of each object, all doubts, and books from all records."""

import ctypes
import random
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.client.instance import REGION_PAGE, Instance
from udpfast import (
    Books,
    ConfigError,
    FormatError,
    Kind,
    Latest,
    Reader,
    RecordFlag,
    RingClosedError,
)
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.market.updates import BOOK, CUSTOM_METRICS, TRADES

GAP = bytes(CONTROL_DTYPES[Kind.GAP].itemsize)


def test_only_the_newest_of_each_object_is_handed_out(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        latest = Latest(reader)
        assert latest.poll(timeout=0) == []
        for number in range(5):
            instance.top(float(number), 9.0, "BTC")
            instance.top(float(number), 9.0, "ETH")
        instance.book([(1.0, 1.0)], [], "BTC", snapshot=True)
        found = latest.poll()
        assert [(r.kind, r.symbol, r.index) for r in found] == [
            (Kind.TOP_OF_BOOK, "BTC", 8),
            (Kind.TOP_OF_BOOK, "ETH", 9),
            (Kind.BOOK, "BTC", 10),
        ]
        assert latest.superseded == 8
        assert latest.poll(timeout=0) == []
        instance.ring.close()
        with pytest.raises(RingClosedError):
            latest.poll()


def test_doubts_and_kept_kinds_stay_in_their_place(instance: Instance) -> None:
    trade = instance.update(TRADES, "binance-usdm", "BTC").tobytes()
    with Reader(instance.address, start="begin", batch=2) as reader:  # over several runs
        instance.top(1.0, 2.0, "BTC")
        instance.append(Kind.TRADES, trade)
        instance.append(Kind.GAP, GAP)
        instance.top(3.0, 4.0, "BTC")
        instance.append(Kind.TRADES, trade)
        instance.append(Kind.TOP_OF_BOOK, bytes(400))  # names nobody
        instance.append(Kind.TOP_OF_BOOK, bytes(400))
        instance.ring.flush()
        latest = Latest(reader)
        assert [record.index for record in latest.poll()] == [1, 2, 3, 4, 5, 6]
        assert latest.superseded == 1
    with Reader(instance.address, start="begin", batch=2) as reader:
        latest = Latest(reader, keep=())
        assert [record.index for record in latest.poll()] == [2, 3, 4, 5, 6]
        assert latest.superseded == 2
        instance.ring.close()


def test_metrics_of_one_symbol_are_all_handed_out(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        for label in (b"risk", b"queue", b"risk"):  # each carries some of the measurements
            update = instance.update(CUSTOM_METRICS, "binance-usdm", "BTC", label=label)
            instance.append(Kind.CUSTOM_METRICS, update.tobytes())
        instance.ring.flush()
        assert [record.data["label"] for record in Latest(reader).poll()] == [
            b"risk",
            b"queue",
            b"risk",
        ]


def test_books_are_those_of_every_record(instance: Instance) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    books = Books()
    with (
        Reader(instance.address, start="begin", batch=16) as reader,
        Reader(instance.address, start="begin") as every,
    ):
        latest = Latest(reader)
        for symbol, object_id in (("BTC", 7), ("ETH", 8)):
            instance.book([(1.0, 1.0)], [(2.0, 1.0)], symbol, snapshot=True, object_id=object_id)
        for _ in range(50):
            for _ in range(chance.randrange(40)):
                instance.book([(chance.randrange(9) / 4, float(chance.randrange(3)))], [], "BTC")
            instance.ring.flush()
            found = latest.poll(timeout=0)
            assert len(found) <= 2, f"seed {seed}"
            books.apply_batch(every.poll(timeout=0))
            for key in books:
                assert latest.books[key].best() == books[key].best(), f"seed {seed}"


def test_books_of_two_objects_of_one_name_are_handed_out_both(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        latest = Latest(reader)
        for quantity in (1.0, 2.0):
            for object_id in (7, 8):
                instance.book([(object_id, quantity)], [], snapshot=True, object_id=object_id)
        instance.ring.flush()
        found = latest.poll(timeout=0)
        assert [(one.object & 0xFFFF, one.bids["quantity"][0]) for one in found] == [
            (7, 2.0),
            (8, 2.0),
        ]
        assert latest.superseded == 2
        assert latest.books["binance-usdm", "BTCUSDT"].stale


def test_records_before_a_failure_are_handed_out_first(instance: Instance) -> None:
    with Reader(instance.address, start="begin", batch=2) as reader:
        latest = Latest(reader)
        for number in range(4):
            instance.top(float(number), 9.0, f"S{number}")
        instance.ring.flush()
        # The third one is none: of a position that it has not.
        view = np.frombuffer(instance.ring.region.view(), np.uint8)
        at = REGION_PAGE + 2 * instance.ring.position // 4
        assert view[at + 8 : at + 16].view(np.uint64)[0] == 2 * instance.ring.position // 4
        view[at + 8] ^= 0xFF
        assert [record.symbol for record in latest.poll()] == ["S0", "S1"]
        for _ in range(2):
            with pytest.raises(FormatError, match="expected record 2"):
                latest.poll()


def test_iteration_ends_with_the_ring(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        for number in range(100):
            instance.top(float(number), 9.0)
        instance.ring.close()
        assert [record.index for record in Latest(reader)] == [99]


def test_many_objects_are_told_apart(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=1 << 20)
    with Reader(instance.address, start="begin", batch=256) as reader:
        latest = Latest(reader)
        update = instance.update(TRADES, "binance-usdm", "BTC")
        for lap in range(2):
            for number in range(1, 1001):
                update["symbol_id"] = number
                instance.append(Kind.TRADES, update.tobytes())
            instance.ring.flush()
            assert len(latest.poll()) == 1000, lap
            assert latest.superseded == 0
    instance.close()


def test_laps_are_said(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=1 << 16)
    with Reader(instance.address, start="begin") as reader:
        for number in range(1000):
            instance.top(float(number), 9.0)
        instance.ring.close()
        found = list(Latest(reader))
        assert found[0].kind is Kind.LAPPED
        assert found[0].lapped == reader.lapped > 0
        assert found[-1].index == 999
        assert len(found) == 2
    instance.close()


def test_restart_begins_names_anew(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        instance.top(1.0, 2.0)
        instance.ring.announce_restart(0)
        instance.top(3.0, 4.0)
        instance.ring.close()
        assert [record.kind for record in Latest(reader)] == [
            Kind.TOP_OF_BOOK,
            Kind.RESTART,
            Kind.TOP_OF_BOOK,
        ]


class Interrupting(str):
    """A name whose comparison leaves SIGINT pending, for Latest's next check of signals."""

    __eq__ = ctypes.pythonapi.PyErr_SetInterrupt  # type: ignore[assignment]
    __hash__ = str.__hash__


@pytest.mark.filterwarnings("ignore:.*not published so far")  # so says how that name is equal
def test_records_of_a_poll_that_a_signal_ended_are_handed_out_by_the_next(
    instance: Instance,
) -> None:
    instance.top(1.0, 2.0, "BTC")
    instance.top(1.0, 2.0, "ETH")
    instance.top(1.0, 2.0, "SOL")
    instance.ring.close()
    names = {"BTC", Interrupting("ETH"), "SOL"}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a reader looks at names when it opens
    try:
        with Reader(instance.address, start="begin", batch=1, symbols=names) as reader:
            latest = Latest(reader)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with pytest.raises(KeyboardInterrupt):
                latest.poll()
            assert [record.symbol for record in latest.poll()] == ["BTC", "SOL"]
            with pytest.raises(RingClosedError):
                latest.poll()
    finally:
        signal.signal(signal.SIGINT, before)


def test_same_ids_of_two_addresses_are_two_objects(instance: Instance, tmp_path: Path) -> None:
    other = Instance(tmp_path / "other")
    instance.top(1.0, 2.0, "BTC")
    other.top(3.0, 4.0, "ETH")
    instance.top(5.0, 6.0, "BTC")
    with Reader([instance.address, other.address], start="begin") as reader:
        latest = Latest(reader)
        found = [
            (record.symbol, float(record.update.header["bid_price"])) for record in latest.poll()
        ]
    assert sorted(found) == [("BTC", 5.0), ("ETH", 3.0)]
    assert latest.superseded == 1
    other.close()


def test_kept_kind_that_is_no_update_is_refused(instance: Instance) -> None:
    with Reader(instance.address) as reader, pytest.raises(ConfigError, match="keep"):
        Latest(reader, keep=[Kind.GAP])


def test_update_that_is_none_is_said_behind_what_there_is(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        latest = Latest(reader)
        instance.book([(1.0, 1.0)], [], "BTC", snapshot=True)
        instance.book([(2.0, 1.0)], [], "ETH", snapshot=True, object_id=8)
        update = instance.update(BOOK, "binance-usdm", "BTC", bid_count=9, row_count=9)
        frame = {"object_type": 3, "object_id": 7, "session": 1}
        instance.append(Kind.BOOK, update.tobytes(), **frame)
        instance.book([(3.0, 1.0)], [], "ETH", object_id=8)
        instance.ring.flush()
        assert [record.index for record in latest.poll()] == [2, 3]
        assert latest.books["binance-usdm", "BTC"].stale
        assert latest.books["binance-usdm", "ETH"].best()[0] == 3.0
        with pytest.raises(FormatError, match="too short for its number of levels"):
            latest.poll(timeout=0)
        assert latest.poll(timeout=0) == []
        instance.append(Kind.BOOK, update.tobytes(), RecordFlag.SNAPSHOT, **frame)
        instance.ring.close()
        records = iter(latest)
        assert next(records).index == 4
        with pytest.raises(FormatError, match="too short for its number of levels"):
            next(records)
        assert list(records) == []


def test_two_objects_of_one_symbol_are_two_objects(instance: Instance) -> None:
    for price in (1.0, 2.0):
        for object_id in (7, 8):
            instance.top(price + object_id, 20.0, object_type=6, object_id=object_id)
    with Reader(instance.address, start="begin") as reader:
        found = [
            (record.object & 0xFFFF, float(record.data["bid_price"]))
            for record in Latest(reader).poll()
        ]
    assert found == [(7, 9.0), (8, 10.0)]
