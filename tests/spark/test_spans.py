"""Order books of the jobs beside those that a reader's `Books` holds at the same time."""

import datetime
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.spark.book_market import BEGIN_NS, STEP_NS, Known, known_at, make
from udpfast.export.exporter import Exporter
from udpfast.export.schema import arrow_schema
from udpfast.spark.answers import answers
from udpfast.spark.bronze import POSITIONS, Bronze
from udpfast.spark.jobs import JOBS, Parameters
from udpfast.spark.spans import Book, Era, Span, eras_of, judge

#: For Roq's streams, and (the last two) for a venue's.
SEEDS = (*range(20_261_125, 20_261_128), 20_261_131, 20_261_132)
EVENTS = 90
#: In the middle, while a first and a second journal are written, and at the end.
TIMES = (pytest.param(BEGIN_NS + 70 * STEP_NS, marks=pytest.mark.nightly), None)


@pytest.fixture(scope="module")
def markets(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Path]], list[Path]]:
    """Return journals by feed, some feeds with a second one, and two exports of them."""
    work = tmp_path_factory.mktemp("markets")
    journals: dict[str, list[Path]] = {}
    roots = [work / "first", work / "second"]
    for seed in SEEDS:
        feed = f"f{seed}"
        own = [make(work / f"{seed}", feed, seed, EVENTS)]
        if seed % 2:
            begin_ns = BEGIN_NS + EVENTS * 2 // 3 * STEP_NS
            own.append(make(work / f"{seed}-2", feed, seed + 1_000_000, EVENTS // 2, begin_ns))
        for journal, root in zip(own, roots, strict=False):
            list(Exporter(journal, root, feed=feed).run())
        journals[feed] = own
    return journals, roots


def expected(journals: dict[str, list[Path]], at_ns: int | None) -> Known:
    """Return what a reader knows of each feed: nothing that an earlier journal said."""
    found: Known = {}
    for feed, own in journals.items():
        for journal in reversed(own):
            known, count = known_at(journal, feed, at_ns or 1 << 62)
            if count:
                found |= known
                break
    return found


def rows_of(bronze: Bronze, name: str, at_ns: int | None) -> list[dict[str, Any]]:
    """Return the rows of a job."""
    job, parameters = JOBS[name], Parameters(at_ns=at_ns)
    table = job.finish(job.reduce(bronze, parameters), bronze, parameters)
    return [row.asDict() for row in table.collect()]


@pytest.mark.parametrize("at_ns", TIMES)
def test_books_are_those_of_a_reader_in_doubt_or_not(
    spark: Any, markets: tuple[dict[str, list[Path]], list[Path]], at_ns: int | None
) -> None:
    journals, roots = markets
    # From whatever time records are wanted: a book is made of all records before.
    start_ns = BEGIN_NS + 38 * STEP_NS
    bronze = Bronze(spark, tuple(map(str, roots)), start_ns=start_ns, found={})
    levels: dict[Any, tuple[list, list]] = defaultdict(lambda: ([], []))
    for row in sorted(rows_of(bronze, "book", at_ns), key=lambda row: row["level"]):
        key = (row["feed"], row["exchange"], row["symbol"], row["object"])
        levels[key][row["side"] == "Ask"].append((row["price"], row["quantity"]))
    found: dict[Any, list[Any]] = defaultdict(list)
    for row in rows_of(bronze, "depth", at_ns):
        key = (row["feed"], row["exchange"], row["symbol"])
        assert row["stale"] == (row["stale_since_ns"] is not None)
        bids, asks = levels[*key, row["object"]]
        assert (row["bid_levels"], row["ask_levels"]) == (len(bids), len(asks))
        found[key].append((row["stale"], bids, asks))
    known = expected(journals, at_ns)
    assert found.keys() <= known.keys()
    assert any(stale for stale, *_ in known.values()) and not all(
        stale for stale, *_ in known.values()
    )
    for key, book in known.items():
        if len(found[key]) > 1:  # several objects go by this name: nobody knows which one it is
            assert book[0] and all(stale for stale, *_ in found[key]), key
        else:
            # What a session before held is not known, and nothing says it.
            assert found[key] == [book] or (book == (True, [], []) and not found[key]), key


def test_tables_say_snapshot_where_books_replace(
    markets: tuple[dict[str, list[Path]], list[Path]],
) -> None:
    schema = arrow_schema("messages", partitions=True)
    table = ds.dataset(markets[1][0] / "messages", schema, partitioning="hive").to_table()
    rows = [row for row in table.to_pylist() if row["kind"] == "BOOK"]
    by_type = [row for row in rows if row["update_type"] == "Snapshot" and row["flags"] & 1 == 0]
    assert by_type  # in the incremental channel, too
    for row in rows:
        assert row["snapshot"] == bool(row["flags"] & 1 or row["update_type"] == "Snapshot")


# --- the rules, without Spark ---------------------------------------------------------------------


def session(place: int = 0, **more: Any) -> dict[str, Any]:
    """Return what is known of one session."""
    row = dict.fromkeys(("begun", "restarted", "first", "last"))
    return {"feed": "x", "stream": 0, "place": place, **row, **more}


def test_era_begins_with_the_last_session_restart_or_journal() -> None:
    first = session(begun=0, first=8, last=80)
    assert eras_of([first]) == {("x", 0): Era(0, True)}
    restart = session(restarted=100)
    assert eras_of([first, restart]) == {("x", 0): Era(100, False)}
    # Its SESSION is missing: the first update tells.
    unsaid = session(first=90, last=120)
    assert eras_of([first, unsaid]) == {("x", 0): Era(90, False)}
    other = session(place=1, first=POSITIONS + 5, last=POSITIONS + 9)
    assert eras_of([first, other]) == {("x", 0): Era(POSITIONS, False)}
    # What begins in one stream is no concern of another, but for a restart.
    streams = [session(stream=2, begun=10), session(stream=3, begun=200)]
    assert eras_of([*streams, restart]) == {
        ("x", 0): Era(100, False), ("x", 2): Era(100, False), ("x", 3): Era(200, True),
    }  # fmt: skip


def book(**more: Any) -> Book:
    """Return a book that the feed was sure of, of one snapshot."""
    own = dict.fromkeys(("begun", "recovered", "said", "heard", "replaced", "newest"))
    own |= {"begun": (10, 1), "recovered": (10, 1), "newest": (20, 2)}
    own |= {name: more.pop(name) for name in list(more) if name in own}
    facts = {"seen": (20, 2), "last": (20, 2), "snapshot": (20, 2), "first": None} | more
    return Book(own, **facts)


def test_doubt_begins_with_what_caused_it() -> None:
    era = Era(0, True)
    assert judge(book(), era, False) == Span((20, 2), None, ())
    assert judge(book(ended=(30, 3)), era, False) == Span((20, 2), (30, 3), ((30, 3),))
    assert judge(book(snapshot=None), era, False) == Span(None, None, ((20, 2),))
    assert judge(book(said=(40, 4)), era, False).doubts == ((40, 4),)
    gap = Era(0, True, gaps=[(15, 1), (50, 5), (60, 6)])
    assert judge(book(), gap, False).doubts == ((15, 1),)
    assert judge(book(recovered=(55, 5)), gap, False).doubts == ((60, 6),)
    assert judge(book(recovered=(70, 7)), gap, False).doubts == ()
    lap = Era(0, True, laps=[(30, 3)])
    assert judge(book(), lap, False) == Span((20, 2), (30, 3), ((30, 3), (30, 3)))
    again = book(snapshot=(40, 4), heard=(40, 4))
    assert judge(again, lap, False) == Span((40, 4), None, ())


def test_feed_or_snapshot_ends_the_doubt_of_a_book_without_a_gate() -> None:
    gap = Era(0, True, gaps=[(30, 3), (50, 5)])
    facts = {"replaced": (20, 2), "recovered": None}
    assert judge(book(**facts), gap, True).doubts == ((30, 3),)
    assert judge(book(**facts | {"recovered": (55, 5)}), gap, True).doubts == ()
    assert judge(book(**facts, said=(60, 6)), gap, True).doubts == ((60, 6), (30, 3))
    again = book(replaced=(70, 7), snapshot=(70, 7), said=(60, 6))
    assert judge(again, gap, True).doubts == ()


def test_book_that_its_object_left_has_no_levels_until_a_snapshot() -> None:
    era = Era(0, True)
    left = {"ended": (30, 3), "left": (30, 3)}
    assert judge(book(**left), era, False) == Span(None, (30, 3), ((30, 3),))
    assert judge(book(**left, last=(40, 4)), era, False).begin is None
    assert judge(book(ended=(30, 3)), era, False).begin == (20, 2)


def test_update_with_nothing_before_it_is_all_there_is_if_that_can_be_known() -> None:
    only = {"snapshot": None, "first": (20, 2)}
    assert judge(book(**only), Era(0, True), False) == Span((20, 2), None, ())
    assert judge(book(**only), Era(0, False), False).begin is None
    assert judge(book(**only, before=(15, 1)), Era(0, True), False).begin is None
    assert judge(book(**only), Era(0, True, laps=[(5, 0)]), False).begin is None


def test_books_in_doubt_are_named_with_the_time() -> None:
    at = datetime.datetime(2026, 11, 25, 9, 30, tzinfo=datetime.UTC)
    since_ns = int(at.timestamp()) * 1_000_000_000
    rows = [
        {"exchange": "cme", "symbol": "ES", "stale": True, "stale_since_ns": since_ns},
        {"exchange": "cme", "symbol": "NQ", "stale": False, "stale_since_ns": None},
    ]
    assert list(answers({"depth": rows}, {})) == [
        (
            "",
            "1 of 2 books is in doubt, and shown as last known: "
            "cme:ES since 2026-11-25 09:30:00 UTC.",
        )
    ]
