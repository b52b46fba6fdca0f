"""`udpfast relay`: what it says, and what it waits for."""

import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.main import cli
from udpfast.cli.relay import far_settings, report
from udpfast.config import parse_feed, parse_relay
from udpfast.monitor.status import read_status
from udpfast.monitor.troubles import feed_troubles
from udpfast.shm.instance import instance_directory
from udpfast.shm.relay_counts import RelayCounts


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deribti", "; did you mean 'deribit'?"),
        ("cme", "; there are deribit; is its feed running (udpfast run)?"),
    ],
)
def test_relay_waits_for_a_feed_that_was_never_there_and_says_what_it_may_be(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    (tmp_path / "deribit").mkdir(mode=0o700)
    (tmp_path / "deribit" / "ring").touch()
    command = [sys.executable, "-m", "udpfast", "relay", name, "--lines", "A=127.0.0.1:9"]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as relay:
        assert relay.stderr is not None
        said = relay.stderr.readline()
        relay.send_signal(signal.SIGINT)
        relay.communicate()
    assert said.endswith(f"relay waits for the feed {name}{hint}\n")
    assert relay.returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["cme"],
            "cme is the name of a feed, and nothing says where its relay sends: give --lines",
        ),
        (
            ["cme", "--lines", "A=127.0.0.1:9,B=127.0.0.1:19", "--budget", "C=1"],
            "expected names of --lines (A, B), found C",
        ),
    ],
)
def test_relay_says_what_to_give(words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["relay", *words])
    assert result.exit_code == 2
    assert said in result.output


def test_what_a_relay_counted_is_told_in_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    report("cme", {"relay": {"sessions": 1, "lapped": 0}, "line microwave": {"sent": 0}}, False)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition("Z ")[2] for line in err.splitlines()] == [
        "INFO udpfast: relay of cme: relay: sessions 1",
        "INFO udpfast: relay of cme: line microwave: nothing",
    ]


def test_stat_names_a_relay_and_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    line = {"name": "A", "address": "127.0.0.1:0"}
    with Subscriber({"name": "cme", "incremental": {"lines": [line]}}):
        counts = RelayCounts.create(instance_directory("cme"), ["microwave"])
        lines = CliRunner().invoke(cli, ["stat", "cme"]).output.splitlines()
        counts.close()
    assert [one.partition(":")[0] for one in lines if one.startswith("relay")] == [
        "relay",
        "relay line microwave",
    ]


FEED = {"name": "cme", "incremental": {"lines": [{"name": "A", "address": "127.0.0.1:0"}]}}


@pytest.fixture
def waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """Return a relay that waits for the next feed, because its feed has ended, and its log."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    command = [sys.executable, "-m", "udpfast", "relay", "cme", "--lines", "A=127.0.0.1:9"]
    command += ["--log-level", "info"]
    with Subscriber(FEED) as feed:
        relay = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert relay.stderr is not None
        assert "relay of cme" in relay.stderr.readline()
        feed.stop()
    try:
        assert "relay waits for the feed cme" in relay.stderr.readline()
        yield relay, relay.stderr
    finally:
        relay.kill()
        relay.communicate()


def test_relay_that_is_killed_while_it_waits_for_the_next_feed_is_named(
    waiting: tuple["subprocess.Popen[str]", IO[str]],
) -> None:
    relay, log = waiting
    said = "relay: waits for the next feed of this name"
    assert read_status("cme").relay_gone == 0
    assert said in CliRunner().invoke(cli, ["stat", "cme"]).output.splitlines()
    # So has the page of `udpfast monitor`, which shows what `top` does.
    assert said in CliRunner().invoke(cli, ["top", "cme", "--once"]).output.splitlines()
    with Subscriber(FEED) as feed:
        assert "relay of cme" in log.readline()  # the same process goes on
        assert said not in CliRunner().invoke(cli, ["stat", "cme"]).output.splitlines()
        feed.stop()
    assert "relay waits for the feed cme" in log.readline()
    relay.kill()
    relay.wait()
    assert not read_status("cme").relay_waits
    assert read_status("cme").relay_gone == relay.pid
    assert any("its relay is gone" in each for each in feed_troubles("cme", read_status("cme")))


def test_relay_that_is_stopped_while_it_waits_is_not_named(
    waiting: tuple["subprocess.Popen[str]", IO[str]],
) -> None:
    relay, _ = waiting
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0
    assert read_status("cme").relay_gone == 0


def test_far_end_of_a_relay_keeps_an_image() -> None:
    words = ["relay", "cme", "--lines", "A=127.0.0.1:9", "--print-far"]
    settings = parse_feed(tomllib.loads(CliRunner().invoke(cli, words).output))
    assert settings.image.enabled


@pytest.mark.parametrize(("parity_wait_ms", "wait_us"), [(2, 27_000), (1_000, 1_025_000)])
def test_far_end_waits_for_parity_though_hosts_are_late(parity_wait_ms: int, wait_us: int) -> None:
    table = {"lines": [{"name": "A", "incremental": "127.0.0.1:9", "parity": 8}]}
    config = parse_relay(table | {"parity_wait_ms": parity_wait_ms}, "relay")
    window = parse_feed(tomllib.loads(far_settings("cme", config))).window
    assert window.parity
    assert window.lost_packet_wait_us == wait_us
