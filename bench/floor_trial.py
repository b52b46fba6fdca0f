"""The C floor in the place of the product: the same sender, the same schedule, bare C receiving."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.shm.histogram import LatencyHistogram

from .loops.hostprobe import pinned
from .partner import Partner
from .schedule import Schedule
from .trials import Outcome, Unavailable
from .wire_trial import WARM_SHARE, send_schedule

__all__ = ["FLOOR_LESS", "floor_ring_latency", "floor_ring_throughput", "floor_wire"]

#: What the floor does less than a feed.
FLOOR_LESS = "no order, no gaps, no lines, no ring: a recv and a clock read"
SLOTS = 65_536
RCVBUF_BYTES = 1 << 26
SO_RCVBUFFORCE = 33
#: A partner that was just started still imports what it needs.
IDLE_NS = 5_000_000_000


def load() -> Any:
    """Return the floor, or say why there is none."""
    try:
        from .peers.floor import FloorError, load_floor
    except ImportError:
        raise Unavailable("bench/peers/floor.py is not there") from None
    try:
        return load_floor()
    except FloorError as reason:
        raise Unavailable(str(reason)) from None


def floor_wire(partner: Partner, core: int, schedule: Schedule, message_bytes: int) -> Outcome:
    """Spin on `recv` for whole messages of one line; time from due to the clock behind the call."""
    floor = load()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        _enlarge(sock)
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        partner.start(send_schedule, [address], message_bytes, schedule)
        with pinned(core):
            latencies, misordered = floor.receive(sock, schedule.messages, IDLE_NS)
        partner.result()
    if len(latencies) != schedule.messages or misordered:
        raise ValueError(
            f"expected {schedule.messages:,} datagrams in order, found {len(latencies):,}, "
            f"{misordered} out of order"
        )
    return _timed(latencies, f"{schedule.messages:,} sent = {len(latencies):,} received, in order")


def floor_ring_throughput(cores: tuple[int, int], messages: int, payload_bytes: int) -> Outcome:
    """Write and read a ring of fixed slots at full speed; return messages per second."""
    elapsed_ns, _ = _ring(cores, messages, payload_bytes, 0.0)
    return Outcome(
        (messages - 1) * 1e9 / elapsed_ns,
        verified=f"{messages:,} written = {messages:,} read, in order",
    )


def floor_ring_latency(
    cores: tuple[int, int], rate_per_s: float, messages: int, payload_bytes: int
) -> Outcome:
    """Write on a schedule to a ring of fixed slots; time each message until it is copied out."""
    _, latencies = _ring(cores, messages, payload_bytes, rate_per_s)
    assert latencies is not None
    return _timed(latencies, f"{messages:,} written = {messages:,} read, in order")


def _ring(
    cores: tuple[int, int], messages: int, size: int, rate_per_s: float
) -> tuple[int, npt.NDArray[np.int64] | None]:
    floor = load()
    ring = floor.ring(size, SLOTS)

    def write() -> None:
        with pinned(cores[0]):
            floor.ring_write(ring, size, SLOTS, messages, rate_per_s)

    writer = threading.Thread(target=write)
    writer.start()
    with pinned(cores[1]):
        elapsed_ns, latencies, wrong = floor.ring_read(
            ring, size, SLOTS, messages, latency=rate_per_s > 0
        )
    writer.join()
    if wrong:
        raise ValueError(f"expected every sequence word to be the next, found {wrong} that are not")
    return elapsed_ns, latencies


def _timed(latencies: npt.NDArray[np.int64], verified: str) -> Outcome:
    histogram = LatencyHistogram()
    for value in latencies[int(len(latencies) * WARM_SHARE) :].tolist():
        histogram.record(value)
    return Outcome(float(histogram.percentile(50.0)), histogram, verified)


def _enlarge(sock: socket.socket) -> None:
    # As a feed does by default; without the right to force it, what the host grants.
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RCVBUF_BYTES)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF_BYTES)
