"""Truths of captures made here: compared whole, or the line says what was not."""

import copy
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.conformance import Report, run, venue_books
from lab.conformance.looked import Looked
from lab.framings import Sent, build
from tests.net.test_pcap import ethernet, ipv4, pcap, udp

AT_NS = 1_700_000_000_000_000_000
GAPS = 150


def captured(path: Path, payloads: list[bytes]) -> bytes:
    """Write a capture, a datagram each millisecond; return its bytes."""
    frames = [(AT_NS + i * 1_000_000, ethernet(ipv4(udp(each)))) for i, each in enumerate(payloads)]
    path.write_bytes(pcap(frames, nanoseconds=True))
    return path.read_bytes()


def truth(folder: Path, framing: str, payloads: list[bytes], stream: dict[str, Any]) -> Any:
    """Return what is to be said of a capture of one flow with one stream."""
    raw = captured(folder / "a.pcap", payloads)
    flow = {
        "src": "10.0.0.1",
        "sport": 4000,
        "dst": "239.1.2.3",
        "dport": 9001,
        "datagrams": len(payloads),
        "payload_bytes": sum(map(len, payloads)),
        "max_payload": max(map(len, payloads)),
        "streams": stream,
    }
    case = {
        "file": "a.pcap",
        "sha256": hashlib.sha256(raw).hexdigest(),
        "bytes": len(raw),
        "framing": framing,
        "sequence_counts": "message",
        "frames": len(payloads),
        "udp_datagrams": len(payloads),
        "first_ts_ns": AT_NS,
        "last_ts_ns": AT_NS + (len(payloads) - 1) * 1_000_000,
        "link_type": 1,
        "unparsed": [],
        "flows": [flow],
    }
    return {"format": "pcap-expected/1", "files": [case]}


def compared(folder: Path, document: Any) -> Report:
    (folder / "expected.json").write_text(json.dumps(document))
    report = Report()
    run(folder, report)
    return report


def every_second(folder: Path) -> Any:
    """Return the truth of a capture of which every second message is missing."""
    session = b"SESSION001"
    payloads = [
        session + struct.pack(">QHH", number, 1, 1) + b"A" for number in range(1, 2 * GAPS + 2, 2)
    ]
    gaps = [[number, number] for number in range(2, 2 * GAPS + 1, 2)]
    stream = {
        "units": GAPS + 1,
        "kinds": {"data": GAPS + 1},
        "messages": GAPS + 1,
        "first_seq": 1,
        "next_expected": 2 * GAPS + 2,
        "gap_count": GAPS,
        "missing": GAPS,
        "gaps": gaps,
        "old_or_duplicate": 0,
        "never_received": {"holes": GAPS, "numbers": GAPS, "first_holes": copy.deepcopy(gaps)},
    }
    return truth(folder, "moldudp64", payloads, {"SESSION001": stream})


def stream_of(document: Any) -> Any:
    return document["files"][0]["flows"][0]["streams"]["SESSION001"]


def test_all_gaps_of_a_truth_are_compared(tmp_path: Path) -> None:
    document = every_second(tmp_path)
    report = compared(tmp_path, document)
    assert (report.passed, report.failed) == (3, 0), report.lines
    assert not any("not compared: " in line for line in report.lines)
    stream_of(document)["gaps"][120] = [7, 7]
    report = compared(tmp_path, document)
    assert [line for line in report.lines if "gaps[120][0]: expected 7, found 242" in line]
    stream_of(document)["never_received"]["first_holes"][140] = [7, 7]
    failed = [line for line in compared(tmp_path, document).lines if line.startswith("FAILED")]
    assert len(failed) == 2
    assert " engine: numberings" in failed[1]


def test_list_that_is_cut_is_said_not_to_be_compared_to_its_end(tmp_path: Path) -> None:
    document = every_second(tmp_path)
    stream = stream_of(document)
    stream["gaps"] = stream["gaps"][:100]
    stream["never_received"]["first_holes"] = stream["never_received"]["first_holes"][:110]
    report = compared(tmp_path, document)
    assert report.failed == 0, report.lines
    (said,) = [line for line in report.lines if line.startswith("not compared: ")]
    assert "gaps behind the first 100, which it does not list" in said
    assert "first_holes behind the first 110, which it does not list" in said
    stream["gaps"] = stream["gaps"][:50]  # no truth is cut so early: it says something wrong
    assert compared(tmp_path, document).failed == 1


@pytest.mark.parametrize(
    ("remove", "said"),
    [
        (lambda case: case.pop("unparsed"), None),  # there was nothing to say
        (lambda case: case.pop("bytes"), "bytes, which it does not say"),
        (lambda case: case["flows"][0].pop("max_payload"), "max_payload, which it does not say"),
        (lambda case: streams(case).pop("kinds"), "kinds, which it does not say"),
        (
            lambda case: streams(case).pop("old_or_duplicate"),
            "engine: anything, for want of old_or_duplicate",
        ),
        (
            lambda case: streams(case)["never_received"].pop("holes"),
            "engine: anything, for want of never_received.holes",
        ),
        (lambda case: case["flows"][0].pop("streams"), "streams, which it does not say"),
    ],
)
def test_missing_key_is_said_and_the_rest_is_compared(
    tmp_path: Path, remove: Callable[[Any], Any], said: str | None
) -> None:
    document = every_second(tmp_path)
    remove(document["files"][0])
    report = compared(tmp_path, document)
    assert report.failed == 0, report.lines
    lines = [line for line in report.lines if line.startswith("not compared: ")]
    assert (said is None) == (not lines)
    assert said is None or any(said in line for line in lines)
    document["files"][0]["frames"] += 1
    assert compared(tmp_path, document).failed == 1


def streams(case: Any) -> Any:
    return case["flows"][0]["streams"]["SESSION001"]


def test_flow_that_the_capture_does_not_have_fails(tmp_path: Path) -> None:
    document = every_second(tmp_path)
    document["files"][0]["flows"][0]["dport"] = 9
    assert compared(tmp_path, document).failed == 2


def test_start_of_a_session_is_no_heartbeat(tmp_path: Path) -> None:
    """MIAX: kind 1 starts a session, 0 is a heartbeat; both have the number used last."""
    parts = [(0, 12, 1, b""), (1, 13, 3, b"x"), (1, 12, 0, b""), (2, 13, 3, b"y"), (2, 12, 2, b"")]
    payloads = [
        struct.pack("<QHBB", number, length, kind, 1) + body for number, length, kind, body in parts
    ]
    stream = {
        "units": 5,
        "kinds": {"start_of_session": 1, "data": 2, "heartbeat": 1, "end_of_session": 1},
        "messages": 2,
        "first_seq": 1,
        "next_expected": 3,
        "gap_count": 0,
        "missing": 0,
        "gaps": [],
        "old_or_duplicate": 0,
        "never_received": {"holes": 0, "numbers": 0, "first_holes": []},
    }
    document = truth(tmp_path, "miax_mach", payloads, {"1": stream})
    report = compared(tmp_path, document)
    assert [line for line in report.lines if "kinds" in line] == []


def quote(at_ns: int, symbol: bytes, bid: tuple[int, int], ask: tuple[int, int]) -> bytes:
    begin = struct.pack("<cBq8s", b"Q", 0, at_ns, symbol.ljust(8))
    return begin + struct.pack("<IqqI", bid[1], bid[0], ask[0], ask[1])


def tops(folder: Path) -> Any:
    """Return the truth of a TOPS capture: two quotes of AA, one of BB, two of nothing of CC."""
    quotes = [
        (b"AA", (500_000, 100), (501_000, 200)),
        (b"CC", (0, 0), (0, 0)),
        (b"BB", (0, 0), (125, 7)),
        (b"CC", (0, 0), (0, 0)),
        (b"AA", (0, 0), (0, 0)),
    ]
    payloads, lines = [], []
    for number, (symbol, bid, ask) in enumerate(quotes, 1):
        at_ns = AT_NS + number
        data = quote(at_ns, symbol, bid, ask)
        payloads.append(build("iex_tp", Sent(number, (data,), (0x8003, 1), 77, at_ns)))
        cells = (text(bid[0]), bid[1], text(ask[0]), ask[1], 0)
        lines.append(",".join(map(str, (number, symbol.decode(), at_ns, *cells))))
    (folder / "data" / "pcap").mkdir(parents=True)
    raw = captured(folder / "data" / "pcap" / "tops.pcap", payloads)
    segment = {
        "protocol": "0x8003",
        "messages": {"Q": 5},
        "symbols_seen": 3,
        "totals": {
            "symbols_with_trades": 0,
            "symbols_with_quotes": 2,
            "symbols_with_zero_quotes_only": 1,
            "zero_quotes_of_these": 2,
            "trades": 0,
            "quotes": 5,
        },
        "digests": {
            "quotes": {
                "lines": 5,
                "sha256": hashlib.sha256("".join(f"{one}\n" for one in lines).encode()).hexdigest(),
            }
        },
        "symbols": {"AA": {"quotes": {"count": 2}}, "BB": {"quotes": {"count": 1}}},
    }
    flow = {"datagrams": 5, "runs": 1, "segments": [segment]}
    case = {
        "file": "tops.pcap",
        "framing": "iex_tp",
        "capture_sha256": hashlib.sha256(raw).hexdigest(),
        "flows": [flow],
    }
    return {"format": "venue-expected/1", "files": [case]}


def text(price: int) -> str:
    """Return a price of four decimals without zeros at its end."""
    return f"{price / 10_000:.4f}".rstrip("0").rstrip(".")


def of_venue(folder: Path, document: Any) -> Report:
    (folder / "venues").mkdir(exist_ok=True)
    return compared(folder / "venues", document)


def test_truth_of_tops_is_compared(tmp_path: Path) -> None:
    document = tops(tmp_path)
    report = of_venue(tmp_path, document)
    assert (report.passed, report.failed) == (5, 0), report.lines
    (said,) = [line for line in report.lines if line.startswith("not compared: ")]
    assert "quotes of each symbol, other than by the digest of all" in said
    assert "stream_bytes, which it does not say" in said


@pytest.mark.parametrize(
    "name", ["symbols_with_quotes", "symbols_with_zero_quotes_only", "zero_quotes_of_these"]
)
def test_wrong_total_of_tops_fails(tmp_path: Path, name: str) -> None:
    document = tops(tmp_path)
    document["files"][0]["flows"][0]["segments"][0]["totals"][name] += 1
    (failed,) = [line for line in of_venue(tmp_path, document).lines if line.startswith("FAILED")]
    assert f"totals.{name}: expected" in failed


def test_symbol_that_is_not_quoted_fails(tmp_path: Path) -> None:
    document = tops(tmp_path)
    document["files"][0]["flows"][0]["segments"][0]["symbols"]["DD"] = {"quotes": {"count": 1}}
    report = of_venue(tmp_path, document)
    assert sum("symbols.DD: not found" in line for line in report.lines) == 2


@pytest.mark.parametrize(
    "break_it",
    [
        lambda document: document.pop("files"),
        lambda document: document["files"][0].pop("framing"),
        lambda document: document["files"][0].update(file="other.pcap"),
    ],
)
def test_truth_that_cannot_be_run_fails_and_the_next_one_runs(
    tmp_path: Path, break_it: Callable[[Any], Any]
) -> None:
    document = every_second(tmp_path)
    (tmp_path / "sound.json").write_text(json.dumps(document))
    break_it(document)
    report = compared(tmp_path, document)
    assert report.passed == 3
    assert report.failed > 0
    assert all("expected.json" in line for line in report.lines if line.startswith("FAILED"))


def test_what_nobody_looked_at_is_named_by_its_path() -> None:
    document = Looked(
        {"name": "x", "totals": {"trades": 1, "levels": 2}, "sides": [{"bids": [], "asks": []}],
         "instruments": {"1": {"book": {"n": 1}, "ticker": 5}, "2": {"book": {"n": 1}}}}
    )  # fmt: skip
    assert document.unasked() == {"name", "totals", "sides", "instruments"}
    assert document["totals"]["trades"] == 1
    assert document["sides"][0].get("bids") == []
    assert [one["book"] for one in document["instruments"].values()] == [{"n": 1}, {"n": 1}]
    assert document.unasked() == {
        "name", "totals.levels", "sides.asks", "instruments.*.ticker", "instruments.*.book.n",
    }  # fmt: skip
    assert document["instruments"]["1"]["book"] == {"n": 1}


def test_books_of_a_venue_say_which_parts_of_their_truth_were_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trades(path: Path, case: dict[str, Any]) -> Any:
        yield "trades", lambda: None if case["totals"]["trades"] == 3 else "others"

    monkeypatch.setattr(venue_books, "_ice", trades)
    report = Report()
    case = {"file": "a.pcap", "framing": "ice_impact", "sha256": "", "rfq": [],
            "totals": {"trades": 3, "orders": 4}}  # fmt: skip
    assert venue_books.check_case(Path("a.pcap"), case, report)
    assert (report.passed, report.lines) == (
        1, ["not compared: a.pcap books: rfq; totals.orders"])  # fmt: skip
