"""`udpfast bus demo`: three hosts as processes on loopback, and what goes wrong with them."""

from __future__ import annotations

import functools
import itertools
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from udpfast.bus.outbox import OutboxFullError
from udpfast.cli.bus_hosts import PATIENCE_S, BusHosts
from udpfast.client.app import App
from udpfast.core.layout import Kind
from udpfast.net.ports import service_port

__all__ = ["run_demo"]

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2", "two": "127.0.0.3"}
SETTINGS = """\
sequencer = "S"
replicas = ["one", "two"]
resend_ms = 50
segment_bytes = 1048576
quarantine = true
"""


class _Demo(BusHosts):
    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        bad = ("--lose", "0.05", "--twice", "0.05")
        super().__init__(folder, HOSTS, SETTINGS, service_port(), options=bad)
        self.say = say
        self.apps: dict[str, App] = {}
        self.sent: dict[tuple[str, int], int] = {}  # (app, number) -> when, ns
        self.seen_ns: dict[str, list[int]] = {name: [] for name in HOSTS}

    def attach(self, host: str) -> None:
        self.apps[host] = self.app(host, f"app-{host}", slots=4096, capacity_bytes=1 << 20)

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
                self.until(
                    functools.partial(self._is_back, key), "a message to come back", self.read
                )

    def _is_back(self, key: tuple[str, int]) -> bool:
        return key not in self.sent

    def is_settled(self) -> bool:
        return (
            self.are_equal()
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
    with (
        tempfile.TemporaryDirectory(prefix="udpfast-bus-") as folder,
        _Demo(Path(folder), say) as demo,
    ):
        return _run(demo, messages)


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
    demo.until(lambda: demo.is_writer("S"), "the sequencer", demo.read)
    say("stopped for 2 s: the daemon of two")
    demo.daemons["two"].send_signal(signal.SIGSTOP)
    demo.send(share)
    time.sleep(2)
    demo.daemons["two"].send_signal(signal.SIGCONT)
    say("promoted: one; the sequencer is dead")
    demo.kill("S")
    demo.promote("one")
    demo.start("S")
    demo.send(messages - 4 * share)
    demo.until(demo.is_settled, "one to write, all copies to have all messages", demo.read)
    return _judge(demo, messages)


def _judge(demo: _Demo, messages: int) -> dict[str, Any]:
    copies = {host: demo.copy(host) for host in HOSTS}
    states = {host: demo.state(host) for host in HOSTS}
    accepted = {host: app.counts()["accepted"] for host, app in demo.apps.items()}
    found = {
        "accepted": sum(accepted.values()),
        "in the stream": copies["S"].messages - copies["S"].twice,
        "twice": copies["S"].twice,
        "sent again": sum(app.counts()["resent"] for app in demo.apps.values()),
        "records": copies["S"].records,
        "epoch": states["one"]["epoch"],
        "reconnects": sum(state["reconnects"] for state in states.values()),
        "sha256": {host: copy.sha256 for host, copy in copies.items()},
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
