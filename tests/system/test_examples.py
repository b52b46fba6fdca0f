"""The examples of the documentation, run together as their first lines say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"

pytestmark = pytest.mark.system


def start(name, *arguments):
    """Start an example as a process."""
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments], stdout=subprocess.PIPE, text=True
    )


def test_publish_subscribe_and_read_examples_work_together(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    subscriber = start("subscribe.py", str(EXAMPLES / "feed.toml"))
    assert "ring:example" in subscriber.stdout.readline()
    reader = start("read_books.py", "ring:example")
    publisher = start("publish.py", str(EXAMPLES / "publish.toml"))
    assert publisher.wait(PATIENCE_S) == 0
    subscriber.send_signal(signal.SIGTERM)
    output, _ = subscriber.communicate(timeout=PATIENCE_S)
    assert "101 messages, 0 lost" in output
    lines = reader.communicate(timeout=PATIENCE_S)[0].splitlines()
    assert 1 <= len(lines) <= 101  # the state when it came, then every change
    assert lines[-1].startswith("example BTC sound")
    assert "100.0" in lines[-1]
