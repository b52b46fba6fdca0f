"""Redundant lines: complementary loss, a dead line, disagreement, and the race between them."""

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from tests.cases import nightly
from tests.feed.drive import Driver, datagram, fragments, message_bytes, read
from udpfast.core.layout import DISAGREEMENT, Kind

MS = 1_000_000


@pytest.mark.parametrize("losses", [(0.1, 0.01), (0.3, 0.3), *nightly(((0.01, 0.01),))])
@pytest.mark.parametrize("skew_us", [0, 2_500, 5_000, 50_000])
@pytest.mark.parametrize("wait_ms", [5, 60])
def test_lines_with_complementary_loss_miss_what_both_lost(
    losses: tuple[float, float], skew_us: int, wait_ms: int
) -> None:
    rng = random.Random(f"{losses} {skew_us}")
    count, step_ns = 6_000, 20_000  # 50 k/s
    lost = [{i for i in range(1, count - 1) if rng.random() < loss} for loss in losses]
    arrivals = [
        (i * step_ns + line * skew_us * 1_000 + 1, line, i)
        for line in range(2)
        for i in range(count)
        if i not in lost[line]
    ]
    driver = Driver(lost_packet_wait_ns=wait_ms * 1_000_000)
    for t, line, i in sorted(arrivals):
        driver.send(datagram(i), line, at_ns=t)
    driver.finish()
    both = lost[0] & lost[1]
    missed = set(range(count)) - set(driver.seqnos())
    if skew_us < wait_ms * 1_000:
        assert missed == both
        assert driver.line(0)["losses"] == len(lost[0] - both)
        assert driver.line(1)["losses"] == len(lost[1] - both)
    else:  # the wait is shorter than the skew
        assert both <= missed <= lost[0]
    verdicts = driver.line(0), driver.line(1)
    for line, scope in enumerate(verdicts):
        assert scope["wins"] + scope["ties_lost"] + scope["late"] == count - len(lost[line])
        assert scope["wins"] == scope["delivered"] + scope["held"]


def test_lines_with_one_dead_and_back_lose_nothing() -> None:
    driver = Driver(lines_incremental=3)
    for i in range(30_000):  # 10 k/s; line 0 is dead in every second second
        t = i * 100_000
        if (i // 10_000) % 2 == 0:
            driver.send(datagram(i), 0, at_ns=t)
        driver.send(datagram(i), 1, at_ns=t + 2_000)
        driver.expire(driver.now_ns)
        if i > 25_000:
            driver.send(datagram(i), 2, at_ns=t + 3_000)
    driver.finish()
    assert driver.gaps() == []
    assert driver.seqnos() == list(range(30_000))
    assert driver.line(0)["losses"] == 10_000
    assert driver.line(2)["losses"] == 25_001


def test_lines_with_one_dead_do_not_block_the_interval() -> None:
    driver = Driver(out_of_order_max_interval=16, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0), 0, at_ns=0)
    driver.send(datagram(0), 1, at_ns=0)
    for i in range(2, 40):
        driver.send(datagram(i), 0, at_ns=i * 2_500_000)
        driver.expire(driver.now_ns)
    assert driver.gaps() == []
    driver.send(datagram(40), 0, at_ns=100_000_001)
    assert driver.gaps() == [(1, 1)]
    driver.finish()


def test_lines_with_interval_met_by_both_keep_open_what_one_may_still_bring() -> None:
    driver = Driver(out_of_order_max_interval=4, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0), 0)
    for i in (2, 3, 4, 5, 6, 8, 9, 10):
        driver.send(datagram(i), 0)
    for i in (2, 3, 4, 5):
        driver.send(datagram(i), 1)
    assert driver.gaps() == [(1, 1)]
    driver.send(datagram(7), 1)
    driver.finish()
    assert driver.gaps() == [(1, 1)]
    assert driver.seqnos() == [0, *range(2, 11)]


@pytest.mark.parametrize("where", ["delivered", "held", "fragment", "fragment delivered"])
def test_lines_that_disagree_deliver_the_first_and_say_so(where: str) -> None:
    driver = Driver()
    driver.send(datagram(0), 0)
    seqno = 1 if "delivered" in where else 2
    parts = fragments(seqno, 3, 40) if "fragment" in where else [datagram(seqno, b"A" * 300)]
    for part in parts:
        driver.send(part, 0)
    other = parts[-1][:-20] + b"x" + parts[-1][-19:]
    for part in [*parts[:-1], other, other]:
        assert driver.send(part, 1) == "duplicate"
    if seqno != 1:
        driver.send(datagram(1), 0)
    (event,) = [m for m in driver.out if m.kind is Kind.DISAGREEMENT]
    said = np.frombuffer(event.payload, DISAGREEMENT)[0]
    assert (said["number"], said["fragment"]) == (seqno, len(parts) - 1)
    assert (said["line_first"], said["line_other"]) == (0, 1)
    assert said["hash_first"] != said["hash_other"]
    assert driver.line(1)["disagreements"] == driver.channel()["disagreements"] == 1
    whole = message_bytes(seqno, 3, 40) if "fragment" in where else b"A" * 300
    assert next(m.payload for m in driver.messages() if m.seqno == seqno) == whole
    driver.finish()


def disagreements(driver: Driver) -> list[tuple[int, int]]:
    """Seqno and object of each DISAGREEMENT."""
    return [(m.seqno, m.object_id) for m in driver.out if m.kind is Kind.DISAGREEMENT]


@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("early", [False, True])
def test_line_that_contradicts_itself_doubts_the_objects_of_both(lines: int, early: bool) -> None:
    driver = Driver(lines_incremental=lines)
    driver.send(datagram(1))
    if not early:
        driver.send(datagram(2))
    driver.send(datagram(3, b"forged", object_id=8))
    driver.send(datagram(3, b"published", object_id=9))
    assert sorted(disagreements(driver)) == ([] if early else [(3, 8), (3, 9)])
    driver.send(datagram(2))
    kinds = [(m.kind, m.object_id) for m in driver.out if m.seqno == 3]
    assert kinds == [(Kind.MESSAGE, 8), (Kind.DISAGREEMENT, 8), (Kind.DISAGREEMENT, 9)]
    assert driver.channel()["disagreements"] == 1


def test_line_with_another_number_of_fragments_disagrees() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(1))
    driver.send(datagram(2, b"forged", object_id=8))
    for part in fragments(2, 3, object_id=9):
        assert driver.send(part) == "fragment_max_changed"
    assert set(disagreements(driver)) == {(2, 8), (2, 9)}


def test_message_that_is_completed_behind_a_whole_one_doubts_the_objects_of_both() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(1))
    first, second = fragments(2, 2, object_id=8)
    driver.send(first)
    assert driver.send(datagram(2, b"published", object_id=9)) == "fragment_max_changed"
    driver.send(second)
    assert driver.seqnos() == [1, 2]
    assert disagreements(driver) == [(2, 8), (2, 9)]


def test_lines_that_differ_in_any_single_bit_disagree() -> None:
    rng = random.Random(6)
    driver = Driver()
    for seqno in range(2_000):
        data = datagram(seqno, rng.randbytes(rng.choice([1, 7, 8, 16, 31, 64, 100, 512])))
        driver.send(data, 0)
        other = bytearray(data)
        bit = rng.randrange(96, 8 * len(data))  # behind the seqno
        other[bit // 8] ^= 1 << (bit % 8)
        driver.send(bytes(other), 1)
    assert driver.line(1)["disagreements"] == 2_000
    driver.finish()


def test_lines_in_a_race_are_counted_exactly() -> None:
    rng = random.Random(7)
    driver = Driver(lines_incremental=2)
    wins, lead_ns, now_ns = [0, 0], [0, 0], 0
    for seqno in range(5_000):
        winner, lead = rng.randrange(2), rng.randrange(1, 5_000)
        for data in fragments(seqno, rng.choice([1, 1, 1, 4])):
            now_ns += 10_000
            driver.send(data, winner, at_ns=now_ns)
            driver.send(data, 1 - winner, at_ns=now_ns + lead)
            wins[winner] += 1
            lead_ns[winner] += lead
    driver.finish()
    for line in range(2):
        scope = driver.line(line)
        assert scope["wins"] == scope["leads"] == wins[line]
        assert scope["lead_ns"] == lead_ns[line]
        assert scope["ties_lost"] == wins[1 - line]
        assert scope["losses"] == 0


def test_lines_complete_a_message_together() -> None:
    driver = Driver()
    driver.send(datagram(0))
    parts = fragments(1, 4)
    for i, part in enumerate(parts):
        driver.send(part, i % 2, at_ns=10_000 + i)
    message = driver.messages()[-1]
    assert (message.line, message.received_ns, message.fragments) == (1, 10_000, 4)
    driver.finish()


def test_lines_of_three_lead_by_what_the_second_is_behind() -> None:
    rng = random.Random(8)
    driver = Driver(lines_incremental=3)
    wins, ties, leads_ns, now_ns = [0] * 3, [0] * 3, [0] * 3, 0
    for seqno in range(2_000):
        order = rng.sample(range(3), 3)
        delays = sorted(rng.sample(range(1, 5_000), 2))
        for data in fragments(seqno, rng.choice([1, 1, 4])):
            now_ns += 10_000
            for line, delay in zip(order, [0, *delays], strict=True):
                driver.send(data, line, at_ns=now_ns + delay)
            wins[order[0]] += 1
            leads_ns[order[0]] += delays[0]
            for line in order[1:]:
                ties[line] += 1
    driver.finish()
    for line in range(3):
        scope = driver.line(line)
        assert scope["wins"] == scope["leads"] == wins[line]
        assert (scope["lead_ns"], scope["ties_lost"]) == (leads_ns[line], ties[line])


def test_lines_behind_when_a_session_ends_are_not_blamed_for_what_was_still_to_come() -> None:
    driver = Driver()
    for seqno in range(10):
        driver.send(datagram(seqno), 0)
    for seqno in (0, 1, 2, 4, 5):  # it has come as far as 5, and lost 3
        driver.send(datagram(seqno), 1)
    for seqno in range(2):
        driver.send(datagram(seqno, session_id=0x9999), 0)
    assert len(driver.sessions()) == 2
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (0, 1)
    driver.finish()


@pytest.mark.parametrize("more", [2, 3])  # a jump is believed once another one follows it
@pytest.mark.parametrize("beyond", [0, 1, 5])
def test_line_that_is_a_window_behind_fills_all_that_the_window_still_has(
    beyond: int, more: int
) -> None:
    driver = Driver(window=256, lost_packet_wait_ns=1_000 * MS)
    for i in range(100):
        driver.send(datagram(i), 0)
        driver.send(datagram(i), 1)
    first = 100 + 256 + beyond
    for i in range(first, first + more):
        driver.send(datagram(i), 0)
    for i in range(100, first + more):
        driver.send(datagram(i), 1)
    driver.finish()
    assert driver.seqnos() == [*range(100), *range(first + more - 256, first + more)]
    assert driver.channel()["gaps_window_full"] == driver.channel()["gaps"]


@pytest.mark.parametrize("lost", [1, 50, 300])
@pytest.mark.parametrize("behind", [400, 4_000])
def test_line_that_is_windows_behind_is_blamed_for_what_it_left_out(behind: int, lost: int) -> None:
    driver = Driver(window=256)
    for i in range(100):
        driver.send(datagram(i), 0)
        driver.send(datagram(i), 1)
    for i in range(100, 100 + behind):
        driver.send(datagram(i), 0)
    for i in range(100 + lost, 100 + behind):
        driver.send(datagram(i), 1)
    driver.finish()
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (0, lost)


def test_lines_that_are_down_are_blamed_after_the_wait_on_a_quiet_feed() -> None:
    driver = Driver(lost_packet_wait_ns=5_000_000)
    second = 1_000_000_000
    for seqno in range(20):
        driver.send(datagram(seqno), 0, at_ns=seqno * second)
        if seqno < 10:
            driver.send(datagram(seqno), 1, at_ns=seqno * second + 1_000)
        for turn in range(1, 4):
            driver.expire(seqno * second + turn * 200_000_000)
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (0, 10)
    driver.finish()
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (0, 10)


def test_lines_whose_stamps_contradict_the_order_lead_by_less() -> None:
    driver = Driver()
    for seqno, stamps in enumerate([(1_000, 3_000), (9_000, 8_500)]):
        for line, received_ns in enumerate(stamps):
            driver.pipeline.accept(0, line, datagram(seqno), received_ns, seqno)
            driver.pipeline.take()
    assert (driver.line(0)["leads"], driver.line(0)["lead_ns"]) == (2, 2_000 - 500)


@pytest.mark.parametrize(("lag_ms", "rate"), [(8, 20_000), (30, 20_000), (80, 200_000)])
@pytest.mark.parametrize("lost", [(), (500, 10_000, 10_001)])
def test_own_numbers_of_a_slower_line_tell_its_losses_and_its_life(
    lag_ms: int, rate: int, lost: tuple[int, ...]
) -> None:
    # At 80 ms it is further behind than the window remembers.
    driver = Driver(lines_incremental=2, inactivity_timeout_ns=100_000_000)
    step_ns = 1_000_000_000 // rate
    skew = lag_ms * 1_000_000 // step_ns
    for number in range(20_000 + skew):
        if number < 20_000:
            driver.send(datagram(number + 1), 0, at_ns=number * step_ns)
        if number >= skew and number - skew not in lost:
            driver.send(datagram(number - skew + 1), 1, at_ns=number * step_ns + 1)
        if number % 64 == 0:
            driver.expire(number * step_ns + 2)
    driver.finish()
    assert driver.line(1)["losses"] == len(lost)
    assert driver.line(1)["disconnected"] == 0
    assert driver.seqnos() == list(range(1, 20_001))


def skewed(lag_ns: int, lost: int, count: int = 400, **settings: object) -> Driver:
    """Both lines bring the same, one of them later; the first one loses a message."""
    driver = Driver(window=1 << 13, **settings)
    arrivals = [(seqno * MS, 0, seqno) for seqno in range(1, count) if seqno != lost]
    arrivals += [(seqno * MS + lag_ns, 1, seqno) for seqno in range(1, count)]
    for at_ns, line, seqno in sorted(arrivals):
        driver.expire(at_ns)
        driver.send(datagram(seqno), line, at_ns=at_ns)
    return driver


@pytest.mark.parametrize("lag_ms", [1, 8, 30, 80])
def test_wait_that_follows_the_slower_line_loses_nothing_that_it_brings(lag_ms: int) -> None:
    driver = skewed(lag_ms * MS, 300, lost_packet_wait_auto=True)
    assert driver.gaps() == []
    wait_ns = driver.channel()["wait_ns"]
    assert wait_ns == max(5 * MS, lag_ms * MS * 5 // 4)
    assert bool(skewed(lag_ms * MS, 300).gaps()) is (lag_ms > 5)


def test_wait_that_follows_the_lines_is_bounded_and_forgets_those_that_are_dead() -> None:
    driver = skewed(240 * MS, 900, count=700, lost_packet_wait_auto=True)
    assert driver.channel()["wait_ns"] == 250 * MS
    for seqno in range(1_000, 1_450):  # line 1 says nothing any more
        driver.expire(driver.now_ns + MS)
        driver.send(datagram(seqno), 0)
    assert driver.channel()["wait_ns"] == 5 * MS


def test_wait_that_is_given_is_shown_and_stays() -> None:
    driver = skewed(80 * MS, 300, lost_packet_wait_ns=7 * MS)
    assert [driver.channel(channel)["wait_ns"] for channel in range(2)] == [7 * MS, 7 * MS]


# --- bursts and thin traffic: all lines are silent most of the time -------------------------------


def times_of(bursts: int, count: int, step_ns: int, pause_ns: int) -> list[int]:
    """When so many bursts of so many messages are sent."""
    each_ns = (count - 1) * step_ns + pause_ns
    return [MS + burst * each_ns + i * step_ns for burst in range(bursts) for i in range(count)]


def raced(
    times: list[int],
    lags_ms: Sequence[int | Callable[[int], int]],
    lost: Mapping[int, set[int]],
    **settings: object,
) -> Driver:
    """Messages 1, 2, ... sent at these times, on lines of these lags; time passes in steps."""
    arrivals = []
    for seqno, sent_ns in enumerate(times, 1):
        for line, lag_ms in enumerate(lags_ms):
            if seqno not in lost.get(line, ()):
                lag_ns = (lag_ms if isinstance(lag_ms, int) else lag_ms(seqno)) * MS
                arrivals.append((sent_ns + lag_ns, line, seqno))
    driver = Driver(lines_incremental=len(lags_ms), lost_packet_wait_auto=True, **settings)
    for at_ns, line, seqno in sorted(arrivals):
        for turn_ns in range(driver.now_ns + 2 * MS, at_ns, 2 * MS):
            driver.expire(turn_ns)
        driver.expire(at_ns)
        driver.send(datagram(seqno), line, at_ns=at_ns)
    for _ in range(300):
        driver.expire(driver.now_ns + 2 * MS)
    return driver


@pytest.mark.parametrize("line_dead_ms", [100, 400])
@pytest.mark.parametrize("lag_ms", [8, 30, 80, 180])
def test_wait_that_follows_the_lines_outlasts_a_pause_of_all(
    lag_ms: int, line_dead_ms: int
) -> None:
    rng = random.Random(lag_ms)
    times = times_of(6, 400, MS, 500 * MS)
    lost = {seqno for seqno in range(300, 2_400) if rng.random() < 0.03}
    lost |= {401, 402, 801, 1_200, 2_000, 2_001}  # where bursts begin and end
    driver = raced(times, (0, lag_ms), {0: lost}, line_dead_ns=line_dead_ms * MS)
    assert driver.gaps() == []
    assert driver.line(0)["losses"] == len(lost)
    if lag_ms < line_dead_ms:  # else it is dead, and blamed, until its first copy comes
        assert driver.line(1)["losses"] == 0
    assert driver.channel()["wait_ns"] == lag_ms * MS * 5 // 4


@pytest.mark.parametrize(("rate", "lag_ms"), [(8, 30), (9, 80), (1, 200)])
def test_wait_that_follows_the_lines_of_a_thin_stream_is_kept(rate: int, lag_ms: int) -> None:
    times = times_of(60, 1, 0, 1_000_000_000 // rate)
    lost = {10, 11, 20, 40}
    driver = raced(times, (0, lag_ms), {0: lost})
    assert driver.gaps() == []
    unknown = int(lag_ms > 100)  # it is dead, and blamed, until its first copy comes
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (len(lost), unknown)
    assert driver.channel()["wait_ns"] == lag_ms * MS * 5 // 4


def test_wait_that_follows_three_lines_is_as_long_as_the_slowest_needs() -> None:
    times = times_of(5, 300, MS, 700 * MS)
    lost = {301, 302, 650, 900, 901, 1_300}
    driver = raced(times, (0, 12, 60), {0: lost, 1: lost})
    assert driver.gaps() == []
    assert [driver.line(line)["losses"] for line in range(3)] == [len(lost), len(lost), 0]
    assert driver.channel()["wait_ns"] == 75 * MS


def test_wait_that_follows_the_lines_forgets_one_that_is_dead_in_bursts_of_others() -> None:
    # Line 1 brings nothing from the third burst on: holes wait for it no longer, in pauses either.
    times = times_of(6, 300, MS, 700 * MS)
    driver = raced(times, (0, 30), {1: set(range(601, 1_801)), 0: {1_250}})
    assert driver.gaps() == [(1_250, 1_250)]
    (gap,) = [read(m) for m in driver.out if m.kind is Kind.GAP]
    assert gap["waited_ns"] <= 7 * MS
    assert driver.line(1)["losses"] == 1_199  # nobody brought 1250
    assert driver.channel()["wait_ns"] == 5 * MS


def test_wait_that_follows_the_lines_of_a_thin_stream_forgets_one_that_is_dead() -> None:
    times = times_of(40, 1, 0, 125 * MS)
    driver = raced(times, (0, 30), {1: set(range(21, 41))})
    assert driver.line(1)["losses"] == 20
    assert driver.channel()["wait_ns"] == 5 * MS


def test_wait_that_follows_the_lines_is_there_when_one_is_back() -> None:
    # Line 1 was dead for two bursts. From its first copy on, 30 ms into the fifth, holes wait.
    times = times_of(6, 300, MS, 700 * MS)
    lost = {1_240, 1_241, 1_500, 1_501}
    driver = raced(times, (0, 30), {1: set(range(601, 1_201)), 0: lost})
    assert driver.gaps() == []
    late = 30 - 5  # what it brings later than the wait for a line that was dead is lost, too
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (len(lost), 600 + late)


@pytest.mark.parametrize("step_ms", [1, 7, 1_000])
def test_line_is_dead_whichever_turns_the_loop_has(step_ms: int) -> None:
    # As a raw capture keeps only turns that say something, and a replay has no others.
    driver = Driver(
        lines_incremental=2, out_of_order_max_interval=16, lost_packet_wait_ns=200 * MS, window=256
    )
    for seqno in range(1, 900):
        if seqno % step_ms == 0:
            driver.expire(seqno * MS)
        if seqno != 500:
            driver.send(datagram(seqno), 0, at_ns=seqno * MS)
        if seqno < 50:
            driver.send(datagram(seqno), 1, at_ns=seqno * MS + 1)
    (gap,) = [read(m) for m in driver.out if m.kind is Kind.GAP]
    assert (gap["first"], gap["waited_ns"]) == (500, 15 * MS)


def test_wait_outlasts_a_pause_behind_the_first_message_of_a_session() -> None:
    driver = raced(times_of(2, 300, MS, 700 * MS), (0, 80), {})
    start_ns = driver.now_ns
    lost = {10, 40, 70}
    sent = {i: (i - 1) * MS + (500 * MS if i > 1 else 0) for i in range(1, 700)}
    arrivals = [(at_ns, 0, i) for i, at_ns in sent.items() if i not in lost]
    arrivals += [(at_ns + 80 * MS, 1, i) for i, at_ns in sent.items()]
    for at_ns, line, seqno in sorted(arrivals):
        driver.expire(start_ns + at_ns)
        driver.send(datagram(seqno, session_id=9), line, at_ns=start_ns + at_ns)
    assert len(driver.sessions()) == 2
    assert driver.gaps() == []


def test_wait_that_follows_the_lines_knows_a_slower_line_from_its_first_copy_on() -> None:
    # No line of a stream is known before: what the first copies show holds at once.
    driver = raced(times_of(1, 300, MS, 0), (0, 30), {0: {33, 34, 60}})
    assert driver.gaps() == []
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (3, 0)


def test_wait_that_follows_the_lines_survives_another_session() -> None:
    driver = raced(times_of(2, 300, MS, 700 * MS), (0, 30), {})
    start_ns = driver.now_ns
    lost = {3, 4, 20, 300}
    arrivals = [(i * MS, 0, i) for i in range(1, 400) if i not in lost]
    arrivals += [((i + 30) * MS, 1, i) for i in range(1, 400)]
    for at_ns, line, seqno in sorted(arrivals):
        driver.expire(start_ns + at_ns)
        driver.send(datagram(seqno, session_id=9), line, at_ns=start_ns + at_ns)
    assert len(driver.sessions()) == 2
    assert driver.gaps() == []
    driver.finish()
    assert (driver.line(0)["losses"], driver.line(1)["losses"]) == (len(lost), 0)


def test_wait_that_follows_the_lines_follows_them_when_the_slow_one_becomes_the_fast_one() -> None:
    # From 1,501 on it is line 0 that is behind, by less than line 1 was.
    swapped = 1_501
    lags = (lambda seqno: 0 if seqno < swapped else 20, lambda seqno: 60 if seqno < swapped else 0)
    times = times_of(60, 300, MS, 400 * MS)
    lost = {0: {400, 700}, 1: {1_900, 2_101, 2_102, 9_000, 17_500}}
    driver = raced(times, lags, lost)
    assert driver.gaps() == []
    assert [driver.line(line)["losses"] for line in range(2)] == [2, 5]
    assert 25 * MS <= driver.channel()["wait_ns"] < 30 * MS


def test_wait_that_follows_the_lines_shrinks_with_their_skew() -> None:
    lag = lambda seqno: 80 if seqno < 1_000 else 10  # noqa: E731
    times = times_of(60, 300, MS, 400 * MS)
    driver = raced(times, (0, lag), {0: {700, 1_500, 16_000}})
    assert driver.gaps() == []
    assert 12 * MS < driver.channel()["wait_ns"] < 15 * MS


def test_wait_that_follows_the_lines_is_the_least_for_a_single_line() -> None:
    driver = raced(times_of(5, 50, MS, 700 * MS), (0,), {0: {100}})
    assert driver.gaps() == [(100, 100)]
    assert driver.channel()["wait_ns"] == 5 * MS
    assert driver.line(0)["losses"] == 0


def test_interval_waits_for_a_line_that_is_behind_after_a_pause_of_all() -> None:
    # Gaps by count: line 1 may still bring what line 0 lost at the beginning of a burst.
    times = times_of(4, 100, MS, 700 * MS)
    driver = raced(times, (0, 30), {0: {150, 202, 302}}, out_of_order_max_interval=8)
    assert driver.gaps() == []
