"""Framings in Python: get the units and messages of a datagram.

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

#: Names of all framings, as in the settings.
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
    """A datagram is not sound in its framing.

    Attributes
    ----------
    reason : Malformed
        The first defect found.
    """

    def __init__(self, framing: str, size: int, reason: Malformed):
        super().__init__(
            f"not a valid datagram of {framing} ({size} bytes): {_SENTENCES[reason]}")
        self.reason = reason


class UnitFlag(IntFlag):
    """Properties of a unit."""

    HEARTBEAT = UNIT_HEARTBEAT
    SNAPSHOT = UNIT_SNAPSHOT
    RETRANSMISSION = UNIT_RETRANSMISSION
    UNSEQUENCED = UNIT_UNSEQUENCED
    RESET = UNIT_RESET
    START_OF_SESSION = UNIT_START_OF_SESSION
    END_OF_SESSION = UNIT_END_OF_SESSION


class ParsedUnit(NamedTuple):
    """A unit, which a window puts in order: a datagram, or one of its parts.

    Attributes
    ----------
    stream : int
        Which numbering, if a line carries several; otherwise 0.
    session : int
        Session id as published; 0 if there is none. Unique only within its stream.
    number : int
        Number of the first message or of the datagram, as wide as on the wire. For a unit that
        takes no number (`count` 0), the next number.
    count : int
        How many numbers it takes.
    flags : UnitFlag
        Its properties.
    fragment, fragments : int
        Index of the fragment, and number of fragments of the message; 0 and 1 if not fragmented.
    messages : int
        Number of messages; 0 also if they are neither delimited nor counted.
    offset, size : int
        Offset and size in bytes of the messages in the datagram.
    sent_ns : int
        The venue's sending time, UNIX ns; 0 if it has none.
    object : int
        Object of the messages, if the header has it.
    detail : int
        Further information, as described in the framing's file in `udpfast/wire`.
    encoding : int
        Encoding of the payload, if the header has it.
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
    """A message with its number.

    Attributes
    ----------
    number : int
        Its own number if numbers count messages, otherwise that of its unit.
    data : bytes
        Its bytes, including a length or type that is its first field, but not a length before it.
    """

    number: int
    data: bytes


@cython.final
cdef class Framing:
    """A parser of datagrams of one framing.

    Parameters
    ----------
    name : str
        One of `FRAMINGS`.

    Attributes
    ----------
    facts : FramingFacts
        Facts about the framing beyond its bytes.

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
        """Name of the framing in the settings."""
        return self.facts.name

    def label(self, unit: ParsedUnit) -> str:
        """Return the usual name of a unit's numbering; "" if a line has only one."""
        return self.facts.label(unit.stream, unit.session)

    def units(self, const uint8_t[::1] datagram not None) -> list[ParsedUnit]:
        """Return the units of one datagram.

        Parameters
        ----------
        datagram : bytes-like
            The datagram as received.

        Returns
        -------
        list of ParsedUnit
            At least one unit.

        Raises
        ------
        MalformedError
            The datagram is not sound; `reason` says why. Parts before the defect are not returned.
        """
        cdef int count, i
        cdef Unit* units = self.read(datagram, &count)
        try:
            return [as_unit(&units[i]) for i in range(count)]
        finally:
            free(units)

    def messages(self, const uint8_t[::1] datagram not None) -> list[NumberedMessage]:
        """Return the messages of one datagram, in order.

        If messages are not delimited, the bytes of a unit are returned as one message.

        Returns
        -------
        list of NumberedMessage

        Raises
        ------
        MalformedError
            The datagram is not sound.
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
        # Return the units, which the caller frees; there is room for those of any datagram.
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
