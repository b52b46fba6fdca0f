"""Hostile and crashing readers at a reduced size: `udpfast lab hostile` is the full
one, with 1,000 of them.
"""

import tempfile
from pathlib import Path

import pytest

from lab import hostile
from lab.hostile import check_hostile_readers

pytestmark = pytest.mark.system


@pytest.fixture
def directory():
    """Return a path in /dev/shm, where instances live."""
    with tempfile.TemporaryDirectory(prefix="udpfast-test-", dir="/dev/shm") as root:
        yield Path(root) / "instance"


def test_hostile_readers_disturb_neither_writer_nor_survivor_nor_tools(directory):
    report = check_hostile_readers(directory, kills=30, seed=5)
    assert report.faults == (), str(report)
    assert report.result.received > 0


def test_hostile_check_finds_what_readers_must_not_do(directory, monkeypatch):
    def act(directory, rng):
        (directory / "readers" / "breach").touch()
        while True:
            pass

    monkeypatch.setattr(hostile, "ACTS", {"act": act})
    monkeypatch.setattr(hostile, "LIFE_MAX_NS", 50_000_000)
    monkeypatch.setattr(hostile, "assault", None)
    monkeypatch.setattr(hostile, "remove_dead_readers", lambda _: 0)
    report = check_hostile_readers(directory, kills=2, seed=5)
    assert "a reader changed what is not its own" in report.faults
