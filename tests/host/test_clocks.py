"""What chrony, ptp4l and the kernel say about the clock, and what `check` makes of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.host_tree import CHRONY
from udpfast.host import HostUse
from udpfast.host.clocks import inspect_clocks, read_clock
from udpfast.host.tree import HostTree

LOST = "00000000,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n"
PMC = """sending: GET TIME_STATUS_NP
\t507c6f.fffe.0bbe7d-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -38
\t\tingress_time               1763000000000000000
sending: GET PORT_DATA_SET
\t507c6f.fffe.0bbe7d-1 seq 0 RESPONSE MANAGEMENT PORT_DATA_SET
\t\tportIdentity            507c6f.fffe.0bbe7d-1
\t\tportState               SLAVE
"""


def tree(root: Path, *daemons: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    for pid, name in enumerate(daemons, 100):
        (root / f"proc/{pid}").mkdir()
        (root / f"proc/{pid}/comm").write_text(f"{name}\n")
    return root


def says(**answers: str):  # type: ignore[no-untyped-def]
    return lambda command: answers.get(command[0], "")


def test_chrony_error_is_offset_dispersion_and_half_the_delay(tmp_path: Path) -> None:
    state = read_clock(tree(tmp_path, "chronyd"), says(chronyc=CHRONY))
    assert (state.source, state.synchronised) == ("chrony", True)
    assert state.offset_ns == -12_345
    assert state.error_ns == 12_345 + 100_000 + 200_000


def test_chrony_that_follows_nothing_is_not_synchronised(tmp_path: Path) -> None:
    state = read_clock(tree(tmp_path, "chronyd"), says(chronyc=LOST))
    assert (state.synchronised, state.error_ns) == (False, None)


def test_ptp_offset_is_that_of_the_master(tmp_path: Path) -> None:
    state = read_clock(tree(tmp_path, "ptp4l", "phc2sys"), says(pmc=PMC))
    assert (state.source, state.synchronised, state.offset_ns) == ("ptp4l", True, -38)
    assert "phc2sys" in state.text


def test_ptp_port_that_listens_is_not_locked(tmp_path: Path) -> None:
    asked = says(pmc=PMC.replace("SLAVE", "LISTENING"))
    state = read_clock(tree(tmp_path, "ptp4l"), asked)
    assert not state.synchronised
    assert "LISTENING" in state.text


@pytest.mark.parametrize(
    "answer", ["", "506 Cannot talk to daemon", ",,,", "a,b,c,d,e,f,g,h,i,j,k"]
)
def test_chrony_that_says_nothing_of_use_is_not_believed(tmp_path: Path, answer: str) -> None:
    state = read_clock(tree(tmp_path, "chronyd"), says(chronyc=answer))
    assert (state.source, state.synchronised) == ("chrony", False)


def test_no_daemon_no_synchronisation(tmp_path: Path) -> None:
    state = read_clock(tree(tmp_path))
    assert (state.source, state.synchronised, state.text) == (
        "none",
        False,
        "nothing steers the clock",
    )


def test_this_host_can_be_asked() -> None:
    state = read_clock()
    assert state.text
    assert state.error_ns is None or state.error_ns >= 0


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    known: dict[str, str] = {}

    def ask(command: Sequence[str]) -> str:
        return known.get(command[0], "")

    monkeypatch.setattr("udpfast.host.clocks._ask", ask)
    return known


def test_findings_of_a_good_clock_are_fine(tmp_path: Path, answers: dict[str, str]) -> None:
    answers["chronyc"] = CHRONY
    source, error = inspect_clocks(HostTree(tree(tmp_path, "chronyd"), HostUse()))
    assert (source.ok, source.have) == (True, "chrony runs")
    assert error.ok, error


def test_findings_of_a_clock_that_nothing_steers(tmp_path: Path) -> None:
    source, error = inspect_clocks(HostTree(tree(tmp_path), HostUse()))
    assert (source.ok, source.have) == (False, "nothing runs")
    assert error.ok is False


def test_findings_of_a_large_error(tmp_path: Path, answers: dict[str, str]) -> None:
    answers["chronyc"] = CHRONY.replace("0.000400000", "0.9")
    _, error = inspect_clocks(HostTree(tree(tmp_path, "chronyd"), HostUse()))
    assert error.ok is False
    assert "450 ms" in error.have
