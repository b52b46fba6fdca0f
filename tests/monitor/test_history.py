"""What a page draws: a point for each look, of each feed."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.monitor.history import History
from udpfast.net.ports import free_port


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Run a feed named deribit; return the port of its line."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    port = free_port()
    lines = [{"name": "A", "address": f"127.0.0.1:{port}"}]
    with Subscriber({"name": "deribit", "incremental": {"lines": lines}}):
        yield port


@pytest.mark.usefixtures("port")
def test_history_has_a_point_per_look_and_no_more_than_its_length() -> None:
    history = History(length=3)
    assert [*history.feeds] == ["deribit"] and history.points == {}
    for _ in range(5):
        history.advance()
    points = history.points["deribit"]
    assert len(points) == 3
    times = [point.unix_ns for point in points]
    assert times == sorted(times) and times[-1] == history.look.unix_ns


def test_history_point_has_what_happened_between_two_looks(port: int) -> None:
    history = History()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(10):
            sock.sendto(bytes(40), ("127.0.0.1", port))

    def heard() -> bool:
        history.advance()
        return history.feeds["deribit"].status.counters["incremental.A"]["datagrams"] == 10

    wait_until(heard, "ten datagrams")
    history.advance()
    points = history.points["deribit"]
    assert any(point.datagrams_per_s > 0 for point in points)
    assert points[-1].datagrams_per_s == 0
    assert sum("kernel_to_loop" in point.latency_ns for point in points) >= 1
    assert "kernel_to_loop" not in points[-1].latency_ns


@pytest.mark.usefixtures("port")
def test_history_of_a_feed_that_was_removed_fades(tmp_path: Path) -> None:
    history = History()
    history.advance()
    history.advance()
    (tmp_path / "deribit").rename(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    history.advance()
    assert "deribit" not in history.feeds
    assert len(history.points["deribit"]) == 1
    history.advance()
    assert history.points == {}


def test_history_shows_a_feed_that_runs_first() -> None:
    def first(**lives: str) -> str:
        history: Any = History()
        history.feeds = {name: SimpleNamespace(status=SimpleNamespace(life=life))
                         for name, life in lives.items()}  # fmt: skip
        return str(history.first())

    assert first(a="stopped", b="dead", c="running", d="failed") == "c"
    assert first(a="stopped", b="dead") == "b"
    assert first() == ""
