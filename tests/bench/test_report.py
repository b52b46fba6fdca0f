"""The page and its figures: nothing from outside, everything escaped, every row there."""

import dataclasses
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.main import bench
from bench.result import Result, Writer, joined, percentiles, sparse
from tests.bench.fakes import HOST, row
from tests.shared import ROOT
from udpfast.shm.histogram import LatencyHistogram

pytest.importorskip("matplotlib", reason="figures need the extra [bench]")

from matplotlib.colors import to_hex, to_rgb

from bench import drawing, plots
from bench.report import write_report


def latencies(*values: int) -> LatencyHistogram:
    """Return a histogram."""
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    return histogram


def latency_row(variant: str, rate: int, *values: int, **changes: object):
    """Return a row of the benchmark "latency"."""
    histogram = latencies(*values)
    return row(
        variant,
        benchmark="latency",
        parameters={"rate": rate, "size": 80},
        latency=percentiles(histogram),
        counts=sparse(histogram),
        **changes,
    )


ROWS = [
    row("C recvmmsg", base="C recvmmsg", ratio=1.0, less="no order", version="gcc 12"),
    row("udpfast <b>", base="C recvmmsg", ratio=1.1, goal="P1: <= 1.15"),
    row("udpfast <b>", placement="FAR", base="C recvmmsg", ratio=1.4, goal="P1: <= 1.3"),
    latency_row("to ring", 1000, 1000, 2000, 90_000, hops={"kernel to loop": {"p50": 900.0}}),
    latency_row("to ring", 10_000, 1000, 2500, 80_000),
]


def result(rows=ROWS) -> Result:
    """Return a whole result."""
    found = Result(Path("x.jsonl"), dataclasses.asdict(HOST), list(rows), end={"seconds": 1.0})
    found.benchmarks["drain"] = {"question": "What does it cost?", "topology": "  a -> b\n"}
    found.failures.append({"benchmark": "ring", "reason": "RuntimeError: lost 3"})
    found.notes.append({"benchmark": "peers", "note": "lcm left out"})
    return found


class Page(HTMLParser):
    """Notes tags that are open at the end, and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        if tag not in {"meta"}:
            self.open.append(tag)
        names = {"src", "href", "xlink:href", "data", "srcset"}
        self.fetched += [v for k, v in attrs if k in names and not v.startswith("#")]
        self.fetched += [tag] if tag in {"script", "link", "iframe", "img", "object"} else []

    def handle_startendtag(self, tag, attrs) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag


def page_of(whole: Result, tmp_path: Path) -> str:
    """Return the page."""
    write_report(whole, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_report_fetches_nothing_and_closes_its_tags(tmp_path: Path) -> None:
    text = page_of(result(), tmp_path)
    page = Page()
    page.feed(text)
    assert page.fetched == [] and page.open == []
    assert "@import" not in text and not re.search(r"url\((?!#)", text)


def test_report_says_all_that_was_found(tmp_path: Path) -> None:
    text = page_of(result(), tmp_path)
    for words in (
        *(
            "Goals: <b",
            "1 met",
            "1 not met",
            "What does it cost?",
            "a -&gt; b",
            "udpfast &lt;b&gt;",
        ),
        *("no order", "gcc 12", "all read", "RuntimeError: lost 3", "lcm left out", "0123456789ab"),
        *("P1: &lt;= 1.15", "1.40", "2.00", "percentile"),
    ):
        assert words in text, words
    assert "broken off" not in text
    cut = result()
    cut.end = None
    assert "The run was broken off" in page_of(cut, tmp_path)


def test_report_has_a_figure_for_each_kind_of_row(tmp_path: Path) -> None:
    names = [plot.name for plot in write_report(result(), tmp_path / "report.html")]
    assert names == [
        "drain-variants-size-80-near",
        "latency-over-rate-size-80-near",
        "latency-percentiles-size-80-near",
        "latency-hops",
    ]
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == text.count("</svg>") == len(names)
    assert "var(--ink)" in text and drawing.INK not in text.partition("</style>")[2]


def test_report_of_one_lonely_row_and_of_none_is_a_page(tmp_path: Path) -> None:
    assert "<h2" in page_of(result([row()]), tmp_path)
    assert "<h2" in page_of(result([]), tmp_path)


def test_bars_have_the_colours_and_ratios_that_the_captions_tell() -> None:
    """Blue is ours, whatever it is compared with; a ratio to another base than most names it."""
    rows = [
        row("C recvmmsg", base="C recvmmsg", ratio=1.0, version="gcc 12"),
        row("C recv", base="C recvmmsg", ratio=1.5, version="gcc 12"),
        row("udpfast", base="C recvmmsg", ratio=1.1),
        row("udpfast receive only", base="C recvmmsg", ratio=1.01),
        row("udpfast, two lines", base="udpfast", ratio=1.03),
    ]
    (plot,) = plots.bar_plots("drain", rows)
    canvas = drawing.render(plot)
    (axis,) = canvas.axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    colours = {bar.get_y() + bar.get_height() / 2: bar.get_facecolor() for bar in axis.patches}
    drawn = {names[round(place)]: to_hex(colour) for place, colour in colours.items()}
    blue, grey, orange = plots.OWN[0], plots.MUTED, plots.PEERS[0]
    assert drawn == {
        "C recvmmsg": grey, "C recv": orange, "udpfast": blue, "udpfast receive only": blue,
        "udpfast, two lines": blue,
    }  # fmt: skip
    for colour, order in ((blue, "bgr"), (orange, "rgb")):  # as the caption calls them
        red, green, value = to_rgb(colour)
        parts = {"r": red, "g": green, "b": value}
        assert sorted(parts, key=parts.__getitem__, reverse=True) == list(order)
    assert max(to_rgb(grey)) - min(to_rgb(grey)) < 0.1
    said = dict(
        zip(names, (text.get_text().partition("x ")[2] for text in axis.texts), strict=True)
    )
    assert said == {
        "C recvmmsg": "", "C recv": "1.50", "udpfast": "1.10", "udpfast receive only": "1.01",
        "udpfast, two lines": "1.03 udpfast",
    }  # fmt: skip
    assert axis.get_title().endswith("x: times C recvmmsg")
    assert plots.BARS in plot.caption and plots.RATIOS in plot.caption


def test_curves_have_the_colours_of_their_names() -> None:
    rows = [latency_row(name, 1000, 1000, 2000, 90_000) for name in ("A", "B", "udpfast ring")]
    (plot,) = plots.curve_plots("peers", rows)
    (axis,) = drawing.render(plot).axes
    named = {text.get_text(): to_hex(text.get_color()) for text in axis.texts}
    assert len(set(named.values())) == len(rows)
    assert sorted(named.values()) == sorted(to_hex(line.get_color()) for line in axis.lines)
    assert plots.CURVES in plot.caption


def test_captions_of_the_page_are_those_of_the_figures_and_pictures_fit_it() -> None:
    text = " ".join((ROOT / "docs/benchmarks.md").read_text().split())
    for sentence in (plots.BARS, plots.RATIOS.partition(", not")[0], plots.CURVES):
        assert sentence in text, sentence
    shown = set(re.findall(r"\(images/(\S+?\.png)", text))
    named = set(re.findall(r"--figure (\S+?)(?=`| )", text))
    assert {f"{name}.png" for name in named} <= shown
    for path in (ROOT / "docs/images").glob("*.png"):
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        assert width <= 1200 and height <= 1200, path


def test_png_is_as_wide_as_a_page(tmp_path: Path) -> None:
    (plot, *_) = write_report(result(), tmp_path / "report.html")
    data = drawing.save_png(plot, tmp_path).read_bytes()
    assert struct.unpack(">I", data[16:20]) == (1200,)


def test_curve_ends_where_the_samples_end() -> None:
    nines, latency = plots.curve(latency_row("A", 1000, *range(1, 2001)))
    assert nines[0] == 1.0 and nines[-1] == pytest.approx(2000)
    assert latency[0] == pytest.approx(0.001) and latency[-1] == pytest.approx(2.0)
    assert np.all(np.diff(nines) > 0) and np.all(np.diff(latency) > 0)
    half = int(np.searchsorted(nines, 2.0))
    assert latency[half] == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("places", [[0, 1, 2], [0, 0, 0, 50], [0, 30, 60]])
def test_apart_keeps_order_and_distance(places: list[float]) -> None:
    moved = drawing.apart(places, 10)
    assert np.all(np.diff(moved) > 9.9)
    assert sum(moved) == pytest.approx(sum(places))


def test_joined_newer_row_replaces_the_older() -> None:
    newer = row("udpfast <b>", values=[9.0], base="C recvmmsg")
    whole = joined([result(), result([newer])])
    assert whole.rows == [ROWS[0], newer, *ROWS[2:]]
    assert len(whole.failures) == 2


def write(path: Path, rows=ROWS, **host: object) -> str:
    """Write a file of results."""
    with path.open("w") as file:
        writer = Writer(file)
        writer.write("host", dataclasses.asdict(HOST) | host)
        for item in rows:
            writer.row(item)
    return str(path)


def test_report_verb_writes_page_and_the_figures_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    png = tmp_path / "images"
    done = CliRunner().invoke(
        bench, ["report", path, "--png", str(png), "--figure", "drain-variants-size-80-near"]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.html").exists()
    (made,) = png.iterdir()
    assert made.name == "drain-variants-size-80-near.png" and made.read_bytes().startswith(
        b"\x89PNG"
    )


def test_report_verb_refuses_unknown_figures_and_two_hosts(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", cpu="Xeon")
    done = CliRunner().invoke(bench, ["report", first, "--figure", "rabbit"])
    assert done.exit_code == 2 and "expected drain-variants" in done.output
    done = CliRunner().invoke(bench, ["report", first, second])
    assert done.exit_code == 2 and "cpu EPYC -> Xeon" in done.output


def test_report_ratios_to_two_bases_say_to_which(tmp_path: Path) -> None:
    one = page_of(result(ROWS[:2]), tmp_path)
    two = page_of(result([*ROWS[:2], row("swapped", base="udpfast", ratio=1.02)]), tmp_path)
    assert ">of udpfast<" not in one
    assert '1.02 <span class="muted">of udpfast</span>' in two
