"""Damaged messages of IEX through the decoder of updates, beside a slow model of what they say.

A page that nobody may read lies right behind every message: a step beyond it ends the process.
"""

import random
from functools import cache

from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.found import Outcome
from udpfast.market.names import NameTable
from udpfast.market.updates import view_update
from udpfast.payload.iex.layouts import LAYOUTS
from udpfast.payload.iex.updates import IexDecoder
from udpfast.wire.framing import Framing

from .fuzz_wire import real_datagrams
from .guarded_frame import GuardedBytes
from .mutate import mutated

__all__ = ["fuzz_iex"]

_NAMES = 40  # "IEX" and fewer symbols than there are below
_STREAMS = (0, 2, 3, 63, 64, 65_535)
_TABLE = 64  # streams of which a book may be whole
_OPEN, _PRE_OPEN, _HALT = 5, 2, 7
_UPDATED = {True: "85THO", False: "QTHO"}


class _Model:
    """Which symbols' books are known whole, and what was heard of their statuses."""

    def __init__(self) -> None:
        self.whole: dict[int, bool] = {}
        self.run: dict[int, object] = {}
        self.since: dict[int, object] = {}
        self.books: dict[int, tuple[int, object]] = {}
        self.heard: dict[tuple[int, str], tuple[object, int]] = {}

    def session(self, stream: int, first: int, unseen: int) -> None:
        """Begin a session."""
        self.whole[stream] = first == 1 and unseen == 0 and stream < _TABLE
        self.run[stream] = self.since[stream] = object()

    def gap(self, stream: int) -> None:
        """Lose something."""
        self.whole[stream] = False
        self.since[stream] = object()

    def status(self, kind: str, said: int, stream: int, symbol: int) -> int:
        """Return the trading status behind a message of a symbol with an id."""
        heard = {kind: said}
        if stream < _TABLE and stream in self.since:
            since = self.since[stream]
            self.heard[symbol, kind] = since, said
            for each in "HO":
                when, what = self.heard.get((symbol, each), (None, 0))
                if when is since:
                    heard[each] = what
        if heard.get("H") == ord("H") or heard.get("O") == ord("O"):
            return _HALT
        trades = {ord("T"): _OPEN, ord("O"): _PRE_OPEN, ord("P"): _PRE_OPEN}
        return trades.get(heard.get("H", 0), 0) if heard.get("O") == ord("N") else 0

    def begins(self, stream: int, symbol: int) -> bool:
        """Whether a level of a symbol with an id is all that its book is."""
        begun = self.books.get(symbol)
        if not self.whole.get(stream) or (begun and begun[1] is self.run.get(begun[0])):
            return False
        self.books[symbol] = (stream, self.run[stream])
        return True


def fuzz_iex(seed: int, count: int) -> dict[str, int]:
    """Decode `count` messages, most of them damaged.

    Returns
    -------
    dict
        How many became what.

    Raises
    ------
    ValueError
        A message is not what the model says.
    """
    rng = random.Random(seed)
    deep = seed % 2 == 0
    names = NameTable(capacity=_NAMES)
    decoder, model, guarded = IexDecoder(names, deep=deep), _Model(), GuardedBytes()
    kinds = (*LAYOUTS, *_UPDATED[deep] * 4)
    valid = [_message(kind, rng) for kind in kinds for _ in range(8)] + list(_real_messages()[:40])
    outcomes: dict[str, int] = {}
    for number in range(count):
        stream = rng.choice(_STREAMS)
        if rng.random() < 0.02:
            first, unseen = rng.choice(((1, 0), (1, 0), (1, 1), (2, 0), (0, 0)))
            decoder.session(first, unseen, stream)
            model.session(stream, first, unseen)
        if rng.random() < 0.01:
            decoder.gap(stream)
            model.gap(stream)
        data = rng.choice(valid)
        for _damage in range(rng.choice((0, 0, 0, 1, 2))):
            data = mutated(data, valid, rng)
        found = decoder.decode(guarded.put(data), number=number, stream=stream)
        wanted = _outcome(data, deep)
        if isinstance(wanted, Outcome) or not isinstance(found.kind, Kind):
            if found.kind is not wanted or found.payload:
                raise ValueError(f"expected {wanted!r}, found {found} of {data.hex()}")
        else:
            update = view_update(found.kind, found.payload)
            if wanted in "HO" and found.symbol_id:
                status = model.status(wanted, data[1], stream, found.symbol_id)
                if update.header["trading_status"] != status:
                    raise ValueError(f"expected status {status}, found {update} of {data.hex()}")
            flags = _flags(model, wanted, stream, found.symbol_id)
            if found.flags != flags:
                raise ValueError(f"expected {flags!r}, found {found} of {data.hex()}")
        name = found.kind.name.lower()
        outcomes[name] = outcomes.get(name, 0) + 1
    return outcomes


def _outcome(data: bytes, deep: bool) -> Outcome | str:
    # What becomes of a message; the character of its type: an update.
    kind = chr(data[0]) if data else ""
    layout = LAYOUTS.get(kind)
    if not data or (layout and len(data) < layout.dtype.itemsize):
        return Outcome.REFUSED
    if layout is None:
        return Outcome.UNKNOWN
    return kind if kind in _UPDATED[deep] else Outcome.OPAQUE


def _flags(model: _Model, kind: str, stream: int, symbol: int) -> RecordFlag:
    if not symbol:
        return RecordFlag.UNGATED | RecordFlag.TRUNCATED
    whole = kind in "QHO" or (kind in "85" and model.begins(stream, symbol))
    return RecordFlag.UNGATED | (RecordFlag.SNAPSHOT if whole else RecordFlag(0))


def _message(kind: str, rng: random.Random) -> bytes:
    body = bytearray(rng.randbytes(LAYOUTS[kind].dtype.itemsize))
    body[0] = ord(kind)
    if kind in "HO":
        body[1] = rng.choice(b"HOPTN")
    if kind != "S":
        body[10:18] = f"S{rng.randrange(_NAMES + 10)}".ljust(8).encode()
    return bytes(body)


@cache
def _real_messages() -> tuple[bytes, ...]:
    framing = Framing("iex_tp")
    return tuple(
        message.data
        for datagram in real_datagrams("iex_tp")
        for message in framing.messages(datagram)
    )
