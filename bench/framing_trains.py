"""Bursts of datagrams of any framing, whose numbers go on from one burst to the next."""

from __future__ import annotations

import numpy as np

from udpfast.wire.facts import Numbers
from udpfast.wire.framing import Framing

from .drain_trains import Train
from .lab_parts import Sent, build

__all__ = ["PLACES", "UnitTrain"]

#: Where a framing's number is, how wide it is, whether it is big endian, and its stream's byte.
PLACES = {
    "roq": (8, 4, False, -1),
    "cme_mdp3": (0, 4, False, -1),
    "moldudp64": (10, 8, True, -1),
    "cboe_pitch": (4, 4, False, 3),
}


class UnitTrain(Train):
    """One burst of a framing: a row per datagram.

    Parameters
    ----------
    framing : str
        One of `PLACES`.
    messages, size : int
        Of a datagram, and the bytes of each.
    streams : int
        That take turns, of cboe_pitch.
    count : int
        Datagrams, a multiple of `streams`.
    """

    def __init__(self, framing: str, messages: int, size: int, streams: int, count: int) -> None:
        """Build the first datagram, and number its copies."""
        if count % streams:
            raise ValueError(f"expected a multiple of {streams} datagrams, found {count}")
        session = b"0000000001" if framing == "moldudp64" else 1
        contents = tuple(bytes([i]) * size for i in range(messages))
        first = build(framing, Sent(1, contents, (1,), session, 10**18))
        counted = Framing(framing).facts.numbers is Numbers.MESSAGES
        each = messages if counted else 1
        super().__init__(np.tile(np.frombuffer(first, np.uint8), (count, 1)), count * each)
        offset, width, big_endian, stream = PLACES[framing]
        self._place = slice(offset, offset + width)
        self._type = f"{'>' if big_endian else '<'}u{width}"
        self._numbers = 1 + np.arange(count) // streams * each
        self._step = count // streams * each
        if stream >= 0:
            self.rows[:, stream] = np.arange(count) % streams
        self._write()

    def _write(self) -> None:
        numbers = self._numbers.astype(self._type).view(np.uint8)
        self.rows[:, self._place] = numbers.reshape(len(self.rows), -1)

    def advance(self) -> None:
        """Turn this burst into the next one."""
        self._numbers += self._step
        self._write()
