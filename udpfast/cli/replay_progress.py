"""How far a replay is: a line on stderr now and then, and a note beside the ring that it writes."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec.structs import replace

from udpfast.archive.replay_note import Replay, write_replay
from udpfast.monitor.output import read_output

__all__ = ["Progress"]

#: Between two notes, and between two lines: on a terminal, where each takes the place of the one
#: before, and in a log.
NOTE_NS = 1_000_000_000
LIVE_NS = 500_000_000
LOG_NS = 10_000_000_000


class Progress:
    """How far a replay is, for people and for `udpfast stat`.

    Parameters
    ----------
    replay : Replay
        What is replayed.
    quiet : bool
        Print nothing.
    live : bool, optional
        stderr is a terminal; by default it is asked.

    Attributes
    ----------
    entries : int
        Records or datagrams that were replayed so far.
    """

    def __init__(self, replay: Replay, *, quiet: bool, live: bool | None = None) -> None:
        self._replay = replay
        self._quiet = quiet
        self._live = sys.stderr.isatty() if live is None else live
        self._directory: Path | None = None
        self._began_ns = self._noted_ns = self._said_ns = 0
        self.entries = 0
        self._shown = False

    def publish(self, directory: Path, *, counted: bool) -> None:
        """Write the note beside a ring, now and from now on; `counted`: as `Replay` has it."""
        output = read_output(directory)
        self._directory = directory
        self._replay = replace(
            self._replay, log=output.log.hex(), epoch=output.epoch, counted=counted
        )
        write_replay(self._replay, directory)

    def take(self, at_ns: int, entries: int) -> None:
        """Note that so many records or datagrams are replayed, the last one of time `at_ns`."""
        self.entries += entries
        self._replay = replace(self._replay, at_ns=at_ns)

    def look(self, now_ns: int, at_ns: int) -> None:
        """Say how far it is, if that is due.

        Parameters
        ----------
        now_ns : int
            Monotonic clock.
        at_ns : int
            Recorded time that is replayed now, UNIX ns.
        """
        self._began_ns = self._began_ns or now_ns
        self._replay = replace(self._replay, at_ns=at_ns)
        if self._directory is not None and now_ns - self._noted_ns >= NOTE_NS:
            self._noted_ns = now_ns
            write_replay(self._replay, self._directory)
        due_ns = (self._said_ns or self._began_ns) + (LIVE_NS if self._live else LOG_NS)
        if not self._quiet and now_ns >= due_ns:
            self._said_ns = now_ns
            self._say((now_ns - self._began_ns) / 1e9)

    def close(self) -> None:
        """Write the last note, and end the line of a terminal. Idempotent."""
        if self._directory is not None:
            write_replay(self._replay, self._directory)
            self._directory = None
        if self._shown and self._live:
            click.echo("", err=True)
        self._shown = False

    def _say(self, seconds: float) -> None:
        text = f"{seconds:6.1f} s  {self._replay.text}  {self.entries:,} replayed"
        self._shown = True
        click.echo(f"\r{text}\x1b[K" if self._live else text, err=True, nl=not self._live)
