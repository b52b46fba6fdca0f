"""The end-to-end benchmarks at a tiny size: that they run, verify, and notice what is wrong."""

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import (
    bench_burst,
    bench_fanout,
    bench_ladder,
    bench_latency,
    bench_neighbours,
    bench_publisher,
    bench_replay,
    bench_ring,
)
from bench.loops.pace import PacedSender
from bench.loops.ring_hop import read_fast, write_bursts, write_fast
from bench.partner import Partner, PartnerError
from bench.ring_trial import READERS, open_progress, ring_latency, ring_throughput
from bench.schedule import Schedule, capture_schedule, even_schedule
from bench.trials import Settings, Unavailable
from bench.wire_trial import WARM_SHARE, wire_trial
from tests.shared import shared
from tests.waiting import PATIENCE_S
from udpfast.core.clock import monotonic_ns
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring
from udpfast.net.sender import DatagramSender
from udpfast.shm.histogram import LatencyHistogram

pytestmark = pytest.mark.system

FRAME = struct.Struct("<BBBBHHII")


@pytest.fixture(scope="module")
def partner() -> Iterator[Partner]:
    with Partner(None) as partner:
        yield partner


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(PATIENCE_S)
        yield sock


def double(state: dict[str, Any], value: int) -> int:
    """Be called by a partner; it keeps what it was told."""
    state.setdefault("seen", []).append(value)
    return 2 * sum(state["seen"])


def fail(state: dict[str, Any]) -> None:
    """Be called by a partner."""
    raise KeyError("nothing of that kind")


def test_partner_calls_keep_state_and_report_errors(partner: Partner) -> None:
    assert partner.call(double, 1) == 2
    with pytest.raises(PartnerError, match="nothing of that kind"):
        partner.call(fail)
    assert partner.call(double, 2) == 6


def test_even_schedule_two_lines_carry_the_same_times() -> None:
    schedule = even_schedule(1000.0, 3, lines=2)
    assert schedule.due_ns.tolist() == [0, 0, 1_000_000, 1_000_000, 2_000_000, 2_000_000]
    assert schedule.seqnos.tolist() == [1, 1, 2, 2, 3, 3]
    assert schedule.lines.tolist() == [0, 1, 0, 1, 0, 1]
    assert (schedule.messages, schedule.lines_total) == (3, 2)


def test_capture_schedule_of_two_lines_keeps_their_skew() -> None:
    path = shared("data", "pcap", "cme_mdp3_v1.6_ab.pcapng.gz")
    schedule = capture_schedule(path, 100_000, 1000)
    assert (schedule.messages, schedule.lines_total) == (1000, 2)
    assert (np.diff(schedule.due_ns) >= 0).all()
    assert np.diff(schedule.due_ns).max() <= 100_000
    first = {}
    for due, seqno in zip(schedule.due_ns.tolist(), schedule.seqnos.tolist(), strict=True):
        first.setdefault(seqno, due)
    assert schedule.stamps_ns.tolist() == [first[n] for n in schedule.seqnos.tolist()]
    skew = schedule.due_ns - schedule.stamps_ns
    # "lead 111 ns .. 15.4 us", says the description of the capture.
    assert skew[skew > 0].min() >= 111 and skew.max() <= 15_400


def test_paced_sender_fragments_carry_time_and_number(receiver: socket.socket) -> None:
    address = f"127.0.0.1:{receiver.getsockname()[1]}"
    with DatagramSender(address) as sender:
        pace = PacedSender([sender], message_bytes=1100, session_id=9)
        due_ns = np.array([monotonic_ns(), monotonic_ns() + 1_000_000])
        result = pace.send(due_ns, due_ns, np.array([5, 6], np.uint32), np.array([0, 0], np.uint8))
    assert (result.datagrams, result.unsent) == (6, 0)
    assert result.elapsed_ns >= 1_000_000
    for seqno, stamp in ((5, due_ns[0]), (6, due_ns[1])):
        datagrams = [receiver.recv(2048) for _ in range(3)]
        frames = [FRAME.unpack_from(datagram) for datagram in datagrams]
        assert [frame[1:3] for frame in frames] == [(0, 2), (1, 2), (2, 2)]
        assert {frame[5:7] for frame in frames} == {(9, seqno)}
        message = b"".join(datagram[16:] for datagram in datagrams)
        assert len(message) == 1100
        assert message[:8] == int(stamp).to_bytes(8, "little")
        assert message[-8:] == seqno.to_bytes(8, "little")
        assert not any(message[8:-8])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"message_bytes": 15}, "must be 16"), ({"message_bytes": 515}, "must leave 8")],
)
def test_paced_sender_wrong_size_is_refused(
    receiver: socket.socket, arguments: dict[str, Any], message: str
) -> None:
    with (
        DatagramSender(f"127.0.0.1:{receiver.getsockname()[1]}") as sender,
        pytest.raises(ValueError, match=message),
    ):
        PacedSender([sender], **arguments)


@pytest.mark.parametrize(("message_bytes", "lines"), [(64, 1), (64, 2), (2048, 1), (2048, 2)])
def test_wire_trial_every_message_is_published_and_timed(
    partner: Partner, message_bytes: int, lines: int
) -> None:
    found = wire_trial(partner, None, even_schedule(20_000, 400, lines), message_bytes)
    assert found.verify() == "400 sent = 400 in the ring, whole and in order"
    assert found.histogram.total == 400 - int(400 * WARM_SHARE)
    assert 0 < found.histogram.minimum <= found.histogram.maximum


def test_wire_trial_message_never_sent_is_noticed(partner: Partner) -> None:
    whole = even_schedule(20_000, 400)
    hole = whole.seqnos != 200
    schedule = Schedule(*(getattr(whole, name)[hole] for name in Schedule.__slots__))
    found = wire_trial(partner, None, schedule, 64)
    assert (found.published, found.lost, found.wrong, found.clean) == (399, 1, 1, False)
    with pytest.raises(ValueError, match="1 lost"):
        found.verify()


@pytest.mark.parametrize("way", READERS)
def test_ring_trial_every_record_is_read(partner: Partner, way: str) -> None:
    full = ring_throughput(partner, 0, way, 20_000, 64)
    assert full.value > 0
    assert full.verified.startswith("20,000 written = 20,000 read")
    paced = ring_latency(partner, 0, way, 50_000.0, 1000, 256)
    assert paced.histogram is not None
    assert paced.histogram.total == 1000 - int(1000 * WARM_SHARE)
    assert paced.histogram.minimum > 0


def test_read_fast_foreign_numbers_are_counted(tmp_path: Path) -> None:
    progress = open_progress(tmp_path, 1)
    with (
        Ring.create(tmp_path / "ring", 1 << 16) as ring,
        RingCursor.attach(tmp_path / "ring", "begin") as cursor,
    ):
        took = write_bursts(ring, 2, 5, 1_000, 64, first=3)
        assert took.shape == (2,) and (took > 0).all()
        seen, wrong, _ = read_fast(cursor, progress, 10, timeout_ns=1)
    assert (seen, wrong, int(progress[0])) == (10, 10, 10)


def test_write_fast_payload_too_small_is_refused(tmp_path: Path) -> None:
    with (
        Ring.create(tmp_path / "ring", 1 << 16) as ring,
        pytest.raises(ValueError, match="size must be 16"),
    ):
        write_fast(ring, open_progress(tmp_path, 1), 1, 8)


def rows_of(run: Callable[[Settings], Iterator[Any]]) -> list[Any]:
    """Run a benchmark with one round; fail if any variant did."""
    failures: list[str] = []
    settings = Settings(quick=True, rounds=1, cores=(0, 0), fail=failures.append)
    rows = list(run(settings))
    assert not failures
    for row in rows:
        row.check()
    return rows


def test_latency_benchmark_adds_the_hops_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_latency, "QUICK", (bench_latency.Case(20_000, whole_way=True),))
    monkeypatch.setattr(bench_latency, "SECONDS", 0.02)
    found = {row.variant: row for row in rows_of(bench_latency.run)}
    whole = found["socket to strategy, Python poll"]
    hops = found["socket to ring"], found["ring to strategy, Python poll"]
    assert whole.values == [hops[0].values[0] + hops[1].values[0]]
    assert list(whole.hops) == ["socket to ring", "ring to strategy"]


def test_ring_benchmark_reads_every_way() -> None:
    rows = rows_of(bench_ring.run)
    assert {row.variant for row in rows} >= set(READERS)
    assert {row.parameters["size"] for row in rows} == {64, 256}


def test_fanout_benchmark_every_reader_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_fanout, "READERS", (1, 2))
    found = {row.variant: row for row in rows_of(bench_fanout.run)}
    assert list(found) == ["no reader", "1 reader", "2 readers"]
    assert found["2 readers"].verified.endswith("by each of 2")


def test_publisher_benchmark_delivers_whole_and_fragmented(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_publisher, "SIZES", (64, 2048))
    found = {(row.variant, row.parameters["size"]): row for row in rows_of(bench_publisher.run)}
    assert ("udpfast", 64) in found and ("udpfast, segment", 2048) in found
    assert found["udpfast", 2048].verified.startswith("500 published = 500 delivered")


def test_replay_benchmark_agrees_with_the_description_of_the_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared("wire", "capture", "expected.json")
    monkeypatch.setattr(bench_replay, "CAPTURES", {"rough": "roq_udp_rough.pcap.gz"})
    found = {(row.variant, row.unit): row for row in rows_of(bench_replay.run)}
    assert found["engine", "messages/s"].verified.startswith("26,842 messages delivered and 40")
    assert found["engine and books", "datagrams/s"].values[0] > 0


def test_replay_benchmark_wrong_count_is_refused() -> None:
    path = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    recording = bench_replay.load(path, (1, 0))
    with pytest.raises(ValueError, match="delivered and lost, found"):
        bench_replay.replay(0, recording, False)


def test_recorded_data_absent_leaves_the_benchmark_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UDPFAST_SHARED", str(tmp_path))
    for run in (bench_replay.run, bench_burst.run):
        with pytest.raises(Unavailable, match="UDPFAST_SHARED"):
            next(iter(run(Settings())))


def test_burst_benchmark_takes_the_times_of_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    shared("data", "pcap", "cme_mdp3_v1.6_ab.pcapng.gz")
    monkeypatch.setattr(bench_burst, "MESSAGES_MAX", 800)
    monkeypatch.setattr(bench_burst, "CAPTURES", {"cme": bench_burst.CAPTURES["cme_mdp3_v1.6_ab"]})
    rows = rows_of(bench_burst.run)
    assert [row.variant for row in rows] == ["evenly spaced", "as captured"]
    assert rows[1].parameters["lines"] == 2
    assert rows[1].verified.startswith("200 sent = 200 in the ring")


def test_ladder_benchmark_full_speed_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ladder, "RUNGS", (20_000,))
    monkeypatch.setattr(bench_ladder, "SECONDS", 0.05)
    monkeypatch.setattr(bench_ladder, "FULL_MESSAGES", 4000)
    monkeypatch.setattr(bench_ladder, "FULL_RUNS", 4)
    rows = rows_of(bench_ladder.run)
    first = next(row for row in rows if row.parameters.get("rate") == 20_000)
    assert first.variant == "default buffer: reached"
    assert "250 sent" in first.verified
    runs = {row.variant: row.verified for row in rows if row.unit == "runs"}
    assert "messages/s or more" in runs["clean runs at full speed"]
    if len(runs) > 1:  # where a wire can be made
        assert "messages/s or more" in runs["clean runs over veth"]


def test_ladder_names_the_counter_nearest_to_the_sender_first() -> None:
    rung = bench_ladder.Rung(10, 8, 8, 7, 0, 2, 2, 1, 1.0, 0.0, True)
    assert not rung.clean
    assert rung.moved == ["kernel_drops 2", "lost 2", "lapped 1"]
    assert rung.account().endswith("moved: kernel_drops 2, lost 2, lapped 1")


def test_histogram_of_a_trial_is_its_own(partner: Partner) -> None:
    first = ring_latency(partner, 0, "Cython cursor", 50_000.0, 200, 64)
    second = ring_latency(partner, 0, "Cython cursor", 50_000.0, 200, 64)
    assert isinstance(first.histogram, LatencyHistogram)
    assert isinstance(second.histogram, LatencyHistogram)
    assert first.histogram.total == second.histogram.total == 200 - int(200 * WARM_SHARE)


def test_neighbours_benchmark_accounts_for_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_neighbours, "NEIGHBOURS", 2)
    monkeypatch.setattr(bench_neighbours, "RATE", 20_000)
    monkeypatch.setattr(bench_neighbours, "SECONDS", 0.2)
    found = {(row.variant, row.parameters["measure"]): row for row in rows_of(bench_neighbours.run)}
    for measure in ("p99", "throughput"):
        for variant, said in (
            ("alone", "read in order"),
            ("7 stopped", "told exactly what they missed"),
            ("7 at 1 %", "told to be missed"),
            ("7 killed", "killed"),
        ):
            assert said in found[variant, measure].verified
