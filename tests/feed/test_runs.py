"""What does not continue the current numbering: held aside, believed once proven."""

import gc
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.feed.drive import SESSION_ID, Driver, datagram, read
from tests.shared import ROOT
from udpfast.core.layout import SESSION, GapReason, Kind, SessionReason

MS = 1_000_000
SECOND = 1_000_000_000


def heartbeat(seqno: int) -> bytes:
    return datagram(seqno, b"", object_type=0)


def session(driver: Driver, index: int) -> dict[str, int]:
    payloads = [m.payload for m in driver.out if m.kind is Kind.SESSION]
    values = np.frombuffer(payloads[index], SESSION)[0]
    return {name: int(values[name]) for name in SESSION.names or ()}


def numbered(
    driver: Driver, seqnos: range, name: bytes, lines: tuple[int, ...], step_ns: int = MS
) -> None:
    """Send messages of one numbering on some lines."""
    for seqno in seqnos:
        for line in lines:
            driver.send(datagram(seqno, b"%s %d" % (name, seqno)), line, at_ns=driver.now_ns)
        driver.now_ns += step_ns


@pytest.mark.parametrize("died_at", [0, 20])
@pytest.mark.parametrize("after", [(0,), (1,), (0, 1)])
def test_restart_with_same_id_is_seen_whatever_lines_spoke(
    died_at: int, after: tuple[int, ...]
) -> None:
    driver = Driver(lines_incremental=2)
    numbered(driver, range(1, 1 + died_at), b"old", (0, 1))
    numbered(driver, range(1 + died_at, 10_000), b"old", (0,))
    numbered(driver, range(1, 200), b"new", after)
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    assert [m.payload for m in driver.messages()[9_999:]] == [b"new %d" % i for i in range(1, 200)]
    assert driver.verdicts.count("replay") + driver.verdicts.count("duplicate") <= 64 + 200 + 20
    assert (session(driver, 1)["first_number"], session(driver, 1)["unseen"]) == (1, 0)


@pytest.mark.parametrize("lines", [1, 2, 8])
@pytest.mark.parametrize("jump", [8_292, 20_000, 1 << 20, (1 << 30) - 1, (1 << 31) + 5])
@pytest.mark.parametrize("channel", [0, 1])
def test_jump_of_one_datagram_is_not_believed(lines: int, jump: int, channel: int) -> None:
    driver = Driver(lines_incremental=lines, lines_snapshot=lines)
    driver.send(datagram(0))
    for seqno in range(1, 60):
        for line in range(lines):
            driver.send(datagram(seqno), line, channel)
    verdict = driver.send(datagram(60 + jump), lines - 1, channel)
    assert verdict in ("session_pending", "replay")
    for seqno in range(60, 200):
        for line in range(lines):
            driver.send(datagram(seqno), line, channel)
    driver.finish()
    assert driver.seqnos(channel)[-199:] == list(range(1, 200))
    assert driver.gaps(channel) == []


def test_jump_of_a_line_that_goes_on_is_not_believed() -> None:
    driver = Driver(lines_incremental=2)
    for seqno in range(200):
        for line in range(2):
            driver.send(datagram(seqno), line)
        if seqno >= 60:
            driver.send(datagram(1_000_000 + seqno), 1)
    driver.finish()
    assert driver.seqnos() == list(range(200))
    assert len(driver.sessions()) == 1


@pytest.mark.parametrize("jump", [5_000, 50_000])
def test_jump_of_few_with_holes_is_undone_without_loss(jump: int) -> None:
    driver = Driver(lines_incremental=2)
    numbered(driver, range(1, 500), b"live", (0, 1))
    for seqno in range(500 + jump, 500 + jump + 31 * 40, 40):
        driver.send(datagram(seqno, b"forged"), 1, at_ns=driver.now_ns)
        driver.send(datagram(seqno + 1, b"f" * 512, fragment_max=1), 1, at_ns=driver.now_ns)
    driver.now_ns += 10 * MS
    numbered(driver, range(500, 800), b"live", (0, 1))
    driver.finish()
    delivered = [m.payload for m in driver.messages()]
    assert [b"live %d" % seqno in delivered for seqno in range(1, 800)] == [True] * 799
    assert driver.sessions()[-1][2] == SessionReason.RESUMED


def test_jump_that_a_second_datagram_continues_loses_neither() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(1))
    for seqno in (50_001, 50_000, 50_004):
        driver.send(datagram(seqno))
    driver.finish()
    assert driver.seqnos() == [1, 50_000, 50_001, 50_004]
    assert driver.gaps() == [(2, 49_999), (50_002, 50_003)]
    assert len(driver.sessions()) == 1


@pytest.mark.parametrize("part", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("last", [2_000, 9_000])
def test_restart_of_a_quiet_feed_is_seen_among_heartbeats(part: float, last: int) -> None:
    rng = random.Random(4)

    def either(name: bytes, seqno: int) -> bytes:
        if rng.random() < part:
            return datagram(seqno, b"%s %d" % (name, seqno))
        return heartbeat(seqno)

    driver = Driver(lines_incremental=1)
    for seqno in range(1, last):
        driver.send(either(b"old", seqno), at_ns=seqno * 100 * MS)
    start_ns = driver.now_ns + 5 * SECOND
    sent = [either(b"new", seqno) for seqno in range(1, 300)]
    for at, data in enumerate(sent):
        driver.send(data, at_ns=start_ns + at * 100 * MS)
    driver.finish()
    assert len(driver.sessions()) == 2
    assert [m.payload for m in driver.messages()[last - 1 :]] == [data[16:] for data in sent]


@pytest.mark.parametrize("rate", [1, 10, 50, 1_000])
def test_replay_into_a_slow_feed_resets_nothing(rate: int) -> None:
    driver = Driver(lines_incremental=1)
    step_ns = SECOND // rate
    for seqno in range(1, 9_000):
        driver.send(datagram(seqno), at_ns=seqno * step_ns)
    pace_ns = min(1_200_000, step_ns // 60)
    for number, seqno in enumerate(range(300, 345)):
        driver.send(datagram(seqno), at_ns=8_999 * step_ns + (1 + number) * pace_ns)
    for seqno in range(9_000, 9_020):
        assert driver.send(datagram(seqno), at_ns=seqno * step_ns) == "delivered"
    driver.finish()
    assert len(driver.sessions()) == 1


@pytest.mark.parametrize("forged", [2, 45])
@pytest.mark.parametrize("step_ns", [10_000, SECOND])
def test_session_that_goes_on_beyond_a_forged_one_is_believed_again(
    forged: int, step_ns: int
) -> None:
    driver = Driver(lines_incremental=2, lost_packet_wait_ns=0)  # no wait for the other line
    numbered(driver, range(1, 300), b"live", (0, 1), step_ns)
    for number in range(forged):
        driver.send(datagram(7_000 + number, session_id=0x777), 1)
    numbered(driver, range(300, 600), b"live", (0, 1), step_ns)
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, 2, SessionReason.RESUMED]
    assert session(driver, 2)["unseen"] == 0
    live = [m.payload for m in driver.messages() if m.session_id == SESSION_ID]
    assert live == [b"live %d" % seqno for seqno in range(1, 600)]


def test_forged_session_on_one_of_two_lines_that_go_on_is_not_believed() -> None:
    driver = Driver(lines_incremental=2)
    numbered(driver, range(1, 300), b"live", (0, 1), 1_000_000)
    for number in range(45):
        driver.send(datagram(7_000 + number, session_id=0x777), 1)
    numbered(driver, range(300, 600), b"live", (0, 1), 1_000_000)
    driver.finish()
    assert len(driver.sessions()) == 1
    assert [m.payload for m in driver.messages()] == [b"live %d" % n for n in range(1, 600)]


@pytest.mark.parametrize("forged", [1, 31, 45])
@pytest.mark.parametrize("ahead", [100, 4_000])
def test_numbers_that_go_on_behind_a_forged_run_are_believed_again(forged: int, ahead: int) -> None:
    driver = Driver(lines_incremental=1)
    numbered(driver, range(1, 300), b"live", (0,), 100_000)
    for number in range(forged):
        driver.send(datagram(300 + ahead + number, b"forged"), at_ns=driver.now_ns)
    numbered(driver, range(300, 900), b"live", (0,), 100_000)
    driver.finish()
    live = {m.payload for m in driver.messages()}
    missed = [seqno for seqno in range(1, 900) if b"live %d" % seqno not in live]
    assert len(missed) <= 128


def test_snapshot_window_that_went_astray_follows_the_feed_again() -> None:
    driver = Driver()
    for seqno in range(1, 200):
        driver.send(datagram(seqno), at_ns=seqno * MS)
        driver.send(datagram(seqno), channel=1, at_ns=seqno * MS)
    for number in range(2):
        driver.send(datagram(600_000 + number, b"forged"), channel=1)
    for seqno in range(200, 500):
        driver.send(datagram(seqno), at_ns=seqno * MS)
        driver.send(datagram(seqno), channel=1, at_ns=seqno * MS)
    driver.finish()
    assert len(driver.sessions()) == 1
    delivered = set(driver.seqnos(1))
    assert set(range(1, 500)) <= delivered
    last = [read(m) for m in driver.out if m.kind is Kind.GAP][-1]
    assert (last["reason"], last["last"]) == (GapReason.ANEW, 199)
    assert driver.channel(1)["session_restarts"] == 1


@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("forged", [31, 45])
def test_forged_run_that_fits_exactly_is_no_restart(lines: int, forged: int) -> None:
    driver = Driver(lines_incremental=lines)
    for seqno in range(1, 400):
        driver.now_ns += 100_000
        for line in range(lines):
            driver.send(datagram(seqno, b"live %d" % seqno), line, at_ns=driver.now_ns)
        driver.send(datagram(seqno, b"snapshot"), channel=1, at_ns=driver.now_ns)
        if seqno == 200:
            for number in range(forged):
                driver.send(datagram(197 + number, b"forged"), lines - 1, at_ns=driver.now_ns)
    driver.finish()
    assert {reason for _, _, reason, _ in driver.sessions()[1:]} <= {SessionReason.RESUMED}
    live = {m.payload for m in driver.messages()}
    assert len([n for n in range(1, 400) if b"live %d" % n not in live]) <= forged
    assert driver.seqnos(1) == list(range(1, 400))  # the snapshot channel did not begin anew


def test_copy_of_an_old_heartbeat_does_not_hide_a_restart_of_heartbeats() -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(1, 2_000):
        driver.send(heartbeat(seqno))
    driver.send(heartbeat(1_990))
    driver.now_ns += SECOND
    for seqno in range(1, 129):
        driver.send(heartbeat(seqno))
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    assert (session(driver, 1)["first_number"], session(driver, 1)["unseen"]) == (1, 0)


@pytest.mark.parametrize("claim", [{"seqno": 1 << 20}, {"session_id": 0x777}])
def test_single_forged_datagrams_do_not_make_a_run_forgotten(claim: dict[str, int]) -> None:
    driver = Driver(lines_incremental=1)
    numbered(driver, range(1, 300), b"live", (0,), 10_000)
    driver.send(datagram(3_000, b"forged"), at_ns=driver.now_ns)
    driver.expire(driver.now_ns + 5 * MS)
    for seqno in range(300, 900):
        numbered(driver, range(seqno, seqno + 1), b"live", (0,), 10_000)
        if seqno % 24 == 0:
            driver.send(datagram(**{"seqno": seqno, **claim}), at_ns=driver.now_ns)
    driver.finish()
    live = {m.payload for m in driver.messages()}
    assert len([n for n in range(1, 900) if b"live %d" % n not in live]) == 0


def test_restart_of_a_numbering_with_losses_is_no_resumption() -> None:
    driver = Driver(lines_incremental=1)
    kept = (seqno for seqno in range(1, 119) if seqno not in (29, 68))
    for seqno in kept:
        driver.send(datagram(seqno, b"old"), at_ns=seqno * SECOND)
    driver.now_ns = 140 * SECOND
    numbered(driver, range(1, 60), b"new", (0,), SECOND)
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    assert session(driver, 1)["first_number"] == 1


@pytest.mark.parametrize("what", ["reorder", "copies"])
def test_restart_over_a_bad_line_is_seen_in_time(what: str) -> None:
    for seed in range(5):
        rng = random.Random(seed)
        driver = Driver(lines_incremental=1)
        numbered(driver, range(1, 12_000), b"old", (0,), MS)
        order = []
        for seqno in range(1, 200):
            late = rng.randint(1, 3) if rng.random() < 0.2 else 0
            order.append((seqno + (late if what == "reorder" else 0), seqno))
            if late and what == "copies":
                order.append((seqno + late, seqno))
        begun = driver.accepted
        for place, seqno in sorted(order):
            driver.send(datagram(seqno, b"new"), at_ns=(12_000 + place) * MS)
            if len(driver.sessions()) > 1:
                break
        assert driver.accepted - begun <= 64
        assert session(driver, 1)["first_number"] == 1


def forge_and_count() -> None:
    """Show what forged sessions touch of the memory: in a process that did nothing before."""

    # What a session that is adopted might have to clear is not even touched (proc(5)).
    # One block, because free memory for small objects is all over the place.
    def touched_kib(sent: bytes) -> int:
        Path("/proc/self/clear_refs").write_text("1")
        for at in range(0, len(sent), each_size):
            pipeline.accept(0, 0, sent[at : at + each_size], 0, 0)
            pipeline.take()
        maps = Path("/proc/self/smaps_rollup").read_text()
        return int(maps.partition("Referenced:")[2].split()[0])

    gc.disable()  # which touches all that the tests before have left
    size = 1 << 17
    each_size = len(datagram(1))
    forged = b"".join(
        datagram(seqno, session_id=each)
        for each in range(1, 2_000)
        for seqno in (1, 2, 1 << 29, 5_000)
    )
    numbers = [
        b"".join(datagram(seqno, session_id=each) for seqno in range(1, size))
        for each in (2_000, 2_001, 2_002)
    ]
    pipeline = Driver(window=size, slab_cells=size).pipeline
    # The kernel may clear these marks meanwhile, or others of the process touch something.
    few = max(touched_kib(forged[: 100 * each_size]) for _ in range(3))
    many = min(touched_kib(forged) for _ in range(3))
    window = max(touched_kib(each) for each in numbers)
    assert window > few + 5_000  # what such a session might have cost
    assert many < few + 2_000


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer needs memory of its own"
)
def test_forged_sessions_cost_the_same_whatever_the_settings() -> None:
    code = "from tests.feed.test_runs import forge_and_count; forge_and_count()"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr


def test_restart_among_late_datagrams_counts_what_came_before_them() -> None:
    driver = Driver(lines_incremental=1)
    lost = (1_996, 1_997)
    for seqno in range(1, 2_011):
        if seqno not in lost:
            numbered(driver, range(seqno, seqno + 1), b"old", (0,), SECOND // 10)
    driver.now_ns += SECOND
    driver.send(datagram(lost[0], b"old late"), at_ns=driver.now_ns)
    numbered(driver, range(1, 2), b"new", (0,), SECOND // 10)
    driver.send(datagram(lost[1], b"old late"), at_ns=driver.now_ns)
    numbered(driver, range(2, 200), b"new", (0,), SECOND // 10)
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    begun = session(driver, 1)
    assert begun["first_number"] - begun["unseen"] == 1


def test_restart_of_a_young_numbering_with_losses_is_no_resumption() -> None:
    driver = Driver(lines_incremental=1)
    numbered(driver, range(1, 11), b"old", (0,), SECOND // 10)
    numbered(driver, range(91, 101), b"old", (0,), SECOND // 10)
    driver.expire(driver.now_ns + SECOND)
    driver.now_ns += SECOND
    numbered(driver, range(1, 2), b"new", (0,), SECOND // 10)
    driver.send(datagram(50, b"old late"), at_ns=driver.now_ns)
    numbered(driver, range(2, 200), b"new", (0,), SECOND // 10)
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    begun = session(driver, 1)
    assert begun["first_number"] - begun["unseen"] == 1


def test_copy_of_the_old_numbering_is_not_taken_into_the_new_one() -> None:
    driver = Driver()
    numbered(driver, range(1, 21), b"old", (0, 1), SECOND // 100)
    numbered(driver, range(21, 100), b"old", (1,), SECOND // 100)
    driver.send(datagram(6, b"old 6"), 0, at_ns=driver.now_ns)
    numbered(driver, range(100, 121), b"old", (1,), SECOND // 100)
    driver.now_ns += 5 * SECOND
    for seqno in range(1, 100):
        driver.now_ns += SECOND // 100
        for line in (0, 1) if seqno >= 8 else (1,):
            driver.send(datagram(seqno, b"new"), line, at_ns=driver.now_ns)
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    found = [m for m in driver.out if m.kind is Kind.MESSAGE][120:]
    assert [m.seqno for m in found] == list(range(1, 100))
    assert {bytes(m.payload) for m in found} == {b"new"}


def test_resumed_session_begins_where_it_was_left() -> None:
    driver = Driver()
    numbered(driver, range(480, 514), b"live", (0, 1), SECOND // 10)
    for seqno in (1, 2):
        driver.send(datagram(seqno, session_id=9), 1, at_ns=driver.now_ns)
    driver.now_ns += 2 * SECOND
    for line in (0, 1):
        driver.send(datagram(505, b"forged"), line, at_ns=driver.now_ns)
    numbered(driver, range(515, 540), b"live", (0, 1), SECOND // 10)
    driver.finish()
    assert driver.sessions()[2][2] == SessionReason.RESUMED
    begun = session(driver, 2)
    assert (begun["first_number"], begun["unseen"]) == (515, 1)
    assert b"forged" not in {bytes(m.payload) for m in driver.out}


def test_restart_whose_line_goes_on_once_more_counts_what_came_before() -> None:
    driver = Driver()
    numbered(driver, range(5_000, 5_060), b"old", (0, 1))
    driver.send(datagram(1, b"new 1"), 1, at_ns=driver.now_ns)
    driver.send(datagram(5_060, b"old"), 0, at_ns=driver.now_ns)
    driver.send(datagram(5_060, b"old"), 1, at_ns=driver.now_ns)
    numbered(driver, range(2, 200), b"new", (1,))
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    begun = session(driver, 1)
    assert begun["first_number"] - begun["unseen"] == 1


def test_late_datagram_of_a_slow_feed_does_not_hide_a_restart_of_heartbeats() -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(1, 442):
        if seqno != 439:
            driver.send(heartbeat(seqno), at_ns=seqno * SECOND)
            driver.expire(driver.now_ns + SECOND // 2)
    driver.send(heartbeat(439), at_ns=443 * SECOND)  # two messages of its pace late
    for seqno in range(1, 150):
        data = heartbeat(seqno) if seqno < 10 else datagram(seqno, b"new")
        driver.send(data, at_ns=(446 + seqno) * SECOND)
    driver.finish()
    assert [reason for _, _, reason, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    assert (session(driver, 1)["first_number"], session(driver, 1)["unseen"]) == (1, 0)


def test_snapshot_held_while_two_runs_contend_is_doubted() -> None:
    driver = Driver()
    numbered(driver, range(1_000, 1_100), b"live", (0, 1))
    for seqno in (1_500, 1_501):  # forged, believed: a jump
        driver.send(datagram(seqno, b"forged"), 1, at_ns=driver.now_ns)
    driver.expire(driver.now_ns + SECOND)
    driver.now_ns += SECOND
    for line in (0, 1):
        driver.send(datagram(1_100, b"forged", control=18), line, at_ns=driver.now_ns)
    numbered(driver, range(1_101, 1_250), b"live", (0, 1), SECOND // 10)
    driver.finish()
    reasons = [reason for _, _, reason, _ in driver.sessions()]
    assert reasons == [1, SessionReason.RESUMED]
    kinds = [(m.kind, m.seqno) for m in driver.out]
    said = kinds.index((Kind.MESSAGE, 1_100)) + 1
    assert kinds[said : said + 2] == [(Kind.DISAGREEMENT, 1_100), (Kind.MESSAGE, 1_101)]


@pytest.mark.parametrize("cut_off", [1, 3, 8])
def test_slower_line_of_heartbeats_that_begins_earlier_is_no_restart(cut_off: int) -> None:
    driver = Driver()
    for seqno in range(1_000, 1_200):
        driver.send(heartbeat(seqno), 0, at_ns=driver.now_ns + 10_000)
    driver.now_ns += 50 * MS  # the other line is that far behind, and lost nothing
    for seqno in range(1_000 - cut_off, 1_200):
        driver.send(heartbeat(seqno), 1, at_ns=driver.now_ns + 10_000)
    driver.finish()
    assert len(driver.sessions()) == 1


def test_forged_fragments_ahead_of_a_feed_begin_no_session() -> None:
    lines = tuple(range(7))
    driver = Driver(lines_incremental=7, lost_packet_wait_ns=SECOND)
    numbered(driver, range(1_000, 1_050), b"live", lines)
    forged = range(1_050, 1_060)
    for seqno in forged:
        data = datagram(seqno, b"forged", fragment=7, fragment_max=7)
        driver.send(data, seqno % 7, at_ns=driver.now_ns)
    numbered(driver, range(1_050, 1_300), b"live", lines)
    driver.finish()
    assert len(driver.sessions()) == 1
    lost = {seqno for first, last in driver.gaps() for seqno in range(first, last + 1)}
    assert lost == set(forged), "whose places they took; nothing else"


@pytest.mark.parametrize("lines", [3, 7])
def test_feed_that_goes_on_behind_a_forged_hole_is_alive(lines: int) -> None:
    # A forged fragment takes the place of a message, which holds the feed up. What comes meanwhile
    # equals what other lines brought, but for one message, and is not the furthest: something
    # forged lies far ahead.
    line = lines - 1
    due = 1_300
    forged = {
        due - 74: [(line, datagram(due + 1_752, b"f" * 512, fragment=19, fragment_max=255))],
        due - 34: [(line, datagram(due + 362, b"forged"))],
        due - 19: [(0, datagram(due, b"f" * 512, fragment=245, fragment_max=255))],
        due + 2: [(line, datagram(due - 200, b"forged"))],
    }
    driver = Driver(lines_incremental=lines)
    for seqno in range(1_000, due + 400):
        numbered(driver, range(seqno, seqno + 1), b"live", tuple(range(lines)), 10_000)
        for on, data in forged.get(seqno, ()):
            driver.send(data, on, at_ns=driver.now_ns)
        driver.expire(driver.now_ns)
    assert len(driver.sessions()) == 1
