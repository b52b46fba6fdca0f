"""What feeds take of a host's memory, by their settings; measured on real ones."""

from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.config import FeedConfig, parse_feed
from udpfast.host import HostUse
from udpfast.monitor.memory import feed_memory, with_memory
from udpfast.shm.image import has_image
from udpfast.shm.instance import instance_directory

MIB = 1 << 20
VENUE = {"framing": "cme_mdp3", "payload": "cme"}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the instances of each test apart."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))


def feed(name: str = "test", **tables: object) -> FeedConfig:
    """Return a feed of two lines that keeps little."""
    lines = [{"name": each, "address": "127.0.0.1:0"} for each in "AB"]
    small = {
        "incremental": {"lines": lines},
        "ring": {"capacity_bytes": 1 << 22, "names": 1024},
        "window": {"size": 256, "slab_cells": 256},
        "objects": {"collect_bytes": 1 << 20},
        "books": {"orders_max": 1000},
    }
    return parse_feed({"name": name} | small | tables)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"wire": VENUE | {"streams_max": 4}},
        {"wire": VENUE | {"streams_max": 40}, "image": {"enabled": True}},
        {"record": {"what": "both", "capture_bytes": 1 << 21}},
    ],
)
def test_feed_memory_is_what_the_files_of_a_running_feed_take(tables: dict[str, Any]) -> None:
    config = feed(**tables)
    wanted = feed_memory(config)
    with Subscriber(config):
        if "image" in wanted.files:
            wait_until(lambda: has_image(instance_directory("test")))
        files = [each for each in instance_directory("test").rglob("*") if each.is_file()]
        taken = sum(512 * each.stat().st_blocks for each in files)
        sizes = {each.name: each.stat().st_size for each in files}
    assert taken <= wanted.shared <= taken + 2 * MIB
    for name in wanted.files.keys() - {"other"}:
        assert wanted.files[name] == sizes[name]


def test_feed_memory_books_cost_what_their_orders_do() -> None:
    few, many = (
        feed_memory(feed(wire=VENUE, books={"orders_max": count})) for count in (1000, 1_001_000)
    )
    assert many.books - few.books > 64 * 1_000_000
    assert many.shared == few.shared


def test_feed_memory_of_a_venue_has_no_objects_of_roq() -> None:
    few, many = (
        feed_memory(feed(wire=VENUE, objects={"max": 1 << count, "collect_bytes": 1 << count}))
        for count in (16, 24)
    )
    assert few == many


@pytest.mark.parametrize("streams", [1, 3])
def test_feed_memory_of_a_venue_has_no_more_cells_than_messages_can_wait(streams: int) -> None:
    wire = VENUE | {"streams_max": streams}
    enough, more = (
        feed_memory(feed(wire=wire, window={"size": 256, "slab_cells": cells}))
        for cells in (256 * streams, 1 << 22)
    )
    assert more == enough
    roq, larger = (
        feed_memory(feed(window={"size": 256, "slab_cells": cells})) for cells in (256, 512)
    )
    assert larger.shared > roq.shared  # of which a message may have many


def test_with_memory_adds_up_what_all_feeds_take() -> None:
    configs = [feed(f"feed{index}", wire=VENUE) for index in range(3)]
    use = with_memory(HostUse(), configs)
    one = feed_memory(configs[0])
    assert use.shm_bytes == 3 * one.shared
    assert use.memory_bytes == 3 * (one.shared + one.private)


def test_with_memory_of_a_feed_that_runs_is_asked_for_once() -> None:
    config = feed()
    before = with_memory(HostUse(), [config])
    with Subscriber(config):
        running = with_memory(HostUse(), [config])
    memory = feed_memory(config)
    kept = memory.files["slab"] + memory.files["names"]
    assert before.shm_bytes - running.shm_bytes == kept
    assert before.memory_bytes - running.memory_bytes == kept + memory.private
    assert running.shm_path == with_memory(HostUse(), []).shm_path
