"""Replay: the same datagrams make the same records, byte by byte, however they are cut."""

import hashlib
import multiprocessing
import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest

from lab.frames import datagrams
from lab.framings import Sent, build
from tests.shared import shared
from udpfast.agents.feed.replay_lines import guess_channels
from udpfast.agents.feed.replay_source import CaptureSource, RawSource
from udpfast.agents.feed.replayer import Replayer
from udpfast.cli.replay_target import Pacer
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError
from udpfast.log.cursor import RingCursor
from udpfast.log.journal import Journal
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.monitor.ledger import ledger_of
from udpfast.monitor.losses import read_losses
from udpfast.net.pcap import CAPTURED, CaptureBatch, CaptureEvent, CaptureReader
from udpfast.payload.roq.encode import encode_book, encode_top_of_book
from udpfast.shm.names import attach_names, create_names, names_table


def feed(**tables):
    """Return a feed of two incremental lines and one snapshot line."""
    lines = [{"name": name, "address": f"0.0.0.0:{9001 + i}"} for i, name in enumerate("AB")]
    return parse_feed(
        {
            "name": "test",
            "incremental": {"lines": lines},
            "snapshot": {"lines": [{"name": "A", "address": "0.0.0.0:9003"}]},
            **tables,
        }
    )


def datagram(
    seqno, payload=b"x" * 12, encoding=1, object_type=0, session_id=7, snapshot=False, last=0
):
    """Return one whole message."""
    control = encoding | (0x10 if snapshot else 0)
    return (
        struct.pack("<BBBBHHII", control, 0, 0, object_type, 1, session_id, seqno, last) + payload
    )


def batch_of(datagrams):
    """Return (time_ns, datagram) pairs as a batch of captured datagrams."""
    headers = np.zeros(len(datagrams), CAPTURED)
    buffer = b"".join(data for _, data in datagrams)
    offset = 0
    for header, (time_ns, data) in zip(headers, datagrams, strict=True):
        header["timestamp_ns"], header["offset"], header["size"] = time_ns, offset, len(data)
        offset += len(data)
    return CaptureBatch(headers, buffer)


def run(directory: Path, config, batches, step=64):
    """Replay batches of (CaptureBatch, channels, lines); return records and counters."""
    replayer = Replayer(config, directory)
    records = []
    with RingCursor.attach(
        directory, start="begin", limit=4096, payload_hash=PAYLOAD_HASH
    ) as cursor:

        def drain():
            while count := cursor.poll():
                assert cursor.lapped == 0
                headers = cursor.headers[:count].copy()
                payloads = [bytes(cursor.payload(i)) for i in range(count)]
                records.extend(zip(headers, payloads, strict=True))

        for batch, channels, lines in batches:
            for start in range(0, len(channels), step):
                replayer.replay(batch, channels, lines, start, min(start + step, len(channels)))
                drain()
        replayer.finish()
        drain()
    counters = replayer.counters()
    replayer.close()
    losses = read_losses(directory)
    assert losses.ledger.adds_up, losses.ledger.sums
    return records, counters


def digest(records):
    """Return the hash of every record, header and payload."""
    whole = hashlib.sha256()
    for header, payload in records:
        whole.update(header.tobytes() + payload)
    return whole.hexdigest()


def one_line(datagrams):
    """Return datagrams as one batch on incremental line A."""
    zeros = np.zeros(len(datagrams), np.uint8)
    return [(batch_of(datagrams), zeros, zeros)]


def capture_batches(path):
    """Return the batches of a capture of the protocol, with channels and lines by port."""
    with CaptureReader(path) as source:
        while (batch := source.read_batch()) is not None:
            ports = batch.headers["destination_port"]
            yield (batch, (ports == 9002).astype(np.uint8), (ports == 9101).astype(np.uint8))


def test_engine_without_memory_for_its_books_leaves_no_files(tmp_path):
    tables = {"streams": {"lines": [{"name": "A", "address": "0.0.0.0:9001"}]}}
    tables["wire"] = {"framing": "moldudp64", "payload": "itch"}
    tables |= {"name": "test", "window": {"size": 256}, "ring": {"capacity_bytes": 1 << 22}}
    config = parse_feed(tables | {"books": {"orders_max": 50_000_000}})  # some 9 GB
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), before[1]))
    try:
        with pytest.raises(MemoryError, match="the kernel has no room"):
            Replayer(config, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert not list(tmp_path.iterdir())


def test_replay_opaque_messages_come_out_as_published(tmp_path):
    sent = [(1_000 + i, datagram(i, bytes([i]) * (i + 1))) for i in range(20)]
    records, counters = run(tmp_path, feed(), one_line(sent))
    messages = [(header, payload) for header, payload in records if header["kind"] == Kind.MESSAGE]
    assert [payload[16:] for _, payload in messages] == [bytes([i]) * (i + 1) for i in range(20)]
    assert [int(header["number"]) for header, _ in messages] == list(range(20))
    assert [int(header["received_ns"]) for header, _ in messages] == [1_000 + i for i in range(20)]
    assert counters["incremental.A"]["delivered"] == 20
    assert ledger_of(counters).adds_up


def test_replay_of_a_journal_that_is_written_ends_where_it_was(tmp_path):
    with Journal.open(tmp_path / "raw") as journal:
        for seqno in range(10):
            journal.append(Kind.DATAGRAM, bytes(16) + datagram(seqno), published_ns=seqno)
        source = RawSource(tmp_path / "raw", feed())
        for batch in source:  # what is sent may come back into the journal
            journal.append(Kind.DATAGRAM, bytes(16) + datagram(10), published_ns=10)
            assert len(batch.headers) == 10
        assert source.frames["datagrams"] == 10


def test_capture_is_read_from_a_frame_or_time_up_to_another():
    path = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    channels = {name: [[flow] for flow in flows] for name, flows in guess_channels(path).items()}
    stamps = [int(each) for batch in CaptureSource(path, channels) for each in
              batch.headers["timestamp_ns"]]  # fmt: skip
    first, last = stamps[10], stamps[30]
    for start, end, expected in (
        (("position", 10), ("position", 30), stamps[10:30]),
        (("time", first), ("time", last), [each for each in stamps if first <= each < last]),
        (("time", last), None, [each for each in stamps if last <= each]),
    ):
        source = CaptureSource(path, channels, start, end)
        found = [int(each) for batch in source for each in batch.headers["timestamp_ns"]]
        assert found == expected


@pytest.mark.parametrize(
    ("speed", "now_ms", "due"), [(1.0, 60, 1), (2.0, 60, 2), (2.0, 30, 1), (4.0, 30, 2)]
)
def test_pace_is_a_multiple_of_the_recorded_one(monkeypatch, speed, now_ms, due):
    clock = iter([0, 0, now_ms * 1_000_000])
    monkeypatch.setattr("udpfast.cli.replay_target.monotonic_ns", lambda: next(clock))
    stamps = np.array([0, 50, 100, 200, 400]) * 1_000_000
    pacer = Pacer(speed)
    assert pacer.due(stamps, 0, 1) == 1  # begins the clock
    # As many are due as lie `speed * now_ms` behind the first, none of them waited for.
    assert pacer.due(stamps, 1, 4) == 1 + due


def test_replay_finish_reports_the_open_hole(tmp_path):
    sent = [(1_000, datagram(1)), (1_001, datagram(3))]
    records, counters = run(tmp_path, feed(), one_line(sent))
    kinds = [Kind(header["kind"]) for header, _ in records]
    assert kinds[-2:] == [Kind.GAP, Kind.MESSAGE]
    assert counters["incremental"]["lost"] == 1


def test_replay_doubt_of_the_loop_is_said_where_the_loop_said_it(tmp_path):
    sent = [(n, datagram(seqno)) for n, seqno in ((1_000, 1), (1_001, 2), (0, 0), (1_003, 3))]
    batch = batch_of(sent)
    batch.headers["event"] = CaptureEvent.OWN
    batch.headers["event"][2] = CaptureEvent.DOUBT
    batch.headers["unix_ns"] = batch.headers["now_ns"] = range(1_000, 1_004)
    replayer = Replayer(feed(), tmp_path)
    assert replayer.play(batch, 0, 4) == 4
    with RingCursor.attach(tmp_path, start="begin", payload_hash=PAYLOAD_HASH) as cursor:
        kinds = [Kind(kind) for kind in cursor.headers["kind"][: cursor.poll()]]
    counted = replayer.counters()["incremental"]
    replayer.close()
    assert kinds[-3:] == [Kind.MESSAGE, Kind.GAP, Kind.MESSAGE]
    assert (counted["gaps"], counted["lost"]) == (1, 0)


@pytest.mark.parametrize(("late_us", "gaps"), [(0, 1), (1_001, 1), (4_000, 0)])
def test_replay_hole_waits_from_when_it_may_have_come(tmp_path, late_us, gaps):
    wait_ns = feed().window.lost_packet_wait_us * 1_000
    batch = batch_of([(1_000, datagram(1)), (1_001, datagram(3)), (0, b""), (1_003, datagram(2))])
    batch.headers["event"] = CaptureEvent.OWN
    batch.headers["event"][2] = CaptureEvent.EXPIRE
    batch.headers["unix_ns"] = range(1_000, 1_004)
    batch.headers["now_ns"] = 1_000, 1_001, 2_000_000 + wait_ns, 2_000_001 + wait_ns
    batch.headers["flags"][1] = late_us << 8
    replayer = Replayer(feed(), tmp_path)
    assert replayer.play(batch, 0, 4) == 4
    counted = replayer.counters()
    replayer.close()
    assert counted["incremental"]["gaps"] == gaps
    assert counted["incremental"]["messages"] == 3 - gaps


def mold(number, *messages):
    return build("moldudp64", Sent(number, messages, (), b"session  1", 1_000))


PARTS = datagrams(bytes(1_500), session_id=7, seqno=2)
#: What shows that something is missing, between what comes before it and what fills it.
SHOWN = {
    "message": ("roq", [datagram(1), datagram(3), datagram(2)]),
    "fragment": ("roq", [datagram(1), *(PARTS[n] for n in (2, 0, 1))]),
    "packed": ("moldudp64", [mold(n, *[b"m"] * 30) for n in (1, 61, 31)]),
    "heartbeat": ("moldudp64", [mold(1, b"m"), mold(3), mold(2, b"m")]),
}


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("late_us", [0, 4_000])
def test_replay_hole_waits_from_then_whatever_shows_it(tmp_path, shown, late_us):
    framing, sent = SHOWN[shown]
    config = feed(wire={"framing": framing}, **({} if framing == "roq" else {"snapshot": {}}))
    wait_ns = config.window.lost_packet_wait_us * 1_000
    batch = batch_of([(1_000, data) for data in (*sent[:-1], b"", sent[-1])])
    batch.headers["event"] = CaptureEvent.OWN
    batch.headers["event"][-2] = CaptureEvent.EXPIRE
    batch.headers["unix_ns"] = batch.headers["now_ns"] = 1_000
    batch.headers["now_ns"][-2:] = 2_000_000 + wait_ns
    batch.headers["flags"][1:-2] = late_us << 8
    replayer = Replayer(config, tmp_path)
    assert replayer.play(batch, 0, len(batch.headers)) == len(batch.headers)
    counted = replayer.counters()["incremental"]
    replayer.close()
    assert counted["gaps"] == (late_us == 0)


@pytest.mark.parametrize("waited_us", [0, 7_000])
def test_replay_gap_of_a_late_turn_was_waited_for_from_when_it_was_read(tmp_path, waited_us):
    config = feed(window={"out_of_order_max_interval": 8})
    batch = batch_of([(1_000, datagram(n)) for n in (1, 3, *range(4, 14))])
    batch.headers["event"] = CaptureEvent.OWN
    batch.headers["unix_ns"] = batch.headers["now_ns"] = 1_000
    batch.headers["flags"][1] = 20_000 << 8
    batch.headers["flags"][2:] = (20_000 + waited_us) << 8
    replayer = Replayer(config, tmp_path)
    assert replayer.play(batch, 0, 12) == 12
    with RingCursor.attach(tmp_path, start="begin", payload_hash=PAYLOAD_HASH) as cursor:
        (at,) = [
            offset
            for header, offset in zip(cursor.headers[: cursor.poll()], cursor.offsets, strict=False)
            if header["kind"] == Kind.GAP
        ]
        first, _, _, waited_ns = struct.unpack_from("<QQQq", cursor.payloads, at)
    replayer.close()
    assert (first, waited_ns) == (2, waited_us * 1_000)


@pytest.mark.parametrize("carry", ["updates", "messages", "both"])
def test_replay_carry_decides_what_the_ring_holds(tmp_path, carry):
    path = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    records, _ = run(tmp_path, feed(ring={"carry": carry}), list(capture_batches(path)))
    kinds = {Kind(header["kind"]) for header, _ in records}
    assert (Kind.BOOK in kinds) == (carry != "messages")
    assert (Kind.MESSAGE in kinds) == (carry != "updates")
    if carry == "both":
        updates = sum(header["kind"] >= Kind.BOOK for header, _ in records)
        messages = sum(header["kind"] == Kind.MESSAGE for header, _ in records)
        assert updates == messages > 0


def test_replay_same_capture_any_batch_gives_same_bytes(tmp_path):
    path = shared("wire", "capture", "roq_udp_rough.pcap.gz")
    batches = list(capture_batches(path))
    hashes = set()
    for step in (1, 8, 64):
        directory = tmp_path / str(step)
        directory.mkdir(mode=0o700)
        records, counters = run(directory, feed(), batches, step)
        hashes.add(digest(records))
        assert ledger_of(counters).adds_up
    assert len(hashes) == 1


def test_replay_rough_capture_reports_every_gap(tmp_path):
    path = shared("wire", "capture", "roq_udp_rough.pcap.gz")
    _, counters = run(tmp_path, feed(), list(capture_batches(path)))
    incremental = counters["incremental"]
    assert (incremental["messages"], incremental["gaps"], incremental["lost"]) == (26_842, 17, 40)
    assert incremental["sessions"] == 2
    assert counters["feed"]["decode_refused"] == 0


def test_replay_refused_payload_is_counted_and_not_published(tmp_path):
    sent = [(1_000 + i, datagram(i, b"\xff" * 40, encoding=2)) for i in range(5)]
    records, counters = run(tmp_path, feed(), one_line(sent))
    assert counters["feed"]["decode_refused"] == 5
    assert not any(header["kind"] == Kind.MESSAGE for header, _ in records)


def test_replay_native_payload_that_looks_like_a_book_is_not_withheld(tmp_path):
    payload = bytes(encode_book("venue", "symbol", bids=[(1.0, 2.0)]))
    sent = [(1_000 + i, datagram(5 + i, payload, object_type=3)) for i in range(3)]
    records, _ = run(tmp_path, feed(), one_line(sent))
    assert [bytes(body[16:]) for header, body in records if header["kind"] == Kind.MESSAGE] == [
        payload
    ] * 3


def test_replay_start_and_stop_outside_are_refused(tmp_path):
    replayer = Replayer(feed(), tmp_path)
    zeros = np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match=r"must lie in 0\.\.1, were 0 and 2"):
        replayer.replay(batch_of([(1, datagram(1))]), zeros, zeros, 0, 2)
    replayer.close()


@pytest.mark.parametrize("sent", [[], [(1, b"")], [(1, b""), (2, b"")]])
def test_replay_of_nothing_and_of_empty_datagrams_is_no_error(tmp_path, sent):
    replayer = Replayer(feed(), tmp_path)
    zeros = np.zeros(len(sent), np.uint8)
    replayer.replay(batch_of(sent), zeros, zeros, 0, len(sent))
    assert replayer.counters()["incremental.A"]["datagrams"] == len(sent)
    replayer.close()


@pytest.mark.parametrize(("channel", "line"), [(0, 2), (1, 1), (2, 0), (255, 0)])
def test_replay_datagrams_of_other_lines_are_refused_or_left_out(tmp_path, channel, line):
    replayer = Replayer(feed(), tmp_path)
    batch = batch_of([(1, datagram(1)), (2, datagram(2))])
    batch.headers["channel"], batch.headers["line"] = [0, channel], [1, line]
    if channel == 255:
        assert replayer.play(batch, 0, 2) == 2
    else:
        words = rf"2 incremental, 1 snapshot\), found one of channel {channel}, line {line}"
        with pytest.raises(ConfigError, match=words):
            replayer.play(batch, 0, 2)
        heard = np.array([0, channel], np.uint8), np.array([1, line], np.uint8)
        with pytest.raises(ConfigError, match=words):
            replayer.replay(batch, *heard, 0, 2)
    assert replayer.counters()["incremental.B"]["datagrams"] == (channel == 255)
    replayer.close()


def test_replay_message_that_waited_keeps_its_number_stream_and_session(tmp_path):
    def book(update_type):
        return bytes(encode_book("x", "y", bids=[(1.0, 1.0)], asks=[], update_type=update_type))

    sent = [
        (1, datagram(5, book(2), 2, 41, last=4)),
        (2, datagram(6, book(2), 2, 41, last=5)),
        (3, datagram(7, book(2), 2, 41, last=6)),
        (4, datagram(90, book(1), 2, 41, snapshot=True, last=5)),
        (5, datagram(8, book(2), 2, 41, last=7)),
    ]
    batch = batch_of(sent), *np.array([[0, 0, 0, 1, 0], [0, 1, 0, 0, 1]], np.uint8)
    records, _ = run(tmp_path, feed(ring={"carry": "messages"}), [batch])
    found = [
        tuple(int(header[name]) for name in ("stream", "line", "number", "session"))
        for header, _ in records
        if header["kind"] == Kind.MESSAGE
    ]
    assert found == [(1, 0, 90, 1), (0, 1, 6, 1), (0, 0, 7, 1), (0, 1, 8, 1)]


@pytest.mark.parametrize("damage", ["body", "everything"])
def test_replay_damaged_update_makes_its_object_stale_until_a_snapshot(tmp_path, damage):
    def book(price, snapshot):
        return bytes(
            encode_book(
                "x", "y", bids=[(price, 1.0)], asks=[(price + 1, 1.0)], update_type=2 - snapshot
            )
        )

    damaged = bytearray(book(102.0, False))
    begin = len(damaged) // 2 if damage == "body" else 0
    damaged[begin:] = b"\xff" * (len(damaged) - begin)
    updates = [
        (1, datagram(5, book(100.0, True), 2, 41, snapshot=True)),
        (2, datagram(6, book(101.0, False), 2, 41, last=5)),
        (3, datagram(7, bytes(damaged), 2, 41, last=6)),
        (4, datagram(8, book(103.0, False), 2, 41, last=7)),
    ]
    snapshots = [
        (5, datagram(1, book(101.0, True), 2, 41, snapshot=True, last=6)),
        (6, datagram(2, book(103.0, True), 2, 41, snapshot=True, last=8)),
    ]
    channels = np.array([0, 0, 0, 0, 1, 1], np.uint8)
    batches = [(batch_of(updates + snapshots), channels, np.zeros(6, np.uint8))]
    records, counters = run(tmp_path, feed(), batches)
    kinds = [Kind(header["kind"]) for header, _ in records if header["object"] >> 16 == 41]
    assert counters["feed"]["decode_refused"] == 1
    assert kinds == [
        *(Kind.RECOVERED, Kind.BOOK, Kind.BOOK),
        Kind.STALE,
        *(Kind.RECOVERED, Kind.BOOK),
    ]


def test_replay_another_table_size_keeps_every_name_and_id(tmp_path):
    def update(seqno, symbol):
        payload = bytes(encode_book("x", symbol, bids=[(1.0, 1.0)], asks=[], update_type=1))
        return datagram(seqno, payload, 2, 41, snapshot=True)

    run(tmp_path, feed(ring={"names": 64}), one_line([(1, update(1, "old"))]))
    run(tmp_path, feed(ring={"names": 128}), one_line([(2, update(1, "new"))]))
    with attach_names(tmp_path / "names") as region:
        names = NameTable(names_table(region))
        assert [names[i] for i in range(1, len(names) + 1)] == ["x", "old", "new"]
        del names
    with pytest.raises(ConfigError, match=r"ring\.names: expected at least"):
        for i in range(20):
            run(tmp_path, feed(ring={"names": 128}), one_line([(2, update(1, f"{i}"))]))
        Replayer(feed(ring={"names": 16}), tmp_path)


def _leave(directory, config, datagrams):
    # What a feed leaves that is killed.
    def run_and_die():
        batch, channels, lines = one_line(datagrams)[0]
        replayer = Replayer(config, directory)
        replayer.replay(batch, channels, lines, 0, len(channels))
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=run_and_die)
    child.start()
    child.join()


def _symbols(reader):
    # By number, of all that is there.
    found = {}
    for _ in range(2):
        while reader.wait(0):
            record = next(reader)
            if record.kind is Kind.TOP_OF_BOOK:
                found[record.number] = record.symbol
        reader._look()
    return found


@pytest.mark.filterwarnings("ignore:.*its writer .* is dead")
@pytest.mark.parametrize("lost", ["nothing", "names", "names, and nothing more", "size"])
def test_records_whose_names_are_lost_never_have_those_of_others(tmp_path, lost):
    def tops(first, *symbols):
        return [
            (at, datagram(at, bytes(encode_top_of_book("x", symbol, 1.0, 1.0)), 2, 43))
            for at, symbol in enumerate(symbols, first)
        ]

    _leave(tmp_path, feed(ring={"names": 64}), tops(1, "A", "B"))
    with Reader(f"ring:{tmp_path}", start="oldest") as before:
        if lost.startswith("names"):
            (tmp_path / "names").unlink()
        if lost == "names, and nothing more":  # its writer was killed before it had the ring
            region = create_names(tmp_path / "names", name_table_size(64))
            table = NameTable(names_table(region), capacity=64)
            for each in ("x", "C", "D"):
                table.intern(each)
            region.mark_ready()
        else:
            size = 128 if lost == "size" else 64
            _leave(tmp_path, feed(ring={"names": size}), tops(3, "C", "D"))
        with Reader(f"ring:{tmp_path}", start="oldest") as late:
            found = _symbols(before), _symbols(late)
    old, new = {1: "A", 2: "B"}, {3: "C", 4: "D"}
    assert (
        found
        == {
            "nothing": (old | new, old | new),
            "size": (old | new, old | new),
            "names": (old | new, new),  # what was written before lies in another file
            "names, and nothing more": (old, dict.fromkeys(old)),
        }[lost]
    )


def test_replay_gated_type_without_its_value_makes_its_object_stale(tmp_path):
    whole = encode_book("x", "s", bids=[(101.0, 1.0)], asks=[], update_type=1)
    empty = bytearray(whole)
    empty[4 + 8 : 4 + 10] = bytes(2)  # the place of the value in the event's vtable
    sent = [
        (1, datagram(5, bytes(whole), 2, 41, snapshot=True)),
        (2, datagram(6, bytes(empty), 2, 41, last=5)),
        (3, datagram(7, bytes(whole), 2, 41, last=6)),
    ]
    records, counters = run(tmp_path, feed(), one_line(sent))
    kinds = [Kind(int(header["kind"])) for header, _ in records]
    expected = [Kind.SESSION, Kind.RECOVERED, Kind.BOOK, Kind.STALE]
    assert [kind for kind in kinds if kind is not Kind.CONNECTION] == expected
    assert counters["feed"]["decode_refused"] == 1
    assert counters["feed"]["collected"] == 1
