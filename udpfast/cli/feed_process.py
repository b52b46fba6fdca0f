"""One feed of several as a process: started, listened to, and started again when it ends.

The process is `udpfast run FILE`. It says to us what it would say to systemd (`cli.service`): that
readers can attach, how it goes, and that its loop turns.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from udpfast.agents.feed.backoff import Backoff
from udpfast.archive.groups import FeedState, GroupFeed
from udpfast.cli.child import child_command
from udpfast.cli.service import EXIT_AGAIN, EXIT_TAKEN, FAILED
from udpfast.config.host import HostConfig
from udpfast.core.clock import realtime_ns
from udpfast.errors import UdpfastError
from udpfast.monitor.output import read_output
from udpfast.shm.instance import instance_directory

__all__ = ["FeedProcess"]

_HEARD_BYTES = 4096
#: Between what ended a feed and what hindered its start behind that.
_THEN = "; then it did not start: "
#: A feed that runs elsewhere is tried again when that process has gone, which is looked for so
#: often, or after so long: a start that fails costs a second of a core.
TAKEN_LOOK_NS, TAKEN_WAIT_NS = 500_000_000, 60_000_000_000


class FeedProcess:
    """A feed's process.

    Parameters
    ----------
    entry : GroupFeed
        Its name and address, and the core that it is given.
    arguments : sequence of str
        Of the command `udpfast`.
    host : HostConfig
        When it is started again.
    folder : Path
        Of this process alone: the socket that it is heard by goes there.
    say : callable
        Is told in a sentence what ended, and when it is started again.

    Attributes
    ----------
    entry : GroupFeed
        How it is.
    """

    def __init__(
        self,
        entry: GroupFeed,
        arguments: Sequence[str],
        host: HostConfig,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.entry = entry
        self._arguments = tuple(arguments)
        self._watchdog_ns = int(host.watchdog_s * 1e9)
        self._backoff = Backoff(host)
        self._say = say
        self._address = str(folder / entry.name)
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._ear.bind(self._address)
        self._ear.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None
        self._began_ns = self._alive_ns = self._due_ns = 0
        self._look_ns = 0  # when to look whether the feed runs elsewhere still; 0: it does not
        self._reason = ""

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self, now_ns: int) -> None:
        """Start it, in the main thread: it ends with the thread that started it."""
        environment = {key: text for key, text in os.environ.items() if key != "WATCHDOG_PID"}
        environment["NOTIFY_SOCKET"] = self._address
        environment["WATCHDOG_USEC"] = str(self._watchdog_ns // 1000)
        # It ignores a SIGUSR1 that comes before it knows what to do, as it inherits that from us.
        handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self._process = subprocess.Popen(child_command(*self._arguments), env=environment)
        signal.signal(signal.SIGUSR1, handler)
        self._began_ns = self._alive_ns = now_ns
        self._note("starting", pid=self._process.pid)

    def resume(self, now_ns: int) -> None:
        """Start it again if it was stopped, as `start`."""
        if self.entry.state == "ended":
            self._say(f"feed {self.entry.name}, which was stopped, is started again")
            self.start(now_ns)

    def look(self, now_ns: int) -> bool:
        """Listen to it, start it again if that is due; return whether anything became different."""
        before = self.entry
        if self._process is None:
            if self.entry.state == "waiting" and (now_ns >= self._due_ns or self._is_free(now_ns)):
                self.entry = replace(self.entry, restarts=self.entry.restarts + 1)
                self.start(now_ns)
            return self.entry is not before
        self._listen(now_ns)
        code = self._process.poll()
        if code is not None:
            self._ended(code, now_ns)
        elif self.entry.state == "running" and now_ns - self._alive_ns > self._watchdog_ns:
            self._reason = f"its loop made no turn for {self._watchdog_ns / 1e9:g} s"
            self.signal(signal.SIGKILL)
        return self.entry is not before

    def _is_free(self, now_ns: int) -> bool:
        # Whether the process that had the feed is known to have gone.
        if not self._look_ns or now_ns < self._look_ns:
            return False
        self._look_ns = now_ns + TAKEN_LOOK_NS
        try:
            return not read_output(instance_directory(self.entry.name)).alive
        except (UdpfastError, OSError):
            return False

    def look_for_end(self) -> None:
        """Note that it ended after it was told to; it is not started again."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        self._listen(self._alive_ns)
        self._process = None
        if code in (0, EXIT_AGAIN, -signal.SIGTERM):  # that one came before it listened
            self._note("ended")
        else:
            self._note("failed", failure=self._reason or _ending(code))
            self._say(f"feed {self.entry.name}: {self.entry.failure}")

    def signal(self, number: int) -> None:
        """Send the process a signal, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    def forget(self) -> None:
        """Do not start again what waits for that."""
        if self.entry.state == "waiting":
            self._note("failed", failure=self.entry.failure)

    def close(self) -> None:
        """Stop listening."""
        self._ear.close()

    def _listen(self, now_ns: int) -> None:
        while True:
            try:
                text = self._ear.recv(_HEARD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            for line in text.splitlines():
                key, _, value = line.partition("=")
                if key == "READY":
                    self._alive_ns = now_ns
                    self._note("running")
                elif key == "WATCHDOG":
                    self._alive_ns = now_ns
                elif key == "STATUS" and value.startswith(FAILED):
                    self._reason = value.removeprefix(FAILED)

    def _ended(self, code: int, now_ns: int) -> None:
        self._listen(now_ns)  # its last words
        self._process = None
        reason, self._reason = self._reason or _ending(code), ""
        if code == EXIT_AGAIN:
            self._say(f"feed {self.entry.name} was stopped in good order, to be started again")
            self.entry = replace(self.entry, failure="")
            self.start(now_ns)
            return
        if code == 0:
            self._note("ended")
            self._say(f"feed {self.entry.name} was stopped in good order: it stays so")
            return
        wait_ns = self._backoff.ended(now_ns - self._began_ns)
        if self.entry.state == "starting" and self.entry.failure:
            # It has not run since: what ended it then cost data, what hinders it now does not.
            first = self.entry.failure.partition(_THEN)[0]
            reason = first if first == reason else first + _THEN + reason
        again = reason == self.entry.failure
        when = "in"
        self._look_ns = 0
        if code == EXIT_TAKEN:  # a restart does not help while that process lives
            wait_ns, self._look_ns = TAKEN_WAIT_NS, now_ns + TAKEN_LOOK_NS
            when = "when that process has ended, or in"
        self._due_ns = now_ns + wait_ns
        self._note("waiting", failure=reason)
        if not (code == EXIT_TAKEN and again):
            self._say(
                f"feed {self.entry.name}: {reason}; starting it again {when} {wait_ns / 1e9:g} s"
            )

    def _note(self, state: FeedState, pid: int | None = None, failure: str | None = None) -> None:
        if pid is None:
            pid = 0 if self._process is None else self._process.pid
        self.entry = replace(
            self.entry,
            state=state,
            pid=pid,
            changed_ns=realtime_ns(),
            failure=self.entry.failure if failure is None else failure,
        )


def _ending(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}: see its log"
    try:
        return f"{signal.Signals(-code).name} ended it"
    except ValueError:
        return f"signal {-code} ended it"
