"""One run of an agent beside the feed: on a thread of this process, or in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Protocol

import msgspec

from udpfast.agents.feed.factories import AgentFactory
from udpfast.config import FeedConfig
from udpfast.core.agent import AgentRunner

__all__ = ["CompanionRun", "ProcessOrder", "ProcessRun", "ThreadRun", "describe_failure"]

#: What systemd tells the main process is no business of its children.
_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


class ProcessOrder(msgspec.Struct, frozen=True):
    """What a process of its own is told, as JSON.

    Attributes
    ----------
    directory : str
        The instance's.
    config : FeedConfig
        As the file was read: its lines are sorted by role, so no rule of the file applies again.
    """

    directory: str
    config: FeedConfig


class CompanionRun(Protocol):
    """What the watcher knows of a run that was started.

    Attributes
    ----------
    pid : int
        Of its process.
    """

    pid: int

    def look(self) -> tuple[bool, str]:
        """Return whether it has ended, and by what failure (empty: by none)."""

    @property
    def cycles(self) -> int:
        """Turns of its loop so far, as of the last look."""

    def stop(self) -> None:
        """Ask it to end; does not wait."""

    def abandon(self) -> None:
        """Give up a run that did not end when it was asked to."""


class ThreadRun:
    """A run on a thread of this process: an exception ends it alone, a crash the process."""

    def __init__(self, factory: AgentFactory, config: FeedConfig, directory: Path) -> None:
        self.pid = os.getpid()
        settings = factory.settings(config)
        agent = factory.build(config, directory)
        self._runner = AgentRunner(agent, core=settings.core, idle=settings.idle)
        self._runner.start()

    def look(self) -> tuple[bool, str]:
        """Return whether it has ended, and by what failure (empty: by none)."""
        try:
            return self._runner.join(0.0), ""
        except Exception as failure:
            return True, describe_failure(failure)

    @property
    def cycles(self) -> int:
        """Turns of its loop so far."""
        return self._runner.cycles

    def stop(self) -> None:
        """Ask it to end; does not wait."""
        self._runner.stop()

    def abandon(self) -> None:
        """Leave its thread alone: it ends with the process, as nothing else ends a thread."""


class ProcessRun:
    """A run in a process of its own (`agents.feed.companion_process`), which ends with this one."""

    def __init__(self, factory: AgentFactory, config: FeedConfig, directory: Path) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name not in _NOT_INHERITED
        }
        # A session of its own: Ctrl-C in a terminal is this process's to hand on, after the feed.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "udpfast.agents.feed.companion_process"),
                *(factory.name, factory.module),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._cycles = 0
        self._failure = ""
        self._text = b""
        order = ProcessOrder(str(directory), config)
        # It may have died before it read: how it ended says more than that the pipe did.
        with contextlib.suppress(BrokenPipeError):
            self._input.write(msgspec.json.encode(order) + b"\n")
            self._input.flush()
        os.set_blocking(self._output.fileno(), False)

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def look(self) -> tuple[bool, str]:
        """Return whether it has ended, and by what failure (empty: by none)."""
        ended = self._process.poll() is not None  # before the pipe: then all is in it
        self._listen()
        if not ended:
            return False, ""
        self._close()
        code = self._process.returncode
        if code < 0:
            return True, f"killed by signal {-code}"
        return True, self._failure or (f"ended with exit code {code}" if code else "")

    def _listen(self) -> None:
        while not self._output.closed and (text := self._output.read(65536)):
            self._text += text
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "cycles":
                self._cycles = int(rest)
            elif word == "failure":
                self._failure = rest

    @property
    def cycles(self) -> int:
        """Turns of its loop so far, as it said last."""
        return self._cycles

    def stop(self) -> None:
        """Ask it to end; does not wait."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def abandon(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self.stop()
        self._output.close()


def describe_failure(failure: BaseException) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(failure).__name__}: {failure}".split())
