"""Facts about each framing beyond its bytes: a row per framing, in the order of the switch."""

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

__all__ = ["FACTS", "FramingFacts", "Heartbeat", "Numbers", "session_text"]

# A session of MoldUDP64: ten characters of 6 bits each, or a hash with the four bits above set.
_SESSION_CHARACTERS = 10
_SESSION_HASHED = 0xF << 60


class Numbers(Enum):
    """What takes a number."""

    DATAGRAMS = "datagrams"
    MESSAGES = "messages"


class Heartbeat(Enum):
    """The meaning of a heartbeat's number on the wire.

    A unit that takes no number has the next one, whatever its framing: the difference shows only
    in the bytes.
    """

    NONE = "none"
    NEXT = "next"
    LAST = "last"
    TAKES = "takes one"


def session_text(session: int) -> str:
    """Return the ten characters of a MoldUDP64 session, or `#` and hexadecimal digits of a hash."""
    if session & _SESSION_HASHED:
        return f"#{session:016x}"
    return "".join(chr(32 + (session >> 6 * place & 63)) for place in range(_SESSION_CHARACTERS))


class FramingFacts(Struct, frozen=True):
    """The facts about one framing.

    Attributes
    ----------
    name : str
        Name in the settings.
    title : str
        The venue or protocol.
    numbers : Numbers
        What takes a number.
    number_bits : int
        Width of a number on the wire, after which it wraps.
    heartbeat : Heartbeat
        Meaning of a heartbeat's number on the wire.
    session : str
        Form of the session id; empty: there is none, and numbers begin anew without announcement.
    stream : str
        What distinguishes several numberings on one line; empty: a line has only one.
    snapshot : str
        What marks snapshots and refreshes; empty: only the port does, or there are none.
    delimited : bool
        Whether messages state where they end; otherwise the payload's decoder has to know.
    proof_bits : int
        Roughly, the number of bits that a sound datagram fixes: random bytes are sound with a
        probability of 2 to the power of minus this.
    label : callable
        Maps `(stream, session)` to the usual name of that numbering; "" if a line has only one.
    skips_zero : bool
        Whether 1 follows the highest number, because 0 is not a number.
    announces_start : bool
        Whether the first unit of a session is marked, and every unit has a sending time.
    address_shift : int
        For venues that number each address of a line separately without naming the stream in the
        bytes: the address's index in the line's list is put into the stream, from this bit on.
        -1: the bytes name every stream.
    """

    name: str
    title: str
    numbers: Numbers
    number_bits: int
    heartbeat: Heartbeat
    session: str
    stream: str
    snapshot: str
    delimited: bool
    proof_bits: int
    label: Callable[[int, int], str]
    skips_zero: bool = False
    announces_start: bool = False
    address_shift: int = -1

    @property
    def undelimited(self) -> bool:
        """Whether numbers count messages that do not state where they end."""
        return self.numbers is Numbers.MESSAGES and not self.delimited


def _nothing(_stream: int, _session: int) -> str:
    return ""


def _stream(stream: int, _session: int) -> str:
    return str(stream)


def _session(_stream: int, session: int) -> str:
    return str(session)


def _letter(stream: int) -> str:
    # The feed letter, then the address's index if the line has several.
    place = stream >> 8
    return f"{chr(stream & 0xFF)}{place}" if place else chr(stream)


def _roq(name: str, title: str) -> FramingFacts:
    return FramingFacts(
        name=name,
        title=title,
        numbers=Numbers.DATAGRAMS,
        number_bits=32,
        heartbeat=Heartbeat.TAKES,
        session="u16",
        stream="",
        snapshot="" if "legacy" in name else "bit 4 of control",
        delimited=False,
        proof_bits=8,
        label=_session,
    )


def _mold(name: str, title: str) -> FramingFacts:
    return FramingFacts(
        name=name,
        title=title,
        numbers=Numbers.MESSAGES,
        number_bits=64,
        heartbeat=Heartbeat.NEXT,
        session="10 characters",
        stream="",
        snapshot="",
        delimited=True,
        proof_bits=18,
        label=lambda _, session: session_text(session),
        address_shift=0,
    )


FACTS: tuple[FramingFacts, ...] = (
    _roq("roq", "Roq"),
    _roq("roq_big", "Roq, big endian"),
    _roq("roq_legacy", "Roq, the older revision"),
    _roq("roq_legacy_big", "Roq, the older revision, big endian"),
    FramingFacts(
        name="cme_mdp3",
        title="CME MDP 3.0",
        numbers=Numbers.DATAGRAMS,
        number_bits=32,
        heartbeat=Heartbeat.TAKES,
        session="",
        stream="",
        snapshot="",
        delimited=True,
        proof_bits=16,
        label=_nothing,
        address_shift=0,
    ),
    _mold("moldudp64", "MoldUDP64"),
    _mold("moldudp64le", "MoldUDP64, little endian"),
    FramingFacts(
        name="iex_tp",
        title="IEX Transport Protocol",
        numbers=Numbers.MESSAGES,
        number_bits=64,
        heartbeat=Heartbeat.NEXT,
        session="u32",
        stream="protocol and channel",
        snapshot="",
        delimited=True,
        proof_bits=56,
        label=lambda stream, session: f"{stream >> 16:x}/{stream & 0xFFFF}/{session}",
        announces_start=True,
    ),
    FramingFacts(
        name="deribit_sbe",
        title="Deribit multicast",
        numbers=Numbers.DATAGRAMS,
        number_bits=32,
        heartbeat=Heartbeat.NONE,
        session="",
        stream="channel",
        snapshot="",
        delimited=False,
        proof_bits=16,
        label=_stream,
    ),
    FramingFacts(
        name="cboe_pitch",
        title="Cboe multicast PITCH",
        numbers=Numbers.MESSAGES,
        number_bits=32,
        heartbeat=Heartbeat.NEXT,
        session="",
        stream="unit",
        snapshot="",
        delimited=True,
        proof_bits=24,
        label=_stream,
        skips_zero=True,
    ),
    FramingFacts(
        name="miax_mach",
        title="MIAX MACH",
        numbers=Numbers.MESSAGES,
        number_bits=64,
        heartbeat=Heartbeat.LAST,
        session="u8",
        stream="",
        snapshot="",
        delimited=True,
        proof_bits=22,
        label=_session,
        address_shift=0,
    ),
    FramingFacts(
        name="ice_impact",
        title="ICE iMpact",
        numbers=Numbers.MESSAGES,
        number_bits=32,
        heartbeat=Heartbeat.NEXT,
        session="u16",
        stream="",
        snapshot="",
        delimited=True,
        proof_bits=18,
        label=_session,
        address_shift=0,
    ),
    FramingFacts(
        name="nyse_xdp",
        title="NYSE XDP and Pillar",
        numbers=Numbers.MESSAGES,
        number_bits=32,
        heartbeat=Heartbeat.NEXT,
        session="",
        stream="",
        snapshot="delivery flags 17 to 20",
        delimited=True,
        proof_bits=36,
        label=_nothing,
        address_shift=0,
    ),
    FramingFacts(
        name="cboe_csm",
        title="Cboe Streaming Market",
        numbers=Numbers.MESSAGES,
        number_bits=32,
        heartbeat=Heartbeat.NEXT,
        session="",
        stream="",
        snapshot="",
        delimited=True,
        proof_bits=40,
        label=_nothing,
        address_shift=0,
    ),
    FramingFacts(
        name="memx_memoir",
        title="MEMX MEMOIR",
        numbers=Numbers.MESSAGES,
        number_bits=64,
        heartbeat=Heartbeat.NEXT,
        session="u64",
        stream="",
        snapshot="",
        delimited=True,
        proof_bits=30,
        label=lambda _, session: f"{session:016x}",
        address_shift=0,
    ),
    FramingFacts(
        name="siac_cta",
        title="SIAC CTS and CQS",
        numbers=Numbers.MESSAGES,
        number_bits=32,
        heartbeat=Heartbeat.NEXT,
        session="",
        stream="feed letter",
        snapshot="",
        delimited=True,
        proof_bits=32,
        label=lambda stream, _: _letter(stream),
        address_shift=8,
    ),
    FramingFacts(
        name="siac_opra",
        title="SIAC OPRA, headers",
        numbers=Numbers.MESSAGES,
        number_bits=32,
        heartbeat=Heartbeat.NEXT,
        session="u8",
        stream="feed letter",
        snapshot="",
        delimited=False,
        proof_bits=24,
        label=lambda stream, session: f"{_letter(stream)}/{session}",
        address_shift=8,
    ),
    FramingFacts(
        name="b3_umdf",
        title="B3 Binary UMDF",
        numbers=Numbers.DATAGRAMS,
        number_bits=32,
        heartbeat=Heartbeat.NONE,
        session="u16: version of the numbering",
        stream="channel",
        snapshot="",
        delimited=True,
        proof_bits=32,
        label=lambda stream, session: f"{stream}/{session}",
    ),
    FramingFacts(
        name="coinbase_derivatives",
        title="Coinbase Derivatives",
        numbers=Numbers.DATAGRAMS,
        number_bits=64,
        heartbeat=Heartbeat.NONE,
        session="",
        stream="channel",
        snapshot="flag 2",
        delimited=True,
        proof_bits=21,
        label=_stream,
    ),
    FramingFacts(
        name="eurex_eobi",
        title="Eurex EOBI",
        numbers=Numbers.DATAGRAMS,
        number_bits=32,
        heartbeat=Heartbeat.TAKES,
        session="",
        stream="partition and market segment",
        snapshot="",
        delimited=True,
        proof_bits=52,
        label=lambda stream, _: f"{stream >> 24}/{stream & 0xFFFFFF}",
    ),
)
