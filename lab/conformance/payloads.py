"""Golden payloads: every field of what is decoded, the type of what is not, damage refused."""

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from udpfast.core.layout import Kind
from udpfast.feed.pipeline import FeedPipeline
from udpfast.market.names import NameTable
from udpfast.payload.roq.decode import Decoded, Outcome, decode
from udpfast.payload.roq.event import event_to_dict, update_to_dict

from . import Report, difference, read_lines

__all__ = ["check"]

#: What must become of a damaged payload, by the golden files' word for it; `any` is free.
OUTCOMES = {
    "reject": Outcome.REFUSED,
    "skip_unknown_type": Outcome.UNKNOWN,
    "no_message": Outcome.NONE,
}
_EVERYTHING = (1 << 64) - 1


def check(path: Path, report: Report) -> None:
    """Run one `roq-udp-golden-payloads` document, or a list of payloads line by line."""
    if path.suffix != ".json":
        _check_payloads(path, read_lines(path), report)
        return
    document = json.loads(path.read_text(encoding="utf-8"))
    _check_payloads(path, document["payloads"], report)
    by_name = {case["name"]: case for case in document["payloads"]}
    for case in document.get("fragmented", ()):
        report.case(
            f"{path.name} fragments of {case['payload']}",
            _compare_fragments,
            case,
            by_name[case["payload"]],
        )
    for case in document.get("damaged", ()):
        report.case(f"{path.name} {case['name']}", _compare_damaged, case)


def _check_payloads(path: Path, cases: Iterable[dict[str, Any]], report: Report) -> None:
    names = NameTable()
    for number, case in enumerate(cases, 1):
        label = case.get("name") or f"line {number} {case['expect']['value_name']}"
        report.case(f"{path.name} {label}", _compare, case, names)


def _compare(case: dict[str, Any], names: NameTable) -> str | None:
    payload = bytes.fromhex(case["hex"])
    expect = {"source_info": None, **case["expect"]}
    problem = difference(expect, event_to_dict(payload))
    if problem is not None:
        return f"as a dictionary: {problem}"
    decoded = decode(payload, names, support_mask=_EVERYTHING)
    if decoded.message_type != expect["value_type"]:
        return f"type: expected {expect['value_type']}, found {decoded.message_type}"
    if decoded.kind is Outcome.OPAQUE or decoded.kind is Outcome.STREAM_STATUS:
        return None  # passed on as it is, under its type
    if decoded.kind < 0:
        return f"expected {expect['value_name']} to be decoded, found {decoded.kind.name}"
    found = update_to_dict(decoded.kind, decoded.payload, names)
    return difference(_cut(expect, found, decoded), found)


def _cut(expect: Any, found: Any, decoded: Decoded) -> Any:
    # Texts longer than their fixed field are cut at a character, and the update says so: only
    # then may a text be the beginning of what was expected.
    if not decoded.truncated:
        return expect
    if isinstance(expect, dict) and isinstance(found, dict):
        return {key: _cut(value, found.get(key), decoded) for key, value in expect.items()}
    if isinstance(expect, list) and isinstance(found, list) and len(expect) == len(found):
        return [_cut(one, other, decoded) for one, other in zip(expect, found, strict=True)]
    if isinstance(expect, str) and isinstance(found, str) and found and expect.startswith(found):
        return found
    return expect


def _compare_fragments(case: dict[str, Any], whole: dict[str, Any]) -> str | None:
    datagrams = [bytes.fromhex(text) for text in case["datagrams"]]
    for order, arriving in (("in order", datagrams), ("backwards", datagrams[::-1])):
        pipeline = FeedPipeline(session_adopt_datagrams=1)
        messages = []
        for number, datagram in enumerate(arriving):
            pipeline.accept(0, 0, datagram, number, number)
            messages += [one for one in pipeline.take() if one.kind is Kind.MESSAGE]
        if len(messages) != 1:
            return f"{order}: expected 1 message, found {len(messages)}"
        message = messages[0]
        header = case["header"]
        found = {name: getattr(message, name) for name in header if name != "snapshot"}
        problem = difference(
            {
                **header,
                "snapshot": bool(header["snapshot"]),
                "length": case["message_length"],
                "crc32": case["crc32"],
            },
            {
                **found,
                "snapshot": bool(message.control & 0x10),
                "length": len(message.payload),
                "crc32": f"{zlib.crc32(message.payload):08x}",
            },
        )
        if problem is not None:
            return f"{order}: {problem}"
        if message.payload.hex() != whole["hex"]:
            return f"{order}: the message is not the payload that was cut"
    return None


def _compare_damaged(case: dict[str, Any]) -> str | None:
    decoded = decode(bytes.fromhex(case["hex"]), NameTable())
    if case["outcome"] == "any":
        return None
    expected = OUTCOMES.get(case["outcome"])
    if expected is None:
        return f"outcome {case['outcome']!r} is not one of {', '.join(OUTCOMES)}, any"
    if decoded.kind is not expected:
        return f"expected {expected.name}, found {decoded.kind.name} ({case['why']})"
    return None
