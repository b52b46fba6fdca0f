"""The two captures of the whole protocol: real market data, clean and with every kind of fault."""

import functools
import json
import zlib
from typing import Any

import pytest

from tests.feed.drive import Driver
from tests.shared import shared
from udpfast.net.pcap import CaptureReader

LINES = {9001: (0, 0), 9101: (0, 1), 9002: (1, 0)}


@functools.cache
def datagrams(name: str) -> list[tuple[int, tuple[int, int], bytes]]:
    """Return a capture's datagrams: when and by which line they came."""
    with CaptureReader(shared("wire", "capture", f"roq_udp_{name}.pcap.gz")) as capture:
        return [(each.timestamp_ns, LINES[each.destination[1]], each.payload) for each in capture]


def replayed(name: str, **settings: int) -> tuple[Driver, dict[str, Any]]:
    expected = json.loads(shared("wire", "capture", "expected.json").read_text())
    driver = Driver(**settings)
    for at_ns, (channel, line), payload in datagrams(name):
        driver.expire(at_ns)
        driver.send(payload, line, channel, at_ns=at_ns)
    driver.finish()
    return driver, expected


def crc(driver: Driver) -> str:
    value = 0
    for message in driver.messages():
        value = zlib.crc32(message.payload, value)
    return f"{value:08x}"


def test_clean_capture_is_delivered_whole() -> None:
    driver, expected = replayed("clean")
    assert driver.accepted == expected["clean"]["datagrams"]
    assert len(driver.messages()) == expected["clean"]["messages"]["incremental"]
    assert crc(driver) == expected["clean"]["payload_crc32_in_order"]["incremental"]
    assert [new for _, new, _, _ in driver.sessions()] == expected["sessions"]
    assert driver.gaps() == []
    assert driver.line(0)["wins"] == driver.line(1)["ties_lost"]


def test_rough_capture_misses_exactly_what_both_lines_lost() -> None:
    driver, expected = replayed("rough")
    rough = expected["rough"]
    assert driver.gaps() == [(g["first"], g["last"]) for g in rough["gaps_over_both_lines"]]
    assert crc(driver) == rough["payload_crc32_in_order_incremental"]
    assert driver.channel()["lost"] == rough["messages_lost_on_both_lines"]
    assert [new for _, new, _, _ in driver.sessions()] == expected["sessions"]
    scopes = [driver.line(0), driver.line(1)]
    rubbish = ("too_short", "too_long", "fragment_beyond_max", "short_fragment")
    assert sum(s[r] for s in scopes for r in rubbish) == rough["rubbish_datagrams"]
    assert sum(s["session_retired"] for s in scopes) == rough["stale_old_session_datagrams"]


@pytest.mark.parametrize("window", [64, 1024])
def test_rough_capture_gives_the_same_with_a_smaller_window(window: int) -> None:
    driver, expected = replayed("rough", window=window, slab_cells=1024)
    assert crc(driver) == expected["rough"]["payload_crc32_in_order_incremental"]
