"""`udpfast stat`: without a name all instances; of a dead one how it was."""

import json
import os
import pwd
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.main import cli
from udpfast.shm import instance


def feed(name: str) -> Subscriber:
    """Return a feed of one line that nobody sends to, and that is silent at once."""
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    session = {"inactivity_timeout_ms": 1}
    return Subscriber({"name": name, "incremental": {"lines": lines}, "session": session})


def is_silent(subscriber: Subscriber) -> bool:
    return subscriber.counters()["incremental.A"]["disconnected"] > 0


def killed_feed(name: str) -> None:
    """Leave what a feed leaves that was killed."""
    pid = os.fork()
    if pid == 0:
        subscriber = feed(name)
        subscriber.start()
        wait_until(lambda: is_silent(subscriber))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))


def test_stat_says_who_else_has_instances_and_how_to_look_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UDPFAST_SHM")
    monkeypatch.setattr(instance, "_DEFAULT_ROOT", f"{tmp_path}/shm-")
    nobody = pwd.getpwnam("nobody").pw_uid
    for uid in (os.geteuid(), nobody, "x"):
        (tmp_path / f"shm-{uid}").mkdir(mode=0o700)
    where = f"UDPFAST_SHM={tmp_path}/shm-{nobody} UDPFAST_TRUST=nobody"
    hint = f"User nobody has instances, too; to see them: export {where}"
    said = CliRunner().invoke(cli, ["stat"]).output.splitlines()
    assert said[1:4] == [hint, "", "what needs attention"]
    assert "none" not in said[4] and (said[4].startswith("nothing that this user sees"))
    assert hint in str(CliRunner().invoke(cli, ["stat", "deribit"]).exception)
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    assert "nobody" not in CliRunner().invoke(cli, ["stat"]).output


def test_stat_without_a_name_lists_running_stopped_and_dead_instances() -> None:
    assert "no instance" in CliRunner().invoke(cli, ["stat"]).output
    killed_feed("killed")
    with feed("ended"):
        pass
    with feed("live") as live:
        wait_until(lambda: is_silent(live))
        result = CliRunner().invoke(cli, ["stat"])
        assert result.exit_code == 1  # one is dead
        rows = [line.split() for line in result.output.splitlines()]
        assert [row[:2] for row in rows[1:4]] == [
            ["ended", "stopped"],
            ["killed", "DEAD"],
            ["live", "running"],
        ]
        assert rows[4:6] == [[], ["what", "needs", "attention"]]
        assert rows[1][-1] == "-"
        assert rows[2][-1] == rows[3][-1] == "incremental.A"
        found = json.loads(CliRunner().invoke(cli, ["stat", "--json"]).output)
        assert set(found["instances"]) == {"ended", "killed", "live"}
        ended = CliRunner().invoke(cli, ["stat", "ended"])
        assert ": stopped, writer" in ended.output.splitlines()[0]
        assert ended.exit_code == 0
        assert set(found["host"]) == {"findings", "losses", "stores", "journals", "groups", "runs"}


@pytest.mark.parametrize("option", [["--latency"], ["--losses"], ["--watch", "1"]])
def test_stat_without_a_name_refuses_what_is_of_one_instance(option: list[str]) -> None:
    result = CliRunner().invoke(cli, ["stat", *option])
    assert result.exit_code == 2
    assert "NAME of an instance" in result.output


def test_stat_of_a_dead_instance_says_what_its_agents_were() -> None:
    killed_feed("killed")
    result = CliRunner().invoke(cli, ["stat", "killed"])
    output = result.output
    assert result.exit_code == 1
    assert "DEAD" in output.splitlines()[0]
    assert "agent feed: was running" in output


def test_names_of_lines_stand_apart_however_long_they_are() -> None:
    names = ("snapshots", "slowsnapshot")
    lines = [{"name": name, "address": "127.0.0.1:0"} for name in names]
    with Subscriber({"name": "long", "incremental": {"lines": lines}}):
        table = CliRunner().invoke(cli, ["stat", "long"]).output
    heads = next(line for line in table.splitlines() if line.startswith("verdict"))
    assert heads.split()[1:] == ["incremental.snapshots", "incremental.slowsnapshot", "all"]


def test_times_are_shown_as_times() -> None:
    from udpfast.cli.stat import _shown

    assert _shown("heard_ns", 1_764_000_000_000_000_000) == "2025-11-24 16:00:00 UTC"
    assert _shown("heard_ns", 0) == "0"
    assert _shown("losses", 1_234) == "1,234"
