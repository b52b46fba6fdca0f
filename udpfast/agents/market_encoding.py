"""Market events as encoded payloads: which field of which message says what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from udpfast.agents.market_event import BookChange, Instrument, MarketEvent, Quote, Trade
from udpfast.market.event import encode_event

__all__ = ["Encoded", "MarketEncoder"]

SNAPSHOT, INCREMENTAL = 1, 2  # UpdateType
OPEN = 5  # TradingStatus
SENTINEL = 0x5AA5_1CEB_00DA_5EED


class Encoded(NamedTuple):
    """A payload, and where its `send_time_utc` lies."""

    payload: bytes
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
        self._identities = [
            {
                "stream_id": streams[instrument.exchange],
                "exchange": instrument.exchange,
                "symbol": instrument.symbol,
            }
            for instrument in instruments
        ]
        self._precisions = [
            {
                "price_precision": instrument.price_digits + 1,
                "quantity_precision": instrument.quantity_digits + 1,
            }
            for instrument in instruments
        ]
        self._number = 0

    def book(self, event: BookChange, created_ns: int) -> Encoded:
        """Encode a MarketByPriceUpdate."""
        return self._encode(
            "MarketByPriceUpdate",
            created_ns,
            {
                **self._identities[event.instrument],
                **self._precisions[event.instrument],
                "bids": _levels(event.bid_prices, event.bid_quantities),
                "asks": _levels(event.ask_prices, event.ask_quantities),
                "update_type": SNAPSHOT if event.snapshot else INCREMENTAL,
                "exchange_time_utc": event.exchange_ns,
                "exchange_sequence": event.sequence,
            },
        )

    def quote(self, event: Quote, created_ns: int) -> Encoded:
        """Encode a TopOfBook."""
        return self._encode(
            "TopOfBook",
            created_ns,
            {
                **self._identities[event.instrument],
                **self._precisions[event.instrument],
                "layer": {
                    "bid_price": event.bid_price,
                    "bid_quantity": event.bid_quantity,
                    "ask_price": event.ask_price,
                    "ask_quantity": event.ask_quantity,
                },
                "update_type": INCREMENTAL,
                "exchange_time_utc": event.exchange_ns,
                "exchange_sequence": event.sequence,
            },
        )

    def trade(self, event: Trade, created_ns: int) -> Encoded:
        """Encode a TradeSummary of one trade."""
        return self._encode(
            "TradeSummary",
            created_ns,
            {
                **self._identities[event.instrument],
                **self._precisions[event.instrument],
                "trades": [
                    {
                        "side": event.side,
                        "price": event.price,
                        "quantity": event.quantity,
                        "trade_id": event.trade_id,
                    }
                ],
                "exchange_time_utc": event.exchange_ns,
            },
        )

    def reference_data(self, index: int, created_ns: int) -> Encoded:
        """Encode an instrument's ReferenceData."""
        instrument = self._instruments[index]
        return self._encode(
            "ReferenceData",
            created_ns,
            {
                **self._identities[index],
                "description": instrument.name,
                "tick_size": instrument.tick_size,
                "min_trade_vol": float(f"1e-{instrument.quantity_digits}"),
            },
        )

    def market_status(self, index: int, created_ns: int) -> Encoded:
        """Encode an instrument's MarketStatus: open."""
        return self._encode(
            "MarketStatus", created_ns, {**self._identities[index], "trading_status": OPEN}
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
                "stream_id": self._identities[event.instrument]["stream_id"],
                "latency": event.recv_ns - event.exchange_ns,
            },
        )

    def _encode(self, name: str, created_ns: int, value: Mapping[str, Any]) -> Encoded:
        self._number += 1
        payload = encode_event(
            {
                "source_info": {
                    "seqno": self._number,
                    "create_time_utc": created_ns,
                    "send_time_utc": SENTINEL,
                },
                "value_name": name,
                "value": dict(value),
            }
        )
        return Encoded(payload, payload.index(SENTINEL.to_bytes(8, "little")))


def _levels(prices: Any, quantities: Any) -> list[dict[str, float]] | None:
    return [
        {"price": price, "quantity": quantity}
        for price, quantity in zip(prices.tolist(), quantities.tolist(), strict=True)
    ] or None
