"""The data client for nautilus_trader, where that is installed: its books are those of `Books`."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.instance import Instance
from tests.client.ring_market import SYMBOLS, Market
from tests.waiting import PATIENCE_S
from udpfast import Books, FormatError, Kind, Publisher, Reader, RecordFlag, Subscriber
from udpfast.config import parse_publish
from udpfast.core.layout import CONNECTION, GAP, ConnectionScope, ConnectionStatus
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import ORDER, ORDERS, REFERENCE_DATA, TOP_OF_BOOK
from udpfast.net.ports import free_ports
from udpfast.payload.roq.encode import encode_trades, encode_update

pytest.importorskip("nautilus_trader", reason="not installed: the extra [nautilus]")

from nautilus_trader.cache.cache import Cache
from nautilus_trader.common.component import LiveClock, MessageBus
from nautilus_trader.config import LoggingConfig, StrategyConfig, TradingNodeConfig
from nautilus_trader.core.uuid import UUID4
from nautilus_trader.data.engine import DataEngine
from nautilus_trader.data.messages import (
    SubscribeOrderBook,
    SubscribeQuoteTicks,
    SubscribeTradeTicks,
)
from nautilus_trader.live.node import TradingNode
from nautilus_trader.model.currencies import USD, Currency
from nautilus_trader.model.data import DataType, OrderBookDelta, OrderBookDeltas
from nautilus_trader.model.enums import AggressorSide, BookAction, BookType
from nautilus_trader.model.identifiers import ClientId, InstrumentId, Symbol, TraderId, Venue
from nautilus_trader.model.instruments import CryptoPerpetual, CurrencyPair
from nautilus_trader.model.objects import Price, Quantity
from nautilus_trader.trading.strategy import Strategy

from udpfast.client.nautilus import (
    FeedDoubt,
    UdpfastDataClient,
    UdpfastDataClientConfig,
    UdpfastDataClientFactory,
)

NAME = "UDPFAST"
Levels = list[tuple[float, float]]


def instrument(symbol: str, venue: str, prices: int = 2, sizes: int = 1) -> CurrencyPair:
    return CurrencyPair(
        instrument_id=InstrumentId(Symbol(symbol), Venue(venue)),
        raw_symbol=Symbol(symbol),
        base_currency=Currency.from_str("BTC"),
        quote_currency=USD,
        price_precision=prices,
        size_precision=sizes,
        price_increment=Price(10**-prices, prices),
        size_increment=Quantity(10**-sizes, sizes),
        ts_event=0,
        ts_init=0,
    )


def levels(book: Any) -> tuple[Levels, Levels]:
    """Return what a book of Nautilus holds."""
    return tuple(  # type: ignore[return-value]
        [(float(level.price), level.size()) for level in side]
        for side in (book.bids(), book.asks())
    )


def kept(books: Books, key: tuple[str, str]) -> tuple[Levels, Levels]:
    """Return what Nautilus shall hold: nothing of a book that is stale."""
    book = books.get(key)
    if book is None or book.stale:
        return [], []
    bids, asks = ([tuple(row) for row in side.tolist()] for side in (book.bids(), book.asks()))
    return bids, asks


class Desk:
    """A client with Nautilus's engine, bus and cache, which take what it says at once."""

    def __init__(self, address: str, exchange: str, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        clock = LiveClock()
        self.bus = MessageBus(TraderId("TESTER-001"), clock)
        self.cache = Cache()
        self.engine = DataEngine(self.bus, self.cache, clock)
        config = UdpfastDataClientConfig(address=address, exchange=exchange, venue="X", **settings)
        self.client: UdpfastDataClient = UdpfastDataClientFactory.create(
            self.loop, NAME, config, self.bus, self.cache, clock
        )
        self.engine.register_client(self.client)
        self.engine.start()
        self.reader = Reader(address, start="begin")
        self.said: list[Any] = []
        for topic in ("data.quotes.*", "data.trades.*", "data.FeedDoubt*", "data.book.deltas.*"):
            self.bus.subscribe(topic, self.said.append)

    def subscribe(self, symbol: str, what: str = "deltas", book_type: Any = BookType.L2_MBP) -> Any:
        """Subscribe as a strategy does."""
        instrument_id = InstrumentId(Symbol(symbol), Venue("X"))
        common = (instrument_id,)
        ids = (ClientId(NAME), Venue("X"), UUID4(), 0)
        command = {
            "deltas": lambda: SubscribeOrderBook(*common, OrderBookDelta, book_type, *ids),
            "quotes": lambda: SubscribeQuoteTicks(*common, *ids),
            "trades": lambda: SubscribeTradeTicks(*common, *ids),
        }[what]()

        async def run() -> None:
            self.engine.execute(command)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.loop.run_until_complete(run())
        return instrument_id

    def step(self) -> Any:
        """Take a record, if there is one."""
        if not self.reader.wait(0):
            return None
        record = next(self.reader)
        self.client._take(record)
        return record

    def take(self) -> list[Any]:
        """Take all that is there; return what was said since the last time."""
        while self.step() is not None:
            pass
        said, self.said[:] = list(self.said), []
        return said

    def close(self) -> None:
        self.reader.close()
        self.loop.close()


def compare(directory: Path, seed: int) -> int:
    """Compare after each record of a market at random; return how many books were not empty."""
    market = Market(directory, seed)
    desk = Desk(market.address, "exchange")
    names = [f"S{place}" for place in range(len(SYMBOLS))]
    desk.client._settings.symbols.update(zip(names, SYMBOLS, strict=True))
    ids = {}
    for name, symbol in zip(names, SYMBOLS, strict=True):
        desk.cache.add_instrument(instrument(name, "X"))
        ids["exchange", symbol] = desk.subscribe(name)
    books, full = Books(), 0
    for _ in range(12):
        market.go_on()
        while (record := desk.step()) is not None:
            with contextlib.suppress(FormatError):
                books.apply(record)
            for key, instrument_id in ids.items():
                held = levels(desk.cache.order_book(instrument_id))
                assert held in (kept(books, key), ([], [])), f"seed {seed}: {record}"
                full += held != ([], [])
        desk.client._settle()
        for key, instrument_id in ids.items():
            assert levels(desk.cache.order_book(instrument_id)) == kept(books, key), f"seed {seed}"
    market.close()
    desk.close()
    return full


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_books_of_nautilus_are_those_of_books_or_empty_after_every_record(
    tmp_path: Path, first: int
) -> None:
    seeds = range(first, first + 6)
    assert sum(compare(tmp_path / str(seed), seed) for seed in seeds) > 0


@pytest.fixture
def desk(instance: Instance) -> Iterator[Desk]:
    """Return a client that reads `instance`, with its instrument in the cache."""
    desk = Desk(instance.address, "binance-usdm")
    desk.cache.add_instrument(instrument("BTCUSDT", "X"))
    yield desk
    desk.close()


def test_second_subscription_of_a_book_has_all_levels(instance: Instance, desk: Desk) -> None:
    wanted = desk.subscribe("BTCUSDT")
    instance.book([(10, 1), (9, 2)], [(11, 1)], snapshot=True)
    desk.take()
    desk.subscribe("BTCUSDT")  # Nautilus begins an empty book, and asks the client for nothing
    assert levels(desk.cache.order_book(wanted)) == ([], [])
    instance.book([(10, 3)], [], follows=1)
    desk.take()
    assert levels(desk.cache.order_book(wanted)) == ([(10, 3), (9, 2)], [(11, 1)])


def test_subscription_that_comes_later_has_the_book_at_once(instance: Instance, desk: Desk) -> None:
    instance.book([(10, 1)], [(11, 1)], snapshot=True)
    desk.take()
    assert levels(desk.cache.order_book(desk.subscribe("BTCUSDT"))) == ([(10, 1)], [(11, 1)])


def test_only_the_last_delta_of_a_snapshot_is_flagged_so(instance: Instance, desk: Desk) -> None:
    # An engine that buffers deltas compares with F_LAST alone.
    desk.subscribe("BTCUSDT")
    instance.book([(10, 1)], [(11, 1)], snapshot=True)
    (deltas,) = (each for each in desk.take() if isinstance(each, OrderBookDeltas))
    assert [delta.flags for delta in deltas.deltas] == [32, 32, 128]
    assert deltas.deltas[0].action == BookAction.CLEAR


@pytest.mark.parametrize("scope", [ConnectionScope.WRITER, ConnectionScope.LOOP])
def test_feed_that_stands_still_has_no_book_until_it_goes_on(
    instance: Instance, desk: Desk, scope: ConnectionScope
) -> None:
    wanted = desk.subscribe("BTCUSDT")
    said = np.zeros((), CONNECTION)
    instance.book([(10, 1)], [(11, 1)], snapshot=True)
    desk.take()
    said["scope"], said["status"] = scope, ConnectionStatus.DISCONNECTED
    instance.append(Kind.CONNECTION, said.tobytes(), stream=65535)
    (doubt,) = (each for each in desk.take() if isinstance(each, FeedDoubt))
    assert (doubt.doubtful, doubt.reason, doubt.instrument_id) == (True, "CONNECTION", wanted)
    assert levels(desk.cache.order_book(wanted)) == ([], [])
    if scope == ConnectionScope.LOOP:
        said["status"] = ConnectionStatus.READY
        instance.append(Kind.CONNECTION, said.tobytes(), stream=65535)
        desk.take()
        assert levels(desk.cache.order_book(wanted)) == ([(10, 1)], [(11, 1)])


def test_price_that_the_instrument_cannot_express_puts_the_book_in_doubt(
    instance: Instance, desk: Desk
) -> None:
    wanted = desk.subscribe("BTCUSDT")
    instance.book([(10, 1)], [(11, 1)], snapshot=True)
    instance.book([(10.001, 1)], [], follows=1)
    doubts = [each for each in desk.take() if isinstance(each, FeedDoubt)]
    assert doubts[-1].reason == "10.001 has more than the instrument's 2 decimals"
    assert levels(desk.cache.order_book(wanted)) == ([], [])
    instance.book([(10.001, 0)], [], follows=2)
    desk.take()
    assert levels(desk.cache.order_book(wanted)) == ([(10, 1)], [(11, 1)])


def test_quotes_of_tops_lose_their_sizes_with_a_loss(instance: Instance, desk: Desk) -> None:
    desk.subscribe("BTCUSDT", "quotes")

    def quotes() -> list[list[float]]:
        names = ("bid_price", "bid_size", "ask_price", "ask_size")
        found = [each for each in desk.take() if hasattr(each, "bid_price")]
        return [[float(getattr(each, name)) for name in names] for each in found]

    def top(bid: float, ask: float, flags: int = 0) -> None:
        update = instance.update(TOP_OF_BOOK, "binance-usdm", "BTCUSDT", bid_price=bid,
                                 bid_quantity=1, ask_price=ask, ask_quantity=2)  # fmt: skip
        instance.append(Kind.TOP_OF_BOOK, update.tobytes(), flags)

    top(10, 11)
    assert quotes() == [[10, 1, 11, 2]]
    instance.append(Kind.GAP, np.zeros((), GAP).tobytes(), session=1)
    assert quotes() == [[10, 0, 11, 0]]
    top(12, 13, RecordFlag.DOUBT)
    assert quotes() == []
    top(12, 13)
    top(np.nan, 13)
    assert quotes() == [[12, 1, 13, 2], [13, 0, 13, 2]]


def test_orders_are_in_nautilus_in_the_order_of_their_queues(
    instance: Instance, desk: Desk
) -> None:
    rng = random.Random(3)
    wanted = desk.subscribe("BTCUSDT", book_type=BookType.L3_MBO)
    books, priority, resting = Books(), 0, dict[int, int]()

    def tell(rows: list[tuple[int, int, float, int]], snapshot: bool, follows: int) -> None:
        nonlocal priority
        content = np.zeros(len(rows), ORDER)
        for row, (number, action, price, side) in zip(content, rows, strict=True):
            priority += 1
            row["order_id"], row["action"], row["price"] = b"%d" % number, action, price
            row["side"], row["quantity"], row["priority"] = side, rng.randrange(1, 9), priority
            row["present"] = 1
        update = instance.update(ORDERS, "binance-usdm", "BTCUSDT", row_count=len(rows),
                                 present=2, update_type=1 if snapshot else 2)  # fmt: skip
        instance.append(Kind.ORDERS, update.tobytes() + content.tobytes(), int(snapshot),
                        object_type=3, object_id=7, follows=follows)  # fmt: skip

    tell([(number, 1, 10 + number % 3, 1) for number in range(1, 9)], True, 0)
    resting |= dict.fromkeys(range(1, 9), 1)
    for turn in range(200):
        number = rng.randrange(1, 40)
        side = resting.get(number, rng.choice((1, 2)))
        action = rng.choice((2, 3)) if number in resting else 1
        if action == 3:
            del resting[number]
        else:
            resting[number] = side
        tell(
            [(number, action, (10 if side == 1 else 20) + rng.randrange(3), side)], False, turn + 1
        )
        while (record := desk.step()) is not None:
            books.apply(record)
        queues = books.orders("binance-usdm", "BTCUSDT")
        assert not queues.stale
        book = desk.cache.order_book(wanted)
        for held, expected in ((book.bids(), queues.bids()), (book.asks(), queues.asks())):
            orders = [order for level in held for order in level.orders()]
            assert [(each.order_id, float(each.price), float(each.size)) for each in orders] == [
                (int(row["order_id"]), row["price"], row["quantity"]) for row in expected
            ]


class Feed:
    """A publisher, a feed that receives it, and between them what may lose its datagrams."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        ports = self._ports = free_ports(2)
        self.losing, self.lost = False, 0
        self._loop = loop
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ports]
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each, port in zip(self._sockets, ports, strict=True):
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
            loop.add_reader(each, self._pass_on, each, port)
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in self._sockets]
        lines = [[{"name": "A", "address": f"127.0.0.1:{port}"}] for port in ports]
        self._settings = {
            "name": "nautilus",
            "incremental": {"lines": lines[0]},
            "snapshot": {"lines": lines[1]},
            "window": {"lost_packet_wait_us": 2_000},
            "ring": {"capacity_bytes": 1 << 22},
            "image": {"enabled": True},
        }
        self.begin()
        self.publisher = Publisher(
            parse_publish(
                {
                    "incremental": [{"address": addresses[0]}],
                    "snapshot": [{"address": addresses[1]}],
                    "heartbeat_interval_ms": 10,
                    "snapshot_interval_ms": 20,
                }
            )
        )
        self.book = self.publisher.open_book("venue", "BTC", 41, 1)

    def begin(self) -> None:
        """Have a feed receive what is published; anew, after one that ended."""
        self.subscriber = Subscriber(self._settings)
        self.subscriber.start()

    def _pass_on(self, arrived: socket.socket, port: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = arrived.recv(2048)
                if self.losing:
                    self.lost += port == self._ports[0]
                else:
                    self._out.sendto(datagram, ("127.0.0.1", port))

    def define(self) -> None:
        table = NameTable(bytearray(name_table_size(8)), capacity=8)
        update = np.zeros((), REFERENCE_DATA)
        update["exchange_id"], update["symbol_id"] = table.intern("venue"), table.intern("BTC")
        update["tick_size"], update["min_trade_vol"], update["multiplier"] = 0.5, 0.1, 1.0
        update["security_type"], update["present"] = 4, 0xFFFFFF02
        for name, text in (("base", b"BTC"), ("quote", b"USD"), ("settlement", b"BTC")):
            update[f"{name}_currency"] = text
        payload = encode_update(Kind.REFERENCE_DATA, update.tobytes(), table)
        self.publisher.send(payload, 41, 1)

    def trade(self, side: int, price: float, quantity: float) -> None:
        self.publisher.send(encode_trades("venue", "BTC", [(side, price, quantity, "7")]), 41, 1)

    def close(self) -> None:
        self.publisher.close()
        self.subscriber.stop()
        for each in (*self._sockets, self._out):
            self._loop.remove_reader(each)
            each.close()


class Watching(Strategy):  # type: ignore[misc]
    """Subscribes to everything of one instrument, and keeps what comes."""

    def __init__(self) -> None:
        super().__init__(StrategyConfig(strategy_id="WATCHING-1"))
        self.instrument_id = InstrumentId.from_str("BTC.VENUE")
        self.doubts: list[FeedDoubt] = []
        self.quotes: list[Any] = []
        self.trades: list[Any] = []

    def on_start(self) -> None:
        self.subscribe_data(DataType(FeedDoubt), client_id=ClientId(NAME))
        self.subscribe_order_book_deltas(self.instrument_id)
        self.subscribe_quote_ticks(self.instrument_id)
        self.subscribe_trade_ticks(self.instrument_id)

    def on_data(self, data: Any) -> None:
        self.doubts.append(data)

    def on_quote_tick(self, tick: Any) -> None:
        self.quotes.append(tick)

    def on_trade_tick(self, tick: Any) -> None:
        self.trades.append(tick)


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait in the loop until a condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not holds():
        assert loop.time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.002)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    if not loop.is_closed():
        loop.close()


class Running:
    """A trading node that runs on a feed, and books beside it that show what it shall hold."""

    def __init__(self, feed: Feed, loop: asyncio.AbstractEventLoop) -> None:
        self.feed = feed
        self.strategy = Watching()
        client = UdpfastDataClientConfig(
            address="ring:nautilus", exchange="venue", quotes_from_books=True
        )
        config = TradingNodeConfig(
            logging=LoggingConfig(log_level="ERROR"),
            data_clients={NAME: client},
            timeout_disconnection=1.0,
            timeout_post_stop=0.0,
        )
        self.node = TradingNode(config, loop=loop)
        self.node.add_data_client_factory(NAME, UdpfastDataClientFactory)
        self.node.build()
        self.node.trader.add_strategy(self.strategy)
        self.books = Books(Reader("ring:nautilus", image=True))
        self.rng = np.random.default_rng(5)

    async def move(self, count: int) -> None:
        for _ in range(count):
            changes = np.column_stack(
                (self.rng.integers(1, 60, 4) / 2, self.rng.integers(0, 40, 4) / 10)
            )
            bids = [(100 - price, quantity) for price, quantity in changes[:2]]
            asks = [(101 + price, quantity) for price, quantity in changes[2:]]
            self.feed.book.update(bids, asks)
            await asyncio.sleep(0)  # the sockets between them hold few datagrams

    def held(self) -> tuple[Levels, Levels]:
        book = self.node.cache.order_book(self.strategy.instrument_id)
        return ([], []) if book is None else levels(book)

    def top(self) -> list[tuple[float, float]]:
        last = self.strategy.quotes[-1]
        return [
            (float(last.bid_price), float(last.bid_size)),
            (float(last.ask_price), float(last.ask_size)),
        ]

    def same(self) -> bool:
        self.books.poll(timeout=0)
        expected = kept(self.books, ("venue", "BTC"))
        return expected[0] != [] and self.held() == expected

    async def run(self) -> None:
        """Have the market move, lose some of it, and end the feed."""
        feed, strategy = self.feed, self.strategy
        feed.book.update([(100, 1)], [(101, 1)], snapshot=True)
        feed.define()
        running = asyncio.get_running_loop().create_task(self.node.run_async())
        await until(self.same, "the first book")
        await self.move(300)
        feed.trade(2, 100.5, 0.3)
        await until(lambda: strategy.trades and self.same(), "the book after 300 updates")
        (trade,) = strategy.trades
        assert (float(trade.price), float(trade.size)) == (100.5, 0.3)
        assert (trade.aggressor_side, str(trade.trade_id)) == (AggressorSide.SELLER, "7")
        assert self.top() == [self.held()[0][0], self.held()[1][0]]

        known = len(strategy.doubts)
        feed.losing = True
        await self.move(20)
        await until(lambda: feed.lost >= 20, "datagrams that are lost")
        feed.losing = False
        await until(lambda: len(strategy.doubts) >= known + 2 and self.same(), "the book healed")
        doubts = strategy.doubts[known:]
        assert [each.doubtful for each in doubts] == [True, False] * (len(doubts) // 2)
        assert doubts[0].reason == "GAP"
        await self.move(300)
        await until(self.same, "the book after 300 more")
        assert self.top() == [self.held()[0][0], self.held()[1][0]]

        feed.subscriber.stop()
        await until(lambda: self.held() == ([], []), "the end of the feed")
        await until(lambda: strategy.doubts[-1].doubtful, "its doubt")
        assert [size for _, size in self.top()] == [0, 0]

        feed.begin()
        self.books.reader.close()
        self.books = Books(Reader("ring:nautilus", image=True))
        await self.move(5)
        await until(self.same, "the book of the next feed")
        assert not strategy.doubts[-1].doubtful
        await self.node.stop_async()
        running.cancel()
        await asyncio.wait((running,))


def test_trading_node_follows_a_feed_through_a_loss(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    feed = Feed(loop)
    try:
        running = Running(feed, loop)
        loop.run_until_complete(running.run())
        found = running.node.cache.instrument(running.strategy.instrument_id)
        assert isinstance(found, CryptoPerpetual) and found.is_inverse
        assert (found.price_precision, found.size_precision) == (1, 1)
        running.books.reader.close()
    finally:
        feed.close()
    running.node.dispose()
