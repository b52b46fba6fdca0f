"""From stamps to delays, loss, order and races: by hand, without a socket."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from udpfast.net.line import LineAddress
from udpfast.probe.control import Clock, Report
from udpfast.probe.measured import measured, reordered
from udpfast.probe.result import LineResult, Result, percentiles_of, runs_of
from udpfast.probe.text import result_text

START, UTC = 5_000_000_000, 1_700_000_000_000_000_000
COUNTS = {"sessions": 1} | dict.fromkeys(
    (*("unsent", "back_duplicates", "strangers", "malformed"), "kernel_drops",
     "nic_stamps"), 0,
)  # fmt: skip
REPORT = Report("kernel", 9, 8, 1, 2, 0, 0, 0, 0, 0)
SAME = Clock("this host")


def samples(out_ns: list[int | None], back_ns: list[int | None]) -> dict[str, Any]:
    """Return what a sender's loop keeps of probes 1 ms apart; None: lost."""
    count = len(out_ns)
    found = {
        name: np.zeros(count, np.int64)
        for name in ("departed_ns", "reached_ns", "turned_ns", "returned_ns", "back_ns")
    }
    found["sent_ns"] = START + np.arange(count) * 1_000_000 + 100
    found["out_order"] = found["back_order"] = np.zeros(count, np.uint32)
    for index, (out, back) in enumerate(zip(out_ns, back_ns, strict=True)):
        if out is not None and back is not None:
            sent = int(found["sent_ns"][index])
            found["reached_ns"][index] = UTC + sent + out
            found["turned_ns"][index] = UTC + sent + out + 50
            found["returned_ns"][index] = sent + out + 50 + back
            found["back_ns"][index] = UTC + sent + out + 50 + back
    return found


def result(
    lines: dict[str, tuple[list[int | None], list[int | None]]],
    *,
    report: Report | None = REPORT,
    starts: tuple[int, ...] = (),
    before: tuple[Report, ...] = (),
    sessions: int = 1,
    refusals: Mapping[str, int] = MappingProxyType({}),
    **more: Any,
) -> Result:
    count = len(next(iter(lines.values()))[0])
    return measured(
        [
            (
                name,
                LineAddress("10.0.0.1:7007"),
                samples(out, back),
                report,
                # What the last listener had; the ones before it cannot be asked.
                np.array(
                    [
                        each is not None and at >= max((report.began, *starts))
                        for at, each in enumerate(out)
                    ],
                    dtype=np.bool_,
                )
                if report is not None
                else None,
                "kernel",
                COUNTS | {"sessions": sessions} | {"unsent": sum(refusals.values())},
                refusals,
                starts,
                before,
            )
            for name, (out, back) in lines.items()
        ],
        due_ns=np.arange(count, dtype=np.int64) * 1_000_000,
        start_ns=START,
        utc_offset_ns=UTC,
        **{
            "rate_per_s": 1000.0,
            "size_bytes": 64,
            "train": 1,
            "complete": True,
            "listener_starts": 1,
            "here": SAME,
            "there": SAME,
            **more,
        },
    )


def test_delays_are_those_of_the_stamps() -> None:
    line = result({"a": ([1000, None, 3000], [2000, 2000, None])}).lines["a"]
    assert line.late_ns.tolist() == [100, 100, 100]
    assert line.out_ns[0] == 1000
    assert line.back_ns[0] == 2000
    assert line.turn_ns[0] == 50
    assert line.round_trip_ns[0] == 100 + 1000 + 50 + 2000
    assert np.isnan(line.round_trip_ns[1:]).all()


def test_loss_there_and_back_are_told_apart() -> None:
    line = result({"a": ([1000, None, 3000, None, None], [2000, 1, None, 1, 1])}).lines["a"]
    assert line.lost.tolist() == [False, True, False, True, True]
    assert line.lost_back.tolist() == [False, False, True, False, False]
    assert line.runs.tolist() == [1, 2]
    assert line.loss == 0.6
    assert line.loss_back == 0.5
    assert line.counts["out_duplicates"] == 1
    assert line.counts["out_reordered"] == 2


#: Two probes come back, the third's echo is lost, the listener dies; the next one is greeted when
#: seven have left, has the ninth first, and loses the eleventh, and the twelfth's echo.
RESTART: tuple[list[int | None], list[int | None]] = (
    [1, 1, 1, 1, *[None] * 4, 1, 1, None, 1],
    [1, 1, None, 1, *[1] * 6, 1, None],
)


def verdicts(line: LineResult) -> dict[str, list[int]]:
    """Return the numbers of the probes of each verdict; every probe that was sent has one."""
    assert line.returned is not None
    assert line.lost_back is not None
    found = {
        "returned": line.returned,
        "lost_back": line.lost_back,
        "lost": line.lost,
        "away": line.away,
    }
    assert (np.sum(list(found.values()), axis=0) == line.sent).all()
    return {name: np.flatnonzero(each).tolist() for name, each in found.items()}


def test_listener_that_was_away_is_no_loss_of_the_line() -> None:
    found = result(
        {"a": RESTART},
        starts=(6,),
        report=msgspec.structs.replace(REPORT, began=7),
        listener_starts=2,
    )
    line = found.lines["a"]
    assert verdicts(line) == {
        "returned": [0, 1, 3, 8, 9],
        "lost_back": [11],
        "lost": [2, 10],
        "away": [4, 5, 6, 7],
    }
    # Whether the third arrived, only the first listener could say.
    assert np.flatnonzero(line.lost_either).tolist() == [2]
    assert line.loss == 2 / 8
    assert line.runs.tolist() == [1, 1]
    assert np.flatnonzero(found.lost_on_all).tolist() == [2, 10]
    told = found.to_dict()
    own = told["lines"]["a"]
    assert own["sent"] == own["arrived"] + own["lost_out"] + own["away"]
    assert own["arrived"] == own["returned"] + own["lost_back"]
    assert (own["away"], own["lost_either"]) == (4, 1)
    assert told["all_lines"]["away"] == 4
    text = result_text(found)
    assert "started anew 1 time meanwhile" in text
    assert "listener away: a 4 probes," in text
    assert "marked ?: a 1 probe lost" in text
    assert len(told["caveats"]) == 3
    assert "\n".join(told["caveats"]) in text


def test_listener_that_was_away_on_one_line_loses_no_race() -> None:
    whole: list[int | None] = [5] * 12
    other = result({"b": (whole, whole)}).lines["b"]
    ours = result({"a": RESTART}, starts=(6,), report=msgspec.structs.replace(REPORT, began=7))
    found = replace(ours, lines=ours.lines | {"b": other})
    race = found.races[0]
    # Nobody knows whether the third came by both, nor which line was first with the last.
    assert (race.only_first, race.only_second, race.neither, race.away) == (0, 1, 0, 4)
    assert race.unmeasured == 2
    assert not found.lost_on_all.any()
    # Nor would a feed over both be as late as b, had a had a listener all the time.
    assert np.flatnonzero(np.isfinite(found.first_out_ns)).tolist() == [0, 1, 3, 8, 9, 10]
    told = found.to_dict()["all_lines"]
    assert (told["out_ns"]["count"], told["unmeasured"], told["away"]) == (6, 2, 4)
    says = "first of all leaves out: unmeasured 2, listener away 4"
    assert f"\n{says}\n" in result_text(found)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    page = page_of(found)
    assert f"<p>{says.capitalize()}.</p>" in page
    away = "not in the loss, races and first of all, though the line may have lost some of them"
    assert away in result_text(found)
    assert away in page


def test_line_that_the_listener_heard_late_is_not_lost_before() -> None:
    heard: list[int | None] = [None, None, None, 1, 1]
    line = result({"a": (heard, [1] * 5)}, report=msgspec.structs.replace(REPORT, began=2)).lines[
        "a"
    ]
    assert verdicts(line) == {"returned": [3, 4], "lost_back": [], "lost": [], "away": [0, 1, 2]}


#: What a listener counts and a sender cannot.
TOLD = ("out_duplicates", "out_reordered", "listener_unsent", "listener_kernel_drops")


@pytest.mark.parametrize(
    "more",
    [
        {"starts": (0, 6), "report": msgspec.structs.replace(REPORT, began=7)},
        # One that gave up and began again.
        {"report": msgspec.structs.replace(REPORT, began=7), "sessions": 2},
        {"report": None},  # one that died
    ],
)
def test_what_not_every_listener_has_told_is_unknown(more: dict[str, Any]) -> None:
    found = result({"a": RESTART}, **more)
    own = found.to_dict()["lines"]["a"]
    assert [own[name] for name in TOLD] == [None] * len(TOLD)
    (row,) = [line for line in result_text(found).splitlines() if re.match(r"a +12 ", line)]
    assert re.search(r" - +- +\d+$", row)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    assert page_of(found).count('<td class="n">-</td>') == 2


def test_what_every_listener_has_told_is_added_up() -> None:
    before = Report("kernel", 3, 3, 4, 5, 6, 0, 0, 7, 0)
    report = msgspec.structs.replace(REPORT, began=7)
    more: dict[str, Any] = {"starts": (0, 6), "before": (before,), "sessions": 2}
    own = result({"a": RESTART}, report=report, **more).to_dict()["lines"]["a"]
    assert [own[name] for name in TOLD] == [5, 7, 6, 7]
    # Nor is the last one asked, if nobody followed it.
    own = result({"a": RESTART}, report=None, starts=(0,), before=(before,)).to_dict()["lines"]["a"]
    assert [own[name] for name in TOLD] == [4, 5, 6, 7]


def test_what_the_only_listener_has_told_is_known_though_it_heard_the_line_late() -> None:
    heard: list[int | None] = [None, None, None, 1, 1]
    report = msgspec.structs.replace(REPORT, began=2)
    own = result({"a": (heard, [1] * 5)}, starts=(2,), report=report).to_dict()["lines"]["a"]
    assert (own["out_duplicates"], own["out_reordered"]) == (1, 2)


def test_line_that_was_cut_until_the_listener_gave_up_is_lost() -> None:
    cut: list[int | None] = [1, None, None, None, None, 1]
    line = result({"a": (cut, [1] * 6)}, report=msgspec.structs.replace(REPORT, began=3)).lines["a"]
    assert verdicts(line)["lost"] == [1, 2]
    assert verdicts(line)["away"] == [3, 4]
    assert np.flatnonzero(line.lost_either).tolist() == [1, 2]


def test_several_listeners_that_were_away_leave_a_hole_each() -> None:
    out: list[int | None] = [1, None, 1, None, None, 1]
    found = result(
        {"a": (out, [1] * 6)}, starts=(1, 4), report=msgspec.structs.replace(REPORT, began=4)
    )
    assert verdicts(found.lines["a"])["away"] == [1, 3, 4]


def test_listener_that_never_came_back_is_named() -> None:
    out: list[int | None] = [1, None, 1, None, None, None]
    found = result({"a": (out, [1] * 6), "b": ([1, None, *[None] * 4], [1] * 6)}, report=None)
    says = "nothing was heard from the listener after the first 3 probes"
    assert says in result_text(found)
    # One that answered at the end was there; one whose last echo came was, too.
    assert "nothing was heard" not in result_text(result({"a": (out, [1] * 6)}))
    assert "nothing was heard" not in result_text(result({"a": ([1, 1], [1, 1])}, report=None))


def test_loss_is_of_either_way_where_no_listener_could_be_asked() -> None:
    line = result({"a": ([1, None, 1], [1, 1, None])}, report=None).lines["a"]
    assert np.flatnonzero(line.lost_either).tolist() == [1, 2]
    assert verdicts(line)["lost"] == [1, 2]
    assert "of 3 sent 2 ? lost on the way out, 0 on the way back" in repr(line)


def test_share_of_loss_has_both_ends_where_no_listener_could_be_asked() -> None:
    # Another listener, which was asked, had the last four: of the first four, two may be lost back.
    ways: tuple[list[int | None], list[int | None]] = (
        [1, None, 1, 1, 1, None, 1, 1], [1, 1, None, 1, 1, 1, 1, 1])  # fmt: skip
    found = result({"a": ways}, starts=(4,))
    line = found.lines["a"]
    assert (int(line.lost.sum()), int(line.lost_either.sum())) == (3, 2)
    told = found.to_dict()["lines"]["a"]
    assert (told["loss_out_least"], told["loss_out"]) == (1 / 8, 3 / 8)
    assert "12.500% to 37.500%" in result_text(found)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    assert "12.5000% to 37.5000%" in page_of(found)
    sure = result({"a": ways}).to_dict()["lines"]["a"]
    assert sure["loss_out_least"] == sure["loss_out"] == 2 / 8


def test_probe_that_may_have_come_before_the_next_listener_was_ready_is_marked() -> None:
    # A delayed one is the first that it has: the next three, if on time, came before that.
    out: list[int | None] = [1000, 1000, None, None, 3_500_000, *[None] * 4, 1000]
    report = msgspec.structs.replace(REPORT, began=4)
    found = result({"a": (out, [1] * 10)}, starts=(4,), report=report)
    line = found.lines["a"]
    assert verdicts(line)["lost"] == [5, 6, 7, 8]
    assert np.flatnonzero(line.lost_either).tolist() == [5, 6, 7]
    # One that was there from the start is asked about all of them.
    assert not result({"a": (out, [1] * 10)}).lines["a"].lost_either.any()


def test_probes_that_were_not_sent_are_named_with_the_reason() -> None:
    refusals = {"Network is unreachable": 2, "No buffer space available": 1}
    found = result({"a": ([1] * 4, [1] * 4)}, refusals=refusals)
    said = (
        "not sent: 3 probes of a, which the sender's own kernel refused (Network is unreachable 2, "
        "No buffer space available 1); not in its loss"
    )
    assert found.caveats() == [said]
    assert said in result_text(found)
    told = found.to_dict()["lines"]["a"]
    assert (told["unsent"], told["unsent_reasons"]) == (3, refusals)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    assert "refused (Network is unreachable 2, No buffer space available 1)" in page_of(found)


def test_races_do_not_depend_on_clocks() -> None:
    out: list[int | None] = [1000, 5000, None, 1000]
    fibre: list[int | None] = [4000, 4000, 4000, None]
    back: list[int | None] = [1000] * 4
    near = result({"microwave": (out, back), "fibre": (fibre, back)})
    far = result({"microwave": (out, back), "fibre": (fibre, back)}, there=Clock("another"))
    for found in (near, far):
        race = found.races[0]
        assert (race.way, race.only_first, race.only_second, race.neither) == ("out", 1, 1, 0)
        np.testing.assert_allclose(race.lead_ns, [3000, -1000, np.nan, np.nan], atol=0.1)
    assert near.first_out_ns.tolist() == [1000, 4000, 4000, 1000]
    assert not near.lost_on_all.any()


def test_probe_whose_echo_was_lost_has_no_way_out_and_is_counted_as_such() -> None:
    out: list[int | None] = [1000, 1000, None, 1000, None]
    back: list[int | None] = [5, None, 5, 5, 5]
    fibre: list[int | None] = [3000, 3000, 3000, None, None]
    found = result({"microwave": (out, back), "fibre": (fibre, [5] * 5)})
    line, race = found.lines["microwave"], found.races[0].to_dict()
    assert line.percentiles("out")["count"] + int(np.sum(line.lost_back)) == line.arrived.sum()
    # Nobody knows who was first with the second probe: it counts for neither, and is not forgotten.
    assert (race["won_first"], race["won_second"], race["unmeasured"]) == (1, 0, 1)
    kinds = ("won_first", "won_second", "tied", "only_first", "only_second", "neither")
    assert sum(race[kind] for kind in (*kinds, "unmeasured", "away")) == 5
    # Nor what a feed over both would have had.
    np.testing.assert_array_equal(found.first_out_ns, [1000, np.nan, 3000, 1000, np.nan])
    told = found.to_dict()["all_lines"]
    assert (told["out_ns"]["count"], told["unmeasured"], told["lost_out"]) == (3, 1, 1)
    assert "neither 1, unmeasured 1" in result_text(found)
    returning = found.races[1].to_dict()
    assert returning["unmeasured"] == 0


def test_probe_that_may_have_arrived_is_unmeasured_and_no_race_is_won_by_it() -> None:
    # The first listener cannot be asked about the second to fourth, the next can about the last.
    out: list[int | None] = [1, None, 1, None, 1, 1, None]
    fibre: list[int | None] = [2, 2, None, None, 2, 2, 2]
    found = result(
        {"microwave": (out, [5] * 7), "fibre": (fibre, [5] * 7)},
        starts=(5,),
        report=msgspec.structs.replace(REPORT, began=5),
        listener_starts=2,
    )
    ways = [
        (race.only_first, race.only_second, race.neither, race.unmeasured) for race in found.races
    ]
    assert ways == [(0, 1, 0, 3), (1, 2, 1, 0)]
    for race, rest in zip(found.races, ways, strict=True):
        assert np.isfinite(race.lead_ns).sum() + sum(rest) == 7
    # What no line is known to have brought has its mark already, as lost on all lines.
    assert np.flatnonzero(found.unmeasured).tolist() == [1, 2]
    assert np.flatnonzero(found.lost_either).tolist() == [3]
    told = found.to_dict()["all_lines"]
    assert (told["out_ns"]["count"], told["unmeasured"], told["lost_out"]) == (4, 2, 1)


def test_line_without_a_listener_leaves_the_other_its_times() -> None:
    dead = result({"dead": ([None] * 3, [1] * 3)}, report=None).lines["dead"]
    ours = result({"a": ([1000] * 3, [1] * 3)})
    found = replace(ours, lines=ours.lines | {"dead": dead})
    assert dead.lost_either.all()
    assert (found.races[0].only_first, found.races[0].unmeasured) == (3, 0)
    assert found.first_out_ns.tolist() == [1000] * 3
    says = "nothing came by dead: races and first of all count its probes as lost"
    assert says in result_text(found)
    assert "nothing came by a" not in result_text(found)


def test_text_of_a_race_has_all_probes_of_the_run() -> None:
    out: list[int | None] = [1, 1, 2, 1, None, None, 1]
    fibre: list[int | None] = [1, 1, 1, None, None, 1, 1]
    back: list[int | None] = [1] * 6 + [None]
    found = result({"a": (out, back), "b": (fibre, [1] * 7)})
    (way,) = [line for line in result_text(found).splitlines() if line.startswith("way out: ")]
    assert re.sub(r" \(by [^)]*\)", "", way) == (
        "way out: a was first 0 times, b 1 time; only a 1, only b 1, neither 1, tied 2, "
        "unmeasured 1"
    )


def test_one_probe_is_named_in_the_singular() -> None:
    found = result({"a": ([1], [1]), "b": ([2], [2])})
    text = result_text(found)
    assert text.splitlines()[0].endswith(" 1 probe of 64 bytes on each line, 1,000/s")
    assert "way out: a was first 1 time (by 1 ns at p50, 1 ns at p99), b 0 times; " in text
    assert repr(found).startswith("<Result of the sender: 1 probe on each line\n")
    middle = replace(found, first_probe=1, complete=False)
    assert "its first probe is not counted here" in result_text(middle)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    assert "1 probe of 64 bytes on each line" in page_of(found)


def test_result_is_a_short_text_in_a_prompt() -> None:
    many: list[int | None] = [1000] * 2000
    found = result({"a": (many, many), "b": ([None] * 2000, many)}, there=Clock("another"))
    assert repr(found).splitlines() == [
        "<Result of the sender: 2,000 probes on each line",
        repr(found.lines["a"]),
        f"{found.lines['b']!r}>",
    ]
    assert repr(found.lines["a"]) == (
        "<LineResult a: round trip 2.15 us at p50, 2.15 us at p99; of 2,000 sent "
        "0 lost on the way out, 0 on the way back>"
    )
    assert repr(found.lines["b"]) == (
        "<LineResult b: of 2,000 sent 2,000 lost on the way out, 0 on the way back>"
    )
    assert repr(found.races[0]) == "<Race on the way out: a won 0, b won 0>"
    assert repr(found.offset) == f"<Offset: {found.offset.sentence()}>"


def test_result_has_the_text_that_the_command_prints() -> None:
    found = result({"a": ([1], [1]), "b": ([2], [2])})
    assert found.text() == result_text(found)
    assert "\nway out: a was first 1" in found.text()


def test_json_has_no_nan_and_all_of_it() -> None:
    lost: list[int | None] = [None] * 3
    found = result({"a": (lost, lost), "b": ([1] * 3, [1] * 3)})
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["lines"]["a"]["round_trip_ns"]["p50"] is None
    assert json.loads(text)["lines"]["a"]["loss_runs"]["by_length"] == {"3": 1}
    assert found.over_time(2)["b"]["loss"].tolist() == [0, 0]


def test_page_is_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    found = result({"a": ([1000, None] * 50, [2000] * 100), "b": ([1500] * 100, [2000] * 100)})
    found.write_page(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert "Which line is first" in text
    assert "50.0000%" in text
    found.write_arrays(tmp_path / "arrays")  # to this path, and no other
    with np.load(tmp_path / "arrays") as arrays:
        assert arrays["a.arrived"].sum() == 50
        np.testing.assert_array_equal(arrays["b.out_ns"], found.lines["b"].out_ns)


def test_nothing_sent_is_a_result() -> None:
    found = result({"a": ([], [])})
    assert json.dumps(found.to_dict(), allow_nan=False)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    assert "nothing was sent" in page_of(found)


@pytest.mark.parametrize(
    ("lost", "runs"),
    [([], []), ([0, 0], []), ([1, 1], [2]), ([1, 0, 1, 1, 0], [1, 2]), ([0, 1], [1])],
)
def test_runs_of(lost: list[int], runs: list[int]) -> None:
    assert runs_of(np.array(lost, dtype=np.bool_)).tolist() == runs


def test_percentiles_are_measured_values() -> None:
    found = percentiles_of(np.array([1.0, 2, 3, np.nan, 100]))
    assert (found["count"], found["p50"], found["p99"], found["max"]) == (4, 2, 100, 100)


def test_reordered_counts_what_came_after_a_later_one() -> None:
    # Arrived in this order: 0, 2, 3, 1, 4; 5 never.
    assert reordered(np.array([1, 4, 2, 3, 5, 0])) == 1
    assert reordered(np.array([0, 0])) == 0
