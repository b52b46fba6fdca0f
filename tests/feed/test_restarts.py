"""A restart with the same id whose numbers meet those of before: in holes, copies, at the end."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.feed.drive import Driver, datagram, fragments
from udpfast.core.layout import SESSION, Kind, SessionReason

MS = 1_000_000
SECOND = 1_000_000_000


def heartbeat(seqno: int) -> bytes:
    return datagram(seqno, b"", object_type=0)


def restart(driver: Driver) -> tuple[int, int, int]:
    """Reason, first seqno and count of those unseen before it, of the one restart that was said."""
    _, said = (m.payload for m in driver.out if m.kind is Kind.SESSION)
    value = np.frombuffer(said, SESSION)[0]
    return int(value["reason"]), int(value["first_seqno"]), int(value["unseen"])


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
    for seqno in range(1, 151):
        driver.send(datagram(seqno, b"old"), at_ns=seqno * 10 * MS)
    for seqno in range(1, 400):
        line = int(other_line and seqno > 150)
        driver.send(datagram(seqno, b"new %d" % seqno), line, at_ns=driver.now_ns + 10_000)
        assert len(driver.sessions()) == 1 + (seqno > 150)
    driver.finish()
    _, first, unseen = restart(driver)
    assert (first - unseen, unseen) == (1, 23 - other_line)  # 128 are held on a line
    assert driver.messages()[-1].payload == b"new 399"
    assert b"new 151" in {m.payload for m in driver.messages()}
    assert driver.messages()[150].payload == b"new %d" % first


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
