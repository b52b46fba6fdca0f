"""`udpfast bus stat` shows the true state of stores, with living and with dead daemons."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.agents.test_bus_host import running, settings, stream
from tests.waiting import wait_until
from udpfast.agents.bus.bus_sockets import BadPath
from udpfast.archive.bus_files import describe_store, read_description
from udpfast.cli.main import cli
from udpfast.client.app import App
from udpfast.client.reader import Reader
from udpfast.core.clock import realtime_ns
from udpfast.net.ports import free_port


def stat(folder: Path, host: str, *options: str) -> str:
    """Return what the command prints on a host."""
    command = ["bus", "stat", str(folder / "bus.toml"), "--directory", str(folder / host)]
    done = CliRunner().invoke(cli, [*command, *options])
    assert done.exit_code in (0, 1), done.output  # 1: something needs attention
    return done.output


def state(folder: Path, host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stat(folder, host, "--json"))["orders"]
    return found


def test_stat_of_a_store_that_is_not_here_says_where_it_looked(tmp_path: Path) -> None:
    settings(tmp_path, free_port())
    output = stat(tmp_path, "nowhere")
    assert f"orders: not in {tmp_path / 'nowhere'}; if it lies elsewhere" in output


def test_stat_shows_how_far_all_are_and_what_was_sent_again(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    with ExitStack() as stack:
        writer = stack.enter_context(running(config, "S", tmp_path, bad=BadPath(0.2, 0.5)))
        other = stack.enter_context(running(config, "one", tmp_path))
        wait_until(lambda: other.parts[0].store.end, "the copy")
        app = stack.enter_context(App(f"store:{tmp_path / 'one' / 'orders'}", "algo"))
        for number in range(1, 401):
            app.send(b"%d" % number)
        stream(app, 400)
        wait_until(lambda: app.counts()["freed"] == 400, "the copies")
        reader = stack.enter_context(Reader(f"store:{tmp_path / 'S' / 'orders'}", name="slow"))
        store, sequencer = writer.parts[0].store, writer.parts[0].node.sequencer
        assert sequencer is not None
        wait_until(lambda: state(tmp_path, "S")["synced"] == store.end, "the disk")
        wait_until(lambda: state(tmp_path, "S")["readers"], "the reader")
        own = state(tmp_path, "S")
        assert own["end"] == own["synced"] == own["released"] == own["kept"] == store.end
        assert own["records"] == store.log.end_index
        assert own["epoch"] == f"{store.epoch:x}"
        assert own["consumers"]["one"] == {
            "connected": True, "acked": store.end, "lag_bytes": 0, "lag_records": 0, "lag_ms": 0,
        }  # fmt: skip
        said = own["verdicts"]
        assert said["accepted"] == 401  # and the registration
        assert sum(said.values()) + own["held"] == own["received"] == sequencer.received
        behind = own["readers"][0]
        assert (behind["name"], behind["alive"]) == ("slow", True)
        assert behind["lag_records"] == store.log.end_index - behind["index"]
        wait_until(lambda: state(tmp_path, "one")["source_end"] == store.end, "the writer's word")
        copy = state(tmp_path, "one")
        assert copy["end"] == copy["source_end"] == store.end
        sender = copy["outboxes"]["algo"]
        assert sender.items() >= app.counts().items()
        assert (sender["state"], sender["waiting"], sender["slots"]) == ("registered", 0, 65_536)
        shown = stat(tmp_path, "one")
        assert "orders on one: copies from S, 0 bytes behind, epoch " in shown
        assert f"datagrams {sender['datagrams']}, resent {sender['resent']}, state" in shown
        assert f"{said['duplicate']:,} duplicate" in stat(tmp_path, "S") or not said["duplicate"]
        reader.close()


def test_stat_shows_what_a_dead_host_lacks_and_what_it_said_last(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    with running(config, "S", tmp_path) as writer:
        with running(config, "one", tmp_path) as other:
            wait_until(lambda: other.parts[0].store.end, "the copy")
            wait_until(lambda: writer.parts[0].store.acks.get("one", (0, 0))[0], "its word")
            end = other.parts[0].store.end
        wait_until(lambda: "one" not in writer.parts[0].store.links, "the end of the link")
        sent_ns = realtime_ns()
        with App(f"store:{tmp_path / 'S' / 'orders'}", "algo") as app:
            for _ in range(5):
                app.send(b"x" * 100)
            stream(app, 5)
        store = writer.parts[0].store
        wait_until(lambda: state(tmp_path, "S")["end"] == store.end, "the word")
        wait_until(lambda: state(tmp_path, "S")["consumers"]["one"]["lag_ms"] >= 10, "some time")
        lacks = state(tmp_path, "S")["consumers"]["one"]
        assert not lacks["connected"]
        assert lacks["lag_records"] == 6  # SENDER and the messages
        assert lacks["lag_ms"] <= (realtime_ns() - sent_ns) // 1_000_000
        assert lacks["lag_bytes"] == store.end - end
        assert "copy one: not connected, 6 records, " in stat(tmp_path, "S")
        dead = state(tmp_path, "one")
        wait_until(lambda: not state(tmp_path, "one")["alive"], "its silence")
        assert dead["end"] == end
        assert dead["silent_s"] > 0
        assert "(its daemon has not run for " in stat(tmp_path, "one")


def test_stat_of_a_killed_daemon_shows_where_its_records_end(tmp_path: Path) -> None:
    store = tmp_path / "S" / "orders"
    config = settings(tmp_path, free_port())
    with running(config, "S", tmp_path) as writer, running(config, "one", tmp_path):
        wait_until(lambda: writer.parts[0].store.end, "the store")
        wait_until(lambda: state(tmp_path, "S")["end"] == writer.parts[0].store.end, "its word")
        said = read_description(store)
        with App(f"store:{store}", "algo") as app:
            for _ in range(5):
                app.send(b"x")
            stream(app, 5)
        end, records = writer.parts[0].store.end, writer.parts[0].store.log.end_index
    describe_store(store, said)  # the last description of a killed daemon
    wait_until(lambda: not state(tmp_path, "S")["alive"], "its silence")
    assert said["end"] < end
    assert (state(tmp_path, "S")["end"], state(tmp_path, "S")["records"]) == (end, records)


def test_copy_whose_writer_was_stopped_in_good_order_says_so_without_alarm(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    command = ["bus", "stat", str(tmp_path / "bus.toml"), "--directory", str(tmp_path / "one")]
    with running(config, "one", tmp_path) as copy:
        part = copy.parts[0]

        def left() -> int:
            return "\n".join(part.store.said).count("S was stopped in good order")

        for times in (1, 2):
            with running(config, "S", tmp_path):
                wait_until(lambda: part.node.stream_comes, "the stream")
            wait_until(lambda times=times: left() == times, "its goodbye")
        wait_until(lambda: state(tmp_path, "one")["source_left"] == "S", "its word")
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        assert "orders on one: S was stopped in good order" in done.output
        assert state(tmp_path, "one")["source_gone_ns"] is None
        assert "\n".join(part.store.said).count("copies from S again") == 1


def test_copy_whose_writer_is_gone_says_so_and_since_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("udpfast.bus.node.Node.stop", lambda _: None)  # as if it were killed
    config = settings(tmp_path, free_port())
    command = ["bus", "stat", str(tmp_path / "bus.toml"), "--directory", str(tmp_path / "one")]
    with running(config, "one", tmp_path) as copy:
        with running(config, "S", tmp_path):
            wait_until(lambda: copy.parts[0].node.stream_comes, "the stream")
            wait_until(lambda: state(tmp_path, "one")["following"], "its word")
            assert CliRunner().invoke(cli, [*command, "--host", "one"]).exit_code == 0
        wait_until(lambda: state(tmp_path, "one")["source_gone_ns"], "the end of the stream")
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 1
        assert "ATTENTION: nothing has come from S since 20" in done.output
        assert any("nothing has come from S for 2 s" in line for line in copy.parts[0].store.said)
        other = CliRunner().invoke(cli, [*command, "--host", "S"])
        assert "expected the store of S, found that of one" in str(other.exception)


def test_reader_that_was_killed_is_not_shown(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    with running(config, "S", tmp_path, begin=["orders"]) as daemon:
        wait_until(lambda: daemon.parts[0].store.end, "the store")
        address = f"store:{tmp_path / 'S' / 'orders'}"
        code = f"import time, udpfast; r = udpfast.Reader({address!r}); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code])
        wait_until(lambda: state(tmp_path, "S")["readers"], "the reader")
        child.kill()
        child.wait()
        wait_until(lambda: not state(tmp_path, "S")["readers"], "its end")
