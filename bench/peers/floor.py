"""The C floor (floor.c): built once, loaded into this process, called between other trials."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MODES", "Drained", "Floor", "FloorError", "load_floor"]

SOURCE = Path(__file__).with_name("floor.c")
FLAGS = ("-O2", "-shared", "-fPIC", "-Wall")

#: How `Floor.drain` receives: recvmmsg with 64 slots, recv, recvmmsg with kernel time stamps
#: (the socket must ask for them), recvmmsg of trains (the socket must have UDP_GRO), recvmmsg of
#: MoldUDP64 whose messages are copied into a ring, one by one; the same with checks, order and the
#: product's header.
MODES = {"recvmmsg": 0, "recv": 1, "stamps": 2, "gro": 3, "records": 4, "promised": 5}

Samples = np.ndarray[Any, np.dtype[np.int64]]


class FloorError(RuntimeError):
    """The floor could not be built: why, in a sentence."""


class Drained(NamedTuple):
    """What a drain took, and in which time."""

    elapsed_ns: int
    datagrams: int
    checksum: int
    found: int  # of stamps, how many had one; of records and promised, the messages


class Floor:
    """The functions of floor.c; every one runs without the GIL, in the calling thread."""

    def __init__(self, path: Path, version: str) -> None:
        """Load a built floor; `load_floor` builds it."""
        self.version = version
        self._library = library = ctypes.CDLL(str(path))
        int64, uint64, uint32 = ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32
        signatures: dict[str, tuple[type, Sequence[type]]] = {
            "floor_drain": (int64, [ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3]),
            "floor_send": (int64, [ctypes.c_int, uint32, ctypes.c_double, int64, int64]),
            "floor_receive": (
                int64,
                [ctypes.c_int, int64, int64, ctypes.c_void_p, ctypes.c_void_p],
            ),
            "floor_ring_bytes": (uint64, [uint32, uint64]),
            "floor_ring_write": (
                int64,
                [ctypes.c_void_p, uint32, uint64, uint64, ctypes.c_double],
            ),
            "floor_ring_read": (
                int64,
                [ctypes.c_void_p, uint32, uint64, uint64, ctypes.c_void_p, ctypes.c_void_p],
            ),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = list(arguments)

    def drain(self, sock: socket.socket, mode: str = "recvmmsg") -> Drained:
        """Take everything that waits in a socket."""
        count, checksum, found = ctypes.c_int64(), ctypes.c_uint64(), ctypes.c_int64()
        elapsed_ns = self._library.floor_drain(
            sock.fileno(),
            MODES[mode],
            ctypes.byref(count),
            ctypes.byref(checksum),
            ctypes.byref(found),
        )
        return Drained(elapsed_ns, count.value, checksum.value, found.value)

    def send(self, sock: socket.socket, size: int, rate: float, count: int, start_ns: int) -> int:
        """Send open loop from a monotonic time on; return how many datagrams left."""
        return int(self._library.floor_send(sock.fileno(), size, rate, count, start_ns))

    def receive(
        self, sock: socket.socket, count: int, idle_ns: int = 500_000_000
    ) -> tuple[Samples, int]:
        """Spin for what `send` sends; return the latencies in ns, and how many were misordered."""
        latencies = np.zeros(count, np.int64)
        misordered = ctypes.c_int64()
        came = self._library.floor_receive(
            sock.fileno(), count, idle_ns, latencies.ctypes.data, ctypes.byref(misordered)
        )
        return latencies[:came], misordered.value

    def ring(self, size: int, capacity: int) -> Samples:
        """Return zeroed memory for a ring of so many slots (a power of two) of `size` bytes."""
        if not 16 <= size <= 1024 or size % 8 or capacity & (capacity - 1):
            raise ValueError(
                f"a slot has 16..1024 bytes, a multiple of 8, and a ring a power of two of them; "
                f"found {size} and {capacity}"
            )
        words = self._library.floor_ring_bytes(size, capacity) // 8 + 16
        memory = np.zeros(words, np.int64)
        memory.fill(0)  # touches every page
        return memory[(-memory.ctypes.data // 8) % 16 :]

    def ring_write(
        self, ring: Samples, size: int, capacity: int, count: int, rate: float = 0.0
    ) -> int:
        """Write messages, at full speed or open loop; return the nanoseconds it took."""
        return int(self._library.floor_ring_write(ring.ctypes.data, size, capacity, count, rate))

    def ring_read(
        self, ring: Samples, size: int, capacity: int, count: int, *, latency: bool = False
    ) -> tuple[int, Samples | None, int]:
        """Read messages; return nanoseconds, latencies if asked for, and wrong sequence words."""
        latencies = np.zeros(count, np.int64) if latency else None
        wrong = ctypes.c_int64()
        elapsed_ns = self._library.floor_ring_read(
            ring.ctypes.data,
            size,
            capacity,
            count,
            None if latencies is None else latencies.ctypes.data,
            ctypes.byref(wrong),
        )
        return int(elapsed_ns), latencies, wrong.value


@cache
def load_floor() -> Floor:
    """Build floor.c if this version of it was not built yet, and load it.

    Raises
    ------
    FloorError
        There is no C compiler, or it failed.
    """
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise FloorError("no C compiler: apt-get install gcc")
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=False
    ).stdout.partition("\n")[0]
    source = SOURCE.read_bytes()
    key = hashlib.sha256(source + repr((version, FLAGS)).encode()).hexdigest()[:16]
    path = build_directory() / f"floor-{key}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Built beside its place and renamed: another benchmark may be building it too.
        beside = path.with_suffix(f".{os.getpid()}")
        built = subprocess.run(
            [compiler, *FLAGS, "-o", str(beside), str(SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            raise FloorError(f"{compiler} failed: {built.stderr.strip()[:300]}")
        beside.rename(path)
    return Floor(path, version)


def build_directory() -> Path:
    """Return where built floors are kept, outside the package."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "udpfast" / "bench"
