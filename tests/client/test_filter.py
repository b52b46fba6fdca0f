"""Filters: which records pass them, and that all others are accounted for."""

import asyncio
import random
import threading
from pathlib import Path

import pytest

from tests.client.instance import Instance
from tests.waiting import PATIENCE_S
from udpfast import ConfigError, FormatError, Kind, Latest, Reader
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.log.readers import list_readers
from udpfast.market.updates import TOP_OF_BOOK

GAP = bytes(CONTROL_DTYPES[Kind.GAP].itemsize)


def mixed(instance: Instance) -> None:
    """Append updates of two symbols and kinds, with a doubt and a raw message between them."""
    instance.top(1.0, 2.0, "BTC")
    instance.book([(1.0, 1.0)], [], "BTC", snapshot=True)
    instance.append(Kind.GAP, GAP)
    instance.top(3.0, 4.0, "ETH")
    instance.append(Kind.MESSAGE, b"raw")
    instance.book([(3.0, 1.0)], [], "ETH", snapshot=True)
    instance.ring.close()


TOP, BOOK, DOUBT = Kind.TOP_OF_BOOK, Kind.BOOK, Kind.GAP


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kinds": TOP}, [TOP, DOUBT, TOP]),
        ({"kinds": [BOOK, Kind.MESSAGE]}, [BOOK, DOUBT, Kind.MESSAGE, BOOK]),
        ({"symbols": "ETH"}, [DOUBT, TOP, BOOK]),
        ({"symbols": {"BTC", "ETH"}}, [TOP, BOOK, DOUBT, TOP, BOOK]),
        ({"exchanges": "binance-usdm"}, [TOP, BOOK, DOUBT, TOP, BOOK]),
        ({"exchanges": "another"}, [DOUBT]),
        ({"kinds": (TOP,), "symbols": ["BTC"]}, [TOP, DOUBT]),
    ],
)
@pytest.mark.parametrize("by_batch", [False, True])
def test_filter_passes_what_is_wanted_and_every_doubt(
    instance: Instance, options: dict[str, object], expected: list[Kind], by_batch: bool
) -> None:
    with Reader(instance.address, start="begin", **options) as reader:  # type: ignore[arg-type]
        mixed(instance)
        if by_batch:
            batch = reader.poll()
            kinds = [Kind(kind) for kind in batch.headers["kind"]]
            assert all(batch.payload(i) == batch.copy().payload(i) for i in range(len(batch)))
        else:
            kinds = [record.kind for record in reader]
        assert kinds == expected


def test_filter_by_kind_passes_doubts_of_every_kind(instance: Instance) -> None:
    doubts = [kind for kind in Kind if Kind.GAP <= kind <= Kind.LAPPED]
    for kind in doubts:
        instance.append(kind, bytes(CONTROL_DTYPES[kind].itemsize))
        instance.top(1.0, 2.0, "BTC")
    instance.ring.close()
    with Reader(instance.address, start="begin", kinds=BOOK) as reader:
        assert [record.kind for record in reader] == doubts


def test_filter_counts_as_read_what_it_holds_back(instance: Instance) -> None:
    with Reader(instance.address, start="begin", kinds=Kind.TRADES) as reader:
        for number in range(10):
            instance.top(float(number), number + 1.0)
        instance.ring.flush()
        assert len(reader.poll(timeout=0)) == 0
        assert (reader.index, reader.lag) == (10, 0)
        assert len(reader.poll(timeout=0)) == 0  # reports what the poll before did
        info = list_readers(instance.directory)[0]
        assert (info.index, info.read, info.lapped) == (10, 10, 0)


def test_filter_passes_the_doubts_of_wanted_and_unnamed_objects(instance: Instance) -> None:
    for symbol in ("BTC", "ETH", ""):
        state = instance.update(CONTROL_DTYPES[Kind.STALE], "binance-usdm", symbol or "unnamed")
        if not symbol:
            state["symbol_id"] = 0
        instance.append(Kind.STALE, state.tobytes(), object_id=len(symbol))
    instance.ring.close()
    with Reader(instance.address, start="begin", symbols="ETH") as reader:
        assert [record.symbol for record in reader] == ["ETH", None]


def test_filter_follows_names_through_a_restart(instance: Instance, tmp_path: Path) -> None:
    instance.top(1.0, 2.0, "BTC")  # id 2 of the first table
    instance.top(1.0, 2.0, "ETH")
    other = Instance(tmp_path / "other")
    with Reader(instance.address, start="begin", symbols="ETH") as reader:
        instance.ring.announce_restart(0)
        (tmp_path / "other" / "names").replace(instance.directory / "names")
        for symbol in ("ETH", "BTC"):  # id 2 is ETH now
            update = other.update(TOP_OF_BOOK, "binance-usdm", symbol)
            instance.append(Kind.TOP_OF_BOOK, update.tobytes())
        instance.ring.close()
        found = [(record.kind, record.symbol, record.index) for record in reader]
    other.close()
    assert found == [(TOP, "ETH", 1), (Kind.RESTART, None, 2), (TOP, "ETH", 3)]


def test_filter_says_at_once_how_many_were_missed(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=1 << 16)
    with Reader(instance.address, start="begin", kinds=Kind.TRADES, batch=16) as reader:
        for number in range(1000):
            instance.top(float(number), 0.0)
        record = next(reader)
        assert record.kind is Kind.LAPPED
        assert 0 < record.lapped < 1000 and record.index == 0
    with Reader(instance.address, kinds=Kind.TRADES, batch=16) as reader:
        for number in range(1000):
            instance.top(float(number), 0.0)
        batch = reader.poll(timeout=0)
        assert len(batch) == 0 and batch.lapped > 0
        assert batch.lapped == reader.lapped
    instance.close()


def test_filter_and_none_agree_on_random_streams(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    instance = Instance(tmp_path / "feed")
    wanted = {"S1", "S3"}
    with (
        Reader(instance.address, start="begin") as every,
        Reader(instance.address, start="begin", kinds=TOP, symbols=wanted, batch=7) as some,
    ):
        found = []
        for _ in range(300):
            for _ in range(chance.randrange(5)):
                symbol = f"S{chance.randrange(5)}"
                chance.choice(
                    [
                        lambda s=symbol: instance.top(chance.random(), 1.0, s),
                        lambda s=symbol: instance.book([(1.0, 1.0)], [], s),
                        lambda: instance.append(Kind.GAP, GAP),
                    ]
                )()
            found += some.poll(timeout=0).headers["index"].tolist()
        while len(batch := some.poll(timeout=0)):
            found += batch.headers["index"].tolist()
        instance.ring.close()
        expected = [
            record.index
            for record in every
            if record.kind is DOUBT or (record.kind is TOP and record.symbol in wanted)
        ]
    assert found == expected, f"seed {seed}"
    instance.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": [Kind.PAD]}, "kinds must be"),
        ({"kinds": ["bok"]}, "a kind must be"),
        ({"kinds": "boo"}, "was 'boo'; did you mean 'BOOK'"),
        ({"kinds": 99}, "was 99$"),
        ({"symbols": 3}, "non-empty list of names"),
        ({"symbols": []}, "non-empty list of names"),
        ({"exchanges": [1]}, "non-empty list of names"),
    ],
)
def test_filter_of_what_can_never_pass_is_refused(
    instance: Instance, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Reader(instance.address, **options)  # type: ignore[arg-type]


def test_wait_says_whether_there_is_something_and_takes_nothing(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        assert not reader.wait(timeout=0)
        instance.top(1.0, 2.0)
        assert reader.wait() and reader.wait(timeout=0)
        assert len(reader.poll(timeout=0)) == 1
        assert not reader.wait(timeout=0.001)
        threading.Timer(0.02, lambda: instance.top(2.0, 3.0)).start()
        assert reader.wait(timeout=PATIENCE_S)
        assert next(reader).data["bid_price"] == 2.0
        instance.ring.close()
        assert not reader.wait()
    assert not reader.wait()


def test_wait_with_a_filter_looks_at_the_time_between_runs(instance: Instance) -> None:
    for _ in range(10):
        instance.append(Kind.MESSAGE, b"x")
    instance.top(1.0, 2.0)
    with Reader(instance.address, start="begin", kinds=Kind.TOP_OF_BOOK, batch=1) as reader:
        found = [reader.wait(timeout=0) for _ in range(11)]
    assert found == [False] * 10 + [True]  # however many that do not pass, it ends in time


def test_poll_that_does_not_wait_looks_behind_what_the_filter_holds_back(
    instance: Instance,
) -> None:
    with (
        Reader(instance.address, batch=3, symbols="ETH") as reader,
        Reader(instance.address, batch=3, symbols="ETH") as other,
        Reader(instance.address, batch=3, symbols="ETH") as sleeper,
    ):
        latest = Latest(other)
        for _ in range(10):
            instance.top(1.0, 2.0, "BTC")
        instance.top(3.0, 4.0, "ETH")
        for _ in range(10):
            instance.top(1.0, 2.0, "BTC")
        instance.top(5.0, 6.0, "ETH")
        instance.ring.flush()
        assert reader.wait(timeout=0)
        assert list(reader.poll(timeout=0).headers["index"]) == [10]
        assert list(reader.poll(timeout=0).headers["index"]) == [21]
        assert len(reader.poll(timeout=0)) == 0 == reader.lag
        assert [record.index for record in latest.poll(timeout=0)] == [21]
        assert asyncio.run(turns_until(sleeper, index=10)) < 20


def test_names_that_cannot_be_read_let_nothing_past_the_filter(instance: Instance) -> None:
    path = instance.directory / "names"
    path.unlink()
    path.write_bytes(b"x" * 8192)
    path.chmod(0o600)
    with Reader(instance.address, symbols="ETH") as reader:
        instance.top(1.0, 2.0, "BTC")
        instance.append(Kind.GAP, GAP)
        instance.ring.flush()
        with pytest.raises(FormatError, match="names"):
            reader.poll(timeout=0)
        assert list(reader.poll(timeout=0).headers["kind"]) == [Kind.GAP]


async def turns_until(reader: Reader, index: int) -> int:
    """Return how often other tasks ran before a reader had its next record."""
    turns = 0
    arrived = asyncio.ensure_future(reader.arrival())
    while not arrived.done():
        await asyncio.sleep(0)
        turns += 1
    assert next(reader).index == index
    return turns
