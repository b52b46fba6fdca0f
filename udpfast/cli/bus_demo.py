"""`udpfast bus demo`: three hosts as processes on loopback, and what goes wrong with them."""

from __future__ import annotations

import functools
import hashlib
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from udpfast.cli.bus_hosts import PATIENCE_S, STORE, BusHosts
from udpfast.cli.scratch import scratch_directory
from udpfast.client.app import App
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import OutboxFullError
from udpfast.net.ports import free_port

__all__ = ["run_demo"]

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2", "two": "127.0.0.3"}
SETTINGS = """\
sequencer = "S"
replicas = ["one", "two"]
resend_ms = 50
segment_bytes = 1048576
quarantine = true
"""
#: A second store, written where the first one is copied to, and both as one stream.
QUOTES, COMPOSITE = "quotes", "all"
TABLES = """
[stores.quotes]
sequencer = "two"
replicas = ["S", "one"]
port = {}
resend_ms = 50

[composites.all]
inputs = ["orders", "quotes"]
host = "two"
replicas = ["S", "one"]
port = {}
"""
STORES = (STORE, QUOTES)
#: On each host one app sends into the first store; one more into the second.
APPS = {**dict.fromkeys(HOSTS, STORE), "quotes": QUOTES}
HOPS = ("send to order", "order to seen", "send to seen")


class _Demo(BusHosts):
    def __init__(self, folder: Path, say: Callable[[str], object]) -> None:
        bad = ("--lose", "0.05", "--twice", "0.05", "--cut-s", "0.5")
        ports = [free_port() for _ in range(3)]
        super().__init__(
            folder, HOSTS, SETTINGS, ports[0], options=bad, tables=TABLES.format(*ports[1:])
        )
        self.say = say
        self.apps: dict[str, App] = {}
        self.sent: dict[tuple[str, int], int] = {}  # (app, number) -> when, UNIX ns
        self.took_ns: dict[str, list[tuple[int, int, int]]] = {name: [] for name in APPS}

    def attach(self) -> None:
        """Begin all apps."""
        for name, store in APPS.items():
            host = name if name in HOSTS else "two"
            self.apps[name] = self.app(
                host, f"app-{name}", store, slots=4096, capacity_bytes=1 << 20
            )

    def read(self) -> None:
        """Have every app read what came."""
        for name, app in self.apps.items():
            now_ns = time.time_ns()
            for record in app.poll():
                key = record.sender, record.number
                if record.kind == Kind.BUS and record.sender == app.name and key in self.sent:
                    sent_ns, ordered_ns = self.sent.pop(key), record.published_ns
                    self.took_ns[name].append(
                        (ordered_ns - sent_ns, now_ns - ordered_ns, now_ns - sent_ns)
                    )

    def send(self, count: int) -> None:
        """Have every app send so many messages."""
        for _ in range(count):
            for app in self.apps.values():
                try:
                    app.send(b"%d" % time.time_ns(), 7)
                except OutboxFullError:
                    self.read()
                    app.send(b"%d" % time.time_ns(), 7, timeout=PATIENCE_S)
            self.read()

    def measure(self, count: int) -> None:
        """Have one app after the other send a message, and wait until it sees it."""
        for _ in range(count):
            for app in self.apps.values():
                sent_ns = time.time_ns()
                key = app.name, app.send(b"%d" % sent_ns, 7)
                self.sent[key] = sent_ns
                self.until(
                    functools.partial(self._is_back, key),
                    "a message to come back to its sender",
                    self.read,
                )

    def _is_back(self, key: tuple[str, int]) -> bool:
        return key not in self.sent

    def is_settled(self) -> bool:
        """Whether all messages are in all copies, and the promoted host writes."""
        return (
            all(self.are_equal(store) for store in (*STORES, COMPOSITE))
            and all(app.counts()["accepted"] == app.counts()["seen"] for app in self.apps.values())
            and [self.is_writer(host) for host in HOSTS] == [host == "one" for host in HOSTS]
        )

    def composite_sha256(self, host: str, messages: int) -> str:
        """Read the composite of a host until it had so many messages; return what it was."""
        digest = hashlib.sha256()
        left = messages
        deadline = time.monotonic() + PATIENCE_S
        with Reader(f"composite:{self.path(host, COMPOSITE)}", start="begin") as reader:
            while left > 0 and time.monotonic() < deadline:
                batch = reader.poll(timeout=0.1)
                origin = Path(reader.origin).name.encode()
                for at, header in enumerate(batch.headers):
                    digest.update(origin + header.tobytes() + bytes(batch.payload(at)))
                    left -= header["kind"] == Kind.BUS
        return digest.hexdigest() if left == 0 else f"{left} messages are missing"


def run_demo(messages: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Run it; return what it found, `ok` and all counts.

    Parameters
    ----------
    messages : int
        That each of four apps sends.
    say : callable
        Is told what happens, a line at a time.
    """
    with (
        scratch_directory("udpfast-bus-", Path(tempfile.gettempdir())) as folder,
        _Demo(folder, say) as demo,
    ):
        return _run(demo, messages)


def _run(demo: _Demo, messages: int) -> dict[str, Any]:
    say = demo.say
    say("three hosts on loopback; 5 % of the datagrams are lost, 5 % arrive twice, links are cut")
    for host in HOSTS:
        demo.start(host)
    demo.attach()
    share = max(messages // 5, 1)
    demo.measure(share)
    say("kill -9: the daemon of host one")
    demo.kill("one")
    demo.send(share)
    demo.start("one")
    say("kill -9: the sequencer")
    demo.kill("S")
    demo.send(share)
    demo.start("S")
    demo.until(lambda: demo.is_writer("S"), "the sequencer", demo.read)
    say("stopped for 2 s: the daemon of host two")
    demo.daemons["two"].send_signal(signal.SIGSTOP)
    demo.send(share)
    time.sleep(2)
    demo.daemons["two"].send_signal(signal.SIGCONT)
    say("promoted: host one; the sequencer is dead")
    demo.kill("S")
    demo.promote("one")
    demo.start("S")
    demo.send(messages - 4 * share)
    demo.until(demo.is_settled, "one host to write and all copies to have all messages", demo.read)
    return _judge(demo, messages)


def _judge(demo: _Demo, messages: int) -> dict[str, Any]:
    copies = {store: {host: demo.copy(host, store=store) for host in HOSTS} for store in STORES}
    states = {host: demo.state(host) for host in HOSTS}
    accepted = sum(app.counts()["accepted"] for app in demo.apps.values())
    composite = {host: demo.composite_sha256(host, accepted) for host in HOSTS}
    demo.close()  # what is read now lies there, and nobody serves it
    composite["replay"] = demo.composite_sha256("one", accepted)
    written = [each["S"] for each in copies.values()]
    found = {
        "accepted": accepted,
        "in the streams": sum(copy.messages - copy.twice for copy in written),
        "twice": sum(copy.twice for copy in written),
        "sent again": sum(app.counts()["resent"] for app in demo.apps.values()),
        "records": sum(copy.records for copy in written),
        "epoch": states["one"]["epoch"],
        "reconnects": sum(state["reconnects"] for state in states.values()),
        "sha256": {
            **{store: {host: copy.sha256 for host, copy in each.items()}
               for store, each in copies.items()},
            "composite": composite,
        },
        "latency, ms": {name: _latency(times) for name, times in demo.took_ns.items()},
    }  # fmt: skip
    found["ok"] = (
        found["accepted"] == found["in the streams"] == messages * len(APPS)
        and found["twice"] == 0
        and all(len(set(each.values())) == 1 for each in found["sha256"].values())
    )
    for name in ("accepted", "in the streams", "twice", "sent again", "records", "reconnects"):
        demo.say(f"  {name:14} {found[name]}")
    for name, each in found["sha256"].items():
        values = set(each.values())
        equal = f"{min(values)[:16]} on all" if len(values) == 1 else str(each)
        demo.say(f"  {name:14} SHA-256 {equal}: {', '.join(each)}")
    for name, hops in found["latency, ms"].items():
        said = ", ".join(f"{hop} {each['p50']}, {each['p99']}" for hop, each in hops.items())
        demo.say(f"  {name}: ms, p50, p99: {said}")
    demo.say(
        "ok: every accepted message is in every copy exactly once" if found["ok"] else "NOT ok"
    )
    return found


def _latency(times: list[tuple[int, int, int]]) -> dict[str, dict[str, float]]:
    return {hop: _quantiles([each[at] for each in times]) for at, hop in enumerate(HOPS)}


def _quantiles(times: list[int]) -> dict[str, float]:
    if len(times) < 2:
        return {"p50": 0.0, "p99": 0.0, "count": len(times)}
    cuts = statistics.quantiles(times, n=100)
    return {"p50": round(cuts[49] / 1e6, 3), "p99": round(cuts[98] / 1e6, 3), "count": len(times)}
