"""What the client for nautilus_trader makes of a feed's values, and what it says of their doubt.

Nothing is rounded: what an instrument's precisions cannot express is refused (`MisfitError`).
"""

from __future__ import annotations

import math
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from nautilus_trader.core.data import Data
from nautilus_trader.model.currencies import Currency
from nautilus_trader.model.enums import BookAction, OrderSide
from nautilus_trader.model.identifiers import Symbol
from nautilus_trader.model.instruments import CryptoPerpetual, CurrencyPair
from nautilus_trader.model.objects import Price, Quantity

from udpfast.client.record import ReadRecord

__all__ = [
    "CLEAR",
    "Change",
    "FeedDoubt",
    "Followed",
    "MisfitError",
    "instrument_of",
    "order_changes",
    "price_of",
    "quantity_of",
]

#: By the schema's Side.
_SIDES = {1: OrderSide.BUY, 2: OrderSide.SELL}
#: The schema's numbers: what a security is, and what becomes of an order.
_SPOT, _SWAP = 1, 4
_DELETE = 3

#: What a book is made of: action, side, price, quantity, id of the order (0: a level).
Change = tuple[Any, Any, float, float, int]
CLEAR: Change = (BookAction.CLEAR, None, 0.0, 0.0, 0)


class FeedDoubt(Data):
    """Whether what Nautilus has of an instrument's book and quotes may be wrong.

    Parameters
    ----------
    instrument_id : InstrumentId
    doubtful : bool
        True: its book is empty, and its quotes have sizes of 0, until False follows.
    reason : str
        The kind of record that brought it about, or a sentence.
    ts_event, ts_init : int
        UNIX ns.
    """

    def __init__(
        self, instrument_id: Any, doubtful: bool, reason: str, ts_event: int, ts_init: int
    ) -> None:
        self.instrument_id = instrument_id
        self.doubtful = doubtful
        self.reason = reason
        self._ts_event = ts_event
        self._ts_init = ts_init

    @property
    def ts_event(self) -> int:
        """When the record was received, in UNIX ns."""
        return self._ts_event

    @property
    def ts_init(self) -> int:
        """When this was made, in UNIX ns."""
        return self._ts_init

    def __repr__(self) -> str:
        state = "doubtful" if self.doubtful else "sound"
        return f"FeedDoubt({self.instrument_id}, {state}, {self.reason})"


class MisfitError(Exception):
    """A price or quantity that the instrument's precision cannot express."""


class Followed:
    """What somebody subscribed to, and what Nautilus has of it."""

    def __init__(self, instrument_id: Any, key: tuple[str, str]) -> None:
        self.id = instrument_id
        self.key = key
        self.book: Any = None  # BookType, or nobody wants it
        self.quotes = self.trades = False
        self.sound: bool | None = None  # None: nothing was said yet
        self.alone_sound = False  # of an instrument without books
        self.held: Any = None  # Nautilus's book, when it was last brought whole
        self.orders: dict[int, tuple[int, float, int]] = {}  # side, price and priority
        self.quote: Any = None


def order_changes(each: Followed, rows: Any) -> list[Change]:
    """Return what rows of ORDERS change in Nautilus's book, and note where each order is."""
    # Nautilus moves an order to the end of its price's queue by DELETE and ADD alone.
    changes: list[Change] = []
    for row in rows:
        number = _order_number(bytes(row["order_id"]))
        side, price, quantity = _SIDES.get(int(row["side"])), float(row["price"]), row["quantity"]
        place = (int(row["side"]), price, int(row["priority"]))
        held = each.orders.get(number)
        goes = row["action"] == _DELETE or not quantity > 0
        if held is not None and (goes or held != place):
            changes.append((BookAction.DELETE, _SIDES[held[0]], held[1], 0.0, number))
            del each.orders[number]
        if not goes and side is not None:
            action = BookAction.UPDATE if held == place else BookAction.ADD
            changes.append((action, side, price, float(quantity), number))
            each.orders[number] = place
    return changes


def _order_number(name: bytes) -> int:
    # Nautilus has numbers for orders; a venue may have names.
    if name.isdigit() and int(name) < 1 << 64:
        return int(name)
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


def price_of(instrument: Any, value: float) -> Any:
    """Return a Price; raise MisfitError if the instrument's precision cannot express it."""
    return _exact(Price, value, instrument.price_precision)


def quantity_of(instrument: Any, value: float) -> Any:
    """Return a Quantity; as `price_of`."""
    return _exact(Quantity, value, instrument.size_precision)


def _exact(kind: Any, value: float, precision: int) -> Any:
    # What is rounded may be another level: it is refused instead.
    try:
        found = kind(value, precision)
    except ValueError as error:
        raise MisfitError(str(error)) from None
    if not math.isclose(float(found), value, rel_tol=1e-12, abs_tol=10**-precision / 1000):
        raise MisfitError(f"{value} has more than the instrument's {precision} decimals")
    return found


def instrument_of(instrument_id: Any, record: ReadRecord, ts_event: int, ts_init: int) -> Any:
    """Return the instrument that a definition describes; None: it does not say enough."""
    said = record.update.header
    tick, step = float(said["tick_size"]), float(said["trade_vol_step_size"])
    step = step if step > 0 else float(said["min_trade_vol"])
    base, quote, settlement = (
        said[f"{name}_currency"].decode() for name in ("base", "quote", "settlement")
    )
    security = said["security_type"]
    if not (tick > 0 and step > 0 and base and quote):
        return None
    prices, sizes = _decimals(tick), _decimals(step)
    common: dict[str, Any] = {
        "instrument_id": instrument_id,
        "raw_symbol": Symbol(record.symbol),
        "base_currency": Currency.from_str(base),
        "quote_currency": Currency.from_str(quote),
        "price_precision": prices,
        "size_precision": sizes,
        "price_increment": Price(tick, prices),
        "size_increment": Quantity(step, sizes),
        "ts_event": ts_event,
        "ts_init": ts_init,
    }
    if security == _SPOT:
        return CurrencyPair(**common)
    if security == _SWAP and settlement:
        if said["multiplier"] > 0:
            multiplier = float(said["multiplier"])
            common["multiplier"] = Quantity(multiplier, _decimals(multiplier))
        return CryptoPerpetual(
            settlement_currency=Currency.from_str(settlement),
            is_inverse=settlement == base,
            **common,
        )
    return None


def _decimals(step: float) -> int:
    exponent = Decimal(repr(step)).normalize().as_tuple().exponent
    return max(0, -int(exponent))
