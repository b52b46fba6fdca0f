"""From an app's `send` until it sees its message in its host's copy: real daemons, real sockets."""

from __future__ import annotations

import contextlib
import itertools
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from udpfast import Kind
from udpfast.cli.bus_hosts import BusHosts
from udpfast.shm.histogram import LatencyHistogram

from .trials import Outcome

__all__ = ["daemons", "seen"]

HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2"}
#: An app that thinks for so long between two messages: daemons go to sleep meanwhile.
PAUSE_S = 0.002
_names = itertools.count(1)


@contextlib.contextmanager
def daemons() -> Iterator[BusHosts]:
    """Run a bus of two hosts, S and one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, socket.socket() as free:
        free.bind((HOSTS["S"], 0))
        port = free.getsockname()[1]
        free.close()
        settings = 'sequencer = "S"\nreplicas = ["one"]'
        with BusHosts(Path(folder), HOSTS, settings, port) as hosts:
            for host in HOSTS:
                hosts.start(host)
            yield hosts


def seen(hosts: BusHosts, host: str, count: int) -> Outcome:
    """Time messages of an app on a host, one after the other."""
    histogram = LatencyHistogram()
    with hosts.app(host, f"bench-{next(_names)}") as app:
        stream = iter(app)
        for at in range(count):
            begun = time.perf_counter_ns()
            number = app.send(bytes(32), 1)
            for record in stream:
                if (record.kind is Kind.BUS and record.sender == app.name
                        and record.number == number):  # fmt: skip
                    break
            took = time.perf_counter_ns() - begun
            if at >= count // 10:
                histogram.record(took)
            time.sleep(PAUSE_S)
    return Outcome(
        float(histogram.percentile(50.0)), histogram, "every message came into the stream"
    )
