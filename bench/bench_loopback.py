"""How many datagrams a second does the whole feed take on loopback, with a strategy attached?

    load generator -- 127.0.0.1, whole messages at a fixed rate --> subscriber --> ring --> strategy
       (own process, open schedule)                               (own process)        (own process)

Usage: python bench/bench_loopback.py [--rate 100000] [--seconds 30] [--size 64] [--rcvbuf BYTES]
       python bench/bench_loopback.py --ladder [--seconds 5]

One rate: passes (exit code 0) if every datagram that was sent came out of the ring, in order, the
kernel dropped none, and the ledger adds up. --ladder raises the rate until something is lost, and
says which counter moved first. On loopback the sender's core also runs the receiver's softirq, so
the sender is the first limit: what it could not send on time is reported as `late_ms`. A small
--rcvbuf shows what an overload looks like that the sender alone cannot make.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import udpfast
from udpfast.cli.demo import free_ports
from udpfast.cli.ledger import ledger_sums
from udpfast.client.latency import latency

NAME = "loopback"
RUNGS = (50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 350_000, 400_000, 500_000)
LOSSES = {"kernel_drops": "line", "lost": "channel", "lapped": "strategy", "unsent": "sender"}


def measure(rate: int, seconds: float, size: int, rcvbuf_bytes: int) -> dict[str, Any]:
    """Run one rate; return what was sent, received, read and lost, and where."""
    with tempfile.TemporaryDirectory(prefix="udpfast-bench-", dir="/dev/shm") as folder:
        directory = Path(folder)
        environment = {**os.environ, "UDPFAST_SHM": folder}
        port = free_ports(1)[0]
        feed = directory / "feed.toml"
        feed.write_text(
            f'name = "{NAME}"\n[[incremental.lines]]\nname = "A"\n'
            f'address = "127.0.0.1:{port}"\n[ring]\ncapacity_bytes = {1 << 28}\n'
            f"[receive]\nrcvbuf_bytes = {rcvbuf_bytes}\n"
        )
        instance = directory / NAME
        subscriber = spawn(environment, "udpfast", "run", str(feed))
        assert subscriber.stdout is not None
        subscriber.stdout.readline()  # it receives from here on
        report = directory / "strategy.json"
        strategy = spawn(
            environment,
            *("udpfast.testing.strategy", str(instance), "--style", "poll"),
            *("--report", str(report)),
        )
        while not any((instance / "readers").glob("*")):
            time.sleep(0.01)
        sender = spawn(
            environment,
            *("udpfast", "send", "--rate", str(rate), "--size", str(size), "--json"),
            *("--seconds", str(seconds), "--incremental", f"127.0.0.1:{port}"),
        )
        sent = json.loads(sender.communicate()[0].splitlines()[-1])
        time.sleep(0.5)  # what the loop has not taken by now, it will have dropped
        subscriber.send_signal(signal.SIGTERM)
        subscriber.wait()
        strategy.wait()
        return account(sent, udpfast.counters(instance), json.loads(report.read_text()), instance)


def account(
    sent: dict[str, Any],
    counters: dict[str, dict[str, int]],
    report: dict[str, Any],
    instance: Path,
) -> dict[str, Any]:
    """Compare what was sent with what each stage saw."""
    line, channel = counters["incremental.A"], counters["incremental"]
    return {
        "sent": sent["messages"],
        "sent_per_s": sent["messages_per_s"],
        "late_ms": round(sent["late_ns_max"] / 1e6, 2),
        "unsent": sent["lines"][0]["unsent"],
        "received": line["datagrams"],
        "kernel_drops": line["kernel_drops"],
        "delivered": channel["messages"],
        "lost": channel["lost"],
        "read": report["kinds"].get("MESSAGE", 0),
        "lapped": report["lapped"],
        "adds_up": ledger_sums(counters)["adds_up"],
        "latency_ns": {**latency(instance), "ring_to_strategy": report["latency_ns"]},
    }


def is_clean(result: dict[str, Any]) -> bool:
    """Whether nothing was lost anywhere."""
    return (
        result["adds_up"]
        and result["sent"] == result["received"] == result["delivered"] == result["read"] > 0
        and not any(result[name] for name in LOSSES)
    )


def spawn(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start a module as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


def main() -> None:
    """Measure one rate, or climb the ladder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rcvbuf", type=int, default=1 << 26)
    parser.add_argument("--ladder", action="store_true")
    options = parser.parse_args()
    clean = True
    for rate in RUNGS if options.ladder else (options.rate,):
        result = measure(rate, options.seconds, options.size, options.rcvbuf)
        clean = is_clean(result)
        print(json.dumps({"rate": rate, "clean": clean, **result}), flush=True)
        if not clean:
            moved = [name for name in LOSSES if result[name]]
            print(f"first overload at {rate}/s: {', '.join(moved) or 'nothing that is counted'}")
            break
    sys.exit(0 if clean or options.ladder else 1)


if __name__ == "__main__":
    main()
