"""The demonstration as `make demo` starts it: it ends with a page of what it just did."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from udpfast.cli.demo_report import what_a_report_lacks
from udpfast.spark.gold import Gold
from udpfast.spark.reasons import IN_GAPS, lost_by

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.mark.usefixtures("installed")
def test_demo_ends_with_the_path_of_a_report_that_agrees_with_it(tmp_path: Path) -> None:
    # So many losses that both lines lose some of the same, whatever else comes when.
    demo = "from udpfast.cli import demo; demo.LOSS = 0.05; demo.demo()"
    options = ("--simulate", "--seconds", "3", "--report", str(tmp_path), "--json")
    result = subprocess.run(
        [sys.executable, "-c", demo, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    *_, line, summary = result.stdout.splitlines()
    page = tmp_path / "report.html"
    assert line == f"report: {page}"
    assert 'class="chart"' in page.read_text()
    assert not (tmp_path / "journal").exists()
    values = json.loads(summary)["counters"]["incremental"]
    rows = Gold(str(tmp_path)).table("losses", 1000).to_pylist()
    own = [row for row in rows if row["stream"] == 0]
    assert sum(row["gaps"] for row in own) == values["gaps"]
    # What a session says that it has not seen is lost, too, and in no gap.
    in_gaps = sum(row[lost_by(reason)] for row in own for reason in IN_GAPS)
    assert in_gaps == values["lost"] > 0


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
