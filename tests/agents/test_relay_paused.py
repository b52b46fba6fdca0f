"""A relay that stands still and goes on: no book is sound at the far end that is old."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.relaycheck import End
from tests.agents.test_relay import STEP_NS, kinds
from tests.agents.test_relay_budget import BITS_PER_S, BURST_BYTES, ShortWorld, line
from tests.agents.test_silent_relay import SILENT_MS, FarWorld
from udpfast.core.layout import Kind
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.relay_counts import RELAY_VERDICTS

LATE_MS = 100
#: Shorter than the far end's patience, and longer.
PAUSES_MS = (LATE_MS + 20, 5 * SILENT_MS)


class PausedWorld(FarWorld, ShortWorld):
    """A book of one level, whose quantity says how new it is, and its relay."""

    def __init__(self, directory: Path, bits_per_s: int = 0) -> None:
        self.settings = thin = line(
            bits_per_s=bits_per_s, burst_bytes=BURST_BYTES if bits_per_s else 16_384
        )
        super(ShortWorld, self).__init__(directory, lines=(thin,), late_ms=LATE_MS,
                                         snapshot_rate_per_s=1_000)  # fmt: skip
        self.far.close()
        self.far = End(self.config(), directory / "far-too")
        self.newest = 0.0
        self.seen: list[float | None] = []

    def tell(self, *, snapshot: bool = False) -> None:
        self.newest += 1
        self.book((1.0, self.newest), snapshot=snapshot)

    def look(self) -> None:
        self.seen.append(self.bids[1.0] if self.bids else None)

    def stand(self, ms: int, updates: int = 3) -> None:
        """Let time pass in which the feed publishes and the relay does nothing."""
        for _ in range(updates):
            self.tell()
        self.near.ring.flush()
        for _ in range(ms // 20):
            self.silence(20)

    def go_on(self, *, turns: int = 150, snapshots_first: bool = False) -> None:
        """Let the relay run again, and look behind each record of the far end."""
        self.seen = []
        self.near.ring.flush()
        for _ in range(turns):
            while self.relay.work(self.now_ns) > 0:
                pass
            for channel in (1, 0) if snapshots_first else (0, 1):
                datagrams = list(self.relay.feed.kept[channel])
                self.relay.feed.kept[channel].clear()
                for datagram in datagrams:
                    for record in self.far.send(datagram, (channel, 0), self.now_ns):
                        self.records.append(record)
                        self.look()
            self.now_ns += STEP_NS

    def check(self, before: float | None) -> None:
        """Check that what was sound was the newest, or is what was known before the pause."""
        sound = [each for each in self.seen if each is not None]
        after = self.seen[self.seen.index(None) :] if None in self.seen else self.seen
        assert set(sound) <= {before, self.newest}
        assert before is None or before not in after
        assert self.seen[-1] == self.newest
        counts = self.counts
        assert sum(counts[key] for key in RELAY_VERDICTS) == counts["records"], counts


@pytest.fixture(params=[0, BITS_PER_S], ids=["wide", "thin"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PausedWorld]:
    made = PausedWorld(tmp_path, request.param)
    yield made
    made.close()


@pytest.mark.parametrize("snapshots_first", [False, True])
@pytest.mark.parametrize("pause_ms", PAUSES_MS)
def test_old_book_is_not_sound_there_behind_a_pause(
    world: PausedWorld, pause_ms: int, snapshots_first: bool
) -> None:
    world.tell(snapshot=True)
    world.quiet()
    world.stand(pause_ms)
    world.go_on(snapshots_first=snapshots_first)
    world.check(1.0 if pause_ms < SILENT_MS else None)
    assert None in world.seen
    assert world.counts["behind"] == 1


def test_short_pause_costs_nothing(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    world.stand(40)
    world.go_on()
    assert None not in world.seen
    assert world.seen[-1] == world.newest
    assert world.counts["behind"] == 0


def test_relay_that_stands_before_its_first_message(world: PausedWorld) -> None:
    world.relay.work(world.now_ns)
    world.tell(snapshot=True)
    world.stand(5 * SILENT_MS)
    world.go_on()
    world.check(None)


def test_pause_in_the_middle_of_a_snapshot(world: PausedWorld) -> None:
    # More fragments than a round sends at once.
    levels = 400 if world.settings.bits_per_s else 3_000
    world.book(*((2.0 + at, 1.0) for at in range(levels)), (1.0, 1.0), snapshot=True)
    world.newest = 1.0
    world.turn()
    world.quiet()
    interrupted = False
    for _ in range(3_000):
        if interrupted:
            break
        world.now_ns += STEP_NS // 10
        world.relay.work(world.now_ns)
        for channel, kept in enumerate(world.relay.feed.kept):
            for datagram in kept:
                list(world.far.send(datagram, (channel, 0), world.now_ns))
                fragment, last = datagram[1:3]
                interrupted = channel == 1 and 0 < fragment < last
            kept.clear()
    assert interrupted
    world.stand(5 * SILENT_MS)
    world.go_on(turns=500, snapshots_first=True)
    world.check(None)


def test_two_pauses_in_a_row(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    for _ in range(2):
        world.stand(5 * SILENT_MS)
        world.go_on(turns=1)
        assert set(world.seen) <= {None, world.newest}
    world.go_on()
    world.check(None)


def test_many_records_of_a_pause_are_not_told_one_by_one(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    before = world.counts["updates"]
    world.stand(5 * SILENT_MS, updates=2_000)
    world.go_on()
    world.check(None)
    assert world.counts["updates"] == before
    assert world.counts["conflated"] >= 1_990


def test_trades_of_a_pause_arrive(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    for number in range(3):
        world.trade(float(number))
    world.stand(5 * SILENT_MS)
    world.go_on()
    world.check(None)
    told = [each.update.rows["quantity"].tolist() for each in world.records
            if each.kind == Kind.TRADES]  # fmt: skip
    assert told == [[0.0], [1.0], [2.0]]


def test_feed_that_began_anew_in_a_pause(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    world.stand(5 * SILENT_MS)
    world.begin(2, 2)
    world.newest += 1
    world.book((1.0, world.newest), snapshot=True, session=2)
    world.go_on()
    world.check(None)
    assert Kind.SESSION in kinds(world.records)


def test_what_waited_for_a_thin_line_in_a_pause_is_withdrawn(tmp_path: Path) -> None:
    thin = PausedWorld(tmp_path, BITS_PER_S)
    thin.tell(snapshot=True)
    thin.quiet()
    rows = [(float(price), 2.0) for price in range(2, 402)]
    thin.newest += 1
    thin.book((1.0, thin.newest), *rows)
    thin.near.ring.flush()
    thin.relay.work(thin.now_ns)  # of its fragments the first ones leave
    thin.stand(5 * SILENT_MS)
    thin.go_on(turns=1_000)
    thin.check(None)
    thin.close()


def test_feed_that_is_lapped_in_a_pause_is_doubt_at_once(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    for _ in range(400):
        world.book(*((float(price), 3.0) for price in range(2, 402)))
    world.stand(LATE_MS + 20)
    world.seen = []
    while world.relay.work(world.now_ns) > 0:
        pass
    assert world.counts["lapped"] > 0
    world.go_on()
    assert None in world.seen
    assert set(world.seen[world.seen.index(None) :]) == {None}


def test_pause_says_so_once(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    world.stand(LATE_MS + 20)
    first = len(world.records)
    world.go_on()
    found: list[Any] = world.records[first:]
    assert kinds(found).count(Kind.GAP) == 1


FUTURE_NS = 1 << 62


def stand_still(world: PausedWorld, ms: int) -> list[float | None]:
    """Let time pass in which the relay runs, and the feed's loop does not; return what was seen."""
    seen = []
    world.near.ring.note_current(world.now_ns)
    for _ in range(ms // 20):
        world.go_on(turns=20_000_000 // STEP_NS)
        seen += world.seen
    return seen


def available(world: PausedWorld) -> bool:
    said = [each for each in world.records if each.kind == Kind.GATEWAY_STATUS]
    return bool(said[-1].update.header["available"])


def test_book_of_a_feed_that_stands_still_is_in_doubt_there_until_it_has_caught_up(
    world: PausedWorld,
) -> None:
    world.tell(snapshot=True)
    world.quiet()
    assert available(world)
    seen = stand_still(world, 5 * SILENT_MS)
    assert seen[-1] is None and set(seen[seen.index(None) :]) == {None}
    assert not available(world)
    old_ns = world.now_ns - 2 * LATE_MS * 1_000_000
    for _ in range(3):  # it goes on, and is not at the end of what has come
        world.tell()
        world.near.ring.note_current(old_ns)
        world.go_on()
        assert set(world.seen) <= {None}
    world.near.ring.note_current(FUTURE_NS)
    world.go_on(turns=300)
    world.check(None)
    assert available(world)
    assert world.counts["behind"] == 1


def test_feed_that_is_late_by_less_than_a_book_may_be_is_not_stuck(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    for _ in range(10):
        assert None not in stand_still(world, LATE_MS - 20)
    assert world.counts["behind"] == 0


def test_feed_behind_a_stuck_one_is_believed_once_it_has_begun(world: PausedWorld) -> None:
    world.tell(snapshot=True)
    world.quiet()
    stand_still(world, 5 * SILENT_MS)
    world.near.names_region.close()
    world.near.ring.region.close()  # killed, and another one is there before the relay looks
    world.near.ring = Ring.create(world.near.directory, 1 << 22, PAYLOAD_HASH)
    world.go_on()
    assert set(world.seen) <= {None} and not available(world)
    world.near.ring.announce_restart(1)
    world.begin(2, 2)
    world.newest += 1
    world.book((1.0, world.newest), snapshot=True, session=2)
    world.go_on(turns=300)
    world.check(None)
    assert available(world)
