"""What the updates and their fields mean: the part of docs/records.md that is written by hand.

scripts/record_fields.py makes the page's tables of it. scripts/generate_layouts.py refuses a layout
with a kind or a field of which nothing is said here, before anything is compiled; so this module
imports nothing that is.
"""

_TIME = "UNIX ns; 0: not stated"
ID = "an id of the name table: `batch.names[id]`; 0: absent, or no room for it (TRUNCATED)"
TEXT = "text; empty: absent"
_NUMBER = "NaN: not stated"
_BOOL = "0 or 1"
_SUPPORT = "bits of the publisher's SupportType"

#: What each field of all updates says.
HEADER = {
    "source_seqno": "number in the origin's own stream; 0: none",
    "source_send_time_utc": f"when the publisher sent it: {_TIME}",
    "source_create_time_utc": f"when the publisher made it: {_TIME}",
    "source_send_time": "the same by the publisher's monotonic clock, ns; 0: not stated",
    "source_create_time": "the same by the publisher's monotonic clock, ns; 0: not stated",
    "exchange_time_utc": f"the exchange's time of the event: {_TIME}",
    "exchange_sequence": "the exchange's number; 0: none",
    "sending_time_utc": f"when the exchange sent it: {_TIME}",
    "exchange_id": f"exchange, {ID}. `record.exchange` is the text",
    "symbol_id": f"symbol, {ID}. `record.symbol` is the text",
    "present": "bits: 1 source information, 2 the list (of a book: its bids), 4 the asks of a book,"
    " 8 the layer of a TOP_OF_BOOK, 16 the book's event goes on in its next update, 256 << i the "
    "i-th text. A list that is absent did not change; one that is present may be empty",
    "row_count": "number of rows; of a BOOK of all levels, bids and asks",
    "stream_id": "the publisher's stream",
    "max_depth": "BOOK, ORDERS: levels that the publisher keeps; 0: unlimited",
    "update_type": "see [UpdateType](#updatetype)",
    "price_precision": "decimal digits of prices, plus 1; 0: unknown",
    "quantity_precision": "decimal digits of quantities, plus 1; 0: unknown",
}

#: What the other fields of updates and of rows say, by kind and name. A text needs no meaning.
OWN = {
    "BOOK": {
        "bid_count": "bid levels: the first rows, `record.bids`",
        "ask_count": "ask levels: the rows after them, `record.asks`",
    },
    "ORDERS": {"checksum": "the publisher's; 0: none"},
    "TOP_OF_BOOK": {
        "bid_price": "NaN: no bid",
        "bid_quantity": "0, of Roq perhaps NaN: no bid",
        "ask_price": "NaN: no ask",
        "ask_quantity": "0, of Roq perhaps NaN: no ask",
    },
    "REFERENCE_DATA": {
        "tick_size": f"smallest step of the price; {_NUMBER}",
        "multiplier": f"value of one lot per unit of price; {_NUMBER}",
        "min_trade_vol": f"smallest quantity of an order; {_NUMBER}",
        "max_trade_vol": f"largest quantity of an order; {_NUMBER}",
        "trade_vol_step_size": f"smallest step of the quantity; {_NUMBER}",
        "strike_price": f"of an option; {_NUMBER}",
        "min_notional": f"smallest price times quantity of an order; {_NUMBER}",
        "expiry_datetime": "UNIX seconds, in the exchange's time zone; 0: none",
        "expiry_datetime_utc": "UNIX seconds, UTC; 0: none",
        "issue_date": "UNIX days; 0: none",
        "settlement_date": "UNIX days; 0: none",
        "external_security_id": "the venue's number, if it has 31 bits at most; 0: none. "
        "`description` has it in any case",
        "security_type": "see [SecurityType](#securitytype)",
        "option_type": "see [OptionType](#optiontype)",
        "discard": f"{_BOOL}: 1, the instrument is gone",
    },
    "MARKET_STATUS": {"trading_status": "see [TradingStatus](#tradingstatus)"},
    "GATEWAY_STATUS": {
        "supported": f"{_SUPPORT}: what the gateway has, masked by what the feed carries",
        "available": f"{_SUPPORT}: what works",
        "unavailable": f"{_SUPPORT}: what does not",
        "supported_by_origin": f"{_SUPPORT}: as received",
    },
    "GATEWAY_SETTINGS": {
        "supports": _SUPPORT,
        "oms_cancel_all_orders": "bits of the publisher's Filter",
        "mbp_tick_size_multiplier": _NUMBER,
        "mbp_min_trade_vol_multiplier": _NUMBER,
        "mbp_max_depth": "levels of a book; 0: unlimited",
        "ts_max_history": "bars of a time series",
        "mbp_allow_price_inversion": _BOOL,
        "mbp_allow_remove_non_existing": _BOOL,
        "oms_download_has_state": _BOOL,
        "oms_download_has_routing_id": _BOOL,
        "mbp_checksum": _BOOL,
        "oms_request_id_type": "see [RequestIdType](#requestidtype)",
        "ts_interval": "see [Interval](#interval)",
    },
    "EXTERNAL_LATENCY": {"latency": "ns, one way, as the gateway measured it"},
}
ROWS = {
    "BOOK": {
        "price": "price of the level",
        "quantity": "total quantity at the price; 0 removes the level",
        "implied_quantity": "what orders of other instruments imply; 0: none, or not stated",
        "price_level": "place of the level as published; 0: not stated",
        "number_of_orders": "0: not stated",
        "update_action": "see [UpdateAction](#updateaction); Undefined: by the quantity",
    },
    "ORDERS": {
        "price": "price of the order",
        "quantity": "what is left of it; 0 removes it",
        "priority": "place in the queue of its price: the smaller, the earlier",
        "order_id": TEXT,
        "side": "see [Side](#side): 1 Buy, 2 Sell",
        "action": "see [UpdateAction](#updateaction)",
        "reason": "see [UpdateReason](#updatereason); of a venue Filled where an execution made the"
        " row, else Undefined ([who tells](venues.md#what-an-execution-did-to-an-order))",
        "present": "bit 1: order_id",
    },
    "TRADES": {
        "price": "price of the trade",
        "quantity": "quantity of the trade",
        "side": "side of the taker, see [Side](#side): 1 Buy, 2 Sell, 0 not stated",
        "present": "bits: 1 trade_id, 2 taker_order_id, 4 maker_order_id",
    },
    "STATISTICS": {
        "value": "NaN: withdrawn, or not stated",
        "begin_time_utc": "UNIX seconds; 0: not stated",
        "end_time_utc": "UNIX seconds; 0: not stated",
        "type": "see [StatisticsType](#statisticstype)",
    },
    "REFERENCE_DATA": {
        "min_price": "from this price on",
        "tick_size": "the step of prices is this",
    },
    "CUSTOM_METRICS": {"value": _NUMBER, "present": "bit 1: name"},
}

#: What each kind of update is.
KINDS = {
    "BOOK": "levels of a book that changed, or all of them",
    "ORDERS": "single orders that changed, or all of them",
    "TOP_OF_BOOK": "best bid and ask, as published",
    "TRADES": "trades",
    "STATISTICS": "daily statistics, prices of settlement, rates and the like",
    "REFERENCE_DATA": "the definition of an instrument",
    "MARKET_STATUS": "the phase of trading of an instrument",
    "GATEWAY_STATUS": "Roq: what of a gateway works",
    "GATEWAY_SETTINGS": "Roq: settings of a gateway",
    "EXTERNAL_LATENCY": "Roq: latency between gateway and exchange",
    "CUSTOM_METRICS": "Roq: measurements of an app",
}
