"""The model against the golden files: it has to be right before anything is compared with it."""

import json
import zlib

import pytest

from lab.model import FeedModel, ModelOutput
from tests.shared import shared

POLICIES = ["latest_run", "keep_all"]


def expected_outputs(entries: list[dict]) -> list[tuple]:
    result: list[tuple] = []
    for entry in entries:
        if "message" in entry:
            message = entry["message"]
            result.append(
                (
                    "message",
                    message["session_id"],
                    message["seqno"],
                    message["length"],
                    int(message["crc32"], 16),
                )
            )
        elif "gap" in entry:
            result.append(("gap", entry["gap"]["first"], entry["gap"]["last"]))
        elif "session_reset" in entry:
            result.append(("session", entry["session_reset"]["old"], entry["session_reset"]["new"]))
    return result


def seen_outputs(outputs: list[ModelOutput], channel: int) -> list[tuple]:
    result: list[tuple] = []
    for output in outputs:
        if output.channel != channel:
            continue
        if output.what == "message":
            result.append(
                (
                    "message",
                    output.session_id,
                    output.first,
                    len(output.payload),
                    zlib.crc32(output.payload),
                )
            )
        elif output.what == "gap" or output.first:
            result.append((output.what, output.first, output.last))
    return result


@pytest.mark.parametrize("on_gap", POLICIES)
def test_feed_model_passes_the_golden_sequences(on_gap: str) -> None:
    compared = 0
    for scenario in json.loads(shared("wire", "golden", "sequences.json").read_text())["scenarios"]:
        policy = scenario["policy"]
        model = FeedModel(
            out_of_order_max_interval=policy["out_of_order_max_interval"],
            lost_packet_wait_ns=policy["lost_packet_wait_us"] * 1000,
            on_gap=on_gap,
            stale_session_grace_ns=policy["stale_session_grace_us"] * 1000,
        )
        dropped = 0
        for step in scenario["input"]:
            now_ns = step["at_us"] * 1000
            model.expire(now_ns)
            if step.get("timer"):
                continue
            verdict = model.accept(
                0 if step["channel"] == "incremental" else 1,
                "AB".index(step["feed"]),
                bytes.fromhex(step["hex"]),
                now_ns,
            )
            dropped += verdict != "used"
        outputs = model.take()
        wanted = scenario.get("expect_by_channel") or {"incremental": scenario["expect"]}
        if on_gap == "keep_all" and "expect_if_keep_all" in scenario:
            wanted = {"incremental": scenario["expect_if_keep_all"]}
        for name, entries in wanted.items():
            seen = seen_outputs(outputs, 0 if name == "incremental" else 1)
            assert seen == expected_outputs(entries), scenario["name"]
            assert dropped == sum("drop" in entry for entry in entries), scenario["name"]
        compared += 1
    assert compared == 51
