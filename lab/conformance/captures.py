"""Captures of the whole protocol: messages, gaps, sessions, and the books at the end."""

import json
import zlib
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import Channel, Kind, RecordFlag
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.market.book import OrderBook
from udpfast.market.gate import ObjectGate
from udpfast.market.names import NameTable
from udpfast.net.pcap import CaptureReader
from udpfast.payload.roq.decode import decode
from udpfast.payload.roq.flatbuffer import is_gated, message_type

from ..said import admitted
from . import Report, difference, join_gaps, read_lines
from .sequences import control_payload, described

__all__ = ["check"]

_REFUSED = (
    "too_short",
    "too_long",
    "fragment_beyond_max",
    "short_fragment",
    "fragment_max_changed",
    "encoding_refused",
)


@dataclass(slots=True)
class Replayed:
    """Everything that came out of one capture."""

    messages: list[FeedMessage] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    datagrams: int = 0
    damage: str | None = None


def check(path: Path, report: Report) -> None:
    """Run one `roq-udp-capture-expected` document: every entry that names a file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    listing = _listing(path.parent)
    for variant, expect in document.items():
        if not isinstance(expect, dict) or "file" not in expect:
            continue
        capture = path.parent / expect["file"]
        name = expect["file"]
        lines = _lines(document["ports"])
        replayed = replay(capture, lines)
        listed = [entry for entry in listing if not entry.get(f"lost_in_{variant}")]
        report.case(f"{name} accounting", _accounting, replayed, expect)
        report.case(f"{name} incremental messages", _incremental, replayed, listed)
        report.case(f"{name} snapshot messages", _snapshot, replayed, listed)
        report.case(f"{name} gaps", _gaps, replayed, expect)
        report.case(f"{name} sessions", _sessions, replayed, document["sessions"], expect)
        for channel, crc in _chains(expect).items():
            report.case(
                f"{name} payloads of {channel.name.lower()} in order",
                _chain,
                capture,
                lines,
                channel,
                crc,
            )
        report.case(f"{name} final books", _final_books, replayed, document["final_books"])


def replay(capture: Path, lines: dict[int, tuple[Channel, int]], **settings: Any) -> Replayed:
    """Bring a capture into a pipeline, by its own clock.

    Parameters
    ----------
    capture : path
    lines : dict
        UDP port -> (channel, line).
    **settings
        Of `FeedPipeline`; its defaults otherwise.
    """
    replayed = Replayed()
    pipeline = FeedPipeline(
        **{
            "lines_incremental": _line_count(lines, Channel.INCREMENTAL),
            "lines_snapshot": _line_count(lines, Channel.SNAPSHOT),
            **settings,
        }
    )
    now_ns = 0
    with CaptureReader(capture) as reader:
        for datagram in reader:
            if datagram.destination[1] not in lines:
                continue
            channel, line = lines[datagram.destination[1]]
            now_ns = max(now_ns, datagram.timestamp_ns)
            pipeline.expire(now_ns)
            replayed.messages += pipeline.take()
            verdict = pipeline.accept(
                channel, line, datagram.payload, datagram.timestamp_ns, now_ns
            )
            replayed.verdicts[VERDICTS[verdict].name] += 1
            replayed.messages += pipeline.take()
            replayed.datagrams += 1
        replayed.damage = reader.damage
    pipeline.finish(now_ns)
    replayed.messages += pipeline.take()
    return replayed


def _listing(folder: Path) -> list[dict[str, Any]]:
    # The file beside the captures that lists every message in publishing order.
    for path in sorted(folder.glob("*.jsonl*")):
        first = next(iter(read_lines(path)), {})
        if {"channel", "seqno", "length", "crc32"} <= first.keys():
            return list(read_lines(path))
    raise FileNotFoundError(f"{folder}: no .jsonl file lists the messages")


def _lines(ports: dict[str, str]) -> dict[int, tuple[Channel, int]]:
    # "incremental, line B (..)" -> (INCREMENTAL, 1)
    found = {}
    for port, text in ports.items():
        channel, _, rest = text.partition(",")
        letter = rest.strip().removeprefix("line ")[:1]
        line = ord(letter) - ord("A") if letter else 0
        found[int(port)] = (Channel[channel.strip().upper()], line)
    return found


def _line_count(lines: dict[int, tuple[Channel, int]], channel: Channel) -> int:
    return max((line + 1 for owner, line in lines.values() if owner is channel), default=1)


def _accounting(replayed: Replayed, expect: dict[str, Any]) -> str | None:
    refused = sum(replayed.verdicts[name] for name in _REFUSED)
    found = {
        "damage": replayed.damage,
        "datagrams": replayed.datagrams,
        "verdicts": sum(replayed.verdicts.values()),
        "stale_old_session_datagrams": replayed.verdicts["session_retired"],
        "rubbish_datagrams": refused,
    }
    return difference(
        {
            "damage": None,
            "datagrams": expect["datagrams"],
            "verdicts": expect["datagrams"],
            "stale_old_session_datagrams": expect.get("stale_old_session_datagrams", 0),
            "rubbish_datagrams": expect.get("rubbish_datagrams", 0),
        },
        found,
    )


def _delivered(replayed: Replayed, channel: Channel) -> list[FeedMessage]:
    return [
        message
        for message in replayed.messages
        if message.kind is Kind.MESSAGE and message.channel == channel
    ]


def _as_listed(message: FeedMessage, entry: dict[str, Any]) -> str | None:
    said = described(message) or {}
    expect = {name: entry[name] for name in said["message"]}
    expect["snapshot"] = bool(expect["snapshot"])
    return difference(expect, said["message"], f"message {entry['session_id']}/{entry['seqno']}")


def _incremental(replayed: Replayed, listed: list[dict[str, Any]]) -> str | None:
    # Every message that can be complete, in publishing order, once.
    expected = [entry for entry in listed if entry["channel"] == "incremental"]
    found = _delivered(replayed, Channel.INCREMENTAL)
    for message, entry in zip(found, expected, strict=False):
        problem = _as_listed(message, entry)
        if problem is not None:
            return problem
    if len(found) != len(expected):
        return f"expected {len(expected)} messages, found {len(found)}"
    return None


def _snapshot(replayed: Replayed, listed: list[dict[str, Any]]) -> str | None:
    # The snapshot channel is used only while the incremental channel has the same session: what
    # was sent before it did, or after, is not delivered. All else is, or lies inside a gap.
    begun = [
        (message.received_ns, message.session_id)
        for message in replayed.messages
        if message.kind is Kind.SESSION
    ]
    times = [time_ns for time_ns, _ in begun]
    lost = _lost(replayed, Channel.SNAPSHOT)
    delivered = {
        (message.session_id, message.seqno): message
        for message in _delivered(replayed, Channel.SNAPSHOT)
    }
    order = []
    for entry in listed:
        if entry["channel"] != "snapshot":
            continue
        key = entry["session_id"], entry["seqno"]
        if key in delivered:
            order.append(key)
            problem = _as_listed(delivered[key], entry)
            if problem is not None:
                return problem
            continue
        index = bisect_right(times, entry["t_ns"]) - 1
        if index >= 0 and begun[index][1] == key[0] and key not in lost:
            return f"message {key[0]}/{key[1]}: neither delivered nor reported lost"
    if order != list(delivered):
        return "messages that are not listed, or in another order"
    return None


def _lost(replayed: Replayed, channel: Channel) -> set[tuple[int, int]]:
    lost = set()
    for message in replayed.messages:
        if message.kind is Kind.GAP and message.channel == channel:
            gap = control_payload(message)
            lost |= {
                (message.session_id, (gap["first"] + offset) & 0xFFFFFFFF)
                for offset in range(gap["count"])
            }
    return lost


def _gaps(replayed: Replayed, expect: dict[str, Any]) -> str | None:
    found = []
    for message in replayed.messages:
        if message.kind is Kind.GAP and message.channel == Channel.INCREMENTAL:
            gap = control_payload(message)
            found.append(
                {
                    "session_id": message.session_id,
                    **{name: gap[name] for name in ("first", "last", "count")},
                }
            )
    gaps = expect.get("gaps_over_both_lines", expect.get("gaps"))
    return difference(join_gaps(gaps or []), join_gaps(found), "gaps")


def _sessions(replayed: Replayed, sessions: list[int], expect: dict[str, Any]) -> str | None:
    found = [message.session_id for message in replayed.messages if message.kind is Kind.SESSION]
    return difference(sessions, found, "sessions") or difference(
        expect.get("session_resets_incremental", len(sessions) - 1), len(found) - 1, "resets"
    )


def _chains(expect: dict[str, Any]) -> dict[Channel, str]:
    # "payload_crc32_in_order": {channel: crc}, or "payload_crc32_in_order_<channel>": crc.
    chains = {
        Channel[name.upper()]: crc for name, crc in expect.get("payload_crc32_in_order", {}).items()
    }
    for channel in Channel:
        crc = expect.get(f"payload_crc32_in_order_{channel.name.lower()}")
        if crc is not None:
            chains[channel] = crc
    return chains


def _chain(
    capture: Path, lines: dict[int, tuple[Channel, int]], channel: Channel, expected: str
) -> str | None:
    # Each channel by itself, as if it were the incremental one: so that the snapshot channel's
    # first messages, sent before the incremental channel began, are in the chain too.
    own = {
        port: (Channel.INCREMENTAL, line)
        for port, (owner, line) in lines.items()
        if owner is channel
    }
    crc = 0
    for message in _delivered(replay(capture, own), Channel.INCREMENTAL):
        crc = zlib.crc32(message.payload, crc)
    return difference(expected, f"{crc:08x}", "crc32")


def _final_books(replayed: Replayed, expected: dict[str, Any]) -> str | None:
    objects, names = ObjectGate(), NameTable()
    books: dict[str, OrderBook] = {}
    for message in replayed.messages:
        gated = (
            message.kind is not Kind.MESSAGE
            or not message.payload
            or is_gated(message_type(message.payload))
        )
        if message.kind is Kind.SESSION:
            books.clear()
        for output in admitted(objects, message, gated=gated):
            if output.kind == Kind.MESSAGE:
                decoded = decode(output.payload, names)
                if decoded.kind is Kind.BOOK:
                    symbol = names[decoded.symbol_id] or ""
                    books.setdefault(symbol, OrderBook()).apply(
                        decoded.payload, snapshot=bool(output.flags & RecordFlag.SNAPSHOT)
                    )
    return difference(
        expected,
        {
            symbol: {"bids": book.bids().tolist(), "asks": book.asks().tolist()}
            for symbol, book in books.items()
        },
        "books",
    )
