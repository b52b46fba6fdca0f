"""Layouts of versions that never were: an older and a newer one."""

from typing import Any

import numpy as np

from udpfast.core.layout import RECORD, Kind
from udpfast.core.layouts import Layouts
from udpfast.market.updates import LAYOUTS

Dtype = np.dtype[Any]


def changed(
    dtype: Dtype,
    drop: tuple[str, ...] = (),
    add: tuple[tuple[str, str], ...] = (),
    types: dict[str, str] | None = None,
) -> Dtype:
    """Return a struct with fields left out, added in front, and of other types."""
    fields: Any = dtype.fields or {}
    kept = [
        (name, (types or {}).get(name, fields[name][0].str)) for name in fields if name not in drop
    ]
    made = np.dtype([*add, *kept])
    padding = -made.itemsize % 8
    return np.dtype([*add, *kept, *([("reserved9", f"V{padding}")] if padding else [])])


def header(size: int, **types: tuple[str, int] | None) -> Dtype:
    """Return the record header with fields of other types and places; None leaves one out."""
    own: Any = RECORD.fields or {}
    fields = {name: (own[name][0].str, own[name][1]) for name in own} | types
    known = {name: field for name, field in fields.items() if field is not None}
    return np.dtype(
        {
            "names": list(known),
            "formats": [format_ for format_, _ in known.values()],
            "offsets": [offset for _, offset in known.values()],
            "itemsize": size,
        }
    )


def layouts_with(header_: Dtype, payloads: dict[Kind, Dtype], rows: dict[Kind, Dtype]) -> Layouts:
    """Return this version's layouts with others for some kinds."""
    return Layouts(
        header_,
        {**LAYOUTS.payloads, **{int(kind): each for kind, each in payloads.items()}},
        {**LAYOUTS.rows, **{int(kind): each for kind, each in rows.items()}},
    )


def of(kind: Kind) -> Dtype:
    """Return what this version's payload of a kind begins with."""
    return LAYOUTS.payloads[int(kind)]


def row_of(kind: Kind) -> Dtype:
    """Return this version's row of a kind."""
    return LAYOUTS.rows[int(kind)]


#: Numbers were narrower, a header knew no flight, books no implied quantity, gaps no reason; some
#: had what is gone since.
OLDER = layouts_with(
    header(
        64,
        number=("<u4", 40),
        former=("<u4", 44),
        flight_ns=None,
        stream=("u1", 57),
        session=("u1", 56),
    ),
    {
        Kind.GAP: changed(of(Kind.GAP), drop=("reason",), types={"first": "<u4", "count": "<u2"}),
        Kind.BOOK: changed(of(Kind.BOOK), add=(("former", "<u4"),), types={"bid_count": "<u2"}),
        Kind.TOP_OF_BOOK: changed(of(Kind.TOP_OF_BOOK), drop=("ask_quantity", "stream_id")),
    },
    {
        Kind.BOOK: changed(row_of(Kind.BOOK), drop=("implied_quantity",)),
        Kind.TRADES: changed(row_of(Kind.TRADES), types={"trade_id": "S24"}, add=(("old", "S3"),)),
    },
)

#: Everything is wider, and there is more of it.
NEWER = layouts_with(
    header(72, number=("<u8", 40), venue=("<u8", 64)),
    {
        Kind.GAP: changed(of(Kind.GAP), add=(("until_ns", "<i8"),), types={"reason": "<u8"}),
        Kind.BOOK: changed(of(Kind.BOOK), add=(("checksum", "<u8"),), types={"bid_count": "<u8"}),
        Kind.STATISTICS: changed(of(Kind.STATISTICS), add=(("note", "S40"),)),
    },
    {
        Kind.BOOK: changed(row_of(Kind.BOOK), add=(("order_count", "<u8"),)),
        Kind.TRADES: changed(row_of(Kind.TRADES), types={"trade_id": "S64"}),
    },
)
