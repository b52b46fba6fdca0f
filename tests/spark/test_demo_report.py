"""The demonstration as `make demo` starts it: it ends with a page of what it just did."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from udpfast.cli.demo_report import make_report, what_a_report_lacks
from udpfast.cli.spark import spark as verb
from udpfast.errors import UdpfastError
from udpfast.spark.gold import Gold
from udpfast.spark.reasons import IN_GAPS, lost_by

#: So many losses that both lines lose some of the same, whatever else comes when.
LOSSY = "from udpfast.cli import demo; demo.LOSS = 0.05; "


def run_demo(program: str, out: Path) -> tuple[str, dict[str, Any]]:
    """Return the line that tells of the report, and what was counted of the incremental channel."""
    options = ("--simulate", "--seconds", "3", "--report", str(out), "--json")
    result = subprocess.run(
        [sys.executable, "-c", f"{LOSSY}{program}demo.demo()", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    *_, line, summary = result.stdout.splitlines()
    return line, json.loads(summary)["counters"]["incremental"]


def assert_agree(out: Path, counted: dict[str, Any]) -> None:
    """Compare a report's losses with what the feed itself counted."""
    rows = Gold(str(out)).table("losses", 1000).to_pylist()
    own = [row for row in rows if row["stream"] == 0]
    assert sum(row["gaps"] for row in own) == counted["gaps"]
    # What a session says that it has not seen is lost, too, and in no gap.
    in_gaps = sum(row[lost_by(reason)] for row in own for reason in IN_GAPS)
    assert in_gaps == counted["lost"] > 0


@pytest.mark.nightly  # a demonstration and a report, half a minute
@pytest.mark.system
def test_what_a_demo_kept_gives_the_losses_that_it_counted(spark: Any, tmp_path: Path) -> None:
    program = "demo.make_report = lambda kept: kept / 'journal'; "
    line, counted = run_demo(program, tmp_path)
    out = tmp_path / "out"
    assert line == f"report: {tmp_path / 'journal'}"
    words = ["run", str(tmp_path / "journal"), str(out), "--bar-s", "1", "--job", "losses"]
    assert CliRunner().invoke(verb, words, catch_exceptions=False).exit_code == 0
    assert (out / "report.html").exists()
    assert_agree(out, counted)


@pytest.mark.nightly  # all jobs in a session of their own: the test above has one of them
@pytest.mark.usefixtures("installed")
def test_demo_ends_with_the_path_of_a_report_that_agrees_with_it(tmp_path: Path) -> None:
    line, counted = run_demo("", tmp_path)
    page = tmp_path / "report.html"
    assert line == f"report: {page}"
    assert 'class="chart"' in page.read_text()
    assert not (tmp_path / "journal").exists()
    assert_agree(tmp_path, counted)


@pytest.mark.parametrize("code", [0, 1])
def test_report_is_made_of_what_was_kept_which_goes_if_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr("udpfast.cli.demo_report.subprocess.run", run)
    journal = tmp_path / "journal"
    journal.mkdir()
    if code:
        with pytest.raises(UdpfastError, match="exit code 1"):
            make_report(tmp_path)
    else:
        assert make_report(tmp_path) == tmp_path / "report.html"
    assert journal.exists() == bool(code)
    ((python, *words),) = ran
    assert python == sys.executable
    assert words[:4] == ["-m", "udpfast", "spark", "run"]
    given = verb.commands["run"].make_context("run", words[4:]).params
    assert (given["sources"], given["out"]) == ((str(journal),), str(tmp_path))


def test_report_lacks_java_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("udpfast.spark.java.find_java.__defaults__", (tmp_path,))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    lacking = what_a_report_lacks()
    assert lacking is not None
    assert lacking.startswith("Spark needs Java 17 or newer")
    assert "\n" not in lacking
