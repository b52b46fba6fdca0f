"""IEX messages into columns: one numpy array for each type, in the order of arrival."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.payload.iex.layouts import LAYOUTS, numbered

__all__ = ["DecodedIex", "decode_iex"]


@dataclass(slots=True)
class DecodedIex:
    """What many messages held.

    Attributes
    ----------
    tables : dict
        Character of the type -> its messages: `number` and the fields of `LAYOUTS`.
    unknown : dict
        Type -> how many there were of a type that is in no layout.
    short : dict
        Type -> how many were shorter than their layout; they are in no table.
    """

    tables: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)


def decode_iex(messages: Iterable[tuple[int, bytes]]) -> DecodedIex:
    """Decode the messages of any number of datagrams.

    Parameters
    ----------
    messages : iterable of tuple
        `(number, bytes)`, as `Framing("iex_tp").messages(datagram)` gives them.

    Notes
    -----
    The venue may make a message longer: what is behind its layout is left out. One that is shorter
    is counted, not guessed at.
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
