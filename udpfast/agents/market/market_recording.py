"""Recorded market data as a source: PREFIX_l2, PREFIX_trades and PREFIX_quotes .parquet.

The rules of such recordings: rows lie in the order of `recv_ns`, the levels of one message share
`msg`. Where a venue sends updates and one snapshot comes among them by another way, updates
before the snapshot are kept back, those that the snapshot contains (`last_id` not beyond its own)
are dropped, and the kept ones follow the snapshot.

All work on rows is vectorised: 2.5 million rows load in about two seconds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from udpfast.agents.market.market_event import BookChange, Instrument, MarketEvent, Quote, Trade
from udpfast.core.optional import load_optional
from udpfast.errors import FormatError

__all__ = ["MarketRecording", "OutsideBand", "recording_span_ns"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SNAPSHOT = 1
BID = 1

TIME = ["recv_ns"]


class OutsideBand(NamedTuple):
    """What the price band took away from one instrument."""

    mid: float
    low: float
    high: float
    rows: int
    levels: int
    messages: int


class MarketRecording:
    """The events of one recording, merged by the time at which they were received.

    Their books may be of any density: what of them a message can carry is the gateway's business.

    Parameters
    ----------
    prefix : str or Path
        What stands before "_l2.parquet"; the trades and quotes beside it are optional.
    price_band : float, optional
        Book levels further than this part of the starting mid price from it are left out of
        snapshots and updates alike (0.01: one per cent to each side). The starting mid is that of
        the instrument's first snapshot, else of its first quote; an instrument with neither keeps
        all levels.

    Attributes
    ----------
    instruments : list of Instrument
        By exchange and symbol.
    outside_band : dict of str to OutsideBand
        By instrument name; empty without a band.
    book_messages, updates_older, updates_kept_back : list of int
        Per instrument: messages in the file, dropped as older than the snapshot, and moved
        behind it.
    """

    def __init__(self, prefix: str | Path, *, price_band: float | None = None) -> None:
        levels = _read(f"{prefix}_l2.parquet")
        quotes = _read_optional(f"{prefix}_quotes.parquet")
        trades = _read_optional(f"{prefix}_trades.parquet")
        names = sorted(
            {
                name
                for table in (levels, quotes, trades)
                if table is not None
                for name in table.names
            }
        )
        index_of = {name: index for index, name in enumerate(names)}
        self.outside_band: dict[str, OutsideBand] = {}
        self._levels = levels
        self._quotes = quotes
        self._trades = trades
        for table in (levels, quotes, trades):
            if table is not None:
                table.renumber(index_of)
        self.instruments = [
            Instrument(*name.partition(":")[::2], *self._digits(index))
            for index, name in enumerate(names)
        ]
        self._messages = _Messages(levels)
        keep = self._within_band(price_band) if price_band is not None else None
        self._messages.arrange(levels, keep)
        self.book_messages = self._messages.counts(len(names))
        self.updates_older, self.updates_kept_back = self._messages.apply_chain(len(names))

    def __iter__(self) -> Iterator[MarketEvent]:
        """Begin again at the first event; each pass yields the same."""
        feeds = [self._messages.times]
        makers: list[Iterator[MarketEvent]] = [self._messages.events()]
        for table, make in ((self._quotes, _quotes), (self._trades, _trades)):
            if table is not None:
                feeds.append(table["recv_ns"])
                makers.append(make(table))
        # Each feed is in its own order: only the choice of the next feed has to be merged.
        kinds = np.repeat(np.arange(len(feeds)), [len(feed) for feed in feeds])
        order = np.argsort(np.concatenate(feeds), kind="stable")
        for kind in kinds[order].tolist():
            yield next(makers[kind])

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._messages.times) + sum(
            len(table["recv_ns"]) for table in (self._quotes, self._trades) if table is not None
        )

    def _digits(self, index: int) -> tuple[int, int]:
        rows = self._levels["instrument"] == index
        return _decimal_digits(self._levels["price"][rows]), _decimal_digits(
            self._levels["qty"][rows]
        )

    def _within_band(self, price_band: float) -> Bools:
        count = len(self.instruments)
        low, high = np.full(count, -np.inf), np.full(count, np.inf)
        prices, codes = self._levels["price"], self._levels["instrument"]
        mids = [self._starting_mid(index) for index in range(count)]
        for index, mid in enumerate(mids):
            if mid is not None:
                low[index], high[index] = mid * (1 - price_band), mid * (1 + price_band)
        keep: Bools = (prices >= low[codes]) & (prices <= high[codes])
        for index, mid in enumerate(mids):
            if mid is not None:
                outside = ~keep & (codes == index)
                self.outside_band[self.instruments[index].name] = OutsideBand(
                    mid,
                    float(low[index]),
                    float(high[index]),
                    int(outside.sum()),
                    len(np.unique(prices[outside])),
                    self._messages.emptied(outside, keep),
                )
        return keep

    def _starting_mid(self, index: int) -> float | None:
        levels = self._levels
        snapshot = np.flatnonzero(
            (levels["instrument"] == index) & (levels["update_type"] == SNAPSHOT)
        )
        if len(snapshot):
            first = snapshot[levels["msg"][snapshot] == levels["msg"][snapshot[0]]]
            prices, bids = levels["price"][first], levels["side"][first] == BID
            if bids.any() and not bids.all():
                return float(prices[bids].max() + prices[~bids].min()) / 2
        if self._quotes is not None:
            rows = np.flatnonzero(self._quotes["instrument"] == index)
            if len(rows):
                return (
                    float(self._quotes["bid_price"][rows[0]] + self._quotes["ask_price"][rows[0]])
                    / 2
                )
        return None


def recording_span_ns(prefix: str | Path, silence_max_ns: int) -> int:
    """Return how long a recording is, of which no silence counts as longer than `silence_max_ns`.

    Reads nothing but times, and so is much faster than opening it.
    """
    levels = _read(f"{prefix}_l2.parquet", TIME)
    others = [_read_optional(f"{prefix}_{kind}.parquet", TIME) for kind in ("quotes", "trades")]
    tables = [levels, *others]
    times = np.sort(np.concatenate([table["recv_ns"] for table in tables if table is not None]))
    return int(np.minimum(np.diff(times), silence_max_ns).sum())


class _Messages:
    """Book messages: which rows belong to each, and when each is due."""

    def __init__(self, levels: "_Table") -> None:
        key = levels["instrument"] << 40 | levels["msg"]
        first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        if len(np.unique(key[first])) != len(first):
            raise FormatError(
                "expected the rows of each message side by side, found one message in two places"
            )
        self.row_message = np.repeat(
            np.arange(len(first)), np.diff(np.concatenate((first, [len(key)])))
        )
        self.instruments: Ints = levels["instrument"][first]
        self.times: Ints = levels["recv_ns"][first]
        self.snapshots: Bools = levels["update_type"][first] == SNAPSHOT
        self.last_ids: Ints = levels["last_id"][first]
        self.exchange_ns: Ints = levels["event_ns"][first]

    def emptied(self, outside: Bools, keep: Bools) -> int:
        """Return how many updates of `outside` have no row left in `keep`."""
        touched = np.unique(self.row_message[outside])
        left = np.bincount(self.row_message[keep], minlength=len(self.times))
        return int(((left[touched] == 0) & ~self.snapshots[touched]).sum())

    def arrange(self, levels: "_Table", keep: Bools | None) -> None:
        """Sort each message's rows into bids and asks, without those outside `keep`."""
        is_ask = levels["side"] != BID
        order = np.argsort(2 * self.row_message + is_ask, kind="stable")
        if keep is not None:
            order = order[keep[order]]
        self.levels = np.column_stack((levels["price"][order], levels["qty"][order]))
        rows = self.row_message[order]
        counts = np.bincount(rows, minlength=len(self.times))
        self.stops = np.cumsum(counts)
        self.starts = self.stops - counts
        self.splits = self.stops - np.bincount(
            rows, weights=is_ask[order], minlength=len(self.times)
        ).astype(np.int64)
        # An update of which nothing is left says nothing; a snapshot without levels does.
        self.chosen: Ints = np.flatnonzero((counts > 0) | self.snapshots)

    def counts(self, instruments: int) -> list[int]:
        """Return the number of messages per instrument."""
        return _per_instrument(self.instruments, instruments)

    def apply_chain(self, instruments: int) -> tuple[list[int], list[int]]:
        """Drop and move updates by the id rule, then put all messages in the order of time."""
        dropped = np.zeros(len(self.times), np.bool_)
        kept_back = np.zeros(len(self.times), np.bool_)
        times = self.times.copy()
        for index in range(instruments):
            own = np.flatnonzero(self.instruments == index)
            snapshots = own[self.snapshots[own]]
            if not len(snapshots):
                continue
            # Each update is measured by the latest snapshot before it, early ones by the first.
            nearest = snapshots[np.maximum(np.searchsorted(snapshots, own, "right") - 1, 0)]
            old = (
                ~self.snapshots[own]
                & (self.last_ids[own] >= 0)
                & (self.last_ids[own] <= self.last_ids[nearest])
            )
            dropped[own[old]] = True
            early = own[(own < snapshots[0]) & ~old]
            kept_back[early] = True
            times[early] = times[snapshots[0]]
        older = _per_instrument(self.instruments[dropped], instruments)
        moved = _per_instrument(self.instruments[kept_back], instruments)
        chosen = self.chosen[~dropped[self.chosen]]
        self.chosen = chosen[np.lexsort((chosen, kept_back[chosen], times[chosen]))]
        self.times = times[self.chosen]
        return older, moved

    def events(self) -> Iterator[BookChange]:
        """Yield the messages; the arrays are slices of the whole, not copies."""
        chosen, levels = self.chosen, self.levels
        for recv_ns, instrument, snapshot, start, split, stop, exchange_ns, last_id in zip(
            self.times.tolist(),
            self.instruments[chosen].tolist(),
            self.snapshots[chosen].tolist(),
            self.starts[chosen].tolist(),
            self.splits[chosen].tolist(),
            self.stops[chosen].tolist(),
            self.exchange_ns[chosen].tolist(),
            self.last_ids[chosen].tolist(),
            strict=True,
        ):
            yield BookChange(
                recv_ns,
                instrument,
                snapshot,
                levels[start:split],
                levels[split:stop],
                exchange_ns,
                max(last_id, 0),
            )


class _Table:
    """Columns of one file as arrays, and `instrument` in place of venue and symbol."""

    def __init__(self, path: Path, columns: list[str] | None = None) -> None:
        # Slow to import, and an extra of the package: only who reads recordings pays for it.
        load_optional("pyarrow", "market")
        from pyarrow import ArrowInvalid, parquet, types

        try:
            table = parquet.read_table(path, columns=columns).unify_dictionaries()
        except ArrowInvalid as error:
            raise FormatError(
                f"{path}: expected a Parquet file, found something else: {error}"
            ) from None
        self._columns: dict[str, Any] = {}
        for name in table.column_names:
            column = table[name].combine_chunks()
            if name in ("venue", "symbol"):
                self._columns[name] = (
                    column if types.is_dictionary(column.type) else column.dictionary_encode()
                )
            elif name == "trade_id":
                self._columns[name] = column.to_pylist()
            else:
                # Null would turn integers into inexact floats; no id or time is negative.
                self._columns[name] = column.fill_null(-1).to_numpy(zero_copy_only=False)
        if columns is None:
            self._number_instruments()

    def _number_instruments(self) -> None:
        venues = self._columns.pop("venue")
        symbols = self._columns.pop("symbol")
        width = len(symbols.dictionary)
        codes = venues.indices.to_numpy().astype(np.int64) * width + symbols.indices.to_numpy()
        used = np.flatnonzero(np.bincount(codes))
        self.names = [
            f"{venues.dictionary[int(code) // width]}:{symbols.dictionary[int(code) % width]}"
            for code in used
        ]
        self._codes_used = used
        self._columns["instrument"] = codes

    def renumber(self, index_of: dict[str, int]) -> None:
        """Turn the file's own instrument codes into indices that all files share."""
        translation = np.zeros(int(self._codes_used[-1]) + 1, np.int64)
        translation[self._codes_used] = [index_of[name] for name in self.names]
        self._columns["instrument"] = translation[self._columns["instrument"]]

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def _read(path: str, columns: list[str] | None = None) -> _Table:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: expected recorded order book data, found no such file")
    return _Table(Path(path), columns)


def _read_optional(path: str, columns: list[str] | None = None) -> _Table | None:
    return _Table(Path(path), columns) if Path(path).exists() else None


def _quotes(table: _Table) -> Iterator[Quote]:
    columns = ("recv_ns", "instrument", "bid_price", "bid_qty", "ask_price", "ask_qty")
    stamps = (np.maximum(table["event_ns"], 0), np.maximum(table["update_id"], 0))
    return map(
        Quote._make,
        zip(
            *(table[name].tolist() for name in columns),
            *(stamp.tolist() for stamp in stamps),
            strict=True,
        ),
    )


def _trades(table: _Table) -> Iterator[Trade]:
    columns = ("recv_ns", "instrument", "side", "price", "qty")
    return map(
        Trade._make,
        zip(
            *(table[name].tolist() for name in columns),
            (trade_id or "" for trade_id in table["trade_id"]),
            np.maximum(table["event_ns"], 0).tolist(),
            strict=True,
        ),
    )


def _per_instrument(indices: Ints, instruments: int) -> list[int]:
    counts: list[int] = np.bincount(indices, minlength=instruments).tolist()
    return counts


def _decimal_digits(values: npt.NDArray[np.float64]) -> int:
    for digits in range(9):
        if np.array_equal(np.round(values, digits), values):
            return digits
    return 9
