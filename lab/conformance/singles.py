"""Single datagrams of venues whose books are made of orders: what a decoder says of each message.

A row is a capture, the frame in it, a number, the message's type, and its fields by name. One
change of the message has to have what the fields say. A message that touches no book, and one of
which a row has the bytes alone (`raw`), has to be a message of the datagram.
"""

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from lab.guarded_frame import GuardedPayload
from udpfast.config.lines import PAYLOADS
from udpfast.net.pcap import CaptureReader
from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

from . import Report

__all__ = ["check"]

#: Framing -> payload, and the decimals of its prices; rows have prices without a scale as integers.
_VENUES = {
    "moldudp64": ("itch", 4),
    "iex_tp": ("iex_deep_plus", 4),
    "nyse_xdp": ("nyse_integrated", 0),
    "memx_memoir": ("memx", 6),
    "coinbase_derivatives": ("coinbase", 9),
}
_SIDES = {"B": 0, "S": 1, "8": 0, "5": 1, 1: 0, -1: 1}
_VERB_TRADE = 18
_UNIX_NS_MIN = 10**18  # a time below is one of the day


def check(path: Path, report: Report) -> None:
    """Run one `venue-singles` document; its captures lie in `data/pcap/singles`."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    folder = report.captures or path.resolve().parents[3] / "data" / "pcap"
    for name in dict.fromkeys(row[0] for row in rows):
        mine = [row[1:] for row in rows if row[0] == name]
        report.case(f"{path.name} {name}", partial(_single, folder / "singles" / name, mine))


def _single(path: Path, rows: list[list[Any]]) -> str | None:
    framing = path.parent.name
    found = list(_messages(path, framing))
    for frame, number, kind, fields in rows:
        mine = [data for f, n, data in found if f == frame and n in (number, 0)]
        name = f"frame {frame}, message {number}, {kind}"
        if not mine:
            return f"{name}: not found"
        if "raw" in fields:
            if not any(bytes.fromhex(fields["raw"]) in data for data in mine):
                return f"{name}: no message has these bytes"
            continue
        payload, decimals = _VENUES[framing]
        changes = GuardedPayload(PAYLOADS.index(payload)).changes(mine[0])
        wanted = [_wanted(framing, fields, one["verb"], decimals) for one in changes]
        told = [{key: one[key] for key in want} for want, one in zip(wanted, changes, strict=True)]
        if changes and not any(map(dict.__eq__, wanted, told)):
            return f"{name}: expected {wanted}, found {told}"
    return None


def _messages(path: Path, framing: str) -> Iterator[tuple[int, int, bytes]]:
    # What has one number is one message, of however many the venue sees in it.
    walker = Framing(framing)
    whole = walker.facts.numbers is Numbers.DATAGRAMS
    with CaptureReader(path) as reader:
        for frame, datagram in enumerate(reader):
            for unit in walker.units(datagram.payload) if whole else ():
                yield frame, unit.number, datagram.payload[unit.offset : unit.offset + unit.size]
            for number, data in () if whole else walker.messages(datagram.payload):
                yield frame, number, bytes(data)


def _wanted(framing: str, fields: dict[str, Any], verb: int, decimals: int) -> dict[str, int]:
    # What a change has to say, where the row says it.
    wanted: dict[str, Any] = {}
    identity = "id" if framing == "memx_memoir" else None
    order = "order" if identity or framing == "coinbase_derivatives" else "id"
    names = {
        "instrument": ("locate", "index", "instrument", identity),
        "order": (order, "ref", "new_ref", "new_id"),
        "chain": ("symbol_seq", "instr_seq"),
        "quantity": ("shares", "size"),
    }
    for key, called in names.items():
        for name in called:
            if name in fields:
                wanted[key] = fields[name]
    if "new_ref" in fields or "new_id" in fields:
        wanted["order_before"] = fields.get("ref", fields.get("id"))
    if "trade" in fields:
        wanted["order" if verb == _VERB_TRADE else "order_before"] = fields["trade"]
    if "symbol" in fields:
        wanted["instrument"] = int.from_bytes(fields["symbol"].ljust(8).encode(), "little")
    if fields.get("side") in _SIDES:
        wanted["side"] = _SIDES[fields["side"]]
    if "price" in fields:
        wanted["price"] = int(Decimal(fields["price"]).scaleb(decimals))
    if fields.get("time", 0) > _UNIX_NS_MIN:
        wanted["time_ns"] = fields["time"]
    return wanted
