"""Spark's progress: a line for people to follow while a job runs."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress"]

LOOK_S = 0.5


class Progress:
    """Writes the progress of jobs to stderr: on a terminal one changing line, otherwise nothing.

    Parameters
    ----------
    spark : SparkSession
        The session.
    live : bool, optional
        Write the changing line; by default, if stderr is a terminal.
    """

    def __init__(self, spark: SparkSession, live: bool | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._live = sys.stderr.isatty() if live is None else live
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="progress", daemon=True)
        self._title = ""
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        """Set the title of the work that runs from now on."""
        self._title, self._began = text, time.monotonic()

    def say(self, text: str) -> None:
        """Write a permanent line."""
        clear = "\r\x1b[K" if self._live else ""
        sys.stderr.write(f"{clear}{text}\n")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        if self._live:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
            sys.stderr.write("\r\x1b[K")

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_S):
            stages = [self._tracker.getStageInfo(one) for one in self._tracker.getActiveStageIds()]
            found = [stage for stage in stages if stage is not None]
            done = sum(stage.numCompletedTasks for stage in found)
            tasks = sum(stage.numTasks for stage in found)
            running = sum(stage.numActiveTasks for stage in found)
            sys.stderr.write(
                f"\r{self._title}: {time.monotonic() - self._began:.0f} s, "
                f"{done:,} of {tasks:,} tasks done, {running} running\x1b[K"
            )
            sys.stderr.flush()
