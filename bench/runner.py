"""Runs benchmarks one by one: a noisy machine is waited for, a failure stops nothing else."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from .host import Fingerprint, jitter
from .progress import Progress
from .result import Row, Writer
from .trials import Benchmark, Settings, Unavailable

__all__ = ["find_benchmarks", "run_all"]

#: Share of the time that a machine may take away before a benchmark waits for a quieter moment.
NOISY_SHARE = 0.10
NOISY_WAIT_S = 15.0
JITTER_S = 0.4


def run_all(
    benchmarks: dict[str, Benchmark],
    settings: Settings,
    fingerprint: Fingerprint,
    writer: Writer,
) -> tuple[list[tuple[str, str]], list[Row]]:
    """Run benchmarks one by one; return what failed with its reason, and all rows."""
    failures: list[tuple[str, str]] = []
    rows: list[Row] = []
    writer.write("host", asdict(fingerprint) | {"cores_used": list(settings.cores)})
    progress = Progress(benchmarks, settings)
    began = time.monotonic()
    for name, benchmark in benchmarks.items():

        def fail(reason: str, name: str = name) -> None:
            failures.append((name, reason))
            trace = traceback.format_exc() if sys.exception() else ""
            writer.write("failure", {"benchmark": name, "reason": reason, "trace": trace})

        def note(words: str, name: str = name) -> None:
            writer.write("note", {"benchmark": name, "note": words})
            progress.say(f"{name}: {words}")

        progress.begin(name)
        about = {"question": benchmark.question, "topology": benchmark.topology}
        writer.write("benchmark", {"name": name, **about})
        writer.write("jitter", {"before": name, **quiet_moment(settings, progress)})
        own = replace(settings, progress=progress.step, note=note, fail=fail)
        try:
            for row in benchmark.run(own):
                row.check()
                writer.row(row)
                rows.append(row)
        except Unavailable as reason:
            note(f"left out: {reason}")
        except KeyboardInterrupt:
            raise
        except Exception as error:
            fail(f"{type(error).__name__}: {error}")
        progress.end(name)
    writer.write("jitter", {"before": "", **jitter(tuple(set(settings.cores)), JITTER_S)})
    writer.write("end", {"seconds": round(time.monotonic() - began, 1), "took": progress.took})
    return failures, rows


def quiet_moment(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Wait, not for ever, until the machine lets its threads run; return the last look at it."""
    deadline = time.monotonic() + NOISY_WAIT_S
    while True:
        seen = jitter(tuple(sorted(set(settings.cores))), JITTER_S)
        if seen["lost_share"] <= NOISY_SHARE or time.monotonic() > deadline:
            return seen
        progress.step(f"waiting: the machine takes {seen['lost_share']:.0%} of the time away")


def find_benchmarks(package: str = __package__) -> dict[str, Benchmark]:
    """Return every `BENCHMARK` of the modules `bench_<thing>.py`, by name.

    One that cannot even be imported is among them, and says so when it runs.
    """
    found = {}
    folder = importlib.import_module(package).__path__
    for module in sorted(info.name for info in pkgutil.iter_modules(folder)):
        if not module.startswith("bench_"):
            continue
        try:
            benchmark = getattr(importlib.import_module(f"{package}.{module}"), "BENCHMARK", None)
        except Exception as error:
            benchmark = broken(module.removeprefix("bench_"), error)
        if isinstance(benchmark, Benchmark):
            found[benchmark.name] = benchmark
    return found


def broken(name: str, error: Exception) -> Benchmark:
    """Return a benchmark that fails with the reason why it could not be imported."""
    reason = ImportError(f"{type(error).__name__}: {error}")

    def run_it(settings: Settings) -> Iterator[Row]:
        raise reason
        yield

    return Benchmark(name, "(cannot be imported)", str(reason), run_it, 0.0)
