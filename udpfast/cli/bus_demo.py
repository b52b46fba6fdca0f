"""`udpfast bus demo`: three hosts as processes on loopback, and what goes wrong with them."""

from __future__ import annotations

import functools
import hashlib
import itertools
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from udpfast.archive.bus_files import Live, LiveState, read_description
from udpfast.archive.store import StoreView
from udpfast.bus.outbox import OutboxFullError
from udpfast.client.app import App
from udpfast.core.layout import Kind
from udpfast.errors import NotReadyError, UdpfastError
from udpfast.net.ports import free_ports

__all__ = ["run_demo"]

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2", "two": "127.0.0.3"}
#: Seconds after which what did not happen never will.
PATIENCE_S = 120.0


class _Demo:
    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        self.folder = folder
        self.say = say
        self.file = folder / "bus.toml"
        hosts = "\n".join(f'{name} = "{address}"' for name, address in HOSTS.items())
        self.file.write_text(
            f'[hosts]\n{hosts}\n\n[stores.orders]\nsequencer = "S"\n'
            f'replicas = ["one", "two"]\nport = {free_ports(1)[0]}\nresend_ms = 50\n'
            "segment_bytes = 1048576\nquarantine = true\n"
        )
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.apps: dict[str, App] = {}
        self.sent: dict[tuple[str, int], int] = {}  # (app, number) -> when, ns
        self.seen_ns: dict[str, list[int]] = {name: [] for name in HOSTS}

    def path(self, host: str) -> Path:
        return self.folder / host / "orders"

    def start(self, host: str) -> None:
        log = (self.folder / f"{host}.log").open("ab")
        self.daemons[host] = subprocess.Popen(
            [sys.executable, "-m", "udpfast", "bus", "run", str(self.file), "--host", host,
             "--directory", str(self.folder / host), "--lose", "0.05", "--twice", "0.05"],
            stdout=log, stderr=log,
        )  # fmt: skip
        log.close()

    def kill(self, host: str) -> None:
        self.daemons[host].kill()
        self.daemons[host].wait()

    def attach(self, host: str) -> None:
        def ready() -> bool:
            try:
                self.apps[host] = App(f"store:{self.path(host)}", f"app-{host}",
                                      slots=4096, capacity_bytes=1 << 20)  # fmt: skip
            except (NotReadyError, FileNotFoundError):
                return False
            return True

        self.until(ready, f"the daemon of {host}")

    def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise UdpfastError(f"waited in vain for {what}; see {self.folder}")
            self.read()
            time.sleep(0.001)

    def read(self) -> None:
        """Have every app read what came."""
        for host, app in self.apps.items():
            now_ns = time.monotonic_ns()
            for record in app.poll():
                key = record.sender, record.number
                if record.kind == Kind.BUS and record.sender == app.name and key in self.sent:
                    self.seen_ns[host].append(now_ns - self.sent.pop(key))

    def send(self, count: int) -> None:
        """Have every app send so many messages."""
        for _ in range(count):
            for app in self.apps.values():
                try:
                    app.send(b"%d" % time.monotonic_ns(), 7)
                except OutboxFullError:
                    self.read()
                    app.send(b"%d" % time.monotonic_ns(), 7, timeout=PATIENCE_S)
            self.read()

    def measure(self, count: int) -> None:
        """Have one app after the other send a message, and wait until it sees it."""
        for _ in range(count):
            for app in self.apps.values():
                sent_ns = time.monotonic_ns()
                key = app.name, app.send(b"%d" % sent_ns, 7)
                self.sent[key] = sent_ns
                self.until(functools.partial(self._is_back, key), "a message to come back")

    def _is_back(self, key: tuple[str, int]) -> bool:
        return key not in self.sent

    def state(self, host: str) -> dict[str, Any]:
        return read_description(self.path(host))

    def lives(self, host: str) -> LiveState:
        return Live(self.path(host)).read()

    def is_writer(self, host: str) -> bool | None:
        """Say whether a host's daemon says so; None: the one that runs said nothing so far."""
        state = self.state(host)
        return bool(state["writer"]) if state["pid"] == self.daemons[host].pid else None

    def is_settled(self) -> bool:
        states = [self.lives(host) for host in HOSTS]
        return (
            len({(s.end, s.epoch) for s in states}) == 1
            and all(app.counts()["accepted"] == app.counts()["seen"] for app in self.apps.values())
            and [self.is_writer(host) for host in HOSTS] == [host == "one" for host in HOSTS]
        )


def run_demo(messages: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Run it; return what it found, `ok` and all counts.

    Parameters
    ----------
    messages : int
        That each of three apps sends.
    say : callable
        Is told what happens, a line at a time.
    """
    with tempfile.TemporaryDirectory(prefix="udpfast-bus-") as folder:
        demo = _Demo(Path(folder), say)
        try:
            return _run(demo, messages)
        finally:
            for daemon in demo.daemons.values():
                if daemon.poll() is None:
                    daemon.kill()
                    daemon.wait()


def _run(demo: _Demo, messages: int) -> dict[str, Any]:
    say = demo.say
    say("three hosts on loopback; 5 % of the datagrams are lost, 5 % come twice")
    for host in HOSTS:
        demo.start(host)
    for host in HOSTS:
        demo.attach(host)
    share = max(messages // 5, 1)
    demo.measure(share)
    say("kill -9: the daemon of one")
    demo.kill("one")
    demo.send(share)
    demo.start("one")
    say("kill -9: the sequencer")
    demo.kill("S")
    demo.send(share)
    demo.start("S")
    demo.until(lambda: demo.is_writer("S"), "the sequencer")
    say("stopped for 2 s: the daemon of two")
    demo.daemons["two"].send_signal(signal.SIGSTOP)
    demo.send(share)
    time.sleep(2)
    demo.daemons["two"].send_signal(signal.SIGCONT)
    say("promoted: one; the sequencer is dead")
    demo.kill("S")
    subprocess.run(
        [sys.executable, "-m", "udpfast", "bus", "promote", str(demo.file), "orders", "--host",
         "one", "--directory", str(demo.folder / "one"), "--wait", str(PATIENCE_S)],
        check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    demo.start("S")
    demo.send(messages - 4 * share)
    demo.until(demo.is_settled, "one to write, and every copy to have every message")
    return _judge(demo, messages)


def _judge(demo: _Demo, messages: int) -> dict[str, Any]:
    digests = {host: hashlib.sha256() for host in HOSTS}
    counts: Counter[tuple[int, int]] = Counter()
    records = 0
    for host, digest in digests.items():
        view = StoreView(demo.path(host))
        for content in view.records(view.first()[0], demo.lives(host).end):
            digest.update(content)
            records += host == "S"
            if host == "S" and content[4] == Kind.BUS:
                counts[int.from_bytes(content[48:50], "little"),
                       int.from_bytes(content[40:48], "little")] += 1  # fmt: skip
    states = {host: demo.state(host) for host in HOSTS}
    accepted = {host: app.counts()["accepted"] for host, app in demo.apps.items()}
    found = {
        "accepted": sum(accepted.values()),
        "in the stream": len(counts),
        "twice": sum(count - 1 for count in counts.values()),
        "sent again": sum(app.counts()["resent"] for app in demo.apps.values()),
        "records": records,
        "epoch": states["one"]["epoch"],
        "reconnects": sum(state["reconnects"] for state in states.values()),
        "sha256": {host: digest.hexdigest() for host, digest in digests.items()},
        "send to seen, ms": {host: _quantiles(times) for host, times in demo.seen_ns.items()},
    }
    found["ok"] = (
        found["accepted"] == found["in the stream"] == messages * len(HOSTS)
        and found["twice"] == 0
        and len(set(found["sha256"].values())) == 1
    )
    for name, value in itertools.islice(found.items(), 7):
        demo.say(f"  {name:14} {value}")
    for host, times in found["send to seen, ms"].items():
        demo.say(f"  {host}: send to seen p50 {times['p50']} ms, p99 {times['p99']} ms")
    demo.say("ok: every message accepted is in every copy, once" if found["ok"] else "NOT ok")
    return found


def _quantiles(times: list[int]) -> dict[str, float]:
    if len(times) < 2:
        return {"p50": 0.0, "p99": 0.0, "count": len(times)}
    cuts = statistics.quantiles(times, n=100)
    return {"p50": round(cuts[49] / 1e6, 3), "p99": round(cuts[98] / 1e6, 3), "count": len(times)}
