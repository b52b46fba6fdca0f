"""The tables of an export and of the Spark source, with their columns.

This module imports pyarrow and pyspark only when one of their schemas is needed.

The tables use only types that Spark has. It has no unsigned integers: those of 64 bits keep their
bits, so values of 2**63 or more turn negative. It has no timestamps in nanoseconds: times are
`..._ns`, BIGINT, UNIX nanoseconds, and one time per table is also a TIMESTAMP in microseconds. A
missing number (NaN on the wire, id 0, the value 0 of an enumeration) is NULL.

Enumerations of the publisher use the names of its schema ("Buy"), those of udpfast their own
("GAP"). A number without a name stays a number ("37").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from udpfast.core.layout import Kind
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES
from udpfast.market.words import UPDATE_ENUMS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FROM_ALL",
    "PARTITION_COLUMNS",
    "TABLES",
    "Column",
    "Table",
    "arrow_schema",
    "partition_schema",
    "spark_schema",
    "table_of",
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
        Name of the column.
    type : str
        A key of `SPARK_TYPES`.
    source : str
        Where its values come from: `record.FIELD` of the record's header, `payload.FIELD` of its
        payload, `row.FIELD` of one of its rows; or the name of a computed column in
        `export.columns`.
    doc : str
        Its meaning, if the name does not say it.
    words : str
        The enumeration with the words for its numbers: `Kind`, `GapReason`, ..., or one of the
        publisher's schema.
    """

    name: str
    type: str
    source: str
    doc: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Table:
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


#: Spark's name of each type of column.
SPARK_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "timestamp": "TIMESTAMP",
    "ints": "ARRAY<INT>",
    "longs": "ARRAY<BIGINT>",
    "steps": "ARRAY<STRUCT<min_price: DOUBLE, tick_size: DOUBLE>>",
}

#: Columns that are directories, `date=2026-11-21/stream=0/session=s1`: the UTC day of
#: `published_ns`; 0 incremental, 1 snapshot; the session's ordinal (the letter before it prevents
#: Spark from reading it as a number).
PARTITION_COLUMNS = {"date": "DATE", "stream": "INT", "session": "STRING"}

_FEED = Column(
    "feed",
    "string",
    "feed",
    "name of the recorded instance; in a composite's copy COMPOSITE/INPUT for records of an "
    "input's feed, COMPOSITE for messages of the bus",
)
_RECORD = (
    _FEED,
    Column("position", "long", "record.position", "position of the record in its journal, bytes"),
    Column("index", "long", "record.index", "position of the record in its journal, records"),
    Column("received_ns", "long", "record.received_ns", "when its first datagram first arrived"),
    Column("published_ns", "long", "record.published_ns", "when the loop published it"),
    Column("received_at", "timestamp", "record.received_ns"),
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
    Column("exchange", "string", "name.exchange_id"),
    Column("symbol", "string", "name.symbol_id"),
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
    _FEED,
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
    Column("reason", "string", "row.reason", "", "UpdateReason"),
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
    Column("discard", "boolean", "payload.discard"),
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
    Column("tick_size_steps", "steps", "steps"),
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
    Column("object", "long", "event.object"),
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
    Column("fragment", "int", "event.fragment", "DISAGREEMENT"),
    Column("line_first", "int", "event.line_first", "DISAGREEMENT: line whose bytes were used"),
    Column("line_other", "int", "event.line_other"),
    Column("missed", "long", "event.missed", "LAPPED: missed records"),
    Column("epoch", "long", "event.epoch", "RESTART: epoch of the new writer"),
    Column("restarted_ns", "long", "event.restarted_ns"),
)

_PLACE = (
    _FEED,
    Column("position", "long", "record.position", "position of the record in its store, bytes"),
    Column("index", "long", "record.index", "position of the record in its store, records"),
    Column(
        "received_ns",
        "long",
        "record.received_ns",
        "in a composite's copy: when its order took the message; in a store: the sequencer's clock",
    ),
    Column("published_ns", "long", "record.published_ns", "the sequencer's stamp"),
    Column("published_at", "timestamp", "record.published_ns"),
)

_BUS = (
    *_PLACE,
    Column("sender", "int", "sender", "number of the sender in the store; see `senders`"),
    Column("incarnation", "int", "incarnation", "ordinal of the outbox of that name, from 1"),
    Column("number", "long", "record.number", "the sender's number of the message, from 1"),
    Column("type", "int", "type", "type given to `send`"),
    Column("size", "int", "size", "bytes of the payload"),
    Column("payload", "binary", "bytes"),
)

_SENDERS = (
    *_PLACE,
    Column("sender", "int", "payload.sender", "number of the sender in the store"),
    Column(
        "incarnation", "int", "payload.incarnation", "ordinal of the outbox of that name, from 1"
    ),
    Column("name", "string", "payload.name"),
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

_RACES = (
    _FEED,
    Column("position", "long", "record.position", "position of the first copy in the raw capture"),
    Column("received_ns", "long", "record.received_ns", "when the first copy arrived"),
    Column("published_ns", "long", "record.published_ns", "the loop's clock at the first copy"),
    Column("received_at", "timestamp", "record.received_ns"),
    Column("number", "long", "race"),
    Column("fragment", "int", "race"),
    Column("fragments", "int", "fragments", "number of the message's datagrams"),
    Column("completed", "boolean", "race", "true: completed the message; once per whole message"),
    Column("winner", "int", "race", "line from which the loop took it first"),
    Column("second", "int", "race", "line that delivered it next; NULL: none"),
    Column(
        "lead_ns", "long", "race", "lead of the winner; negative if stamps contradict the order"
    ),
    Column("stamped", "boolean", "stamped", "true: all copies have stamps of kernel or card"),
    Column("copies", "int", "race", "number of lines that delivered it"),
    Column("lines", "int", "race", "lines that delivered it: a bit each, 1 << line"),
    Column(
        "delays_ns", "longs", "race", "delay of each line after the first copy; NULL: not delivered"
    ),
)

_LATENCY = (
    _FEED,
    Column("minute_ns", "long", "latency", "start of the minute"),
    Column("minute", "timestamp", "latency"),
    Column("segment", "long", "latency", "segment of the journal"),
    Column("line", "int", "latency"),
    Column("hop", "string", "latency", "origin_to_kernel, kernel_to_loop, ..."),
    Column("count", "long", "latency", "number of values"),
    Column("above", "long", "latency", "values of more than an hour, counted as an hour"),
    Column(
        "slots",
        "ints",
        "latency",
        "slots that are not empty, of an HDR histogram with three digits",
    ),
    Column("values_ns", "longs", "latency", "largest value of each of these slots"),
    Column("counts", "longs", "latency", "values in each slot; add them to merge histograms"),
)


def _columns(dtype: np.dtype[Any], base: str, skip: int) -> tuple[Column, ...]:
    # Return a column for each field from an offset on, for tables without a hand-made design.
    columns = []
    for name, (type_, offset, *_) in (dtype.fields or {}).items():
        if offset < skip or name == "present" or name.startswith("reserved"):
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


#: Hand-made tables.
_TABLES: dict[str, Table] = {
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
            "Tops of book. A side without orders is NULL. Both are where the book is known to be "
            "empty, as each of a venue is when its session begins, or the venue withdrew its "
            "quote.",
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
        Table(
            "races",
            (),
            True,
            False,
            "Every datagram, with the line that delivered it first and by how much.",
            _RACES,
        ),
        Table(
            "latency",
            (),
            False,
            False,
            "Histograms of latency by minute, line and hop.",
            _LATENCY,
        ),
    )
}

_OWN = {kind for table in _TABLES.values() for kind in table.kinds}

#: The tables by name. `messages` has every record; (feed, position) joins it with the others. A
#: kind of update without a hand-made table gets one that follows from its layout.
TABLES = _TABLES | {
    table.name: table
    for table in (_derived(kind) for kind in UPDATE_DTYPES if kind.name not in _OWN)
}

#: Tables that are made from all records: of some records they would say something else.
FROM_ALL = ("latency", "races")


def table_of(name: str) -> Table:
    """Return a table by its name.

    Raises
    ------
    ValueError
        There is no such table; the message lists the tables.
    """
    if name not in TABLES:
        raise ValueError(f"table must be one of {', '.join(TABLES)}, was {name!r}")
    return TABLES[name]


def spark_schema(name: str, *, partitions: bool = True) -> str:
    """Return a table's schema in Spark's notation: `spark.read.schema(spark_schema("trades"))`.

    Parameters
    ----------
    name : str
        Name of the table.
    partitions : bool
        Append the partition columns.
    """
    columns = [f"{each.name} {SPARK_TYPES[each.type]}" for each in table_of(name).columns]
    if partitions:
        columns += [f"{name} {type_}" for name, type_ in PARTITION_COLUMNS.items()]
    return ", ".join(columns)


@cache
def arrow_schema(name: str, *, partitions: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table's files, or with the partition columns."""
    import pyarrow as pa

    types = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "ints": pa.list_(pa.int32()),
        "longs": pa.list_(pa.int64()),
        "steps": pa.list_(pa.struct([("min_price", pa.float64()), ("tick_size", pa.float64())])),
    }
    schema = pa.schema([(each.name, types[each.type]) for each in table_of(name).columns])
    return pa.schema([*schema, *partition_schema()]) if partitions else schema


def partition_schema() -> pa.Schema:
    """Return the Arrow schema of the partition columns."""
    import pyarrow as pa

    return pa.schema([("date", pa.date32()), ("stream", pa.int32()), ("session", pa.string())])
