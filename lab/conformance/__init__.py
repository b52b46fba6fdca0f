"""Compare udpfast with golden files and captures.

    udpfast lab conformance DIR

Every file below DIR that says what must come out of it is run: JSON documents by their `format`,
lists of payloads (`.jsonl`, plain or gzip) by their first line, schemas of SBE and messages of
theirs (`.xml`, `.sbe`) by what every schema must hold. Each case passes, or fails with
one line that says what was expected and what was found. What an expectation does not say, or says
only in part, is not compared, and a line says so.
"""

import gzip
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TextIO

import click

from ..program import program

__all__ = ["Report", "difference", "fit", "is_cut", "join_gaps", "main", "read_lines", "run"]

P = ParamSpec("P")

#: The module here that runs each format, whatever its version; it has `check(path, report)`.
FORMATS = {
    "roq-udp-golden-headers": "headers",
    "roq-udp-golden-sequences": "sequences",
    "roq-udp-golden-sync": "sync",
    "roq-udp-golden-payloads": "payloads",
    "roq-udp-capture-expected": "captures",
    "pcap-expected": "flows",
    "venue-expected": "venues",
    "book-truth": "books",
    "venue-books": "venue_books",
    "venue-singles": "singles",
}


#: An expectation that does not write all of a list writes so many entries at least.
LISTED_MIN = 100


@dataclass(slots=True)
class Report:
    """What passed, what failed and why; failures and notes are printed as they come.

    Attributes
    ----------
    passed, failed : int
        Cases.
    stream : file-like, optional
        Where lines go; None keeps silent.
    lines : list of str
        The lines.
    engine : bool
        Captures of venues go through the feed, too.
    captures : Path, optional
        The folder of the captures of venues; None: `data/pcap` beside their expectations.
    """

    passed: int = 0
    failed: int = 0
    stream: TextIO | None = None
    lines: list[str] = field(default_factory=list)
    engine: bool = True
    captures: Path | None = None

    def case(
        self, name: str, check: Callable[P, str | None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run one case.

        Parameters
        ----------
        name : str
            What the line says: file and case.
        check : callable
            Returns None, or why the case fails. An exception is a failure too.
        *args, **kwargs
            What `check` is called with.
        """
        try:
            problem = check(*args, **kwargs)
        except Exception as error:  # a case that raises has failed; the others still run
            problem = f"{type(error).__name__}: {error}"
        if problem is None:
            self.passed += 1
        else:
            self.fail(name, problem)

    def fail(self, name: str, problem: str) -> None:
        """Count a case that has failed, and say why."""
        self.failed += 1
        self.note(f"FAILED {name}: {' '.join(problem.split())}")

    def not_compared(self, name: str, what: Iterable[str]) -> None:
        """Say what of an expectation was not compared, if there is anything."""
        said = "; ".join(sorted(what))
        if said:
            self.note(f"not compared: {name}: {said}")

    def note(self, line: str) -> None:
        """Say something that is neither passed nor failed."""
        self.lines.append(line)
        if self.stream is not None:
            print(line, file=self.stream, flush=True)


def difference(expected: Any, found: Any, place: str = "") -> str | None:
    """Return where and how two JSON values differ first, or None.

    Numbers are compared exactly, and True is not 1; what `found` has beyond `expected` is a
    difference.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            where = f"{place}.{key}" if place else str(key)
            if key not in found or key not in expected:
                return f"{where}: {'not found' if key in expected else 'not expected'}"
            problem = difference(expected[key], found[key], where)
            if problem is not None:
                return problem
        return None
    if isinstance(expected, list) and isinstance(found, list):
        for index, (one, other) in enumerate(zip(expected, found, strict=False)):
            problem = difference(one, other, f"{place}[{index}]")
            if problem is not None:
                return problem
        if len(expected) != len(found):
            return f"{place or 'list'}: expected {len(expected)} entries, found {len(found)}"
        return None
    if isinstance(expected, bool) == isinstance(found, bool) and expected == found:
        return None
    return f"{place + ': ' if place else ''}expected {expected!r}, found {found!r}"


def is_cut(listed: list[Any], count: int) -> bool:
    """Whether an expectation lists only the first of many: as long a list as it writes, or more."""
    return LISTED_MIN <= len(listed) < count


def fit(
    expected: Any,
    found: Any,
    left: set[str],
    *,
    counts: dict[str, str],
    keyed: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
) -> Any:
    """Return what was found as far as the expectation speaks of it.

    Parameters
    ----------
    expected, found : any
        JSON values of the same layout.
    left : set of str
        Gets what is left out, and why.
    counts : dict
        Name of a list of which only the first entries may be written -> name of its length.
    keyed : tuple of str
        Names of objects whose keys are data: one that is not expected is a difference.
    whole : tuple of str
        Names whose values are compared as they are.
    """
    rules: Any = {"counts": counts, "keyed": keyed, "whole": whole}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [fit(one, other, left, **rules) for one, other in zip(expected, found, strict=True)]
    if not isinstance(expected, dict) or not isinstance(found, dict):
        return found
    fitted: dict[str, Any] = {}
    for key, value in found.items():
        if key not in expected:
            if value:
                left.add(f"{key}, which it does not say")
        elif key in whole:
            fitted[key] = value
        elif key in keyed and isinstance(value, dict) and isinstance(expected[key], dict):
            fitted[key] = {
                each: fit(expected[key].get(each), one, left, **rules)
                for each, one in value.items()
            }
        elif key in counts and is_cut(expected[key], found[counts[key]]):
            listed = len(expected[key])
            fitted[key] = value[:listed]
            left.add(f"{key} behind the first {listed}, which it does not list")
        else:
            fitted[key] = fit(expected[key], value, left, **rules)
    return fitted


def join_gaps(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was said with gaps that follow each other directly as one.

    How a run of lost seqnos is cut into gaps depends on when each hole was given up; that gaps
    do not overlap, and leave nothing out, does not.
    """
    joined: list[dict[str, Any]] = []
    for one in said:
        gap = one.get("gap", one)
        before = joined[-1].get("gap", joined[-1]) if joined else {}
        if (
            "first" in gap
            and "first" in before
            and gap["first"] == (before["last"] + 1) & 0xFFFFFFFF
            and gap.get("session_id") == before.get("session_id")
        ):
            whole = {**before, "last": gap["last"], "count": before["count"] + gap["count"]}
            joined[-1] = {"gap": whole} if "gap" in one else whole
        else:
            joined.append(one)
    return joined


def read_lines(path: Path) -> Iterable[dict[str, Any]]:
    """Yield the documents of a `.jsonl` file, plain or gzip."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            yield json.loads(line)


def run(folder: Path, report: Report) -> None:
    """Run every file below a folder that says what must come out of it."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            document = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(document, dict) and {"version", "inject", "respond"} <= document.keys():
                _sbe().check_fix(path, report)
                continue
            name = document.get("format", "") if isinstance(document, dict) else ""
            if isinstance(document, dict) and {"disagreements", "units"} <= document.keys():
                name = "venue-books"
            module = FORMATS.get(name.partition("/")[0])
            if module is None:
                report.note(f"not run: {path}: format {name!r} says nothing to compare")
                continue
            _run_file(module, path, report)
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            first = next(iter(read_lines(path)), {})
            if {"hex", "expect"} <= first.keys():
                _run_file("payloads", path, report)
        elif path.suffix == ".xml" and _sbe().is_schema(path):
            _sbe().check(path, report)
        elif path.suffix == ".sbe":
            _sbe().check_message(path, report)


def _sbe() -> Any:
    return importlib.import_module(f"{__name__}.sbe")


def _run_file(module: str, path: Path, report: Report) -> None:
    # A file that lacks what its format needs, or names a capture that is not there, has failed; the
    # others still run.
    try:
        importlib.import_module(f"{__name__}.{module}").check(path, report)
    except Exception as error:
        report.fail(str(path), f"{type(error).__name__}: {error}")


@program
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--captures",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the captures of venues; else data/pcap beside their expectations.",
)
def main(folder: Path, captures: Path | None) -> int:
    """Run what lies below the folder that is named; return how many cases failed."""
    report = Report(stream=sys.stdout, captures=captures)
    run(folder, report)
    if report.passed + report.failed == 0:
        raise click.UsageError(f"nothing below {folder} says what must come out of it")
    click.echo(f"{report.passed} passed, {report.failed} failed")
    return report.failed
