"""The strategy of the demonstration, which keeps books and proves it.

Follows the ring from its beginning until the writer closes it, then writes what it saw as JSON.
Two styles of reading, so that both are shown to give the same books: `iterate` (an object per
record) and `poll` (numpy batches).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np

from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import RingClosedError

__all__ = ["strategy"]


class Account:
    """What a strategy saw: records by kind, books, latency from the loop to the strategy."""

    def __init__(self, reader: Reader) -> None:
        """Begin with nothing; names are the reader's."""
        self.books = Books(reader)
        self.kinds: Counter[int] = Counter()
        self.lapped = 0
        self.latencies_ns: list[np.ndarray[Any, np.dtype[np.int64]]] = []

    def iterate(self, reader: Reader) -> None:
        """Follow the ring record by record."""
        latencies: list[int] = []
        for record in reader:
            latencies.append(time.time_ns() - record.published_ns)
            self.books.apply(record)
            if record.kind is Kind.LAPPED:
                self.lapped += record.lapped
            else:
                self.kinds[record.kind] += 1
        self.latencies_ns.append(np.array(latencies, dtype=np.int64))

    def poll(self, reader: Reader) -> None:
        """Follow the ring in batches, without a Python object per record."""
        while True:
            try:
                batch = reader.poll(4096)
            except RingClosedError:
                return
            now_ns = time.time_ns()
            self.latencies_ns.append(now_ns - batch.headers["published_ns"])
            self.books.apply_batch(batch)
            kinds, counts = np.unique(batch.headers["kind"], return_counts=True)
            self.kinds.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))
            self.lapped += batch.lapped

    def report(self) -> dict[str, Any]:
        """Return everything as plain values; latencies in ns."""
        latencies = np.concatenate(self.latencies_ns or [np.zeros(0, dtype=np.int64)])
        levels = [0.5, 0.9, 0.99, 0.999, 1.0]
        quantiles = np.quantile(latencies, levels) if len(latencies) else [0] * len(levels)
        return {
            "records": sum(self.kinds.values()),
            "lapped": self.lapped,
            "kinds": {Kind(kind).name: count for kind, count in sorted(self.kinds.items())},
            "latency_ns": {
                "count": len(latencies),
                **dict(
                    zip(
                        ("p50", "p90", "p99", "p99_9", "max"),
                        (int(value) for value in quantiles),
                        strict=True,
                    )
                ),
                "below": int((latencies < 0).sum()),
                "above": 0,  # each is known, however long
            },
            "stale": sorted(
                f"{exchange}:{symbol}"
                for (exchange, symbol), book in self.books.items()
                if book.stale
            ),
            "books": {
                f"{exchange}:{symbol}": {"bids": book.bids().tolist(), "asks": book.asks().tolist()}
                for (exchange, symbol), book in self.books.items()
            },
        }


@click.command
@click.argument("name")
@click.option("--style", type=click.Choice(["iterate", "poll"]), default="iterate")
@click.option("--idle", type=click.Choice(["spin", "yield", "backoff", "sleep"]), default="backoff")
@click.option("--report", "path", type=click.Path(path_type=Path), required=True)
def strategy(name: str, style: str, idle: str, path: Path) -> None:
    """Follow instance NAME to its end and write a report."""
    with Reader(f"ring:{name}", idle=idle, start="begin", timeout=120.0, name=style) as reader:
        reader._take_for_recorded()
        account = Account(reader)
        (account.iterate if style == "iterate" else account.poll)(reader)
    path.write_text(json.dumps(account.report()))
