"""What every book must be in the end, worked out from a recording the slow and obvious way.

Nothing here is shared with `agents.market.market_recording`: plain dicts, one row after the other.
The demonstration and the tests compare the two, and the receivers' books with both.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["OracleBook", "final_books"]

_COLUMNS = ("venue", "symbol", "msg", "update_type", "last_id", "side", "price", "qty")


class OracleBook(NamedTuple):
    """One instrument: levels as [price, quantity], best first, and what was applied."""

    bids: list[list[float]]
    asks: list[list[float]]
    updates_applied: int
    updates_older: int


def final_books(prefix: str | Path, price_band: float | None = None) -> dict[str, OracleBook]:
    """Return each instrument's final book by "venue:symbol".

    Parameters
    ----------
    prefix : str or Path
        What stands before "_l2.parquet".
    price_band : float, optional
        Levels further than this part of the starting mid (of the first snapshot) are left out.
    """
    states: dict[str, _State] = {}
    for name, update_type, last_id, rows in _messages(prefix):
        state = states.setdefault(name, _State())
        if update_type == 1:
            state.start_from(last_id, rows, price_band)
        elif state.snapshot_id is None:
            state.waiting.append((last_id, rows))
        else:
            state.apply(last_id, rows)
    return {name: state.result() for name, state in states.items()}


class _State:
    def __init__(self) -> None:
        self.sides: dict[int, dict[float, float]] = {1: {}, 2: {}}
        self.snapshot_id: int | None = None
        self.waiting: list[tuple[int, list[tuple[int, float, float]]]] = []
        self.low, self.high = float("-inf"), float("inf")
        self.applied = self.older = 0

    def start_from(
        self, last_id: int, rows: list[tuple[int, float, float]], price_band: float | None
    ) -> None:
        first = self.snapshot_id is None
        if first and price_band is not None:
            bid = max(price for side, price, _ in rows if side == 1)
            ask = min(price for side, price, _ in rows if side == 2)
            mid = (bid + ask) / 2
            self.low, self.high = mid * (1 - price_band), mid * (1 + price_band)
        self.sides = {1: {}, 2: {}}
        self.snapshot_id = last_id
        self._take(rows)
        for waiting_id, waiting_rows in self.waiting:
            self.apply(waiting_id, waiting_rows)
        self.waiting = []

    def apply(self, last_id: int, rows: list[tuple[int, float, float]]) -> None:
        if self.snapshot_id is not None and last_id <= self.snapshot_id:
            self.older += 1
            return
        self.applied += 1
        self._take(rows)

    def _take(self, rows: list[tuple[int, float, float]]) -> None:
        for side, price, quantity in rows:
            if not self.low <= price <= self.high:
                continue
            if quantity == 0:
                self.sides[side].pop(price, None)
            else:
                self.sides[side][price] = quantity

    def result(self) -> OracleBook:
        bids = [[price, self.sides[1][price]] for price in sorted(self.sides[1], reverse=True)]
        asks = [[price, self.sides[2][price]] for price in sorted(self.sides[2])]
        return OracleBook(bids, asks, self.applied, self.older)


def _messages(prefix: str | Path) -> Iterator[tuple[str, int, int, list[Any]]]:
    from pyarrow import parquet

    table = parquet.read_table(f"{prefix}_l2.parquet", columns=list(_COLUMNS))
    current: Any = None
    rows: list[tuple[int, float, float]] = []
    for batch in table.to_batches(max_chunksize=65_536):
        columns = [_values(batch.column(name)) for name in _COLUMNS]
        for venue, symbol, msg, update_type, last_id, side, price, qty in zip(
            *columns, strict=True
        ):
            if current != (venue, symbol, msg, update_type, last_id):
                if current is not None:
                    yield f"{current[0]}:{current[1]}", current[3], current[4], rows
                current, rows = (venue, symbol, msg, update_type, last_id), []
            rows.append((side, price, qty))
    if current is not None:
        yield f"{current[0]}:{current[1]}", current[3], current[4], rows


def _values(column: Any) -> list[Any]:
    # Through numpy: thirty times as fast as to_pylist, which makes an object of each value first.
    if hasattr(column, "dictionary"):
        names = column.dictionary.to_pylist()
        return [names[index] for index in column.indices.to_numpy().tolist()]
    values: list[Any] = column.fill_null(-1).to_numpy(zero_copy_only=False).tolist()
    return values
