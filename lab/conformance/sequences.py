"""Golden sequences: datagrams in arrival order, and what must come out of the window."""

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import CONTROL_DTYPES, Channel, Kind, RecordFlag
from udpfast.feed.pipeline import FeedMessage, FeedPipeline

from . import Report, difference, join_gaps

__all__ = ["check", "control_payload", "described"]

#: Why the golden files say that a datagram was dropped, and the verdicts that say so here.
DROPS = {
    "duplicate_or_late": ("duplicate", "late", "replay"),
    "stale_session": ("session_retired",),
    "too_short": ("too_short",),
    "too_long": ("too_long",),
    "fragment_beyond_max": ("fragment_beyond_max",),
    "short_fragment": ("short_fragment",),
    "fragment_max_mismatch": ("fragment_max_changed",),
}
_POLICIES = ("latest_run", "keep_all")
_WRAP = 1 << 32
_WINDOW = 8192


def check(path: Path, report: Report) -> None:
    """Run one `roq-udp-golden-sequences` document, each scenario under both policies."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for scenario in document["scenarios"]:
        for on_gap in _POLICIES:
            expected = _expected(scenario, on_gap)
            if expected is not None:
                report.case(
                    f"{path.name} {scenario['name']} {on_gap}",
                    _compare,
                    document,
                    scenario,
                    on_gap,
                    expected,
                )


def described(message: FeedMessage) -> dict[str, Any] | None:
    """Return a message, gap or session by the golden files' names; None if they name it not."""
    if message.kind is Kind.MESSAGE:
        return {
            "message": {
                "session_id": message.session_id,
                "seqno": message.seqno,
                "last_seqno": message.last_seqno,
                "object_type": message.object_type,
                "object_id": message.object_id,
                "snapshot": bool(message.flags & RecordFlag.SNAPSHOT),
                "encoding": message.control & 0x0F,
                "length": len(message.payload),
                "crc32": f"{zlib.crc32(message.payload):08x}",
            }
        }
    if message.kind is Kind.GAP:
        gap = control_payload(message)
        return {"gap": {name: gap[name] for name in ("first", "last", "count")}}
    if message.kind is Kind.SESSION and control_payload(message)["old_id"]:
        session = control_payload(message)
        return {
            "session_reset": {
                "old": session["old_id"],
                "new": session["new_id"],
                "discarded_pending": session["discarded"],
            }
        }
    return None


def control_payload(message: FeedMessage) -> dict[str, int]:
    """Return the payload of one of the feed's own messages by field; numbers as on the wire."""
    dtype = CONTROL_DTYPES[message.kind]
    values = np.frombuffer(message.payload, dtype)[0]
    found = {name: int(values[name]) for name in dtype.names or ()}
    return found | {name: found[name] % _WRAP for name in ("first", "last") if name in found}


def _expected(scenario: dict[str, Any], on_gap: str) -> dict[Channel, list[Any]] | None:
    # What must come out, by channel; None if the scenario does not say it for this policy.
    if "expect_by_channel" in scenario:
        return {
            Channel[name.upper()]: expect for name, expect in scenario["expect_by_channel"].items()
        }
    own = scenario["policy"]["on_gap"]
    if on_gap == own or f"expect_if_{on_gap}" not in scenario:
        if on_gap != own and own == "keep_all":
            return None
        return {Channel.INCREMENTAL: scenario["expect"]}
    return {Channel.INCREMENTAL: scenario[f"expect_if_{on_gap}"]}


def _compare(
    document: dict[str, Any],
    scenario: dict[str, Any],
    on_gap: str,
    expected: dict[Channel, list[Any]],
) -> str | None:
    messages, verdicts = _run(document, scenario, on_gap)
    for channel, expect in expected.items():
        found = [
            said
            for message in messages
            if message.channel == channel or message.kind is Kind.SESSION
            for said in [described(message)]
            if said is not None
        ]
        said = [one for one in expect if "drop" not in one]
        problem = difference(join_gaps(said), join_gaps(found), channel.name)
        if problem is not None:
            return problem
        drops = Counter(one["drop"] for one in expect if "drop" in one)
        unknown = drops.keys() - DROPS.keys()
        if unknown:
            return f"drop reason {sorted(unknown)[0]!r} is not one of {', '.join(DROPS)}"
        for reason, names in DROPS.items():
            count = sum(verdicts[channel, name] for name in names)
            if count != drops[reason]:
                return f"{channel.name} drop {reason}: expected {drops[reason]}, found {count}"
    return None


def _run(
    document: dict[str, Any], scenario: dict[str, Any], on_gap: str
) -> tuple[list[FeedMessage], Counter[tuple[Channel, str]]]:
    policy = scenario["policy"]
    lines = {step["feed"]: None for step in scenario["input"] if "feed" in step}
    order = sorted(lines)
    pipeline = FeedPipeline(
        revision=document.get("revision", "current"),
        lines_incremental=max(1, len(order)),
        lines_snapshot=max(1, len(order)),
        on_gap=on_gap,
        window=_WINDOW,
        out_of_order_max_interval=policy["out_of_order_max_interval"],
        lost_packet_wait_ns=policy["lost_packet_wait_us"] * 1000,
        stale_session_grace_ns=policy["stale_session_grace_us"] * 1000,
        session_adopt_datagrams=1,
    )
    messages: list[FeedMessage] = []
    verdicts: Counter[tuple[Channel, str]] = Counter()
    for step in scenario["input"]:
        now_ns = step["at_us"] * 1000
        if step.get("timer"):
            pipeline.expire(now_ns)
        else:
            channel = Channel[step["channel"].upper()]
            verdict = pipeline.accept(
                channel, order.index(step["feed"]), bytes.fromhex(step["hex"]), now_ns, now_ns
            )
            verdicts[channel, VERDICTS[verdict].name] += 1
        messages += pipeline.take()
    return messages, verdicts
