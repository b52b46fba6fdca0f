"""The file `bus.state` of a store: its epochs, its promise, and whether this host wrote it last."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from udpfast.errors import RegionError
from udpfast.shm.files import replace_file

__all__ = ["load_state", "save_state"]

#: Behind the state: its CRC-32 and a magic number. Files of the first versions have neither.
_END = struct.Struct("<II")
_MAGIC = 0x54535542  # "BUST"
#: Three numbers; pairs of them follow, one for each epoch.
_FIRST, _PAIR = 24, 16


def load_state(directory: Path, *, sure: bool = False) -> bytes:
    """Return the bytes that were saved last; empty if there are none.

    Parameters
    ----------
    directory : pathlib.Path
    sure : bool
        Return no epochs from a file without a checksum: it may be cut, and records have them too.

    Raises
    ------
    RegionError
        The file is damaged.
    """
    path = directory / "bus.state"
    try:
        state = path.read_bytes()
    except FileNotFoundError:
        return b""
    if len(state) % _PAIR == _FIRST % _PAIR and len(state) >= _FIRST:
        return state[:_FIRST] if sure else state
    if len(state) % _PAIR == 0 and len(state) >= _FIRST + _END.size:
        state, end = state[: -_END.size], state[-_END.size :]
        if _END.unpack(end) == (zlib.crc32(state), _MAGIC):
            return state
    raise RegionError(
        f"{path}: expected 24 bytes, 16 for each epoch and a checksum, found {len(state)}: the "
        "file is damaged"
    )


def save_state(directory: Path, state: bytes) -> None:
    """Save the state, as durably as the disk allows."""
    end = _END.pack(zlib.crc32(state), _MAGIC)
    replace_file(directory / "bus.state", state + end, durable=True)
