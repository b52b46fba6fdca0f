"""`udpfast top` in a real terminal: tmux, 80 x 24, no colours."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import ROOT
from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber

pytest.importorskip("textual")


@pytest.mark.system
def test_top_runs_in_tmux_and_ends_with_q(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("no tmux here: apt-get install tmux")
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))

    def tmux(*arguments: str) -> str:
        command = [program, "-S", str(tmp_path / "tmux"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def shows(*words: str) -> None:
        wait_until(lambda: all(word in tmux("capture-pane", "-p") for word in words), f"{words}")

    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    ring = {"capacity_bytes": 1 << 22}
    with Subscriber({"name": "deribit", "ring": ring, "incremental": {"lines": lines}}):
        start = f"cd {ROOT}; NO_COLOR=1 {sys.executable} -m udpfast top; echo ended with $?"
        tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh")
        try:
            tmux("send-keys", start, "Enter")
            shows("feeds: 1 running", "deribit")
            coloured = tmux("capture-pane", "-p", "-e")
            assert "\x1b[38;2;255" not in coloured
            tmux("send-keys", "Enter")
            shows("deribit: running", "incremental.A", "latency, us")
            tmux("send-keys", "Escape")
            # Not what its page has, too: a key close behind Escape is one of both, Alt+q.
            shows("feeds: 1 running", "deribit")
            tmux("send-keys", "o")
            shows("this host", "what needs attention")
            tmux("send-keys", "Escape")
            shows("feeds: 1 running", "deribit")
            tmux("send-keys", "q")
            shows("ended with 0")
        finally:
            tmux("kill-server")
