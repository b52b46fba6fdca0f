"""Events as dictionaries with the schema's names: for people, `tail --json` and conformance.

Numbers stay numbers, and enums their numbers. NaN and infinities become the strings `"nan"`,
`"inf"`, `"-inf"`, so that the result is JSON. An absent string, list or table is None. This way is
slow and takes all messages of the schema; `decode` is fast and takes eleven of them.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np

from udpfast.core.layout import Kind
from udpfast.errors import FormatError, RangeError
from udpfast.market.names import NameTable
from udpfast.market.updates import UPDATE_DTYPES, view_update
from udpfast.payload.roq.flatbuffer import verify
from udpfast.payload.roq.schema import ENUMS, MESSAGES, TABLES, Field

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MESSAGE_NAMES", "encode_event", "event_to_dict", "update_to_dict"]

#: The schema's name of each decoded kind's message.
MESSAGE_NAMES = {
    Kind.BOOK: "MarketByPriceUpdate",
    Kind.ORDERS: "MarketByOrderUpdate",
    Kind.TOP_OF_BOOK: "TopOfBook",
    Kind.TRADES: "TradeSummary",
    Kind.STATISTICS: "StatisticsUpdate",
    Kind.REFERENCE_DATA: "ReferenceData",
    Kind.MARKET_STATUS: "MarketStatus",
    Kind.GATEWAY_STATUS: "GatewayStatus",
    Kind.GATEWAY_SETTINGS: "GatewaySettings",
    Kind.EXTERNAL_LATENCY: "ExternalLatency",
    Kind.CUSTOM_METRICS: "CustomMetricsUpdate",
}
_FORMATS = {
    "bool": "<?",
    "uint8": "<B",
    "uint16": "<H",
    "int32": "<i",
    "uint32": "<I",
    "int64": "<q",
    "uint64": "<Q",
    "float64": "<d",
}
_PRESENT_SOURCE_INFO, _PRESENT_ROWS, _PRESENT_ASKS, _PRESENT_LAYER, _PRESENT_TEXT = 1, 2, 4, 8, 256


def _format(type_: str) -> str:
    """Return the struct format of a scalar or enum type."""
    if type_ in ENUMS:
        return "<I" if type_ in ("Encoding", "Priority") else "<B"
    return _FORMATS[type_]


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


# --- from a payload -----------------------------------------------------------------------------


def event_to_dict(payload: Buffer) -> dict[str, Any]:
    """Return any event payload as a dictionary.

    Parameters
    ----------
    payload : bytes-like
        As published; it is verified first.

    Returns
    -------
    dict
        `source_info` (None if absent), `value_type`, `value_name`, `value`. A type beyond the
        schema has `value_name` and `value` None; an event without a value has type 0.

    Raises
    ------
    FormatError
        The verifier refused the payload.
    """
    code, _ = verify(payload)
    data = bytes(payload)
    event = _Reader(data).table(_uint32(data, 0), "Event") if code < len(MESSAGES) else {}
    if code >= len(MESSAGES) or code == 0:
        return {
            "source_info": event.get("source_info"),
            "value_type": code,
            "value_name": None if code else "NONE",
            "value": None,
        }
    return {
        "source_info": event["source_info"],
        "value_type": code,
        "value_name": MESSAGES[code],
        "value": event["value"],
    }


def _uint32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


class _Reader:
    """Reads a verified buffer; positions are offsets in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def table(self, at: int, name: str) -> dict[str, Any]:
        """Return the table at a position."""
        vtable = at - struct.unpack_from("<i", self.data, at)[0]
        size = struct.unpack_from("<H", self.data, vtable)[0]
        result: dict[str, Any] = {}
        for field in TABLES[name]:
            slot = 4 + 2 * field.id
            offset = struct.unpack_from("<H", self.data, vtable + slot)[0] if slot < size else 0
            if field.type == "Message":
                type_at = struct.unpack_from("<H", self.data, vtable + slot - 2)[0]
                result[field.name] = (
                    self.table(self.follow(at + offset), MESSAGES[self.data[at + type_at]])
                    if offset and type_at
                    else None
                )
            else:
                result[field.name] = self.value(at + offset if offset else None, field)
        return result

    def value(self, at: int | None, field: Field) -> Any:
        """Return the field at a position, or its default if `at` is None."""
        if field.type == "string" or field.type in TABLES or field.type.startswith("["):
            return None if at is None else self.reference(self.follow(at), field.type)
        if at is not None:
            return _plain(struct.unpack_from(_format(field.type), self.data, at)[0])
        if field.default is not None:
            return _plain(field.default)
        return {"float64": 0.0, "bool": False}.get(field.type, 0)

    def reference(self, at: int, type_: str) -> Any:
        """Return the string, table or vector at a position."""
        if type_ in TABLES:
            return self.table(at, type_)
        count = _uint32(self.data, at)
        if type_ == "string":
            return self.data[at + 4 : at + 4 + count].decode("utf-8", "replace")
        element = type_.strip("[]")
        if element == "string" or element in TABLES:
            return [self.reference(self.follow(at + 4 + 4 * i), element) for i in range(count)]
        values = struct.iter_unpack(
            _format(element), self.data[at + 4 : at + 4 + count * struct.calcsize(_format(element))]
        )
        return [_plain(value) for (value,) in values]

    def follow(self, at: int) -> int:
        """Return the position to which the reference at a position leads."""
        return at + _uint32(self.data, at)


# --- from an update -----------------------------------------------------------------------------


def update_to_dict(kind: int, payload: Buffer, names: NameTable) -> dict[str, Any]:
    """Return the payload of a decoded record in the same form as `event_to_dict`.

    Parameters
    ----------
    kind : Kind
        The record's kind, one of `UPDATE_DTYPES`.
    payload : bytes-like
        The record's payload.
    names : NameTable
        The table that its ids refer to.

    Raises
    ------
    FormatError
        The payload is shorter than its counts say, or no event of the schema carries the kind.
    """
    update = view_update(kind, payload)
    message = MESSAGE_NAMES.get(update.kind)
    if message is None:
        raise FormatError(f"no event of the schema carries {update.kind.name}")
    header = update.header
    present = int(header["present"])
    source = {field.name: int(header[f"source_{field.name}"]) for field in TABLES["SourceInfo"]}
    texts = _texts(UPDATE_DTYPES[update.kind])
    value: dict[str, Any] = {}
    for field in TABLES[message]:
        if field.name in ("exchange", "symbol"):
            value[field.name] = names[int(header[f"{field.name}_id"])]
        elif field.type == "string":
            there = present & _PRESENT_TEXT << texts.index(field.name)
            value[field.name] = _text(header[field.name]) if there else None
        elif field.name == "layer":
            value["layer"] = _columns(header, "Layer") if present & _PRESENT_LAYER else None
        elif field.name == "asks":
            value["asks"] = _rows(update.asks, field) if present & _PRESENT_ASKS else None
        elif field.type.startswith("["):
            rows = update.bids if field.name == "bids" else update.rows
            value[field.name] = _rows(rows, field) if present & _PRESENT_ROWS else None
        else:
            value[field.name] = _column(header, field)
    return {
        "source_info": source if present & _PRESENT_SOURCE_INFO else None,
        "value_type": MESSAGES.index(message),
        "value_name": message,
        "value": value,
    }


def _texts(dtype: np.dtype[Any]) -> list[str]:
    """Return the text fields in the order of the struct, which is that of their bits."""
    return [name for name in dtype.names or () if dtype[name].kind == "S"]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _column(row: np.void, field: Field) -> Any:
    value = row[field.name].item()
    return bool(value) if field.type == "bool" else _plain(value)


def _columns(row: np.void, table: str) -> dict[str, Any]:
    """Return a row as a dictionary in the order of the schema."""
    texts = _texts(row.dtype)
    result: dict[str, Any] = {}
    for field in TABLES[table]:
        if field.type == "string":
            there = int(row["present"]) >> texts.index(field.name) & 1
            result[field.name] = _text(row[field.name]) if there else None
        else:
            result[field.name] = _column(row, field)
    return result


def _rows(rows: np.ndarray[Any, Any], field: Field) -> list[dict[str, Any]]:
    return [_columns(row, field.type.strip("[]")) for row in rows]


# --- to a payload -------------------------------------------------------------------------------


def encode_event(event: dict[str, Any]) -> bytes:
    """Encode an event of any type, by the official runtime.

    Parameters
    ----------
    event : dict
        As `event_to_dict` returns it: `source_info` (may be None or missing), `value_name`,
        `value`. Missing fields take their defaults, and are left out of the payload.

    Raises
    ------
    ValueError
        `value_name` is no message of the schema, or a field is unknown.
    RangeError
        A number does not fit its field.
    """
    name = event["value_name"]
    if name not in MESSAGES[1:]:
        raise ValueError(f"value_name must be a message of the schema, was {name!r}")
    builder = flatbuffers.Builder(1024)
    value = _build_table(builder, name, event["value"])
    source = event.get("source_info")
    source_at = None if source is None else _build_table(builder, "SourceInfo", source)
    builder.StartObject(3)
    builder.PrependUint8Slot(1, MESSAGES.index(name), 0)
    builder.PrependUOffsetTRelativeSlot(2, value, 0)
    if source_at is not None:
        builder.PrependUOffsetTRelativeSlot(0, source_at, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _build_table(builder: flatbuffers.Builder, table: str, values: dict[str, Any]) -> int:
    """Build all that the table refers to, then the table. Return its offset."""
    fields = TABLES[table]
    unknown = values.keys() - {field.name for field in fields}
    if unknown:
        raise ValueError(f"{table} has no field {sorted(unknown)[0]!r}")
    given = [(field, values[field.name]) for field in fields if values.get(field.name) is not None]
    built = {
        field.id: _build_reference(builder, field.type, value)
        for field, value in given
        if field.type == "string" or field.type in TABLES or field.type.startswith("[")
    }
    builder.StartObject(max((field.id for field in fields), default=-1) + 1)
    for field, value in given:
        if field.id in built:
            builder.PrependUOffsetTRelativeSlot(field.id, built[field.id], 0)
            continue
        format_ = _format(field.type)
        number = float(value) if field.type == "float64" else value
        _check_fits(f"{table}.{field.name}", field.type, number)
        default = field.default if field.default is not None else 0
        _PREPEND[format_](builder, field.id, number, default)
    return int(builder.EndObject())


def _check_fits(name: str, type_: str, number: Any) -> None:
    if type_ in ("bool", "float64"):
        return
    bits = np.iinfo(np.dtype(_format(type_)))
    if not bits.min <= number <= bits.max:
        raise RangeError(f"{name} must be {bits.min} to {bits.max}, was {number}")


_PREPEND = {
    "<?": flatbuffers.Builder.PrependBoolSlot,
    "<B": flatbuffers.Builder.PrependUint8Slot,
    "<H": flatbuffers.Builder.PrependUint16Slot,
    "<i": flatbuffers.Builder.PrependInt32Slot,
    "<I": flatbuffers.Builder.PrependUint32Slot,
    "<q": flatbuffers.Builder.PrependInt64Slot,
    "<Q": flatbuffers.Builder.PrependUint64Slot,
    "<d": flatbuffers.Builder.PrependFloat64Slot,
}


def _build_reference(builder: flatbuffers.Builder, type_: str, value: Any) -> int:
    """Build a string, table or vector. Return its offset."""
    if type_ == "string":
        return int(builder.CreateString(value))
    if type_ in TABLES:
        return _build_table(builder, type_, value)
    element = type_.strip("[]")
    if element == "string" or element in TABLES:
        offsets = [_build_reference(builder, element, item) for item in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    for item in value:
        _check_fits(f"an element of {type_}", element, item)
    numbers = np.array(
        [float(item) if element == "float64" else item for item in value],
        np.dtype(_format(element)),
    )
    return int(builder.CreateNumpyVector(numbers))
