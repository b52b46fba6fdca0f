"""The page on several days, pasted block by block as a reader would."""

import os
import re
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from tests.export.market import make_journal
from tests.shared import ROOT

polars = pytest.importorskip("polars")
pytest.importorskip("duckdb")

PAGE = (ROOT / "docs" / "days.md").read_text()
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Rounds of a journal, 18 records each, so that it ends on the day after it began.
ROUNDS = 60


@pytest.fixture(scope="module")
def pasted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory in which the page ran, and what it printed."""
    folder = tmp_path_factory.mktemp("days")
    for name in ("deribit", "monday", "tuesday"):
        (folder / "journals").mkdir(exist_ok=True, mode=0o700)
        (folder / name).mkdir()
        make_journal(folder / name, ROUNDS).rename(folder / "journals" / name)
    commands = []
    for language, blocks in groupby(BLOCK.findall(PAGE), key=itemgetter(0)):
        content = "".join(block for _, block in blocks)
        commands.append(content if language == "sh" else f"python3 - <<'END'\n{content}END\n")
    here = folder / "here"
    here.mkdir()
    result = subprocess.run(
        ["bash", "-c", "set -e\n" + "".join(commands)],
        cwd=here,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "UDPFAST_JOURNALS": str(folder / "journals"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return here, result.stdout


def test_every_record_is_exported_once_whichever_way(pasted: tuple[Path, str]) -> None:
    here, _ = pasted
    positions = rows(here / "all", "messages")
    assert len(positions) == len(set(positions)) == 18 * ROUNDS
    days = [rows(day, "messages") for day in sorted((here / "day").iterdir())]
    assert len(days) == 2 and all(days)
    assert [*days[0], *days[1]] == positions
    # Those of the day that was exported again, too.
    assert len(rows(here / "all", "trades")) == 3 * ROUNDS


def test_second_run_writes_nothing_and_a_removed_day_is_written_again(
    pasted: tuple[Path, str],
) -> None:
    _, said = pasted
    written = [int(each) for each in re.findall(r"parts written now: (\d+)", said)]
    assert written[0] > 0 == written[1]
    assert written[-4] > 0 < written[-3]  # the day once more, of both directories


def test_programs_count_what_there_is(pasted: tuple[Path, str]) -> None:
    here, said = pasted
    assert int(said.split()[-1]) == 2 * ROUNDS * (1 + 8)  # doubts come whatever the kinds
    week = polars.scan_parquet(here / "weeks" / "trades").collect()
    assert set(week["feed"]) == {"monday", "tuesday"}


def rows(root: Path, table: str) -> list[int]:
    """Return the positions of a table's rows, in order."""
    found = polars.scan_parquet(f"{root}/{table}/").sort("position").collect()
    return [int(each) for each in found["position"]]


def test_job_of_every_day_finds_the_journals_of_the_units() -> None:
    unit = (ROOT / "packaging" / "udpfast@.service").read_text()
    user = re.search(r"^User=(\w+)$", unit, re.M)
    journals = re.search(r"\b(UDPFAST_JOURNALS=\S+)$", unit, re.M)
    assert user and journals
    (job,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.DOTALL)
    *settings, line = job.splitlines()
    assert journals[1] in settings
    assert line.split()[5:7] == [user[1], "udpfast"]
