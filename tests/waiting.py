"""How long a test waits for what must happen: longer than any loaded machine needs.

Nothing else in a test says how long anything takes: what must not take long is shown by counting
turns, calls or records, and a deadline of the code under test is met by handing it a time.
"""

import time
from collections.abc import Callable

#: Seconds. Reached only by a test that fails.
PATIENCE_S = 300.0


def wait_until(holds: Callable[[], object], what: str = "it to hold") -> None:
    """Wait until a condition holds; fail with `what` after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.001)
