"""Messages of IEX as columns: one numpy array for each type, in the order of arrival."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from udpfast.payload.iex.layouts import LAYOUTS, numbered

__all__ = ["DecodedIex", "decode_iex"]


class DecodedIex(Struct):
    """The messages of `decode_iex`, sorted by type.

    Attributes
    ----------
    tables : dict of str to numpy.ndarray
        For each type's character a structured array with `number` and the fields of `LAYOUTS`.
    unknown : dict of str to int
        How many messages of each type without a layout came; they are in no table.
    short : dict of str to int
        How many messages of each type were shorter than its layout; they are in no table.
    """

    tables: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)


def decode_iex(messages: Iterable[tuple[int, bytes]]) -> DecodedIex:
    """Decode the messages of any number of datagrams.

    Parameters
    ----------
    messages : iterable of (int, bytes)
        Number and bytes of each message, as `Framing("iex_tp").messages(datagram)` returns them.

    Returns
    -------
    DecodedIex
        Arrays of its own: nothing of `messages` is borrowed.

    Notes
    -----
    The venue may append fields to a message; they are left out.
    """
    parts: dict[str, list[bytes]] = {}
    numbers: dict[str, list[int]] = {}
    decoded = DecodedIex()
    for number, data in messages:
        kind = chr(data[0]) if data else ""
        layout = LAYOUTS.get(kind)
        if layout is None:
            decoded.unknown[kind] = decoded.unknown.get(kind, 0) + 1
        elif len(data) < layout.dtype.itemsize:
            decoded.short[kind] = decoded.short.get(kind, 0) + 1
        else:
            parts.setdefault(kind, []).append(data[: layout.dtype.itemsize])
            numbers.setdefault(kind, []).append(number)
    for kind, collected in parts.items():
        wire = np.frombuffer(b"".join(collected), LAYOUTS[kind].dtype)
        table = np.empty(len(wire), numbered(wire.dtype))
        table["number"] = numbers[kind]
        for name in wire.dtype.names or ():
            table[name] = wire[name]
        decoded.tables[kind] = table
    return decoded
