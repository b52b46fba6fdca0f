"""A feed's settings reach windows and objects; what becomes of a payload is counted once."""

import struct
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from tests.agents.test_replayer import batch_of, datagram, feed, one_line, run
from udpfast.core.layout import Kind
from udpfast.market.updates import GATEWAY_STATUS
from udpfast.payload.roq.encode import encode_book
from udpfast.payload.roq.event import encode_event

MS = 1_000_000
SECOND = 1_000 * MS


def at(times: list[float], session_ids: list[int] | None = None, **fields: Any) -> Any:
    """Return messages 1, 2, ... of line A at these ms, of one session or each of its own."""
    ids = session_ids or [7] * len(times)
    return one_line(
        [
            (int(1 + time_ms * MS), datagram(seqno, session_id=session_id, **fields))
            for seqno, (time_ms, session_id) in enumerate(zip(times, ids, strict=True), 1)
        ]
    )


def counted(directory: Path, batches: Any, scope: str, name: str, **tables: Any) -> int:
    """Return one counter of a feed with these settings."""
    _, counters = run(directory, feed(**tables), batches)
    return int(counters[scope][name])


@pytest.mark.parametrize(("wait_us", "gaps"), [(6_000, 1), (8_000, 0)])
def test_lost_packet_wait_is_in_microseconds(tmp_path: Path, wait_us: int, gaps: int) -> None:
    sent = [(1, datagram(1)), (MS, datagram(3)), (8 * MS, datagram(2)), (8 * MS + 1, datagram(4))]
    settings = {"lost_packet_wait_us": wait_us}
    counters = run(tmp_path, feed(window=settings), one_line(sent))[1]["incremental"]
    assert (counters["gaps_by_time"], counters["messages"]) == (gaps, 4 - gaps)


def test_lost_packet_wait_that_is_auto_follows_the_slower_line(tmp_path: Path) -> None:
    # Line B is 20 ms behind, and alone brings 250.
    arrivals = [(seqno * MS, 0, seqno) for seqno in range(1, 300) if seqno != 250]
    arrivals += [((seqno + 20) * MS, 1, seqno) for seqno in range(1, 300)]
    arrivals.sort()
    sent = [(at_ns, datagram(seqno)) for at_ns, _, seqno in arrivals]
    batches = [
        (batch_of(part), np.zeros(len(part), np.uint8), np.array(lines, np.uint8))
        for first in range(0, len(sent), 8)
        for part, lines in [
            (sent[first : first + 8], [line for _, line, _ in arrivals[first : first + 8]])
        ]
    ]
    for wait_us, gaps in (("auto", 0), (5_000, 1)):
        settings = {"lost_packet_wait_us": wait_us}
        directory = tmp_path / str(wait_us)
        directory.mkdir()
        counters = run(directory, feed(window=settings), batches)[1]
        assert counters["incremental"]["gaps"] == gaps
        expected = 25 * MS if wait_us == "auto" else 5 * MS
        assert counters["incremental"]["wait_ns"] == expected


@pytest.mark.parametrize(("timeout_ms", "times"), [(200, 1), (300, 0)])
def test_inactivity_timeout_is_in_milliseconds(tmp_path: Path, timeout_ms: int, times: int) -> None:
    settings = {"inactivity_timeout_ms": timeout_ms}
    counters = run(tmp_path, feed(session=settings), at([0, 250]))[1]["incremental"]
    assert (counters["disconnected"], counters["ready"]) == (times, 1 + times)


@pytest.mark.parametrize(("grace_s", "retired"), [(1.5, 0), (2.5, 2)])
def test_stale_grace_is_in_seconds(tmp_path: Path, grace_s: float, retired: int) -> None:
    batches = at([0, 1, 2, 2003, 2004], [7, 8, 8, 7, 7])
    settings = {"stale_grace_s": grace_s, "restart_datagrams": 0}
    assert counted(tmp_path, batches, "incremental.A", "session_retired", session=settings) == (
        retired
    )


@pytest.mark.parametrize(("dead_ms", "gaps"), [(50, 1), (70, 0)])
def test_line_dead_is_in_milliseconds(tmp_path: Path, dead_ms: int, gaps: int) -> None:
    # Line B brings the first message, then nothing; A goes on behind a hole, for 60 ms.
    sent = [(1, datagram(1)), (1, datagram(1))]
    sent += [(60 * MS * (seqno - 2) // 37, datagram(seqno)) for seqno in range(3, 40)]
    lines = np.zeros(len(sent), np.uint8)
    lines[1] = 1
    batches = [(batch_of(sent), np.zeros_like(lines), lines)]
    settings = {
        "line_dead_ms": dead_ms,
        "out_of_order_max_interval": 16,
        "lost_packet_wait_us": 1_000_000,
    }
    name = "gaps_by_count"
    assert counted(tmp_path, batches, "incremental", name, window=settings) == gaps


@pytest.mark.parametrize(
    ("settings", "counter", "count"),
    [
        ({}, "collect_full", 0),
        ({"collect_messages": 300}, "collect_full", 0),
        ({"collect_messages": 299}, "collect_full", 299),
        ({"collect_bytes": 1 << 16}, "collect_full", None),
        ({"max": 16}, "objects_full", 300 - 16),
    ],
)
def test_limits_of_objects_are_the_settings(
    tmp_path: Path, settings: dict[str, int], counter: str, count: int | None
) -> None:
    def update(seqno: int, object_id: int) -> bytes:
        payload = bytes(encode_book("x", f"s{object_id}", bids=[(1.0, 1.0)] * 12, asks=[]))
        frame = struct.pack("<BBBBHHII", 2, 0, 0, 41, object_id, 7, seqno, seqno - 1)
        return frame + payload

    # Updates of one object that waits for its snapshot; or of one each.
    each = counter == "objects_full"
    sent = [(seqno, update(seqno, seqno if each else 1)) for seqno in range(5, 305)]
    found = counted(tmp_path, one_line(sent), "feed", counter, objects=settings)
    assert found == count or (count is None and 0 < found <= 300)


def test_status_mask_hides_what_a_feed_does_not_carry(tmp_path: Path) -> None:
    value = {"account": "", "supported": 0xFF, "available": 0xFF, "unavailable": 0}
    payload = encode_event({"value_name": "GatewayStatus", "value": value})
    sent = [(1, datagram(1, payload, 2, 0))]
    records, _ = run(tmp_path, feed(objects={"status_mask": 0x0F}), one_line(sent))
    (status,) = (body for header, body in records if header["kind"] == Kind.GATEWAY_STATUS)
    assert np.frombuffer(status, GATEWAY_STATUS, count=1)[0]["supported"] == 0x0F


# --- one counter each -----------------------------------------------------------------------------


def event(code: int, field: int | None = None) -> bytes:
    """Return an event of a union code whose value is a table with at most one field."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(0 if field is None else field + 1)
    if field is not None:
        builder.PrependUint16Slot(field, 1, 0)
    value = builder.EndObject()
    builder.StartObject(3)
    if code:
        builder.PrependUint8Slot(1, code, 0)
        builder.PrependUOffsetTRelativeSlot(2, value, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


STREAM_STATUS, TOP_OF_BOOK, CREATE_ORDER, UNKNOWN = 9, 15, 20, 200
LONG = encode_event({"value_name": "GatewayStatus", "value": {"account": "a" * 200}})


@pytest.mark.parametrize(
    ("payload", "encoding", "expected"),
    [
        (event(TOP_OF_BOOK), 2, {"updates": 1}),
        (event(STREAM_STATUS), 2, {"stream_status": 1}),
        (event(0), 2, {"types_none": 1}),
        (event(CREATE_ORDER), 2, {"types_opaque": 1, "records_raw": 1}),
        (event(UNKNOWN), 2, {"types_unknown": 1, "records_raw": 1}),
        (event(TOP_OF_BOOK, field=60), 2, {"updates": 1, "fields_unknown": 1}),
        (LONG, 2, {"updates": 1, "truncated": 1}),
        (event(TOP_OF_BOOK)[:-3], 2, {"decode_refused": 1}),
        (b"not for us", 1, {"records_raw": 1}),
    ],
)
def test_payload_is_counted_once_by_what_became_of_it(
    tmp_path: Path, payload: bytes, encoding: int, expected: dict[str, int]
) -> None:
    records, counters = run(tmp_path, feed(), one_line([(1, datagram(1, payload, encoding, 0))]))
    names = (
        *("updates", "stream_status", "types_none", "types_opaque", "types_unknown"),
        *("fields_unknown", "truncated", "decode_refused", "records_raw", "channel_unexpected"),
        *("records_too_large", "names_full"),
    )
    found = {name: counters["feed"][name] for name in names if counters["feed"][name]}
    assert found == expected
    of_payload = [header for header, _ in records if header["kind"] in (2, *range(16, 64))]
    control = len(records) - len(of_payload)
    assert len(of_payload) == counters["feed"]["updates"] + counters["feed"]["records_raw"]
    assert counters["feed"]["records_control"] == control
    assert counters["feed"]["record_bytes"] == sum(int(header["length"]) for header, _ in records)


def test_type_on_the_wrong_channel_is_counted_and_delivered(tmp_path: Path) -> None:
    sent = [(1, datagram(1)), (2, datagram(1, event(TOP_OF_BOOK), 2, 0, snapshot=True))]
    batches = [(batch_of(sent), np.array([0, 1], np.uint8), np.zeros(2, np.uint8))]
    records, counters = run(tmp_path, feed(), batches)
    assert (counters["feed"]["channel_unexpected"], counters["feed"]["updates"]) == (1, 1)
    assert Kind.TOP_OF_BOOK in [header["kind"] for header, _ in records]


def test_names_beyond_their_room_are_counted(tmp_path: Path) -> None:
    books = [bytes(encode_book("x", f"s{i}", bids=[(1.0, 1.0)], asks=[])) for i in range(40)]
    sent = [(1 + i, datagram(1 + i, book, 2, 0)) for i, book in enumerate(books)]
    _, counters = run(tmp_path, feed(ring={"names": 16}), one_line(sent))
    assert counters["feed"]["names_full"] == 40 - 15  # "x" and the first fifteen have an id
