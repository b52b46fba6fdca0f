"""Raw captures with clocks set by a test: journals of datagrams, and blocks of them."""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.layout import RECORD, Kind
from udpfast.log.journal import Journal
from udpfast.market.block import Block

SEGMENT_BYTES = 1 << 18
SESSION_ID = 77
STEP_NS = 20_000_000

#: (seqno, wall clock, monotonic clock) of a datagram.
Datagram = tuple[int, int, int]


def datagram(seqno: int, now_ns: int, size: int = 400, fragment: int = 0, last: int = 0) -> bytes:
    """Return a captured datagram, the contents of a raw capture's record."""
    frame = struct.pack("<BBBBHHII", 1, fragment, last, 0, 1, SESSION_ID, seqno, 0)
    return struct.pack("<qII", now_ns, 0, 0) + frame + bytes(size)


def append(journal: Journal, datagrams: Iterable[Datagram]) -> None:
    """Append datagrams of one line."""
    for seqno, wall_ns, now_ns in datagrams:
        content = datagram(seqno, now_ns)
        journal.append(Kind.DATAGRAM, content, received_ns=wall_ns, published_ns=wall_ns)


def raw_of(directory: Path) -> Path:
    """Create the directory of a journal's raw capture, and return it."""
    raw = directory / "raw"
    raw.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    return raw


def open_raw(directory: Path) -> Journal:
    """Return the raw capture of a journal, open for writing."""
    return Journal.open(raw_of(directory), name="raced", segment_bytes=SEGMENT_BYTES)


def append_and_die(directory: Path, datagrams: Iterable[Datagram]) -> None:
    """Append in a process that is killed afterwards."""
    child = os.fork()
    if child == 0:
        append(open_raw(directory), datagrams)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def block_of(entries: list[tuple[int, Kind, int, int, bytes]]) -> Block:
    """Return a block of (line, kind, wall clock, monotonic clock, payload), numbered from 1."""
    headers = np.zeros(len(entries), RECORD)
    content: list[bytes] = []
    for i, (line, kind, wall_ns, now_ns, payload) in enumerate(entries):
        body = payload or datagram(i, now_ns)
        header: Any = headers[i]
        header["length"], header["kind"], header["line"] = 64 + len(body), kind, line
        header["position"], header["received_ns"] = i + 1, wall_ns
        content.append(body)
    offsets = np.cumsum([0, *map(len, content[:-1])]).astype(np.uint64)
    return Block(headers, offsets, np.frombuffer(b"".join(content), np.uint8), len(entries))
