"""Daemons of a bus on loopback, each in a thread of this process, with real sockets and files."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.bus import bus_host
from udpfast.agents.bus.bus_host import BusHost
from udpfast.agents.bus.bus_sockets import BadPath
from udpfast.archive.bus_files import shared_directory
from udpfast.bus.outbox import OutboxState
from udpfast.client.app import App
from udpfast.config.bus import BusConfig, LinksConfig, load_bus
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, OutboxFullError, OutboxLostError, SupersededError
from udpfast.net.ports import free_port

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2"}
KEY, OTHER = "ab" * 32, "cd" * 32


def settings(folder: Path, port: int, *, key: str = "", more: str = "") -> BusConfig:
    """Write bus.toml, with a key file if there is a key, and read it."""
    folder.mkdir(parents=True, exist_ok=True)
    hosts = "".join(f'{name} = "{address}"\n' for name, address in HOSTS.items())
    if key:
        (folder / "bus.key").write_text(key)
        (folder / "bus.key").chmod(0o600)
    (folder / "bus.toml").write_text(
        ('key_file = "bus.key"\n' if key else "") + f"[hosts]\n{hosts}"
        f'[stores.orders]\nsequencer = "S"\nreplicas = ["one"]\nport = {port}\nresend_ms = 20\n'
        f"segment_bytes = 1048576\n{more}"
    )
    return load_bus(folder / "bus.toml")


@contextmanager
def running(config: BusConfig, host: str, folder: Path, **options) -> Iterator[BusHost]:
    daemon = BusHost(config, host, folder / host, **options)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        thread.join()


def stream(app: App, count: int) -> list[tuple[str | None, int]]:
    found: list[tuple[str | None, int]] = []

    def enough() -> bool:
        found.extend((r.sender, r.number) for r in app.poll() if r.kind is Kind.BUS)
        return len(found) >= count

    wait_until(enough, f"{count} messages")
    return found


def test_daemon_that_was_stopped_takes_nothing_from_then_on(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    with ExitStack() as apps:
        with running(config, "S", tmp_path, begin=["orders"]):
            address = f"store:{tmp_path / 'S' / 'orders'}"
            app = apps.enter_context(App(address, "app", timeout=PATIENCE_S))
            wait_until(lambda: app.alive, "the sequencer")
        assert not app.alive


def test_standby_that_is_away_stops_no_app(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port(), more="away_ms = 100\n")
    with running(config, "S", tmp_path, begin=["orders"]) as writer:
        wait_until(lambda: writer.parts[0].node.sequencer, "the sequencer")
        with App(f"store:{tmp_path / 'S' / 'orders'}", "app", slots=1 << 12) as app:
            for number in range(3 << 12):
                app.send(b"%d" % number, timeout=PATIENCE_S)
            wait_until(lambda: app.counts()["freed"] == 3 << 12, "the disk")
        said = writer.parts[0].description()
        assert said["away"] == ["one"]
        assert said["unprotected"] >= 3 << 12
        with running(config, "one", tmp_path):
            wait_until(lambda: not writer.parts[0].store.release.away, "the copy to catch up")
            wait_until(lambda: not writer.parts[0].store.unprotected_bytes, "what it lacked")
        assert any("one has caught up" in line for line in writer.parts[0].store.said)


@pytest.mark.parametrize("release", ['"all"', "1"])
def test_standby_that_is_waited_for_is_named_when_outboxes_are_full(
    tmp_path: Path, release: str
) -> None:
    config = settings(tmp_path, free_port(), more=f"away_ms = 100\nrelease = {release}\n")
    with running(config, "S", tmp_path, begin=["orders"]) as writer:
        wait_until(lambda: writer.parts[0].node.sequencer, "the sequencer")
        with App(f"store:{tmp_path / 'S' / 'orders'}", "app", slots=16) as app:
            for number in range(16):
                app.send(b"%d" % number)
            wait_until(lambda: app.counts()["seen"] == 16, "messages in the stream")
            wait_until(lambda: writer.parts[0].description()["waits_for"] == ["one"], "the copy")
            with pytest.raises(OutboxFullError, match="they wait for copies on one"):
                app.send(b"x", timeout=0.5)
            assert writer.parts[0].store.release.away == ()
            with running(config, "one", tmp_path):
                app.send(b"x", timeout=PATIENCE_S)


@pytest.mark.parametrize("key", ["", KEY])
def test_apps_of_two_hosts_read_one_order(tmp_path: Path, key: str) -> None:
    config = settings(tmp_path, free_port(), key=key)
    bad = BadPath(0.1, 0.1)
    with ExitStack() as stack:
        daemons = {name: stack.enter_context(running(config, name, tmp_path, bad=bad))
                   for name in HOSTS}  # fmt: skip
        wait_until(lambda: daemons["one"].parts[0].store.end, "the copy")
        apps = {name: stack.enter_context(App(f"store:{tmp_path / name / 'orders'}", f"app-{name}"))
                for name in HOSTS}  # fmt: skip
        for number in range(1, 201):
            assert {app.send(b"%d" % number) for app in apps.values()} == {number}
        order = {name: stream(app, 400) for name, app in apps.items()}
        assert order["S"] == order["one"]
        assert sorted(order["S"]) == sorted(
            (f"app-{name}", number) for name in HOSTS for number in range(1, 201)
        )
        behind = daemons["S"].parts[0].description()["consumers"]
        assert behind["one"]["connected"]
        assert {"lag_bytes", "lag_records", "lag_ms"} <= behind["one"].keys()
        assert not any(daemon.parts[0].sockets.unauthentic for daemon in daemons.values())
    assert not behind["one"]["lag_bytes"] or behind["one"]["lag_records"]


def test_host_with_another_key_gets_nothing(tmp_path: Path) -> None:
    port = free_port()
    right, wrong = (settings(tmp_path / key, port, key=key) for key in (KEY, OTHER))
    with running(right, "S", tmp_path) as writer, running(wrong, "one", tmp_path) as other:
        wait_until(lambda: writer.parts[0].sockets.unauthentic, "a link that is refused")
        assert other.parts[0].store.end == 0
        assert other.parts[0].store.identity == bytes(16)
        assert "a piece of its data was not sealed with a key" in writer.parts[0].store.said[-1]


def test_datagrams_without_a_tag_are_counted_as_what_they_are(tmp_path: Path) -> None:
    port = free_port()
    config = settings(tmp_path, port, key=KEY)
    alone = running(config, "S", tmp_path, begin=["orders"])
    with alone as writer, socket.socket(type=socket.SOCK_DGRAM) as sock:
        wait_until(lambda: writer.parts[0].node.sequencer, "the sequencer")
        sock.sendto(b"USND" + bytes(100), (HOSTS["S"], port))
        wait_until(lambda: writer.parts[0].sockets.unauthentic, "the datagram")
        sequencer = writer.parts[0].node.sequencer
        assert sequencer is not None
        assert sum(sequencer.verdicts.values()) + sequencer.held == sequencer.received == 1


def test_host_that_died_is_said_with_how_far_it_is(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    with running(config, "S", tmp_path, begin=["orders"]) as writer:
        wait_until(lambda: writer.parts[0].store.end, "the store")
        assert writer.parts[0].description()["consumers"]["one"] == {
            "connected": False,
            "acked": None,
        }
        with running(config, "one", tmp_path):
            wait_until(lambda: writer.parts[0].store.acks.get("one", (0, 0))[0], "the copy")
        wait_until(lambda: "one" not in writer.parts[0].store.links, "the end of the link")
        with App(f"store:{tmp_path / 'S' / 'orders'}", "app") as app:
            app.send(b"1")
            assert stream(app, 1) == [("app", 1)]
        behind = writer.parts[0].description()["consumers"]["one"]
        assert not behind["connected"]
        assert behind["lag_records"] == 2  # SENDER and the message
        assert behind["lag_bytes"] > 0


@pytest.mark.parametrize("state", [OutboxState.SUPERSEDED, OutboxState.LOST])
def test_app_begins_anew_where_its_outbox_is_over(tmp_path: Path, state: OutboxState) -> None:
    address = f"store:{tmp_path / 'S' / 'orders'}"
    config = settings(tmp_path, free_port())
    with running(config, "S", tmp_path) as writer, running(config, "one", tmp_path) as copy:
        wait_until(lambda: copy.parts[0].store.end, "the copy")
        with App(address, "app") as app:
            app.send(b"1")
            assert stream(app, 1) == [("app", 1)]
        (path,) = shared_directory(writer.parts[0].directory).glob("*.outbox")
        with path.open("r+b") as file:
            file.seek(304)  # OutboxHeader.state
            file.write(state.to_bytes(4, "little"))
        with App(address, "app") as app, pytest.raises((SupersededError, OutboxLostError)):
            app.send(b"2")
        with App(address, "app", anew=True) as app:
            assert app.send(b"1") == 1
            assert stream(app, 2) == [("app", 1), ("app", 1)]
        with App(address, "app", anew=True) as app:
            assert app.send(b"2") == 2  # the outbox is intact, and continues
        assert len(list(path.parent.glob("app.outbox.aside-*"))) == 1


def test_store_whose_description_cannot_be_written_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path, free_port())
    began_ns = time.monotonic_ns()
    times = (began_ns + turn * bus_host.REST_NS for turn in itertools.count())
    monkeypatch.setattr(bus_host, "monotonic_ns", lambda: next(times))
    (part,) = BusHost(config, "S", tmp_path / "S", begin=["orders"]).parts
    store = tmp_path / "S" / "orders"
    while part.node.sequencer is None or not (store / "bus.json").exists():
        part.turn()
    with App(f"store:{store}", "app") as app:
        (store / "bus.json.next").unlink()
        (store / "bus.json.next").mkdir()
        app.send(b"a message")
        for _ in range(10):
            part.turn()
        assert app.counts()["seen"] == 1
    assert "bus.json.next" in part.disk.failing
    (store / "bus.json.next").rmdir()
    part.end()


def test_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOSTS["S"], 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"stores.orders.port: .* found {port} of 127.0.0.1"):
            BusHost(settings(tmp_path, port), "S", tmp_path / "S")


def threads(name: str) -> list[int]:
    """Return the threads of this process with a name, as the kernel lists them."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            if (task / "comm").read_text().strip() == name:
                found.append(int(task.name))
    return found


@pytest.mark.parametrize(("idle", "key"), [("spin", ""), ("backoff", KEY), ("sleep", "")])
def test_links_have_threads_on_the_cores_that_the_file_says(
    tmp_path: Path, idle: str, key: str
) -> None:
    core = max(os.sched_getaffinity(0))
    config = settings(tmp_path, free_port(), key=key)
    links = LinksConfig(idle=idle, cores={"S": (core,)})
    config = msgspec.structs.replace(config, links=links)
    with ExitStack() as stack:
        for host in HOSTS:
            stack.enter_context(running(config, host, tmp_path))
        wait_until(lambda: threads("udpfast source") and threads("udpfast copy"), "both threads")
        (source,) = threads("udpfast source")
        wait_until(lambda: os.sched_getaffinity(source) == {core}, "its core")
        (copy,) = threads("udpfast copy")
        assert os.sched_getaffinity(copy) == os.sched_getaffinity(0)
        with App(f"store:{tmp_path / 'one' / 'orders'}", "one") as app:
            for _ in range(100):
                app.send(b"x")
            assert [number for _, number in stream(app, 100)] == list(range(1, 101))
    wait_until(lambda: not threads("udpfast source") + threads("udpfast copy"), "their end")
