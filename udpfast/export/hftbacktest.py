"""Write a journal's levels and trades of one instrument for hftbacktest: an array in an npz file.

The package hftbacktest provides the array's type, its flags and the order of events. `exch_ts` is
the exchange's time (if it states one, otherwise the time of receipt); `local_ts` is when the feed
published the record, which is when a strategy could see it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from udpfast.core.layout import Kind
from udpfast.core.optional import load_optional
from udpfast.errors import FormatError
from udpfast.export.naming import naming
from udpfast.export.rows import Clears
from udpfast.shm.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

    from udpfast.export.rows import JournalRows

__all__ = ["TABLES", "write_npz"]

#: Tables that it is made from.
TABLES = ("messages", "levels", "trades")

Events = NDArray[Any]


def write_npz(path: Path, rows: JournalRows, latency_ns: int = 0) -> int:
    """Write the events of one instrument; return how many.

    Parameters
    ----------
    path : Path
        The file; `numpy.load(path)["data"]` is the array.
    rows : JournalRows
        Rows of the tables `TABLES`.
    latency_ns : int
        Least plausible latency: if the clocks show less, all local times are shifted.

    Raises
    ------
    FormatError
        There are several instruments, or none.
    ExtraError
        hftbacktest is not installed.
    """
    backtest = load_optional("hftbacktest", "hftbacktest")
    validation = load_optional("hftbacktest.data.validation", "hftbacktest")
    found: list[Events] = []
    names: set[tuple[str, str]] = set()
    clears = Clears(Kind.BOOK, rows)
    for tables in rows:
        events = np.concatenate(
            [
                _clears(backtest, clears.take(tables["messages"])),
                _levels(backtest, tables["levels"]),
                _trades(backtest, tables["trades"]),
            ]
        )
        for batch in (tables["levels"], tables["trades"]):
            names.update(
                zip(batch["exchange"].to_pylist(), batch["symbol"].to_pylist(), strict=True)
            )
        if len(names) > 1:
            some = " and ".join(f"{symbol} of {exchange}" for exchange, symbol in sorted(names)[:2])
            raise FormatError(
                f"hftbacktest has a file per instrument: found {some}; choose one (--symbol, "
                "--exchange)"
            )
        # `ival` has the record's index until here. The sort is stable: a clear precedes its levels.
        events = events[np.argsort(events["ival"], kind="stable")]
        events["ival"] = 0
        found.append(events)
    if not names:
        raise FormatError(
            f"hftbacktest needs levels or trades of an instrument: found none{rows.wanted}"
        )
    data = np.concatenate(found)
    data = validation.correct_local_timestamp(data, latency_ns)
    data = validation.correct_event_order(
        data,
        np.argsort(data["exch_ts"], kind="stable"),
        np.argsort(data["local_ts"], kind="stable"),
    )
    validation.validate_event_order(data)
    with naming(path), replacing(path) as file:
        np.savez_compressed(file, data=data)
    return len(data)


def _events(backtest: Any, batch: pa.RecordBatch) -> Events:
    events = np.zeros(batch.num_rows, backtest.event_dtype)
    stated = _integers(batch, "exchange_time_ns")
    events["exch_ts"] = np.where(stated > 0, stated, _integers(batch, "received_ns"))
    events["local_ts"] = _integers(batch, "published_ns")
    events["ival"] = _integers(batch, "index")
    return events


def _priced(backtest: Any, batch: pa.RecordBatch, buy: str) -> Events:
    events = _events(backtest, batch)
    events["px"] = batch["price"].to_numpy(zero_copy_only=False)
    events["qty"] = batch["quantity"].to_numpy(zero_copy_only=False)
    buys = np.array(batch["side"].to_pylist(), object) == buy
    events["ev"] |= np.where(buys, backtest.BUY_EVENT, backtest.SELL_EVENT).astype("u8")
    return events


def _clears(backtest: Any, batch: pa.RecordBatch) -> Events:
    # Without a side the event clears both sides.
    events = _events(backtest, batch)
    events["ev"] |= np.uint64(backtest.DEPTH_CLEAR_EVENT)
    return events


def _levels(backtest: Any, batch: pa.RecordBatch) -> Events:
    events = _priced(backtest, batch, "Bid")
    snapshot = np.array(batch["snapshot"].to_pylist(), bool)
    kind = np.where(snapshot, backtest.DEPTH_SNAPSHOT_EVENT, backtest.DEPTH_EVENT)
    events["ev"] |= kind.astype("u8")
    return events


def _trades(backtest: Any, batch: pa.RecordBatch) -> Events:
    events = _priced(backtest, batch, "Buy")
    events["ev"] |= np.uint64(backtest.TRADE_EVENT)
    return events


def _integers(batch: pa.RecordBatch, column: str) -> NDArray[np.int64]:
    return np.asarray(batch[column].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
