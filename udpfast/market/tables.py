"""The columns of records in tables: names, types and what they come from.

One map for all who show records as tables: the frames of a batch (`client.arrow`), the files of an
export and the Spark source (`export.schema`).

The tables use only types that Spark has. It has no unsigned integers: those of 64 bits keep their
bits, so values of 2**63 or more turn negative. It has no timestamps in nanoseconds: times are
`..._ns`, BIGINT, UNIX nanoseconds, and one time per table is also a TIMESTAMP in microseconds. A
missing number (NaN on the wire, id 0, the value 0 of an enumeration) is NULL.

Enumerations of the publisher use the names of its schema ("Buy"), those of udpfast their own
("GAP"). A number without a name stays a number ("37").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from udpfast.core.layout import CONTROL_DTYPES, Kind
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, UPDATE_ENUMS

__all__ = [
    "FEED",
    "LAYOUT_TABLES",
    "PARTITIONS",
    "PARTITION_COLUMNS",
    "RECORD_TABLES",
    "Column",
    "Frame",
    "Table",
    "frame_columns",
]


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes
    ----------
    name : str
        Name of the column.
    type : str
        A key of `SPARK_TYPES` of `export.schema`; `date` of a partition column.
    source : str
        Where its values come from: `record.FIELD` of the record's header, `payload.FIELD` of its
        payload, `row.FIELD` of one of its rows; or the name of a computed column in
        `market.columns`.
    doc : str
        Its meaning; empty: that of the field it comes from, in docs/records.md.
    words : str
        The enumeration with the words for its numbers: `Kind`, `GapReason`, ..., or one of the
        publisher's schema.
    """

    name: str
    type: str
    source: str
    doc: str = ""
    words: str = ""


class Table(Struct, frozen=True):
    """A table and its columns. Its directory in the export has the table's name.

    Attributes
    ----------
    name : str
        Name of the table.
    kinds : tuple of str
        Kinds of records with rows in it; empty: all, or those of a raw capture.
    raw : bool
        Whether it is made from a raw capture.
    rows : bool
        True: one row per row of a payload (level, trade, ...); False: one row per record.
    doc : str
        What its rows are.
    columns : tuple of Column
        Its columns without the partition columns, which are names of directories.
    """

    name: str
    kinds: tuple[str, ...]
    raw: bool
    rows: bool
    doc: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, then of the partition columns, as Spark orders them."""
        return (*(column.name for column in self.columns), *PARTITION_COLUMNS)


#: Columns that are directories, `date=2026-11-21/stream=0/session=s1`: the UTC day of
#: `published_ns`; 0 incremental, 1 snapshot; the session's ordinal (the letter before it prevents
#: Spark from reading it as a number).
PARTITION_COLUMNS = {"date": "DATE", "stream": "INT", "session": "STRING"}

#: The same as columns of rows in memory, which no directory is for.
PARTITIONS = (
    Column("date", "date", "date"),
    Column("stream", "int", "stream"),
    Column("session", "string", "session"),
)

FEED = Column(
    "feed",
    "string",
    "feed",
    "name of the recorded instance; in a composite's copy COMPOSITE/INPUT for records of an "
    "input's feed, COMPOSITE for messages of the bus",
)
_RECORD = (
    FEED,
    Column("position", "long", "record.position", "position of the record in its journal, bytes"),
    Column("index", "long", "record.index", "position of the record in its journal, records"),
    Column("received_ns", "long", "record.received_ns", "when its first datagram first arrived"),
    Column("published_ns", "long", "record.published_ns", "the loop's clock at its batch"),
    Column("received_at", "timestamp", "record.received_ns", "`received_ns` in us"),
    Column("number", "long", "record.number", "the publisher's number, per stream"),
    Column("line", "int", "record.line", "line that completed the message"),
    Column("flags", "int", "record.flags", "RecordFlag"),
    Column(
        "snapshot",
        "boolean",
        "snapshot",
        "true: complete state, by the record's flag or the update's own type; not a change",
    ),
)
_OBJECT = Column("object", "long", "record.object", "the publisher's number of the object")
_NAMES = (
    Column("exchange", "string", "name.exchange_id", "NULL: absent, or no room for it (TRUNCATED)"),
    Column("symbol", "string", "name.symbol_id", "NULL: absent, or no room for it (TRUNCATED)"),
)
_HEADER_SIZE = UPDATE_DTYPES[Kind.TRADES].itemsize  # only the fields that all updates begin with
_ROW = Column("row", "int", "ordinal", "0, 1, ... within the record")
_TIME = Column("exchange_time_ns", "long", "update.exchange_time_utc", "0: not stated")
_UPDATE = (*_RECORD, _OBJECT, *_NAMES, _TIME)
_DOUBT = Column(
    "doubt",
    "boolean",
    "doubt",
    "true: the feed did not know at that time whether the instrument's book was sound. False of "
    "Roq: its levels come only of sound books, and a top or trade is whole in itself",
)

_MESSAGES = (
    FEED,
    Column("position", "long", "record.position", "position of the record in its journal, bytes"),
    Column("index", "long", "record.index", "position of the record in its journal, records"),
    Column("kind", "string", "record.kind", "BOOK, TRADES, GAP, ...", "Kind"),
    *_RECORD[3:],
    _OBJECT,
    Column("sent_ns", "long", "sent_ns", "when it was sent, by the sender's clock"),
    Column("size", "int", "size", "bytes of the payload in its fixed layout"),
    *_NAMES,
    _TIME,
    Column("exchange_sequence", "long", "update.exchange_sequence"),
    Column("sending_time_ns", "long", "update.sending_time_utc", "when the exchange sent it"),
    Column("source_seqno", "long", "update.source_seqno"),
    Column("source_send_ns", "long", "update.source_send_time_utc", "when the publisher sent it"),
    Column("source_create_ns", "long", "update.source_create_time_utc"),
    Column("stream_id", "int", "update.stream_id"),
    Column("update_type", "string", "update.update_type", "", "UpdateType"),
    Column("rows", "int", "update.row_count", "rows of the payload; levels of a book"),
    Column("payload", "binary", "payload", "the record's payload, if requested"),
)

_LEVELS = (
    *_UPDATE,
    _DOUBT,
    Column("side", "string", "side", "Bid, Ask"),
    _ROW,
    Column("price", "double", "row.price"),
    Column("quantity", "double", "row.quantity", "0 removes the level"),
    Column("implied_quantity", "double", "row.implied_quantity"),
    Column("number_of_orders", "int", "row.number_of_orders"),
    Column("price_level", "long", "row.price_level"),
    Column("update_action", "string", "row.update_action", "", "UpdateAction"),
)

_ORDERS = (
    *_UPDATE,
    _DOUBT,
    _ROW,
    Column("side", "string", "row.side", "Buy, Sell", "Side"),
    Column("price", "double", "row.price"),
    Column("quantity", "double", "row.quantity"),
    Column("priority", "long", "row.priority"),
    Column("order_id", "string", "row.order_id"),
    Column("action", "string", "row.action", "", "UpdateAction"),
    Column(
        "reason",
        "string",
        "row.reason",
        "Filled: an execution made the row, on the tape or not; NULL: none did, or the venue does "
        "not tell",
        "UpdateReason",
    ),
)

_TOPS = (
    *_UPDATE,
    _DOUBT,
    Column("bid_price", "double", "payload.bid_price"),
    Column("bid_quantity", "double", "payload.bid_quantity"),
    Column("ask_price", "double", "payload.ask_price"),
    Column("ask_quantity", "double", "payload.ask_quantity"),
)

_TRADES = (
    *_UPDATE,
    _DOUBT,
    _ROW,
    Column("side", "string", "row.side", "side of the taker: Buy, Sell", "Side"),
    Column("price", "double", "row.price"),
    Column("quantity", "double", "row.quantity"),
    Column("trade_id", "string", "row.trade_id"),
    Column("taker_order_id", "string", "row.taker_order_id"),
    Column("maker_order_id", "string", "row.maker_order_id"),
)

_STATISTICS = (
    *_UPDATE,
    _ROW,
    Column("type", "string", "row.type", "HighestTradedPrice, ...", "StatisticsType"),
    Column("value", "double", "row.value"),
    Column("begin_time_s", "long", "row.begin_time_utc", "UNIX seconds"),
    Column("end_time_s", "long", "row.end_time_utc", "UNIX seconds"),
)

_INSTRUMENTS = (
    *_UPDATE,
    Column("security_type", "string", "payload.security_type", "", "SecurityType"),
    Column("option_type", "string", "payload.option_type", "", "OptionType"),
    Column("discard", "boolean", "payload.discard", "true: the instrument is gone"),
    *(
        Column(name, "double", f"payload.{name}")
        for name in (
            "tick_size",
            "multiplier",
            "min_trade_vol",
            "max_trade_vol",
            "trade_vol_step_size",
            "strike_price",
            "min_notional",
        )
    ),
    Column("expiry_datetime_s", "long", "payload.expiry_datetime", "UNIX seconds"),
    Column("expiry_datetime_utc_s", "long", "payload.expiry_datetime_utc", "UNIX seconds"),
    Column("issue_date", "int", "payload.issue_date", "UNIX days"),
    Column("settlement_date", "int", "payload.settlement_date", "UNIX days"),
    Column(
        "external_security_id",
        "int",
        "payload.external_security_id",
        "the venue's number, if it has 31 bits at most; `description` has it in any case",
    ),
    *(
        Column(name, "string", f"payload.{name}")
        for name in (
            "description",
            "quote_currency",
            "base_currency",
            "commission_currency",
            "strike_currency",
            "underlying",
            "time_zone",
            "margin_currency",
            "settlement_currency",
            "cfi_code",
        )
    ),
    Column("tick_size_steps", "steps", "steps", "from `min_price` on, prices step by `tick_size`"),
)

_STATUS = (
    *_UPDATE,
    Column("trading_status", "string", "payload.trading_status", "", "TradingStatus"),
)

_GAPS = (
    *_RECORD,
    Column("first_number", "long", "payload.first", "first lost number"),
    Column("last_number", "long", "payload.last", "last lost number"),
    Column("lost", "long", "payload.count", "lost messages"),
    Column("reason", "string", "payload.reason", "COUNT, TIME, ...", "GapReason"),
    Column("waited_ns", "long", "payload.waited_ns"),
)

_EVENTS = (
    *_RECORD,
    Column("kind", "string", "record.kind", "SESSION, STALE, RECOVERED, LAPPED, ...", "Kind"),
    Column("reason", "string", "event.reason", "SESSION, LAPPED: why"),
    Column("status", "string", "event.status", "status of an object or a connection"),
    *_NAMES,
    Column("object", "long", "event.object", "STALE, RECOVERED: the object"),
    Column("applied", "long", "event.applied", "STALE, RECOVERED: last number applied"),
    Column("continues", "boolean", "event.continues", "RECOVERED: what was held stays right"),
    Column("old_session", "long", "event.old_id", "session id as published"),
    Column("new_session", "long", "event.new_id", "session id as published"),
    Column("discarded", "long", "event.discarded", "SESSION: messages that were pending"),
    Column(
        "first_number", "long", "event.first_number", "SESSION: first number of the new session"
    ),
    Column(
        "unseen",
        "long",
        "event.unseen",
        "SESSION: earlier numbers, refused or lost; 0 of a FIRST that begins above 1: unknown",
    ),
    Column("waits", "string", "event.waits", "STALE: SNAPSHOT, SNAPSHOT_SILENT, ...; else NONE"),
    Column("scope", "string", "event.scope", "CONNECTION: CHANNEL or LINE"),
    Column("silent_ns", "long", "event.silent_ns", "CONNECTION: how long nothing had arrived"),
    Column("fragment", "int", "event.fragment", "DISAGREEMENT: fragment of the message, from 0"),
    Column("line_first", "int", "event.line_first", "DISAGREEMENT: line whose bytes were used"),
    Column("line_other", "int", "event.line_other", "DISAGREEMENT: line with the other bytes"),
    Column("missed", "long", "event.missed", "LAPPED: missed records"),
    Column("epoch", "long", "event.epoch", "RESTART: epoch of the new writer"),
    Column("restarted_ns", "long", "event.restarted_ns", "RESTART: when it began, UNIX ns"),
)

_PLACE = (
    FEED,
    Column("position", "long", "record.position", "position of the record in its store, bytes"),
    Column("index", "long", "record.index", "position of the record in its store, records"),
    Column(
        "received_ns",
        "long",
        "record.received_ns",
        "in a composite's copy: when its order took the message; in a store: the sequencer's clock",
    ),
    Column("published_ns", "long", "record.published_ns", "the sequencer's stamp"),
    Column("published_at", "timestamp", "record.published_ns", "`published_ns` in us"),
)

_BUS = (
    *_PLACE,
    Column("sender", "int", "sender", "number of the sender in the store; see `senders`"),
    Column("incarnation", "int", "incarnation", "ordinal of the outbox of that name, from 1"),
    Column("number", "long", "record.number", "the sender's number of the message, from 1"),
    Column("type", "int", "type", "type given to `send`"),
    Column("size", "int", "size", "bytes of the payload"),
    Column("payload", "binary", "bytes", "the message's bytes"),
)

_SENDERS = (
    *_PLACE,
    Column("sender", "int", "payload.sender", "number of the sender in the store"),
    Column(
        "incarnation", "int", "payload.incarnation", "ordinal of the outbox of that name, from 1"
    ),
    Column("name", "string", "payload.name", "name of the app"),
    Column("host", "string", "payload.host", "host of the app"),
)

_MERGES = (
    *_PLACE[:3],
    Column("received_ns", "long", "record.received_ns", "same as published_ns"),
    Column("published_ns", "long", "record.published_ns", "when the order was decided"),
    _PLACE[-1],
    Column("place", "long", "record.number", "in a copy: position in the order log; else 0"),
    Column("input", "int", "payload.input", "index of the input in bus.toml, from 0"),
    Column("back", "boolean", "back", "true: the input lost these records, so they are taken back"),
    Column("first", "long", "payload.first", "position of the first record in the input"),
    Column("end", "long", "payload.end", "position after the last record"),
    Column("first_index", "long", "payload.first_index", "index of the first record in the input"),
    Column("count", "long", "payload.count", "number of records"),
)


def _columns(
    dtype: np.dtype[Any], base: str, skip: int, *, present: bool = False
) -> tuple[Column, ...]:
    # Return a column for each field from an offset on, for tables without a hand-made design.
    columns = []
    for name, (type_, offset, *_) in (dtype.fields or {}).items():
        if offset < skip or name.startswith("reserved") or (name == "present" and not present):
            continue
        words = UPDATE_ENUMS.get(name, "")
        small = type_.itemsize < 4 or type_ == np.int32
        kind = "double" if type_.kind == "f" else "int" if small else "long"
        kind = "string" if words or type_.kind == "S" else kind
        columns.append(Column(name, kind, f"{base}.{name}", "", words))
    return tuple(columns)


def _derived(kind: Kind) -> Table:
    # Return the table of a kind without a hand-made one: its columns follow from its layout.
    row = ROW_DTYPES.get(kind)
    columns = (*_UPDATE, *_columns(UPDATE_DTYPES[kind], "payload", _HEADER_SIZE))
    if row is not None:
        columns += (_ROW, *_columns(row, "row", 0))
    words = kind.name.lower().replace("_", " ").capitalize()
    doc = f"{words}, one column per field of its layout."
    return Table(kind.name.lower(), (kind.name,), False, row is not None, doc, columns)


#: Hand-made tables of records.
RECORD_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("messages", (), False, False, "Every record.", _MESSAGES),
        Table("levels", ("BOOK",), False, True, "Levels of book updates.", _LEVELS),
        Table("orders", ("ORDERS",), False, True, "Orders of book updates.", _ORDERS),
        Table(
            "tops",
            ("TOP_OF_BOOK",),
            False,
            False,
            "Tops of book. A side without orders has the price NULL and the quantity 0 (of Roq: "
            "as it was sent). Both sides are so where the book is known to be empty, as each of a "
            "venue is when its session begins, or where the venue withdrew its quote.",
            _TOPS,
        ),
        Table("trades", ("TRADES",), False, True, "Trades.", _TRADES),
        Table("statistics", ("STATISTICS",), False, True, "Statistics.", _STATISTICS),
        Table(
            "instruments",
            ("REFERENCE_DATA",),
            False,
            False,
            "Definitions of instruments; a row whenever one was published.",
            _INSTRUMENTS,
        ),
        Table("status", ("MARKET_STATUS",), False, False, "Trading status.", _STATUS),
        Table(
            "gaps",
            ("GAP",),
            False,
            False,
            "Messages that did not arrive in time on any line.",
            _GAPS,
        ),
        Table(
            "events",
            (
                "SESSION",
                "STALE",
                "RECOVERED",
                "CONNECTION",
                "DISAGREEMENT",
                "RESTART",
                "LAPPED",
            ),
            False,
            False,
            "The feed's other reports: sessions, doubts, silence.",
            _EVENTS,
        ),
        Table("bus", ("BUS",), False, False, "Messages that apps sent over a bus.", _BUS),
        Table("senders", ("SENDER",), False, False, "Apps that a bus registered.", _SENDERS),
        Table(
            "merges",
            ("ORDER",),
            False,
            False,
            "Entries of a composite's order log: which records it took next, from which input.",
            _MERGES,
        ),
    )
}

_OWN = {kind for table in RECORD_TABLES.values() for kind in table.kinds}

#: By name: a table for each kind of update without a hand-made one, which follows from its layout.
LAYOUT_TABLES = {
    table.name: table
    for table in (_derived(kind) for kind in UPDATE_DTYPES if kind.name not in _OWN)
}


class Frame(Struct, frozen=True):
    """The columns of records of one kind in memory, a row for each record.

    Attributes
    ----------
    columns : tuple of Column
        Columns of the record. Those that the kind's table in an export has are the table's.
    rows : str
        Name of the column that lists the rows of each payload; empty: the kind has no rows.
    row_columns : tuple of Column
        Columns of the rows. None has the name of a column of the record.
    """

    columns: tuple[Column, ...]
    rows: str = ""
    row_columns: tuple[Column, ...] = ()


@cache
def frame_columns(kind: Kind | None) -> Frame | None:
    """Return the columns of a batch's frame of one kind; None: the kind has no fixed layout.

    They are those of the kind's table in an export, of an update then those that `messages` has,
    and then the fields of the kind's layout that neither shows, under their own names.

    Parameters
    ----------
    kind : Kind or None
        The kind; None: all records, with the columns of `messages`.
    """
    if kind is None:
        return Frame((*_MESSAGES, _DOUBT, *PARTITIONS))
    table = next((each for each in _ALL if kind.name in each.kinds), None)
    dtype = _DTYPES.get(kind)
    if table is None and dtype is None:
        return None
    fields: tuple[str, ...] = () if dtype is None else dtype.names or ()
    columns = [
        each
        for each in (_RECORD if table is None else table.columns)
        if _base(each) not in _OF_ROWS and (_base(each) != "event" or _field(each) in fields)
    ]
    if kind in UPDATE_DTYPES:
        names = {each.name for each in columns}
        columns += [each for each in (_SENT, *_STATED, _DOUBT) if each.name not in names]
    columns += PARTITIONS
    shown = {_field(each) for each in columns if _base(each) in _OF_PAYLOAD}
    left = [name for name in fields if name not in shown and not name.startswith("reserved")]
    columns += _under_own_names({each.name for each in columns}, kind, left)
    if kind not in ROW_DTYPES or table is None or not table.rows:
        return Frame(tuple(columns))
    rows = tuple(each for each in table.columns if _base(each) in _OF_ROWS)
    return Frame(tuple(columns), "rows", rows)


def _under_own_names(taken: set[str], kind: Kind, fields: Sequence[str]) -> Iterator[Column]:
    # Yield a column for each field; one whose name is taken gets a prefix.
    of_update = UPDATE_DTYPES.get(kind)
    own = (
        {}
        if of_update is None
        else {each.name: each for each in _columns(of_update, "payload", 0, present=True)}
    )
    for field in fields:
        text = "string" if (kind, field) in CONTROL_WORDS else "long"
        column = own.get(field) or Column(field, text, f"event.{field}")
        yield replace(column, name=f"payload_{field}") if field in taken else column


def _base(column: Column) -> str:
    return column.source.partition(".")[0]


def _field(column: Column) -> str:
    return column.source.partition(".")[2]


#: What only rows of a payload have.
_OF_ROWS = ("row", "ordinal", "side")
#: Parts of a record whose fields are those of its payload.
_OF_PAYLOAD = ("payload", "update", "name", "event")
_DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}
_ALL = (*RECORD_TABLES.values(), *LAYOUT_TABLES.values())
_SENT = next(each for each in _MESSAGES if each.name == "sent_ns")
_STATED = tuple(
    each for each in _MESSAGES if _base(each) == "update" and _field(each) != "row_count"
)
