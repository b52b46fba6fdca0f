"""Market events as encoded payloads: which field of which message says what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from udpfast.agents.market.market_event import BookChange, Instrument, MarketEvent, Quote, Trade
from udpfast.market.updates import TRADE
from udpfast.payload.roq.encode import SourceInfo, encode_book, encode_top_of_book, encode_trades
from udpfast.payload.roq.event import encode_event

__all__ = ["Encoded", "MarketEncoder"]

SNAPSHOT, INCREMENTAL = 1, 2  # UpdateType
OPEN = 5  # TradingStatus

#: Where `payload.roq.encode` puts send_time_utc, always.
STAMP_OFFSET = 56

#: Stands for send_time_utc in payloads of the general encoder, to find its place by.
SENTINEL = 0x5AA5_1CEB_00DA_5EED


#: A longer one would have to be cut, and would no longer be an id.
TRADE_ID_SIZE = TRADE["trade_id"].itemsize


class _InstrumentFields(TypedDict):
    # What all messages about one instrument say alike, in the words of `payload.roq.encode`.
    stream_id: int
    price_precision: int
    quantity_precision: int


class Encoded(NamedTuple):
    """A payload, and where its `send_time_utc` lies."""

    payload: bytes | bytearray
    stamp_offset: int


class MarketEncoder:
    """Encode the events of some instruments."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        streams = {
            name: stream_id
            for stream_id, name in enumerate(
                sorted({instrument.exchange for instrument in instruments}), start=1
            )
        }
        self._instruments = list(instruments)
        self._names = [
            (instrument.exchange.encode(), instrument.symbol.encode()) for instrument in instruments
        ]
        self._common = [
            _InstrumentFields(
                stream_id=streams[instrument.exchange],
                price_precision=instrument.price_digits + 1,  # 0 is "unknown"
                quantity_precision=instrument.quantity_digits + 1,
            )
            for instrument in instruments
        ]
        self._seqno = 0

    def book(self, event: BookChange, created_ns: int) -> Encoded:
        """Encode a MarketByPriceUpdate, of as many levels as `levels_that_fit` at most."""
        exchange, symbol = self._names[event.instrument]
        return Encoded(
            encode_book(
                exchange,
                symbol,
                bids=event.bids if len(event.bids) else None,
                asks=event.asks if len(event.asks) else None,
                update_type=SNAPSHOT if event.snapshot else INCREMENTAL,
                exchange_time_utc=event.exchange_ns,
                exchange_sequence=event.sequence,
                source=self._source(created_ns),
                **self._common[event.instrument],
            ),
            STAMP_OFFSET,
        )

    def quote(self, event: Quote, created_ns: int) -> Encoded:
        """Encode a TopOfBook."""
        exchange, symbol = self._names[event.instrument]
        return Encoded(
            encode_top_of_book(
                exchange,
                symbol,
                event.bid_price,
                event.bid_quantity,
                event.ask_price,
                event.ask_quantity,
                exchange_time_utc=event.exchange_ns,
                exchange_sequence=event.sequence,
                source=self._source(created_ns),
                **self._common[event.instrument],
            ),
            STAMP_OFFSET,
        )

    def trade(self, event: Trade, created_ns: int) -> Encoded:
        """Encode a TradeSummary of one trade; an id that is longer than ids may be is left out."""
        exchange, symbol = self._names[event.instrument]
        fits = len(event.trade_id.encode()) <= TRADE_ID_SIZE
        return Encoded(
            encode_trades(
                exchange,
                symbol,
                [(event.side, event.price, event.quantity, event.trade_id if fits else None)],
                exchange_time_utc=event.exchange_ns,
                source=self._source(created_ns),
                **self._common[event.instrument],
            ),
            STAMP_OFFSET,
        )

    def reference_data(self, index: int, created_ns: int) -> Encoded:
        """Encode an instrument's ReferenceData."""
        instrument = self._instruments[index]
        return self._encode(
            "ReferenceData",
            created_ns,
            {
                **self._identity(index),
                "description": instrument.name,
                "tick_size": instrument.tick_size,
                "min_trade_vol": float(f"1e-{instrument.quantity_digits}"),
            },
        )

    def market_status(self, index: int, created_ns: int) -> Encoded:
        """Encode an instrument's MarketStatus: open."""
        return self._encode(
            "MarketStatus", created_ns, {**self._identity(index), "trading_status": OPEN}
        )

    def gateway_status(self, supported: int, created_ns: int) -> Encoded:
        """Encode a GatewayStatus: all that is supported is available."""
        return self._encode(
            "GatewayStatus", created_ns, {"supported": supported, "available": supported}
        )

    def external_latency(self, event: MarketEvent, created_ns: int) -> Encoded:
        """Encode an ExternalLatency: received minus sent, by two clocks that may disagree."""
        return self._encode(
            "ExternalLatency",
            created_ns,
            {
                "stream_id": self._common[event.instrument]["stream_id"],
                "latency": event.recv_ns - event.exchange_ns,
            },
        )

    def _identity(self, index: int) -> dict[str, Any]:
        instrument = self._instruments[index]
        return {
            "stream_id": self._common[index]["stream_id"],
            "exchange": instrument.exchange,
            "symbol": instrument.symbol,
        }

    def _source(self, created_ns: int) -> SourceInfo:
        self._seqno += 1
        return SourceInfo(seqno=self._seqno, create_time_utc=created_ns)

    def _encode(self, name: str, created_ns: int, value: Mapping[str, Any]) -> Encoded:
        # The general encoder: a hundred times slower, for the few messages that are rare.
        payload = encode_event(
            {
                "source_info": self._source(created_ns)._replace(send_time_utc=SENTINEL)._asdict(),
                "value_name": name,
                "value": dict(value),
            }
        )
        return Encoded(payload, payload.index(SENTINEL.to_bytes(8, "little")))
