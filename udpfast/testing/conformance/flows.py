"""Captures of any feed: how many datagrams and bytes each flow has."""

import json
from pathlib import Path
from typing import Any

from udpfast.net.pcap import CaptureReader
from udpfast.testing.conformance import Report, difference

__all__ = ["check"]


def check(path: Path, report: Report) -> None:
    """Run one `pcap-expected` document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for case in document["files"]:
        report.case(f"{path.name} {case['file']}", _compare, path.parent / case["file"], case)


def _compare(path: Path, expect: dict[str, Any]) -> str | None:
    flows: dict[str, dict[str, int]] = {}
    first_ns = last_ns = None
    with CaptureReader(path) as reader:
        for datagram in reader:
            first_ns = datagram.timestamp_ns if first_ns is None else first_ns
            last_ns = datagram.timestamp_ns
            name = _name(*datagram.source, *datagram.destination)
            flow = flows.setdefault(name, {"datagrams": 0, "payload_bytes": 0, "max_payload": 0})
            flow["datagrams"] += 1
            flow["payload_bytes"] += len(datagram.payload)
            flow["max_payload"] = max(flow["max_payload"], len(datagram.payload))
    cut = [entry["frame"] for entry in expect["unparsed"]]
    found = {
        "frames": reader.counts["frames"],
        "udp_datagrams": reader.counts["datagrams"] + len(cut),
        "first_ts_ns": first_ns,
        "whole": reader.damage is None,
    }
    problem = difference(
        {
            "frames": expect["frames"],
            "udp_datagrams": expect["udp_datagrams"],
            "first_ts_ns": expect["first_ts_ns"],
            "whole": not cut,
        },
        found,
    )
    if problem is None and not cut:
        problem = difference(expect["last_ts_ns"], last_ns, "last_ts_ns")
    return problem or difference(
        {
            _name(flow["src"], flow["sport"], flow["dst"], flow["dport"]): {
                name: flow[name] for name in ("datagrams", "payload_bytes", "max_payload")
            }
            for flow in expect["flows"]
        },
        flows,
    )


def _name(source: str, source_port: int, destination: str, destination_port: int) -> str:
    return f"{source}:{source_port} to {destination}:{destination_port}"
