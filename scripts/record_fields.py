"""The tables of docs/records.md: the fields of all records, and the numbers of enumerations.

scripts/generate_reference.py writes them. Names, types and numbers come from the code; what a field
means is said here, and a field without a meaning is an error.
"""

import enum
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from udpfast.core.layout import (
    CONTROL_DTYPES,
    RECORD,
    ConnectionScope,
    ConnectionStatus,
    GapReason,
    Kind,
    LappedReason,
    ObjectStatus,
    ObjectWait,
    RecordFlag,
    SessionReason,
)
from udpfast.market.updates import ROW_DTYPES, TRADES, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, ENUMS, UPDATE_ENUMS

_TIME = "UNIX ns; 0: not stated"
_ID = "an id of the name table: `batch.names[id]`; 0: absent, or no room for it (TRUNCATED)"
_PRICE = "NaN: none. 0, negative and infinite prices are prices"
_TEXT = "text; empty: absent"
_NUMBER = "NaN: not stated"
_BOOL = "0 or 1"
_SUPPORT = "bits of the publisher's SupportType"

#: What each field of all updates says.
_HEADER = {
    "source_seqno": "number in the origin's own stream; 0: none",
    "source_send_time_utc": f"when the publisher sent it: {_TIME}",
    "source_create_time_utc": f"when the publisher made it: {_TIME}",
    "source_send_time": "the same by the publisher's monotonic clock, ns; 0: not stated",
    "source_create_time": "the same by the publisher's monotonic clock, ns; 0: not stated",
    "exchange_time_utc": f"the exchange's time of the event: {_TIME}",
    "exchange_sequence": "the exchange's number; 0: none",
    "sending_time_utc": f"when the exchange sent it: {_TIME}",
    "exchange_id": f"exchange, {_ID}. `record.exchange` is the text",
    "symbol_id": f"symbol, {_ID}. `record.symbol` is the text",
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

#: What the other fields of updates and of rows say, by struct and name.
_OWN = {
    Kind.BOOK: {
        "bid_count": "bid levels: the first rows, `record.bids`",
        "ask_count": "ask levels: the rows after them, `record.asks`",
    },
    Kind.ORDERS: {"checksum": "the publisher's; 0: none"},
    Kind.TOP_OF_BOOK: {
        "bid_price": "NaN: no bid",
        "bid_quantity": "NaN: no bid",
        "ask_price": "NaN: no ask",
        "ask_quantity": "NaN: no ask",
    },
    Kind.REFERENCE_DATA: {
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
    Kind.MARKET_STATUS: {"trading_status": "see [TradingStatus](#tradingstatus)"},
    Kind.GATEWAY_STATUS: {
        "supported": f"{_SUPPORT}: what the gateway has, masked by what the feed carries",
        "available": f"{_SUPPORT}: what works",
        "unavailable": f"{_SUPPORT}: what does not",
        "supported_by_origin": f"{_SUPPORT}: as received",
    },
    Kind.GATEWAY_SETTINGS: {
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
    Kind.EXTERNAL_LATENCY: {"latency": "ns, one way, as the gateway measured it"},
    Kind.CUSTOM_METRICS: {},
}
_ROWS = {
    Kind.BOOK: {
        "price": "price of the level",
        "quantity": "total quantity at the price; 0 removes the level",
        "implied_quantity": "what orders of other instruments imply; 0: none, or not stated",
        "price_level": "place of the level as published; 0: not stated",
        "number_of_orders": "0: not stated",
        "update_action": "see [UpdateAction](#updateaction); Undefined: by the quantity",
    },
    Kind.ORDERS: {
        "price": "price of the order",
        "quantity": "what is left of it; 0 removes it",
        "priority": "place in the queue of its price: the smaller, the earlier",
        "order_id": _TEXT,
        "side": "see [Side](#side): 1 Buy, 2 Sell",
        "action": "see [UpdateAction](#updateaction)",
        "reason": "see [UpdateReason](#updatereason)",
        "present": "bit 1: order_id",
    },
    Kind.TRADES: {
        "price": "price of the trade",
        "quantity": "quantity of the trade",
        "side": "side of the taker, see [Side](#side): 1 Buy, 2 Sell, 0 not stated",
        "present": "bits: 1 trade_id, 2 taker_order_id, 4 maker_order_id",
    },
    Kind.STATISTICS: {
        "value": "NaN: withdrawn, or not stated",
        "begin_time_utc": "UNIX seconds; 0: not stated",
        "end_time_utc": "UNIX seconds; 0: not stated",
        "type": "see [StatisticsType](#statisticstype)",
    },
    Kind.REFERENCE_DATA: {
        "min_price": "from this price on",
        "tick_size": "the step of prices is this",
    },
    Kind.CUSTOM_METRICS: {"value": _NUMBER, "present": "bit 1: name"},
}

#: What the fields of the header of every record say, beyond their names.
_RECORD = {
    "length": "bytes of header and payload, without padding",
    "kind": "see [Kind](#kind)",
    "line": "line that completed the message, from 0",
    "flags": "see [RecordFlag](#recordflag)",
    "position": "byte offset in the ring's or journal's whole history",
    "index": "ordinal in the ring's or journal's whole history",
    "received_ns": "when the first datagram was received, UNIX ns, by the card or the kernel",
    "published_ns": "when the feed published it, UNIX ns, by the loop's clock",
    "number": "the publisher's number in its stream and session; 0: none",
    "object": "the publisher's number of the object, `(type << 16) \\| id` with Roq",
    "flight_ns": "`received_ns` minus the time of sending by the sender's clock, ns; -2^31: "
    "unknown; +-(2^31 - 1): 2 s or more",
    "stream": "0 incremental, 1 snapshot with Roq; from 2 on with venues; 65,535: none",
    "session": "ordinal of the session in the log, from 1; 0: before the first",
    "checksum": "CRC32C in a journal; 0 in a ring",
}

_CONTROL: dict[Kind, dict[str, str]] = {
    Kind.GAP: {
        "first": "first lost number",
        "last": "last lost number",
        "count": "lost messages",
        "waited_ns": "how long they were waited for, ns",
    },
    Kind.SESSION: {
        "old_id": "the session before, as published; 0: none",
        "new_id": "the new session, as published",
        "first_number": "first number received of it",
        "unseen": "numbers before it that were refused or lost; 0 of a FIRST that begins above 1: "
        "unknown",
        "discarded": "messages that were pending",
        "stream": "what the publisher calls it; 0 with Roq",
    },
    Kind.STALE: {
        "object": "the object, as in the header",
        "continues": "of RECOVERED: 1, what was published still holds; 0, a snapshot follows",
        "applied": "last number applied; 0: none",
        "exchange_id": f"exchange, {_ID}",
        "symbol_id": f"symbol, {_ID}",
    },
    Kind.CONNECTION: {"silent_ns": "how long nothing had come, ns"},
    Kind.DISAGREEMENT: {
        "number": "number of the message",
        "hash_first": "hash of the bytes that were used",
        "hash_other": "hash of the other bytes",
        "fragment": "fragment of the message, from 0",
        "line_first": "line whose bytes were used",
        "line_other": "line with the other bytes",
    },
    Kind.RESTART: {
        "epoch": "epoch of the new writer",
        "restarted_ns": "when it began, UNIX ns",
    },
    Kind.LAPPED: {"missed": "missed records; a lower bound unless the reason is READER"},
    Kind.DATAGRAM: {
        "now_ns": "the loop's monotonic clock, ns",
        "flags": "bits of the datagram",
        "address": "its place among the addresses of its line",
    },
    Kind.CLOCK: {"now_ns": "the loop's monotonic clock, ns"},
    Kind.SENDER: {
        "sender": "number of the sender in the store",
        "incarnation": "ordinal of the outbox of that name, from 1",
        "next": "number expected next",
        "position": "position in the store",
        "nonce": "drawn by the sender",
        "name": _TEXT,
        "host": "host of the app; empty: absent",
    },
    Kind.ROLLBACK: {
        "records": "so many of those read last are no longer in the store",
        "position": "position from which the store is another one",
    },
    Kind.ORDER: {
        "input": "index of the input, from 0",
        "flags": "bit 1: these records were taken back",
        "first": "position of the first record in the input",
        "end": "position after the last record",
        "first_index": "index of the first record in the input",
        "count": "number of records",
    },
}
_CONTROL[Kind.RECOVERED] = _CONTROL[Kind.STALE]

#: What the members of the enumerations of records mean.
_KINDS = {
    Kind.PAD: "fills the end of a ring; no reader sees it",
    Kind.MESSAGE: "an undecoded message: `record.payload` is 16 bytes of header, then the bytes",
    Kind.GAP: "numbers are lost; all objects of the stream are in doubt",
    Kind.SESSION: "a new session of the publisher; the state of the one before is void",
    Kind.STALE: "this object is not sound, and waits for a snapshot",
    Kind.RECOVERED: "this object is sound (again)",
    Kind.CONNECTION: "a channel, line, writer or loop fell silent, or is heard again",
    Kind.DISAGREEMENT: "two lines brought different bytes under one number",
    Kind.RESTART: "the log has a new writer; treat it as a new session",
    Kind.LAPPED: "the reader, or the recorder, missed records here",
    Kind.DATAGRAM: "raw capture: a datagram as received",
    Kind.CLOCK: "raw capture: a time at which something changed",
    Kind.BOOK: "levels of a book that changed, or all of them",
    Kind.ORDERS: "single orders that changed, or all of them",
    Kind.TOP_OF_BOOK: "best bid and ask, as published",
    Kind.TRADES: "trades",
    Kind.STATISTICS: "daily statistics, prices of settlement, rates, ...",
    Kind.REFERENCE_DATA: "the definition of an instrument",
    Kind.MARKET_STATUS: "the phase of trading of an instrument",
    Kind.GATEWAY_STATUS: "Roq: what of a gateway works",
    Kind.GATEWAY_SETTINGS: "Roq: settings of a gateway",
    Kind.EXTERNAL_LATENCY: "Roq: latency between gateway and exchange",
    Kind.CUSTOM_METRICS: "Roq: measurements of an app",
    Kind.BUS: "bus: a message of an app",
    Kind.SENDER: "bus: registers a sender",
    Kind.SENDERS: "bus: all senders, one after the other",
    Kind.ROLLBACK: "bus: records that were read are no longer in the store",
    Kind.ORDER: "bus: which records of an input a composite takes next",
}
_FLAGS = {
    RecordFlag.SNAPSHOT: "complete state of its object, not a change",
    RecordFlag.HEARTBEAT: "inside the feed only; no record has it",
    RecordFlag.RELEASED: "it waited for a snapshot of its object",
    RecordFlag.TRUNCATED: "a text or list was cut, or a name had no room",
    RecordFlag.NO_TIMESTAMP: "`received_ns` is the loop's clock, not the kernel's or the card's",
    RecordFlag.UNGATED: "passed without a check of its object",
    RecordFlag.FIRST: "its object had nothing before",
    RecordFlag.DOUBT: "the feed did not know whether the book of its instrument is sound",
}
_REASONS: dict[type[enum.IntEnum], tuple[str, str]] = {
    GapReason: ("GAP, `reason`", "[shared-memory.md](shared-memory.md#record) says when each is"),
    SessionReason: ("SESSION, `reason`", "SAME_ID is a restart, RESUMED: the one before goes on"),
    LappedReason: (
        "LAPPED, `reason`",
        "READER: overwritten, or removed to make room, before they were read",
    ),
    ObjectStatus: ("STALE, RECOVERED, `status`", "only a LIVE object can be trusted"),
    ObjectWait: ("STALE, RECOVERED, `waits`", "what an object that is not LIVE waits for"),
    ConnectionStatus: ("CONNECTION, `status`", "READY ends a silence, DISCONNECTED begins it"),
    ConnectionScope: ("CONNECTION, `scope`", "what is silent"),
}


def _type(dtype: np.dtype[Any]) -> str:
    # `S36` and `f8` as numpy prints them, integers by their full names.
    return dtype.str.lstrip("<|") if dtype.kind in "SV" else dtype.name


def _table(dtype: np.dtype[Any], said: dict[str, str], skip: Iterable[str] = ()) -> Iterator[str]:
    yield from ("", "| field | dtype | meaning, unit, absent |", "|---|---|---|")
    for name in dtype.names or ():
        if name in skip or name.startswith("reserved"):
            continue
        field = dtype[name]
        meaning = said.get(name) or (_TEXT if field.kind == "S" else "")
        if not meaning:
            raise SystemExit(f"scripts/record_fields.py says nothing of the field {name!r}")
        yield f"| `{name}` | {_type(field)} | {meaning} |"
    yield ""


def header_table() -> str:
    """Return the fields of every record's header."""
    return "\n".join(_table(RECORD, _RECORD))


def update_tables() -> str:
    """Return the fields that all updates begin with, then those of each kind and of its rows."""
    common = TRADES.names or ()
    parts = ["### Every update", "", "`record.data` of a BOOK and of every kind below begins with:"]
    parts += _table(TRADES, _HEADER)
    for kind, dtype in UPDATE_DTYPES.items():
        parts += [f"### {kind.name}", "", f"{_KINDS[kind][0].upper()}{_KINDS[kind][1:]}."]
        own = [name for name in dtype.names or () if name not in common]
        if any(not name.startswith("reserved") for name in own):
            parts += ["", "`record.data`, besides the fields of every update:"]
            parts += _table(dtype, _OWN[kind], common)
        else:
            parts.append("")
        if kind in ROW_DTYPES:
            sides = ", `record.bids`, `record.asks`" if kind is Kind.BOOK else ""
            parts.append(f"`record.rows`{sides}:")
            parts += _table(ROW_DTYPES[kind], _ROWS[kind])
    return "\n".join(parts)


def control_tables() -> str:
    """Return the fields of records that are not updates."""
    parts: list[str] = []
    for kind, dtype in CONTROL_DTYPES.items():
        if kind is Kind.RECOVERED:
            continue
        name = "STALE and RECOVERED" if kind is Kind.STALE else kind.name
        coded = {
            field: ", ".join(f"{number} {word}" for number, word in words.items())
            for (of, field), words in CONTROL_WORDS.items()
            if of is kind
        }
        parts += [f"### {name}", "", f"{_KINDS[kind][0].upper()}{_KINDS[kind][1:]}."]
        parts += _table(dtype, _CONTROL[kind] | coded)
    return "\n".join(parts)


def enumeration_tables() -> str:
    """Return the members of all enumerations with their numbers."""
    parts = ["### Kind", "", "`udpfast.Kind`, an `IntEnum`.", ""]
    parts += ["| number | member | what it is |", "|---|---|---|"]
    parts += [f"| {kind.value} | `{kind.name}` | {_KINDS[kind]} |" for kind in Kind]
    parts += ["", "### RecordFlag", "", "`udpfast.RecordFlag`, an `IntFlag`: bits.", ""]
    parts += ["| bit | member | what it says |", "|---|---|---|"]
    parts += [f"| {flag.value} | `{flag.name}` | {_FLAGS[flag]} |" for flag in RecordFlag]
    parts.append("")
    for members, (of, what) in _REASONS.items():
        listed = ", ".join(f"{member.value} {member.name}" for member in members)
        parts += [f"### {members.__name__}", "", f"Of {of}: {what}.", "", f"{listed}.", ""]
    for name, words in ENUMS.items():
        fields = ", ".join(f"`{field}`" for field, of in UPDATE_ENUMS.items() if of == name)
        listed = ", ".join(f"{number} {word.lstrip('_')}" for number, word in words.items())
        seconds = ", seconds" if name == "Interval" else ""
        parts += [f"### {name}", "", f"Of {fields}{seconds}: {listed}.", ""]
    return "\n".join(parts)
