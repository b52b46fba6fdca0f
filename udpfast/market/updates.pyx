"""Decoded payloads for numpy: the dtypes of `updates.pxd`, and views without copies.

Every dtype is read from its C struct at import, so that they always agree. The structs in
`updates.pxd` say what the fields mean, and in which unit.
"""

import re
from typing import NamedTuple

import numpy as np

from udpfast.core.layout import CONTROL_DTYPES, RECORD, Kind, layout_hash
from udpfast.core.layouts import Layouts
from udpfast.errors import FormatError

# Down to the dtypes: written by scripts/generate_layouts.py.

cdef union Layout:  # one of each struct: only their formats are wanted, not values
    Level level
    Order order
    Trade trade
    Statistic statistic
    Measurement measurement
    Book book
    Orders orders
    TopOfBook top_of_book
    Trades trades
    Statistics statistics
    ReferenceData reference_data
    MarketStatus market_status
    GatewayStatus gateway_status
    GatewaySettings gateway_settings
    ExternalLatency external_latency
    CustomMetrics custom_metrics


def _formats():
    """Return the PEP 3118 formats of all structs, by constant name."""
    cdef Layout layout
    # One typed view: casts alone leave out what Cython's shared code declares.
    cdef Level[::1] views = <Level[:1]> &layout.level
    return {
        "LEVEL": memoryview(views),
        "ORDER": memoryview(
            <Order[:1]> &layout.order),
        "TRADE": memoryview(
            <Trade[:1]> &layout.trade),
        "STATISTIC": memoryview(
            <Statistic[:1]> &layout.statistic),
        "MEASUREMENT": memoryview(
            <Measurement[:1]> &layout.measurement),
        "BOOK": memoryview(
            <Book[:1]> &layout.book),
        "ORDERS": memoryview(
            <Orders[:1]> &layout.orders),
        "TOP_OF_BOOK": memoryview(
            <TopOfBook[:1]> &layout.top_of_book),
        "TRADES": memoryview(
            <Trades[:1]> &layout.trades),
        "STATISTICS": memoryview(
            <Statistics[:1]> &layout.statistics),
        "REFERENCE_DATA": memoryview(
            <ReferenceData[:1]> &layout.reference_data),
        "MARKET_STATUS": memoryview(
            <MarketStatus[:1]> &layout.market_status),
        "GATEWAY_STATUS": memoryview(
            <GatewayStatus[:1]> &layout.gateway_status),
        "GATEWAY_SETTINGS": memoryview(
            <GatewaySettings[:1]> &layout.gateway_settings),
        "EXTERNAL_LATENCY": memoryview(
            <ExternalLatency[:1]> &layout.external_latency),
        "CUSTOM_METRICS": memoryview(
            <CustomMetrics[:1]> &layout.custom_metrics),
    }


#: Structs of two doubles, for Cython complex numbers: name, size, fields.
_PAIRS = (
    ("TICK_SIZE_STEP", sizeof(TickSizeStep), ("min_price", "tick_size")),
)
#: Constant names of each kind, and of its rows.
_KINDS = {
    16: ("BOOK", "LEVEL"),
    17: ("ORDERS", "ORDER"),
    18: ("TOP_OF_BOOK", ""),
    19: ("TRADES", "TRADE"),
    20: ("STATISTICS", "STATISTIC"),
    21: ("REFERENCE_DATA", "TICK_SIZE_STEP"),
    22: ("MARKET_STATUS", ""),
    23: ("GATEWAY_STATUS", ""),
    24: ("GATEWAY_SETTINGS", ""),
    25: ("EXTERNAL_LATENCY", ""),
    26: ("CUSTOM_METRICS", "MEASUREMENT"),
}

# One item of a struct's format: a bracket of the header, or `I:name:` or `(36)c:name:`.
_ITEM = re.compile(r"T\{|\}(?::\w+:)?|(?:\((\d+)\))?([A-Za-z])\:(\w+):")
_TYPES = {"Q": "<u8", "q": "<i8", "I": "<u4", "i": "<i4", "H": "<u2", "B": "u1", "d": "<f8"}


def _dtype(memoryview view) -> np.dtype:
    """Return the dtype of a packed struct, in which the header's fields are among its own."""
    fields = []
    for width, code, name in _ITEM.findall(view.format.replace("^", "")):
        if name and width:
            fields.append((name, f"{'S' if code == 'c' else 'V'}{width}"))
        elif name:
            fields.append((name, _TYPES[code]))
    dtype = np.dtype(fields)
    if dtype.itemsize != view.itemsize or dtype.itemsize % 8:
        raise ImportError(f"struct of {view.itemsize} bytes, dtype of {dtype.itemsize}: {fields}")
    for name, (type_, offset) in dtype.fields.items():
        if type_.kind in "uif" and offset % type_.itemsize:
            raise ImportError(f"field {name} lies at {offset}, not on a multiple of its size")
    return dtype


def _pair(size, names):
    dtype = np.dtype([(name, "<f8") for name in names])
    if dtype.itemsize != size:
        raise ImportError(f"struct of {size} bytes, dtype of {dtype.itemsize}: {names}")
    return dtype


_DTYPES = {name: _dtype(view) for name, view in _formats().items()}
_DTYPES |= {name: _pair(size, names) for name, size, names in _PAIRS}
globals().update(_DTYPES)

__all__ = [
    "LAYOUTS",
    "PAYLOAD_HASH",
    "ROW_DTYPES",
    "UPDATE_DTYPES",
    "Update",
    "view_update",
    *_DTYPES,
]

#: The fixed part of each decoded kind's payload.
UPDATE_DTYPES = {Kind(kind): _DTYPES[name] for kind, (name, _) in _KINDS.items()}

#: The rows behind it: `row_count` of them (in a book: its bids, then its asks).
ROW_DTYPES = {Kind(kind): _DTYPES[row] for kind, (_, row) in _KINDS.items() if row}

#: The `payload_hash` of rings that carry updates: it covers all of these.
PAYLOAD_HASH = layout_hash(*UPDATE_DTYPES.values(), *ROW_DTYPES.values())

#: The layouts of a feed's records, which journals store beside their segments.
LAYOUTS = Layouts(
    RECORD,
    {int(kind): each for kind, each in {**CONTROL_DTYPES, **UPDATE_DTYPES}.items()},
    {int(kind): each for kind, each in ROW_DTYPES.items()})


class Update(NamedTuple):
    """A decoded payload, viewed in place: valid as long as the memory behind it.

    Attributes
    ----------
    kind : Kind
        The record's kind.
    header : numpy.void
        One item of `UPDATE_DTYPES[kind]`: `update.header["exchange_time_utc"]`.
    rows : numpy.ndarray
        Shape (row_count,), dtype `ROW_DTYPES[kind]`; empty for kinds without rows.
    """

    kind: Kind
    header: np.void
    rows: np.ndarray

    @property
    def bids(self) -> np.ndarray:
        """The bid levels of a book, in published order."""
        return self.rows[:self.header["bid_count"]]

    @property
    def asks(self) -> np.ndarray:
        """The ask levels of a book, in published order."""
        return self.rows[self.header["bid_count"]:]


_NO_ROWS = np.empty(0, _DTYPES["LEVEL"])


def view_update(kind: int, payload) -> Update:
    """View the payload of a decoded record without copying it.

    Parameters
    ----------
    kind : Kind
        The record's kind, one of `UPDATE_DTYPES`.
    payload : bytes-like
        The record's payload. It may be longer (padding), but not shorter.

    Raises
    ------
    FormatError
        The kind carries no update, or the payload is shorter than its counts say.
    """
    dtype = UPDATE_DTYPES.get(kind)
    if dtype is None:
        known = kind in list(Kind)
        raise FormatError(
            f"a {Kind(kind).name if known else int(kind)} carries no update: only "
            f"{', '.join(each.name for each in UPDATE_DTYPES)} do")
    size = memoryview(payload).nbytes
    if size < dtype.itemsize:
        raise FormatError(f"{Kind(kind).name} takes at least {dtype.itemsize} bytes, found {size}")
    header = np.frombuffer(payload, dtype, 1)[0]
    count = int(header["row_count"])
    row = ROW_DTYPES.get(kind)
    if row is None or not count:
        return Update(Kind(kind), header, _NO_ROWS if row is None else np.empty(0, row))
    expected = dtype.itemsize + count * row.itemsize
    if size < expected:
        raise FormatError(f"{Kind(kind).name} of {count} rows takes {expected} bytes, found {size}")
    return Update(Kind(kind), header, np.frombuffer(payload, row, count, dtype.itemsize))
