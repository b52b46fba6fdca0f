"""Write a table of a journal as a DBN file of Databento, for `databento` and other readers of DBN.

One file has one schema: `mbo` from `orders`, `mbp-1` from `tops`, `trades` and `definition` from
`instruments`. The package databento-dbn provides the layouts of records and the metadata.

DBN's prices are integers in units of 1e-9; its sizes and order ids are whole numbers. A value that
does not fit is refused and never rounded; the error states it. Sizes may be counted in another
unit. DBN has no records for losses: a book that may be wrong is cleared, with a flag.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from udpfast.core.layout import Kind, RecordFlag
from udpfast.core.optional import load_optional
from udpfast.errors import FormatError
from udpfast.export.naming import naming
from udpfast.export.rows import Clears

if TYPE_CHECKING:
    import pyarrow as pa

    from udpfast.export.rows import JournalRows

__all__ = ["SCHEMAS", "DbnWriter", "tables_of"]

#: The DBN schema of each table.
SCHEMAS = {"orders": "mbo", "tops": "mbp-1", "trades": "trades", "instruments": "definition"}

_CLASSES = {
    "mbo": "MBOMsg",
    "mbp-1": "MBP1Msg",
    "trades": "TradeMsg",
    "definition": "InstrumentDefMsg",
}
_PRICE_SCALE = 1e9
_DATASET_MAX = 16  # most characters of the dataset in the metadata
_SIDES = {"Buy": b"B", "Sell": b"A"}
#: Databento's instrument classes; a perpetual swap is a future that does not expire.
_INSTRUMENT_CLASSES = {"Spot": b"X", "Futures": b"F", "Swap": b"F"}
_OPTION_CLASSES = {"Call": b"C", "Put": b"P"}

Rows = NDArray[Any]


class _Interval(Struct, frozen=True):
    start_date: datetime.date
    end_date: datetime.date
    symbol: str


class _Resting(Struct, frozen=True):
    price: int
    size: int
    priority: int

    def loses_place(self, now: _Resting) -> bool:
        """Whether it moves in its queue although neither its price nor its size shows it."""
        return self.priority != now.priority and self.price == now.price and now.size <= self.size


class _Mapping(Struct, frozen=True):
    raw_symbol: str
    intervals: list[_Interval]


def tables_of(table: str) -> tuple[str, ...]:
    """Return the tables of a journal that `DbnWriter.write` needs for a table.

    `orders` and `tops` also need `messages`, whose snapshots and sessions clear books.

    Raises
    ------
    FormatError
        DBN has no schema for the table.
    """
    if table not in SCHEMAS:
        raise FormatError(
            f"DBN has no schema for the table {table!r}: expected {', '.join(SCHEMAS)}"
        )
    return ("messages", table) if table in ("orders", "tops") else (table,)


class _Snapshots:
    """Joins the records of each snapshot of orders, and sorts its orders by priority.

    The sorting is needed because a reader of DBN queues orders in the order of their A. It also
    sorts a record that only adds: after a reset, CME tells of all orders again, in any order. A
    large snapshot has several records, and only the first is marked as one. Each is continued in
    the next record of its book, which may be in another block; then the rest of the block is held
    back.
    """

    def __init__(self) -> None:
        self._held: tuple[pa.RecordBatch, pa.RecordBatch] | None = None

    def take(
        self, batch: pa.RecordBatch, cleared: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return rows and the records that clear books, up to the first incomplete snapshot."""
        if self._held is not None:
            batch, cleared = _joined(self._held[0], batch), _joined(self._held[1], cleared)
        first_open = self._put_together(batch)[2]
        self._held = None
        if first_open is not None:
            at = int(np.searchsorted(_integers(batch, "index"), first_open))
            clears_at = int(np.searchsorted(_integers(cleared, "index"), first_open))
            self._held = batch.slice(at), cleared.slice(clears_at)
            batch, cleared = batch.slice(0, at), cleared.slice(0, clears_at)
        return self._queued(batch), cleared

    def rest(self) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
        """Return the rows held back, or None; for the end of the journal."""
        held, self._held = self._held, None
        return None if held is None else (self._queued(held[0]), held[1])

    def _queued(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        index, snapshot, _ = self._put_together(batch)
        adds = np.array(batch["action"]) == "New"
        mixed = np.isin(index, index[~adds & ~snapshot])
        priority = np.where(mixed, 0, _integers(batch, "priority"))
        order = np.lexsort((priority, index))
        columns = {name: batch[name].take(pa.array(order)) for name in batch.schema.names}
        columns["index"] = pa.array(index[order], batch["index"].type)
        columns["snapshot"] = pa.array(snapshot[order])
        return pa.RecordBatch.from_pydict(columns)

    def _put_together(self, batch: pa.RecordBatch) -> tuple[Rows, Rows, int | None]:
        # Return, for each row, the index of its snapshot's first record and whether it has one; and
        # the first index of a snapshot that continues after these rows, or None.
        index = _integers(batch, "index").copy()
        snapshot, more = (_booleans(batch, name) for name in ("snapshot", "more"))
        received, is_new = _integers(batch, "received_ns"), np.array(batch["action"]) == "New"
        names = list(zip(batch["exchange"].to_pylist(), batch["symbol"].to_pylist(), strict=True))
        bounds = [*np.flatnonzero(np.diff(index, prepend=-1)).tolist(), len(index)]
        open_at: dict[Any, tuple[int, int]] = {}
        for begin, end in pairwise(bounds):
            name = names[begin]
            known = open_at.pop(name, None)
            if snapshot[begin]:
                known = int(index[begin]), int(received[begin])
            elif known is None or known[1] != received[begin] or not is_new[begin:end].all():
                continue
            index[begin:end], snapshot[begin:end] = known[0], True
            if more[begin]:
                open_at[name] = known
        # The records of a snapshot have the same time: a later record is not part of it.
        opened = [at for at, at_ns in open_at.values() if at_ns == received[-1]]
        return index, snapshot, min(opened, default=None)


class DbnWriter:
    """Writes one DBN file, which appears under its name once `close` has completed it.

    Parameters
    ----------
    path : Path
        The file; compressed with zstd if it ends in .zst.
    table : str
        A key of `SCHEMAS`.
    dataset : str
        Name of the dataset in the metadata, cut to 16 characters.
    size_unit : float
        Unit of sizes: with 0.001 a quantity of 1.5 becomes 1,500.
    journal : JournalRows, optional
        What the tables are read by, to tell whether books are whole.

    Raises
    ------
    FormatError
        DBN has no schema for the table.
    ExtraError
        databento-dbn is not installed.
    """

    def __init__(
        self,
        path: Path,
        table: str,
        dataset: str,
        size_unit: float = 1.0,
        journal: JournalRows | None = None,
    ) -> None:
        tables_of(table)
        self._table = table
        self._dbn = load_optional("databento_dbn", "dbn")
        self._schema = SCHEMAS[table]
        message = getattr(self._dbn, _CLASSES[self._schema])
        self._dtype = np.dtype(message._dtypes)
        if self._dtype.itemsize != message.size_hint:
            raise FormatError(
                f"databento-dbn: expected records of {message.size_hint} bytes, found columns of "
                f"{self._dtype.itemsize}"
            )
        self.rows = 0
        self._path = path
        self._dataset = dataset[:_DATASET_MAX]
        self._unit = size_unit
        self._ids: dict[tuple[str, str], int] = {}
        self._exchanges: dict[str, str] = {}
        self._resting: dict[tuple[int, int], _Resting] = {}
        kind = Kind.ORDERS if self._schema == "mbo" else Kind.TOP_OF_BOOK
        self._clears, self._snapshots = Clears(kind, journal), _Snapshots()
        self._doubtful: set[int] = set()  # instruments
        self._first_ns, self._last_ns = 2**63 - 1, 0
        self._body = path.with_name(f"{path.name}.rows")
        self._file = self._body.open("wb")

    def write(self, tables: dict[str, pa.RecordBatch]) -> None:
        """Append the rows of a block of the journal.

        Parameters
        ----------
        tables : dict
            The tables of `tables_of`, as `JournalRows` yields them.

        Raises
        ------
        FormatError
            A value does not fit DBN; the message states it.
        """
        batch = tables[self._table]
        if self._schema == "mbo":
            cleared = self._clears.take(tables["messages"])
            self._write_orders(*self._snapshots.take(batch, cleared))
            return
        if self._schema == "mbp-1":
            self._write_tops(batch, self._clears.take(tables["messages"]))
            return
        fill: Callable[[pa.RecordBatch, Rows], None] = {
            "trades": self._trades,
            "definition": self._definitions,
        }[self._schema]
        rows = self._begin(batch)
        fill(batch, rows)
        self._append(rows)

    def close(self) -> None:
        """Write metadata and rows under the file's name; leave no file after an error."""
        partial = self._path.with_name(f"{self._path.name}.partial")
        packed = self._path.suffix == ".zst"
        try:
            with naming(self._path):
                with self._file:
                    if (held := self._snapshots.rest()) is not None:
                        self._write_orders(*held)
                with _opened(partial, packed) as file, self._body.open("rb") as body:
                    file.write(bytes(self._metadata()))
                    shutil.copyfileobj(body, file)
                partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)
            self._body.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; leave none after an error."""
        if kind is None:
            self.close()
        else:
            with suppress(OSError):  # a full disk, which `value` tells of already
                self._file.close()
            self._body.unlink(missing_ok=True)

    def _write_orders(self, batch: pa.RecordBatch, cleared: pa.RecordBatch) -> None:
        rows = self._begin(batch)
        self._orders(batch, rows)
        rows, index = self._with_moves(rows, batch)
        self._append(self._with_clears(rows, index, cleared))

    def _write_tops(self, batch: pa.RecordBatch, cleared: pa.RecordBatch) -> None:
        # A top is complete itself: only what begins without one clears it.
        rows = self._begin(batch)
        self._tops(batch, rows)
        cleared = cleared.filter(_others(cleared, Kind.TOP_OF_BOOK))
        self._append(self._with_clears(rows, _integers(batch, "index"), cleared))

    def _append(self, rows: Rows) -> None:
        with naming(self._path):
            self._file.write(rows.tobytes())
        self.rows += len(rows)

    def _metadata(self) -> Any:
        dbn = self._dbn
        symbols = [symbol for _, symbol in self._ids]
        first_ns = min(self._first_ns, self._last_ns)  # without rows: 0
        begin, end = _day(first_ns), _day(self._last_ns) + datetime.timedelta(days=1)
        return dbn.Metadata(
            dataset=self._dataset,
            start=first_ns,
            end=self._last_ns + 1,
            stype_in=dbn.SType.RAW_SYMBOL,
            stype_out=dbn.SType.INSTRUMENT_ID,
            schema=dbn.Schema.from_str(self._schema),
            symbols=symbols,
            mappings=[
                _Mapping(symbol, [_Interval(begin, end, str(number))])
                for (_, symbol), number in self._ids.items()
            ],
        )

    def _begin(self, batch: pa.RecordBatch) -> Rows:
        # Make rows with the fields that all records begin with.
        rows = np.zeros(batch.num_rows, self._dtype)
        rows["length"] = self._dtype.itemsize // 4
        rows["rtype"] = int(self._dbn.RType.from_schema(self._schema))
        received = _integers(batch, "received_ns")
        stated = _integers(batch, "exchange_time_ns")
        rows["ts_recv"] = received
        rows["ts_event"] = np.where(stated > 0, stated, received)
        rows["instrument_id"] = self._instruments(batch)
        if "sequence" in (self._dtype.names or ()):
            rows["sequence"] = _integers(batch, "number") & 0xFFFFFFFF
        if "flags" in (self._dtype.names or ()):
            index = _integers(batch, "index")
            last = np.append(index[1:] != index[:-1], True)[: len(index)]
            doubt = _integers(batch, "flags") & int(RecordFlag.DOUBT) != 0
            rows["flags"] = np.where(last, self._dbn.F_LAST, 0)
            rows["flags"] |= np.where(doubt, self._dbn.F_MAYBE_BAD_BOOK, 0).astype("u1")
        if len(rows):
            self._first_ns = min(self._first_ns, int(received.min()))
            self._last_ns = max(self._last_ns, int(received.max()))
        return rows

    def _instruments(self, batch: pa.RecordBatch) -> NDArray[np.uint32]:
        names = list(zip(_texts(batch, "exchange"), _texts(batch, "symbol"), strict=True))
        for exchange, symbol in dict.fromkeys(names):
            if not symbol:
                raise FormatError("a row has no symbol: its names are missing or damaged")
            other = self._exchanges.setdefault(symbol, exchange)
            if other != exchange:
                raise FormatError(
                    f"a DBN file has each symbol once: {symbol} is of {other} and of {exchange}; "
                    "choose one exchange"
                )
            self._ids.setdefault((exchange, symbol), len(self._ids) + 1)
        return np.array([self._ids[name] for name in names], np.uint32)

    def _orders(self, batch: pa.RecordBatch, rows: Rows) -> None:
        rows["order_id"] = _order_ids(batch)
        rows["price"] = self._prices(batch, "price")
        rows["size"] = self._quantities(batch, "quantity")
        rows["side"] = _sides(batch)
        rows["action"] = [
            {"New": b"A", "Change": b"M", "Delete": b"C", "Trade": b"F"}.get(word or "", b"N")
            for word in batch["action"].to_pylist()
        ]
        snapshot = _booleans(batch, "snapshot")
        rows["flags"] |= np.where(snapshot, self._dbn.F_SNAPSHOT, 0).astype("u1")
        rows["action"][snapshot] = b"A"

    def _with_moves(self, rows: Rows, batch: pa.RecordBatch) -> tuple[Rows, Rows]:
        # A cancel in DBN states the size that is removed; the journal states the size that is left,
        # 0. A reader of DBN moves a modified order to the end of its queue only if its price
        # changes or its size grows: one that the venue moves otherwise is cancelled and added.
        resting, moved = self._resting, []
        for at, priority in enumerate(_integers(batch, "priority").tolist()):
            row = rows[at]
            key = int(row["instrument_id"]), int(row["order_id"])
            if row["action"] == b"C":
                before = resting.pop(key, None)
                row["size"] = row["size"] if before is None else before.size
            elif row["action"] in (b"A", b"M"):
                before = resting.get(key)
                now = resting[key] = _Resting(int(row["price"]), int(row["size"]), priority)
                if row["action"] == b"M" and before is not None and before.loses_place(now):
                    moved.append((at, before.size))
        places = np.array([at for at, _ in moved], np.int64)
        cancels = rows[places]
        cancels["action"], cancels["size"] = b"C", [size for _, size in moved]
        cancels["flags"] &= ~np.uint8(self._dbn.F_LAST)
        rows["action"][places] = b"A"
        index = _integers(batch, "index")
        return np.insert(rows, places, cancels), np.insert(index, places, index[places])

    def _with_clears(self, rows: Rows, index: Rows, cleared: pa.RecordBatch) -> Rows:
        # Clear a book before the orders of its snapshot, and when a session begins.
        clears = self._begin(cleared)
        for name in ("price", "bid_px_00", "ask_px_00"):
            if name in (self._dtype.names or ()):
                clears[name] = self._dbn.UNDEF_PRICE
        clears["action"], clears["side"] = b"R", b"N"
        places = np.searchsorted(index, _integers(cleared, "index"))
        followed = np.isin(_integers(cleared, "index"), index)
        snapshot = _booleans(cleared, "snapshot")
        clears["flags"] &= self._dbn.F_MAYBE_BAD_BOOK
        clears["flags"] |= np.where(snapshot, self._dbn.F_SNAPSHOT, 0).astype("u1")
        clears["flags"] |= np.where(followed, 0, self._dbn.F_LAST).astype("u1")
        return self._doubted(np.insert(rows, places, clears))

    def _doubted(self, rows: Rows) -> Rows:
        # What builds on a book that was cleared in doubt is in doubt until the book is whole.
        if self._schema != "mbo":
            return rows
        bad = self._dbn.F_MAYBE_BAD_BOOK
        clears = np.flatnonzero(rows["action"] == b"R").tolist()
        for number in {*self._doubtful, *rows["instrument_id"][clears].tolist()}:
            own = np.flatnonzero(rows["instrument_id"] == number)
            begins = [at for at in clears if rows["instrument_id"][at] == number]
            for begin, end in pairwise([-1, *begins, len(rows)]):
                if begin >= 0:
                    doubt = rows["flags"][begin] & (bad | self._dbn.F_SNAPSHOT) == bad
                    (self._doubtful.add if doubt else self._doubtful.discard)(number)
                if number in self._doubtful:
                    rows["flags"][own[(own > begin) & (own < end)]] |= bad
        return rows

    def _tops(self, batch: pa.RecordBatch, rows: Rows) -> None:
        rows["price"] = self._dbn.UNDEF_PRICE
        rows["action"], rows["side"] = b"M", b"N"
        for side in ("bid", "ask"):
            rows[f"{side}_px_00"] = self._prices(batch, f"{side}_price")
            rows[f"{side}_sz_00"] = self._quantities(batch, f"{side}_quantity", absent=0)

    def _trades(self, batch: pa.RecordBatch, rows: Rows) -> None:
        rows["price"] = self._prices(batch, "price")
        rows["size"] = self._quantities(batch, "quantity")
        rows["action"] = b"T"
        rows["side"] = _sides(batch)

    def _definitions(self, batch: pa.RecordBatch, rows: Rows) -> None:
        # Fields that the journal lacks get the library's undefined values.
        dbn = self._dbn
        template = np.frombuffer(
            bytes(
                dbn.InstrumentDefMsg(
                    publisher_id=0, instrument_id=0, ts_event=0, ts_recv=0,
                    min_price_increment=dbn.UNDEF_PRICE, display_factor=dbn.UNDEF_PRICE,
                    raw_symbol="", asset="", security_type="",
                    instrument_class=dbn.InstrumentClass.FUTURE,
                    security_update_action=dbn.SecurityUpdateAction.ADD,
                )
            ),
            self._dtype,
        )  # fmt: skip
        for name in self._dtype.names or ():
            if name not in ("instrument_id", "ts_event", "ts_recv"):
                rows[name] = template[name]
        rows["min_price_increment"] = self._prices(batch, "tick_size")
        rows["strike_price"] = self._prices(batch, "strike_price")
        rows["unit_of_measure_qty"] = self._prices(batch, "multiplier")
        rows["raw_symbol"] = _bytes(batch, "symbol", rows["raw_symbol"].dtype.itemsize)
        rows["asset"] = _bytes(batch, "base_currency", rows["asset"].dtype.itemsize)
        rows["cfi"] = _bytes(batch, "cfi_code", rows["cfi"].dtype.itemsize)
        rows["underlying"] = _bytes(batch, "underlying", rows["underlying"].dtype.itemsize)
        rows["currency"] = _bytes(batch, "quote_currency", rows["currency"].dtype.itemsize)
        expiry = _integers(batch, "expiry_datetime_utc_s")
        rows["expiration"] = np.where(
            expiry > 0, expiry.astype("u8") * 1_000_000_000, dbn.UNDEF_TIMESTAMP
        )
        for i, (kind, option) in enumerate(
            zip(_texts(batch, "security_type"), _texts(batch, "option_type"), strict=True)
        ):
            known = _OPTION_CLASSES.get(option) or _INSTRUMENT_CLASSES.get(kind)
            if known is None:
                raise FormatError(
                    "DBN's definitions need an instrument class: expected Spot, Futures, Swap, or "
                    f"Option with Call or Put, found {kind or 'nothing'} {option}".rstrip()
                )
            rows["instrument_class"][i] = known

    def _prices(self, batch: pa.RecordBatch, column: str) -> NDArray[np.int64]:
        values = _doubles(batch, column)
        scaled = np.rint(np.where(np.isnan(values), 0.0, values) * _PRICE_SCALE)
        # The double of a decimal with nine digits is the nearest one: allow only rounding errors.
        wrong = np.abs(scaled / _PRICE_SCALE - values) > 2 * np.spacing(np.abs(values))
        wrong |= np.abs(scaled) >= 2.0**63
        if wrong.any():
            raise FormatError(
                f"DBN's prices are multiples of 1e-9 below 9.2e9: found {column} "
                f"{float(values[wrong][0])!r}"
            )
        return np.where(np.isnan(values), self._dbn.UNDEF_PRICE, scaled.astype("i8"))

    def _quantities(
        self, batch: pa.RecordBatch, column: str, absent: int | None = None
    ) -> NDArray[np.int64]:
        absent = self._dbn.UNDEF_ORDER_SIZE if absent is None else absent
        values = _doubles(batch, column)
        counted = np.where(np.isnan(values), 0.0, values) / self._unit
        whole = np.rint(counted)
        wrong = np.abs(counted - whole) > 1e-9 * np.maximum(np.abs(counted), 1.0)
        wrong |= (whole < 0) | (whole >= self._dbn.UNDEF_ORDER_SIZE)
        if wrong.any():
            fits = next((unit for unit in _UNITS if _all_whole(values, unit)), None)
            hint = "no power of ten fits" if fits is None else f"{fits:g} fits the rows so far"
            raise FormatError(
                f"DBN's sizes are whole numbers below 2^32: found {column} "
                f"{float(values[wrong][0])!r} in units of {self._unit:g}; choose another unit "
                f"(--size-unit): {hint}"
            )
        return np.where(np.isnan(values), absent, whole).astype("i8")


#: Units that an error may suggest, the largest first.
_UNITS = tuple(10.0**exponent for exponent in range(6, -13, -1))


def _all_whole(values: NDArray[np.float64], unit: float) -> bool:
    counted = values[~np.isnan(values)] / unit
    small = (counted >= 0) & (counted < 2.0**32 - 1)
    return bool(
        (small & (np.abs(counted - np.rint(counted)) <= 1e-9 * np.maximum(counted, 1))).all()
    )


def _opened(path: Path, compressed: bool) -> Any:
    import pyarrow as pa

    return pa.CompressedOutputStream(str(path), "zstd") if compressed else path.open("wb")


def _doubles(batch: pa.RecordBatch, column: str) -> NDArray[np.float64]:
    return np.asarray(batch[column].to_numpy(zero_copy_only=False), np.float64)


def _integers(batch: pa.RecordBatch, column: str) -> NDArray[np.int64]:
    return np.asarray(batch[column].fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _booleans(batch: pa.RecordBatch, column: str) -> NDArray[np.bool_]:
    return np.array(batch[column].to_pylist(), bool)


def _others(messages: pa.RecordBatch, kind: Kind) -> pa.BooleanArray:
    import pyarrow.compute as pc

    return pc.not_equal(messages["kind"], kind.name)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    columns = {name: pa.concat_arrays([first[name], second[name]]) for name in first.schema.names}
    return pa.RecordBatch.from_pydict(columns)


def _texts(batch: pa.RecordBatch, column: str) -> list[str]:
    return [text or "" for text in batch[column].to_pylist()]


def _bytes(batch: pa.RecordBatch, column: str, size: int) -> list[bytes]:
    found = [text.encode() for text in _texts(batch, column)]
    for text in found:
        if len(text) >= size:  # a zero must follow
            raise FormatError(
                f"DBN has room for {size - 1} bytes of {column}: found {text.decode()!r}"
            )
    return found


def _sides(batch: pa.RecordBatch) -> list[bytes]:
    return [_SIDES.get(word, b"N") for word in _texts(batch, "side")]


def _order_ids(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    texts = _texts(batch, "order_id")
    for text in texts:
        if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 64:
            raise FormatError(f"DBN's order ids are numbers of 64 bits: found {text!r}")
    return np.array([int(text) for text in texts], np.uint64)


def _day(unix_ns: int) -> datetime.date:
    return datetime.datetime.fromtimestamp(unix_ns // 1_000_000_000, datetime.UTC).date()
