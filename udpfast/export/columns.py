"""Arrow columns from records: the rows of one table in a block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from udpfast.archive.copied_sessions import copied_session
from udpfast.archive.recorded_feed import feed_of
from udpfast.core.layout import Kind
from udpfast.export.schema import Column, Table, arrow_schema
from udpfast.market.block import Block
from udpfast.market.columns import Lists, Selected, Texts, Words, column_values, session_word
from udpfast.market.names import NameTable
from udpfast.market.tables import PARTITIONS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Names",
    "Partition",
    "Selection",
    "latency_batches",
    "partition_columns",
    "record_batch",
]

Values: TypeAlias = NDArray[Any]

#: UNIX day, stream, session.
Partition: TypeAlias = tuple[int, int, int]


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


class Selection(Struct, frozen=True):
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
    kinds = tuple(Kind[name] for name in table.kinds)
    selected = Selected(block, kinds, table.rows, names.words(), keep)
    schema = arrow_schema(table.name, partitions=True)
    own = {column.name: column for column in (*table.columns, *PARTITIONS)}
    chosen = selection.columns or tuple(column.name for column in table.columns)
    if selected.rows.count == 0:
        return pa.RecordBatch.from_pylist([], pa.schema([schema.field(name) for name in chosen]))
    arrays = []
    for name in chosen:
        array = _array(selected, selection, own[name], schema.field(name).type)
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


def _array(
    selected: Selected, selection: Selection, column: Column, type_: pa.DataType
) -> pa.Array:
    import pyarrow as pa

    if column.source == "feed":
        return _feed(selected, selection)
    if column.source == "payload" and not selection.payloads:
        return pa.nulls(selected.rows.count, type_)
    values = column_values(selected, column)
    if isinstance(values, Words):
        return _words(values)
    if isinstance(values, Lists):
        return _lists(values, type_)
    if isinstance(values, Texts):
        return _texts(values) if column.type == "string" else _bytes(values)
    plain = pa.from_numpy_dtype(values.values.dtype)
    return pa.array(values.values, plain, mask=values.absent).view(type_)


def _words(values: Words) -> pa.DictionaryArray:
    # Return the word of each number, NULL if it has none, as a dictionary of the words in use.
    import pyarrow as pa

    words = values.words
    numbers = np.minimum(values.numbers.astype(np.intp), len(words))
    used = np.zeros(len(words) + 1, np.bool_)
    used[numbers] = True
    chosen = [each for each in used[:-1].nonzero()[0].tolist() if words[each] is not None]
    codes = np.full(len(words) + 1, -1, np.int32)
    codes[chosen] = np.arange(len(chosen), dtype=np.int32)
    indices = codes[numbers]
    unknown = indices < 0
    absent = unknown if values.absent is None else values.absent | unknown
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, mask=absent if absent.any() else None),
        pa.array([words[each] for each in chosen], pa.string()),
    )


def _texts(values: Texts) -> pa.Array:
    # An empty text becomes NULL. Invalid UTF-8, which readers of Parquet refuse, becomes U+FFFD.
    import pyarrow as pa

    offsets, text = values
    if text.size and text.max() > 0x7F:
        raw, at = text.tobytes(), offsets.tolist()
        words = [raw[i:j].decode(errors="replace") for i, j in pairwise(at)]
        return pa.array([word or None for word in words], pa.string())
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    absent = offsets[1:] == offsets[:-1]
    if absent.any():
        buffers[0] = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _bytes(values: Texts) -> pa.Array:
    import pyarrow as pa

    buffers = [None, pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
    return pa.Array.from_buffers(pa.binary(), len(values.offsets) - 1, buffers)


def _lists(values: Lists, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    fields = list(type_.value_type)
    items = pa.StructArray.from_arrays(
        [pa.array(np.ascontiguousarray(values.rows[field.name])) for field in fields],
        fields=fields,
    )
    return pa.ListArray.from_arrays(pa.array(values.offsets), items)


def _feed(selected: Selected, selection: Selection) -> pa.Array:
    import pyarrow as pa

    feed, inputs = selection.feed, selection.inputs
    if not inputs:
        return pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(selected.rows.count, np.int32)), pa.array([feed], pa.string())
        )
    made = np.where(selected.record("kind") < Kind.BUS, selected.record("session"), 0)
    found, indices = np.unique(made, return_inverse=True)
    words = [feed_of(feed, inputs, each) for each in found.tolist()]
    return pa.array(words, pa.string()).take(pa.array(indices)).dictionary_encode()
