"""One event of every kind that has an update, as an exchange sends it."""

from __future__ import annotations

from typing import Any

from udpfast.payload.roq.event import encode_event

__all__ = ["INSTRUMENT", "PRECISIONS", "TIME", "TIMES", "event", "kinds"]

TIME = 1_700_000_000_000_000_000
INSTRUMENT = {"stream_id": 1, "exchange": "binance-futures", "symbol": "BTCUSDT"}
TIMES = {"exchange_time_utc": TIME, "exchange_sequence": 12345, "sending_time_utc": TIME}
PRECISIONS = {"price_precision": 3, "quantity_precision": 4}


def event(name: str, value: dict[str, Any]) -> bytes:
    """Return an encoded event with all stamps of its sender."""
    source = dict.fromkeys(("send_time_utc", "create_time_utc", "send_time"), TIME)
    source |= {"seqno": 7, "create_time": TIME}
    return encode_event({"value_name": name, "value": value, "source_info": source})


def kinds() -> dict[str, bytes]:
    """Return the kinds besides books, tops of book and trades, which have rows of their own."""
    order = {"price": 100.5, "quantity": 2.0, "priority": 1, "order_id": "8412", "side": 1}
    statistic = {"value": 2.5, "begin_time_utc": 1_700_000_000}
    step = {"min_price": 100.0, "tick_size": 0.5}
    currencies = {"quote_currency": "USD", "base_currency": "BTC"}
    sizes = {"tick_size": 0.5, "multiplier": 10.0, "min_trade_vol": 1.0}
    market = INSTRUMENT | TIMES
    own = {"user": "trader", "label": "fair", "account": "A1", "exchange": "deribit"}
    values: dict[str, tuple[str, dict[str, Any]]] = {
        "4 orders": (
            "MarketByOrderUpdate",
            market | PRECISIONS | {"update_type": 2, "orders": [order | {"action": 1}] * 4},
        ),
        "3 statistics": (
            "StatisticsUpdate",
            market | {"statistics": [statistic | {"type": kind} for kind in (4, 14, 16)]},
        ),
        "reference data": (
            "ReferenceData",
            market | currencies | sizes | {"security_type": 4, "tick_size_steps": [step] * 2},
        ),
        "market status": ("MarketStatus", market | {"trading_status": 5}),
        "gateway status": ("GatewayStatus", {"account": "", "supported": 127, "available": 111}),
        "gateway settings": ("GatewaySettings", {"supports": 103, "mbp_max_depth": 20}),
        "external latency": ("ExternalLatency", {"stream_id": 2, "latency": 1234567}),
        "3 custom metrics": (
            "CustomMetricsUpdate",
            own | {"measurements": [{"name": name, "value": 1.0} for name in ("a", "b", "c")]},
        ),
    }
    return {label: event(name, value) for label, (name, value) in values.items()}
