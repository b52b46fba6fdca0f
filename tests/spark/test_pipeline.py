"""From an export to gold and a page: at once, and as a stream that is broken off and goes on."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.export.market import make_journal
from tests.spark.small_export import SmallExport, contents, write_export
from udpfast.cli.spark import spark as verb
from udpfast.errors import ConfigError, FormatError
from udpfast.export.exporter import Exporter
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS
from udpfast.spark.bronze import Bronze
from udpfast.spark.gold import Gold
from udpfast.spark.jobs import JOBS, Parameters, book
from udpfast.spark.pipeline import (
    Ran,
    begin_run,
    run_jobs,
    stream_jobs,
    write_run,
    write_silver,
    writer,
)
from udpfast.spark.shown import TITLES
from udpfast.spark.silver import SILVER
from udpfast.spark.spans import spans

SEED = 20_261_121


#: Jobs of which this feed has nothing.
NOT_HERE = ("orders", "bus", "seen")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export as `udpfast export` leaves one."""
    root = tmp_path_factory.mktemp("export")
    write_export(root, SEED)
    return root


@pytest.fixture(scope="module")
def out(spark, export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what `udpfast spark run` makes of it; the session is the one that is there."""
    out = tmp_path_factory.mktemp("out")
    arguments = ["run", str(export), str(out), "--bar-s", "2", "--json"]
    result = CliRunner().invoke(verb, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert list(report["jobs"]) == [name for name in JOBS if name not in NOT_HERE]
    assert report["parameters"]["bar_s"] == 2
    return out


def test_job_of_a_bus_is_run_when_it_is_asked_for(spark, export: Path, tmp_path: Path) -> None:
    arguments = ["run", str(export), str(tmp_path), "--job", "bus", "--job", "losses", "--json"]
    result = CliRunner().invoke(verb, arguments, catch_exceptions=False)
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["jobs"]["bus"]["rows"] == 0 < report["jobs"]["losses"]["rows"]
    said = f"No data was kept for: {TITLES['bus']}."
    assert said in (tmp_path / "report.html").read_text()


def test_batch_of_a_stream_has_the_books_of_what_it_read_found_out_once(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(book, "spans", lambda *of: calls.append(of) or spans(*of))
    rows, early = SmallExport(SEED), SmallExport(SEED)
    half = rows.rows["messages"][200]["position"]
    for name, own in early.rows.items():
        early.rows[name] = [row for row in own if row["position"] < half]
    root, batch, stream = (tmp_path / name for name in ("export", "batch", "stream"))
    early.write(root)
    bronze = Bronze(spark, (str(root),))
    jobs = [JOBS["book"], JOBS["depth"]]
    assert [ran.failure for ran in run_jobs(bronze, str(batch), jobs, Parameters())] == ["", ""]
    assert len(calls) == 1
    job = JOBS["book"]
    whole = job.reduce(bronze, Parameters()).persist()
    assert whole.count()
    rows.write(root, part=1, since=half)  # comes while the table is made
    writer(job, replace(bronze, streaming=True), str(stream), Parameters())(whole, 0)
    assert contents(stream, job.name) == contents(batch, job.name) != []


@pytest.mark.nightly  # a quarter of a minute; the test above and those of the source have streams
@pytest.mark.parametrize("names", [("losses", "book"), ("rates", "races", "bars", "spreads")])
def test_stream_that_goes_on_ends_like_a_batch(
    spark, tmp_path: Path, names: tuple[str, ...]
) -> None:
    rows = SmallExport(SEED)
    half = rows.rows["messages"][200]["position"]
    root, batch, stream = (tmp_path / name for name in ("export", "batch", "stream"))
    early = SmallExport(SEED)
    for name, own in early.rows.items():
        early.rows[name] = [row for row in own if row["position"] < half]
    early.write(root)
    bronze = Bronze(spark, (str(root),))
    jobs = [JOBS[name] for name in names]
    parameters = Parameters(bar_s=2)
    first = list(stream_jobs(bronze, str(stream), jobs, parameters))
    half_done = {job.name: contents(stream, job.name) for job in jobs}
    rows.write(root, part=1, since=half)
    second = list(stream_jobs(bronze, str(stream), jobs, parameters))
    list(run_jobs(bronze, str(batch), jobs, parameters))
    assert [ran.name for ran in first] == [ran.name for ran in second] == [j.name for j in jobs]
    for job in jobs:
        assert contents(stream, job.name) == contents(batch, job.name), job.name
        assert contents(stream, job.name) != half_done[job.name], job.name


def test_silver_tables_are_written_typed(spark, export: Path, tmp_path: Path) -> None:
    ran = list(write_silver(Bronze(spark, (str(export),)), str(tmp_path)))
    assert [one.name for one in ran] == [f"silver {name}" for name in SILVER]
    trades = spark.read.parquet(f"{tmp_path}/silver/trades")
    assert trades.schema["notional"].dataType.simpleString() == "double"
    assert trades.count() == next(one.rows for one in ran if one.name == "silver trades")


def test_times_are_written_as_utc_for_every_reader(spark, tmp_path: Path) -> None:
    spark.sql("SELECT timestamp_seconds(1) AS time").write.parquet(f"{tmp_path}/times")
    found = pq.read_schema(next(tmp_path.glob("times/*.parquet")))
    assert str(found.field("time").type) == "timestamp[us, tz=UTC]"


class Page(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in {"link", "img", "iframe"}:
            self.fetched.append(tag)
        self.fetched += [
            f"{tag} {name}={value}"
            for name, value in attributes
            if name in {"src", "href", "xlink:href"} and not str(value).startswith("#")
        ]


def test_page_is_one_file_with_a_figure_and_a_table_per_job(out: Path) -> None:
    text = (out / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.fetched == []
    assert "default-src 'none'" in text
    ran = json.loads((out / "run.json").read_text())["jobs"]
    assert all(job["rows"] for job in ran.values())
    for name in JOBS:
        answered = name not in NOT_HERE
        assert (f'<h2 id="{name}">' in text) == (f'<a href="#{name}">' in text) == answered
    assert "No data was kept for" not in text
    assert text.count('class="chart"') >= 5
    assert text.count("<table") == len(JOBS) - len(NOT_HERE) + 1
    assert ran["losses"]["rows"] == 2
    assert re.search(r'<li class="bad">\d+ of [\d,]+ messages were lost', text)


def test_report_needs_neither_spark_nor_java(out: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from udpfast.cli.spark import spark; "
        f"spark(['report', {str(out)!r}, '--html', {str(tmp_path / 'page.html')!r}, '--json'], "
        "standalone_mode=False); assert 'pyspark' not in sys.modules, 'pyspark was imported'"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["jobs"]["instruments"]["columns"][:3] == ["feed", "exchange", "symbol"]
    assert (tmp_path / "page.html").read_text() == (out / "report.html").read_text()


def test_report_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"`udpfast spark run`.* none"):
        Gold(str(tmp_path)).run()


def test_run_refuses_a_job_that_is_none(tmp_path: Path) -> None:
    arguments = ["run", str(tmp_path), str(tmp_path), "--job", "bar"]
    error = CliRunner().invoke(verb, arguments).exception
    assert isinstance(error, ConfigError)
    assert "job must be one of losses, rates, lines" in str(error)
    assert str(error).endswith("was 'bar'; did you mean 'bars'?")


def test_run_refuses_to_write_into_its_source(export: Path) -> None:
    error = CliRunner().invoke(verb, ["run", str(export), str(export)]).exception
    assert isinstance(error, ConfigError)
    assert "OUT must not be the export itself" in str(error)


def test_run_refuses_a_source_that_is_none(tmp_path: Path) -> None:
    error = CliRunner().invoke(verb, ["run", str(tmp_path / "x"), str(tmp_path)]).exception
    assert isinstance(error, FileNotFoundError)
    assert "no such journal" in str(error)


@pytest.mark.parametrize(
    "names",
    [
        ("losses", "instruments", "hops", "races"),
        pytest.param(("lines", "bars", "depth"), marks=pytest.mark.nightly),
    ],
)
def test_journal_read_as_it_is_answers_like_its_export(
    spark, tmp_path: Path, names: tuple[str, ...]
) -> None:
    (tmp_path / "market").mkdir()
    journal = make_journal(tmp_path / "market", 20)
    list(Exporter(journal, tmp_path / "export").run())
    jobs = [JOBS[name] for name in names]
    for out, root in (("direct", f"journal:{journal}"), ("exported", f"{tmp_path}/export")):
        list(run_jobs(Bronze(spark, (root,)), str(tmp_path / out), jobs, Parameters()))
    for job in jobs:
        found = contents(tmp_path / "direct", job.name)
        assert found == contents(tmp_path / "exported", job.name), job.name
        # No race was captured, and the market ends with a restart, behind which no book is known.
        assert bool(found) == (job.name not in ("races", "lines", "depth")), job.name


@pytest.mark.parametrize("of", ["journal", "export"])
def test_run_refuses_what_has_no_records_before_spark_starts(of: str, tmp_path: Path) -> None:
    Journal.open(tmp_path / "journal", LAYOUTS).close()
    (tmp_path / "export" / "_manifest" / "feed").mkdir(parents=True)
    error = CliRunner().invoke(verb, ["run", str(tmp_path / of), str(tmp_path)]).exception
    assert isinstance(error, FormatError)
    assert "found no finished segment" in str(error)


def test_export_that_is_not_there_is_refused(spark, export: Path) -> None:
    Bronze(spark, (str(export),)).check()
    with pytest.raises(FormatError, match=r"nowhere: .*none of its tables"):
        Bronze(spark, (str(export), f"file://{export}/nowhere")).check()


def test_journals_of_one_feed_count_once_each(spark, tmp_path: Path) -> None:
    journals = []
    for day, rounds in (("mon", 6), ("tue", 3)):
        (tmp_path / day).mkdir()
        journals.append(make_journal(tmp_path / day, rounds))
    out = tmp_path / "out"

    def run(*sources: Path) -> dict:
        arguments = ["run", *map(str, sources), str(out), "--job", "losses", "--json"]
        result = CliRunner().invoke(verb, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        report: dict = json.loads(result.stdout.splitlines()[-1])
        return report

    def messages(report: dict) -> int:
        losses = report["jobs"]["losses"]
        at = losses["columns"].index("messages")
        return sum(row[at] for row in losses["table"])

    week = run(*journals)
    monday, tuesday = run(journals[0]), run(journals[1])
    assert messages(monday) + messages(tuesday) == messages(week)
    assert messages(monday) == 2 * messages(tuesday) > 0
    assert messages(run(journals[1], journals[1])) == messages(tuesday)
    assert len(list((out / "export").iterdir())) == 2


def test_run_refuses_records_that_two_sources_have(tmp_path: Path) -> None:
    (tmp_path / "market").mkdir()
    journal = make_journal(tmp_path / "market", 3)
    list(Exporter(journal, tmp_path / "export").run())
    arguments = ["run", str(journal), str(tmp_path / "export"), str(tmp_path / "out")]
    error = CliRunner().invoke(verb, arguments).exception
    assert isinstance(error, ConfigError)
    assert "have the same records of messages" in str(error)


def test_place_holds_what_was_asked_for_last(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    about = {"of": {"roots": [["a", "1"]]}, "parameters": {"bar_s": 1}}
    begin_run(out, about, stream=False)
    (tmp_path / "out/gold/losses").mkdir(parents=True)
    (tmp_path / "out/gold/mine").mkdir()
    write_run(out, [Ran("losses", 1, 0.1)], about)
    begin_run(out, about, stream=False)
    assert list(Gold(out).run()["jobs"]) == ["losses"]
    begin_run(out, about | {"of": {"roots": [["a", "2"]]}}, stream=False)
    assert Gold(out).run()["jobs"] == {}
    assert [path.name for path in (tmp_path / "out/gold").iterdir()] == ["mine"]


@pytest.mark.parametrize("change", [{"of": {"roots": [["a", "2"]]}}, {"parameters": {"bar_s": 2}}])
@pytest.mark.parametrize("stream", [False, True])
def test_place_of_a_stream_is_its_own(tmp_path: Path, change: dict, stream: bool) -> None:
    about = {"of": {"roots": [["a", "1"]]}, "parameters": {"bar_s": 1}}
    for _ in range(2):
        begin_run(str(tmp_path), about, stream=True)
    with pytest.raises(ConfigError, match="other sources or parameters"):
        begin_run(str(tmp_path), about | change, stream=stream)
