"""The program that judges a relay's far end by its position, in small, and that it finds faults."""

from collections import Counter
from pathlib import Path

import pytest

from lab.relaychain import FAR, Judge, Plan, Truth, run
from tests.cases import nightly
from tests.export.market import Market
from udpfast.core.layout import Kind, RecordFlag
from udpfast.net.bad_network import LineFaults

NAME = ("binance-usdm", "A")
SNAPSHOT = {"flags": int(RecordFlag.SNAPSHOT)}
LAGS_NS = (2_000_000, 20_000_000)
LOSSY = {
    (channel, line): LineFaults(loss=0.02, burst_mean=4.0 * line, delay_ns=LAGS_NS[line])
    for channel in range(2)
    for line in range(2)
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        Plan("roq", turns=150, levels=300, faults=LOSSY, relay_after=200, kills=1, restarts=True),
        *nightly(
            Plan("roq", turns=150, faults=LOSSY, bits_per_s=200_000, image=False),
            Plan("itch", turns=150, near_loss=0.0, faults=LOSSY | {(0, 0): LineFaults(loss=1.0)}),
            Plan("cme", turns=150, faults=LOSSY | {(1, 1): LineFaults(loss=1.0)}, far_after=450),
        ),
    ],
    ids=["late and killed", "thin", "one line", "late far end"],
)
def test_sound_book_there_is_what_the_market_was_at_its_number(plan: Plan) -> None:
    found = run(plan, 1)
    assert found["far compared"] > 20
    assert found["lost by the relay's lines"]
    assert bool(found["relay conflated"]) == bool(plan.bits_per_s)


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    return Market(tmp_path / FAR, 1 << 20)


def judged(market: Market, truth: Truth, *books: tuple[int, float]) -> Counter[str]:
    """Let a judge read books of one level: their number, and its quantity."""
    for number, quantity in books:
        levels = [{"price": 1.0, "quantity": quantity}]
        market.tell(
            Kind.BOOK, levels, "A", SNAPSHOT, bid_count=1, ask_count=0, exchange_sequence=number
        )
    market.ring.flush()
    found: Counter[str] = Counter()
    judge = Judge(FAR, "roq", truth, found)
    try:
        judge.turn()
    finally:
        judge.close()
        market.close()
    return found


def truth_of(*quantities: float) -> Truth:
    truth = Truth()
    for number, quantity in enumerate(quantities, 1):
        truth.note(NAME, number, (frozenset([(1.0, quantity)]), frozenset()))
    return truth


def test_judge_believes_what_the_market_was(market: Market) -> None:
    found = judged(market, truth_of(5.0, 6.0), (1, 5.0), (2, 6.0), (3, 6.0))
    assert found["far compared"] == 3


@pytest.mark.parametrize(
    ("books", "said"),
    [
        ([(1, 5.0), (2, 5.0)], "sound behind BOOK"),
        ([(2, 6.0), (1, 5.0)], "was so at 2 before"),
        ([(0, 5.0)], "nothing was ever said of it"),
    ],
)
def test_judge_finds_what_the_market_was_not(
    market: Market, books: list[tuple[int, float]], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        judged(market, truth_of(5.0, 6.0), *books)
