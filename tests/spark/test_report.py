"""The report of tables that are longer than what it shows of them."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from udpfast.spark.gold import Gold
from udpfast.spark.reasons import LOST, lost_by
from udpfast.spark.report import ROWS_MAX, page, read_report, text_tables

HOUR = datetime.timedelta(hours=1)
BEGIN = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
HOURS = ROWS_MAX + 30


def write_losses(out: Path) -> None:
    """Write hours of losses: of two feeds, one message each, all of the last hours."""
    zeros = ("gaps", "stale", "recovered", *map(lost_by, LOST))
    rows: list[dict[str, Any]] = []
    for feed in ("east", "west"):
        for hour in range(HOURS):
            lost = int(hour >= ROWS_MAX)
            row = {"feed": feed, "stream": 0, "hour": BEGIN + hour * HOUR, "messages": 10}
            row |= {"lost": lost, "longest": lost, "waited_ns_max": lost}
            row |= {"loss": lost / 10, "first_ns": hour, "last_ns": hour + 1}
            rows.append(row | dict.fromkeys(zeros, 0) | {"lost_by_gap_time": lost})
    (out / "gold/losses").mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), out / "gold/losses/part.parquet")
    job = {"question": "Lost?", "rows": len(rows), "seconds": 0.1}
    run = {"sources": ["here"], "finished": "2026-11-23T00:00:00+00:00", "master": "local"}
    run |= {"spark": "4", "parameters": {}, "jobs": {"losses": job}}
    (out / "run.json").write_text(json.dumps(run))


def test_answers_are_of_all_rows_on_page_terminal_and_in_json(tmp_path: Path) -> None:
    write_losses(tmp_path)
    gold = Gold(str(tmp_path))
    report = read_report(gold)
    assert report["feeds"] == ["east", "west"]
    assert (report["first_ns"], report["last_ns"]) == (0, HOURS)
    texts = [text for _, text in report["answers"]]
    assert [text.partition(" (")[0] for text in texts if "were lost" in text] == [
        f"{feed}: 30 of 830 messages were lost" for feed in ("east", "west")
    ]
    assert len(report["jobs"]["losses"]["table"]) == ROWS_MAX
    whole = page(gold)
    lines = list(text_tables(read_report(gold, 3), 3))
    for text in texts:
        assert text in whole and text in lines
    assert json.loads(json.dumps(report))["answers"] == [list(each) for each in report["answers"]]
