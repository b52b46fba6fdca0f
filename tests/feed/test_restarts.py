"""A restart with the same id whose numbers meet those of before: in holes, copies, at the end."""

from collections.abc import Iterator

import numpy as np
import pytest

from lab.forged_rows import forged
from lab.restart_rows import same_id_corners
from tests.feed.drive import Driver, datagram, fragments
from udpfast.core.layout import SESSION, Kind, SessionReason

MS = 1_000_000
SECOND = 1_000_000_000
WRAP = 1 << 32


def heartbeat(seqno: int) -> bytes:
    return datagram(seqno, b"", object_type=0)


def restart(driver: Driver) -> tuple[int, int, int]:
    """Reason, first seqno and count of those unseen before it, of the one restart that was said."""
    _, said = (m.payload for m in driver.out if m.kind is Kind.SESSION)
    value = np.frombuffer(said, SESSION)[0]
    return int(value["reason"]), int(value["first_number"]), int(value["unseen"])


def send_until_restart(driver: Driver, sent: Iterator[bytes], step_ns: int) -> int:
    """Send in steps, and return after how many datagrams a restart was said."""
    for number, data in enumerate(sent, 1):
        driver.send(data, at_ns=driver.now_ns + step_ns)
        if len(driver.sessions()) > 1:
            return number
    raise AssertionError(f"no restart was said, {driver.sessions()}")


@pytest.mark.parametrize("count", [2, 3, 5])
def test_restart_on_many_lines_in_fragments_is_seen_within_128_datagrams(count: int) -> None:
    driver = Driver(lines_incremental=8)
    for seqno in range(10_000, 10_300):
        for data in fragments(seqno, count):
            driver.send(data, at_ns=seqno * MS)
    begun = driver.accepted
    for seqno in range(1, 20):
        for line in range(8):
            for data in fragments(seqno, count):
                if len(driver.sessions()) < 2:
                    driver.send(data, line, at_ns=(10_300 + seqno) * MS)
    assert driver.accepted - begun <= 128
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)


@pytest.mark.parametrize("lost", [(), (4,), (4, 50, 90), tuple(range(4, 190, 5))])
def test_restart_behind_open_holes_loses_nothing(lost: tuple[int, ...]) -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(1, 198):
        if seqno not in lost:
            driver.send(datagram(seqno, b"old"), at_ns=seqno * 10_000)
    for seqno in range(1, 300):
        driver.send(datagram(seqno, b"new %d" % seqno), at_ns=(198 + seqno) * 10_000)
    driver.finish()
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)
    behind = [m.payload for m in driver.messages()][-299:]
    assert behind == [b"new %d" % seqno for seqno in range(1, 300)]


def test_restart_that_begins_in_an_open_hole_loses_nothing() -> None:
    driver = Driver(lines_incremental=1)
    for seqno in (1, 2, 3, *range(5, 198)):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 10_000)
    for seqno in range(4, 300):
        driver.send(datagram(seqno, b"new %d" % seqno), at_ns=(198 + seqno) * 10_000)
    driver.finish()
    assert restart(driver) == (SessionReason.SAME_ID, 4, 0)
    assert [m.payload for m in driver.messages()][-296:][0] == b"new 4"


@pytest.mark.parametrize("other_line", [False, True])
def test_restart_that_comes_up_to_the_end_of_a_slow_numbering_does_not_go_on_in_it(
    other_line: bool,
) -> None:
    # 100 a second before, 100,000 a second behind: too short for the old one to be called quiet.
    driver = Driver(lines_incremental=2)
    for seqno in range(1, 101):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 10 * MS)
    for seqno in range(1, 400):
        line = int(other_line and seqno > 50)
        driver.send(datagram(seqno, b"new %d" % seqno), line, at_ns=driver.now_ns + 10_000)
        assert len(driver.sessions()) == 1 + (seqno >= 64)
    driver.finish()
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)
    assert [m.payload for m in driver.messages()[100:]] == [b"new %d" % n for n in range(1, 400)]


def test_restart_that_contradicts_what_was_accepted_is_seen_whatever_the_rates() -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(1, 151):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 10 * MS)
    new = (datagram(seqno, b"new %d" % seqno) for seqno in range(1, 400))
    assert send_until_restart(driver, new, 10_000) == 64
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)


def test_forged_run_up_to_the_end_does_not_end_the_numbering() -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(1, 400):
        if seqno == 200:
            for forged in range(155, 200):
                driver.send(datagram(forged, b"forged"))
        driver.send(datagram(seqno, b"live %d" % seqno), at_ns=seqno * 10 * MS)
    driver.finish()
    assert len(driver.sessions()) == 1
    assert [m.payload for m in driver.messages()] == [b"live %d" % i for i in range(1, 400)]


@pytest.mark.parametrize("last", [100, 5_000, 1 << 31])
def test_restart_of_heartbeats_alone_on_a_line_that_spoke_is_seen_in_time(last: int) -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(max(1, last - 500), last + 1):
        driver.send(heartbeat(seqno), at_ns=driver.now_ns + 10_000)
    needed = send_until_restart(driver, map(heartbeat, range(1, 129)), 10_000)
    assert needed <= 128
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)


@pytest.mark.parametrize("behind_ns", [MS, 50 * MS])
def test_heartbeats_of_a_slower_line_that_speaks_first_when_the_other_is_dead_are_no_restart(
    behind_ns: int,
) -> None:
    driver = Driver(lines_incremental=2)
    driver.send(datagram(1, b"first"), at_ns=0)
    for seqno in range(2, 10_000):
        driver.send(heartbeat(seqno), at_ns=seqno * 10_000)
    for seqno in range(10_000 - behind_ns // 10_000, 12_000):
        driver.send(heartbeat(seqno), 1, at_ns=seqno * 10_000 + behind_ns)
    driver.finish()
    assert len(driver.sessions()) == 1
    assert driver.seqnos() == list(range(1, 12_000))


def test_hole_that_the_numbering_at_hand_fills_by_and_by_is_no_restart() -> None:
    # A forged datagram ahead makes all that follows fill the hole before it.
    driver = Driver(lines_incremental=1, lost_packet_wait_ns=10 * SECOND)
    for seqno in range(1, 200):
        driver.send(heartbeat(seqno), at_ns=seqno * 10_000)
    driver.send(datagram(5_000, b"forged"))
    for seqno in range(200, 2_000):
        driver.send(heartbeat(seqno), at_ns=seqno * 10_000)
    assert len(driver.sessions()) == 1
    assert driver.seqnos() == list(range(1, 2_000))


@pytest.mark.parametrize("pause_ns", [0, 10 * MS, SECOND])
@pytest.mark.parametrize("count", [300, 2_000])
def test_restart_into_numbers_that_an_earlier_numbering_had_is_seen(
    count: int, pause_ns: int
) -> None:
    driver = Driver(lines_incremental=1)
    now_ns, sent = 0, []
    for name, first, messages in (
        (b"a", 1, 2_000),
        (b"b", WRAP - 20_000, 300),
        (b"c", 1_000, count),
    ):
        for seqno in range(first, first + messages):
            sent.append(b"%s %d" % (name, seqno))
            driver.send(datagram(seqno % WRAP, sent[-1]), at_ns=now_ns)
            now_ns += 5 * MS
        now_ns += pause_ns
    driver.finish()
    assert [m.payload for m in driver.messages()] == sent
    assert len(driver.sessions()) == 3


@pytest.mark.parametrize("rate", [200, 5_000])
def test_session_that_begins_anew_behind_a_forged_one_loses_no_more_than_is_said(rate: int) -> None:
    driver = Driver(lines_incremental=1)
    now_ns = 0
    for seqno in range(1, 1_000):
        driver.send(datagram(seqno, b"a %d" % seqno), at_ns=now_ns)
        now_ns += SECOND // rate
    for number in range(2):
        driver.send(datagram(number, b"forged", session_id=4_711), at_ns=now_ns)
    sent = [b"b %d" % seqno for seqno in range(1, 3_000)]
    for seqno, payload in enumerate(sent, 1):
        driver.send(datagram(seqno, payload), at_ns=now_ns)
        now_ns += SECOND // rate
    driver.finish()
    came = [m.payload for m in driver.messages() if m.payload.startswith(b"b")]
    assert came == sent


@pytest.mark.parametrize("seed", [220_020, 420_016, 420_021, 620_095, 64_002_670, 65_003_125])
def test_feed_that_goes_on_beside_forged_jumps_is_no_restart(seed: int) -> None:
    assert forged(seed, 4_000)["bursts"] == 2


@pytest.mark.parametrize("seed", [71_002_934])
def test_heartbeats_long_after_those_of_the_old_numbering_are_of_the_new_one(seed: int) -> None:
    same_id_corners(seed, 10_000)


@pytest.mark.parametrize("seed", [73_003_625])
def test_slow_lines_behind_a_feed_that_ended_are_no_restart(seed: int) -> None:
    same_id_corners(seed, 10_000, restart=False)


def test_feed_that_filled_a_hole_beside_a_forged_jump_is_resumed() -> None:
    # One forged fragment contradicts the feed, a forged datagram ahead makes the rest fill a hole.
    driver = Driver(lines_incremental=1)
    step_ns = 10_000
    for seqno in range(1, 425):
        driver.send(datagram(seqno), at_ns=seqno * step_ns)
    driver.send(fragments(6_873, 2)[1])
    driver.send(fragments(448, 256)[145])
    for seqno in range(425, 1_400):
        driver.send(datagram(seqno), at_ns=seqno * step_ns)
    driver.finish()
    reason, _, unseen = restart(driver)
    assert reason == SessionReason.RESUMED
    assert unseen <= 1
    assert set(range(1, 1_400)) - {448} <= set(driver.seqnos())


def test_feed_that_contradicts_what_was_forged_ahead_of_it_loses_nothing_else() -> None:
    # Four of its numbers are forged, and one far ahead, which leads its line astray.
    driver = Driver(lines_incremental=1)
    step_ns = 10_000
    forgeries = (437, 442, 447, 452)
    for seqno in range(1, 425):
        driver.send(datagram(seqno), at_ns=seqno * step_ns)
    for seqno in (*forgeries, 6_873):
        driver.send(datagram(seqno, b"forged"))
    for seqno in range(425, 1_400):
        driver.send(datagram(seqno), at_ns=seqno * step_ns)
    driver.finish()
    came = {m.seqno for m in driver.messages() if m.payload != b"forged"}
    assert set(range(1, 1_400)) - came <= set(forgeries)
    assert restart(driver)[0] == SessionReason.RESUMED


def test_feed_that_many_lines_bring_behind_forged_jumps_goes_on() -> None:
    # A forged fragment takes one of its numbers, and each line is led astray: eight lines prove a
    # run of a few messages before the hole is given up.
    driver = Driver(lines_incremental=8)
    step_ns = 10_000
    for seqno in range(1, 425):
        for line in range(8):
            driver.send(datagram(seqno), line, at_ns=seqno * step_ns)
    for seqno in (428, 431):
        driver.send(datagram(seqno, b"forged"))
    driver.send(fragments(427, 2)[0])
    for line in range(8):
        driver.send(datagram(2_000 + 500 * line, b"forged"), line)
    for seqno in range(425, 600):
        for line in range(8):
            driver.send(datagram(seqno), line, at_ns=seqno * step_ns)
    driver.finish()
    assert restart(driver)[0] == SessionReason.RESUMED


def straggle(driver: Driver, seqno: int, payload: bytes) -> None:
    """Bring one more of the old numbering, which shows that it is alive."""
    driver.send(datagram(seqno, payload), at_ns=driver.now_ns)
    assert len(driver.sessions()) == 1


@pytest.mark.parametrize("late", [1, 2, 3, 4])
def test_restart_refuted_once_keeps_what_came_when_copies_and_late_ones_follow(late: int) -> None:
    driver = Driver(lines_incremental=1)
    for seqno in range(10_000, 10_300):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 10_000)
    for seqno in (1, 2, 4):
        driver.send(datagram(seqno, b"new %d" % seqno), at_ns=driver.now_ns + 10_000)
    straggle(driver, 10_300, b"old")
    for seqno in (late, *range(3, 200)):
        driver.send(datagram(seqno, b"new %d" % seqno), at_ns=driver.now_ns + 10_000)
    driver.finish()
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)
    assert [m.payload for m in driver.messages()][-199:] == [b"new %d" % i for i in range(1, 200)]


def test_restart_that_contradicts_a_refuted_run_says_what_is_not_delivered() -> None:
    # Replayed heartbeats, refuted; the new numbering begins with one that looks the same.
    driver = Driver(lines_incremental=1)
    for seqno in range(100, 10_300):
        data = heartbeat(seqno) if seqno in (101, 102) else datagram(seqno, b"old")
        driver.send(data, at_ns=seqno * 10_000)
    for seqno in range(100, 130):
        data = heartbeat(seqno) if seqno in (101, 102) else datagram(seqno, b"older")
        driver.send(data, at_ns=driver.now_ns + 1_000)
    straggle(driver, 10_300, b"old")
    sent = [heartbeat(101), heartbeat(102)]
    sent += [datagram(seqno, b"new %d" % seqno) for seqno in range(103, 300)]
    for data in sent:
        driver.send(data, at_ns=driver.now_ns + 10_000)
    driver.finish()
    reason, first, unseen = restart(driver)
    assert (reason, first - unseen) == (SessionReason.SAME_ID, 101)


@pytest.mark.parametrize("lost", [5, 200])
def test_restart_of_heartbeats_behind_an_early_hole_says_all_that_came(lost: int) -> None:
    # The window still waits for what was lost, near the numbers that begin anew.
    driver = Driver(lines_incremental=1)
    sent = [*range(1, lost), *range(lost + 1, 405), *range(8, 24, 4), 405]
    for number, seqno in enumerate(sent):
        driver.send(heartbeat(seqno), at_ns=number * 10)
    for seqno in range(1, 400):
        driver.send(heartbeat(seqno), at_ns=driver.now_ns + 10_000)
    driver.finish()
    reason, first, unseen = restart(driver)
    assert (reason, first - unseen) == (SessionReason.SAME_ID, 1)


def test_restart_takes_nothing_of_an_older_run_on_another_line() -> None:
    # Line 1 repeats heartbeats up to the end of the old numbering, and is silent from then on.
    driver = Driver(lines_incremental=2)
    for seqno in range(1, 132):
        driver.send(heartbeat(seqno), 1, at_ns=seqno * 50_000)
        if seqno > 40 and seqno % 9 == 5:
            driver.send(heartbeat(seqno), 1)
    now_ns = 6 * SECOND
    for seqno in range(1, 400):
        now_ns += 50_000
        driver.send(datagram(seqno, b"new %d" % seqno), at_ns=now_ns)
    driver.finish()
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)
    assert [m.payload for m in driver.messages()][-399:] == [b"new %d" % i for i in range(1, 400)]


def test_restart_keeps_its_first_when_a_late_one_of_the_old_numbering_follows() -> None:
    driver = Driver(lines_incremental=1)
    for seqno in (*range(10_000, 10_058), 10_059):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 100 * MS)
    for seqno in (1, 2):
        driver.send(datagram(seqno, b"new"), at_ns=driver.now_ns + 100 * MS)
    assert driver.send(datagram(10_058, b"old"), at_ns=driver.now_ns) == "late"
    for seqno in range(3, 100):
        driver.send(datagram(seqno, b"new"), at_ns=driver.now_ns + 100 * MS)
    driver.finish()
    assert restart(driver) == (SessionReason.SAME_ID, 1, 0)


def test_restart_of_heartbeats_says_the_one_that_a_line_long_dead_has_brought() -> None:
    driver = Driver(lines_incremental=2)
    for seqno in range(1, 208):
        driver.send(heartbeat(seqno), at_ns=seqno * 50_000)
        if seqno < 40:
            driver.send(heartbeat(seqno), 1)
            if seqno % 4 == 0:
                driver.send(heartbeat(seqno), 1)
    driver.send(heartbeat(1), 1, at_ns=driver.now_ns + 50_000)
    for seqno in range(2, 200):
        for line in range(2):
            driver.send(heartbeat(seqno), line, at_ns=seqno * 50_000 + 208 * 50_000)
    driver.finish()
    reason, first, unseen = restart(driver)
    assert (reason, first - unseen) == (SessionReason.SAME_ID, 1)


def test_restart_that_another_line_goes_on_with_says_what_a_refuted_line_had_brought() -> None:
    driver = Driver(lines_incremental=2)
    for seqno in range(10_000, 10_060):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 10_000)
    for seqno in range(1, 20):
        driver.send(datagram(seqno, b"new"), 1, at_ns=driver.now_ns + 10_000)
    straggle(driver, 10_060, b"old")
    for seqno in range(20, 200):
        driver.send(datagram(seqno, b"new"), at_ns=driver.now_ns + 10_000)
    driver.finish()
    reason, first, unseen = restart(driver)
    assert (reason, first - unseen) == (SessionReason.SAME_ID, 1)
