"""What is to be known of each framing beyond its bytes: a row each, in the order of the switch."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

__all__ = ["FACTS", "FramingFacts", "Heartbeat", "Numbers", "session_text"]

# MoldUDP64's ten characters: 6 bits each, or a hash with the four bits above set.
_SESSION_CHARACTERS = 10
_SESSION_HASHED = 0xF << 60


class Numbers(Enum):
    """What takes a number."""

    DATAGRAMS = "datagrams"
    MESSAGES = "messages"


class Heartbeat(Enum):
    """What the number of a heartbeat says on the wire.

    A unit that takes no number names the next one, whatever its framing; only who looks at the
    bytes meets the difference.
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


@dataclass(frozen=True, slots=True)
class FramingFacts:
    """One framing.

    Attributes
    ----------
    name : str
        As in the settings.
    title : str
        Whose it is.
    numbers : Numbers
        What takes a number.
    number_bits : int
        Width of a number on the wire: where it wraps.
    heartbeat : Heartbeat
        What a heartbeat's number says on the wire.
    session : str
        What the session is; empty where there is none, and numbers begin anew unannounced.
    stream : str
        What tells several numberings of one line apart; empty where a line has one.
    snapshot : str
        What tells snapshots and refreshes from the rest; empty where only the port does, or where
        there are none.
    delimited : bool
        Whether messages say where they end; else the payload has to know.
    proof_bits : int
        About how many bits of a sound datagram would be otherwise in random bytes: what soundness
        says of a capture's framing.
    label : callable
        `(stream, session)` -> how people name that numbering; empty where it is the line's own.
    skips_zero : bool
        Whether 1 follows the highest number, since 0 is none.
    announces_start : bool
        Whether the first unit of a session says so, and every unit when it was sent.
    address_shift : int
        Where a venue numbers each of a line's addresses apart and nothing in the bytes says which
        it is: the address's place in the line's list goes into the stream, from this bit on. -1:
        the bytes tell every stream.
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
        """Whether numbers count messages that do not say where they end."""
        return self.numbers is Numbers.MESSAGES and not self.delimited


def _nothing(_stream: int, _session: int) -> str:
    return ""


def _stream(stream: int, _session: int) -> str:
    return str(stream)


def _session(_stream: int, session: int) -> str:
    return str(session)


def _letter(stream: int) -> str:
    # Behind it the place of the address, where the line has several.
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
