"""How long a test waits for what must happen: longer than any loaded machine needs.

Nothing else in a test says how long anything takes: what must not take long is shown by counting
turns, calls or records, and a deadline of the code under test is met by handing it a time.
"""

import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds. Reached only by a test that fails.
PATIENCE_S = 300.0

#: How a process ends that was told to: also one that says so by its status, as Java does.
TOLD = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAID = {0, *(128 + number for number in TOLD)}


def wait_until(holds: Callable[[], object], what: str = "it to hold") -> None:
    """Wait until a condition holds; fail with `what` after `PATIENCE_S`.

    It fails at once if a process that this one started failed meanwhile, unless somebody looked at
    its end (`wait`, `poll`): what it would have done never will be.

    The condition is asked ever more seldom, but never after more than a tenth of the time waited so
    far: what it costs shall not slow what it waits for.
    """
    began = time.monotonic()
    failed: list[str] = []
    while not holds():
        # Asked once more first: a process that failed may be what is waited for.
        assert not failed, f"waited in vain for {what}: " + "\n".join(failed)
        waited = time.monotonic() - began
        assert waited < PATIENCE_S, f"waited in vain for {what}"
        failed = _failed()
        if not failed:
            time.sleep(min(max(waited / 10, 0.001), 0.1))


def _failed() -> list[str]:
    """Return what is known of children that failed and whose end nobody has looked at so far."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return []
    except ChildProcessError:
        return []
    tasks = Path("/proc/self/task").glob("*/children")
    children = (int(child) for task in tasks for child in task.read_text().split())
    return [said for child in children if (said := _failure(child))]


def _failure(child: int) -> str:
    try:
        end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    if end is None or end.si_status in (SAID if end.si_code == os.CLD_EXITED else TOLD):
        return ""
    how = "ended with status" if end.si_code == os.CLD_EXITED else "was ended by signal"
    said = f"process {child} {how} {end.si_status}"
    for process in gc.get_objects():
        if isinstance(process, subprocess.Popen) and process.pid == child:
            said += f": {process.args}"
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    rest = os.read(pipe.fileno(), 1 << 16)
                    said += f"\n{rest.decode(errors='replace')[-2000:]}"
    return said
