"""`udpfast check`: findings, for people and for programs."""

import json

import pytest
from click.testing import CliRunner

from udpfast.cli import check as check_module
from udpfast.cli.check import check, print_findings
from udpfast.host import Finding, HostUse

FINE = Finding("clock", "tsc", "tsc", True, "None.")
WRONG = Finding("swap", "at most 10", "60", False, "Slow.")
UNKNOWN = Finding("nic", "off", "absent", None, "Late.", "the driver does not say")


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


def test_check_json_has_the_same_findings_and_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [FINE, UNKNOWN]
    monkeypatch.setattr(check_module, "inspect_host", lambda use: found)
    monkeypatch.setattr(check_module, "inspect_feed", lambda config: [])
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
