"""Sessions: restarts, skew between lines, flaps, retired ids, restarts that keep the id."""

import random

import pytest

from tests.feed.drive import SESSION_ID, Driver, datagram, fragments, read
from udpfast.core.layout import Kind, SessionReason

SECOND = 1_000_000_000
MS = 1_000_000


def said_of(driver: Driver, index: int) -> tuple[int, int]:
    """First number of a session, and how many went by before it."""
    said = [read(m) for m in driver.out if m.kind is Kind.SESSION][index]
    return int(said["first_number"]), int(said["unseen"])


def test_session_of_first_datagram_is_believed_at_once() -> None:
    driver = Driver()
    assert driver.send(datagram(5)) == "delivered"
    assert driver.sessions() == [(0, SESSION_ID, SessionReason.FIRST, 0)]
    driver.finish()


@pytest.mark.parametrize("adopt", [1, 2, 3, 32])
def test_session_with_new_id_is_believed_after_adopt_datagrams(adopt: int) -> None:
    driver = Driver(session_adopt_datagrams=adopt)
    driver.send(datagram(100))
    driver.send(datagram(102))
    for i in range(40):
        verdict = driver.send(datagram(7 + i, session_id=9))
        assert (verdict == "session_pending") == (i + 1 < adopt)
    driver.finish()
    assert driver.sessions()[1:] == [(SESSION_ID, 9, SessionReason.NEW_ID, 1)]
    assert driver.seqnos() == [100, *range(7, 47)]
    assert driver.gaps() == []
    assert driver.channel()["session_discarded"] == 1


def test_session_with_held_datagrams_out_of_order_loses_none() -> None:
    driver = Driver(session_adopt_datagrams=3)
    driver.send(datagram(100))
    for seqno in (3, 1, 2, 4):
        driver.send(datagram(seqno, session_id=9))
    driver.finish()
    assert driver.seqnos() == [100, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("skew_us", [100, 2_500, 4_900])
def test_session_whose_beginning_one_line_lost_begins_with_the_other_line(
    lost: int, skew_us: int
) -> None:
    driver = Driver()
    sent = [(SESSION_ID, seqno) for seqno in range(1, 201)]
    sent += [(9, seqno) for seqno in range(1, 301)]
    arrivals = [(at * 200_000, 0, *one) for at, one in enumerate(sent)]
    arrivals = [one for one in arrivals if one[2] != 9 or one[3] > lost]
    arrivals += [(at * 200_000 + skew_us * 1_000, 1, *one) for at, one in enumerate(sent)]
    for at_ns, line, session_id, seqno in sorted(arrivals):
        driver.send(datagram(seqno, session_id=session_id), line, at_ns=MS + at_ns)
        driver.expire(MS + at_ns)
    driver.finish()
    assert driver.seqnos() == [*range(1, 201), *range(1, 301)]
    assert driver.gaps() == []
    assert said_of(driver, 1) == (1, 0)


def test_session_waits_for_the_other_line_as_for_a_hole_and_says_what_it_lacks() -> None:
    driver = Driver()
    for line in (0, 1):
        driver.send(datagram(100), line, at_ns=MS)
    for seqno in (4, 5):
        driver.send(datagram(seqno, session_id=9), 0, at_ns=2 * MS)
    driver.expire(7 * MS - 1)
    assert len(driver.sessions()) == 1
    driver.expire(7 * MS)
    assert driver.seqnos() == [100, 4, 5]
    assert said_of(driver, 1) == (4, 3)
    driver.finish()


def test_session_that_waits_when_the_input_ends_is_delivered() -> None:
    driver = Driver()
    for line in (0, 1):
        driver.send(datagram(100), line, at_ns=MS)
    for seqno in (4, 5):
        driver.send(datagram(seqno, session_id=9), 0, at_ns=2 * MS)
    driver.finish()
    assert driver.seqnos() == [100, 4, 5]


@pytest.mark.parametrize("lines", [1, 2])
def test_first_session_that_begins_behind_its_first_number_says_what_it_lacks(lines: int) -> None:
    driver = Driver(lines_incremental=lines)
    for seqno in (2, 1, 3):
        driver.send(datagram(seqno))
    assert driver.seqnos() == [2, 3]
    assert said_of(driver, 0) == (2, 1)
    driver.finish()


def test_snapshot_whose_first_fragments_came_before_its_session_is_whole() -> None:
    driver = Driver()
    parts = fragments(7, 3, control=0x12)
    for part in parts[:2]:
        assert driver.send(part, channel=1, at_ns=MS) == "session_foreign"
    driver.send(datagram(100), at_ns=MS)
    driver.send(parts[2], channel=1, at_ns=MS)
    driver.send(datagram(8, control=0x12), channel=1, at_ns=MS)
    driver.finish()
    assert driver.seqnos(1) == [7, 8]
    assert driver.gaps(1) == []


def test_session_with_copies_of_one_datagram_is_not_believed() -> None:
    driver = Driver()
    driver.send(datagram(100))
    for _ in range(10):
        assert driver.send(datagram(1, session_id=9)) == "session_pending"
    driver.send(datagram(101))
    driver.finish()
    assert len(driver.sessions()) == 1


def test_session_restarts_at_random_phases_reset_once_each() -> None:
    rng = random.Random(3)
    driver = Driver(lost_packet_wait_ns=50_000)
    ids = rng.sample(range(65_536), 300)
    lost = 0
    for session_id in ids:
        seqno = rng.choice([1, 0, (1 << 32) - 3, rng.randrange(1 << 32)])
        for i in range(rng.randrange(2, 60)):
            if i > 1 and rng.random() < 0.05:
                lost += 1
                continue
            for data in fragments(seqno + i, rng.choice([1, 1, 2]), session_id=session_id):
                for line in range(2):
                    driver.send(data, line, at_ns=driver.now_ns + rng.choice([1000, 9_000]))
                driver.send(data, 1)
        driver.now_ns += rng.randrange(3 * SECOND)
    driver.finish()
    assert [new for _, new, _, _ in driver.sessions()] == ids


@pytest.mark.parametrize("skew_us", [100, 1_000, 5_000, 50_000])
@pytest.mark.parametrize("same_id", [False, True])
def test_session_restart_with_skew_between_lines_resets_once(skew_us: int, same_id: bool) -> None:
    before, after = 6_000, 6_000
    new_id = SESSION_ID if same_id else 9
    stream = [(i * 20_000, 50_000 + i, SESSION_ID) for i in range(before)]
    stream += [((before + i) * 20_000, 1 + i, new_id) for i in range(after)]
    arrivals = [(t, 0, seqno, sid) for t, seqno, sid in stream]
    arrivals += [(t + skew_us * 1000, 1, seqno, sid) for t, seqno, sid in stream]
    driver = Driver(lost_packet_wait_ns=100_000_000)  # longer than the skew
    for t, line, seqno, session_id in sorted(arrivals):
        driver.send(
            datagram(seqno, f"{seqno} {t > before}".encode() * 2, session_id=session_id),
            line,
            at_ns=t + 1,
        )
    driver.finish()
    reason = SessionReason.SAME_ID if same_id else SessionReason.NEW_ID
    assert [r for _, _, r, _ in driver.sessions()] == [SessionReason.FIRST, reason]
    assert driver.gaps() == []
    assert driver.seqnos() == [*range(50_000, 50_000 + before), *range(1, 1 + after)]


@pytest.mark.parametrize("same_line", [False, True])
def test_session_with_spoofed_ids_among_live_traffic_never_resets(same_line: bool) -> None:
    rng = random.Random(4)
    driver = Driver(lines_incremental=2)
    spoofed = 0
    for i in range(20_000):  # 1 k/s for 20 s, and 1 spoofed each 10 ms
        for line in range(2):
            driver.send(datagram(i), line, at_ns=i * 1_000_000)
        if i % 10 == 5:
            spoofed += 1
            driver.send(
                datagram(rng.randrange(1 << 32), session_id=rng.randrange(0x2000, 0xFFFF)),
                line=0 if same_line else 1,
                at_ns=i * 1_000_000 + 10,
            )
    driver.finish()
    assert len(driver.sessions()) == 1
    pending = driver.line(0)["session_pending"] + driver.line(1)["session_pending"]
    assert pending == spoofed
    assert driver.seqnos() == list(range(20_000))


def test_session_that_is_over_is_refused_within_its_grace_and_believed_after_it() -> None:
    driver = Driver(stale_session_grace_ns=SECOND)
    driver.send(datagram(100), at_ns=0)
    for i in range(5):
        driver.send(datagram(1 + i, session_id=9), at_ns=1_000 + i)
    for i in range(100):
        assert driver.send(datagram(101 + i), 1, at_ns=2_000 + i) == "session_retired"
    driver.send(datagram(6, session_id=9), at_ns=SECOND * 3 // 2)
    for i in range(2):
        driver.send(datagram(300 + i), at_ns=2 * SECOND + i)
    assert [new for _, new, _, _ in driver.sessions()] == [SESSION_ID, 9, SESSION_ID]
    driver.finish()


def test_session_drawn_again_within_the_grace_is_believed_when_the_other_is_silent() -> None:
    driver = Driver()
    driver.send(datagram(100), at_ns=0)
    for i in range(5):
        driver.send(datagram(1 + i, session_id=9), at_ns=1_000 + i)
    for i in range(40):
        driver.send(datagram(1 + i), at_ns=2 * SECOND + i)
    driver.finish()
    assert [new for _, new, _, _ in driver.sessions()] == [SESSION_ID, 9, SESSION_ID]
    assert driver.seqnos()[-40:] == list(range(1, 41))


@pytest.mark.parametrize(
    ("began", "led_to", "returns_at", "reason"),
    [
        (2**32 - 100, 55, 1, SessionReason.RESUMED),  # behind a wrap, not begun anew
        (900, 1_055, 1_001, SessionReason.RESUMED),
        (900, 1_055, 901, SessionReason.RESUMED),
        (900, 1_055, 900, SessionReason.NEW_ID),  # drawn again: where it began, or before
        (1, 55, 1, SessionReason.NEW_ID),
        (1, 55, 2**32 - 3, SessionReason.NEW_ID),
    ],
)
def test_session_that_was_led_on_is_not_drawn_again(
    began: int, led_to: int, returns_at: int, reason: SessionReason
) -> None:
    driver = Driver()
    at = began
    while at != led_to:
        driver.send(datagram(at))
        at = (at + 1) % 2**32
    for i in range(5):
        driver.send(datagram(1 + i, session_id=9))
    driver.now_ns += 2 * SECOND
    for i in range(40):
        driver.send(datagram((returns_at + i) % 2**32, b"went on"))
    driver.finish()
    assert [r for _, _, r, _ in driver.sessions()][-2:] == [SessionReason.NEW_ID, reason]


def test_session_that_was_resumed_is_older_than_what_was_seen_of_it() -> None:
    driver = Driver()
    for session_id, numbers in ((9, range(50)), (7, range(5)), (9, range(50, 105)), (7, range(9))):
        driver.now_ns += 2 * SECOND
        for i in numbers:
            driver.send(datagram((2**32 - 49 + i) % 2**32, session_id=session_id))
    driver.now_ns += 2 * SECOND
    for i in range(40):
        driver.send(datagram(1 + i, b"went on", session_id=9))
    driver.finish()
    resumed = SessionReason.RESUMED
    assert [r for _, new, r, _ in driver.sessions() if new == 9][1:] == [resumed, resumed]


@pytest.mark.parametrize(
    "old",
    [
        1_000,
        10**6,
        2**30 - 1,
        2**30 + 1,
        2**31,
        2**31 + 1,
        3 * 2**30,
        2**32 - 20_000,
        2**32 - 8_000,
    ],
)
@pytest.mark.parametrize("fragmented", [1, 3])
def test_session_restart_with_same_id_is_detected_within_32_datagrams(
    old: int, fragmented: int
) -> None:
    driver = Driver(lines_incremental=1)
    for i in range(3_000):
        driver.send(datagram(old - 2_999 + i, b"before" + bytes([i & 255])))
    for i in range(100):
        for data in fragments(1 + i, fragmented, 100):
            driver.send(data)
    driver.finish()
    if old == 2**32 - 8_000:  # a jump of 8,000 forwards looks like loss
        assert len(driver.sessions()) == 1
        return
    assert [r for _, _, r, _ in driver.sessions()] == [1, SessionReason.SAME_ID]
    assert [v in ("delivered", "held") for v in driver.verdicts[3_000:]].index(True) <= 32
    assert driver.seqnos()[3_000:] == list(range(1, 101)), "nothing of the run was lost"
    assert driver.channel()["session_restarts"] == 1


def test_session_restart_right_after_traffic_waits_for_the_old_one_to_be_quiet() -> None:
    driver = Driver(lines_incremental=1)
    for i in range(1_000):
        driver.send(datagram(10**6 + i), at_ns=i * 1_000_000)
    for i in range(3_000):  # a capture at a million a second: a replay
        driver.send(datagram(5_000 + i), at_ns=999_000_000 + i * 250)
    assert len(driver.sessions()) == 1
    driver.send(datagram(10**6 + 1_000), at_ns=1_000_000_000)
    driver.finish()
    assert len(driver.sessions()) == 1


def test_session_with_an_old_capture_replayed_into_it_delivers_nothing_of_it() -> None:
    rng = random.Random(5)
    driver = Driver(lines_incremental=2)
    live, old = 2_000_000, 5_000
    for i in range(3_000):
        driver.send(datagram(live + i), at_ns=i * 1_000_000)
        for k in range(rng.randrange(20)):
            if i > 1_000:
                for session_id in (SESSION_ID, 77):
                    driver.send(datagram(old, session_id=session_id), 1, at_ns=i * 1_000_000 + k)
                old += 1
    driver.finish()
    assert driver.seqnos() == [live + i for i in range(3_000)]
    assert len(driver.sessions()) == 1


def test_session_with_late_burst_behind_a_gap_is_no_restart() -> None:
    driver = Driver(lines_incremental=1)
    for i in range(100):
        driver.send(datagram(i))
    for i in range(300, 400):
        driver.send(datagram(i))
    driver.expire(driver.now_ns + 10_000_000)
    assert driver.gaps() == [(100, 299)]
    for i in range(100, 300):
        assert driver.send(datagram(i)) == "late"
    driver.send(datagram(400))
    driver.finish()
    assert len(driver.sessions()) == 1


@pytest.mark.parametrize("behind", [10, 3_000, 9_000])
def test_session_with_a_slow_line_is_no_restart(behind: int) -> None:
    driver = Driver()
    for i in range(20_000 + behind):
        if i < 20_000:
            driver.send(datagram(i), 0)
        if i >= behind:
            driver.send(datagram(i - behind), 1)
    driver.finish()
    assert driver.seqnos() == list(range(20_000))
    assert len(driver.sessions()) == 1


def test_session_of_snapshot_channel_follows_the_incremental_one() -> None:
    driver = Driver()
    assert driver.send(datagram(1), channel=1) == "session_foreign"
    driver.send(datagram(1))
    assert driver.seqnos(1) == [1]  # it was held until its session was known
    assert driver.send(datagram(2), channel=1) == "delivered"
    assert driver.send(datagram(52), channel=1) == "held"
    for i in range(50):
        assert driver.send(datagram(1 + i, session_id=9), channel=1) == "session_foreign"
    for i in range(2):
        driver.send(datagram(1 + i, session_id=9))
    assert driver.send(datagram(51), channel=1) == "session_foreign"
    assert driver.send(datagram(51, session_id=9), channel=1) == "delivered"
    assert driver.seqnos(1) == [1, 2, *range(1, 52)]
    driver.finish()
    assert driver.sessions()[1] == (SESSION_ID, 9, SessionReason.NEW_ID, 1)
    assert driver.channel(1)["session_discarded"] == 1


def test_session_restart_seen_on_snapshot_channel_alone_resets_nothing() -> None:
    driver = Driver()
    driver.send(datagram(1000))
    for i in range(100):
        driver.send(datagram(5000 + i), channel=1)
    driver.now_ns += SECOND
    for i in range(100):
        assert driver.send(datagram(1 + i, b"new"), channel=1) in ("replay", "late", "duplicate")
    driver.finish()
    assert len(driver.sessions()) == 1
    assert len(driver.messages(1)) == 100


def test_session_restart_in_big_endian_holds_and_replays() -> None:
    def swapped(data: bytes) -> bytes:
        fields = [(4, 6), (6, 8), (8, 12), (12, 16)]
        return data[:4] + b"".join(data[a:b][::-1] for a, b in fields) + data[16:]

    driver = Driver(byteorder="big")
    for i in range(3):
        driver.send(swapped(datagram(100 + i)))
    for i in range(3):
        driver.send(swapped(datagram(1 + i, session_id=9)))
    driver.finish()
    assert driver.seqnos() == [100, 101, 102, 1, 2, 3]


def test_session_restart_with_same_id_keeps_old_snapshots_out() -> None:
    driver = Driver()
    for i in range(100):
        driver.send(datagram(10**6 + i))
        driver.send(datagram(90_000 + i), channel=1)
    for i in range(40):
        driver.send(datagram(1 + i, b"new"))
    assert driver.sessions()[-1][2] == SessionReason.SAME_ID
    assert driver.send(datagram(90_100), channel=1) == "session_retired"
    assert driver.send(datagram(1, b"new"), channel=1) == "delivered"
    driver.finish()
    assert driver.seqnos(1) == [*range(90_000, 90_100), 1]
