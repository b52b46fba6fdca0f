"""Messages of IEX TOPS 1.5 and 1.6 and DEEP 1.0 as numpy layouts.

Source: the venue's TOPS and DEEP specifications. Prices are integers with four decimals, times are
UNIX nanoseconds, symbols are padded with blanks.
"""

from enum import Enum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

__all__ = ["LAYOUTS", "PRICE_DECIMALS", "Effect", "IexLayout"]

PRICE_DECIMALS = 4


class Effect(Enum):
    """What a message does to its object.

    COMPLETE replaces it, CHANGE is right only if the object was, EVENT does not depend on it.
    """

    COMPLETE = "complete"
    CHANGE = "change"
    EVENT = "event"


class IexLayout(Struct, frozen=True):
    """The layout of one type of message.

    Attributes
    ----------
    name : str
        Name of the type.
    effect : Effect
        What a message does to its object.
    dtype : numpy.dtype
        The bytes on the wire, packed, beginning with `type` and `flags`.
    """

    name: str
    effect: Effect
    dtype: np.dtype[np.void]


def _layout(name: str, effect: Effect, *fields: tuple[str, str]) -> IexLayout:
    begin = [("type", "u1"), ("flags", "u1"), ("time_ns", "<i8"), ("symbol", "S8")]
    return IexLayout(name, effect, np.dtype([*begin, *fields]))


_TRADE = [("size", "<u4"), ("price", "<i8"), ("trade_id", "<i8")]
_LEVEL = [("size", "<u4"), ("price", "<i8")]

#: Each type's layout, by the character of the type.
LAYOUTS: dict[str, IexLayout] = {
    "S": IexLayout(
        "system_event",
        Effect.EVENT,
        np.dtype([("type", "u1"), ("flags", "u1"), ("time_ns", "<i8")]),
    ),
    "D": _layout(
        "security_directory",
        Effect.COMPLETE,
        ("round_lot", "<u4"),
        ("price", "<i8"),
        ("luld_tier", "u1"),
    ),
    "H": _layout("trading_status", Effect.COMPLETE, ("reason", "S4")),
    "O": _layout("operational_halt", Effect.COMPLETE),
    "P": _layout("short_sale_test", Effect.COMPLETE, ("detail", "u1")),
    "E": _layout("security_event", Effect.EVENT),
    "Q": _layout(
        "quote",
        Effect.COMPLETE,
        ("bid_size", "<u4"),
        ("bid_price", "<i8"),
        ("ask_price", "<i8"),
        ("ask_size", "<u4"),
    ),
    "T": _layout("trade", Effect.EVENT, *_TRADE),
    "B": _layout("trade_break", Effect.EVENT, *_TRADE),
    "8": _layout("level_buy", Effect.CHANGE, *_LEVEL),
    "5": _layout("level_sell", Effect.CHANGE, *_LEVEL),
    "X": _layout("official_price", Effect.EVENT, ("price", "<i8")),
    "A": _layout(
        "auction",
        Effect.EVENT,
        ("paired", "<u4"),
        ("reference_price", "<i8"),
        ("indicative_price", "<i8"),
        ("imbalance", "<u4"),
        ("imbalance_side", "S1"),
        ("extensions", "u1"),
        ("scheduled_s", "<u4"),
        ("book_price", "<i8"),
        ("collar_reference_price", "<i8"),
        ("collar_low", "<i8"),
        ("collar_high", "<i8"),
    ),
}


def numbered(dtype: np.dtype[np.void]) -> np.dtype[np.void]:
    """Return a layout that begins with the message's number, a u64 called `number`."""
    fields: list[tuple[str, npt.DTypeLike]] = [("number", "<u8")]
    fields += [(name, dtype[name]) for name in dtype.names or ()]
    return np.dtype(fields)
