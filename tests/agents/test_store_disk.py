"""What a store's directory shows to tools."""

from pathlib import Path

import pytest

from udpfast.agents.bus import store_disk
from udpfast.agents.bus.store_disk import SAID_KEPT, SAID_SHOWN, StoreDisk
from udpfast.config.bus import StoreConfig


def test_messages_are_shown_with_the_time_at_which_they_were_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 1_795_219_199_500_000_000
    monkeypatch.setattr(store_disk, "realtime_ns", lambda: now_ns)
    settings = StoreConfig(sequencer="S", port=1)
    disk = StoreDisk(tmp_path / "orders", "orders", "S", settings, create=True)
    disk.take_said()
    said = disk.store.said
    said.append("first")
    shown = ["2026-11-20 23:59:59 UTC: first"]
    assert disk.description()["said"] == shown
    assert disk.take_said() == ["first"]
    now_ns += 1_000_000_000
    assert disk.take_said() == []
    said.append("second")
    shown.append("2026-11-21 00:00:00 UTC: second")
    assert disk.description()["said"] == shown
    assert disk.take_said() == ["second"]
    assert disk.description()["said"] == shown
    for count in (SAID_KEPT, 1):
        more = [f"message {number}" for number in range(count)]
        said.extend(more)
        assert disk.take_said() == more
        assert disk.take_said() == []
        assert len(said) == SAID_KEPT
    times = [line.partition(": ")[2] for line in disk.description()["said"]]
    assert times == [
        *(f"message {SAID_KEPT - each}" for each in range(SAID_SHOWN - 1, 0, -1)),
        more[0],
    ]
    disk.end(disk.description())
