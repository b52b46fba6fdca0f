"""A capture of each framing over loopback multicast: what is received is what was sent."""

import json
from pathlib import Path

import pytest

from lab.live import cases_of, run_live
from tests.shared import shared

pytestmark = pytest.mark.system


def first_of_each_framing(folder: Path) -> list[str]:
    # The largest single capture of each: most of its kinds of messages.
    files: dict[str, list[tuple[int, str]]] = {}
    for file in json.loads((folder / "expected_singles.json").read_text())["files"]:
        files.setdefault(file["framing"], []).append((file["udp_datagrams"], file["file"]))
    return [max(sizes)[1] for sizes in files.values()]


def test_captures_of_each_framing_arrive_as_they_were_sent() -> None:
    folder = shared("data", "pcap")
    names = first_of_each_framing(folder)
    assert len(names) > 12
    for name in names:
        case = next(iter(cases_of(folder, name)))
        assert run_live(case, 0.0) is None, case.name


@pytest.mark.parametrize("speed", [0.0, 1_000_000.0])
def test_two_lines_of_a_capture_arrive_as_one_stream(speed: float) -> None:
    folder = shared("data", "pcap")
    cases = list(cases_of(folder, "cme_mdp3_v1.9_ab"))
    assert [case.lines for case in cases] == [2] * 9
    for case in cases[:3]:
        assert run_live(case, speed) is None, case.name
