"""The values of a table's columns, from the records of a block, as numpy arrays.

`client.arrow` and `export.columns` make Arrow arrays of them, each in its own way: one without any
Arrow library, the other with pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from udpfast.core.layout import CONTROL_DTYPES, RECORD, GapReason, Kind, RecordFlag
from udpfast.market.block import Block
from udpfast.market.tables import Column
from udpfast.market.updates import ROW_DTYPES, TICK_SIZE_STEP, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, ENUMS

__all__ = [
    "Lists",
    "Numbers",
    "Selected",
    "Texts",
    "Values",
    "Words",
    "column_values",
    "kind_mask",
    "session_word",
]

_DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}
_UPDATE = UPDATE_DTYPES[Kind.TOP_OF_BOOK]  # all updates begin with the same fields

#: Words of udpfast's own enumerations; those of the publisher are in payload.roq.schema.
_OWN_WORDS: dict[str, dict[int, str]] = {
    each.__name__: {member.value: member.name for member in each} for each in (Kind, GapReason)
}
#: Types of columns of numbers.
_TYPES: dict[str, type[np.generic]] = {
    "boolean": np.bool_,
    "int": np.int32,
    "long": np.int64,
    "double": np.float64,
    "timestamp": np.int64,
    "date": np.int32,
}
#: Absolute value of `flight_ns` at which the time is unknown or was too long.
FLIGHT_MAX = 2**31 - 1
DAY_NS = 86_400_000_000_000

Mask: TypeAlias = NDArray[np.bool_]
Base: TypeAlias = Literal["record", "payload", "row", "update", "ids"]


class Numbers(NamedTuple):
    """Numbers of the column's type; a timestamp in microseconds, a date in days.

    Attributes
    ----------
    values : numpy.ndarray
        One number per row.
    absent : numpy.ndarray or None
        dtype bool: rows without a value; None: all have one.
    """

    values: NDArray[Any]
    absent: Mask | None = None


class Words(NamedTuple):
    """Words by number.

    Attributes
    ----------
    numbers : numpy.ndarray
        One number per row: an index of `words`. One beyond them has no word.
    words : sequence of (str or None)
        The words; None: there is none.
    absent : numpy.ndarray or None
        As in `Numbers`.
    known : tuple of int
        The numbers of an enumeration, whatever rows there are; empty: of names.
    """

    numbers: NDArray[Any]
    words: Sequence[str | None]
    absent: Mask | None = None
    known: tuple[int, ...] = ()


class Texts(NamedTuple):
    """Texts or bytes one behind the other; an empty text has no value.

    Attributes
    ----------
    offsets : numpy.ndarray
        Where each begins: shape (rows + 1,), dtype int32.
    data : numpy.ndarray
        All of them: dtype uint8. A text may be invalid as UTF-8.
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]


class Lists(NamedTuple):
    """The rows of each payload.

    Attributes
    ----------
    offsets : numpy.ndarray
        Where those of each record begin: shape (rows + 1,), dtype int32.
    rows : numpy.ndarray
        All of them, a structured array.
    """

    offsets: NDArray[np.int32]
    rows: NDArray[Any]


Values: TypeAlias = Numbers | Words | Texts | Lists


class Selected:
    """The records of one table in a block, from which its columns are made.

    Parameters
    ----------
    block : Block
        The records.
    kinds : tuple of Kind
        Kinds of the table's records; empty: all.
    rows : bool
        True: one row per row of a payload; False: one row per record.
    names : sequence of (str or None)
        Names by id.
    keep : numpy.ndarray, optional
        dtype bool, by record: False leaves the record out.

    Attributes
    ----------
    block, kinds, names, keep
        As above.
    rows : Rows
        The rows.

    Raises
    ------
    FormatError
        A payload is too short for its kind or its number of rows.
    """

    def __init__(
        self,
        block: Block,
        kinds: tuple[Kind, ...],
        rows: bool,
        names: Sequence[str | None],
        keep: Mask | None = None,
    ) -> None:
        self.block = block
        self.kinds = kinds
        self.names = names
        self.keep = keep
        self.rows = block.select(kind_mask(kinds), rows, keep)

    def record(self, field: str) -> NDArray[Any]:
        """Return a field of each row's record header."""
        dtype, offset = _field(RECORD, field)
        return self.rows.column("record", offset, dtype)

    @cached_property
    def no_update(self) -> Mask | None:
        """By row whether its record is not an update; None if all are."""
        if self.kinds:
            return None
        kinds = self.record("kind")
        return _mask((kinds < Kind.BOOK) | (kinds >= Kind.BUS))


def kind_mask(kinds: Sequence[Kind]) -> int:
    """Return a mask with a bit for each kind; all bits for no kind."""
    return sum(1 << kind for kind in kinds) if kinds else (1 << 64) - 1


def session_word(session: int) -> str:
    """Return a session's value in the column `session`; the letter keeps it a text in Spark."""
    return f"s{session}"


def column_values(selected: Selected, column: Column) -> Values:
    """Return the values of a column, except `feed`, which the records do not have."""
    if column.source in _COMPUTED:
        return _COMPUTED[column.source](selected, column)
    part, _, field = column.source.partition(".")
    rows = selected.rows
    if part == "name":
        offset = 4 if field == "symbol_id" else 0
        return Words(rows.column("ids", offset, np.uint32), selected.names)
    if part == "event":
        return _event(selected, field, column)
    dtype, offset = _field(_dtype_of(selected, part), field)
    base = cast(Base, part)
    if dtype.kind == "S":
        return Texts(*rows.texts(base, offset, dtype.itemsize))
    values = rows.column(base, offset, dtype)
    absent = selected.no_update if part == "update" else None
    if column.words:
        return Words(values, _word_list(column.words), absent, _known(column.words))
    return _numbers(values, column, absent)


def _dtype_of(selected: Selected, part: str) -> np.dtype[Any]:
    if part == "record":
        return RECORD
    if part == "update":
        return _UPDATE
    return (ROW_DTYPES if part == "row" else _DTYPES)[selected.kinds[0]]


def _field(dtype: np.dtype[Any], field: str) -> tuple[np.dtype[Any], int]:
    assert dtype.fields is not None
    return dtype.fields[field][0], dtype.fields[field][1]


def _numbers(values: NDArray[Any], column: Column, absent: Mask | None = None) -> Numbers:
    if column.type == "timestamp":
        values = np.floor_divide(values, 1000)
    elif values.dtype.kind == "f":
        missing = np.isnan(values)
        absent = missing if absent is None else absent | missing
    elif values.dtype == np.uint64:
        values = values.view(np.int64)
    return Numbers(values.astype(_TYPES[column.type], copy=False), _mask(absent))


def _mask(absent: Mask | None) -> Mask | None:
    return absent if absent is not None and absent.any() else None


@cache
def _known(words: str) -> tuple[int, ...]:
    if words == "Kind":
        return ()  # as of names: most kinds are in no batch
    numbers = {**ENUMS.get(words, {}), **_OWN_WORDS.get(words, {})}
    return tuple(number for number in sorted(numbers) if number)


@cache
def _word_list(words: str) -> tuple[str | None, ...]:
    # Return the words by number. A number without a word (of a later schema) stays a number; the
    # publisher's 0 means undefined and becomes NULL.
    known = {**ENUMS.get(words, {}), **_OWN_WORDS.get(words, {}), 0: None}
    return tuple(known.get(number, str(number)) for number in range(256))


# --- computed columns ---------------------------------------------------------------------------


def _event(selected: Selected, field: str, column: Column) -> Values:
    # A field that some kinds have, each at its own offset, and with its own words.
    kinds = selected.record("kind")
    values = np.zeros(len(kinds), np.int64)
    absent = np.ones(len(kinds), np.bool_)
    places: dict[str, int] = {}
    for kind in selected.kinds:
        dtype = CONTROL_DTYPES[kind]
        own = kinds == kind
        if dtype.fields is None or field not in dtype.fields:
            continue
        words = CONTROL_WORDS.get((kind, field))
        if words is not None and len(selected.kinds) == 1:
            places = {word: place for place, word in enumerate(words.values())}
        if not own.any():
            continue
        type_, offset = _field(dtype, field)
        part = selected.block.select(1 << kind, False, selected.keep)
        found = part.column("payload", offset, type_).astype(np.int64)
        if words is not None:
            numbers, inverse = np.unique(found, return_inverse=True)
            said = [words.get(each, str(each)) for each in numbers.tolist()]
            found = np.array([places.setdefault(word, len(places)) for word in said])[inverse]
        values[own] = found
        absent[own] = False
    if column.type == "string":
        known = tuple(range(len(places))) if len(selected.kinds) == 1 else ()
        return Words(values, list(places), _mask(absent), known)
    return Numbers(values.astype(_TYPES[column.type], copy=False), _mask(absent))


def _session(selected: Selected, _: Column) -> Words:
    found, numbers = np.unique(selected.record("session"), return_inverse=True)
    return Words(numbers, [session_word(each) for each in found.tolist()])


def _sent(selected: Selected, _: Column) -> Numbers:
    flight_ns = selected.record("flight_ns").astype(np.int64)
    unsaid = (np.abs(flight_ns) >= FLIGHT_MAX) | (selected.record("kind") == Kind.BUS)
    return Numbers(selected.record("received_ns") - flight_ns, _mask(unsaid))


def _back(selected: Selected, column: Column) -> Numbers:
    dtype, offset = _field(_DTYPES[Kind.ORDER], "flags")
    return _numbers(selected.rows.column("payload", offset, dtype) & 1 != 0, column)


def _date(selected: Selected, column: Column) -> Numbers:
    return _numbers(np.floor_divide(selected.record("published_ns"), DAY_NS), column)


#: Functions of computed columns, by `Column.source`.
_COMPUTED: dict[str, Callable[[Selected, Column], Values]] = {
    "snapshot": lambda selected, _: Numbers(selected.rows.snapshots()),
    "sent_ns": _sent,
    "size": lambda selected, _: Numbers(selected.rows.sizes()),
    "back": _back,
    "ordinal": lambda selected, _: Numbers(selected.rows.ordinals),
    "side": lambda selected, _: Words(selected.rows.asks, ("Bid", "Ask"), None, (0, 1)),
    "payload": lambda selected, _: Texts(*selected.rows.payloads()),
    "bytes": lambda selected, _: Texts(*selected.rows.payloads()),
    "sender": lambda selected, column: _numbers(selected.record("object") & 0xFFFF, column),
    "type": lambda selected, column: _numbers(selected.record("object") >> 16, column),
    "incarnation": lambda selected, column: _numbers(selected.record("flight_ns"), column),
    "steps": lambda selected, _: Lists(*selected.rows.nested(TICK_SIZE_STEP)),
    "doubt": lambda selected, column: _numbers(
        selected.record("flags") & int(RecordFlag.DOUBT) != 0, column
    ),
    "date": _date,
    "stream": lambda selected, column: _numbers(selected.record("stream"), column),
    "session": _session,
}
