"""Callbacks: which method gets which record, and what happens in between."""

from pathlib import Path

import pytest

from tests.client.instance import Instance
from udpfast import Books, Callbacks, ConfigError, Kind, Reader, ReadRecord, RingClosedError
from udpfast.client.callbacks import CALLBACK_NAMES
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.market.updates import UPDATE_DTYPES

GAP = bytes(CONTROL_DTYPES[Kind.GAP].itemsize)


class Noting:
    """Has a method for every kind; each notes its name and the record's index."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        for name in CALLBACK_NAMES.values():
            setattr(self, name, lambda record, name=name: self.calls.append((name, record.index)))


def test_each_kind_goes_to_its_own_method(instance: Instance) -> None:
    kinds = [kind for kind in Kind if kind not in (Kind.PAD, Kind.LAPPED)]
    for kind in kinds:
        dtype = {**UPDATE_DTYPES, **CONTROL_DTYPES}.get(kind)
        instance.append(kind, bytes(dtype.itemsize if dtype else 8))
    instance.ring.close()
    strategy = Noting()
    with Reader(instance.address, start="begin") as reader:
        assert Callbacks(reader, strategy).run() == len(kinds)
    assert strategy.calls == [(CALLBACK_NAMES[kind], i) for i, kind in enumerate(kinds)]
    assert CALLBACK_NAMES[Kind.TRADES] == "on_trade"


def test_kinds_without_a_method_go_to_on_other_or_nowhere(instance: Instance) -> None:
    class Quotes:
        def __init__(self) -> None:
            self.bids: list[float] = []

        def on_top_of_book(self, record: ReadRecord) -> None:
            self.bids.append(float(record.data["bid_price"]))

    class QuotesAndOther(Quotes):
        def __init__(self) -> None:
            super().__init__()
            self.others: list[Kind] = []

        def on_other(self, record: ReadRecord) -> None:
            self.others.append(record.kind)

    instance.top(1.0, 2.0)
    instance.append(Kind.GAP, GAP)
    instance.top(3.0, 4.0)
    instance.ring.close()
    quotes, both = Quotes(), QuotesAndOther()
    with Reader(instance.address, start="begin") as reader:
        assert Callbacks(reader, quotes).run() == 2
        assert reader.index == 3
    with Reader(instance.address, start="begin") as reader:
        assert Callbacks(reader, both).run() == 3
    assert quotes.bids == both.bids == [1.0, 3.0]
    assert both.others == [Kind.GAP]


def test_books_are_kept_whether_or_not_anybody_is_called(instance: Instance) -> None:
    class Trader:
        def __init__(self) -> None:
            self.best: list[object] = []

        def on_top_of_book(self, record: ReadRecord) -> None:
            self.best.append(books[record.exchange, record.symbol].best())

    instance.book([(10.0, 1.0)], [(11.0, 2.0)], snapshot=True)
    instance.top(1.0, 2.0)
    instance.book([(10.5, 3.0)], [])
    instance.top(1.0, 2.0)
    instance.ring.close()
    books, trader = Books(), Trader()
    with Reader(instance.address, start="begin") as reader:
        Callbacks(reader, trader, books=books).run()
    assert trader.best == [(10.0, 1.0, 11.0, 2.0), (10.5, 3.0, 11.0, 2.0)]


def test_laps_reach_on_lapped_and_the_books(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=1 << 16)
    instance.book([(10.0, 1.0)], [(11.0, 2.0)], snapshot=True)
    books, missed = Books(), []

    class Careful:
        def on_lapped(self, record: ReadRecord) -> None:
            missed.append(record.lapped)

    with Reader(instance.address, start="begin") as reader:
        callbacks = Callbacks(reader, Careful(), books=books)
        assert callbacks.poll(timeout=0) == 0
        assert not books["binance-usdm", "BTCUSDT"].stale
        for _ in range(1000):
            instance.top(1.0, 2.0)
        instance.ring.close()
        assert callbacks.run() == 1
        assert missed == [reader.lapped]
    assert books["binance-usdm", "BTCUSDT"].stale
    instance.close()


def test_exception_of_a_callback_loses_no_record(instance: Instance) -> None:
    seen: list[int] = []

    class Failing:
        def on_top_of_book(self, record: ReadRecord) -> None:
            seen.append(record.index)
            if record.index == 1:
                raise ArithmeticError("a strategy's own")

    for number in range(4):
        instance.top(float(number), 1.0)
    instance.ring.close()
    with Reader(instance.address, start="begin") as reader:
        callbacks = Callbacks(reader, Failing())
        with pytest.raises(ArithmeticError):
            callbacks.run()
        assert callbacks.run() == 2
        with pytest.raises(RingClosedError):
            callbacks.poll()
    assert seen == [0, 1, 2, 3]


def test_stop_ends_the_run_behind_the_current_call(instance: Instance) -> None:
    seen: list[int] = []

    class Once:
        def on_top_of_book(self, record: ReadRecord) -> None:
            seen.append(record.index)
            callbacks.stop()

    for number in range(3):
        instance.top(float(number), 1.0)
    with Reader(instance.address, start="begin") as reader:
        callbacks = Callbacks(reader, Once())
        assert callbacks.run() == 1
        assert callbacks.poll() == 1
        assert seen == [0, 1]
        assert next(reader).index == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("on_trades", "did you mean on_trade\\?"),
        ("on_bok", "did you mean on_book\\?"),
        ("x", "has no"),
    ],
)
def test_strategy_that_would_never_be_called_is_refused(
    instance: Instance, name: str, message: str
) -> None:
    strategy = type("Strategy", (), {name: lambda self, record: None})()
    with Reader(instance.address) as reader, pytest.raises(ConfigError, match=message):
        Callbacks(reader, strategy)


def test_stop_also_ends_a_poll_within_a_callback_and_those_around_it(instance: Instance) -> None:
    class Strategy:
        calls = 0

        def on_top_of_book(self, record: ReadRecord) -> None:
            self.calls += 1
            if self.calls == 3:
                callbacks.stop()
                assert callbacks.poll(timeout=0) == 0

    for each in range(10):
        instance.top(each, each + 1)
    strategy = Strategy()
    with Reader(instance.address, start="begin") as reader:
        callbacks = Callbacks(reader, strategy)
        assert (callbacks.poll(timeout=0), strategy.calls) == (3, 3)
        assert (callbacks.poll(timeout=0), strategy.calls) == (7, 10)  # the next poll begins anew


@pytest.mark.parametrize("books", [False, True])
def test_reader_closed_by_a_callback_brings_no_more_calls(instance: Instance, books: bool) -> None:
    class Strategy:
        calls = 0

        def on_top_of_book(self, record: ReadRecord) -> None:
            self.calls += 1
            reader.close()

    for each in range(10):
        instance.top(each, each + 1)
    strategy = Strategy()
    for run in (False, True):
        reader = Reader(instance.address, start="begin")
        callbacks = Callbacks(reader, strategy, books=Books() if books else None)
        strategy.calls = 0
        assert (callbacks.run() if run else callbacks.poll(timeout=0), strategy.calls) == (1, 1)
        with pytest.raises(ValueError, match="is closed"):
            callbacks.poll(timeout=0)
        assert callbacks.run() == 0
