"""Golden datagrams: what a parser must say about each header."""

import json
from pathlib import Path
from typing import Any

from udpfast.core.layout import Encoding
from udpfast.wire.frame import ParsedFrame, frame_parse
from udpfast.wire.framing import Framing, Malformed, MalformedError, UnitFlag

from . import Report, difference

__all__ = ["check"]

_FRAGMENT_SIZE = 512

#: What the framing calls a refusal.
_REASONS = {
    "too_short": Malformed.HEADER_SHORT,
    "too_long": Malformed.TOO_LONG,
    "fragment_beyond_max": Malformed.FRAGMENT_BEYOND,
    "short_fragment": Malformed.FRAGMENT_SHORT,
}


def check(path: Path, report: Report) -> None:
    """Run one `roq-udp-golden-headers` document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for case in document["datagrams"]:
        report.case(f"{path.name} {case['name']}", _compare, document, case)
        report.case(f"{path.name} {case['name']} as a unit", _compare_unit, document, case)


def _compare(document: dict[str, Any], case: dict[str, Any]) -> str | None:
    data = bytes.fromhex(case["hex"])
    frame = frame_parse(data, revision=document["revision"], byteorder=document["byte_order"])
    return difference(case["expect"], _described(frame, case["expect"], len(data)))


def _compare_unit(document: dict[str, Any], case: dict[str, Any]) -> str | None:
    # The same datagram through the framing, beside the frame that the pipeline reads.
    data = bytes.fromhex(case["hex"])
    revision, byteorder = document["revision"], document["byte_order"]
    framing = Framing("roq" + "_legacy" * (revision == "legacy") + "_big" * (byteorder == "big"))
    frame = frame_parse(data, revision=revision, byteorder=byteorder)
    try:
        (unit,) = framing.units(data)
    except MalformedError as error:
        return difference(_REASONS.get(frame.error or ""), error.reason)
    heartbeat = frame.payload_size == 0 and frame.fragment_max == 0
    return difference(
        {
            "session_id": frame.session_id,
            "seqno": frame.seqno,
            "last_seqno": frame.last_seqno,
            "object": (frame.object_type, frame.object_id),
            "fragment": (frame.fragment, frame.fragment_max + 1),
            "encoding": frame.encoding,
            "flags": UnitFlag.SNAPSHOT * frame.snapshot | UnitFlag.HEARTBEAT * heartbeat,
            "payload": frame.payload_size,
            "count": 1,
        },
        {
            "session_id": unit.session,
            "seqno": unit.number,
            "last_seqno": unit.detail & 0xFFFFFFFF,
            "object": (unit.object >> 16, unit.object & 0xFFFF),
            "fragment": (unit.fragment, unit.fragments),
            "encoding": unit.encoding,
            "flags": unit.flags,
            "payload": unit.size,
            "count": unit.count,
        },
    )


def _described(frame: ParsedFrame, expect: dict[str, Any], size: int) -> dict[str, Any]:
    # The fields that the case asks for, by the names that it uses.
    final = frame.fragment == frame.fragment_max
    fields: dict[str, Any] = {
        "ok": frame.error is None,
        "error": frame.error,
        "length": size,
        "payload_length": frame.payload_size,
        "heartbeat": frame.payload_size == 0 and frame.fragment_max == 0,
        "final_fragment": final,
        "fragment_offset": _FRAGMENT_SIZE * frame.fragment,
        "message_length": (_FRAGMENT_SIZE * frame.fragment + frame.payload_size if final else None),
        "warnings": list(frame.warnings),
    }
    found = {name: fields.get(name) for name in expect if name != "header"}
    if frame.error is not None:
        found["error"] = frame.error
    if "header" in expect:
        header = {**frame._asdict(), "encoding_name": _encoding_name(frame.encoding)}
        found["header"] = {name: header.get(name) for name in expect["header"]}
    return found


def _encoding_name(encoding: int) -> str:
    names = {value.value: value.name.lower() for value in Encoding}
    return names.get(encoding, "unknown") if encoding else "undefined"
