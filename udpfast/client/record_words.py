"""A record as one line of text for people, or as plain values (JSON) for other programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from udpfast.core.layout import CONTROL_DTYPES, Kind, RecordFlag
from udpfast.core.moment import moment_text
from udpfast.market.updates import UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, UPDATE_WORDS

if TYPE_CHECKING:
    from udpfast.client.record import ReadRecord

__all__ = ["describe_record", "number_word", "record_line", "text_word"]

#: Most rows of each side, or of a list, that a line shows.
ROWS_SHOWN = 3

# Fields that are shown by name instead, or that are of no use to a person.
_LEFT_OUT = {
    *("reserved", "reserved2", "exchange_id", "symbol_id", "present", "row_count"),
    *("bid_count", "ask_count"),
}
# What the feed says of a whole stream: of which, is shown. The first two are Roq's channels, and of
# every framing those that CONNECTION is about.
_OF_STREAMS = (Kind.GAP, Kind.SESSION, Kind.CONNECTION, Kind.DISAGREEMENT)
_STREAMS = ("incremental", "snapshot")
_NO_STREAM = 0xFFFF
_SESSION_FIRST, _SCOPE_LINE = 1, 1
_HEADER = UPDATE_DTYPES[Kind.TRADES].names or ()  # fields that every update begins with


def describe_record(record: ReadRecord) -> dict[str, Any]:
    """Return a record's header, payload and rows as plain values.

    Enumerations are given as words, NaN and infinities as None, and the payload of a MESSAGE in
    hexadecimal digits. `unseen` of a SESSION is None where the feed cannot know it.
    """
    fields: dict[str, Any] = {
        "kind": record.kind.name,
        "index": record.index,
        "stream": record.stream,
        "session": record.session,
        "number": record.number,
        "object": record.object,
        "line": record.line,
        "received_ns": record.received_ns,
        "published_ns": record.published_ns,
        "sent_ns": record.sent_ns,
        "flags": [flag.name for flag in RecordFlag if flag in record.flags],
    }
    if record.kind is Kind.LAPPED:
        fields = {"kind": "LAPPED", "index": record.index}
    if record.exchange is not None or record.symbol is not None:
        fields |= {"exchange": record.exchange, "symbol": record.symbol}
    if record.kind is Kind.BUS:
        fields |= {"sender": record.sender, "incarnation": record.incarnation, "type": record.type}
    if record.kind in CONTROL_DTYPES:
        return fields | dict(_control_fields(record))
    if record.kind not in UPDATE_DTYPES:
        return fields | {"size": len(record.payload), "payload": record.payload.hex()}
    update = record.update
    fields |= {"exchange": record.exchange, "symbol": record.symbol}
    fields |= _plain_fields(update.header)
    if record.kind is Kind.BOOK:
        return fields | {"bids": _plain_rows(update.bids), "asks": _plain_rows(update.asks)}
    return fields | {"rows": _plain_rows(update.rows)} if _has_rows(record.kind) else fields


def record_line(record: ReadRecord) -> str:
    """Return a record as one line: kind, time, names, number, index, flags and content.

    The time is that of its receipt, in UTC; LAPPED has none.
    """
    words = [f"{record.kind.name:<13}"]
    words += [moment_text(record.received_ns)] if record.received_ns else []
    names = [name for name in (record.exchange, record.symbol) if name is not None]
    words += [" ".join(map(text_word, names))] if names else []
    if record.kind in _OF_STREAMS and record.stream != _NO_STREAM:
        few = record.stream < len(_STREAMS)
        words += [_STREAMS[record.stream] if few else f"stream={record.stream}"]
    if record.kind is not Kind.LAPPED:
        words += [f"number={record.number}"]
    words += [f"index={record.index}"]
    words += [flag.name.lower() for flag in RecordFlag if flag.name and flag in record.flags]
    content = record_content(record)
    if RecordFlag.SNAPSHOT in record.flags:  # the content of an update would repeat it
        content = content.removeprefix(f"{RecordFlag.SNAPSHOT.name.lower()} ")
    return " ".join([*words, content]).rstrip()


def record_content(record: ReadRecord) -> str:
    """Return a record's content as the end of a line: prices, quantities, rows, reasons."""
    if record.kind in CONTROL_DTYPES:
        # Epochs in hexadecimal digits, as `udpfast bus` prints them.
        return _pairs(
            (name, f"{value:#x}" if name == "epoch" else value)
            for name, value in _control_fields(record)
        )
    if record.kind is Kind.BUS:
        return f"sender={record.sender} type={record.type} {len(record.payload)} bytes"
    if record.kind not in UPDATE_DTYPES:
        return f"{len(record.payload)} bytes"
    update = record.update
    header = update.header
    if record.kind is Kind.TOP_OF_BOOK:
        return (
            f"bid={_level(header['bid_price'], header['bid_quantity'])} "
            f"ask={_level(header['ask_price'], header['ask_quantity'])}"
        )
    kind_of_update = UPDATE_WORDS["update_type"].get(int(header["update_type"]), "")
    said = [kind_of_update.lower()] if int(header["update_type"]) else []
    if record.kind is Kind.BOOK:
        said += [f"bids {_some(map(_row_level, update.bids), len(update.bids))}"]
        said += [f"asks {_some(map(_row_level, update.asks), len(update.asks))}"]
        return " ".join(said)
    said += [_pairs(_own_fields(header))]
    if _has_rows(record.kind):
        said += [_some(map(_row_words, update.rows), len(update.rows))]
    return " ".join(filter(None, said))


def number_word(value: float) -> str:
    """Return a price or a quantity in up to 12 significant digits; "-" for NaN."""
    return "-" if math.isnan(value) else f"{value + 0.0:.12g}"  # -0 is 0


def text_word(text: str) -> str:
    """Return a text of the feed that is safe in a line: what is not printable is escaped.

    A text that is empty or blank is quoted.
    """
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return shown if shown.strip() else f"'{shown}'"


def _has_rows(kind: Kind) -> bool:
    from udpfast.market.updates import ROW_DTYPES

    return kind in ROW_DTYPES


def _control_fields(record: ReadRecord) -> Iterator[tuple[str, Any]]:
    dtype = CONTROL_DTYPES[record.kind]
    if len(record.payload) < dtype.itemsize:
        return
    values = np.frombuffer(record.payload, dtype, count=1)[0]
    if record.kind is Kind.CONNECTION and values["scope"] == _SCOPE_LINE:
        yield "line", record.line
    for field in dtype.names or ():
        if field not in _LEFT_OUT:
            number = values[field].item()
            if isinstance(number, bytes):
                number = number.rstrip(b"\0").decode(errors="replace")
            if field == "unseen" and _is_unknown(values):
                number = None
            yield field, CONTROL_WORDS.get((record.kind, field), {}).get(number, number)


def _is_unknown(session: np.void) -> bool:
    # The first session of a process that came in its middle: what was sent before, nobody knows.
    first, unseen = int(session["first_number"]), int(session["unseen"])
    return session["reason"] == _SESSION_FIRST and first > 1 and not unseen


def _plain_fields(values: np.void) -> dict[str, Any]:
    names = values.dtype.names or ()
    return {name: _plain(name, values[name]) for name in names if name not in _LEFT_OUT}


def _plain_rows(rows: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    return [_plain_fields(row) for row in rows]


def _plain(name: str, value: Any) -> Any:
    plain = value.item()
    if isinstance(plain, bytes):
        return plain.rstrip(b"\0").decode(errors="replace")
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    words = UPDATE_WORDS.get(name)
    return plain if words is None else words.get(plain, plain)


def _own_fields(header: np.void) -> Iterator[tuple[str, Any]]:
    # Yield the fields that this kind adds to those of all updates, unless they are empty.
    for name, value in _plain_fields(header).items():
        if name not in _HEADER and value not in (None, "", 0, "Undefined"):
            yield name, value


def _level(price: float, quantity: float) -> str:
    return "none" if math.isnan(price) else f"{number_word(price)} x {number_word(quantity)}"


def _row_level(row: np.void) -> str:
    return _level(float(row["price"]), float(row["quantity"]))


def _row_words(row: np.void) -> str:
    plain = _plain_fields(row)
    said = []
    if "side" in plain:
        said.append(str(plain.pop("side")).lower())
    if "price" in plain:
        said.append(_level(float(row["price"]), float(row["quantity"])))
        del plain["price"], plain["quantity"]
    if {"type", "value"} <= plain.keys():
        said.append(f"{plain.pop('type')}={number_word(float(row['value']))}")
        del plain["value"]
    elif {"name", "value"} <= plain.keys():
        said.append(f"{text_word(plain.pop('name'))}={number_word(float(row['value']))}")
        del plain["value"]
    said += [
        f"{name}={_value_word(value)}"
        for name, value in plain.items()
        if value not in (None, "", 0)
    ]
    return " ".join(said)


def _some(rows: Iterable[str], count: int) -> str:
    shown = [row for row, _ in zip(rows, range(ROWS_SHOWN), strict=False)]
    more = [f"{count - len(shown)} more"] if count > len(shown) else []
    return ", ".join([*shown, *more]) or "none"


def _pairs(fields: Iterable[tuple[str, Any]]) -> str:
    return " ".join(f"{name}={_value_word(value)}" for name, value in fields)


def _value_word(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return number_word(value)
    return text_word(value) if isinstance(value, str) else str(value)
