"""Books that a snapshot server tells, whatever its venue: gathered, then handed to the feed.

What is handed on is described in `payload/served.pxd`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal, Protocol

import numpy as np

from udpfast.errors import UdpfastError
from udpfast.shm.answers import Wanted

__all__ = ["Dialogue", "Frames", "ServedBooks", "SnapshotError"]

_HEAD = struct.Struct("=IIQQ8sII")
_PART, _END = 1, 2
_ORDER = np.dtype(
    [("id", "u8"), ("price", "i8"), ("quantity", "i8"), ("side", "u4"), ("zero", "u4")]
)
_ORDER_BYTES = struct.Struct("=QqqII")
#: Orders that a datagram of one page holds.
_ORDERS_PER_PART = (4096 - _HEAD.size) // _ORDER.itemsize
#: Parts that a book takes of one instrument, at most (STAGE_PARTS_MAX of market/market.pxd).
_PARTS_MAX = 4096


class SnapshotError(UdpfastError):
    """No snapshot came: a sentence says why.

    Attributes
    ----------
    tally : str
        What counts it: "refusals", "failures" (of a connection), "too_old", or "broken" (by what it
        says).
    pause_ns : int
        How long not to ask again, if that is longer than the settings say.
    """

    def __init__(self, text: str, tally: str = "broken", pause_ns: int = 0) -> None:
        super().__init__(text)
        self.tally = tally
        self.pause_ns = pause_ns


class Dialogue(Protocol):
    """One connection with a snapshot server, from bytes to books. It reads no socket and no clock.

    Attributes
    ----------
    books : ServedBooks
    messages : int
        That came so far.
    begun : bool
        The server sends the snapshot: nothing has to be waited for any more.
    number : int
        The last number that the books contain, as published; -1: the snapshot is not complete.
    heartbeat, goodbye : bytes
        To send once a second, and at the end; empty: nothing.
    """

    books: ServedBooks
    messages: int
    begun: bool
    number: int
    heartbeat: bytes
    goodbye: bytes

    def begin(self) -> bytes:
        """Return what to send first."""

    def take(self, data: bytes) -> bytes:
        """Take bytes of the connection, however they were cut; return what to send.

        Raises
        ------
        SnapshotError
            The server refuses, or sends something else than its protocol says.
        """


class Frames:
    """What a connection brings behind lengths of two bytes, however its bytes were cut.

    Parameters
    ----------
    byteorder : {"big", "little"}
    what : str
        What they are, for errors.
    """

    def __init__(self, byteorder: Literal["big", "little"], what: str) -> None:
        self._byteorder: Literal["big", "little"] = byteorder
        self._what = what
        self._rest = b""

    def take(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield type and body of each frame that is complete by now.

        Raises
        ------
        SnapshotError
            One is empty.
        """
        data = self._rest + data
        at = 0
        self._rest = b""
        while at + 2 <= len(data):
            size = int.from_bytes(data[at : at + 2], self._byteorder)
            if size == 0:
                raise SnapshotError(f"expected {self._what}, found one without a type")
            if at + 2 + size > len(data):
                break
            yield data[at + 2 : at + 3], data[at + 3 : at + 2 + size]
            at += 2 + size
        self._rest = data[at:]


class ServedBooks:
    """Orders of many instruments, in the order of their queues.

    Parameters
    ----------
    wanted : Wanted
        What the feed lacks.
    orders_max : int
        More orders are refused.

    Attributes
    ----------
    count : int
        Orders so far.
    """

    def __init__(self, wanted: Wanted, orders_max: int) -> None:
        self.wanted = wanted
        self.count = 0
        self._orders_max = orders_max
        self._names: dict[int, bytes] = {}
        self._rows: dict[int, bytearray] = {}

    def name(self, instrument: int, name: bytes) -> None:
        """Note an instrument; it may have no orders.

        Raises
        ------
        SnapshotError
            It has another name already.
        """
        known = self._names.setdefault(instrument, name)
        if known != name:
            raise SnapshotError(
                f"expected one name for instrument {instrument}, found {known.decode('latin-1')!r} "
                f"and {name.decode('latin-1')!r}"
            )

    def add(self, instrument: int, number: int, is_ask: bool, price: int, quantity: int) -> None:
        """Put an order at the end of its queue.

        Raises
        ------
        SnapshotError
            There are more than a snapshot may have.
        """
        self.count += 1
        if self.count > self._orders_max:
            raise SnapshotError(
                f"expected at most {self._orders_max} orders (snapshot_server.orders_max), found "
                "more"
            )
        rows = self._rows.get(instrument)
        if rows is None:
            rows = self._rows[instrument] = bytearray()
        rows += _ORDER_BYTES.pack(number, price, quantity, is_ask, 0)
        if len(rows) > _PARTS_MAX * _ORDERS_PER_PART * _ORDER.itemsize:
            raise SnapshotError(
                f"expected at most {_PARTS_MAX * _ORDERS_PER_PART} orders of one instrument, found "
                "more"
            )

    def sort(self) -> None:
        """Put the orders of each instrument in the order of their ids."""
        for instrument, rows in self._rows.items():
            table = np.frombuffer(rows, _ORDER)
            self._rows[instrument] = bytearray(
                table[np.argsort(table["id"], kind="stable")].tobytes()
            )

    def datagrams(self, number: int) -> Iterator[bytes]:
        """Yield all of them as of a number, as records have it; at the end that this was all."""
        stream = self.wanted.stream
        for instrument, name in self._names.items():
            rows = bytes(self._rows.get(instrument, b""))
            size = _ORDERS_PER_PART * _ORDER.itemsize
            parts = max(1, -(-len(rows) // size))
            for part in range(parts):
                head = _HEAD.pack(_PART, stream, number, instrument, name, part + 1, parts)
                yield head + rows[part * size : (part + 1) * size]
        yield _HEAD.pack(_END, stream, number, 0, b"", 0, 0)
