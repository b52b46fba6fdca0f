"""Feeds of one directory as real processes: one fails, the others go on; one signal ends them."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.system.test_subscriber import send
from tests.system.test_supervision import Ear
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.groups import GroupFeed, GroupFile, read_group
from udpfast.archive.run_notes import list_runs
from udpfast.cli.feed_process import FeedProcess
from udpfast.cli.main import cli
from udpfast.cli.service import EXIT_TAKEN
from udpfast.client.counters import counters
from udpfast.client.reader import Reader
from udpfast.config.host import HostConfig
from udpfast.core.layout import Kind
from udpfast.monitor.metrics import metrics_text
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

NAMES = ("one", "two", "three")


@pytest.fixture
def ports(tmp_path, monkeypatch):
    """Write the files of three feeds into a directory; return their ports."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    folder = tmp_path / "us"
    folder.mkdir()
    made = {name: free_port() for name in NAMES}
    for name, port in made.items():
        (folder / f"{name}.toml").write_text(
            f'name = "{name}"\nring.capacity_bytes = {1 << 22}\n'
            f"objects.collect_bytes = {1 << 20}\nwindow.slab_cells = 256\n"
            f'[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:{port}"\n'
        )
    (folder / "host.toml").write_text(
        'cores = "0"\nfeeds_per_core = 3\nrestart_first_ms = 1\nrestart_longest_ms = 20\n'
        "watchdog_s = 2\n"
    )
    return made


@contextlib.contextmanager
def running(folder: Path, **environment: str):
    """Run `udpfast run FOLDER`; yield the process, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "run", "--quiet", str(folder)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def feeds():
    """Return what the supervisor says of its feeds, by name."""
    return {feed.name: feed for feed in read_group("us").feeds}


def test_a_second_supervisor_of_a_group_says_so_and_ends_as_a_second_feed_does(tmp_path, ports):
    with contextlib.closing(GroupFile("us")):
        result = CliRunner().invoke(cli, ["run", str(tmp_path / "us")])
    assert (result.exit_code, "group us runs already" in result.stderr) == (EXIT_TAKEN, True)


def test_a_feed_that_is_killed_is_started_again_and_the_others_go_on(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        before = feeds()
        assert {feed.state for feed in before.values()} == {"running"}
        assert {feed.core for feed in before.values()} == {0}
        with Reader("group:us") as reader:
            os.kill(before["two"].pid, signal.SIGKILL)
            wait_until(lambda: feeds()["two"].restarts, "a restart")
            wait_until(lambda: feeds()["two"].state == "running", "the feed")
            after = feeds()
            assert after["two"].failure == "SIGKILL ended it"
            assert [after[name] for name in ("one", "three")] == [
                before[name] for name in ("one", "three")
            ]
            for port in ports.values():
                send(port, range(1, 4))
            found = set()
            wait_until(lambda: found.update(messages(reader)) or found == set(NAMES), "messages")
        shown = CliRunner().invoke(cli, ["stat"]).output
        assert "us              running" in shown
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    assert {feed.state for feed in feeds().values()} == {"ended"}
    assert read_group("us").life == "stopped"
    ear.sock.close()


def test_a_feed_is_started_again_in_good_order_by_a_signal(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        before = feeds()["two"]
        with Reader("group:us") as reader, Reader("ring:two") as alone:
            os.kill(before.pid, signal.SIGUSR1)
            wait_until(lambda: feeds()["two"].pid not in (0, before.pid), "another process")
            wait_until(lambda: feeds()["two"].state == "running", "the feed")
            assert (feeds()["two"].restarts, feeds()["two"].failure) == (0, "")
            assert counters("two")["feed"]["took_over"] == 0
            send(ports["two"], range(1, 4))
            for each in (reader, alone):
                assert kinds_up_to(each, Kind.MESSAGE).count(Kind.RESTART) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    ear.sock.close()


def test_a_group_that_is_sent_the_signal_of_a_feed_says_what_its_files_would_change(
    tmp_path, ports
):
    folder = tmp_path / "us"
    ear = Ear(str(tmp_path / "ear"))
    with running(folder, NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        before = feeds()

        def ask(said):
            process.send_signal(signal.SIGUSR1)
            assert any(said in line for line in process.stderr), said

        ask("Its files are sound, and name the feeds that it runs")
        shutil.copy(folder / "one.toml", folder / "four.toml")
        ask(f"would not start: {folder / 'one.toml'}: name")  # two of one name
        text = (folder / "four.toml").read_text().replace('"one"', '"four"')
        (folder / "four.toml").write_text(text)
        (folder / "two.toml").unlink()
        ask("added: four; gone: two: a new start of the group adds and removes feeds")
        assert feeds() == before
    ear.sock.close()


def test_a_feed_that_was_stopped_is_started_again_by_a_signal_to_its_group(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        before = feeds()
        with Reader("group:us") as reader:
            os.kill(before["two"].pid, signal.SIGTERM)
            wait_until(lambda: feeds()["two"].state == "ended", "its end")
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda: feeds()["two"].state == "running", "the feed")
            send(ports["two"], range(1, 4))
            assert Kind.RESTART in kinds_up_to(reader, Kind.MESSAGE)
        said = "feed two, which was stopped, is started again"
        assert any(said in line for line in process.stderr)
        assert {feeds()[name] == before[name] for name in ("one", "three")} == {True}
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    ear.sock.close()


def test_what_ended_a_feed_is_told_beside_what_hinders_its_start(tmp_path, ports):
    file = tmp_path / "us" / "two.toml"
    text = file.read_text()
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")):
        ear.hear("READY=1")
        file.write_text("nonsense = 1\n" + text)
        os.kill(feeds()["two"].pid, signal.SIGKILL)
        wait_until(lambda: feeds()["two"].restarts > 1, "more tries")
        wait_until(lambda: "nonsense" in feeds()["two"].failure, "the reason")
        file.write_text(text)
        wait_until(lambda: feeds()["two"].state == "running", "the feed")
        failure = feeds()["two"].failure
        assert failure.startswith("SIGKILL ended it; ") and failure.count("nonsense") == 1
    ear.sock.close()


def test_a_feed_whose_files_are_removed_is_reported_until_it_is_stopped(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        shutil.rmtree(tmp_path / "shm" / "two")
        wait_until(lambda: "two" in list_runs(), "the note")
        text = metrics_text()
        assert 'udpfast_group_feed_down{feed="two",group="us"} 1.0' in text
        assert 'udpfast_feed_up{feed="two"} 0.0' in text
        assert 'udpfast_feed_ended{feed="two"} 0.0' in text
        assert 'udpfast_troubles{kind="feed_removed"} 1.0' in text
        shown = CliRunner().invoke(cli, ["stat"])
        assert shown.exit_code == 1
        assert f"feed two (process {feeds()['two'].pid}) cannot be found" in shown.output
        assert CliRunner().invoke(cli, ["stat", "two"]).exit_code == 1
        (found,) = [
            each
            for each in json.loads(CliRunner().invoke(cli, ["stat", "--json"]).output)["attention"]
            if each["feed"] == "two"
        ]
        assert found["kind"] == "feed_removed" and found["sentence"] in shown.output
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    assert list_runs() == {}
    ear.sock.close()


def test_start_that_fails_is_known_until_one_succeeds(tmp_path, ports):
    file = str(tmp_path / "us" / "one.toml")

    def fails():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", ports["one"]))
            assert CliRunner().invoke(cli, ["run", "--quiet", file]).exit_code == 1
        shown = CliRunner().invoke(cli, ["stat"])
        assert (shown.exit_code, "feed one did not start" in shown.output) == (1, True)
        text = metrics_text()
        assert 'udpfast_feed_up{feed="one"} 0.0' in text
        assert 'udpfast_feed_ended{feed="one"} 0.0' in text

    fails()  # the very first one
    with running(tmp_path / "us" / "one.toml") as process:
        wait_until(lambda: list_runs() == {}, "the start")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()
    assert 'udpfast_feed_ended{feed="one"} 1.0' in metrics_text()
    fails()  # and one behind an end in good order


def messages(reader):
    """Yield the feeds whose messages are there."""
    while len(batch := reader.poll(timeout=0)):
        if (batch.headers["kind"] == Kind.MESSAGE).any():
            yield reader.origin.removeprefix("ring:")


def test_a_feed_whose_loop_makes_no_turn_is_killed_and_started_again(tmp_path, ports):
    said = []
    feed = FeedProcess(
        GroupFeed("one", "ring:one"), ["run", "--quiet", str(tmp_path / "us" / "one.toml")],
        HostConfig(watchdog_s=10), tmp_path, said.append,
    )  # fmt: skip
    try:
        feed.start(0)
        wait_until(lambda: feed.look(0) and feed.entry.state == "running", "the feed")
        feed.signal(signal.SIGSTOP)
        feed.look(10_000_000_000)  # not yet
        feed.look(10_000_000_001)
        wait_until(lambda: feed.look(10_000_000_002), "its end")
        assert (feed.entry.state, feed.entry.failure) == (
            "waiting", "its loop made no turn for 10 s"
        )  # fmt: skip
        assert said == ["feed one: its loop made no turn for 10 s; starting it again in 0.1 s"]
        feed.look(10_300_000_000)
        wait_until(lambda: feed.look(10_300_000_000) and feed.entry.state == "running", "it again")
        assert feed.entry.restarts == 1
    finally:
        feed.signal(signal.SIGKILL)
        wait_until(lambda: feed.look_for_end() or not feed.runs, "its end")
        feed.close()


def kinds_up_to(reader, kind):
    """Return the kinds of the records that come, up to the first of one kind."""
    kinds = []

    def came():
        batch = reader.poll(timeout=0)
        kinds.extend(batch.headers["kind"])
        return kind in kinds

    wait_until(came, f"a record of {kind!r}")
    return kinds


def test_readers_go_on_behind_a_supervisor_that_was_killed_and_what_it_cost_is_told(
    tmp_path, ports
):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")):
        ear.hear("READY=1")
        pids = [feed.pid for feed in feeds().values()]
        stack = contextlib.ExitStack()
        reader = stack.enter_context(Reader("group:us"))
        alone = stack.enter_context(Reader("ring:two"))
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "their end")
    with stack, running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        for name, port in ports.items():
            assert counters(name)["feed"]["took_over"] == 1
            send(port, range(1, 4))
        for each in (reader, alone):
            assert Kind.RESTART in kinds_up_to(each, Kind.MESSAGE)
        shown = " ".join(CliRunner().invoke(cli, ["stat"]).output.split())
        assert shown.count("was started again") == 3
        assert shown.count("+ ?") >= 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        said = process.stderr.read()
        assert "group us: takes over from process" in said
        assert said.count("which failed (its supervisor, process") == 3
    ear.sock.close()


def test_feeds_end_with_a_supervisor_that_is_killed(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process:
        ear.hear("READY=1")
        pids = [feed.pid for feed in feeds().values()]
    assert read_group("us").life == "dead"
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "their end")
    output = CliRunner().invoke(cli, ["stat"]).output
    assert "group us: its supervisor" in " ".join(output.split())
    ear.sock.close()


def test_a_port_that_is_taken_holds_up_that_feed_alone_until_it_is_free(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    holder = subprocess.Popen(
        [sys.executable, "-c",
         "import socket, sys\n"
         "sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
         f"sock.bind(('127.0.0.1', {ports['two']}))\n"
         "print('bound', flush=True)\nsys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout.readline()
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")):
        ear.hear("READY=1")  # one that fails does not make the service manager wait
        states = {name: feed.state for name, feed in feeds().items()}
        assert states["one"] == states["three"] == "running"
        wait_until(lambda: "Address already in use" in feeds()["two"].failure, "the reason")

        def shown() -> str:
            return " ".join(CliRunner().invoke(cli, ["stat"]).output.split())

        # While it is tried again it is starting.
        wait_until(lambda: "feed two of group us does not run" in shown(), "its trouble")
        holder.kill()
        holder.communicate()
        wait_until(lambda: feeds()["two"].state == "running", "the feed")


def test_settings_that_are_wrong_at_a_restart_are_the_reason(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")):
        ear.hear("READY=1")
        file = tmp_path / "us" / "two.toml"
        file.write_text(file.read_text().replace("slab_cells", "slab_cell"))
        os.kill(feeds()["two"].pid, signal.SIGKILL)
        wait_until(lambda: "window.slab_cell" in feeds()["two"].failure, "the key")
        assert feeds()["one"].state == "running"
    ear.sock.close()


def test_a_feed_that_runs_elsewhere_is_named_and_begins_when_that_process_has_gone(tmp_path, ports):
    ear = Ear(str(tmp_path / "ear"))
    with (
        Subscriber(tmp_path / "us" / "two.toml") as other,
        running(tmp_path / "us", NOTIFY_SOCKET=str(tmp_path / "ear")) as process,
    ):
        ear.hear("READY=1")
        said = f"feed two runs already (pid {os.getpid()})"
        wait_until(lambda: said in feeds()["two"].failure, "the reason")
        assert feeds()["one"].state == "running"
        assert feeds()["two"].restarts == 0, "it is tried again a minute later"
        other.stop()
        wait_until(lambda: feeds()["two"].state == "running", "the feed")
        assert feeds()["two"].restarts == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert "starting it again when that process has ended, or in 60 s" in process.stderr.read()
    ear.sock.close()


def test_all_wrong_files_are_named_and_no_feed_is_started(tmp_path, ports):
    (tmp_path / "us" / "one.toml").write_text("name = 3")
    (tmp_path / "us" / "two.toml").write_text("= 3")
    result = CliRunner().invoke(cli, ["run", str(tmp_path / "us")])
    assert result.exit_code == 1 and not (tmp_path / "shm").exists()
    text = str(result.exception)
    assert "one.toml: name: expected" in text and "two.toml: expected TOML" in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"four.toml": 'name = "one"'}, "expected each feed's own, found 'one' again"),
        ({"host.toml": 'group = "one"'}, "expected a name that no feed of the group has"),
        ({"host.toml": 'group = "a b"'}, "group: expected"),
        ({"host.toml": 'cores = "0"'}, "expected room for 3 feeds, found room for 1"),
        ({"host.toml": "corse = 1"}, "corse"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(tmp_path, ports, change, expected):
    lines = '\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:1"\n'
    for name, text in change.items():
        path = tmp_path / "us" / name
        path.write_text(text + (lines if name == "four.toml" else ""))
    result = CliRunner().invoke(cli, ["run", str(tmp_path / "us")])
    assert expected in str(result.exception)


def test_options_of_one_feed_and_an_empty_directory_are_refused(tmp_path, ports):
    result = CliRunner().invoke(cli, ["run", str(tmp_path / "us"), "--core", "1"])
    assert result.exit_code == 2 and "for one FEED.TOML" in result.output
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(cli, ["run", str(tmp_path / "empty")])
    assert "expected files of feeds (*.toml), found none" in str(result.exception)
