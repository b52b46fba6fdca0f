"""Framings as Python sees them: one datagram in, its units and messages out.

    framing = Framing("moldudp64")
    for unit in framing.units(datagram):
        print(framing.label(unit), unit.number, unit.count)
    for number, message in framing.messages(datagram):
        ...
"""

from enum import IntEnum, IntFlag
from typing import NamedTuple

cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from udpfast.wire.messages cimport MessageWalk, message_walk_begin, message_walk_next
from udpfast.wire.unit cimport (
    MALFORMED_COUNT_AND_BYTES, MALFORMED_END, MALFORMED_FRAGMENT_BEYOND, MALFORMED_FRAGMENT_SHORT,
    MALFORMED_HEADER_SHORT, MALFORMED_KIND, MALFORMED_LENGTH_BELOW, MALFORMED_LENGTH_BEYOND,
    MALFORMED_MESSAGE_BEYOND, MALFORMED_MESSAGE_SHORT, MALFORMED_RANGE, MALFORMED_TOO_LONG,
    MALFORMED_UNITS_MANY, MALFORMED_VERSION, UNIT_END_OF_SESSION, UNIT_HEARTBEAT, UNIT_RESET,
    UNIT_RETRANSMISSION, UNIT_SNAPSHOT, UNIT_START_OF_SESSION, UNIT_UNSEQUENCED, WIRE_SIZE_MAX,
)

from udpfast.errors import ConfigError, FormatError
from udpfast.wire.facts import FACTS, Numbers

__all__ = [
    "FRAMINGS", "Framing", "Malformed", "MalformedError", "NumberedMessage", "ParsedUnit",
    "UnitFlag",
]

if sizeof(Unit) != 64:
    raise ImportError(f"Unit has {sizeof(Unit)} bytes, not 64")
if len(FACTS) != FRAMING_COUNT:
    raise ImportError(f"{FRAMING_COUNT} framings, but facts of {len(FACTS)}")

#: Names of all framings, as the settings have them.
FRAMINGS: tuple[str, ...] = tuple(facts.name for facts in FACTS)


cdef int framing_units_seldom(
    int framing, const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    return framing_units(framing, data, size, units, room)


class Malformed(IntEnum):
    """Why a datagram has no units."""

    HEADER_SHORT = MALFORMED_HEADER_SHORT
    TOO_LONG = MALFORMED_TOO_LONG
    VERSION = MALFORMED_VERSION
    KIND = MALFORMED_KIND
    LENGTH_BEYOND = MALFORMED_LENGTH_BEYOND
    LENGTH_BELOW = MALFORMED_LENGTH_BELOW
    COUNT_AND_BYTES = MALFORMED_COUNT_AND_BYTES
    MESSAGE_SHORT = MALFORMED_MESSAGE_SHORT
    MESSAGE_BEYOND = MALFORMED_MESSAGE_BEYOND
    RANGE = MALFORMED_RANGE
    UNITS_MANY = MALFORMED_UNITS_MANY
    FRAGMENT_BEYOND = MALFORMED_FRAGMENT_BEYOND
    FRAGMENT_SHORT = MALFORMED_FRAGMENT_SHORT


if len(Malformed) != -MALFORMED_END - 1:
    raise ImportError(f"{-MALFORMED_END - 1} reasons, but {len(Malformed)} names")

_SENTENCES = {
    Malformed.HEADER_SHORT: "it ends inside its header",
    Malformed.TOO_LONG: "it is longer than any datagram of this framing",
    Malformed.VERSION: "a constant field of the header has another value",
    Malformed.KIND: "its type or flags are not defined by the framing",
    Malformed.LENGTH_BEYOND: "the length field reaches beyond the datagram",
    Malformed.LENGTH_BELOW: "the length field ends before the datagram, or inside the header",
    Malformed.COUNT_AND_BYTES: "the number of messages does not match the bytes",
    Malformed.MESSAGE_SHORT: "a message is shorter than its own header",
    Malformed.MESSAGE_BEYOND: "a message reaches beyond the end of its unit",
    Malformed.RANGE: "a key is larger than any that the venue is known to use",
    Malformed.UNITS_MANY: "it has more units than udpfast has room for",
    Malformed.FRAGMENT_BEYOND: "a fragment's number is above the last one's",
    Malformed.FRAGMENT_SHORT: "a fragment is neither the last one nor full",
}


class MalformedError(FormatError):
    """A datagram that is not sound in its framing.

    Attributes
    ----------
    reason : Malformed
        What is wrong.
    """

    def __init__(self, framing: str, size: int, reason: Malformed):
        super().__init__(
            f"not a valid datagram of {framing} ({size} bytes): {_SENTENCES[reason]}")
        self.reason = reason


class UnitFlag(IntFlag):
    """What a unit is, beside the messages that it carries."""

    HEARTBEAT = UNIT_HEARTBEAT
    SNAPSHOT = UNIT_SNAPSHOT
    RETRANSMISSION = UNIT_RETRANSMISSION
    UNSEQUENCED = UNIT_UNSEQUENCED
    RESET = UNIT_RESET
    START_OF_SESSION = UNIT_START_OF_SESSION
    END_OF_SESSION = UNIT_END_OF_SESSION


class ParsedUnit(NamedTuple):
    """What a window puts in order: a datagram, or one of the parts that it consists of.

    Attributes
    ----------
    stream : int
        Which numbering, where a line carries several; else 0.
    session : int
        As published; 0 where there is none. Unique within its stream only.
    number : int
        Of the first message, or of the datagram, as wide as on the wire. Of a unit that takes no
        number (`count` 0) the one that comes next.
    count : int
        Numbers that it takes.
    flags : UnitFlag
        What it is.
    fragment, fragments : int
        Which part of how many of one message; 0 of 1 where it is whole.
    messages : int
        How many there are; 0 too where they are not delimited and nobody counted them.
    offset, size : int
        Where in the datagram the messages are, in bytes.
    sent_ns : int
        The venue's sending time, UNIX ns; 0 where it has none.
    object : int
        Whose messages these are, where the header says so.
    detail : int
        What else the framing says; its file in `udpfast/wire` tells what.
    encoding : int
        Of the payload, where the header says so.
    """

    stream: int
    session: int
    number: int
    count: int
    flags: UnitFlag
    fragment: int
    fragments: int
    messages: int
    offset: int
    size: int
    sent_ns: int
    object: int
    detail: int
    encoding: int


class NumberedMessage(NamedTuple):
    """A message and the number that it has, or that its datagram has.

    Attributes
    ----------
    number : int
        Its own where numbers count messages, else that of its unit.
    data : bytes
        With its length or type where these are part of it; without a length in front of it.
    """

    number: int
    data: bytes


@cython.final
cdef class Framing:
    """One framing, by its name.

    Parameters
    ----------
    name : str
        One of `FRAMINGS`.

    Attributes
    ----------
    facts : FramingFacts
        What is to be known of it beyond its bytes.

    Raises
    ------
    ConfigError
        There is no framing of that name.
    """

    cdef readonly object facts
    cdef readonly int index

    def __init__(self, str name):
        if name not in FRAMINGS:
            raise ConfigError(f"framing must be one of {', '.join(FRAMINGS)}, was {name!r}")
        self.index = FRAMINGS.index(name)
        self.facts = FACTS[self.index]

    def __repr__(self):
        return f"Framing({self.facts.name!r})"

    @property
    def name(self) -> str:
        """As in the settings."""
        return self.facts.name

    def label(self, unit: ParsedUnit) -> str:
        """Return how people name the numbering of a unit; empty where it is the line's own."""
        return self.facts.label(unit.stream, unit.session)

    def units(self, const uint8_t[::1] datagram not None) -> list[ParsedUnit]:
        """Return the units of one datagram.

        Parameters
        ----------
        datagram : bytes-like
            What a socket handed over.

        Returns
        -------
        list of ParsedUnit
            One or more.

        Raises
        ------
        MalformedError
            It is not sound; its `reason` says why. What was whole before the damage is not used.
        """
        cdef int count, i
        cdef Unit* units = self.read(datagram, &count)
        try:
            return [as_unit(&units[i]) for i in range(count)]
        finally:
            free(units)

    def messages(self, const uint8_t[::1] datagram not None) -> list[NumberedMessage]:
        """Return the messages of one datagram, in its order.

        Where messages are not delimited, all of a unit's bytes are one.

        Returns
        -------
        list of NumberedMessage

        Raises
        ------
        MalformedError
            It is not sound.
        """
        cdef MessageWalk walk
        cdef uint32_t offset, size, place
        cdef int count, i
        cdef bint each = self.facts.numbers is Numbers.MESSAGES
        cdef Unit* units = self.read(datagram, &count)
        found = []
        try:
            for i in range(count):
                message_walk_begin(&walk, &datagram[0], &units[i])
                place = 0
                while message_walk_next(&walk, &offset, &size):
                    found.append(NumberedMessage(
                        units[i].number + (place if each else 0),
                        bytes(datagram[offset:offset + size])))
                    place += 1
                    if place == units[i].messages:
                        break
        finally:
            free(units)
        return found

    cdef Unit* read(self, const uint8_t[::1] datagram, int* count) except NULL:
        # The units, to be freed; a datagram of any size has room.
        cdef Py_ssize_t size = datagram.shape[0]
        cdef int room = <int>(min(size, WIRE_SIZE_MAX) // 12 + 1)
        cdef Unit* units = <Unit*>malloc(room * sizeof(Unit))
        if units == NULL:
            raise MemoryError
        count[0] = framing_units(self.index, &datagram[0] if size else NULL,
                                 <uint32_t>min(size, WIRE_SIZE_MAX + 1), units, room)
        if count[0] < 0:
            free(units)
            raise MalformedError(self.facts.name, size, Malformed(count[0]))
        return units


cdef as_unit(const Unit* unit):
    return ParsedUnit(
        unit.stream, unit.session, unit.number, unit.count, UnitFlag(unit.flags), unit.fragment,
        unit.fragments, unit.messages, unit.offset, unit.size, unit.sent_ns, unit.object,
        unit.detail, unit.encoding)
