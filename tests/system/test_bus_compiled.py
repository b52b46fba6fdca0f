"""Apps in C and Cython with real daemons: killed, full, of one name; Python reads from them."""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import udpfast
from tests.client.test_bus_header import DRIVER, SANITIZED, STRICT, Driver
from tests.shared import ROOT
from tests.test_header import compiler
from tests.waiting import PATIENCE_S, wait_until
from udpfast.cli.bus_hosts import BusHosts
from udpfast.client.app import App
from udpfast.core.layout import Kind
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

EXAMPLE = ROOT / "docs/examples/bus_app.c"
HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2"}
SETTINGS = 'sequencer = "S"\nreplicas = ["one"]\nresend_ms = 20\nsegment_bytes = 262144\n'


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the test driver and the example, built with sanitizers."""
    folder = tmp_path_factory.mktemp("programs")
    for source in (DRIVER, EXAMPLE):
        command = [compiler(), *STRICT, *SANITIZED, "-o", folder / source.stem, source]
        subprocess.run(command, check=True)
    return folder / DRIVER.stem, folder / EXAMPLE.stem


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[BusHosts]:
    with BusHosts(tmp_path, HOSTS, SETTINGS, free_port()) as hosts:
        for host in HOSTS:
            hosts.start(host)
        for host in HOSTS:
            hosts.until(lambda host=host: is_running(hosts, host), f"the daemon of {host}")
        yield hosts


def is_running(hosts: BusHosts, host: str) -> bool:
    try:
        return hosts.lives(host).following
    except FileNotFoundError:
        return False


def messages(app: App, sender: str, count: int) -> list[tuple[int, bytes]]:
    """Wait for some messages of a sender, and return them."""
    found: list[tuple[int, bytes]] = []

    def enough() -> bool:
        found.extend((record.number, record.payload) for record in app.poll()
                     if record.kind is Kind.BUS and record.sender == sender)  # fmt: skip
        return len(found) >= count

    wait_until(enough, f"{count} messages of {sender}")
    return found


def test_app_in_c_killed_in_the_middle_sends_each_message_once(
    bus: BusHosts, programs: tuple[Path, Path]
) -> None:
    address = f"store:{bus.path('one')}"
    command = [programs[1], address, "c-app", "10000"]
    App(address, "c-app", slots=256).close()  # the program continues in it, never far ahead
    with App(address, "watch") as watch:
        before = []
        for kills in range(1, 4):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout
            before.append(int(process.stdout.readline().split()[0]))
            wait_until(lambda due=kills * 1500: sent(bus) >= due, f"{kills * 1500} messages")
            process.kill()
            process.communicate()
        last = subprocess.run(command, capture_output=True, text=True, check=False)
        assert last.returncode == 0, last.stderr
        assert before[0] == 0 < before[1] < before[2] < 10_000
        assert last.stdout.splitlines()[-1].startswith("10000 came back")
        found = messages(watch, "c-app", 10_000)
    assert found == [(n, b"message %d" % n) for n in range(1, 10_001)]
    bus.until(bus.are_equal, "equal copies")
    copies = [bus.copy(host) for host in HOSTS]
    assert copies[0] == copies[1]
    assert copies[0].in_order


def sent(bus: BusHosts) -> int:
    return bus.copy("one").messages


def test_app_in_c_waits_while_its_daemon_does_and_is_the_only_one_of_its_name(
    bus: BusHosts, programs: tuple[Path, Path]
) -> None:
    address = f"store:{bus.path('one')}"
    driver = Driver(programs[0], "send", address, "c-app", 64, 1 << 16)
    assert driver.opened == "open"
    assert driver.send(1389)[0] == -2
    bus.daemons["one"].send_signal(signal.SIGSTOP)
    accepted = 0
    while (number := driver.send(8)[0]) > 0:
        accepted = number
    assert (number, accepted) == (-1, 64)  # full: no message was let go
    bus.daemons["one"].send_signal(signal.SIGCONT)
    for _ in range(20):  # the daemon checks the lock meanwhile
        second = Driver(programs[0], "send", address, "c-app", 64, 1 << 16)
        assert second.opened.startswith("-20 "), second.opened
        second.end()

    def more() -> bool:
        nonlocal accepted
        accepted = max(accepted, driver.send(8)[0])
        return accepted >= 200

    wait_until(more, "room in the outbox")
    driver.end()
    with App(f"store:{bus.path('S')}", "watch") as watch:
        found = messages(watch, "c-app", accepted)
    assert [number for number, _ in found] == list(range(1, accepted + 1))


@pytest.mark.nightly  # compiles a module: the test of a strategy in C has the same daemons
def test_app_in_cython_answers_without_the_gil_and_once_though_killed(
    bus: BusHosts, tmp_path: Path
) -> None:
    source = tmp_path / "bus_app.pyx"
    source.write_text((ROOT / "docs/examples/bus_app.pyx").read_text())
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    subprocess.run([sys.executable, "-m", "cython", "-3", f"-I{ROOT}", source.name],
                   cwd=tmp_path, env=environment, check=True)  # fmt: skip
    include = sysconfig.get_path("include")
    module = f"bus_app{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run([compiler(), "-shared", "-fPIC", "-O1", f"-I{include}",
                    f"-I{udpfast.get_include()}", "-o", module, "bus_app.c"],
                   cwd=tmp_path, check=True)  # fmt: skip
    address = f"store:{bus.path('one')}"
    count = 3000
    call = f"import bus_app; bus_app.main({address!r}, 'answers', {count})"
    with App(f"store:{bus.path('S')}", "asks") as app:
        answering = subprocess.Popen([sys.executable, "-c", call], cwd=tmp_path, env=environment)
        for number in range(1, count // 3 + 1):
            app.send(b"%d" % number, 1, timeout=PATIENCE_S)
        wait_until(lambda: app.counts()["seen"] == count // 3, "requests in the stream")
        messages_before = messages(app, "answers", 1)
        answering.kill()
        answering.wait()
        for number in range(count // 3 + 1, count + 1):
            app.send(b"%d" % number, 1, timeout=PATIENCE_S)
        subprocess.run([sys.executable, "-c", call], cwd=tmp_path, env=environment, check=True)
        found = messages_before + messages(app, "answers", count - len(messages_before))
    assert found == [(number, b"%d" % number) for number in range(1, count + 1)]
