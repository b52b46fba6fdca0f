"""Datagrams of every framing, as a venue would send them: written apart from what reads them.

`build` makes one from what it shall say; `draw` takes that from a seeded generator.
"""

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Sent", "build", "draw"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What a datagram shall say.

    Attributes
    ----------
    number : int
        Of the first message, or of the datagram.
    messages : tuple of bytes
        Contents, without length or type in front; none: a heartbeat, where the framing has any.
    stream : tuple of int
        What tells numberings apart, by the framing's own fields.
    session : bytes or int
        As the framing has it.
    sent_ns : int
        Kept as exactly as the framing can.
    """

    number: int
    messages: tuple[bytes, ...]
    stream: tuple[int, ...] = ()
    session: bytes | int = 0
    sent_ns: int = 0


def build(name: str, sent: Sent) -> bytes:
    """Return the datagram; of MIAX's, one with a unit for each message."""
    return _BUILDERS[name](sent)


def draw(name: str, rng: random.Random, *, heartbeats: bool = True) -> Sent:
    """Draw what a datagram of at most 1,400 bytes may say."""
    several = name not in ("deribit_sbe", "siac_opra") and not name.startswith("roq")
    count = rng.choice((1, 1, 2, 5, 30)) if several else 1
    if heartbeats and name not in ("deribit_sbe", "b3_umdf") and rng.random() < 0.2:
        count = 0
    size_max = 200 if name == "cboe_pitch" or not several else 1200 // max(count, 1) - 16
    stream, session, bits = _KEYS.get(name, _KEYS["roq"])
    return Sent(
        number=rng.choice((1, rng.getrandbits(bits), (1 << bits) - 100)) or 1,
        messages=tuple(rng.randbytes(rng.randint(1, size_max)) for _ in range(count)),
        stream=tuple(rng.randint(1, high) for high in stream),
        session=(
            bytes(rng.choice(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ ") for _ in range(10))
            if session == "text"
            else rng.getrandbits(int(session))
        ),
        sent_ns=rng.randint(10**18, 2 * 10**18),
    )


#: Highest value of each stream field, bits of the session or `text`, bits of a number.
_KEYS: dict[str, tuple[tuple[int, ...], str, int]] = {
    "roq": ((), "16", 32),
    "cme_mdp3": ((), "0", 32),
    "moldudp64": ((), "text", 64),
    "moldudp64le": ((), "text", 64),
    "iex_tp": ((0xFFFF, 0xFFFF), "32", 63),
    "deribit_sbe": ((0xFFFF,), "0", 32),
    "cboe_pitch": ((0xFF,), "0", 32),
    "miax_mach": ((), "8", 64),
    "ice_impact": ((), "16", 32),
    "nyse_xdp": ((), "0", 32),
    "cboe_csm": ((), "0", 32),
    "memx_memoir": ((), "64", 64),
    "siac_cta": ((0x7F,), "0", 32),
    "siac_opra": ((), "8", 32),
    "b3_umdf": ((0xFF,), "16", 32),
    "coinbase_derivatives": ((0xFFFF,), "0", 63),
    "eurex_eobi": ((0xFF, 0xFFFFFF), "0", 32),
}

_SECOND = 10**9


def _prefixed(form: str, messages: Sequence[bytes], whole: int = 0) -> bytes:
    # Each message behind its length, which counts `whole` bytes more than the content.
    return b"".join(struct.pack(form, len(data) + whole) + data for data in messages)


def _roq(order: str, legacy: bool) -> Callable[[Sent], bytes]:
    def built(sent: Sent) -> bytes:
        content = sent.messages[0] if sent.messages else b""
        control = 2 if legacy or not content else 0x12
        header = struct.pack(f"{order}BBBBHHII", control, 0, 0, 3, 77, sent.session, sent.number, 5)
        return header + content

    return built


def _cme_mdp3(sent: Sent) -> bytes:
    # A heartbeat is a message: template 12, with nothing in it.
    bodies = sent.messages or (b"",)
    template = 32 if sent.messages else 12
    return struct.pack("<IQ", sent.number, sent.sent_ns) + b"".join(
        struct.pack("<HHHHH", 10 + len(data), len(data), template, 1, 9) + data for data in bodies
    )


def _mold(order: str) -> Callable[[Sent], bytes]:
    def built(sent: Sent) -> bytes:
        header = struct.pack(f"{order}10sQH", sent.session, sent.number, len(sent.messages))
        return header + _prefixed(f"{order}H", sent.messages)

    return built


def _iex_tp(sent: Sent) -> bytes:
    body = _prefixed("<H", sent.messages)
    protocol, channel = sent.stream
    header = (1, protocol, channel, sent.session, len(body), len(sent.messages), sent.number - 1)
    return struct.pack("<BxHIIHHqqq", *header, sent.number, sent.sent_ns) + body


def _deribit_sbe(sent: Sent) -> bytes:
    body = struct.pack("<6H", len(sent.messages[0]), 1000, 1, 1, 0, 0) + sent.messages[0]
    return struct.pack("<HHI", len(body), *sent.stream, sent.number) + body


def _cboe_pitch(sent: Sent) -> bytes:
    body = _prefixed("<B", sent.messages, 1)
    header = struct.pack("<HBBI", 8 + len(body), len(sent.messages), *sent.stream, sent.number)
    return header + body


def _miax_mach(sent: Sent) -> bytes:
    # The number of a heartbeat is the last one.
    if not sent.messages:
        return struct.pack("<QHBB", sent.number - 1, 12, 0, sent.session)
    return b"".join(
        struct.pack("<QHBB", sent.number + place, 12 + len(data), 3, sent.session) + data
        for place, data in enumerate(sent.messages)
    )


def _ice_impact(sent: Sent) -> bytes:
    body = b"".join(struct.pack(">cH", b"E", len(data)) + data for data in sent.messages)
    milliseconds = sent.sent_ns // 10**6
    header = struct.pack(">HIHq", sent.session, sent.number, len(sent.messages), milliseconds)
    return header + body


def _nyse_xdp(sent: Sent) -> bytes:
    body = b"".join(struct.pack("<HH", 4 + len(data), 100) + data for data in sent.messages)
    delivery = 11 if sent.messages else 1
    time = divmod(sent.sent_ns, _SECOND)
    header = (16 + len(body), delivery, len(sent.messages), sent.number, *time)
    return struct.pack("<HBBIII", *header) + body


def _cboe_csm(sent: Sent) -> bytes:
    body = b"".join(struct.pack(">HBc", 4 + len(data), 11, b"X") + data for data in sent.messages)
    time = sent.sent_ns // 10**6
    return struct.pack(">BHQBI", 1, 16 + len(body), time, len(sent.messages), sent.number) + body


def _memx_memoir(sent: Sent) -> bytes:
    header = struct.pack(">BBQQ", 2 if sent.messages else 0, 18, sent.session, sent.number)
    if not sent.messages:
        return header
    body = b"".join(
        struct.pack(">HHBBH", 6 + len(data), len(data), 11, 2, 0x0103) + data
        for data in sent.messages
    )
    return header + struct.pack(">H", len(sent.messages)) + body


def _siac(sent: Sent, header: str, keys: tuple[int, ...], body: bytes) -> bytes:
    # Blocks have an even size.
    time = divmod(sent.sent_ns, _SECOND)
    size = struct.calcsize(header) + len(body)
    padding = size % 2
    count = len(sent.messages)
    fields = (2, size + padding, *keys, sent.number, count, *time, 0)
    return struct.pack(header, *fields) + body + bytes(padding)


def _siac_cta(sent: Sent) -> bytes:
    body = b"".join(struct.pack(">H2s", 4 + len(data), b"QL") + data for data in sent.messages)
    return _siac(sent, ">BHBBIBIIH", (*sent.stream, ord("O")), body)


def _siac_opra(sent: Sent) -> bytes:
    keys = (ord("O"), ord(" "), int(sent.session))
    return _siac(sent, ">BHBBBIBIIH", keys, b"".join(sent.messages))


def _b3_umdf(sent: Sent) -> bytes:
    body = b"".join(
        struct.pack("<HHHHHH", 12 + len(data), 0xEB50, len(data), 20, 2, 5) + data
        for data in sent.messages
    )
    header = struct.pack("<BBHIQ", *sent.stream, 0, sent.session, sent.number, sent.sent_ns)
    return header + body


def _coinbase_derivatives(sent: Sent) -> bytes:
    body = b"".join(
        struct.pack("<HHHH", 8 + len(data), len(data), 20, 1201) + data for data in sent.messages
    )
    keys = (sent.sent_ns, sent.number, *sent.stream, 1, len(sent.messages), 0)
    return struct.pack("<qqHBBi", *keys) + body


def _eurex_eobi(sent: Sent) -> bytes:
    body = b"".join(
        struct.pack("<HHI", 8 + len(data), 13100, place) + data
        for place, data in enumerate(sent.messages)
    )
    partition, segment = sent.stream
    keys = (32, 13004, 0xFFFFFFFF, sent.number, segment, partition, 1, 0, sent.sent_ns)
    return struct.pack("<HHIIiBBB5xQ", *keys) + body


_BUILDERS: dict[str, Callable[[Sent], bytes]] = {
    "roq": _roq("<", False),
    "roq_big": _roq(">", False),
    "roq_legacy": _roq("<", True),
    "roq_legacy_big": _roq(">", True),
    "cme_mdp3": _cme_mdp3,
    "moldudp64": _mold(">"),
    "moldudp64le": _mold("<"),
    "iex_tp": _iex_tp,
    "deribit_sbe": _deribit_sbe,
    "cboe_pitch": _cboe_pitch,
    "miax_mach": _miax_mach,
    "ice_impact": _ice_impact,
    "nyse_xdp": _nyse_xdp,
    "cboe_csm": _cboe_csm,
    "memx_memoir": _memx_memoir,
    "siac_cta": _siac_cta,
    "siac_opra": _siac_opra,
    "b3_umdf": _b3_umdf,
    "coinbase_derivatives": _coinbase_derivatives,
    "eurex_eobi": _eurex_eobi,
}
