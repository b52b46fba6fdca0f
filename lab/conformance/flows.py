"""Captures of any venue: flows, units, numbers, gaps, and what two lines make together.

What is found is laid out as the expectation is, and every value of it is compared, but for those of
`INFORMATIONAL`. Of a list that the expectation does not write to its end, its
beginning is compared.
"""

import hashlib
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from udpfast.net.pcap import CapturedDatagram, CaptureReader
from udpfast.wire.facts import Heartbeat, Numbers
from udpfast.wire.framing import Framing, MalformedError, NumberedMessage, ParsedUnit, UnitFlag
from udpfast.wire.recognise import recognise

from ..numbering import Arbitration, Naive
from . import Report, difference, fit
from .engine import check_engine

__all__ = ["INFORMATIONAL", "check"]

#: Keys of a file that are not compared, and why.
INFORMATIONAL = {
    "link_type": "udpfast reads Ethernet, loopback and raw IP alike and does not tell which",
    "last_ts_ns of a cut file": "the last frame is not there to have a time",
}

#: Lists of which an expectation may write only the first entries, and what says how many there are.
_COUNTS = {
    "gaps": "gap_count",
    "first_holes": "holes",
    "only_on_a": "only_on_a_count",
    "only_on_b": "only_on_b_count",
    "gaps_after_arbitration": "gap_count_after_arbitration",
}

_NUMBERED = {Numbers.DATAGRAMS: "packet", Numbers.MESSAGES: "message"}
_DELIVERIES = {1: "heartbeat", 11: "data", 12: "sequence_reset"}  # delivery flags of NYSE


def _le16(at: int) -> Callable[[bytes], int]:
    return lambda data: int.from_bytes(data[at : at + 2], "little")


#: What the expectation calls the type of a message.
_TYPES: dict[str, Callable[[bytes], int | str]] = {
    "cme_mdp3": _le16(4),
    "moldudp64": lambda data: chr(data[0]),
    "moldudp64le": lambda data: chr(data[0]),
    "iex_tp": lambda data: chr(data[0]),
    "cboe_pitch": lambda data: f"0x{data[1]:02x}",
    "miax_mach": lambda data: chr(data[0]),
    "ice_impact": lambda data: chr(data[0]),
    "nyse_xdp": _le16(2),
    "cboe_csm": lambda data: chr(data[3]),
    "memx_memoir": lambda data: int.from_bytes(data[:2], "big"),  # the length of its block
    "siac_cta": lambda data: data[2:4].decode(),
    "b3_umdf": _le16(6),
    "coinbase_derivatives": _le16(4),
    "eurex_eobi": _le16(2),
}


def check(path: Path, report: Report) -> None:
    """Run one `pcap-expected` document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    compared = 0
    for case in document["files"]:
        expect = {key: value for key, value in case.items() if key != "link_type"}
        if expect.get("unparsed"):
            expect.pop("last_ts_ns", None)
        capture = path.parent / case["file"]
        left: set[str] = set()
        expect = _without_unknown_messages(expect, left)
        compared += _leaves(expect)
        report.case(f"{path.name} {case['file']}", _compare, capture, expect, left)
        report.not_compared(f"{path.name} {case['file']}", left)
        report.case(f"{path.name} {case['file']} framing", _recognised, capture, case["framing"])
        if report.engine:
            check_engine(f"{path.name} {case['file']}", capture, case, report)
    left_out = "; ".join(f"{key}: {why}" for key, why in INFORMATIONAL.items())
    report.note(f"{path.name}: {compared} values compared. Not compared: {left_out}")


def _recognised(path: Path, framing: str) -> str | None:
    # By content. A capture of nothing but heartbeats may leave it open, but must not mislead.
    with CaptureReader(path) as reader:
        found = recognise((datagram.destination, datagram.payload) for datagram in reader)
    if found.name is None and framing in [one.name for one in found.candidates[:2]]:
        return None
    return difference(framing, found.name, found.why)


def _leaves(value: Any) -> int:
    if isinstance(value, dict | list) and value:
        return sum(map(_leaves, value.values() if isinstance(value, dict) else value))
    return 1


def _without_unknown_messages(expect: dict[str, Any], left: set[str]) -> dict[str, Any]:
    # Where a framing does not delimit its messages, nobody but their decoder can list them.
    units = [unit for flow in expect.get("flows", ()) for unit in flow.get("units", ())]
    if expect["framing"] in _TYPES or not any(unit.get("messages") for unit in units):
        return expect
    left.add(f"messages of the units, which {expect['framing']} does not delimit")
    flows = [
        flow
        if "units" not in flow
        else flow
        | {"units": [{k: v for k, v in u.items() if k != "messages"} for u in flow["units"]]}
        for flow in expect["flows"]
    ]
    return expect | {"flows": flows}


def _compare(path: Path, expect: dict[str, Any], left: set[str]) -> str | None:
    listed = any("units" in flow for flow in expect.get("flows", ()))
    found = _Found(Framing(expect["framing"]), listed)
    pairs = [(pair["a"], pair["b"]) for pair in expect.get("a_b", ())]
    arbitrations = {pair: Arbitration() for pair in pairs}
    lines = {name: (pair, line) for pair in pairs for line, name in enumerate(pair)}
    with CaptureReader(path) as reader:
        for frame, datagram in enumerate(reader):
            units = found.take(frame, datagram)
            if (place := lines.get(_address(*datagram.destination))) is not None:
                pair, line = place
                for unit in units:
                    if unit.count:
                        arbitrations[pair].unit(
                            line, unit.number, unit.count, datagram.timestamp_ns
                        )
        cut = reader.damage is not None
        frames, datagrams = reader.counts["frames"], reader.counts["datagrams"]
    said = {
        "file": expect["file"],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "framing": found.framing.name,
        "sequence_counts": _NUMBERED[found.framing.facts.numbers],
        "frames": frames,
        "udp_datagrams": datagrams + cut,
        "first_ts_ns": found.first_ns,
        **({} if cut else {"last_ts_ns": found.last_ns}),
        "unparsed": found.malformed
        + ([{"frame": frames - 1, "why": "cut off in the capture"}] if cut else []),
        "flows": found.flows(),
    }
    if pairs:
        said["a_b"] = [_paired(*pair, arbitrations[pair]) for pair in pairs]
    fitted = fit(expect, said, left, counts=_COUNTS, keyed=("streams",), whole=("kinds",))
    return difference(expect, fitted)


class _Found:
    # All that a capture holds, flow by flow, in the order in which they came.
    def __init__(self, framing: Framing, listed: bool) -> None:
        self.framing = framing
        self.listed = listed
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.malformed: list[dict[str, Any]] = []
        self._flows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def take(self, frame: int, datagram: CapturedDatagram) -> list[ParsedUnit]:
        self.first_ns = datagram.timestamp_ns if self.first_ns is None else self.first_ns
        self.last_ns = datagram.timestamp_ns
        key = (*datagram.source, *datagram.destination)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = {
                **dict(zip(("src", "sport", "dst", "dport"), key, strict=True)),
                "datagrams": 0,
                "payload_bytes": 0,
                "max_payload": 0,
                "streams": {},
                "units": [],
            }
        flow["datagrams"] += 1
        flow["payload_bytes"] += len(datagram.payload)
        flow["max_payload"] = max(flow["max_payload"], len(datagram.payload))
        try:
            units = self.framing.units(datagram.payload)
        except MalformedError as error:
            self.malformed.append({"frame": frame, "why": str(error)})
            return []
        for unit in units:
            self._stream(flow["streams"], unit, frame)
            if self.listed:
                flow["units"].append(_listed(self.framing, unit, datagram.payload, frame))
        return units

    def _stream(self, streams: dict[str, list[Any]], unit: ParsedUnit, frame: int) -> None:
        # One list of runs for each numbering: [first frame, what was found].
        runs = streams.setdefault(self.framing.label(unit) or "None", [])
        if not runs or (runs[-1][1].received.spans and _begins_anew(self.framing.name, unit)):
            runs.append((frame, Naive()))
        runs[-1][1].unit(
            _kind(self.framing.name, unit),
            unit.number,
            unit.count,
            unit.messages,
            names_next=self.framing.facts.heartbeat is Heartbeat.NEXT,
        )

    def flows(self) -> list[dict[str, Any]]:
        for flow in self._flows.values():
            if not self.listed:
                del flow["units"]
            flow["streams"] = {label: self._runs(runs) for label, runs in flow["streams"].items()}
        return list(self._flows.values())

    def _runs(self, runs: list[tuple[int, Naive]]) -> dict[str, Any]:
        if len(runs) == 1:
            return runs[0][1].found()
        return {
            "restarts": len(runs) - 1,
            "segments": [{"first_frame": frame, **naive.found()} for frame, naive in runs],
        }


def _begins_anew(name: str, unit: ParsedUnit) -> bool:
    # IEX's sender, within one session: message 1 at stream offset 0.
    return name == "iex_tp" and unit.number == 1 and unit.detail == 0


def _kind(name: str, unit: ParsedUnit) -> str:
    if name == "nyse_xdp":
        return _DELIVERIES.get(unit.detail, f"flag_{unit.detail}")
    if unit.flags & UnitFlag.END_OF_SESSION:
        return "end_of_session"
    if not unit.count:
        return "start_of_session" if unit.flags & UnitFlag.START_OF_SESSION else "heartbeat"
    return "snapshot" if unit.flags & UnitFlag.SNAPSHOT else "data"


def _listed(framing: Framing, unit: ParsedUnit, payload: bytes, frame: int) -> dict[str, Any]:
    name = framing.name
    messages = framing.messages(payload) if name in _TYPES and unit.messages else []
    published = unit.number - (not unit.count and framing.facts.heartbeat is Heartbeat.LAST)
    extra: dict[str, Any] = {}
    if name == "iex_tp":
        extra = {"stream_offset": unit.detail}
    elif name == "nyse_xdp":
        extra = {"delivery_flag": unit.detail}
    elif name == "coinbase_derivatives":
        extra = {"snapshot_instrument": unit.object}
    elif name == "eurex_eobi":
        extra = {
            "completion_indicator": unit.detail >> 16 & 0xFF,
            "reset_indicator": unit.detail >> 24 & 0xFF,
            "packet_header_template": unit.detail & 0xFFFF,
            "message_seqs": [int.from_bytes(data[4:8], "little") for _, data in messages],
        }
    return {
        "stream": framing.label(unit) or None,
        "seq": published,
        "count": unit.count,
        "kind": _kind(name, unit),
        "time_ns": unit.sent_ns or None,
        "messages": [_described(name, message) for message in messages],
        **extra,
        "frame": frame,
    }


def _described(name: str, message: NumberedMessage) -> list[Any]:
    # ICE's lengths are those of the body, behind type and length.
    size = len(message.data) - (3 if name == "ice_impact" else 0)
    return [size, _TYPES[name](message.data)]


def _paired(a: str, b: str, arbitration: Arbitration) -> dict[str, Any]:
    holes = arbitration.received.holes()
    only = [arbitration.only_on(line) for line in range(2)]
    return {
        "a": a,
        "b": b,
        "unique": sum(arbitration.first),
        "first_copy_from_a": arbitration.first[0],
        "first_copy_from_b": arbitration.first[1],
        "second_copies": arbitration.copies,
        "only_on_a_count": len(only[0]),
        "only_on_b_count": len(only[1]),
        "only_on_a": only[0],
        "only_on_b": only[1],
        "gap_count_after_arbitration": len(holes),
        "gaps_after_arbitration": holes,
        "lead_ns": _leads(arbitration.leads_ns),
    }


def _leads(leads_ns: list[int]) -> dict[str, int] | None:
    # None: no unit came on both lines.
    if not leads_ns:
        return None
    median = int(statistics.median(leads_ns))
    return {"min": min(leads_ns), "median": median, "max": max(leads_ns)}


def _address(host: str, port: int) -> str:
    return f"{host}:{port}"
