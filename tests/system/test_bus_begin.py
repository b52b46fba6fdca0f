"""One host begins a store, and none begins a second one: real daemons, started in any order."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from udpfast.archive.bus_files import read_description
from udpfast.archive.store import StoreView
from udpfast.client.app import App
from udpfast.core.layout import Kind
from udpfast.log.segment import segments_identity
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system


class Hosts:
    """Daemons of S and one on loopback, with a store and a composite of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "bus.toml"
        self.file.write_text(
            '[hosts]\nS = "127.0.0.1"\none = "127.0.0.2"\n'
            f'[stores.orders]\nsequencer = "S"\nreplicas = ["one"]\nport = {free_port()}\n'
            "segment_bytes = 262144\nresend_ms = 20\n"
            '[composites.algo]\ninputs = ["orders"]\nhost = "S"\nreplicas = ["one"]\n'
            f"port = {free_port()}\n"
        )
        self.daemons: dict[str, subprocess.Popen[str]] = {}

    def start(self, host: str, *options: str) -> None:
        log = (self.folder / f"{host}.log").open("w")
        command = [sys.executable, "-m", "udpfast", "bus", "run", str(self.file), "--host", host]
        self.daemons[host] = subprocess.Popen(
            [*command, "--directory", str(self.folder / host), *options],
            stdout=log, stderr=log, text=True,
        )  # fmt: skip
        log.close()

    def kill(self, host: str) -> None:
        self.daemons[host].kill()
        self.daemons[host].wait()

    def path(self, host: str, store: str = "orders") -> Path:
        return self.folder / host / store

    def state(self, host: str, store: str = "orders") -> dict[str, Any]:
        """Wait until the running daemon describes a store, and return that."""
        found: list[dict[str, Any]] = []

        def said() -> bool:
            try:
                found[:] = [read_description(self.path(host, store))]
            except FileNotFoundError:
                return False
            return bool(found[0]["pid"] == self.daemons[host].pid)

        wait_until(said, f"what {host} says of {store}")
        return found[0]

    def until(
        self, host: str, what: str, holds: Callable[[Any], object], store: str = "orders"
    ) -> None:
        wait_until(lambda: holds(self.state(host, store)[what]), f"{what} of {store} on {host}")

    def bus(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "udpfast", "bus", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def send(self, host: str, count: int) -> None:
        with App(f"store:{self.path(host)}", f"app-{host}") as app:
            for _ in range(count):
                app.send(b"x" * 100)
            wait_until(lambda: app.counts()["freed"] == app.counts()["accepted"], "the copies")

    def close(self) -> None:
        for host in self.daemons:
            self.kill(host)

    def identity(self, host: str, store: str = "orders") -> bytes | None:
        """Return the identity of the store of a host."""
        return segments_identity(self.path(host, store))

    def messages(self, host: str) -> int:
        view = StoreView(self.path(host))
        return len(list(view.records(view.first()[0], 1 << 62, kinds=1 << Kind.BUS)))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    made = Hosts(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("order", [("S", "one"), ("one", "S")])
def test_store_begins_when_both_hosts_are_up(hosts: Hosts, order: tuple[str, str]) -> None:
    hosts.start(order[0])
    hosts.until(order[0], "store", bool)
    if order[0] == "S":
        hosts.until("S", "waits", bool)
        assert hosts.state("S")["end"] == hosts.state("S", "algo")["end"] == 0
        shown = hosts.bus("stat", str(hosts.file), "--directory", str(hosts.folder / "S")).stdout
        assert "waits: this host has nothing" in shown
        assert "still waiting for one" in shown
        wait_until(lambda: "orders: this host has nothing" in (hosts.folder / "S.log").read_text())
    hosts.start(order[1])
    for host in order:
        hosts.until(host, "end", bool)
        hosts.until(host, "waits", lambda waits: waits == "")
    hosts.send("one", 10)
    assert hosts.messages("S") == hosts.messages("one") == 10


def test_host_that_lost_its_disk_begins_no_second_store(hosts: Hosts) -> None:
    for host in ("S", "one"):
        hosts.start(host)
    for store in ("orders", "algo"):
        hosts.until("one", "end", bool, store)
    hosts.send("S", 50)
    before = hosts.identity("one"), hosts.identity("one", "algo")
    hosts.kill("S")
    shutil.rmtree(hosts.folder / "S")
    hosts.start("S", "--begin", "orders", "--begin", "algo")  # not even if told not to wait
    hosts.until("S", "waits", lambda waits: waits and "copies the store from one" in waits)
    assert hosts.state("S")["end"] == hosts.state("S", "algo")["end"] == 0
    for store in ("orders", "algo"):
        done = hosts.bus("promote", str(hosts.file), store, "--host", "S", "--wait", "60",
                         "--directory", str(hosts.folder / "S"))  # fmt: skip
        assert done.returncode == 0, done.stderr
    hosts.send("one", 50)
    assert hosts.messages("S") == hosts.messages("one") == 100
    for host in ("S", "one"):
        assert (hosts.identity(host), hosts.identity(host, "algo")) == before
    assert hosts.state("S")["waits"] == ""


def test_host_that_is_told_so_begins_without_the_others(hosts: Hosts) -> None:
    hosts.start("S", "--begin", "orders")
    hosts.until("S", "end", bool)
    assert hosts.state("S", "algo")["end"] == 0, "it was told so of one of the two"
    shown = hosts.bus("stat", str(hosts.file), "--directory", str(hosts.folder / "S"), "--json")
    stores = json.loads(shown.stdout)
    assert stores["orders"]["writer"]
    assert not stores["algo"]["writer"]
    hosts.start("one")
    hosts.until("one", "end", bool)


def test_store_that_the_host_does_not_begin_is_refused(hosts: Hosts) -> None:
    done = hosts.bus("run", str(hosts.file), "--host", "one", "--begin", "orders")
    assert done.returncode == 2
    assert "--begin: expected a store whose sequencer is one (there is none), found 'orders'" in (
        done.stderr
    )
