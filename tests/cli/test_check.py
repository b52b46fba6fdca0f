"""`udpfast check`: findings for one feed, for people and for programs."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from udpfast.cli import check as check_module
from udpfast.cli.check import check
from udpfast.cli.findings import feed_use, inspect_agent, inspect_record, print_findings
from udpfast.config import FeedConfig, parse_feed
from udpfast.host import Finding, HostUse

FINE = Finding("clock", "tsc", "tsc", True, "None.")
WRONG = Finding("swap", "at most 10", "60", False, "Slow.")
UNKNOWN = Finding("nic", "off", "absent", None, "Late.", "the driver does not say")


def feed(address: str = "127.0.0.1:0", **tables: object) -> FeedConfig:
    """Return a feed of one line."""
    lines = {"lines": [{"name": "A", "address": address}]}
    return parse_feed({"name": "test", "incremental": lines, **tables})


def test_feed_use_names_core_and_ways_of_receiving() -> None:
    core = min(os.sched_getaffinity(0))
    use = feed_use(
        feed(
            agent={"core": core, "idle": "spin", "fifo_priority": 5},
            receive={"busy_poll_us": 50, "gro": True, "rcvbuf_bytes": 1 << 20},
        )
    )
    assert use == HostUse(cores=(core,), rcvbuf_bytes=1 << 20, busy_poll=True, gro=True, fifo=True)
    assert feed_use(feed(agent={"fifo_priority": 5})).fifo is False


def test_feed_use_loopback_has_no_interface_to_look_at() -> None:
    assert feed_use(feed()).interfaces == ()


@pytest.mark.parametrize(
    ("core", "have", "ok"),
    [
        (None, "unpinned", False),
        (min(os.sched_getaffinity(0)), None, True),
        (999, "999, not", False),
    ],
)
def test_inspect_agent_core_must_be_one_that_is_allowed(
    core: int | None, have: str | None, ok: bool
) -> None:
    finding = inspect_agent(feed(agent={} if core is None else {"core": core}))
    assert finding.ok is ok
    assert finding.have.startswith(have or str(core))


def test_inspect_record_directory_must_be_one_that_can_be_made(tmp_path: Path) -> None:
    assert inspect_record(feed()) == []
    (tmp_path / "file").touch()
    for directory, ok in ((tmp_path / "new" / "deep", True), (tmp_path / "file" / "deep", False)):
        table = {"enabled": True, "directory": str(directory)}
        (finding,) = inspect_record(feed(record=table))
        assert finding.ok is ok and str(tmp_path) in finding.have


def test_print_findings_says_faults_first_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_findings([FINE, UNKNOWN, WRONG], HostUse(cores=(2,), interfaces=("eth1",), gro=True))
    assert capsys.readouterr().out.splitlines() == [
        "could be better:",
        "  swap   60, want at most 10",
        "      Slow.",
        "fine:",
        "  clock  tsc",
        "not judged:",
        "  nic    absent: the driver does not say",
        "",
        "1 of 3 findings could be better; what can be set at run time, this sets:",
        "  scripts/tune_host.sh apply --rx-cpus 2 --iface eth1 --gro",
    ]


def test_print_findings_nothing_wrong_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings([FINE], HostUse())
    assert capsys.readouterr().out.splitlines()[-1] == "none of 1 findings could be better"


def test_check_json_has_the_same_findings_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [FINE, UNKNOWN]
    monkeypatch.setattr(check_module, "inspect_host", lambda use: found)
    monkeypatch.setattr(check_module, "inspect_stacks", lambda config: [])
    assert CliRunner().invoke(check, ["--json"]).exit_code == 0
    found.append(WRONG)
    result = CliRunner().invoke(check, ["--json"])
    assert result.exit_code == 1
    host = json.loads(result.output)["host"]
    assert [(row["name"], row["ok"], row["reason"]) for row in host] == [
        ("clock", True, ""),
        ("nic", None, "the driver does not say"),
        ("swap", False, ""),
    ]
