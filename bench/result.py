"""What a run leaves behind: rows, in a file of JSON lines that begins with the host.

{"type": "host", ...}        the fingerprint, as it was at the start
{"type": "row", ...}         a `Row`; one for each variant, set of parameters and placement
{"type": "jitter", ...}      stops of the machine, measured before a benchmark (or at the end)
{"type": "note", ...}        what a benchmark had to say: a peer that is not installed
{"type": "failure", ...}     a benchmark that failed, and why
{"type": "end", ...}         without it the run was broken off
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from udpfast.errors import FormatError
from udpfast.shm.histogram import LatencyHistogram

__all__ = ["Key", "Result", "Row", "Writer", "joined", "percentiles", "read_result", "sparse"]

PLACEMENTS = ("NEAR", "FAR", "")

#: "P1: <= 1.15" is about the ratio to the base, "P18: <= 250 ns" about the value itself.
GOAL = re.compile(r"(?P<sign><=|>=)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-zA-Z/]*)")

Key = tuple[str, str, tuple[tuple[str, int | float | str], ...], str]


@dataclass(frozen=True, slots=True)
class Row:
    """One variant of one benchmark with one set of parameters.

    Attributes
    ----------
    benchmark, variant : str
        "drain"; "udpfast", "C recvmmsg 64", "asyncio".
    parameters : dict
        {"size": 80, "rate": 10_000}
    unit : str
        Of `values`: "ns/datagram", "messages/s", "ns" (latency).
    values : list of float
        One per kept trial.
    placement : str
        "NEAR" or "FAR": how far apart the two cores were; "" if it did not matter.
    base : str
        Variant that ratios refer to.
    ratio : float or None
        Median of the ratios to the base, each within one round.
    goal : str
        "P1: <= 1.15": of the ratio; with a unit, "P18: <= 250 ns": of the median value.
    lower_is_better : bool
    latency : dict or None
        p50 p90 p99 p99.9 max in ns, and count, from a histogram.
    counts : list of [slot, count] or None
        That histogram (`shm.histogram`): its slots that are not empty.
    verified : str
        What was checked: "20,000 sent = 20,000 read, in order".
    version : str
        Of the peer.
    less : str
        What this peer does less: "no order, no gaps, no decode".
    dropped : int
        Trials left out, because the placement changed meanwhile.
    ratios : list of float
        The ratios whose median `ratio` is: one per round in which both were of this placement.
    hops : dict or None
        Latency of each hop of the way, in order: name -> as `latency`.
    """

    benchmark: str
    variant: str
    parameters: dict[str, int | float | str]
    unit: str
    values: list[float]
    placement: str
    base: str = ""
    ratio: float | None = None
    goal: str = ""
    lower_is_better: bool = True
    latency: dict[str, float] | None = None
    counts: list[list[int]] | None = None
    verified: str = ""
    version: str = ""
    less: str = ""
    dropped: int = 0
    ratios: list[float] = field(default_factory=list)
    hops: dict[str, dict[str, float]] | None = None

    @property
    def median(self) -> float:
        """The figure that stands for this row."""
        return statistics.median(self.values)

    @property
    def key(self) -> Key:
        """What must be equal for two rows to answer the same question."""
        return self.benchmark, self.variant, tuple(sorted(self.parameters.items())), self.placement

    @property
    def title(self) -> str:
        """Variant, parameters and placement, for people."""
        words = [f"{name} {text(value)}" for name, value in self.parameters.items()]
        return ", ".join(filter(None, [self.variant, *words, self.placement]))

    @property
    def goal_in_units(self) -> bool:
        """Whether the goal is about the value, not about the ratio."""
        match = GOAL.search(self.goal)
        return match is not None and match["unit"] not in ("", "x")

    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none, or nothing to tell by."""
        match = GOAL.search(self.goal)
        figure = self.median if self.goal_in_units else self.ratio
        if match is None or figure is None:
            return None
        limit = float(match["number"])
        return figure <= limit if match["sign"] == "<=" else figure >= limit

    def check(self) -> None:
        """Raise ValueError, with expected and found, for a row that shows nothing."""
        where = f"{self.benchmark}, {self.title}"
        if not self.verified:
            raise ValueError(f"{where}: expected `verified` to say what was checked, found nothing")
        if not self.values or not all(isinstance(value, (int, float)) for value in self.values):
            raise ValueError(f"{where}: expected a number per trial, found {self.values!r}")
        if self.placement not in PLACEMENTS:
            raise ValueError(f"{where}: expected NEAR, FAR or nothing, found {self.placement!r}")
        if self.goal and not GOAL.search(self.goal):
            raise ValueError(f"{where}: expected a goal like 'P1: <= 1.15', found {self.goal!r}")


def text(value: float | str) -> str:
    """Return a parameter as people write it."""
    return value if isinstance(value, str) else f"{value:,}"


PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


def percentiles(histogram: LatencyHistogram) -> dict[str, float]:
    """Return p50, p90, p99, p99.9 and max in ns, and count: what `Row.latency` holds."""
    found = histogram.percentiles(list(PERCENTS.values()))
    figures = {name: float(value) for name, value in zip(PERCENTS, found, strict=True)}
    return figures | {"max": float(histogram.maximum), "count": float(histogram.total)}


def sparse(histogram: LatencyHistogram) -> list[list[int]]:
    """Return [slot, count] for the slots that are not empty: what `Row.counts` holds."""
    counts = histogram.counts()
    return [[int(slot), int(counts[slot])] for slot in np.flatnonzero(counts)]


@dataclass(slots=True)
class Result:
    """A file of results, read."""

    path: Path
    host: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    jitter: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, str]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    benchmarks: dict[str, dict[str, str]] = field(default_factory=dict)
    end: dict[str, Any] | None = None


class Writer:
    """Writes each line when it is known: a run that is broken off leaves what it measured."""

    def __init__(self, target: TextIO, *others: TextIO) -> None:
        """Write to one or more open files."""
        self.targets = (target, *others)

    def write(self, kind: str, content: dict[str, Any]) -> None:
        """Append one line."""
        line = json.dumps({"type": kind, **content})
        for target in self.targets:
            target.write(line + "\n")
            target.flush()

    def row(self, row: Row) -> None:
        """Append a row."""
        self.write("row", dataclasses.asdict(row))


def read_result(path: Path) -> Result:
    """Read a file of results; half a line at its end, of a run that was broken off, is left out.

    Raises
    ------
    FormatError
        It is none; the message says the line.
    """
    result: Result | None = None
    names = {entry.name for entry in dataclasses.fields(Row)}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(keepends=True), 1):
        where = f"{path}:{number}"
        try:
            content = json.loads(line)
            kind = content.pop("type")
        except (ValueError, KeyError, TypeError, AttributeError):
            if result is not None and not line.endswith("\n"):
                break
            raise FormatError(
                f"{where}: expected an object with a type, found {line.strip()[:40]!r}"
            ) from None
        if result is None:
            if kind != "host":
                raise FormatError(f"{where}: expected the host first, found {kind!r}")
            result = Result(path, content)
        elif kind == "row":
            if unknown := content.keys() - names:
                raise FormatError(f"{where}: expected a row, found the fields {sorted(unknown)}")
            try:
                row = Row(**content)
                row.check()
            except (TypeError, ValueError) as error:
                raise FormatError(f"{where}: {error}") from None
            result.rows.append(row)
        elif kind == "end":
            result.end = content
        elif kind == "benchmark":
            result.benchmarks[content["name"]] = content
        elif kind in ("jitter", "note", "failure"):
            {"jitter": result.jitter, "note": result.notes, "failure": result.failures}[
                kind
            ].append(content)
        else:
            expected = "host, benchmark, row, jitter, note, failure or end"
            raise FormatError(f"{where}: expected {expected}, found {kind!r}")
    if result is None:
        raise FormatError(f"{path}: expected JSON lines of a benchmark, found an empty file")
    return result


def joined(results: Sequence[Result]) -> Result:
    """Return several runs as one: a row that was measured again replaces the older one.

    Runs of different hosts do not belong onto one page: the caller has looked at them.
    """
    last = results[-1]
    # A row is shown once for each base that it is set against.
    rows = {(row.key, row.base): row for result in results for row in result.rows}
    whole = Result(last.path, last.host, list(rows.values()), end=last.end)
    for result in results:
        whole.jitter += result.jitter
        whole.notes += result.notes
        whole.failures += result.failures
        whole.benchmarks.update(result.benchmarks)
    return whole
