"""Arrow columns from records: the rows of one table in a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from udpfast.archive.copied_sessions import copied_input, copied_session
from udpfast.core.layout import CONTROL_DTYPES, RECORD, GapReason, Kind, RecordFlag
from udpfast.export.block import Block, Rows
from udpfast.export.schema import Column, Table, arrow_schema
from udpfast.market.names import NameTable
from udpfast.market.updates import ROW_DTYPES, TICK_SIZE_STEP, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, ENUMS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Names",
    "Partition",
    "Selection",
    "feed_of",
    "kind_mask",
    "latency_batches",
    "partition_columns",
    "record_batch",
    "session_word",
]

_DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}
_UPDATE = UPDATE_DTYPES[Kind.TOP_OF_BOOK]  # all updates begin with the same fields

#: Words of udpfast's own enumerations; those of the publisher are in payload.roq.schema.
_OWN_WORDS: dict[str, dict[int, str]] = {
    each.__name__: {member.value: member.name for member in each} for each in (Kind, GapReason)
}
Values: TypeAlias = NDArray[Any]
#: Absolute value of `flight_ns` at which the time is unknown or was too long.
FLIGHT_MAX = 2**31 - 1

#: UNIX day, stream, session.
Partition: TypeAlias = tuple[int, int, int]
Base: TypeAlias = Literal["record", "payload", "row", "update", "ids"]


class Names:
    """Names by id.

    Parameters
    ----------
    table : NameTable or None
        The table of names; None: no id has a name.
    """

    def __init__(self, table: NameTable | None = None) -> None:
        self._table = table
        self._words: list[str | None] = [None]

    def words(self) -> list[str | None]:
        """Return the current names by id; id 0 has none (None)."""
        if self._table is not None:
            for name_id in range(len(self._words), len(self._table) + 1):
                self._words.append(self._table[name_id])
        return self._words

    def has(self, ids: Iterable[Values]) -> bool:
        """Return whether all ids except 0 have names."""
        nobody = np.array([word is None for word in self.words()] + [True])
        nobody[0] = False
        return not any(nobody[np.minimum(each, len(nobody) - 1)].any() for each in ids)

    def known(self, wanted: Sequence[str]) -> Values:
        """Return by id whether its name is wanted; the last element is for all larger ids."""
        words = self.words()
        return np.array([word in wanted for word in words] + [False])


@dataclass(frozen=True, slots=True)
class Selection:
    """What to return of a table.

    Attributes
    ----------
    table : Table
        The table.
    feed : str
        Name of the recorded instance, for the column `feed`.
    columns : tuple of str
        Names of the columns in order; partition columns may be among them. Empty: all columns of
        the table.
    payloads : bool
        Fill the column `payload`.
    dictionaries : bool
        Return texts with few distinct words as dictionaries: smaller in Parquet, but Spark refuses
        them.
    inputs : tuple of str
        Names of a composite's inputs, if the journal is its copy.
    """

    table: Table
    feed: str
    columns: tuple[str, ...] = ()
    payloads: bool = False
    dictionaries: bool = True
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Source:
    # The sources of the columns of one batch.
    block: Block
    names: Names
    selection: Selection
    keep: Values | None
    rows: Rows

    def record(self, field: str) -> Values:
        dtype, offset = _field(RECORD, field)
        return self.rows.column("record", offset, dtype)

    @cached_property
    def no_update(self) -> Values | None:
        # Return by row whether its record is not an update; None if all are.
        if self.selection.table.kinds:
            return None
        kinds = self.record("kind")
        return _mask((kinds < Kind.BOOK) | (kinds >= Kind.BUS))


def kind_mask(table: Table) -> int:
    """Return a mask with a bit for each kind of a table's records."""
    if table.kinds:
        return sum(1 << Kind[name] for name in table.kinds)
    return (1 << 64) - 1


def session_word(session: int) -> str:
    """Return a session's value in the column `session`; the letter keeps it a text in Spark."""
    return f"s{session}"


def feed_of(feed: str, inputs: Sequence[str], session: int) -> str:
    """Return the feed of a record: the journal's, or in a composite's copy "feed/input".

    Only for records that a feed made; those of a bus itself belong to the journal's feed.
    """
    at = copied_input(session) if inputs else None
    return feed if at is None or at >= len(inputs) else f"{feed}/{inputs[at]}"


def record_batch(
    block: Block, names: Names, selection: Selection, keep: Values | None = None
) -> pa.RecordBatch:
    """Return the rows of a table in a block.

    Parameters
    ----------
    block : Block
        The records.
    names : Names
        Names for the ids in the records.
    selection : Selection
        The table and its columns.
    keep : numpy.ndarray, optional
        dtype bool, by record: False leaves the record out.
    """
    import pyarrow as pa

    table = selection.table
    source = _Source(
        block, names, selection, keep, block.select(kind_mask(table), table.rows, keep)
    )
    schema = arrow_schema(table.name, partitions=True)
    own = {column.name: column for column in table.columns}
    chosen = selection.columns or tuple(own)
    if source.rows.count == 0:
        return pa.RecordBatch.from_pylist([], pa.schema([schema.field(name) for name in chosen]))
    arrays = []
    for name in chosen:
        column = own.get(name, Column(name, "", name))
        array = _array(source, column, schema.field(name).type)
        if not selection.dictionaries and pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=list(chosen))


def latency_batches(
    rows: list[tuple[Any, ...]], feed: str, segment: int, inputs: Sequence[str] = ()
) -> dict[Partition, pa.RecordBatch]:
    """Return rows of the table `latency`, by partition.

    Parameters
    ----------
    rows : list of tuple
        The result of `HopCounts.take`.
    feed : str
        Name of the recorded instance.
    segment : int
        Number of their segment.
    inputs : sequence of str
        As for `Selection`.
    """
    import pyarrow as pa

    found: dict[Partition, list[dict[str, Any]]] = {}
    for partition, minute_ns, line, hop, above, slots, values, counts in rows:
        by_feed = copied_session(partition[2]) > 0
        found.setdefault(partition, []).append(
            {
                "feed": feed_of(feed, inputs if by_feed else (), partition[2]),
                "minute_ns": minute_ns,
                "minute": minute_ns // 1000,
                "segment": segment,
                "line": line,
                "hop": hop,
                "count": int(counts.sum()),
                "above": above,
                "slots": slots,
                "values_ns": values,
                "counts": counts,
            }
        )
    schema = arrow_schema("latency")
    return {
        partition: pa.RecordBatch.from_pylist(sorted(rows, key=_latency_order), schema)
        for partition, rows in found.items()
    }


def partition_columns(partition: Partition, rows: int) -> dict[str, pa.Array]:
    """Return the partition columns for `rows` rows of one partition."""
    import pyarrow as pa

    day, stream, session = partition
    return {
        "date": pa.repeat(pa.scalar(day, pa.int32()), rows).cast(pa.date32()),
        "stream": pa.repeat(pa.scalar(stream, pa.int32()), rows),
        "session": pa.repeat(session_word(session), rows),
    }


def _latency_order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["minute_ns"], row["line"], row["hop"]


def _array(source: _Source, column: Column, type_: pa.DataType) -> pa.Array:
    if column.source in _COMPUTED:
        return _COMPUTED[column.source](source, type_)
    part, _, field = column.source.partition(".")
    if part == "name":
        offset = 4 if field == "symbol_id" else 0
        return _words(source.rows.column("ids", offset, np.uint32), source.names.words())
    if part == "event":
        return _event(source, field, type_)
    dtype, offset = _field(_dtype_of(source.selection.table, part), field)
    base = cast(Base, part)
    if dtype.kind == "S":
        return _texts(*source.rows.texts(base, offset, dtype.itemsize))
    values = source.rows.column(base, offset, dtype)
    absent = source.no_update if part == "update" else None
    if column.words:
        return _words(values, _word_list(column.words), absent)
    return _numbers(values, type_, absent)


def _dtype_of(table: Table, part: str) -> np.dtype[Any]:
    if part == "record":
        return RECORD
    if part == "update":
        return _UPDATE
    return (ROW_DTYPES if part == "row" else _DTYPES)[Kind[table.kinds[0]]]


def _field(dtype: np.dtype[Any], field: str) -> tuple[np.dtype[Any], int]:
    assert dtype.fields is not None
    return dtype.fields[field][0], dtype.fields[field][1]


# --- values to arrays ---------------------------------------------------------------------------


def _numbers(values: Values, type_: pa.DataType, absent: Values | None = None) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(type_):
        return pa.array(np.floor_divide(values, 1000), pa.int64()).view(type_)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        absent = missing if absent is None else absent | missing
    elif values.dtype == np.uint64:
        values = values.view(np.int64)
    values = values.astype(type_.to_pandas_dtype(), copy=False)
    return pa.array(values, type_, mask=_mask(absent))


def _mask(absent: Values | None) -> Values | None:
    return absent if absent is not None and absent.any() else None


@cache
def _word_list(words: str) -> tuple[str | None, ...]:
    # Return the words by number. A number without a word (of a later schema) stays a number; the
    # publisher's 0 means undefined and becomes NULL.
    known = {**ENUMS.get(words, {}), **_OWN_WORDS.get(words, {}), 0: None}
    return tuple(known.get(number, str(number)) for number in range(256))


def _words(
    values: Values, words: Sequence[str | None], absent: Values | None = None
) -> pa.DictionaryArray:
    # Return the word of each number, NULL if it has none, as a dictionary of the words in use.
    import pyarrow as pa

    numbers = np.minimum(values.astype(np.intp), len(words))
    used = np.zeros(len(words) + 1, np.bool_)
    used[numbers] = True
    chosen = [each for each in used[:-1].nonzero()[0].tolist() if words[each] is not None]
    codes = np.full(len(words) + 1, -1, np.int32)
    codes[chosen] = np.arange(len(chosen), dtype=np.int32)
    indices = codes[numbers]
    unknown = indices < 0
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, mask=_mask(unknown if absent is None else absent | unknown)),
        pa.array([words[each] for each in chosen], pa.string()),
    )


def _constant(word: str, count: int) -> pa.DictionaryArray:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array([word], pa.string())
    )


def _texts(offsets: Values, text: Values) -> pa.Array:
    # An empty text becomes NULL. Invalid UTF-8, which readers of Parquet refuse, becomes U+FFFD.
    import pyarrow as pa

    if text.size and text.max() > 0x7F:
        raw, at = text.tobytes(), offsets.tolist()
        words = [raw[i:j].decode(errors="replace") for i, j in pairwise(at)]
        return pa.array([word or None for word in words], pa.string())
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    absent = offsets[1:] == offsets[:-1]
    if absent.any():
        buffers[0] = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


# --- computed columns ---------------------------------------------------------------------------


def _event(source: _Source, field: str, type_: pa.DataType) -> pa.Array:
    # A field that some kinds have, each at its own offset.
    import pyarrow as pa

    kinds = source.record("kind")
    found = np.full(len(kinds), None, object)
    for name in source.selection.table.kinds:
        kind = Kind[name]
        dtype = CONTROL_DTYPES[kind]
        if dtype.fields is None or field not in dtype.fields or not (kinds == kind).any():
            continue
        part = source.block.select(1 << kind, False, source.keep)
        own, offset = _field(dtype, field)
        values = part.column("payload", offset, own).astype(np.int64).tolist()
        words = CONTROL_WORDS.get((kind, field))
        if type_ == pa.bool_():
            values = [each != 0 for each in values]
        if words is not None:
            values = [words.get(each, str(each)) for each in values]
        found[kinds == kind] = values
    return pa.array(found.tolist(), type_)


def _payloads(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if not source.selection.payloads:
        return pa.nulls(source.rows.count, type_)
    return _bytes(source, type_)


def _bytes(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    offsets, data = source.rows.payloads()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), source.rows.count, buffers)


def _steps(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    offsets, steps = source.rows.nested(TICK_SIZE_STEP)
    fields = list(type_.value_type)
    items = pa.StructArray.from_arrays(
        [pa.array(np.ascontiguousarray(steps[field.name])) for field in fields], fields=fields
    )
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _date(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    days = np.floor_divide(source.record("published_ns"), 86_400_000_000_000)
    return pa.array(days.astype(np.int32)).view(type_)


def _feed(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    feed, inputs = source.selection.feed, source.selection.inputs
    if not inputs:
        return _constant(feed, source.rows.count)
    made = np.where(source.record("kind") < Kind.BUS, source.record("session"), 0)
    found, indices = np.unique(made, return_inverse=True)
    words = [feed_of(feed, inputs, each) for each in found.tolist()]
    return pa.array(words, pa.string()).take(pa.array(indices)).dictionary_encode()


def _session(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    found, indices = np.unique(source.record("session"), return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices.astype(np.int32)),
        pa.array([session_word(each) for each in found.tolist()], pa.string()),
    )


def _sent(source: _Source, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    flight_ns = source.record("flight_ns").astype(np.int64)
    unsaid = (np.abs(flight_ns) >= FLIGHT_MAX) | (source.record("kind") == Kind.BUS)
    return pa.array(source.record("received_ns") - flight_ns, type_, mask=unsaid)


def _back(source: _Source, type_: pa.DataType) -> pa.Array:
    dtype, offset = _field(_DTYPES[Kind.ORDER], "flags")
    return _numbers(source.rows.column("payload", offset, dtype) & 1 != 0, type_)


#: Functions of computed columns, by `Column.source`.
_COMPUTED: dict[str, Callable[[_Source, pa.DataType], pa.Array]] = {
    "feed": _feed,
    "snapshot": lambda source, type_: _numbers(source.rows.snapshots(), type_),
    "sent_ns": _sent,
    "size": lambda source, type_: _numbers(source.rows.sizes(), type_),
    "back": _back,
    "ordinal": lambda source, type_: _numbers(source.rows.ordinals, type_),
    "side": lambda source, type_: _words(source.rows.asks, ("Bid", "Ask")),
    "payload": _payloads,
    "bytes": _bytes,
    "sender": lambda source, type_: _numbers(source.record("object") & 0xFFFF, type_),
    "type": lambda source, type_: _numbers(source.record("object") >> 16, type_),
    "incarnation": lambda source, type_: _numbers(source.record("flight_ns"), type_),
    "steps": _steps,
    "doubt": lambda source, type_: _numbers(
        source.record("flags") & int(RecordFlag.DOUBT) != 0, type_
    ),
    "date": _date,
    "stream": lambda source, type_: _numbers(source.record("stream"), type_),
    "session": _session,
}
