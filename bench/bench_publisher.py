"""What does publishing a message cost, whole or in fragments, one by one or as trains?

    core A: Publisher.send, from Python, as fast as it goes -- 127.0.0.1 --> core B: feed

The sender's core does the kernel's work of delivering too, as always on loopback. The feed proves
that every message arrived, whole and in order. The floor is a bare `socket.send` of datagrams that
lie ready: no frame, no fragments, no heartbeats, no lock. "segment" hands fragments to the kernel
as one train (UDP_SEGMENT); "bursts" flushes once per 16 messages.

Usage: udpfast bench run publisher [--quick]
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from udpfast.agents.feed.subscriber import Subscriber
from udpfast.client.publisher import Publisher
from udpfast.config import parse_publish
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Encoding
from udpfast.feed.publication import Publication

from .partner import Partner
from .result import Row
from .trials import Benchmark, Outcome, Settings, interleave
from .wire_trial import feed_tables, own_instances

__all__ = ["BENCHMARK"]

NAME = "publisher"
FLOOR = "socket.send"
LESS = "datagrams that lie ready: no frame, no fragments, no heartbeats"
#: Payload bytes: one small datagram, one full, 4 fragments, 128 fragments.
SIZES = (64, 512, 2048, 65_536)
#: Datagrams of one trial.
DATAGRAMS = 20_000
FRAGMENT_BYTES = 512
#: Messages between two flushes, where not each leaves at once.
BURST = 16
OBJECT = (0, 0)
TIMEOUT_S = 60.0
ROUNDS = 5


def run(settings: Settings) -> Iterator[Row]:
    """Measure every size, one by one and as trains."""
    part = 10 if settings.quick else 1
    with Partner(settings.cores[0]) as partner:
        for size in SIZES:
            messages = DATAGRAMS // part // fragments_of(size)
            variants: dict[str, Callable[[], float | Outcome]] = {
                FLOOR: partial(publish, partner, settings.cores[1], send_bare, size, messages),
                "udpfast": partial(
                    publish, partner, settings.cores[1], send_messages, size, messages, False, 1
                ),
            }
            if size > FRAGMENT_BYTES:
                variants["udpfast, segment"] = partial(
                    publish, partner, settings.cores[1], send_messages, size, messages, True, 1
                )
            else:
                variants["udpfast, bursts"] = partial(
                    publish, partner, settings.cores[1], send_messages, size, messages, False, BURST
                )
            trials = interleave(
                variants, settings, label=f"{size:,} B", rounds=min(settings.rounds, ROUNDS)
            )
            yield from trials.rows(
                NAME,
                "ns/message",
                {"size": size, "fragments": fragments_of(size)},
                base=FLOOR,
                less={FLOOR: LESS},
            )


def fragments_of(size: int) -> int:
    """Return how many datagrams a message takes."""
    return -(-size // FRAGMENT_BYTES)


def publish(
    partner: Partner,
    core: int,
    send: Callable[..., int],
    size: int,
    messages: int,
    *more: Any,
) -> Outcome:
    """Let the partner publish to a feed on `core`; return ns per message."""
    with own_instances():
        tables = feed_tables(1, agent={"core": core, "idle": "spin"})
        with Subscriber(tables) as subscriber:
            address = subscriber.config.incremental.lines[0].address
            elapsed_ns = partner.call(send, address, size, messages, *more)
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                counted = subscriber.counters()["incremental"]
                if counted["messages"] == messages or time.monotonic() > deadline:
                    break
                time.sleep(0.002)
    if counted["messages"] != messages or counted["lost"]:
        raise ValueError(
            f"expected {messages:,} messages, found {counted['messages']:,}, "
            f"{counted['lost']:,} lost"
        )
    return Outcome(
        elapsed_ns / messages,
        verified=f"{messages:,} published = {counted['messages']:,} delivered, none lost",
    )


# --- what the partner does --------------------------------------------------------------------


def send_messages(
    state: dict[str, Any], address: str, size: int, messages: int, segment: bool, burst: int
) -> int:
    """Publish at full speed, `burst` messages at once; return the ns it took."""
    config = parse_publish({"incremental": [{"address": address}], "segment": segment})
    payload = bytes(size)
    with Publisher(config, encoding=Encoding.NATIVE) as publisher:
        send = publisher.send
        started_ns = monotonic_ns()
        if burst == 1:
            for _ in range(messages):
                send(payload, *OBJECT)
        else:
            for _ in range(messages // burst):
                for _ in range(burst):
                    send(payload, *OBJECT, flush=False)
                publisher.flush()
            for _ in range(messages % burst):
                send(payload, *OBJECT)
        elapsed_ns = monotonic_ns() - started_ns
        if unsent := publisher.counts["incremental"]["unsent"]:
            raise ValueError(f"expected all datagrams to leave, found {unsent} given up")
    return elapsed_ns


def send_bare(state: dict[str, Any], address: str, size: int, messages: int) -> int:
    """Send the same datagrams, made beforehand; return the ns it took."""
    publication = Publication(1, encoding=Encoding.NATIVE)
    datagrams: list[bytes] = []
    for _ in range(messages):
        publication.publish(bytes(size), *OBJECT, now_ns=0)
        datagrams += publication.take(0)
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, int(port)))
        send = sock.send
        started_ns = monotonic_ns()
        for datagram in datagrams:
            send(datagram)
        return monotonic_ns() - started_ns


BENCHMARK = Benchmark(
    name=NAME,
    question="What does publishing a message cost, whole or in fragments?",
    topology="""
core A: Publisher.send, from Python, as fast as it goes -- 127.0.0.1 --> core B: feed
floor   core A: socket.send of datagrams that lie ready -- 127.0.0.1 --> core B: feed
""",
    run=run,
    seconds=16.0,
)
