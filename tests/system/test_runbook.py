"""Pages for 3 a.m.: they know every alert and every trouble, and their commands work."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.monitor.test_metrics import RULES, everything  # noqa: F401 - a fixture
from tests.shared import ROOT
from udpfast.cli.main import cli
from udpfast.monitor.troubles import TroubleKind

PAGES = ("runbook", "upgrade", "troubleshooting")


def page(name: str) -> str:
    """Return a page's text."""
    return (ROOT / "docs" / f"{name}.md").read_text()


def index(column: str) -> dict[str, list[str]]:
    """Return a table of the runbook: each name of its first column, and where it leads."""
    table = page("runbook").partition(f"| {column} | go to |\n|---|---|\n")[2].partition("\n\n")[0]
    found = {}
    for row in table.splitlines():
        names, places = row.strip("| ").split(" | ")
        links = re.findall(r"\]\(#([\w-]+)\)", places)
        found |= {name.strip("`"): links for name in names.split(", ")}
    return found


def anchors() -> set[str]:
    """Return where links of the runbook may lead."""
    headings = re.findall(r"^### (.*)$", page("runbook"), re.M)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_every_alert_has_its_place_in_the_runbook() -> None:
    assert sorted(index("alert")) == sorted(re.findall(r"- alert: (\w+)", RULES.read_text()))


def test_every_trouble_has_its_place_in_the_runbook() -> None:
    named = index("kind (`udpfast_troubles`, `stat`)")
    assert sorted(named) == sorted(kind.name.lower() for kind in TroubleKind)


def test_every_trouble_is_listed_in_its_order_as_what_needs_attention() -> None:
    listed = re.findall(r"^\d+\. ((?:`\w+`,? ?)+):", page("operating"), re.M)
    named = re.findall(r"`(\w+)`", " ".join(listed))
    assert named == [kind.name.lower() for kind in TroubleKind]


def test_every_place_is_led_to_and_is_there() -> None:
    tables = (index("alert"), index("kind (`udpfast_troubles`, `stat`)"))
    led_to = {place for table in tables for places in table.values() for place in places}
    assert led_to == anchors()


def test_every_symptom_says_what_is_seen_what_it_means_and_what_to_do() -> None:
    for symptom in page("runbook").split("\n### ")[1:]:
        for part in ("**You see**", "**It means**", "```\n", "**Do**"):
            assert part in symptom, symptom.partition("\n")[0]


def commands() -> Iterator[str]:
    """Yield each command of udpfast that the pages show, once."""
    seen = set()
    for name in PAGES:
        for block in re.findall(r"^```(?:sh)?\n(.*?)^```", page(name), re.S | re.M):
            for line in block.splitlines():
                command = line.partition("  #")[0].strip()
                if command.startswith("udpfast ") and command not in seen:
                    seen.add(command)
                    yield command


@pytest.mark.system
def test_every_command_works(
    tmp_path: Path,
    everything: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The host is `one`, which copies the store; `S` writes it.
    feed = tmp_path / "deribit.toml"
    feed.write_text(
        'name = "deribit"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:0"\n'
    )
    journals = tmp_path / "S"
    failed = {}
    for command in commands():
        words = shlex.split(command.partition(" > ")[0])[1:]
        words = [
            str(feed) if word.endswith(("deribit.toml", "feed.toml")) else word for word in words
        ]
        words = [
            str(tmp_path / "bus.toml") if word.endswith("bus.toml") else word for word in words
        ]
        monkeypatch.setenv(
            "UDPFAST_JOURNALS", str(tmp_path / "one" if "bus" in words else journals)
        )
        result = CliRunner().invoke(cli, words)
        # 1: something needs attention, which is what these pages are for.
        if result.exit_code not in (0, 1) or not isinstance(result.exception, SystemExit | None):
            failed[command] = result.output[-300:] + repr(result.exception)
    assert not failed
