"""A live data client for nautilus_trader: the books, quotes and trades of a feed, and its doubts.

What Nautilus holds of a book is what `Books` holds while that is sound, and nothing while it is
not: doubt clears the book, and its end brings it whole. Importing this needs nautilus_trader
(`pip install 'udpfast[nautilus]'`).
"""

from __future__ import annotations

import asyncio
import math
import warnings
from typing import Any

import msgspec
from nautilus_trader.common.providers import InstrumentProvider
from nautilus_trader.config import LiveDataClientConfig
from nautilus_trader.live.data_client import LiveMarketDataClient
from nautilus_trader.live.factories import LiveDataClientFactory
from nautilus_trader.model.data import (
    BookOrder,
    CustomData,
    DataType,
    OrderBookDelta,
    OrderBookDeltas,
    QuoteTick,
    TradeTick,
)
from nautilus_trader.model.enums import (
    AggressorSide,
    BookAction,
    BookType,
    OrderSide,
    RecordFlag,
)
from nautilus_trader.model.identifiers import ClientId, InstrumentId, Symbol, TradeId, Venue

from udpfast.client.books import Books
from udpfast.client.nautilus_values import (
    CLEAR,
    Change,
    FeedDoubt,
    Followed,
    MisfitError,
    instrument_of,
    order_changes,
    price_of,
    quantity_of,
)
from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord
from udpfast.core.layout import ConnectionScope, ConnectionStatus, Kind, Stream
from udpfast.core.layout import RecordFlag as Flag
from udpfast.errors import FormatError, UdpfastError

__all__ = [
    "FeedDoubt",
    "UdpfastDataClient",
    "UdpfastDataClientConfig",
    "UdpfastDataClientFactory",
]

#: Records after which the loop's other tasks have their turn.
_TURN = 256
#: Seconds between attempts to read a feed that ended.
_AGAIN_S = 1.0
#: Records that may change what is sound, of whichever instrument.
_DOUBTS = frozenset(
    (Kind.GAP, Kind.SESSION, Kind.STALE, Kind.RECOVERED, Kind.CONNECTION, Kind.RESTART, Kind.LAPPED)
)
_AGGRESSORS = {1: AggressorSide.BUYER, 2: AggressorSide.SELLER}
_PRESENT_MORE = 16
_TOP = ("bid_price", "bid_quantity", "ask_price", "ask_quantity")
_NO_TOP = (math.nan, 0.0, math.nan, 0.0)
_TRADE_ID_MAX = 36
_LAST = int(RecordFlag.F_LAST.value)
_SNAPSHOT = int(RecordFlag.F_SNAPSHOT.value)


class UdpfastDataClientConfig(  # type: ignore[call-arg]  # a Struct of msgspec
    LiveDataClientConfig, frozen=True, kw_only=True
):
    """What a client reads, and what it is called in Nautilus.

    Parameters
    ----------
    address : str
        As a `Reader` takes it: "ring:deribit".
    exchange : str
        The exchange's name in the feed. Of a feed with several, each has a client of its own.
    venue : str
        Its name in Nautilus; "": the exchange's in capitals.
    symbols : dict
        From symbols in Nautilus to those of the feed, where they differ.
    image : bool
        Begin with the feed's state (`[image] enabled = true` in its file).
    quotes_from_books : bool
        Make quotes of the best levels, for a feed without TOP_OF_BOOK.
    """

    address: str
    exchange: str
    venue: str = ""
    symbols: dict[str, str] = msgspec.field(default_factory=dict)
    image: bool = True
    quotes_from_books: bool = False


class UdpfastDataClient(LiveMarketDataClient):
    """Reads a feed in the node's event loop. Made by `UdpfastDataClientFactory`."""

    def __init__(
        self, loop: Any, name: str, config: UdpfastDataClientConfig, msgbus: Any, cache: Any,
        clock: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            loop=loop,
            client_id=ClientId(name),
            venue=Venue(config.venue or config.exchange.upper()),
            msgbus=msgbus,
            cache=cache,
            clock=clock,
            instrument_provider=InstrumentProvider(config.instrument_provider),
            config=config,
        )
        self._settings = config
        self._symbols = {symbol: name for name, symbol in config.symbols.items()}
        self._followed: dict[tuple[str, str], Followed] = {}
        self._books = Books()
        self._sessions: dict[int, int] = {}  # by stream
        self._names: dict[tuple[int, int], tuple[str, str]] = {}  # by stream and object
        self._joined = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    # --- the feed ---

    async def _connect(self) -> None:
        self._joined.clear()
        self._reading = self._loop.create_task(self._read(self._open()))
        waiting = asyncio.ensure_future(self._joined.wait())
        await asyncio.wait((waiting, self._reading), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def _disconnect(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
            self._reading = None
        self._forget("disconnected")

    def _open(self) -> Reader:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of a feed that ended: `_follow` says
            return Reader(self._settings.address, image=self._settings.image)

    async def _read(self, reader: Reader) -> None:
        while True:
            with reader:
                try:
                    await self._follow(reader)
                    problem = f"{self._settings.address} has ended"
                except Exception as error:  # whatever it was: no book stays as it is
                    problem = f"{type(error).__name__}: {error}"
            self._log.warning(f"{problem}: books are cleared until it is read again")
            self._forget(problem)
            reader = await self._reopened()

    async def _reopened(self) -> Reader:
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                reader = self._open()
            except (UdpfastError, OSError) as error:
                self._log.debug(f"{error}")
                continue
            if reader.alive:
                return reader
            reader.close()

    async def _follow(self, reader: Reader) -> None:
        while True:
            if not reader.joining:
                self._joined.set()
            if not await reader.arrival():
                return
            for _ in range(_TURN):
                if not reader.wait(0):
                    break
                self._take(next(reader))
            self._settle()
            await asyncio.sleep(0)

    def _is_elsewhere(self, record: ReadRecord, key: tuple[str, str]) -> bool:
        # Whether a record says of itself what may concern other instruments: that its stream has
        # another session, or its object another name.
        stream = max(record.stream, Stream.SNAPSHOT)  # the two of a channel are one
        known = self._sessions.setdefault(stream, record.session) == record.session
        self._sessions[stream] = record.session
        if record.kind >= Kind.BOOK:
            name = stream, record.object
            known &= self._names.get(name) == key
            self._names[name] = key
        return not known

    def _settle(self, reason: str = "") -> None:
        # Doubt is met with the record that brings it. Its end may be in a record of another object:
        # of one that leaves the name, or that has no name.
        for each in self._followed.values():
            if not each.sound or reason:
                self._look(each, None, reason)

    def _forget(self, reason: str) -> None:
        self._books = Books()
        for each in self._followed.values():
            each.alone_sound = False
            self._look(each, None, reason)

    def _take(self, record: ReadRecord) -> None:
        try:
            self._hand_on(record)
        except (FormatError, MemoryError) as error:  # a damaged record: its book is stale
            self._log.error(f"{error}")
            self._settle(str(error))

    def _hand_on(self, record: ReadRecord) -> None:
        kind, key = record.kind, (record.exchange or "", record.symbol or "")
        followed = self._followed.get(key)
        was_sound = followed is not None and followed.sound
        elsewhere = self._is_elsewhere(record, key)
        self._books.apply(record)
        if Kind.BOOK <= kind < Kind.BUS:
            _ = record.update  # one that is damaged is refused before anything is said of it
        if kind in _DOUBTS or elsewhere:
            loses = kind in _DOUBTS and _loses(record)
            for each in self._followed.values():
                each.alone_sound = each.alone_sound and not loses
                self._look(each, record)
        if kind == Kind.REFERENCE_DATA and key[0] == self._settings.exchange:
            self._define(record)
        if followed is None or kind < Kind.BOOK:
            return
        followed.alone_sound = not record.flags & Flag.DOUBT
        self._look(followed, record)
        if kind in (Kind.BOOK, Kind.ORDERS):
            if was_sound and followed.sound:  # else `_look` has brought it whole, or cleared it
                self._change(followed, record)
            self._quote_book(followed, record)
        elif kind == Kind.TOP_OF_BOOK and not self._settings.quotes_from_books:
            top = record.update.header
            self._quote(followed, record, tuple(float(top[name]) for name in _TOP))
        elif kind == Kind.TRADES and not record.flags & Flag.SNAPSHOT:
            self._trade(followed, record)

    # --- what is sound ---

    def _is_sound(self, each: Followed) -> bool:
        if self._cache.instrument(each.id) is None:
            return False
        if each.book == BookType.L3_MBO:
            try:
                return not self._books.orders(*each.key).stale
            except KeyError:
                return False
        book = self._books.get(each.key)
        if book is None:
            return each.alone_sound and each.book is None
        return not book.stale

    def _look(self, each: Followed, record: ReadRecord | None, reason: str = "") -> None:
        """Have Nautilus know what is sound by now: bring a book whole, or clear it."""
        sound = self._is_sound(each)
        if sound == each.sound:
            return
        deltas = None
        if sound:
            try:
                deltas = self._whole(each, record)
            except MisfitError as misfit:
                sound, reason = False, str(misfit)
        if sound != each.sound:
            self._show(each, deltas, record, reason)

    def _show(
        self, each: Followed, deltas: Any, record: ReadRecord | None, reason: str = ""
    ) -> None:
        # Without deltas it is not sound.
        began, each.sound = each.sound is None, deltas is not None
        if each.book is not None and (each.sound or not began):
            self._handle_data(deltas or self._deltas(each, [CLEAR], record))
        if not each.sound:
            each.held = None
            self._quote(each, record, _NO_TOP)
        else:
            self._quote_book(each, record)
        self._say(each, reason or (record.kind.name if record else "nothing came yet"), record)

    def _say(self, each: Followed, reason: str, record: ReadRecord | None) -> None:
        doubt = FeedDoubt(each.id, not each.sound, reason, *self._times(record))
        self._handle_data(CustomData(DataType(FeedDoubt), doubt))

    # --- from records to Nautilus ---

    def _times(self, record: ReadRecord | None) -> tuple[int, int]:
        now_ns: int = self._clock.timestamp_ns()
        if record is None:
            return now_ns, now_ns
        if record.kind < Kind.BOOK:
            return record.received_ns, now_ns
        return int(record.update.header["exchange_time_utc"]) or record.received_ns, now_ns

    def _whole(self, each: Followed, record: ReadRecord | None) -> Any:
        changes = [CLEAR]
        each.orders.clear()
        each.held = self._cache.order_book(each.id)
        if each.book == BookType.L3_MBO:
            queues = self._books.orders(*each.key)
            for rows in (queues.bids(), queues.asks()):
                changes += order_changes(each, rows)
        elif each.book is not None:
            book = self._books[each.key]
            for side, levels in ((OrderSide.BUY, book.bids()), (OrderSide.SELL, book.asks())):
                changes += [(BookAction.ADD, side, *level, 0) for level in levels.tolist()]
        return self._deltas(each, changes, record)

    def _change(self, each: Followed, record: ReadRecord) -> None:
        if each.book is None or (record.kind == Kind.ORDERS) != (each.book == BookType.L3_MBO):
            return
        update = record.update
        header = update.header
        replaced = record.flags & (Flag.SNAPSHOT | Flag.FIRST) or header["update_type"] == 1
        try:
            # A second strategy's subscription makes Nautilus begin an empty book.
            if replaced or self._cache.order_book(each.id) is not each.held:
                self._handle_data(self._whole(each, record))
                return
            if record.kind == Kind.ORDERS:
                changes = order_changes(each, update.rows)
            else:
                changes = [
                    (BookAction.UPDATE if quantity else BookAction.DELETE, side, price, quantity, 0)
                    for side, rows in ((OrderSide.BUY, update.bids), (OrderSide.SELL, update.asks))
                    for price, quantity, *_ in rows.tolist()
                ]
            if changes:
                goes_on = bool(header["present"] & _PRESENT_MORE)
                self._handle_data(self._deltas(each, changes, record, goes_on))
        except MisfitError as misfit:
            self._show(each, None, record, str(misfit))

    def _deltas(
        self,
        each: Followed,
        changes: list[Change],
        record: ReadRecord | None,
        goes_on: bool = False,
    ) -> OrderBookDeltas:
        instrument = self._cache.instrument(each.id)
        number, times = 0 if record is None else record.number, self._times(record)
        whole = _SNAPSHOT if changes[0] is CLEAR and len(changes) > 1 else 0
        deltas = []
        for place, (action, side, price, quantity, order_id) in enumerate(changes, 1):
            order = None
            if action != BookAction.CLEAR:
                order = BookOrder(
                    side, price_of(instrument, price), quantity_of(instrument, quantity), order_id
                )
                if action != BookAction.DELETE and not order.size:
                    raise MisfitError(f"a quantity of {quantity} is 0 in {each.id}")
            # The last has no other flag: an engine that buffers deltas knows it by that.
            flags = _LAST if place == len(changes) and not goes_on else whole
            deltas.append(OrderBookDelta(each.id, action, order, flags, number, *times))
        return OrderBookDeltas(each.id, deltas)

    def _quote_book(self, each: Followed, record: ReadRecord | None) -> None:
        if self._settings.quotes_from_books:
            book = self._books.get(each.key)
            self._quote(each, record, _NO_TOP if book is None or book.stale else book.best())

    def _quote(self, each: Followed, record: ReadRecord | None, top: tuple[float, ...]) -> None:
        """Hand on a quote. A side that is missing, or in doubt, has a size of 0."""
        if not each.quotes or (instrument := self._cache.instrument(each.id)) is None:
            return
        bid, bid_quantity, ask, ask_quantity = top
        has_bid, has_ask = (math.isfinite(price) and each.sound for price in (bid, ask))
        if not (has_bid or has_ask):
            if each.quote is None:
                return
            prices, sizes = each.quote[:2], (0.0, 0.0)
        else:
            prices = bid if has_bid else ask, ask if has_ask else bid
            sizes = bid_quantity * bool(has_bid), ask_quantity * bool(has_ask)
        if each.quote == (*prices, *sizes):
            return
        try:
            quote = QuoteTick(
                each.id, *(price_of(instrument, price) for price in prices),
                *(quantity_of(instrument, size) for size in sizes), *self._times(record),
            )  # fmt: skip
        except MisfitError as misfit:
            self._log.error(f"quote of {each.id} is left out: {misfit}")
            if any(sizes):
                self._quote(each, record, _NO_TOP)
            return
        each.quote = (*prices, *sizes)
        self._handle_data(quote)

    def _trade(self, each: Followed, record: ReadRecord) -> None:
        if not each.trades or (instrument := self._cache.instrument(each.id)) is None:
            return
        for place, row in enumerate(record.rows):
            name = row["trade_id"].decode(errors="replace")[:_TRADE_ID_MAX]
            try:
                size = quantity_of(instrument, float(row["quantity"]))
                if not size:
                    raise MisfitError("its quantity is 0")
                trade = TradeTick(
                    each.id, price_of(instrument, float(row["price"])), size,
                    _AGGRESSORS.get(int(row["side"]), AggressorSide.NO_AGGRESSOR),
                    TradeId(name or f"{record.position}-{place}"), *self._times(record),
                )  # fmt: skip
            except MisfitError as misfit:
                self._log.error(f"trade of {each.id} is left out: {misfit}")
                continue
            self._handle_data(trade)

    def _define(self, record: ReadRecord) -> None:
        """Make an instrument of a definition that says enough; one that is there stays."""
        instrument_id = self._instrument_id(record.symbol or "")
        if self._cache.instrument(instrument_id) is None:
            instrument = instrument_of(instrument_id, record, *self._times(record))
            if instrument is not None:
                self._instrument_provider.add(instrument)
                self._cache.add_instrument(instrument)  # before who waits for it subscribes
                self._handle_data(instrument)

    # --- subscriptions ---

    def _instrument_id(self, symbol: str) -> Any:
        return InstrumentId(Symbol(self._symbols.get(symbol, symbol)), self.venue)

    def _follow_up(self, instrument_id: Any) -> Followed:
        name = instrument_id.symbol.value
        key = self._settings.exchange, self._settings.symbols.get(name, name)
        if self._cache.instrument(instrument_id) is None:
            self._log.warning(
                f"{instrument_id}: nothing comes before the cache has this instrument, whose "
                "precisions it needs: the feed has not defined it, add it yourself"
            )
        return self._followed.setdefault(key, Followed(instrument_id, key))

    async def _subscribe_order_book_deltas(self, command: Any) -> None:
        if command.book_type == BookType.L1_MBP:
            self._log.error(f"{command.instrument_id}: subscribe to quotes instead of an L1 book")
            return
        each = self._follow_up(command.instrument_id)
        each.book, each.sound = command.book_type, None
        self._look(each, None)

    async def _subscribe_quote_ticks(self, command: Any) -> None:
        each = self._follow_up(command.instrument_id)
        each.quotes = True
        self._look(each, None)
        self._quote_book(each, None)

    async def _subscribe_trade_ticks(self, command: Any) -> None:
        self._follow_up(command.instrument_id).trades = True

    async def _subscribe(self, command: Any) -> None:
        for each in self._followed.values():
            if each.sound is not None:
                self._say(each, "as it was when you subscribed", None)

    async def _subscribe_instrument(self, command: Any) -> None:
        """Definitions are handed on as they come."""

    async def _subscribe_instruments(self, command: Any) -> None:
        """Definitions are handed on as they come."""

    async def _unsubscribe_order_book_deltas(self, command: Any) -> None:
        self._follow_up(command.instrument_id).book = None

    async def _unsubscribe_quote_ticks(self, command: Any) -> None:
        each = self._follow_up(command.instrument_id)
        each.quotes, each.quote = False, None

    async def _unsubscribe_trade_ticks(self, command: Any) -> None:
        self._follow_up(command.instrument_id).trades = False

    async def _unsubscribe(self, command: Any) -> None:
        """FeedDoubt is of all instruments, and costs nothing."""


class UdpfastDataClientFactory(LiveDataClientFactory):
    """What `TradingNode.add_data_client_factory` takes."""

    @staticmethod
    def create(
        loop: Any, name: str, config: UdpfastDataClientConfig, msgbus: Any, cache: Any, clock: Any
    ) -> UdpfastDataClient:
        """Return the client of one feed; Nautilus calls this."""
        return UdpfastDataClient(loop, name, config, msgbus, cache, clock)


def _loses(record: ReadRecord) -> bool:
    # Whether what an instrument without books said last may be overtaken.
    if record.kind != Kind.CONNECTION:
        return record.kind != Kind.RECOVERED
    said = record.data
    return said is not None and (
        said["status"] == ConnectionStatus.DISCONNECTED
        and said["scope"] not in (ConnectionScope.CHANNEL, ConnectionScope.LINE)
    )
