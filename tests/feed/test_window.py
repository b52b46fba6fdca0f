"""Loss, reorder, duplicates, wrap and fragments on one channel: NL0 and NL1 after each."""

import itertools
import random

import pytest

from lab.framings import Sent, build
from tests.feed.drive import Driver, datagram, fragments, message_bytes, read
from udpfast.core.layout import GapReason, Kind

WRAP = 1 << 32


def lossy(rng: random.Random, count: int, loss: float) -> list[bool]:
    """Which of `count` arrive; the first always does."""
    return [i == 0 or rng.random() >= loss for i in range(count)]


def bursts(rng: random.Random, count: int, mean: int, good_mean: int) -> list[bool]:
    """Gilbert-Elliott: which arrive when `count` bursts of loss have runs between them.

    No run between them is so short that a jump over the window is not believed.
    """
    arrives: list[bool] = []
    for _ in range(count):
        arrives += [True] * (1 + (mean > 1_000) * 64 + int(rng.expovariate(1 / good_mean)))
        arrives += [False] * (1 + int(rng.expovariate(1 / mean)))
    return [*arrives, *[True] * 100]


def holes(arrives: list[bool], first: int = 0) -> list[tuple[int, int]]:
    """Runs that did not arrive, without one at the very end."""
    runs = [
        (arrived, list(group))
        for arrived, group in itertools.groupby(range(len(arrives)), key=lambda i: arrives[i])
    ]
    if runs and not runs[-1][0]:
        runs.pop()
    return [
        ((first + group[0]) % WRAP, (first + group[-1]) % WRAP)
        for arrived, group in runs
        if not arrived
    ]


@pytest.mark.parametrize("first", [1, WRAP - 100, WRAP - 1, 0])
@pytest.mark.parametrize("loss", [0, 0.001, 0.01, 0.05, 0.1, 0.3])
def test_window_with_uniform_loss_reports_exactly_the_losses(first: int, loss: float) -> None:
    arrives = lossy(random.Random(f"{first} {loss}"), 5_000, loss)
    driver = Driver(lines_incremental=1, lost_packet_wait_ns=50_000)
    for i, arrived in enumerate(arrives):
        if arrived:
            driver.send(datagram(first + i))
    driver.finish()
    assert driver.gaps() == holes(arrives, first)
    assert driver.seqnos() == [(first + i) % WRAP for i, a in enumerate(arrives) if a]


@pytest.mark.parametrize("mean", [10, 100, 1_000, 10_000])
@pytest.mark.parametrize("good_mean", [20, 500])
def test_window_with_burst_loss_reports_one_gap_per_burst(mean: int, good_mean: int) -> None:
    arrives = bursts(random.Random(mean), 20, mean, good_mean)
    driver = Driver(lines_incremental=1)
    for i, arrived in enumerate(arrives):
        if arrived:
            driver.send(datagram(i))
    driver.finish()
    assert len(driver.gaps()) == 20
    assert driver.gaps() == holes(arrives)


def test_window_with_tail_lost_then_heartbeats_reports_it_after_the_wait() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(100), at_ns=0)
    driver.send(datagram(102, b"", object_type=0), at_ns=1_000_000_000)
    driver.expire(1_004_999_999)
    assert driver.gaps() == []
    driver.expire(1_005_000_000)
    assert driver.gaps() == [(101, 101)]
    gap = next(read(m) for m in driver.out if m.kind is Kind.GAP)
    assert gap["reason"] == GapReason.TIME
    assert gap["waited_ns"] == 5_000_000
    driver.finish()


@pytest.mark.parametrize("depth", [1, 2, 15, 16, 17, 256, 4_096, 8_191, 8_192, 8_193])
def test_window_with_one_datagram_late_by_depth_waits_for_less_than_its_size(depth: int) -> None:
    driver = Driver(lines_incremental=1, lost_packet_wait_ns=1 << 50)
    order = [0, *range(2, 2 + depth), 1, *range(2 + depth, depth + 100)]
    for seqno in order:
        driver.send(datagram(seqno))
    driver.finish()
    if depth < 8_192:
        assert driver.gaps() == []
        assert driver.seqnos() == list(range(depth + 100))
    else:
        assert driver.gaps() == [(1, 1)]
        assert driver.verdicts.count("replay") == 1  # one more than the window remembers
        assert driver.channel()["gaps_by_count"] == 1


@pytest.mark.parametrize("depth", [15, 200, 4_000])
def test_window_with_everything_reordered_delivers_in_order(depth: int) -> None:
    rng = random.Random(depth)
    order = sorted(range(1, 20_000), key=lambda i: i + rng.randrange(depth))
    driver = Driver(lines_incremental=1, lost_packet_wait_ns=1 << 50)
    for seqno in [0, *order]:
        driver.send(datagram(seqno + WRAP - 5_000))
    driver.finish()
    assert driver.gaps() == []
    assert driver.seqnos() == [(i + WRAP - 5_000) % WRAP for i in range(20_000)]


@pytest.mark.parametrize("interval", [1, 2, 16, 100, 8_192])
@pytest.mark.parametrize("wait_ns", [0, 3_000, 1_000_000, 1 << 50])
def test_window_decides_by_whichever_criterion_is_met_first(interval: int, wait_ns: int) -> None:
    driver = Driver(
        lines_incremental=1, lost_packet_wait_ns=wait_ns, out_of_order_max_interval=interval
    )
    driver.send(datagram(0))
    for i in range(2, 3_000):  # 1 us apart; seqno 1 never comes
        driver.send(datagram(i))
        if driver.gaps():
            break
    passed = driver.now_ns - 2_000  # since the hole was first seen
    by_count, by_time = i > interval, passed >= wait_ns
    assert bool(driver.gaps()) == (by_count or by_time)
    if driver.gaps():
        reason = next(read(m)["reason"] for m in driver.out if m.kind is Kind.GAP)
        assert reason == (GapReason.COUNT if by_count else GapReason.TIME)
        assert by_count != by_time or i in (2, interval + 1)
    driver.finish()


@pytest.mark.parametrize("lines", [1, 2])
def test_window_with_fragments_in_order_waits_for_the_rest_however_slow(lines: int) -> None:
    driver = Driver(lines_incremental=lines)
    driver.send(datagram(1), at_ns=0)
    for i, data in enumerate(fragments(2, 256)):  # 12 ms apart: three seconds
        driver.expire(i * 12_000_000 + 11_000_000)
        driver.send(data, at_ns=(i + 1) * 12_000_000)
    assert [m.payload for m in driver.messages()][1:] == [message_bytes(2, 256)]
    assert driver.gaps() == []
    driver.finish()


def test_window_with_a_fragment_missing_waits_from_when_the_next_one_came() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(1), at_ns=0)
    parts = fragments(2, 5)
    driver.send(parts[0], at_ns=10_000_000)
    driver.send(parts[2], at_ns=30_000_000)  # shows that 1 is missing
    driver.send(parts[3], at_ns=34_000_000)
    driver.expire(34_999_999)
    assert driver.gaps() == []
    driver.expire(35_000_000)
    assert driver.gaps() == [(2, 2)]
    gap = next(read(m) for m in driver.out if m.kind is Kind.GAP)
    assert (gap["reason"], gap["waited_ns"]) == (GapReason.TIME, 5_000_000)
    driver.finish()


def test_window_with_a_fragment_filled_waits_for_the_next_hole_of_the_message() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(1), at_ns=0)
    parts = fragments(2, 8)
    for at_ns, part in ((0, 0), (1_000_000, 2), (4_000_000, 6), (4_500_000, 5), (5_000_000, 1)):
        driver.send(parts[part], at_ns=at_ns)  # 3 and 4 are missing since 6 came
    driver.expire(8_999_999)
    assert driver.gaps() == []
    driver.expire(9_000_000)
    assert driver.gaps() == [(2, 2)]
    driver.finish()


def test_window_whose_last_message_stays_in_part_gives_it_up_after_the_silence() -> None:
    driver = Driver(lines_incremental=1, inactivity_timeout_ns=1_000_000_000)
    driver.send(datagram(1), at_ns=0)
    driver.send(fragments(2, 3)[0], at_ns=1_000_000)
    driver.send(fragments(2, 3)[1], at_ns=9_000_000)
    driver.expire(1_008_999_999)
    assert driver.gaps() == []
    driver.expire(1_009_000_000)
    assert driver.gaps() == [(2, 2)]
    gap = next(read(m) for m in driver.out if m.kind is Kind.GAP)
    assert (gap["reason"], gap["waited_ns"]) == (GapReason.TIME, 1_000_000_000)
    driver.finish()


def test_line_that_is_still_in_a_message_given_up_is_no_restart() -> None:
    driver = Driver(lines_incremental=2)
    for seqno in range(1, 41):
        driver.send(datagram(seqno), 0, at_ns=seqno * 1_000_000)
    lost = fragments(41, 200)
    for i, data in enumerate(lost):
        if i != 7:
            driver.send(data, 0, at_ns=41_000_000 + i * 1_000)
    driver.send(datagram(42), 0, at_ns=42_000_000)
    driver.expire(50_000_000)
    assert driver.gaps() == [(41, 41)]
    for seqno in range(1, 41):  # a line of 1 Mbit/s, two seconds behind
        driver.send(datagram(seqno), 1, at_ns=2_000_000_000 + seqno * 300_000)
    for i, data in enumerate(lost):
        assert driver.send(data, 1, at_ns=2_020_000_000 + i * 4_500_000) == "late"
    assert len(driver.sessions()) == 1
    driver.finish()


def test_window_times_each_number_that_heartbeats_name_for_itself() -> None:
    driver = Driver(lines_incremental=1, framing="moldudp64")
    session = b"%10d" % 7

    def mold(number: int, *messages: bytes) -> bytes:
        return build("moldudp64", Sent(number, messages, session=session))

    driver.send(mold(1, b"a"), at_ns=1_000_000)
    driver.send(mold(3), at_ns=10_000_000)  # 2 was sent
    driver.send(mold(5), at_ns=14_000_000)  # and 3, 4
    driver.expire(15_000_000)
    assert driver.gaps() == [(2, 2)]
    driver.send(mold(3, b"c"), at_ns=18_000_000)
    driver.expire(18_999_999)
    assert [m.number for m in driver.messages()] == [1, 3]
    driver.expire(19_000_000)
    assert driver.gaps() == [(2, 2), (4, 4)]
    waited = [int(read(m)["waited_ns"]) for m in driver.out if m.kind is Kind.GAP]
    assert waited == [5_000_000, 5_000_000]


def test_window_times_each_hole_for_itself() -> None:
    driver = Driver(lines_incremental=2)
    driver.send(datagram(0), at_ns=0)
    driver.send(datagram(2), at_ns=1_000_000)
    driver.send(datagram(4), at_ns=4_000_000)
    driver.expire(6_000_000)
    assert driver.story() == ["session 0x1234", "0", "gap 1-1", "2"]
    driver.send(datagram(3), line=1, at_ns=8_000_000)
    assert driver.seqnos() == [0, 2, 3, 4]
    driver.finish()


def test_window_of_latest_run_disregards_what_lies_before_it() -> None:
    driver = Driver(lines_incremental=1, on_gap="latest_run")
    for seqno in (1000, 1002, 1005, 1007, 1008):
        driver.send(datagram(seqno))
    driver.expire(10_000_000)
    assert driver.gaps() == [(1001, 1006)]
    assert driver.seqnos() == [1000, 1007, 1008]
    assert driver.channel()["disregarded"] == 2
    assert driver.send(datagram(1005)) == "late"
    driver.finish()


def test_window_of_latest_run_hands_out_the_newest_run_before_what_is_incomplete() -> None:
    driver = Driver(lines_incremental=1, on_gap="latest_run")
    for seqno in (1, 3, 4, 6, 7):
        driver.send(datagram(seqno))
    driver.send(fragments(9, 2)[0], at_ns=9_000_000)
    driver.expire(10_000_000)
    assert driver.story()[1:] == ["1", "gap 2-5", "6", "7"]
    driver.send(fragments(11, 2)[0], at_ns=10_000_000)  # nothing whole waits any more
    driver.expire(20_000_000)
    assert driver.story()[5:] == ["gap 8-10"]  # of 11, nothing is missing yet
    driver.send(datagram(13), at_ns=20_000_000)
    driver.finish()
    assert driver.story()[6:] == ["gap 11-12", "13"]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_window_with_immediate_duplicates_delivers_once(share: float) -> None:
    rng = random.Random(share)
    driver = Driver(lines_incremental=1)
    copies = 0
    for seqno in range(5_000):
        driver.send(datagram(seqno))
        if rng.random() < share:
            copies += 1
            assert driver.send(datagram(seqno)) == "duplicate"
    driver.finish()
    assert driver.seqnos() == list(range(5_000))
    assert driver.line(0)["duplicate"] == copies


def test_window_with_copies_a_second_late_delivers_once_and_begins_no_session() -> None:
    rng = random.Random(1)
    driver = Driver(lines_incremental=1, window=256)
    sent = [(i * 20_000, i) for i in range(20_000)]  # 50 k/s
    copies = [(t + 200_000_000, i) for t, i in sent if rng.random() < 0.01]
    for t, i in sorted(sent + copies):
        driver.send(datagram(i), at_ns=t)
    driver.finish()
    assert driver.seqnos() == list(range(20_000))
    assert driver.line(0)["duplicate"] + driver.line(0)["replay"] == len(copies)
    assert len(driver.sessions()) == 1


def test_window_remembers_as_many_messages_as_its_size() -> None:
    driver = Driver(window=64)
    for seqno in range(200):
        driver.send(datagram(seqno))
    assert driver.send(datagram(200 - 64), 1) == "duplicate"
    assert driver.send(datagram(200 - 65), 1) == "replay"
    driver.finish()


@pytest.mark.parametrize("first", [1, WRAP - 700])
@pytest.mark.parametrize("lines", [1, 2])
def test_window_with_whole_file_again_delivers_nothing(first: int, lines: int) -> None:
    driver = Driver(lines_incremental=lines, window=256)
    for again in range(3):
        for i in range(1_500):
            for line in range(lines):
                verdict = driver.send(datagram(first + i), line=line)
                assert not again or verdict in ("duplicate", "replay")
    driver.finish()
    assert len(driver.messages()) == 1_500
    assert len(driver.sessions()) == 1


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_window_with_fragments_in_any_order_puts_them_together(count: int) -> None:
    for base, order in enumerate(itertools.permutations(range(count))):
        driver = Driver(lines_incremental=1)
        driver.send(datagram(base))
        parts = fragments(base + 1, count)
        for fragment in order:
            driver.send(parts[fragment])
        driver.finish()
        assert [m.payload for m in driver.messages()][1:] == [message_bytes(base + 1, count)]


@pytest.mark.parametrize(("count", "final"), [(2, 0), (2, 512), (3, 1), (255, 77), (256, 512)])
@pytest.mark.parametrize("early", [False, True])
def test_window_with_fragments_shuffled_is_exact(count: int, final: int, early: bool) -> None:
    rng = random.Random(count)
    for round_ in range(5):
        driver = Driver(lines_incremental=2, slab_cells=1024)
        driver.send(datagram(WRAP - 2))
        wait = [(datagram(WRAP - 1), 0)]
        parts = [(part, rng.randrange(2)) for part in fragments(0, count, final)]
        rng.shuffle(parts)
        middle = len(parts) // 2 if early else 0
        for data, line in parts[:middle] + wait + parts[middle:]:
            driver.send(data, line)
        driver.finish()
        assert driver.messages()[-1].payload == message_bytes(0, count, final), round_
        assert driver.messages()[-1].fragments == count
        assert driver.seqnos() == [WRAP - 2, WRAP - 1, 0]


@pytest.mark.parametrize("loss", [0, 0.01])
def test_window_with_64_messages_interleaved_never_mixes_them(loss: float) -> None:
    rng = random.Random(loss)
    driver = Driver(lines_incremental=1, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0))
    seqno, delivered = 1, 0
    for _ in range(20):
        counts = {seqno + i: rng.choice([1, 2, 3, 8, 17]) for i in range(64)}
        parts = [p for s, count in counts.items() for p in fragments(s, count, 200)]
        rng.shuffle(parts)
        for part in parts:
            if rng.random() >= loss:
                driver.send(part)
        seqno += 64
        driver.pipeline.finish(driver.now_ns)
        driver.out += driver.pipeline.take()
        for m in driver.messages()[delivered + 1 :]:
            assert m.payload == message_bytes(m.seqno, counts[m.seqno], 200)
        delivered = len(driver.messages()) - 1
    driver.finish()
    assert (driver.gaps() == []) == (loss == 0)


def test_window_with_hostile_fragments_refuses_each_by_its_reason() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(0))
    poison = b"\xee" * 512
    assert driver.send(datagram(1, poison, fragment=0, fragment_max=2)) == "held"
    assert driver.send(datagram(1, poison, fragment=3, fragment_max=2)) == "fragment_beyond_max"
    assert driver.send(datagram(1, poison, fragment=1, fragment_max=3)) == "fragment_max_changed"
    assert driver.send(datagram(1, poison, fragment=0, fragment_max=0)) == "fragment_max_changed"
    assert driver.send(datagram(1, poison + b"x", fragment=2, fragment_max=2)) == "too_long"
    assert driver.send(datagram(1, poison[:511], fragment=1, fragment_max=2)) == "short_fragment"
    assert driver.send(datagram(1, b"", fragment=2, fragment_max=2)) == "held"
    assert driver.send(datagram(1, poison, fragment=1, fragment_max=2)) == "held"
    assert driver.messages()[-1].payload == poison * 2
    assert driver.line(0)["empty_final"] == 1
    for part in fragments(2, 2, 3):
        driver.send(part)
    assert driver.messages()[-1].payload == message_bytes(2, 2, 3), "no stale byte"
    driver.finish()


def test_window_with_encodings_refuses_others_but_no_heartbeat() -> None:
    driver = Driver(lines_incremental=1, encodings=[2, 5])
    assert driver.send(datagram(0, control=5)) == "delivered"
    assert driver.send(datagram(1, control=1)) == "encoding_refused"
    assert driver.send(datagram(1, b"", control=1)) == "delivered"
    assert driver.send(datagram(2, control=0xE2)) == "delivered"
    assert driver.line(0)["unused_bits"] == 1
    driver.finish()


@pytest.mark.parametrize("on_gap", ["keep_all", "latest_run"])
@pytest.mark.parametrize("cells", [64, 100])
def test_window_without_free_cells_gives_up_the_oldest_hole(on_gap: str, cells: int) -> None:
    driver = Driver(
        lines_incremental=1, slab_cells=cells, on_gap=on_gap, lost_packet_wait_ns=1 << 50
    )
    driver.send(datagram(0))
    for seqno in range(2, 2 + cells):
        assert driver.send(datagram(seqno)) == "held"
    assert driver.gaps() == []
    assert driver.send(datagram(2 + cells)) == "held"
    assert driver.gaps() == [(1, 1)]
    assert driver.seqnos() == [0, *range(2, 3 + cells)]
    assert driver.channel()["gaps_window_full"] == 1
    driver.finish()


@pytest.mark.parametrize("count", [1, 3])
def test_window_without_free_cells_delivers_what_came_last(count: int) -> None:
    # The clock has run for long: nothing that came just now has waited since it began.
    driver = Driver(lines_incremental=1, slab_cells=64)
    driver.send(datagram(1), at_ns=10_000_000_000)
    for seqno in range(3, 67):
        assert driver.send(datagram(seqno)) == "held"
    for part in fragments(67, count):
        driver.send(part)
    driver.finish()
    assert driver.gaps() == [(2, 2)]
    assert driver.seqnos() == [1, *range(3, 68)]


def test_window_with_cells_full_of_halves_goes_on() -> None:
    driver = Driver(lines_incremental=1, slab_cells=64, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0))
    for seqno in range(1, 500):
        driver.send(fragments(seqno, 2, 9)[0])
    assert 0 < driver.pipeline.pending[0] <= 66
    for part in fragments(500, 2, 9):
        driver.send(part)
    driver.finish()
    assert driver.seqnos() == [0, 500]
    assert driver.channel()["incomplete"] == 499


def first_of_256(seqno: int) -> bytes:
    """Return the first datagram of one of the largest messages."""
    return datagram(seqno, bytes(512), fragment=0, fragment_max=255)


def test_window_with_claims_of_256_fragments_stays_within_its_memory() -> None:
    driver = Driver(lines_incremental=1, slab_cells=64, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0))
    verdicts = {driver.send(first_of_256(seqno)) for seqno in range(1, 200)}
    assert verdicts == {"held", "slab_full"}
    driver.expire(1 << 51)
    for seqno in range(200, 300):
        driver.send(datagram(seqno))
    driver.finish()
    assert driver.seqnos()[-100:] == list(range(200, 300))


def test_window_without_room_for_fragments_gives_up_one_seqno_at_a_time() -> None:
    # Far ahead, four halves of the largest message hold all memory of fragments.
    driver = Driver(lines_incremental=1, slab_cells=64, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0))
    for seqno in range(8_000, 8_004):
        assert driver.send(first_of_256(seqno)) == "held"
    for seqno in range(1, 3_000):
        assert driver.send(first_of_256(seqno)) == "slab_full"
    assert driver.gaps() == [(seqno, seqno) for seqno in range(1, 3_000)]
    driver.finish()
    assert driver.gaps()[2_999:] == [(3_000, 8_003)]


@pytest.mark.parametrize("on_gap", ["keep_all", "latest_run"])
def test_window_without_free_cells_and_a_hole_before_each_gives_up_each(on_gap: str) -> None:
    # Far ahead, halves of messages hold all cells; what comes is whole, but never next.
    driver = Driver(lines_incremental=1, slab_cells=64, on_gap=on_gap, lost_packet_wait_ns=1 << 50)
    driver.send(datagram(0))
    for seqno in range(8_000, 8_064):
        assert driver.send(fragments(seqno, 2)[0]) == "held"
    for seqno in range(2, 6_000, 2):
        assert driver.send(datagram(seqno)) == "held"
    assert driver.gaps() == [(seqno, seqno) for seqno in range(1, 5_998, 2)]
    assert driver.seqnos() == list(range(0, 6_000, 2))
    driver.finish()


@pytest.mark.parametrize("jump", [8_192, 8_193, 20_000, 1 << 20, (1 << 30) - 3])
def test_window_with_a_jump_reports_one_gap_and_goes_on(jump: int) -> None:
    driver = Driver(lines_incremental=1)
    for seqno in (10, 11, 13):
        driver.send(datagram(seqno))
    for i in range(3):
        driver.send(datagram(14 + jump + i))
    driver.finish()
    assert driver.gaps() == [(12, 12), (14, 13 + jump)]
    assert driver.seqnos() == [10, 11, 13, *(14 + jump + i for i in range(3))]


def test_window_with_a_dead_half_circle_does_not_stall() -> None:
    driver = Driver(lines_incremental=2)
    seqno = 5
    driver.send(datagram(seqno), line=1)
    for _ in range(9):  # more than once around, line 1 stays where it was
        driver.send(datagram(seqno), line=0)
        seqno = (seqno + (1 << 29)) % WRAP
        driver.send(datagram(seqno - 1), line=0)
        driver.send(datagram(seqno), line=0)
        driver.expire(driver.now_ns + 1_000_000_000)
    driver.send(datagram(seqno + 1), line=1)
    assert driver.seqnos()[-1] == seqno + 1
    driver.finish()


def test_window_with_a_gap_by_time_says_how_long_the_hole_was_seen() -> None:
    driver = Driver(lines_incremental=1, lost_packet_wait_ns=1_000)
    driver.send(datagram(9), at_ns=0)
    driver.send(fragments(11, 2)[0], at_ns=100)  # shows that 10 is missing, and is never whole
    driver.send(datagram(13), at_ns=900)
    driver.expire(1_100)
    gap = next(read(m) for m in driver.out if m.kind is Kind.GAP)
    assert (gap["first"], gap["reason"], gap["waited_ns"]) == (10, GapReason.TIME, 1_000)
    driver.expire(5_000)
    driver.finish()
