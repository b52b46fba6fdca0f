"""The table of proofs (`feed/proof.pxd`): each cell decides something, to the datagram.

A trial brings a run, and counts its datagrams until the feed believes it. Changing a cell by one,
or a kind of quiet for another one, must change a count.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import pytest

from lab.framings import Sent, build
from tests.feed.drive import datagram
from udpfast.core.layout import Kind
from udpfast.feed.pipeline import FeedPipeline

US = 1_000
MS = 1_000_000
SECOND = 1_000 * MS

SESSION, RESET, START, BACK, GAP, RESUMED, AHEAD, ENDED, DRAWN = range(9)
QUIET_NONE, QUIET_PACE, QUIET_DEAD, QUIET_UNDERWAY = range(4)
NEVER = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the table, and what it is changed to."""

    row: int
    column: str
    value: int


class Feed:
    """A feed of one line, in time; datagrams come 0.1 ms apart."""

    def __init__(self, changed: Cell | None, **settings: object) -> None:
        self.pipeline = FeedPipeline(streams=2, **settings)  # type: ignore[arg-type]
        if changed is not None:
            self.pipeline.set_proof(changed.row, changed.column, changed.value)
        self.now_ns = 10**18

    def bring(self, *datagrams: bytes) -> bool:
        """Whether one of these made the feed say a SESSION or a GAP."""
        said = False
        for data in datagrams:
            self.now_ns += 100 * US
            self.pipeline.accept(0, 0, data, self.now_ns, self.now_ns)
            said |= any(one.kind in (Kind.SESSION, Kind.GAP) for one in self.pipeline.take())
        return said

    def bring_slowly(self, *datagrams: bytes) -> None:
        """The same, 1 ms apart: 8 of these take 8 ms."""
        for data in datagrams:
            self.now_ns += 900 * US
            self.bring(data)

    def wait(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns
        self.pipeline.expire(self.now_ns)
        self.pipeline.take()

    def until(self, run: Iterable[bytes], between: Iterator[bytes] | None = None) -> int:
        """Datagrams of this run until it is believed; another one lies between each ten."""
        for number, data in enumerate(islice(run, NEVER), 1):
            if self.bring(data):
                return number
            if between is not None and number % 10 == 0:
                self.bring(next(between))
        return NEVER


def roq(numbers: Iterable[int], payload: bytes = b"as it was", session: int = 1) -> Iterator[bytes]:
    """One datagram for each number; no payload: heartbeats."""
    for number in numbers:
        yield datagram(number, payload and b"%s %d" % (payload, number), session_id=session)


def mixed(numbers: Iterable[int], same: int, session: int = 1) -> Iterator[bytes]:
    """Two datagrams with other bytes, then so many with the same, and others behind them."""
    for place, number in enumerate(numbers):
        payload = b"as it was" if 2 <= place < 2 + same else b"anew"
        yield from roq([number], payload, session)


def another_session(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(1, 4)))
    return feed.until(roq(count(1), session=2))


def reset(changed: Cell | None) -> int:
    feed = Feed(changed, framing="cme_mdp3", lines_snapshot=0)
    sent = (build("cme_mdp3", Sent(n, (b"old %d" % n,), (), 0, 10**18 + n)) for n in count(1))
    feed.bring(*islice(sent, 100))
    anew = (build("cme_mdp3", Sent(n, (b"new %d" % n,), (), 0, 10**19 // 8 + n)) for n in count(1))
    return feed.until(data[:16] + b"\x04\x00" + data[18:] for data in anew)


def started_again(changed: Cell | None) -> int:
    feed = Feed(changed, framing="iex_tp", lines_snapshot=0)

    def sent(first: int, at_ns: int, run: bytes) -> Iterator[bytes]:
        for n in count(first):
            yield build("iex_tp", Sent(n, (run + b" %d" % n,), (0x8004, 1), 7, at_ns + n))

    feed.bring(*islice(sent(1, 10**18, b"old"), 100))
    first = bytearray(next(sent(1, 11 * 10**17, b"new")))
    first[16:24] = bytes(8)
    return feed.until(iter([bytes(first), *islice(sent(2, 11 * 10**17, b"new"), 200)]))


def back(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(101, 201)))
    feed.wait(20 * MS)
    return feed.until(roq(count(1)))


def back_by_heartbeats(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(1, 201), b""))
    feed.wait(200 * MS)
    return feed.until(roq(range(1, 201), b""))


def back_at_once(changed: Cell | None) -> int:
    feed = Feed(changed, restart_datagrams=100)
    feed.bring(*roq(range(1, 201)))
    return feed.until(roq(range(1, 201), b"anew"))


def back_at_once_but_one(changed: Cell | None) -> int:
    feed = Feed(changed, restart_datagrams=100)
    feed.bring(*roq(range(2, 201)))
    return feed.until(roq(range(1, 201), b"anew"))


def back_too_soon(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring_slowly(*roq(range(101, 201)))
    return feed.until(roq(range(1, 91)))


def back_repeating(changed: Cell | None) -> int:
    feed = Feed(changed, restart_datagrams=34)
    feed.bring(*roq(range(1, 201)))
    feed.wait(20 * MS)
    return feed.until(mixed(range(1, 201), 32))


def back_repeating_more(changed: Cell | None) -> int:
    feed = Feed(changed, restart_datagrams=35)
    feed.bring(*roq(range(1, 201)))
    feed.wait(20 * MS)
    return feed.until(mixed(range(1, 201), 33))


def led_away(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(1, 201)), *roq(range(20_000, 20_002), b"forged"))
    feed.wait(20 * MS)
    return feed.until(roq(count(201)))


def led_away_too_soon(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring_slowly(*roq(range(1, 201)), *roq(range(20_000, 20_002), b"forged"))
    return feed.until(roq(count(201)))


def led_away_on_and_on(changed: Cell | None) -> int:
    feed = Feed(changed)
    forged = roq(count(20_000), b"forged")
    feed.bring(*roq(range(1, 201)), next(forged), next(forged))
    return feed.until(roq(count(201)), forged)


def previous(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(100_001, 100_201)))
    feed.wait(20 * MS)
    feed.bring(*roq(range(1, 65), b"anew"))
    feed.wait(200 * MS)
    return feed.until(roq(count(100_201)))


def ahead(changed: Cell | None) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(1, 4)))
    return feed.until(roq(count(20_000)))


def ended(changed: Cell | None, pause_ns: int = 200 * MS) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(1, 4)), *roq(range(1, 3), session=2))
    feed.wait(pause_ns)
    return feed.until(roq(count(4)))


def ended_at_once(changed: Cell | None) -> int:
    return ended(changed, 50 * MS)


def drawn(changed: Cell | None, pause_ns: int = 2 * SECOND) -> int:
    feed = Feed(changed)
    feed.bring(*roq(range(1_001, 1_101)), *roq(range(1, 3), session=2))
    feed.wait(pause_ns)
    return feed.until(roq(range(1, 400)))


def drawn_too_soon(changed: Cell | None) -> int:
    return drawn(changed, 500 * MS)


def drawn_at_once(changed: Cell | None) -> int:
    feed = Feed(changed, restart_datagrams=100)
    feed.bring(*roq(range(1, 201)), *roq(range(301, 304), session=2))
    return feed.until(roq(range(1, 201), b"anew"))


def drawn_at_once_but_one(changed: Cell | None) -> int:
    feed = Feed(changed, restart_datagrams=100)
    feed.bring(*roq(range(2, 201)), *roq(range(301, 304), session=2))
    return feed.until(roq(range(1, 201), b"anew"))


def drawn_repeating(changed: Cell | None, same: int = 32) -> int:
    feed = Feed(changed, restart_datagrams=2 + same)
    feed.bring(*roq(range(1, 201)), *roq(range(301, 304), session=2))
    feed.wait(2 * SECOND)
    return feed.until(mixed(range(1, 201), same))


def drawn_repeating_more(changed: Cell | None) -> int:
    return drawn_repeating(changed, 33)


Trial = Callable[[Cell | None], int]

#: Each trial, and how many datagrams it takes: as docs/protocol.md says.
TRIALS: dict[Trial, int] = {
    another_session: 2,
    reset: 2,
    started_again: 2,
    back: 32,
    back_by_heartbeats: 64,
    back_at_once: 64,
    back_at_once_but_one: 65,
    back_too_soon: 80,
    back_repeating: 34,
    back_repeating_more: 36,
    led_away: 32,
    led_away_too_soon: 90,
    led_away_on_and_on: 112,
    previous: 8,
    ahead: 2,
    ended: 8,
    ended_at_once: 112,
    drawn: 32,
    drawn_too_soon: NEVER,
    drawn_at_once: 64,
    drawn_at_once_but_one: 65,
    drawn_repeating: 34,
    drawn_repeating_more: 36,
}


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)
def test_run_is_believed_with_exactly_so_many_datagrams(trial: Trial) -> None:
    assert trial(None) == TRIALS[trial]


#: What the cells have that decide anything. Others say `never` or `any`, or are of a row whose
#: datagrams all tell something new.
CELLS = {
    (SESSION, "datagrams"): 2,
    (RESET, "datagrams"): 2,
    (START, "datagrams"): 2,
    (BACK, "datagrams"): 32,
    (BACK, "empty"): 64,
    (BACK, "contradict"): 64,
    (BACK, "repeats"): 16,
    (GAP, "datagrams"): 32,
    (GAP, "unquiet"): 112,
    (RESUMED, "datagrams"): 8,
    (AHEAD, "datagrams"): 2,
    (ENDED, "datagrams"): 8,
    (ENDED, "unquiet"): 112,
    (DRAWN, "datagrams"): 32,
    (DRAWN, "contradict"): 64,
    (DRAWN, "repeats"): 16,
}
QUIET = {
    BACK: (QUIET_NONE, QUIET_DEAD, QUIET_UNDERWAY),
    GAP: (QUIET_NONE, QUIET_DEAD, QUIET_UNDERWAY),
    RESUMED: (QUIET_UNDERWAY,),
    ENDED: (QUIET_NONE, QUIET_PACE, QUIET_UNDERWAY),
    DRAWN: (QUIET_NONE, QUIET_PACE, QUIET_DEAD),
}
MUTANTS = [
    *(Cell(row, column, value + by) for (row, column), value in CELLS.items() for by in (-1, 1)),
    *(Cell(row, "quiet", quiet) for row, kinds in QUIET.items() for quiet in kinds),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_changed_cell_is_found(mutant: Cell) -> None:
    assert any(trial(mutant) != needed for trial, needed in TRIALS.items())


def test_pipeline_refuses_a_cell_that_is_none() -> None:
    pipeline = FeedPipeline()
    with pytest.raises(ValueError, match="row must be from 0 to 8"):
        pipeline.set_proof(9, "datagrams", 1)
    with pytest.raises(ValueError, match="no column"):
        pipeline.set_proof(0, "colour", 1)
