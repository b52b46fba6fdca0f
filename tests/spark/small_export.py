"""A small export, row by row: what the jobs are asked about in tests."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from udpfast.export.manifest import Entry, write_entry
from udpfast.export.schema import arrow_schema, table_of
from udpfast.spark.gold import Gold

HOUR_NS = 3_600_000_000_000
#: Five seconds before a full hour: everything here spans two.
BEGIN_NS = 1_732_201_200_000_000_000 - 5_000_000_000
INSTRUMENTS = (("deribit", "BTC-PERPETUAL"), ("deribit", "ETH-PERPETUAL"), ("cme", "ES"))

OBJECTS: dict[Any, int] = {instrument: i for i, instrument in enumerate(INSTRUMENTS, 1)}

Row = dict[str, Any]


class SmallExport:
    """Rows of every table, and the directory that Spark reads."""

    def __init__(self, seed: int, events: int = 400) -> None:
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self._chance = random.Random(seed)
        self._position = 4096
        self._now_ns = BEGIN_NS
        self._event("SESSION", unseen=0, discarded=0)
        for instrument in INSTRUMENTS:
            self._event("RECOVERED", object=OBJECTS[instrument], continues=False)
            self._book(instrument, snapshot=True)
        for _ in range(events):
            instrument = self._chance.choice(INSTRUMENTS)
            make = self._chance.choices(
                (self._trade, self._quote, self._book, self._gap, self._race),
                (3, 4, 4, 0.3, 6),
            )[0]
            make(instrument)
        self._book(INSTRUMENTS[1], snapshot=True)
        self._book(INSTRUMENTS[2], snapshot=True, levels=0)
        self._latency()

    def write(self, root: Path, part: int = 0, since: int = 0) -> None:
        """Write a file per partition, of the rows from `since` on."""
        for name, rows in self.rows.items():
            groups = defaultdict(list)
            for row in rows:
                if row["position"] >= since:
                    groups[row["stream"]].append(row)
            for channel, own in groups.items():
                folder = root / table_of(name).name / "date=2024-11-21"
                folder = folder / f"stream={channel}" / "session=s1"
                folder.mkdir(parents=True, exist_ok=True)
                table = pa.Table.from_pylist(own, arrow_schema(name))
                parquet.write_table(table, folder / f"part-{part:05}.parquet")

    def of(self, name: str, instrument: tuple[str, str]) -> list[Row]:
        """Return a table's rows of one instrument."""
        return [
            row for row in self.rows[name] if (row.get("exchange"), row.get("symbol")) == instrument
        ]

    def _record(self, kind: str, size: int = 256, channel: int = 0, **more: Any) -> Row:
        self._position += size
        self._now_ns += self._chance.randrange(1, 50_000_000)
        row = {
            "feed": "deribit",
            "position": self._position,
            "received_ns": self._now_ns,
            "published_ns": self._now_ns + 1500,
            "stream": channel,
            "snapshot": False,
            "flags": 0,
            "object": OBJECTS.get((more.get("exchange"), more.get("symbol")), 0),
            **more,
        }
        count = more.pop("rows", 0)
        self.rows["messages"].append(row | {"kind": kind, "rows": count})
        return row

    def _price(self, instrument: tuple[str, str]) -> float:
        return 100 * (1 + INSTRUMENTS.index(instrument)) + self._chance.randrange(-8, 9) / 2

    def _trade(self, instrument: tuple[str, str]) -> None:
        record = self._record("TRADES", exchange=instrument[0], symbol=instrument[1])
        for row in range(self._chance.randrange(1, 4)):
            self.rows["trades"].append(
                record
                | {
                    "row": row,
                    "side": self._chance.choice(("Buy", "Sell")),
                    "price": self._price(instrument),
                    "quantity": float(self._chance.randrange(1, 50)),
                }
            )

    def _quote(self, instrument: tuple[str, str]) -> None:
        record = self._record("TOP_OF_BOOK", exchange=instrument[0], symbol=instrument[1])
        bid = self._price(instrument)
        one_sided = self._chance.random() < 0.1
        self.rows["tops"].append(
            record
            | {
                "bid_price": None if one_sided else bid,
                "bid_quantity": 3.0,
                "ask_price": bid + self._chance.randrange(1, 4) / 2,
                "ask_quantity": 5.0,
            }
        )

    def _book(
        self, instrument: tuple[str, str], snapshot: bool = False, levels: int | None = None
    ) -> None:
        count = self._chance.randrange(1, 6) if levels is None else levels
        record = self._record(
            "BOOK", exchange=instrument[0], symbol=instrument[1], snapshot=snapshot, rows=count
        )
        middle = 100 * (1 + INSTRUMENTS.index(instrument))
        for row in range(count):
            side = self._chance.choice(("Bid", "Ask"))
            away = self._chance.randrange(1, 12) / 2
            gone = not snapshot and self._chance.random() < 0.3
            quantity = 0.0 if gone else float(self._chance.randrange(1, 20))
            price: float | None = middle + (away if side == "Ask" else -away)
            if row and self._chance.random() < 0.15:  # odd numbers; None: none
                price, quantity = self._chance.choice(
                    ((None, quantity), (price, None), (price, -quantity), (price, -0.0))
                )
            self.rows["levels"].append(
                record
                | {
                    "row": row,
                    "side": side,
                    "price": price,
                    "quantity": quantity,
                }
            )

    def _event(self, kind: str, **more: Any) -> None:
        self.rows["events"].append(self._record(kind, **more) | {"kind": kind})

    def _gap(self, _: tuple[str, str]) -> None:
        self.rows["gaps"].append(
            self._record(
                "GAP",
                first_number=5,
                last_number=5,
                lost=self._chance.randrange(1, 9),
                reason=self._chance.choice(("COUNT", "TIME")),
                waited_ns=self._chance.randrange(1000),
            )
        )

    def _race(self, _: tuple[str, str]) -> None:
        self._now_ns += 1000
        winner = self._chance.choice((0, 0, 1))
        alone = self._chance.random() < 0.1
        lead = None if alone else int(self._chance.lognormvariate(11, 1.5)) - 9000
        delays = [0 if line == winner else lead for line in (0, 1)]
        self.rows["races"].append(
            {
                "feed": "deribit",
                "position": self._position,
                "received_ns": self._now_ns,
                "stream": self._chance.choice((0, 0, 1)),
                "completed": self._chance.random() < 0.5,
                "winner": winner,
                "lead_ns": lead,
                "delays_ns": delays,
            }
        )

    def _latency(self) -> None:
        for minute in range(3):
            for hop in ("kernel_to_loop", "loop_to_ring"):
                slots = sorted(self._chance.sample(range(100, 3000), 40))
                self.rows["latency"].append(
                    {
                        "feed": "deribit",
                        "position": 0,
                        "minute_ns": BEGIN_NS + minute * 60_000_000_000,
                        "stream": 0,
                        "hop": hop,
                        "slots": slots,
                        "values_ns": slots,
                        "counts": [self._chance.randrange(1, 500) for _ in slots],
                    }
                )


def write_export(root: Path, seed: int) -> None:
    """Leave below `root` what `udpfast export` would."""
    SmallExport(seed).write(root)
    entry = Entry(
        feed="feed",
        journal="5eed" * 8,
        directory="journal",
        raw=False,
        segment=1,
        index=0,
        end_index=1,
        position=0,
        end_position=1,
        records=1,
        missing=0,
        last=None,
        nameless=False,
        tables=(),
        payloads=False,
        files=(),
    )
    write_entry(root, entry)


def contents(out: Path, name: str) -> list[str]:
    """Return a gold table's rows in an order of their own; sums of floats to 9 digits."""
    rows = Gold(str(out)).table(name, 100_000).to_pylist()
    return sorted(
        str([f"{value:.9g}" if isinstance(value, float) else value for value in row.values()])
        for row in rows
    )
