"""How long a test waits for what must happen: longer than any loaded machine needs."""

import time
from collections.abc import Callable

#: Seconds. Reached only by a test that fails.
PATIENCE_S = 60.0


def wait_until(holds: Callable[[], object], what: str = "it to hold") -> None:
    """Wait until a condition holds; fail with `what` after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.001)
