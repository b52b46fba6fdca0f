"""The table of goals: every goal that was measured, what was found, and whether it was met."""

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.goals import goal_table
from bench.main import bench
from bench.result import Result, Writer, read_result
from tests.bench.fakes import HOST, row
from udpfast.errors import FormatError


def result(*rows) -> Result:
    """Return a result of these rows."""
    return Result(Path("x.jsonl"), dataclasses.asdict(HOST), list(rows))


def lines(*rows) -> list[str]:
    """Return the table's lines below its head."""
    return goal_table([result(*rows)]).split("|---|---|---|---|\n")[1].splitlines()


def goal_row(ratio: float, size: int, **changes):
    """Return a row of P1 with enough trials."""
    return row(
        "udpfast",
        **{
            "parameters": {"size": size, "queued": 512},
            "base": "C",
            "ratio": ratio,
            "goal": "P1: <= 1.15",
            "values": [5.0, 6.0, 7.0],
        }
        | changes,
    )


def test_table_of_one_goal_says_each_parameter_that_differs():
    found = lines(goal_row(1.10, 80), goal_row(1.20, 528), goal_row(1.14, 528, placement="FAR"))

    assert found == [
        "| P1: <= 1.15 | drain: udpfast / C "
        "| size 80: 1.10; size 528: 1.20; size 528 FAR: 1.14 | 2 of 3 |"
    ]


def test_table_sorts_by_the_number_and_marks_what_is_missed():
    found = lines(
        goal_row(2.0, 80, goal="P10: <= 1.3"),
        goal_row(1.0, 528, goal="P2: <= 250 ns", unit="ns/message"),
    )

    assert [line.split(" | ", 1)[0] for line in found] == ["| P2: <= 250 ns", "| P10: <= 1.3"]
    assert found[0].endswith("| drain: udpfast | 6.00 ns/message | yes |")
    assert found[1].endswith("| 2.00 | **no** |")


def test_what_was_measured_again_replaces_the_older_rows():
    stamps = dataclasses.replace(goal_row(1.2, 80, base="C, stamps"), variant="stamps")
    older = result(goal_row(1.0, 80), stamps)
    table = goal_table([older, result(goal_row(1.1, 80))])

    assert "commit 01234567 (drain: 2026-11-21 10:00 UTC, commit 01234567)" in table
    assert "/ C | 1.10 |" in table
    assert "/ C, stamps | 1.20 |" in table


def test_ratios_of_few_trials_or_without_a_goal_are_left_out():
    assert lines(goal_row(1.0, 80, values=[5.0, 5.0]), goal_row(1.0, 80, goal="")) == []


def test_goals_into_a_page_replaces_the_table_and_nothing_else(tmp_path):
    measured = tmp_path / "r.jsonl"
    with measured.open("w") as file:
        writer = Writer(file)
        writer.write("host", dataclasses.asdict(HOST))
        writer.row(goal_row(1.1, 80))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- goals -->\nold\n<!-- end of goals -->\nafter\n")

    for _ in range(2):
        done = CliRunner().invoke(bench, ["goals", str(measured), "--into", str(page)])
        assert done.exit_code == 0, done.output

    assert "old" not in page.read_text()
    assert page.read_text().startswith("before\n<!-- goals -->\n")
    assert page.read_text().endswith("| 1.10 | yes |\n<!-- end of goals -->\nafter\n")


def test_goals_into_a_page_without_marks_is_refused(tmp_path):
    measured = tmp_path / "r.jsonl"
    with measured.open("w") as file:
        Writer(file).write("host", dataclasses.asdict(HOST))
    page = tmp_path / "page.md"
    page.write_text("nothing <!-- goals --> here\n")

    done = CliRunner().invoke(bench, ["goals", str(measured), "--into", str(page)])

    assert done.exit_code == 1
    assert "expected the lines <!-- goals --> and <!-- end of goals -->" in done.output
    assert page.read_text() == "nothing <!-- goals --> here\n"


def test_goals_of_a_host_that_does_not_say_what_it_is_are_refused(tmp_path):
    path = tmp_path / "result.jsonl"
    path.write_text('{"type": "host", "cpu": "EPYC"}\n')
    with pytest.raises(FormatError, match=r"result\.jsonl: expected the host's 'cores'"):
        goal_table([read_result(path)])
