"""Filters that a source takes over: whatever they say, the rows are those that Spark would keep."""

import datetime
import random
from pathlib import Path
from typing import Any

import pytest

from udpfast.core.layout import Kind
from udpfast.export.scan import Scan
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS

EDGES = (-(1 << 63), -1, 0, 1, 255, 256, (1 << 63) - 1)
DAYS = (datetime.date.min, datetime.date(1969, 12, 31), datetime.date(2026, 11, 21))
COLUMNS = ("position", "published_ns", "received_ns", "number", "line", "stream", "kind", "date")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a journal whose clock jumps, before 1970 too; its numbers take all their bits."""
    directory = tmp_path_factory.mktemp("journal")
    chance = random.Random(1)
    with Journal.open(directory, LAYOUTS, segment_bytes=1 << 18) as journal:
        for number in range(3_000):
            wire = chance.choice((1, 255, 256, (1 << 31) - 1, 1 << 31, (1 << 63) - 1))
            kind = chance.choice((Kind.GAP, Kind.STALE, Kind.SESSION))
            times = (-(10**15), 0, 1, 255, 10**18)[: 1 if number < 1_500 else 5]
            at_ns = [chance.choice(times) for _ in range(2)]
            journal.append(kind, bytes(64), 0, at_ns[0], at_ns[1], number=wire)
    return directory


def rows(scan: Scan) -> list[dict[str, Any]]:
    """Return all rows of a scan."""
    return [
        row for piece in scan.pieces() for batch in scan.batches(piece) for row in batch.to_pylist()
    ]


def test_pushed_filters_keep_what_spark_would(journal: Path) -> None:
    from pyspark.sql import datasource

    from udpfast.spark.source import _push

    compare = {
        datasource.EqualTo: lambda value, bound: value == bound,
        datasource.GreaterThan: lambda value, bound: value > bound,
        datasource.GreaterThanOrEqual: lambda value, bound: value >= bound,
        datasource.LessThan: lambda value, bound: value < bound,
        datasource.LessThanOrEqual: lambda value, bound: value <= bound,
        datasource.In: lambda value, bound: value in bound,
    }
    whole = Scan(str(journal), columns=COLUMNS, piece_bytes=1 << 16)
    everything = rows(whole)
    chance = random.Random(2)
    for _ in range(80):
        scan, expected = whole, everything
        for _ in range(chance.randrange(1, 4)):
            name = chance.choice(COLUMNS)
            values: Any = (
                ("GAP", "NONSENSE")
                if name == "kind"
                else (*DAYS, datetime.date.max)
                if name == "date"
                else (*EDGES, chance.choice(everything)[name])
            )
            kinds = (datasource.EqualTo, datasource.In) if name == "kind" else tuple(compare)
            kind = chance.choice(kinds)
            bound = tuple(values[:2]) if kind is datasource.In else chance.choice(values)
            changed = _push(scan, kind((name,), bound))
            if changed is not None:
                scan = changed
                holds = compare[kind]
                expected = [row for row in expected if holds(row[name], bound)]
        assert rows(scan) == expected, (scan.kinds, scan.conditions)
