"""What `make nightly` runs: programs that exist, options that they take, a page that lists them."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lab import nightly
from lab.main import PROGRAMS
from lab.nightly import CAMPAIGNS, commands
from tests.shared import ROOT
from udpfast.cli.main import cli

#: Need a market or an export of their own, are the whole of it, or only measure.
BY_HAND = {"pipelinecheck", "pipelinescale", "nightly"}


def test_every_program_has_a_campaign_and_a_line_on_the_page() -> None:
    programs = {each.program for each in CAMPAIGNS}
    assert programs == set(PROGRAMS) - BY_HAND
    page = (ROOT / "docs/campaigns.md").read_text()
    assert not {name for name in programs if f"| `{name}` |" not in page}


def test_every_campaign_is_a_command_that_its_program_takes(tmp_path: Path) -> None:
    for folder in ("wire", "data/pcap", "venues/books"):
        (tmp_path / folder).mkdir(parents=True)
    found = list(commands((), 1e-9, 7, tmp_path))
    assert len(found) == len(CAMPAIGNS) == len({name for name, _ in found})
    with click.Context(cli) as context:
        lab = cli.get_command(context, "lab")
        assert isinstance(lab, click.Group)
        for _, (program, *words) in found:
            command = lab.get_command(context, program)
            assert command is not None
            command.make_context(program, words)


def test_campaign_without_its_data_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(commands(("live",), 1, 7, tmp_path)) == []
    assert capsys.readouterr().out.startswith("live-data-pcap: left out")


def test_campaign_that_finds_its_data_by_itself_is_left_out_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(commands(("relaycheck",), 1, 7, tmp_path)) == []
    assert capsys.readouterr().out.startswith("relaycheck: left out, no ")
    (tmp_path / "venues" / "books").mkdir(parents=True)
    ((name, words),) = commands(("relaycheck",), 1, 7, tmp_path)
    assert (name, words[:1], "--seeds" in words) == ("relaycheck", ["relaycheck"], True)


def test_every_program_that_looks_for_its_data_says_which() -> None:
    seeking = {
        path.stem
        for path in (ROOT / "lab").glob("*.py")
        if "UDPFAST_SHARED" in path.read_text() and path.stem in PROGRAMS
    }
    saying = {each.program for each in CAMPAIGNS if each.needs or each.seeks}
    # With --simulate, latejoin needs none.
    assert seeking - BY_HAND - {"latejoin"} <= saying


def test_campaign_looks_for_its_data_where_the_night_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "venues" / "books").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$UDPFAST_SHARED"\n')
    script.chmod(0o755)
    monkeypatch.setattr(nightly.sys, "executable", str(script))
    monkeypatch.delenv("UDPFAST_SHARED", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    words = ["--only", "relaycheck", "--directory", str(tmp_path)]
    assert CliRunner().invoke(nightly.main, words).exit_code == 0
    assert (tmp_path / "relaycheck.txt").read_text() == f"{tmp_path / 'shared'}\n"


@pytest.mark.parametrize("code", [0, 1])
def test_failed_campaign_is_shown_and_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho said $4\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(nightly.sys, "executable", str(script))
    words = ["--only", "identity", "--only", "lives", "--directory", str(tmp_path)]
    result = CliRunner().invoke(nightly.main, words)
    assert result.exit_code == code
    assert (tmp_path / "identity.txt").read_text() == "said identity\n"
    assert ("said lives" in result.output.splitlines()) == bool(code)
    assert result.output.count("passed in" if code == 0 else "failed with 1 in") == 2
