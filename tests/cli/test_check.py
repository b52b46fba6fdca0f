"""`udpfast check`: findings, for people and for programs."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from udpfast.cli import check as check_module
from udpfast.cli.check import check, print_findings
from udpfast.cli.run import run
from udpfast.host import Finding, HostUse
from udpfast.host.finding import Change

FINE = Finding("clock", "tsc", "tsc", True, "None.")
SWAP = Change("file", "/proc/sys/vm/swappiness", "60", "10")
WRONG = Finding("swap", "at most 10", "60", False, "Slow.", changes=(SWAP,))
FAULT = Finding("socket", "a socket", "taken", False, "Nothing comes.", fault=True)
UNKNOWN = Finding("nic", "off", "absent", None, "Late.", "the driver does not say")


def test_print_findings_says_faults_first_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    use = HostUse(cores=(2,), interfaces=("eth1",), gro=True)
    print_findings([FINE, UNKNOWN, WRONG, FAULT], use)
    assert capsys.readouterr().out.splitlines() == [
        "1 fault: a feed cannot run as its file asks",
        "  socket  taken, want a socket",
        "      Nothing comes.",
        "could be better, for speed and bursts (1 of 4):",
        "  swap    60, want at most 10",
        "      Slow.",
        "fine:",
        "  clock   tsc",
        "not judged:",
        "  nic     absent: the driver does not say",
        "this command, run as root, sets what can be set at run time:",
        "  udpfast tune apply --rx-cpus 2 --iface eth1 --gro",
    ]
    print_findings([FINE, WRONG], use, with_rest=False)
    assert "fine:" not in capsys.readouterr().out


def test_print_findings_nothing_wrong_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings([FINE], HostUse())
    assert capsys.readouterr().out.splitlines()[0] == "nothing is wrong: 1 findings"


def test_check_json_has_the_same_findings_and_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [FINE, UNKNOWN]
    monkeypatch.setattr(check_module, "inspect_host", lambda use: found)
    monkeypatch.setattr(check_module, "inspect_feed", lambda config: [])
    assert CliRunner().invoke(check, ["--json"]).exit_code == 0
    found.append(WRONG)
    assert CliRunner().invoke(check, ["--json"]).exit_code == 0  # it costs time, and no more
    found.append(FAULT)
    result = CliRunner().invoke(check, ["--json"])
    assert result.exit_code == 1
    host = json.loads(result.output)["host"]
    assert [(row["name"], row["ok"], row["reason"]) for row in host] == [
        ("clock", True, ""),
        ("nic", None, "the driver does not say"),
        ("swap", False, ""),
        ("socket", False, ""),
    ]


def test_check_of_faults_alone_shows_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [FINE, UNKNOWN, WRONG]
    monkeypatch.setattr(check_module, "inspect_host", lambda use: found)
    monkeypatch.setattr(check_module, "inspect_feed", lambda config: [])
    result = CliRunner().invoke(check, ["--faults"])
    assert (result.exit_code, result.output) == (0, "0 faults\n")
    found.append(FAULT)
    result = CliRunner().invoke(check, ["--faults"])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "socket  taken, want a socket",
        "    Nothing comes.",
        "1 fault",
    ]
    rows = json.loads(CliRunner().invoke(check, ["--faults", "--json"]).output)["host"]
    assert [row["name"] for row in rows] == ["socket"]
    assert "exclude each other" in CliRunner().invoke(check, ["--faults", "--all"]).output


def test_address_that_is_not_this_hosts_is_answered_with_those_that_are(tmp_path: Path) -> None:
    path = tmp_path / "feed.toml"
    path.write_text('name = "x"\n[[incremental.lines]]\nname = "A"\naddress = "192.0.2.7:9001"\n')
    result = CliRunner().invoke(check, [str(path), "--faults"])
    assert result.exit_code == 1
    assert "192.0.2.7:9001 (this host has " in result.output
    assert "127.0.0.1 on lo" in result.output


@pytest.fixture
def fine_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find nothing wrong with this host, nor with any feed on it."""
    monkeypatch.setattr(check_module, "inspect_host", lambda use: [FINE])
    monkeypatch.setattr(check_module, "inspect_feed", lambda config: [])


@pytest.mark.usefixtures("fine_host")
def test_check_shows_what_the_file_sets_and_defaults_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(
        'name = "deribit"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:9001"\n'
    )
    short = CliRunner().invoke(check, [str(path)]).output.splitlines()
    assert short[0] == "nothing is wrong: 1 findings"
    assert any(line.startswith("  name ") for line in short)
    assert not any("# default" in line for line in short)
    assert short[-1].startswith("--all also shows 1 findings that are fine or not judged and ")
    every = CliRunner().invoke(check, [str(path), "--all"]).output
    assert "# default" in every
    assert "\nfine:\n  clock  tsc\n" in every


@pytest.mark.usefixtures("fine_host")
def test_check_names_settings_as_the_file_has_them(tmp_path: Path) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(
        'name = "cme"\n[wire]\nframing = "cme_mdp3"\n'
        '[[streams.lines]]\nname = "A"\naddress = "239.1.1.1:9001"\n'
        '[[recovery.lines]]\nname = "R"\naddress = "239.1.1.2:9001"\n'
    )
    for paths in ([str(path)], [str(tmp_path)]):
        found = json.loads(CliRunner().invoke(check, [*paths, "--json"]).output)["settings"]
        assert found["streams.lines[0].name"] == "A"
        assert found["recovery.lines[0].name"] == "R"
        assert not found["incremental.lines"]
        assert not found["snapshot.lines"]


def test_check_of_a_directory_adds_up_the_memory_of_its_feeds(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(
            f'name = "{name}"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:0"\n'
        )
    single = CliRunner().invoke(check, [str(tmp_path / "one.toml"), "--json"])
    both = CliRunner().invoke(check, [str(tmp_path), "--json"])
    wanted = []
    for result in (single, both):
        found = {row["name"]: row["want"] for row in json.loads(result.output)["host"]}
        wanted.append(int(found["available memory"].removesuffix(" MiB")))
    assert wanted[0] > 100
    assert 2 * wanted[0] - 2 <= wanted[1] <= 2 * wanted[0]
    assert set(json.loads(both.output)["settings"]) == {"one", "two"}
    text = CliRunner().invoke(check, [str(tmp_path)]).output
    sums = []
    for name in ("one", "two"):
        said = re.search(rf"\n  {name}  (\d+) MiB shared \((.*?)\), (\d+) besides", text)
        assert said is not None
        shared, listed, private = said.groups()
        assert sum(int(part.rpartition(" ")[2]) for part in listed.split(", ")) == int(shared)
        sums.append((int(shared), int(private)))
    shared_all, private_all = map(sum, zip(*sums, strict=True))
    assert f"\n  all 2: {shared_all} MiB shared, {private_all} besides" in text
    assert "two agent.core" in text


def group_of_one(folder: Path, **host: str) -> str:
    """Write a directory of one feed, and its host.toml; return it."""
    (folder / "one.toml").write_text(
        'name = "one"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:9001"\n'
    )
    text = "".join(f"{key} = {value}\n" for key, value in host.items())
    (folder / "host.toml").write_text(text)
    return str(folder)


def test_check_of_a_directory_judges_its_host_file_as_run_does(tmp_path: Path) -> None:
    for host, said in (
        ({"coers": '"1"'}, "coers"),
        ({"cores": '"0"', "feeds_per_core": "0"}, "feeds_per_core"),
        ({"group": '"one"'}, "expected a name that no feed of the group has"),
    ):
        folder = group_of_one(tmp_path, **host)
        found = [CliRunner().invoke(verb, [folder]) for verb in (check, run)]
        assert said in str(found[0].exception)
        assert str(found[0].exception) == str(found[1].exception)


def test_check_of_a_directory_looks_for_the_cores_that_its_plan_gives(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [group_of_one(tmp_path, cores='"8000"'), "--faults"])
    assert result.exit_code == 1
    assert "agent.core  8000, which this host does not have" in result.output
