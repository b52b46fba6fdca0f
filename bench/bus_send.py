"""A copy far behind: a segment's file to a socket, from where it is mapped or by `sendfile`.

Cold, the file is on the disk alone; warm, it is in the page cache. Whoever reads counts the bytes.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from pathlib import Path

from .child import to_child
from .loops.send_ways import send_file, send_mapped
from .trials import Unavailable

__all__ = ["sent"]

#: Where a segment's header says at which byte its records begin.
FIRST_BYTE = slice(56, 64)
READ_BYTES = 1 << 18


def _read_bytes() -> int:
    # What this process had read from disks.
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def _count(sock: socket.socket) -> None:
    into, had = bytearray(READ_BYTES), 0
    while got := sock.recv_into(into):
        had += got
    sock.sendall(had.to_bytes(8, "little"))


def sent(
    directory: Path, records: int, size: int, *, by_file: bool, cold: bool, cpu: bool
) -> float:
    """Return ns per record of a store, until all is read; or of the sender's core alone."""
    path = min(directory.glob("*.segment"))
    took = 0

    def give(sock: socket.socket) -> float:
        nonlocal took
        begun, spent = time.perf_counter_ns(), time.thread_time_ns()
        if by_file:
            total = send_file(sock.fileno(), file, mapped, first, first + records * size)
        else:
            total = send_mapped(sock.fileno(), mapped, first, first + records * size)
        spent = time.thread_time_ns() - spent
        sock.shutdown(socket.SHUT_WR)
        assert int.from_bytes(sock.recv(8), "little") == total >= records * size
        took = time.perf_counter_ns() - begun
        return spent if cpu else took

    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        if cold:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        before = _read_bytes()
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as mapped:
            first = int.from_bytes(mapped[FIRST_BYTE], "little")
            found = to_child(_count, give) / records
        if cold and _read_bytes() - before < records * size // 2:
            raise Unavailable(f"{path.parent} is in memory, not on a disk: set TMPDIR")
        return found
    finally:
        os.close(file)
