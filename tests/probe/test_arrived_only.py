"""What a listener says of a session by itself: what arrived, and nothing that it cannot know."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from udpfast.net.line import LineAddress
from udpfast.probe.control import Clock
from udpfast.probe.measured import arrived_only
from udpfast.probe.result import Result
from udpfast.probe.text import result_text

SENT = 1_700_000_000_000_000_000
COUNTS = dict.fromkeys(
    (*("duplicates", "reordered", "unsent", "strangers", "malformed", "kernel_drops"),
     "nic_stamps"), 0,
)  # fmt: skip
SAME = Clock("this host")


def heard(*arrived: int, probes: int = 10) -> dict[str, Any]:
    """Return what a listener's loop keeps of probes 1 ms apart: of those that arrived."""
    there = np.isin(np.arange(probes), arrived)
    sent = SENT + np.arange(probes) * 1_000_000
    return {
        "sent_ns": np.where(there, sent, 0),
        "reached_ns": np.where(there, sent + 2000, 0),
        "order": np.cumsum(there).astype(np.uint32) * there,
    }


def result(lines: dict[str, dict[str, Any]], **began: int) -> Result:
    return arrived_only(
        {
            name: (LineAddress("10.0.0.1:5"), arrays, "kernel", COUNTS, began.get(name, 0))
            for name, arrays in lines.items()
        },
        rate_per_s=1000.0,
        size_bytes=64,
        train=1,
        here=SAME,
        there=SAME,
    )


def test_listener_claims_nothing_of_the_way_back(tmp_path: Path) -> None:
    found = result({"a": heard(0, 1, 3), "b": heard(0, 1, 2, 3)})
    line = found.lines["a"]
    assert line.lost.tolist() == [False, False, True, False]
    for unknown in (line.returned, line.lost_back, line.loss_back, line.back_order):
        assert unknown is None
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    own = told["lines"]["a"]
    assert (own["arrived"], own["lost_out"]) == (3, 1)
    for name in ("returned", "lost_back", "loss_back"):
        assert own[name] is None, name
    assert [race["way"] for race in told["races"]] == ["out"]
    found.write_arrays(tmp_path / "arrays.npz")
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert "a.arrived" in arrays
        assert not {"a.returned", "a.back_order"} & set(arrays)


def test_listener_s_result_is_a_short_text_that_says_whose_it_is() -> None:
    found = result({"a": heard(5, 6, 8, 9)}, a=4)
    assert repr(found).splitlines() == [
        "<Result of the listener: 5 probes on each line",
        "<LineResult a: send to arrival 2 us at p50, 2 us at p99; "
        "of 5 sent 1 lost on the way out>>",
    ]


def test_listener_s_text_and_page_have_a_dash_for_the_way_back() -> None:
    found = result({"a": heard(0, 1, 3), "b": heard(0, 1, 2, 3)})
    assert result_text(found).count("  -\n") == 2
    assert "way back:" not in result_text(found)
    pytest.importorskip("bokeh")
    from udpfast.probe.page import page_of

    assert page_of(found).count('<td class="n">-</td></tr>') == 2


def test_listener_that_began_in_the_middle_counts_from_its_first_probe() -> None:
    # It was greeted when four probes had left on either line, and heard one line a little later.
    lines = {"a": heard(5, 6, 8, 9), "b": heard(7, 8, 9)}
    found = result(lines, a=4, b=4)
    assert found.first_probe == 5
    assert found.planned_ns.tolist() == [SENT + index * 1_000_000 for index in range(5, 10)]
    a, b = found.lines.values()
    assert a.lost.tolist() == [False, False, True, False, False]
    assert not b.lost.any()
    assert b.away.tolist() == [True, True, False, False, False]
    assert (a.out_ns[0], a.loss, b.loss) == (2000, 0.2, 0.0)
    assert not found.lost_on_all.any()
    told = found.to_dict()
    assert (told["first_probe"], told["probes"], told["complete"]) == (5, 5, False)
    assert told["listener_starts"] is None
    assert [told["lines"][name]["away"] for name in lines] == [0, 2]
    assert "its first 5 probes are not counted here" in result_text(found)
    race = told["races"][0]
    assert (race["only_first"], race["only_second"], race["away"]) == (0, 1, 2)
    assert result(lines, b=4).first_probe == 0


def test_listener_marks_what_may_have_arrived_before_it_was_ready() -> None:
    late = heard(5, 9)
    late["reached_ns"][5] += 2_500_000
    found = result({"a": late}, a=4)
    assert np.flatnonzero(found.lines["a"].lost).tolist() == [1, 2, 3]
    assert np.flatnonzero(found.lines["a"].lost_either).tolist() == [1, 2]
    assert "marked ?: a 2 probes that may have arrived before" in result_text(found)
    assert not result({"a": late}).lines["a"].lost_either.any()


def test_listener_that_had_no_probe_since_it_began_has_lost_none() -> None:
    found = result({"a": heard()}, a=4)
    assert (found.first_probe, len(found.planned_ns)) == (4, 0)
    assert "nothing was sent" in result_text(found)


def test_listener_does_not_know_whether_a_run_ended_early() -> None:
    assert result({"a": heard(0, 9)}).complete is True
    cut = result({"a": heard(0, 8)})
    assert cut.complete is None
    assert "interrupted" not in result_text(cut)
