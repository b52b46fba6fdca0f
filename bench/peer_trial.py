"""One trial of a peer: a partner publishes on one core, another one subscribes on the other.

partner A: publisher --> what the peer has between its ends --> partner B: subscriber

Messages are made before the clock starts: 8 bytes of number, 8 bytes of monotonic ns when the
message was due, then zeros.
"""

from __future__ import annotations

import importlib
import itertools
import shutil
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from udpfast.core.clock import monotonic_ns
from udpfast.shm.histogram import LatencyHistogram

from .partner import Partner
from .peers.face import Peer, Place
from .trials import Outcome

__all__ = ["Arrivals", "PeerEnds", "PeerSilentError", "lead", "timed_outcome", "verify"]

HEAD = struct.Struct("<qq")
#: The number of a message that only asks whether somebody listens.
HELLO = -1
HELLO_PAUSE_S = 0.02
HELLO_LIMIT_S = 60.0
#: From the order to publish until the first message is due: the publisher makes its messages.
LEAD_NS = 100_000_000
LEAD_PER_MESSAGE_NS = 3_000
IDLE_NS = 300_000_000
WARM_SHARE = 0.05


class PeerSilentError(RuntimeError):
    """Nothing came through a peer, or not in order."""


class Arrivals(NamedTuple):
    """What a subscriber saw."""

    came: int
    misordered: int
    last_ns: int
    latencies: list[int]


class PeerEnds:
    """Both ends of a peer, each in a process of its own, open for messages of one size.

    Parameters
    ----------
    peer : Peer
    cores : (int, int)
        The publisher's and the subscriber's.
    size : int
        Bytes of a message.
    """

    def __init__(self, peer: Peer, cores: tuple[int, int], size: int) -> None:
        """Open both ends, and wait until the first message came through."""
        self.peer = peer
        self.size = size
        self.place = Place(Path(tempfile.mkdtemp(prefix="peer-")), free_port())
        self.publisher = Partner(cores[0])
        self.subscriber = Partner(cores[1])
        try:
            module = peer.publisher.__module__
            self.publisher.call(open_publisher, module, self.place, size)
            self.subscriber.start(open_subscriber, module, self.place, size)
            self.publisher.call(say_hello, self.place.directory / "heard", size)
            self.subscriber.result()
        except BaseException:
            self.close()
            raise

    def throughput(self, messages: int) -> Outcome:
        """Publish at full speed; messages per second until the last one was taken."""
        start_ns = lead(messages)
        arrivals = self._exchange(messages, 0.0, start_ns, timed=False)
        verified = verify(messages, arrivals)
        return Outcome(arrivals.came * 1e9 / (arrivals.last_ns - start_ns), verified=verified)

    def latency(self, messages: int, rate: float) -> Outcome:
        """Publish on a schedule; from the time due until the message is taken."""
        arrivals = self._exchange(messages, rate, lead(messages), timed=True)
        return timed_outcome(arrivals, verify(messages, arrivals))

    def _exchange(self, messages: int, rate: float, start_ns: int, *, timed: bool) -> Arrivals:
        self.subscriber.start(receive, messages, start_ns, timed)
        self.publisher.call(publish, messages, rate, start_ns, self.size)
        found: Arrivals = self.subscriber.result()
        return found

    def close(self) -> None:
        """End both processes."""
        self.publisher.close()
        self.subscriber.close()
        shutil.rmtree(self.place.directory, ignore_errors=True)


def lead(messages: int) -> int:
    """Return the time at which the first of so many messages is due."""
    return monotonic_ns() + LEAD_NS + LEAD_PER_MESSAGE_NS * messages


def verify(messages: int, arrivals: Arrivals) -> str:
    """Say what came of so many messages; raise if nothing did, or in another order."""
    if not arrivals.came or arrivals.misordered:
        raise PeerSilentError(
            f"expected {messages:,} messages in order, found {arrivals.came:,}, "
            f"{arrivals.misordered} not in order"
        )
    lost = messages - arrivals.came
    end = f"{lost:,} lost, the others in order" if lost else "all, in order"
    return f"{messages:,} sent, {arrivals.came:,} taken: {end}"


def timed_outcome(arrivals: Arrivals, verified: str) -> Outcome:
    """Return the latencies, but for the first ones, as an outcome."""
    histogram = LatencyHistogram()
    for latency in arrivals.latencies[int(arrivals.came * WARM_SHARE) :]:
        histogram.record(latency)
    return Outcome(float(histogram.percentile(50.0)), histogram, verified)


def free_port() -> int:
    """Return a UDP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# --- what partners do -------------------------------------------------------------------------


def load_peer(module: str) -> Peer:
    """Import a peer where its library's threads belong."""
    peer: Peer = importlib.import_module(module).PEER
    return peer


def open_publisher(state: dict[str, Any], module: str, place: Place, size: int) -> None:
    """Open the sending end."""
    state["sending"] = load_peer(module).publisher(place, size)


def say_hello(state: dict[str, Any], heard: Path, size: int) -> None:
    """Publish a message that means nothing until the subscriber has had one."""
    deadline = time.monotonic() + HELLO_LIMIT_S
    while not heard.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected a first message within {HELLO_LIMIT_S} s, found none")
        state["sending"].send(message(HELLO, 0, size))
        time.sleep(HELLO_PAUSE_S)


def open_subscriber(state: dict[str, Any], module: str, place: Place, size: int) -> None:
    """Open the receiving end, and wait for the first message."""
    came: list[bytes] = []
    receiving = load_peer(module).subscriber(place, size, came.append)
    state["receiving"] = receiving
    deadline = time.monotonic() + HELLO_LIMIT_S
    while not came and time.monotonic() < deadline:
        receiving.step()
    (place.directory / "heard").touch()
    # What else was said until the publisher knows.
    deadline = time.monotonic() + 5 * HELLO_PAUSE_S
    while time.monotonic() < deadline:
        receiving.step()


def message(number: int, due_ns: int, size: int) -> bytes:
    """Return one message."""
    return HEAD.pack(number, due_ns).ljust(size, b"\0")


def publish(state: dict[str, Any], messages: int, rate: float, start_ns: int, size: int) -> None:
    """Publish from a time on: at full speed (rate 0), or each message when it is due."""
    period_ns = 1e9 / rate if rate else 0.0
    dues = [start_ns + int(number * period_ns) for number in range(messages)]
    ready = [message(number, due, size) for number, due in enumerate(dues)]
    send, clock = state["sending"].send, monotonic_ns
    if clock() > start_ns:
        raise TimeoutError(f"expected {messages:,} messages to be ready before the first is due")
    if rate:
        for due, one in zip(dues, ready, strict=True):
            while clock() < due:
                pass
            send(one)
        return
    while clock() < start_ns:
        pass
    for one in ready:
        send(one)


def receive(state: dict[str, Any], messages: int, start_ns: int, timed: bool) -> Arrivals:
    """Take messages until all came, or none for a while."""
    receiving = state["receiving"]
    clock = monotonic_ns
    came: list[bytes] = []
    times: list[int] = []

    def take_timed(one: bytes) -> None:
        times.append(clock())
        came.append(one)

    receiving.take = take_timed if timed else came.append
    seen = 0
    last_ns = start_ns
    now_ns = clock()
    while seen < messages and now_ns - last_ns < IDLE_NS:
        receiving.step()
        now_ns = clock()
        if len(came) != seen:
            seen = len(came)
            last_ns = now_ns
    return account(came, times, last_ns)


def account(came: list[bytes], times: list[int], last_ns: int) -> Arrivals:
    """Look at the number of every message; a hello that is late does not count."""
    heads = [HEAD.unpack_from(one) for one in came]
    numbers = [number for number, _ in heads if number != HELLO]
    misordered = sum(after <= before for before, after in itertools.pairwise(numbers))
    latencies = [
        now - due for now, (number, due) in zip(times, heads, strict=False) if number != HELLO
    ]
    return Arrivals(len(numbers), misordered, last_ns, latencies)
