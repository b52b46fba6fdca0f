"""Compare udpfast with golden files and captures.

    udpfast lab conformance DIR

Every file below DIR that says what must come out of it is run: JSON documents by their `format`,
lists of payloads (`.jsonl`, plain or gzip) by their first line, schemas of SBE and messages of
theirs (`.xml`, `.sbe`) by what every schema must hold. Each case passes, or fails with
one line that says what was expected and what was found.
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

from udpfast.lab.program import program

__all__ = ["Report", "difference", "join_gaps", "main", "read_lines", "run"]

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
}


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
    """

    passed: int = 0
    failed: int = 0
    stream: TextIO | None = None
    lines: list[str] = field(default_factory=list)
    engine: bool = True

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
            self.failed += 1
            self.note(f"FAILED {name}: {' '.join(problem.split())}")

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
            module = FORMATS.get(name.partition("/")[0])
            if module is None:
                report.note(f"not run: {path}: format {name!r} says nothing to compare")
                continue
            _checker(module)(path, report)
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            first = next(iter(read_lines(path)), {})
            if {"hex", "expect"} <= first.keys():
                _checker("payloads")(path, report)
        elif path.suffix == ".xml" and _sbe().is_schema(path):
            _sbe().check(path, report)
        elif path.suffix == ".sbe":
            _sbe().check_message(path, report)


def _sbe() -> Any:
    return importlib.import_module(f"{__name__}.sbe")


def _checker(module: str) -> Callable[[Path, Report], None]:
    found: Callable[[Path, Report], None] = importlib.import_module(f"{__name__}.{module}").check
    return found


@program
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> int:
    """Run what lies below the folder that is named; return how many cases failed."""
    report = Report(stream=sys.stdout)
    run(folder, report)
    if report.passed + report.failed == 0:
        raise click.UsageError(f"nothing below {folder} says what must come out of it")
    click.echo(f"{report.passed} passed, {report.failed} failed")
    return report.failed
