"""Files of a store that are removed or truncated while its daemon runs."""

import os
import shutil
from pathlib import Path

import pytest

from udpfast.archive.bus_files import shared_directory
from udpfast.cli.bus_hosts import BusHosts
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2"}
STORE = 'sequencer = "S"\nreplicas = ["one"]\nsegment_bytes = 262144\nresend_ms = 20\n'


@pytest.mark.parametrize("host", HOSTS)
def test_store_that_is_deleted_under_its_daemon_is_said_and_others_go_on(
    tmp_path: Path, host: str
) -> None:
    tables = f"[stores.other]\nport = {free_port()}\n{STORE}"
    with BusHosts(tmp_path, HOSTS, STORE, free_port(), tables=tables) as bus:
        for each in HOSTS:
            bus.start(each)
        with bus.app("S", "a") as first, bus.app("S", "b", "other") as second:
            for app in (first, second):
                app.send(b"x")
                bus.until(lambda app=app: app.counts()["freed"] == 1, "a message on both hosts")
            shutil.rmtree(bus.path(host))
            log = tmp_path / f"{host}.log"
            bus.until(lambda: "; keeps trying" in log.read_text(), "a sentence")
            assert f"orders: {bus.path(host)}" in log.read_text()
            for _ in range(1000):
                second.send(bytes(1000), timeout=30.0)
            bus.until(lambda: second.counts()["freed"] == 1001, "what the other store goes on with")
        assert all(daemon.poll() is None for daemon in bus.daemons.values())
        text = log.read_text()
        assert "Traceback" not in text
        assert text.count("; keeps trying") < 5


@pytest.mark.parametrize("name", ["bus.live", "a.outbox"])
def test_file_that_is_cut_under_its_daemon_ends_that_with_a_sentence(
    tmp_path: Path, name: str
) -> None:
    with BusHosts(tmp_path, HOSTS, STORE, free_port()) as bus:
        for each in HOSTS:
            bus.start(each)
        with bus.app("S", "a") as app:
            app.send(b"x")
            bus.until(lambda: app.counts()["freed"] == 1, "a message on both hosts")
        store = bus.path("S")
        path = store / name if name == "bus.live" else shared_directory(store) / name
        os.truncate(path, 0)
        bus.until(lambda: bus.daemons["S"].poll() is not None, "the daemon's end")
        assert bus.daemons["S"].poll() == 1
        assert f"udpfast: {path}: expected the file as it was" in (tmp_path / "S.log").read_text()
        assert bus.daemons["one"].poll() is None
