"""What runs, and how much is left, on stderr: one line that changes on a terminal, else few."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from .trials import Benchmark, Settings

__all__ = ["Progress"]

#: A quick run takes about this share of a full one.
QUICK_SHARE = 0.25


class Progress:
    """Told what happens; says it to whoever waits.

    Attributes
    ----------
    took : dict of str to float
        Seconds that each benchmark took.
    """

    def __init__(self, benchmarks: Mapping[str, Benchmark], settings: Settings) -> None:
        """Nothing has run yet."""
        share = QUICK_SHARE if settings.quick else settings.rounds / Settings().rounds
        self.left = {name: benchmark.seconds * share for name, benchmark in benchmarks.items()}
        self.count = len(benchmarks)
        self.took: dict[str, float] = {}
        self.name = ""
        self.began = 0.0
        self.lively = sys.stderr.isatty()

    def begin(self, name: str) -> None:
        """Say that a benchmark begins."""
        self.name, self.began = name, time.monotonic()
        if not self.lively:
            self.say(self.line("begins"))

    def step(self, words: str) -> None:
        """Say what the benchmark does right now; only a terminal shows it."""
        if self.lively:
            print(f"\r\033[K{self.line(words)[:110]}", end="", file=sys.stderr, flush=True)

    def end(self, name: str) -> None:
        """Note that a benchmark has ended."""
        self.took[name] = round(time.monotonic() - self.began, 1)
        del self.left[name]
        if self.lively:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def say(self, words: str) -> None:
        """Print a line that stays."""
        print(("\r\033[K" if self.lively else "") + words, file=sys.stderr, flush=True)

    def line(self, words: str) -> str:
        """Return what runs, with its number and the minutes that are left."""
        spent = time.monotonic() - self.began
        seconds = sum(self.left.values()) - min(spent, self.left[self.name])
        left = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
        return f"[{len(self.took) + 1}/{self.count}, about {left} left] {self.name}: {words}"
