"""Rows, their goals, and files of results: written by lines, read with refusals that say why."""

import dataclasses
import io
import json
import os
from pathlib import Path

import pytest

from bench.result import Writer, read_result
from tests.bench.fakes import HOST, row
from udpfast.errors import FormatError


@pytest.mark.parametrize(
    ("goal", "ratio", "met"),
    [
        ("P1: <= 1.15", 1.15, True),
        ("P1: <= 1.15", 1.16, False),
        ("P6: >= 1.5 x", 1.4, False),
        ("P6: >= 1.5 x", 1.6, True),
        ("P1: <= 1.15", None, None),
        ("P18: <= 2 ns", 9.0, True),
        ("P18: <= 1.9 ns", 0.1, False),
        ("", 1.0, None),
    ],
)
def test_met_compares_the_ratio_or_with_a_unit_the_value(goal, ratio, met) -> None:
    assert row(goal=goal, ratio=ratio).met() is met


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verified": ""}, "verified"),
        ({"values": []}, "a number per trial"),
        ({"placement": "CLOSE"}, "NEAR, FAR or nothing, found 'CLOSE'"),
        ({"goal": "fast"}, "a goal like"),
    ],
)
def test_check_row_that_shows_nothing_is_refused(changes, words) -> None:
    with pytest.raises(ValueError, match=words):
        row(**changes).check()


def written(tmp_path: Path, *lines: tuple[str, dict]) -> Path:
    """Write a file of results that begins with the host."""
    file = io.StringIO()
    writer = Writer(file)
    writer.write("host", dataclasses.asdict(HOST))
    for kind, content in lines:
        writer.write(kind, content)
    path = tmp_path / "result.jsonl"
    path.write_text(file.getvalue())
    return path


def test_read_result_gives_back_what_was_written(tmp_path: Path) -> None:
    full = row(
        latency={"p50": 1.0},
        counts=[[1, 2]],
        hops={"a": {"p50": 1.0}},
        ratio=1.1,
        goal="P1: <= 1.2",
    )
    path = written(
        tmp_path,
        ("row", dataclasses.asdict(full)),
        ("jitter", {"before": "drain", "lost_share": 0.1}),
        ("note", {"benchmark": "drain", "note": "no lcm"}),
        ("failure", {"benchmark": "drain", "reason": "no"}),
        ("end", {"seconds": 1.0}),
    )
    result = read_result(path)
    assert result.rows == [full]
    assert result.host == dataclasses.asdict(HOST)
    assert result.jitter[0]["lost_share"] == 0.1 and result.end == {"seconds": 1.0}
    assert result.notes[0]["note"] == "no lcm" and result.failures[0]["reason"] == "no"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "expected an object with a type"),
        ("\udcff", "expected an object with a type"),
        ('{"no": "type"}', "expected an object with a type"),
        ('{"type": "rabbit"}', "found 'rabbit'"),
        ('{"type": "row", "speed": 1}', "speed"),
        ('{"type": "row"}', "missing"),
        (json.dumps({"type": "row", **dataclasses.asdict(row(verified=""))}), "verified"),
    ],
)
def test_read_result_wrong_line_is_refused_by_its_number(tmp_path, line, words) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + os.fsencode(line) + b"\n")
    with pytest.raises(FormatError, match=words) as error:
        read_result(path)
    assert f"{path}:2: " in str(error.value)


def test_read_result_of_a_run_that_was_broken_off_gives_what_was_measured(tmp_path: Path) -> None:
    measured = row()
    path = written(tmp_path, ("row", dataclasses.asdict(measured)))
    with path.open("a") as file:
        file.write('{"type": "row", "benchmark": "dr')  # the disk was full
    result = read_result(path)
    assert (result.rows, result.end) == ([measured], None)


@pytest.mark.parametrize("content", ["", '{"type": "row"}\n'])
def test_read_result_without_a_host_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.jsonl"
    path.write_text(content)
    with pytest.raises(FormatError, match=r"result\.jsonl"):
        read_result(path)
