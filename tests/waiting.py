"""How long a test waits for what must happen: longer than any loaded machine needs.

Nothing else in a test says how long anything takes: what must not take long is shown by counting
turns, calls or records, and a deadline of the code under test is met by handing it a time.
"""

import time
from collections.abc import Callable

#: Seconds. Reached only by a test that fails.
PATIENCE_S = 300.0


def wait_until(holds: Callable[[], object], what: str = "it to hold") -> None:
    """Wait until a condition holds; fail with `what` after `PATIENCE_S`.

    It is asked ever more seldom, but never after more than a tenth of the time waited so far: what
    a condition costs shall not slow what it waits for.
    """
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < PATIENCE_S, f"waited in vain for {what}"
        time.sleep(min(max(waited / 10, 0.001), 0.1))
