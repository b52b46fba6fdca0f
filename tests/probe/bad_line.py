"""A line with faults between a sender and a listener, which knows exactly what it did to whom."""

import random
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from select import select
from time import monotonic_ns

from udpfast.core.endpoint import parse_endpoint
from udpfast.net.options import set_receive_queue
from udpfast.probe.control import HEADER, ProbeKind

__all__ = ["BadLine", "Faults"]


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to a datagram on its way: parts of 1, and a constant delay.

    `late`: held back until three more have passed. `control`: part of what is neither probe nor
    echo that is lost.
    """

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    delay_ns: int = 0
    control: float = 0.0


@dataclass(slots=True)
class _Way:
    """One direction: its faults, and the probes that passed, in order."""

    faults: Faults
    chance: random.Random
    passed: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    held: list[tuple[int, bytes, int]] = field(default_factory=list)

    def pass_on(self, data: bytes) -> list[bytes]:
        """Return what leaves when this one comes."""
        _, kind, _, _, _, _, index, *_ = HEADER.unpack_from(data)
        if kind not in (ProbeKind.PROBE, ProbeKind.ECHO):
            return [] if self.chance.random() < self.faults.control else [data]
        if self.chance.random() < self.faults.loss:
            self.lost.add(index)
            return []
        leaves = []
        if self.chance.random() < self.faults.late:
            self.held.append((3, data, index))
        else:
            leaves.append((data, index))
            if self.chance.random() < self.faults.twice:
                leaves.append((data, index))
        waiting = []
        for left, each, number in self.held:
            if left == 0:
                leaves.append((each, number))
            else:
                waiting.append((left - 1, each, number))
        self.held = waiting
        self.passed += [number for _, number in leaves]
        return [each for each, _ in leaves]

    @property
    def duplicates(self) -> int:
        """How many passed once more."""
        return sum(times - 1 for times in Counter(self.passed).values())

    @property
    def reordered(self) -> int:
        """How many passed for the first time after one with a higher number (RFC 4737)."""
        highest, seen, late = -1, set(), 0
        for index in self.passed:
            late += index not in seen and index < highest
            seen.add(index)
            highest = max(highest, index)
        return late


class BadLine:
    """Forwards datagrams from `address` to a listener, and its answers back.

    Parameters
    ----------
    listener : str
        "ip:port".
    out, back : Faults
    seed : int
    host : str
        Where it listens.
    """

    def __init__(
        self, listener: str, out: Faults, back: Faults, seed: int, host: str = "127.0.0.1"
    ) -> None:
        self.out = _Way(out, random.Random(seed))
        self.back = _Way(back, random.Random(seed + 1))
        self._near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._near.bind((host, 0))
        self._far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._far.connect(parse_endpoint(listener))
        for each in (self._near, self._far):
            # A whole run, however long this thread is kept from its core.
            set_receive_queue(each, 8 << 20)
            each.setblocking(False)
        self.address = f"{host}:{self._near.getsockname()[1]}"
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> "BadLine":
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended = True
        self._thread.join()
        self._near.close()
        self._far.close()

    def _run(self) -> None:
        peer = None
        due: list[tuple[int, int, bool, bytes]] = []
        count = 0
        while not self._ended:
            wait_s = max(due[0][0] - monotonic_ns(), 0) / 1e9 if due else 0.01
            select([self._near, self._far], [], [], wait_s)
            for sock, way, outwards in (
                (self._near, self.out, True),
                (self._far, self.back, False),
            ):
                for _ in range(64):
                    try:
                        data, source = sock.recvfrom(4096)
                    except OSError:
                        break
                    peer = source if outwards else peer
                    for each in way.pass_on(data):
                        count += 1
                        heappush(due, (monotonic_ns() + way.faults.delay_ns, count, outwards, each))
            while due and due[0][0] <= monotonic_ns():
                _, _, outwards, data = heappop(due)
                try:
                    if outwards:
                        self._far.send(data)
                    elif peer is not None:
                        self._near.sendto(data, peer)
                except OSError:
                    pass
