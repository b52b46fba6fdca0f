"""How long a test waits for what must happen: longer than any loaded machine needs.

Nothing else in a test says how long anything takes: what must not take long is shown by counting
turns, calls or records, and a deadline of the code under test is met by handing it a time.
"""

import contextlib
import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds. Reached only by a test that fails.
PATIENCE_S = 300.0

#: Seconds. Whoever looks after a process sees within them that it ended.
LOOKED_AFTER_S = 10.0

#: How a process ends that was told to: also one that says so by its status, as Java does.
TOLD = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAID = {0, *(128 + number for number in TOLD)}


def wait_until(holds: Callable[[], object], what: str = "it to hold") -> None:
    """Wait until a condition holds; fail with `what` after `PATIENCE_S`.

    It fails soon if a process that this one started failed, and nobody looks at its end (`wait`,
    `poll`): what it would have done never will be.

    The condition is asked ever more seldom, but never after more than a tenth of the time waited so
    far: what it costs shall not slow what it waits for.
    """
    began = sound = time.monotonic()
    while not holds():
        now = time.monotonic()
        failed = _failed()
        if not failed:
            sound = now
        elif now - sound >= LOOKED_AFTER_S:
            raise AssertionError(f"waited in vain for {what}: {', '.join(failed)}{_output()}")
        waited = now - began
        assert waited < PATIENCE_S, f"waited in vain for {what}"
        time.sleep(min(max(waited / 10, 0.001), 0.1))


def _failed() -> list[str]:
    """Return how children failed whose end nobody has looked at so far."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return []
    except ChildProcessError:
        return []
    tasks = Path("/proc/self/task").glob("*/children")
    children = (int(child) for task in tasks for child in task.read_text().split())
    return [how for child in children if (how := _failure(child))]


def _failure(child: int) -> str:
    try:
        end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    if end is None or end.si_status in (SAID if end.si_code == os.CLD_EXITED else TOLD):
        return ""
    how = "ended with status" if end.si_code == os.CLD_EXITED else "was ended by signal"
    return f"process {child} {how} {end.si_status}"


def _output() -> str:
    """Return what those of them that a test holds said into pipes that nobody has read."""
    said = ""
    for process in gc.get_objects():
        known = isinstance(process, subprocess.Popen) and process.returncode is None
        if known and process.poll() is not None:
            said += f"\n{process.pid}: {process.args}"
            for pipe in (process.stdout, process.stderr):
                if pipe is not None and not pipe.closed:
                    os.set_blocking(pipe.fileno(), False)
                    with contextlib.suppress(BlockingIOError):
                        said += "\n" + os.read(pipe.fileno(), 1 << 16).decode(errors="replace")
    return said
