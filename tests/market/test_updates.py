"""The layouts of decoded payloads: literal offsets, and views that refuse what is too short."""

import numpy as np
import pytest

from udpfast.core.layout import Kind
from udpfast.errors import FormatError
from udpfast.market import updates

SIZES = {
    "BOOK": 96,
    "ORDERS": 96,
    "TOP_OF_BOOK": 120,
    "TRADES": 88,
    "STATISTICS": 88,
    "REFERENCE_DATA": 608,
    "MARKET_STATUS": 96,
    "GATEWAY_STATUS": 152,
    "GATEWAY_SETTINGS": 136,
    "EXTERNAL_LATENCY": 128,
    "CUSTOM_METRICS": 168,
    "LEVEL": 32,
    "ORDER": 64,
    "TRADE": 136,
    "STATISTIC": 32,
    "MEASUREMENT": 48,
    "TICK_SIZE_STEP": 16,
}
HEADER_OFFSETS = {
    "source_seqno": 0,
    "source_send_time_utc": 8,
    "source_create_time_utc": 16,
    "source_send_time": 24,
    "source_create_time": 32,
    "exchange_time_utc": 40,
    "exchange_sequence": 48,
    "sending_time_utc": 56,
    "exchange_id": 64,
    "symbol_id": 68,
    "present": 72,
    "row_count": 76,
    "stream_id": 80,
    "max_depth": 82,
    "update_type": 84,
    "price_precision": 85,
    "quantity_precision": 86,
    "reserved": 87,
}
OFFSETS = {
    "LEVEL": {
        "price": 0,
        "quantity": 8,
        "implied_quantity": 16,
        "price_level": 24,
        "number_of_orders": 28,
        "update_action": 30,
        "reserved": 31,
    },
    "ORDER": {
        "price": 0,
        "quantity": 8,
        "priority": 16,
        "order_id": 24,
        "side": 60,
        "action": 61,
        "reason": 62,
        "present": 63,
    },
    "TRADE": {
        "price": 0,
        "quantity": 8,
        "trade_id": 16,
        "taker_order_id": 56,
        "maker_order_id": 92,
        "side": 128,
        "present": 129,
        "reserved": 130,
    },
    "STATISTIC": {"value": 0, "begin_time_utc": 8, "end_time_utc": 16, "type": 24, "reserved": 25},
    "MEASUREMENT": {"value": 0, "name": 8, "present": 40, "reserved": 41},
    "TICK_SIZE_STEP": {"min_price": 0, "tick_size": 8},
    "BOOK": {"bid_count": 88, "ask_count": 92},
    "ORDERS": {"checksum": 88, "reserved2": 92},
    "TOP_OF_BOOK": {"bid_price": 88, "bid_quantity": 96, "ask_price": 104, "ask_quantity": 112},
    "TRADES": {},
    "STATISTICS": {},
    "MARKET_STATUS": {"trading_status": 88, "reserved2": 89},
    "GATEWAY_STATUS": {
        "supported": 88,
        "available": 96,
        "unavailable": 104,
        "supported_by_origin": 112,
        "account": 120,
    },
    "GATEWAY_SETTINGS": {
        "supports": 88,
        "oms_cancel_all_orders": 96,
        "mbp_tick_size_multiplier": 104,
        "mbp_min_trade_vol_multiplier": 112,
        "mbp_max_depth": 120,
        "ts_max_history": 124,
        "mbp_allow_price_inversion": 126,
        "mbp_allow_remove_non_existing": 127,
        "oms_download_has_state": 128,
        "oms_download_has_routing_id": 129,
        "mbp_checksum": 130,
        "oms_request_id_type": 131,
        "ts_interval": 132,
        "reserved2": 133,
    },
    "EXTERNAL_LATENCY": {"latency": 88, "account": 96},
    "CUSTOM_METRICS": {"user": 88, "label": 104, "account": 136},
    "REFERENCE_DATA": {
        "tick_size": 88,
        "multiplier": 96,
        "min_trade_vol": 104,
        "max_trade_vol": 112,
        "trade_vol_step_size": 120,
        "strike_price": 128,
        "min_notional": 136,
        "expiry_datetime": 144,
        "expiry_datetime_utc": 152,
        "issue_date": 160,
        "settlement_date": 164,
        "external_security_id": 168,
        "security_type": 172,
        "option_type": 173,
        "discard": 174,
        "reserved2": 175,
        "description": 176,
        "quote_currency": 304,
        "base_currency": 336,
        "commission_currency": 368,
        "strike_currency": 400,
        "underlying": 432,
        "time_zone": 496,
        "margin_currency": 528,
        "settlement_currency": 560,
        "cfi_code": 592,
    },
}
ROWS = ("LEVEL", "ORDER", "TRADE", "STATISTIC", "MEASUREMENT", "TICK_SIZE_STEP")


@pytest.mark.parametrize("name", SIZES)
def test_layout_of_each_struct_is_pinned(name):
    dtype = getattr(updates, name)
    expected = dict(OFFSETS[name]) if name in ROWS else HEADER_OFFSETS | OFFSETS[name]
    assert {field: dtype.fields[field][1] for field in dtype.names} == expected
    assert dtype.itemsize == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_layout_has_no_holes(name):
    dtype = getattr(updates, name)
    assert sum(type_.itemsize for type_, _ in dtype.fields.values()) == dtype.itemsize


def book(bids: int, asks: int) -> bytes:
    header = np.zeros(1, updates.BOOK)
    header["bid_count"], header["ask_count"], header["row_count"] = bids, asks, bids + asks
    rows = np.zeros(bids + asks, updates.LEVEL)
    rows["price"] = np.arange(bids + asks)
    return header.tobytes() + rows.tobytes()


def test_view_book_splits_its_sides_without_copying():
    payload = bytearray(book(2, 3))
    update = updates.view_update(Kind.BOOK, payload)
    assert update.kind is Kind.BOOK
    assert update.bids["price"].tolist() == [0, 1]
    assert update.asks["price"].tolist() == [2, 3, 4]
    payload[96:104] = np.float64(7).tobytes()
    payload[80] = 9
    assert update.bids["price"][0] == 7
    assert update.header["stream_id"] == 9


def test_view_accepts_padding_behind_the_rows():
    assert len(updates.view_update(Kind.BOOK, book(1, 1) + bytes(7)).rows) == 2


@pytest.mark.parametrize("size", [0, 87, 95, 96 + 31])
def test_view_of_short_payload_is_refused(size):
    with pytest.raises(FormatError, match="takes"):
        updates.view_update(Kind.BOOK, book(1, 0)[:size])


def test_view_of_kind_without_update_is_refused():
    with pytest.raises(FormatError, match="carries no update: only BOOK, "):
        updates.view_update(Kind.GAP, bytes(200))


def test_view_of_kind_without_rows_has_none():
    update = updates.view_update(Kind.MARKET_STATUS, bytes(96))
    assert len(update.rows) == 0
