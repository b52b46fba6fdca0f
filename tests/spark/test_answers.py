"""What a report says first, by rows whose answer is known."""

import datetime
from typing import Any

import pytest

from udpfast.spark.answers import answers
from udpfast.spark.probabilities import PROBABILITIES
from udpfast.spark.reasons import LOST, lost_by

HOUR = datetime.datetime(2026, 11, 23, 14, tzinfo=datetime.UTC)
LINES = {"x": [["microwave", "fibre"], ["slow"]]}


def said(lines: dict[str, list[list[str]]] = LINES, **tables: list[dict[str, Any]]) -> list[str]:
    """Return the answers, the bad ones marked."""
    return [f"{kind}! {text}" if kind else text for kind, text in answers(tables, lines)]


def losses(stream: int = 0, **counts: Any) -> dict[str, Any]:
    """Return a row of the losses of an hour."""
    names = ("messages", "gaps", "lost", "longest", "waited_ns_max", "stale", "recovered")
    reasons = map(lost_by, LOST)
    row = {"feed": "x", "stream": stream, "hour": HOUR}
    return row | dict.fromkeys((*names, *reasons), 0) | counts


def hop(name: str, value_ns: int, max_ns: int) -> dict[str, Any]:
    """Return a row of a hop that always takes the same."""
    values = {f"{each}_ns": value_ns for each in PROBABILITIES}
    return {"feed": "x", "hop": name, "count": 3, **values, "max_ns": max_ns}


def race(line: int, wins: int, share: float, alone: int, lead_ns: int | None) -> dict[str, Any]:
    """Return a row of a line's races."""
    row = {"feed": "x", "stream": 0, "line": line, "wins": wins, "win_rate": share}
    return row | {"only_copy": alone, "late": 0, "stamped": wins, "lead_p50_ns": lead_ns}


def test_nothing_lost_is_said_first() -> None:
    rows = [losses(messages=3000), losses(1, messages=5, lost=7, gaps=1)]
    assert said(losses=rows) == [
        "good! Nothing was lost: 3,000 messages arrived in order, each once.",
        "The snapshot channel lost 7 messages; it repeats every state regularly.",
    ]


def test_losses_say_why_how_long_and_when() -> None:
    first = losses(messages=900, lost=80, gaps=2, longest=60, waited_ns_max=5_000_000, stale=1)
    later = losses(messages=100, lost=20, gaps=1, longest=20, waited_ns_max=900, stale=4)
    rows = [
        first | {"lost_by_gap_time": 80},
        later | {"lost_by_gap_count": 20, "hour": HOUR + datetime.timedelta(hours=1)},
    ]
    assert said(losses=rows) == [
        "bad! 100 of 1,100 messages were lost (9.09%), in 3 gaps, because too many later messages "
        "arrived first (20) and they did not arrive in time on any line (80). The longest gap had "
        "60 messages. Messages after a gap waited 5 ms at most, and objects went stale 5 times.",
        "The worst hour began at 2026-11-23 14:00 UTC (incremental), with 80 lost messages.",
    ]


@pytest.mark.parametrize("reason", LOST)
def test_whatever_is_missing_is_said_and_nothing_is_green(reason: str) -> None:
    found = said(losses=[losses(messages=900, lost=1000, **{lost_by(reason): 1000})])
    assert "good!" not in "".join(found)
    assert found[0].startswith("bad! 1,000 ")
    assert f"because {LOST[reason]}" in found[0]


def test_messages_lost_without_a_gap_are_in_none() -> None:
    assert said(losses=[losses(messages=4, lost=4, lost_by_session_unseen=4)]) == [
        "bad! 4 of 8 messages were lost (50.0%), because they arrived before the feed believed the "
        "new session."
    ]


def test_records_that_nobody_counted_are_so_many_or_more() -> None:
    assert said(losses=[losses(65_535, lost=1, lost_by_lapped_unknown=1)]) == [
        "bad! 1 record or more that the feed published are missing here, because the feed began "
        "another log before the recorder had read all of the last one. The messages that they held "
        "are unknown."
    ]


def test_missing_records_stand_beside_lost_messages() -> None:
    rows = [
        losses(messages=90, lost=10, gaps=1, longest=10, lost_by_gap_anew=10),
        losses(65_535, lost=5000, lost_by_lapped_reader=5000),
    ]
    assert said(losses=rows) == [
        "bad! 10 of 100 messages were lost (10.0%), in 1 gap, because the publisher numbered anew "
        "before they came. The longest gap had 10 messages. Messages after a gap waited 0 ns at "
        "most, and objects went stale 0 times.",
        "bad! 5,000 records that the feed published are missing here, because the recorder was too "
        "slow and was lapped. The messages that they held are unknown.",
        "The worst hour began at 2026-11-23 14:00 UTC (all streams), with 5,000 lost messages.",
    ]


def test_doubt_about_the_end_is_said_and_nothing_is_green() -> None:
    found = list(answers({"losses": [losses(messages=9)]}, {}, doubts=["The end is unknown."]))
    assert found == [
        ("", "No record says that anything was lost: 9 messages arrived in order, each once."),
        ("bad", "The end is unknown."),
    ]
    assert list(answers({}, {}, doubts=["The end is unknown."])) == found[1:]  # of other jobs


def test_late_copies_are_no_worth_of_a_line() -> None:
    rows = [race(0, 95, 0.95, 4, 700) | {"late": 3}, race(1, 5, 0.05, 1, None) | {"late": 0}]
    assert said(races=rows)[0].endswith(
        "Without it, 4 would be missing (4.00%). It alone delivered 3 more, but their messages had "
        "been reported lost by then."
    )
    rows = [row | {"stamped": 0} for row in rows]
    assert "of the datagrams first by the loop's clock" in said(races=rows)[0]


def test_lines_are_worth_what_they_bring_sooner_and_alone() -> None:
    rows = [race(0, 900, 0.9, 10, 1_200_000), race(1, 100, 0.1, 5, -700)]
    assert said(races=rows) == [
        "x: microwave delivered 90.0% of the datagrams first, 1.2 ms ahead in the median. Without "
        "it, 10 would be missing (1.00%).",
        "x: fibre delivered 10.0% of the datagrams first. Without it, 5 would be missing (0.500%).",
    ]
    assert said({}, races=rows)[0].startswith("x: line 0 delivered 90.0%")
    assert said(races=[rows[0]]) == []  # nobody to race with


def test_clocks_that_differ_are_said_and_no_latency() -> None:
    hour_ns = 3_600_000_000_000
    rows = [
        hop("exchange_to_kernel", hour_ns, hour_ns),
        hop("origin_to_kernel", -2_000_000, 10),
        hop("kernel_to_published", 7_200, 51_053_000),
        hop("of_a_replay", 0, 0),
    ]
    assert said(hops=rows) == [
        "exchange to this host: not drawn, because the stamps are an hour or more behind this "
        "host's clock. The market is a replay, or a clock is wrong.",
        "publisher to this host: not drawn, because the stamps are 2 ms ahead of this host's clock "
        "in the median. One of the clocks is wrong.",
        "kernel to ring: median 7.2 us, p99 7.2 us, maximum 51.1 ms.",
    ]


def test_lead_of_a_pair_is_said_with_who_is_first() -> None:
    def pair(a: str, lag_ms: int, correlation: float | None) -> dict[str, Any]:
        return {"feed": "x", "a": a, "b": "B", "lag_ms": lag_ms, "correlation": correlation}

    rows = [pair("A", 0, 0.3), pair("A", -100, 0.8), pair("C", 0, 0.5), pair("C", 100, None)]
    assert said(leadlag=rows) == [
        "A moves 100 ms after B: the strongest correlation of all pairs (0.80)."
    ]
    assert said(leadlag=[pair("A", 200, 0.4)])[0].startswith("B moves 200 ms after A")
    assert said(leadlag=[pair("A", 0, -0.4)]) == [
        "B moves together with A, the other way: the strongest correlation of all pairs (-0.40)."
    ]
    assert said(leadlag=[pair("A", 0, 0.1)]) == []
