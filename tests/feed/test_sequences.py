"""The golden sequences: datagrams in arrival order, and what must come out of a window."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.feed.drive import Driver, read
from tests.shared import ROOT, shared
from udpfast.core.layout import Kind

DROPS = {
    "duplicate_or_late": ("duplicate", "late", "replay"),
    "stale_session": ("session_retired",),
    "too_short": ("too_short",),
    "too_long": ("too_long",),
    "fragment_beyond_max": ("fragment_beyond_max",),
    "fragment_max_mismatch": ("fragment_max_changed",),
}


def scenarios() -> list[Any]:
    folder = Path(os.environ.get("UDPFAST_SHARED", ROOT.parent / "shared"))
    path = folder / "wire" / "golden" / "sequences.json"
    if not path.exists():
        return []
    return [pytest.param(s, id=s["name"]) for s in json.loads(path.read_text())["scenarios"]]


def run(scenario: dict[str, Any], on_gap: str) -> Driver:
    policy = scenario["policy"]
    feeds = {step["feed"] for step in scenario["input"] if "feed" in step}
    driver = Driver(
        lines_incremental=max(1, len(feeds)),
        lines_snapshot=1,
        on_gap=on_gap,
        out_of_order_max_interval=policy["out_of_order_max_interval"],
        lost_packet_wait_ns=policy["lost_packet_wait_us"] * 1000,
        stale_session_grace_ns=policy["stale_session_grace_us"] * 1000,
        session_adopt_datagrams=1,
    )
    for step in scenario["input"]:
        if step.get("timer"):
            driver.expire(step["at_us"] * 1000)
        else:
            driver.send(
                bytes.fromhex(step["hex"]),
                line=ord(step["feed"]) - ord("A"),
                channel=("incremental", "snapshot").index(step["channel"]),
                at_ns=step["at_us"] * 1000,
            )
    return driver


def described(driver: Driver, channel: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for m in driver.out:
        if m.kind is Kind.SESSION and read(m)["old_id"]:
            session = read(m)
            said.append(
                {
                    "session_reset": {
                        "old": session["old_id"],
                        "new": session["new_id"],
                        "discarded_pending": session["discarded"],
                    }
                }
            )
        elif m.channel == channel and m.kind is Kind.GAP:
            said.append({"gap": {k: read(m)[k] for k in ("first", "last", "count")}})
        elif m.channel == channel and m.kind is Kind.MESSAGE:
            said.append(
                {
                    "message": {
                        "session_id": m.session_id,
                        "seqno": m.seqno,
                        "last_seqno": m.last_seqno,
                        "object_type": m.object_type,
                        "object_id": m.object_id,
                        "snapshot": bool(m.control & 0x10),
                        "encoding": m.control & 0x0F,
                        "length": len(m.payload),
                        "crc32": f"{zlib.crc32(m.payload):08x}",
                    }
                }
            )
    return said


def compare(driver: Driver, expect: list[dict[str, Any]], channel: int) -> None:
    ordered = [e for e in expect if "drop" not in e]
    assert described(driver, channel) == ordered
    for reason, verdicts in DROPS.items():
        wanted = sum(e.get("drop") == reason for e in expect)
        assert sum(v in verdicts for v in driver.verdicts) == wanted, reason


@pytest.mark.parametrize("on_gap", ["latest_run", "keep_all"])
@pytest.mark.parametrize("scenario", scenarios())
def test_window_of_golden_sequence_says_what_it_says(scenario: dict[str, Any], on_gap: str) -> None:
    driver = run(scenario, on_gap)
    if "expect_by_channel" in scenario:
        for channel, name in enumerate(("incremental", "snapshot")):
            compare(driver, scenario["expect_by_channel"][name], channel)
    else:
        expect = scenario["expect"]
        if on_gap == "keep_all":
            expect = scenario.get("expect_if_keep_all", expect)
        compare(driver, expect, 0)
    driver.finish()


def test_golden_sequences_are_there() -> None:
    assert len(json.loads(shared("wire", "golden", "sequences.json").read_text())["scenarios"]) > 50
