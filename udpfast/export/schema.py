"""The tables of an export and of the Spark source: those of records, `races` and `latency`.

`market.tables` has the columns of records. This module imports pyarrow and pyspark only when one
of their schemas is needed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from udpfast.market.tables import (
    FEED,
    LAYOUT_TABLES,
    PARTITION_COLUMNS,
    RECORD_TABLES,
    Column,
    Table,
)

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

_RACES = (
    FEED,
    Column("position", "long", "record.position", "position of the first copy in the raw capture"),
    Column("received_ns", "long", "record.received_ns", "when the first copy arrived"),
    Column("published_ns", "long", "record.published_ns", "the loop's clock at the first copy"),
    Column("received_at", "timestamp", "record.received_ns", "`received_ns` in us"),
    Column("number", "long", "race", "the publisher's number of the message"),
    Column("fragment", "int", "race", "fragment of the message, from 0"),
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
    FEED,
    Column("minute_ns", "long", "latency", "start of the minute"),
    Column("minute", "timestamp", "latency", "`minute_ns` as a time"),
    Column("segment", "long", "latency", "segment of the journal"),
    Column("line", "int", "latency", "line that completed the messages"),
    Column(
        "hop",
        "string",
        "latency",
        "kernel_to_published; origin_to_kernel and exchange_to_kernel, whose values below 0 are "
        "in kernel_to_origin and kernel_to_exchange",
    ),
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


#: Hand-made tables of datagrams and of sums of records.
_MADE = {
    table.name: table
    for table in (
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

#: The tables by name. `messages` has every record; (feed, position) joins it with the others.
TABLES = RECORD_TABLES | _MADE | LAYOUT_TABLES

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
