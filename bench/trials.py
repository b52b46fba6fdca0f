"""Trials that can be compared: variants take turns, and each trial knows how the cores lay.

    round 1:  ping  A  ping | ping  B  ping | ping  C  ping
    round 2:  ping  B  ping | ping  C  ping | ping  A  ping        the order rotates
    ...

A machine changes by the second (clock rate, neighbours, where a host runs its virtual cores), so
only what was measured in turns, in the same class of placement, is set against each other. A trial
around which the time of a cache line from core to core crossed 60 ns is taken once more, and
dropped if it happens again.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from udpfast.shm.histogram import LatencyHistogram

from .host import placement
from .loops import hostprobe
from .result import PLACEMENTS, Row, percentiles, sparse

__all__ = ["Benchmark", "Outcome", "Settings", "Trial", "Trials", "Unavailable", "interleave"]


class Unavailable(Exception):  # noqa: N818  (no error: the others go on without it)
    """What a variant or a benchmark needs is not here; the message says what, and where from."""


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How thoroughly to measure, and where.

    Attributes
    ----------
    quick : bool
        Look whether it works: short trials, few rounds.
    rounds : int
        Rounds in which every variant takes one turn.
    cores : (int, int)
        The sender's, and the receiver's. The same twice on a machine that has but one.
    progress : callable
        Told what runs right now.
    note : callable
        Told what the reader of the results should know: a peer that is not installed.
    fail : callable
        Told what went wrong with one variant while the others went on.
    """

    quick: bool = False
    rounds: int = 9
    cores: tuple[int, int] = (0, 1)
    progress: Callable[[str], None] = silent
    note: Callable[[str], None] = silent
    fail: Callable[[str], None] = silent


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: what a module `bench_<name>.py` has under the name `BENCHMARK`.

    Attributes
    ----------
    name : str
        "drain"
    question : str
        One sentence that ends with a question mark.
    topology : str
        Who sends what to whom, drawn; cores and processes named.
    run : callable
        Takes `Settings`, yields a `Row` as soon as it is known.
    seconds : float
        How long it takes in full, about: for the display of what is left.
    by_name : bool
        It runs only when it is asked for by its name.
    """

    name: str
    question: str
    topology: str
    run: Callable[[Settings], Iterator[Row]]
    seconds: float = 30.0
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one trial brought, where a number alone is not all.

    Attributes
    ----------
    value : float
        The figure of the trial; for a latency the p50, in ns.
    histogram : LatencyHistogram or None
        All latencies of the trial, in ns from the intended send time.
    verified : str
        What was checked. A trial whose check fails raises instead.
    hops : dict of str to LatencyHistogram
        Latency of each hop, in order of the way.
    """

    value: float
    histogram: LatencyHistogram | None = None
    verified: str = ""
    hops: Mapping[str, LatencyHistogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """One turn of one variant."""

    variant: str
    round: int
    placement: str
    outcome: Outcome


@dataclass(slots=True)
class Trials:
    """All turns that were kept, and how many were not."""

    variants: tuple[str, ...]
    kept: list[Trial] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def rows(
        self,
        benchmark: str,
        unit: str,
        parameters: Mapping[str, int | float | str],
        *,
        base: str = "",
        goals: Mapping[str, str | Mapping[str, str]] | None = None,
        lower_is_better: bool = True,
        verified: str = "",
        versions: Mapping[str, str] | None = None,
        less: Mapping[str, str] | None = None,
    ) -> Iterator[Row]:
        """Yield a row for each variant and class of placement that has trials.

        `goals`, `versions` and `less` are by variant; a goal may differ by placement
        ({"udpfast": {"NEAR": "P1: <= 1.15", "FAR": "P1: <= 1.3"}}). What the trials' outcomes say
        of their checks goes before `verified`.
        """
        for variant in self.variants:
            for where in PLACEMENTS:
                turns = [t for t in self.kept if t.variant == variant and t.placement == where]
                if not turns:
                    continue
                ratios = [] if variant == base else self.ratios(variant, base, where)
                goal = (goals or {}).get(variant, "")
                whole = _merged(t.outcome.histogram for t in turns)
                yield Row(
                    benchmark=benchmark,
                    variant=variant,
                    parameters=dict(parameters),
                    unit=unit,
                    values=[t.outcome.value for t in turns],
                    placement=where,
                    base=base,
                    ratio=1.0
                    if variant == base
                    else (statistics.median(ratios) if ratios else None),
                    goal=goal if isinstance(goal, str) else goal.get(where, ""),
                    lower_is_better=lower_is_better,
                    latency=percentiles(whole) if whole else None,
                    counts=sparse(whole) if whole else None,
                    verified=turns[-1].outcome.verified or verified,
                    version=(versions or {}).get(variant, ""),
                    less=(less or {}).get(variant, ""),
                    dropped=self.dropped[variant],
                    ratios=ratios,
                    hops=_hops(turns),
                )

    def ratios(self, variant: str, base: str, where: str) -> list[float]:
        """Return one ratio to the base for each round in which both were of this placement."""
        figures: dict[tuple[str, int], float] = {
            (t.variant, t.round): t.outcome.value for t in self.kept if t.placement == where
        }
        return [
            value / figures[base, number]
            for (name, number), value in figures.items()
            if name == variant and figures.get((base, number))
        ]


def interleave(
    variants: Mapping[str, Callable[[], float | Outcome]],
    settings: Settings,
    *,
    label: str = "",
    rounds: int | None = None,
    two_cores: bool = True,
) -> Trials:
    """Let each variant take one turn in each round.

    A variant that raises `Unavailable` is left out, and noted; one that raises anything else is
    left out, and counts as failed. The others go on.

    Parameters
    ----------
    variants : dict of str to callable
        Each call is one trial; returns the figure, or an `Outcome`.
    settings : Settings
    label : str
        Of this set of parameters, for the display: "80 B".
    rounds : int, optional
        Instead of the settings' own.
    two_cores : bool
        False if all of it happens on one core, so that placement does not matter: then no trial
        is bracketed or dropped, and the placement of all is "".
    """
    trials = Trials(tuple(variants))
    active = dict(variants)
    count = settings.rounds if rounds is None else rounds
    measured = two_cores and settings.cores[0] != settings.cores[1]
    for number in range(count):
        names = list(active)
        turn = number % len(names) if names else 0
        for name in names[turn:] + names[:turn]:
            settings.progress(f"{label}, round {number + 1} of {count}: {name}".lstrip(", "))
            try:
                trial = _attempt(name, number, active[name], settings, measured)
            except Unavailable as reason:
                settings.note(f"{name} left out: {reason}")
                del active[name]
            except Exception as error:
                settings.fail(f"{label}, {name}: {type(error).__name__}: {error}".lstrip(", "))
                del active[name]
                trials.kept = [trial for trial in trials.kept if trial.variant != name]
            else:
                if trial is None:
                    trials.dropped[name] += 1
                else:
                    trials.kept.append(trial)
    return trials


def _attempt(
    name: str,
    number: int,
    variant: Callable[[], float | Outcome],
    settings: Settings,
    measured: bool,
) -> Trial | None:
    # None: the cores moved, twice in a row.
    for _ in range(2):
        before = placement(hostprobe.core_to_core_ns(*settings.cores)) if measured else ""
        outcome = variant()
        after = placement(hostprobe.core_to_core_ns(*settings.cores)) if measured else ""
        if before == after and (before or not measured):
            whole = outcome if isinstance(outcome, Outcome) else Outcome(float(outcome))
            return Trial(name, number, before, whole)
    return None


def _merged(histograms: Iterator[LatencyHistogram | None]) -> LatencyHistogram | None:
    whole = None
    for histogram in histograms:
        if histogram is not None:
            whole = whole or LatencyHistogram()
            whole.merge(histogram)
    return whole


def _hops(turns: list[Trial]) -> dict[str, dict[str, float]] | None:
    names = list(dict.fromkeys(name for turn in turns for name in turn.outcome.hops))
    found = {}
    for name in names:
        whole = _merged(turn.outcome.hops.get(name) for turn in turns)
        if whole is not None and whole.total:
            found[name] = percentiles(whole)
    return found or None
