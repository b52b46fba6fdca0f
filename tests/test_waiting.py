"""A test that waits for a process that failed says so, and what that said."""

import subprocess
import sys

import pytest

from tests import waiting
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("raise SystemExit('no such port')", "ended with status 1"),
        ("import os; os.abort()", "was ended by signal 6"),
    ],
)
def test_process_that_failed_ends_a_wait(
    code: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOKED_AFTER_S", 0.0)
    with (
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process,
        pytest.raises(AssertionError, match=f"in vain for a miracle: process .* {how}") as found,
    ):
        wait_until(lambda: False, "a miracle")
    assert ("no such port" in str(found.value)) == ("SystemExit" in code)
    assert process.returncode


def test_process_whose_end_is_waited_for_may_fail() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        wait_until(lambda: process.poll() == 3)


def test_process_that_ends_as_it_was_told_ends_no_wait() -> None:
    turns = iter(range(100))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.kill()
        wait_until(lambda: next(turns) == 20)
