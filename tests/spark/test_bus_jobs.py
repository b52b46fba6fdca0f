"""What the jobs `bus` and `seen` find in a composite, beside the same counted in Python."""

import json
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from tests.bus.drive import lead, register, send
from tests.client.test_composite_source import Composite
from tests.spark.test_jobs import table
from udpfast.archive.bus_files import copy_directory
from udpfast.cli.main import cli
from udpfast.client.composite_copy import CompositeCopy
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.shm.histogram import LatencyHistogram
from udpfast.spark.bronze import Bronze
from udpfast.spark.bus_answers import UNKNOWN, UNSEEN
from udpfast.spark.jobs import Parameters

MS = 1_000_000


@pytest.fixture(scope="module")
def composite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the copy of a composite lies: three senders, ten seconds, up to 9 ms late."""
    folder = tmp_path_factory.mktemp("bus")
    both = Composite(folder)
    register(both.seqs[1], name="second", nonce=2)
    chance = random.Random(7)
    sent: defaultdict[tuple[int, int], int] = defaultdict(int)
    with CompositeCopy(str(folder / "order")) as copying:
        for turn in range(1, 1000):
            at, sender = chance.choice([(0, 1), (1, 1), (1, 2)])
            count = chance.randrange(1, 5)
            send(both.seqs[at], sent[at, sender] + 1, count, sender=sender, now_ns=turn * 10 * MS)
            sent[at, sender] += count
            both.now_ns = turn * 10 * MS + chance.randrange(1, 9) * MS
            both.work()
            while copying.turn():
                pass
    assert len(sent) == 3
    return copy_directory(folder / "order")


def seen(copy: Path) -> dict[tuple[str, int], list[int]]:
    """Return how long after its stamp each message of each sender was taken."""
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    with Reader(f"journal:{copy}") as reader:
        for record in reader:
            if record.kind is Kind.BUS:
                key = (f"s{record.session}", record.object & 0xFFFF)
                found[key].append(record.received_ns - record.published_ns)
    return found


def test_senders_are_whole_and_as_late_as_they_were(spark, composite: Path) -> None:
    expected = seen(composite)
    rows = table(Bronze(spark, (f"journal:{composite}",)), "bus")
    assert {(row["session"], row["sender"]): row["name"] for row in rows} == {
        ("s1", 1): "a", ("s2", 1): "b", ("s2", 2): "second",
    }  # fmt: skip
    for row in rows:
        own = expected[row["session"], row["sender"]]
        histogram = LatencyHistogram()
        for value in own:
            assert 0 < value < 20 * MS
            histogram.record(value)
        assert row["messages"] == len(own) == row["last_number"]
        assert (row["missing"], row["twice"], row["whole"], row["taken_back"]) == (0, 0, True, 0)
        for name, percent in (("p50", 50), ("p99", 99), ("p99_9", 99.9)):
            assert row[f"seen_{name}_ns"] == histogram.percentile(percent), name
        assert row["seen_max_ns"] == pytest.approx(max(own), rel=1e-3)


def test_periods_have_all_messages(spark, composite: Path) -> None:
    rows = table(Bronze(spark, (f"journal:{composite}",)), "seen", Parameters(bar_s=1))
    assert len({row["time"] for row in rows}) == 10
    counts: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["session"]] += row["count"]
        assert 0 < row["p50_ns"] <= row["max_ns"]
    expected: defaultdict[str, int] = defaultdict(int)
    for (session, _), own in seen(composite).items():
        expected[session] += len(own)
    assert counts == expected


def test_what_is_missing_or_twice_is_found(spark, composite: Path, tmp_path: Path) -> None:
    export = tmp_path / "export"
    assert CliRunner().invoke(cli, ["export", str(composite), str(export)]).exit_code == 0
    for path in (export / "bus").rglob("*.parquet"):
        rows = parquet.read_table(path, partitioning=None)
        session = path.parent.name
        own = rows.to_pylist()
        if session == "session=s1":
            keep = [at for at, row in enumerate(own) if row["number"] not in (5, 6)]
        else:
            first = next(at for at, row in enumerate(own) if row["sender"] == 1)
            lost = next(at for at, row in enumerate(own)
                        if row["sender"] == 2 and row["number"] == 9)  # fmt: skip
            again = next(at for at, row in enumerate(own)
                         if row["sender"] == 2 and row["number"] == 2)  # fmt: skip
            keep = [first, *(at for at in range(len(own)) if at != lost), again]
        parquet.write_table(rows.take(keep), path)
    found = {(row["session"], row["sender"]): row
             for row in table(Bronze(spark, (str(export),)), "bus")}  # fmt: skip
    assert [(found[key]["missing"], found[key]["twice"], found[key]["whole"]) for key in
            (("s1", 1), ("s2", 1), ("s2", 2))] == [
        (2, 0, False), (0, 1, False), (0, 0, False),
    ]  # fmt: skip


def test_report_of_a_composite_answers_first(spark, composite: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs = ["--job", "losses", "--job", "bus", "--job", "seen", "--bar-s", "1", "--json"]
    result = CliRunner().invoke(cli, ["spark", "run", str(composite), str(out), *jobs])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["feeds"] == ["order"] and report["inputs"] == {"order": ["a", "b"]}
    said = [text for _, text in report["answers"]]
    total = sum(map(len, seen(composite).values()))
    assert said[0] == (
        f"order: {total:,} messages from 3 senders, each there once. No number is missing between "
        "a sender's first and last."
    )
    assert any("second in b, from the sequencer's stamp until" in text for text in said)
    assert said[-1] == UNKNOWN
    assert not any("Nothing was lost" in text for text in said)  # which is of feeds
    page = (out / "report.html").read_text()
    assert page.count("<figure>") == 2 and page.count('class="chart"') == 3
    assert "What each sender sent" in page and "seen after, p50" in page


def test_report_of_a_store_says_what_it_cannot(spark, composite: Path, tmp_path: Path) -> None:
    store = composite.parent.parent / "a"
    out = tmp_path / "out"
    result = CliRunner().invoke(
        cli, ["spark", "run", f"journal:store:{store}", str(out), "--job", "bus", "--json"]
    )
    assert result.exit_code == 0, result.output
    said = [text for _, text in json.loads(result.stdout.splitlines()[-1])["answers"]]
    assert said[1:] == [UNSEEN, UNKNOWN] and "each there once" in said[0]


def test_what_was_taken_back_is_said(spark, tmp_path: Path) -> None:
    both = Composite(tmp_path / "bus")
    send(both.seqs[0], 1)
    kept = both.kept["a"].store
    position = kept.end
    send(both.seqs[0], 2, 3)
    both.work()
    with CompositeCopy(str(tmp_path / "bus" / "order")) as copying:
        while copying.turn():
            pass
        kept.cut(position)
        both.seqs[0] = lead(kept, promoted=True)
        send(both.seqs[0], 2, 3)
        both.work()
        while copying.turn():
            pass
    bronze = Bronze(spark, (f"journal:{copy_directory(tmp_path / 'bus' / 'order')}",))
    (row,) = table(bronze, "bus")
    assert (row["messages"], row["twice"], row["taken_back"]) == (7, 3, 3)
    assert table(replace(bronze, end_ns=0), "bus") == []


def test_composite_is_read_as_a_journal_is(spark, composite: Path) -> None:
    address = f"composite:{composite.parent}"
    rows = spark.read.format("udpfast").option("table", "bus").load(address)
    assert rows.count() == sum(map(len, seen(composite).values()))
