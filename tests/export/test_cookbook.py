"""The programs of the cookbook, run unchanged on a known journal."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.market import BEGIN_NS, STEP_NS, Market, record
from tests.shared import ROOT
from udpfast.core.layout import CONTROL_DTYPES, Kind, RecordFlag, SessionReason

PAGE = (ROOT / "docs" / "cookbook.md").read_text()
#: Number of records, one per millisecond; where a loss puts the book in doubt, and until where.
COUNT, LOST, FOUND = 5000, 1005, 1505


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the journal of one instrument: its book, trades, a loss, and a doubt before it."""
    folder = tmp_path_factory.mktemp("cookbook")
    market = Market(folder / "feed", 1 << 22)
    levels = [{"price": 99.0, "quantity": 6.0}, {"price": 101.0, "quantity": 2.0}]
    of_book = {"object": 3 << 16 | 7}

    def tell_book(update_type: int, flags: int) -> None:
        market.tell(
            Kind.BOOK, levels, "A", {**of_book, "flags": flags}, bid_count=1, ask_count=1,
            present=6, update_type=update_type,
        )  # fmt: skip

    def say_state(kind: Kind) -> None:
        state = np.zeros((), CONTROL_DTYPES[kind])
        state["object"], state["symbol_id"] = of_book["object"], market.names.intern("A")
        market.put(kind, state.tobytes(), **of_book)

    market.say(Kind.SESSION, new_id=1, reason=SessionReason.FIRST)
    say_state(Kind.RECOVERED)
    tell_book(1, int(RecordFlag.SNAPSHOT))
    while market.number < COUNT:
        if market.number == LOST:
            market.say(Kind.GAP, first=5, last=7, count=3, reason=2, waited_ns=10**6)
            say_state(Kind.STALE)
        elif market.number == FOUND:
            say_state(Kind.RECOVERED)
            tell_book(1, int(RecordFlag.SNAPSHOT))
        elif market.number % 10 == 0:
            market.tell(Kind.TRADES, [{"price": 100.0 + market.number % 7, "quantity": 2.0}], "A")
        elif LOST < market.number < FOUND:
            market.put(Kind.MESSAGE, b"")
        else:
            tell_book(2, 0)
    record(market, folder / "journal")
    market.close()
    return folder / "journal"


def program_of(title: str) -> str:
    """Return the program of a section."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(program)


def run(title: str, journal: Path) -> dict[str, Any]:
    """Return the global names of a section's program after it has run."""
    names: dict[str, Any] = {}
    exec(program_of(title).replace("journal:tutorial", f"journal:{journal}"), names)
    return names


def test_live_program_ends_although_the_feed_goes_on(tmp_path: Path) -> None:
    market = Market(tmp_path / "feed", 1 << 20)
    market.say(Kind.SESSION, new_id=1, reason=SessionReason.FIRST)
    program = program_of("Live, for some seconds").replace("SECONDS = 20", "SECONDS = 0.5")
    names: dict[str, Any] = {}
    address = f'"ring:{tmp_path}/feed", start="oldest"'
    exec(program.replace('"ring:tutorial", image=True', address), names)
    market.close()
    assert names["records"] == 1


def test_spread_and_imbalance_are_of_sound_books_alone(journal: Path) -> None:
    rows = run("Spread and imbalance", journal)["rows"]
    assert {(symbol, spread, imbalance) for symbol, _, spread, imbalance in rows} == {
        ("A", 2.0, 0.5)
    }
    numbers = [(at_ns - BEGIN_NS) // STEP_NS for _, at_ns, *_ in rows]
    assert not [number for number in numbers if LOST < number <= FOUND]
    assert len(rows) > 3000


def test_bars_hold_every_trade(journal: Path) -> None:
    bars = run("Bars", journal)["bars"]
    assert len(bars) > 2
    assert sum(volume for *_, volume in bars.values()) == 2.0 * (COUNT // 10 - 1)
    assert all(low <= opened <= high and low <= last <= high and high - low == 6.0
               for opened, high, low, last, _ in list(bars.values())[1:-1])  # fmt: skip


def test_bars_in_polars_are_those_of_the_loop(journal: Path) -> None:
    pytest.importorskip("polars")
    found = {
        (symbol, second.timestamp()): tuple(bar)
        for _, symbol, second, *bar in run("Bars in polars", journal)["bars"].rows()
    }
    assert found == run("Bars", journal)["bars"]


def test_backtest_pays_the_spread_for_each_lot(journal: Path) -> None:
    # Each lot takes a second and two updates; the book is in doubt for half a second.
    assert run("A backtest", journal)["profit"] in (-6.0, -8.0)


def test_backtest_waits_for_both_sides_of_a_whole_event(tmp_path: Path) -> None:
    market = Market(tmp_path / "feed", 1 << 22)
    market.say(Kind.SESSION, new_id=1, reason=SessionReason.FIRST)
    state = np.zeros((), CONTROL_DTYPES[Kind.RECOVERED])
    state["object"], state["symbol_id"] = 3 << 16 | 7, market.names.intern("A")
    market.put(Kind.RECOVERED, state.tobytes(), object=3 << 16 | 7)
    bid, ask = {"price": 99.0, "quantity": 6.0}, {"price": 101.0, "quantity": 2.0}
    dear = {"price": 100.0, "quantity": 1.0}

    def tell_book(*levels: dict[str, float], bids: int, partial: bool = False) -> None:
        market.tell(
            Kind.BOOK, list(levels), "A", {"object": 3 << 16 | 7, "flags": 1}, bid_count=bids,
            ask_count=len(levels) - bids, present=22 if partial else 6, update_type=1,
        )  # fmt: skip

    tell_book(bid, ask, bids=1)  # the signal
    tell_book(bid, bids=1)  # no ask
    tell_book(bid, dear, bids=1, partial=True)
    while market.number < 2500:
        tell_book(bid, ask, bids=1)
    tell_book(ask, bids=0)  # no bid where the exit may be due
    record(market, tmp_path / "journal")
    market.close()
    names = run("A backtest", tmp_path / "journal")
    assert names["profit"] in (-2.0, -4.0)


def test_time_in_doubt_is_that_between_stale_and_recovered(journal: Path) -> None:
    (doubted,) = run("How long a book was in doubt", journal)["doubted"].values()
    assert doubted == pytest.approx((FOUND - LOST) * STEP_NS, abs=3 * STEP_NS)


def test_losses_are_those_of_the_gaps(journal: Path) -> None:
    (gap,) = run("What a loss cost", journal)["gaps"]
    assert (gap.data["first"], gap.data["count"]) == (5, 3)


def test_latency_is_from_receipt_to_ring(journal: Path) -> None:
    names = run("Latency, in numpy", journal)
    assert names["p50"] == names["p99"] == 5_678 - 1_234
