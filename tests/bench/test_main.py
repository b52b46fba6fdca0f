"""`udpfast bench`: what it lists, runs, refuses, and says of benchmarks that fail."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.main import bench, parse_cores
from bench.runner import find_benchmarks
from bench.trials import Unavailable
from tests.bench.fakes import fake, row, run_fakes

GOOD = """
from bench.trials import Benchmark
from bench.result import Row
def run(settings):
    yield Row("good", "A", {}, "ns", [1.0], "", verified="one")
BENCHMARK = Benchmark("good", "Is it good?", "a -> b", run)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a package of three modules: a benchmark, one that breaks, and one that is none."""
    name = f"fakes_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "bench_good.py").write_text(GOOD)
    (folder / "bench_broken.py").write_text("import nothing_of_this_name\n")
    (folder / "bench_other.py").write_text("")
    (folder / "trials.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_find_benchmarks_lists_what_is_one_and_what_cannot_be_imported(package: str) -> None:
    found = find_benchmarks(package)
    assert list(found) == ["broken", "good"]
    assert found["good"].question == "Is it good?"
    failures, _ = run_fakes(found["broken"])
    assert "nothing_of_this_name" in failures[0][1]


def test_find_benchmarks_own_ones_state_question_and_topology() -> None:
    for name, benchmark in find_benchmarks().items():
        assert benchmark.question.endswith("?"), name
        assert "-" in benchmark.topology, name


def test_run_without_pyarrow_leaves_out_what_needs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "bench.bench_reports", raising=False)
    found = find_benchmarks()
    assert found["reports"].by_name
    failures, lines = run_fakes(found["reports"], found["export"])
    assert failures == []
    notes = [line["note"] for line in lines if line["type"] == "note"]
    assert notes == ["left out: pyarrow is not installed: pip install 'udpfast[market]'"] * 2


def test_run_failing_benchmark_is_reported_and_the_others_go_on() -> None:
    first = fake("first", row(), RuntimeError("lost 3 of 9"))
    failures, lines = run_fakes(first, fake("second", row("C")))
    assert failures == [("first", "RuntimeError: lost 3 of 9")]
    assert [line["variant"] for line in lines if line["type"] == "row"] == ["udpfast", "C"]
    (failure,) = [line for line in lines if line["type"] == "failure"]
    assert failure["benchmark"] == "first" and "Traceback" in failure["trace"]
    assert lines[0]["type"] == "host" and lines[-1]["type"] == "end"
    assert [line["before"] for line in lines if line["type"] == "jitter"] == ["first", "second", ""]


def test_run_row_that_verified_nothing_is_a_failure() -> None:
    failures, lines = run_fakes(fake("first", row(verified="")))
    assert "expected `verified`" in failures[0][1]
    assert not [line for line in lines if line["type"] == "row"]


def test_run_unavailable_benchmark_is_noted_and_no_failure() -> None:
    failures, lines = run_fakes(fake("first", Unavailable("needs root")))
    assert not failures
    assert [line["note"] for line in lines if line["type"] == "note"] == ["left out: needs root"]


def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str, **fakes: object):
    """Run `udpfast bench run` with fakes for benchmarks."""
    monkeypatch.setattr(sys.modules["bench.main"], "find_benchmarks", lambda: fakes)
    return CliRunner().invoke(bench, ["run", "--out", str(tmp_path), *arguments])


def test_run_writes_a_file_and_prints_a_table(monkeypatch, tmp_path: Path) -> None:
    good = row(ratio=1.25, base="C", goal="P1: <= 1.15", less="no decode")
    result = invoke(monkeypatch, tmp_path, drain=fake("drain", row("C", base="C"), good))
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("*.jsonl")
    assert len(path.read_text().splitlines()) == 7
    for words in ("drain", "size 80", "x 1.25", "P1: <= 1.15: NOT MET", "less: no decode"):
        assert words in result.output
    assert str(path) in result.output


def test_run_leaves_out_what_runs_by_name_only(monkeypatch, tmp_path: Path) -> None:
    fakes = {"drain": fake("drain", row()), "long": replace(fake("long", row()), by_name=True)}
    for names in ([], ["long"]):
        result = invoke(
            monkeypatch, tmp_path / "-".join(["all", *names]), "--json", *names, **fakes
        )
        assert result.exit_code == 0, result.output
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        ran = [line["name"] for line in lines if line["type"] == "benchmark"]
        assert ran == (names or ["drain"])


def test_run_with_a_failure_ends_with_1(monkeypatch, tmp_path: Path) -> None:
    result = invoke(monkeypatch, tmp_path, "--json", drain=fake("drain", ValueError("no")))
    assert result.exit_code == 1
    assert "failed: drain: ValueError: no" in result.stderr
    kinds = [json.loads(line)["type"] for line in result.stdout.splitlines()]
    assert kinds == ["host", "benchmark", "jitter", "failure", "jitter", "end"]


def test_run_unknown_name_is_refused_in_one_line(monkeypatch, tmp_path: Path) -> None:
    result = invoke(monkeypatch, tmp_path, "rabbit", drain=fake("drain"))
    assert result.exit_code == 2
    assert "expected names of drain; found rabbit" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["1", "a,b", "0,1,2", "0,99999", "-1,0"])
def test_parse_cores_wrong_ones_are_refused(words: str) -> None:
    with pytest.raises(Exception, match="--cores: expected"):
        parse_cores(words)


def test_parse_cores_gives_two_that_are_allowed() -> None:
    first, second = parse_cores(None)
    assert parse_cores(f"{second},{first}") == (second, first)


def test_run_noisy_machine_is_waited_for_but_not_for_ever(quiet, monkeypatch) -> None:
    quiet += [0.5, 0.3, 0.02]
    _, lines = run_fakes(fake("first", row()))
    looks = [line["lost_share"] for line in lines if line["type"] == "jitter"]
    assert looks == [0.02, 0.01]
    monkeypatch.setattr(sys.modules["bench.runner"], "NOISY_WAIT_S", 0.0)
    quiet += [0.5]
    _, lines = run_fakes(fake("first", row()))
    assert [line["lost_share"] for line in lines if line["type"] == "jitter"] == [0.5, 0.01]
