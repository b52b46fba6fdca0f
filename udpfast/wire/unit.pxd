# A unit: a datagram, or a part of one, as its framing describes it. A window puts units in order.
#
#        0         8        16        24        32       36       40      44      48       52     56
#        +---------+---------+---------+---------+--------+--------+-------+-------+--------+------+
#        | session | number  | sent_ns | detail  | stream | object | count | flags | offset | size |
#        +---------+---------+---------+---------+--------+--------+-------+-------+--------+------+
#                           56 fragment  58 fragments  60 messages  62 delimiter  63 encoding   64
#
# A datagram is sound or not: it has units only if all of it was understood, to the last byte. If
# any part is damaged, none of it is used.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

cdef struct Unit:
    uint64_t session             # as published, 0: none; unique only within its stream
    uint64_t number              # of the first message or the datagram, as wide as on the wire
    int64_t sent_ns              # the venue's sending time, UNIX ns; 0: it has none
    uint64_t detail              # as the framing's file says: IEX's offset, Roq's last_seqno
    uint32_t stream              # which numbering, if a line carries several; else 0
    uint32_t object              # object of the messages, if the header has it (Roq, Coinbase)
    uint32_t count               # numbers that it takes; 0: none, `number` is the next one
    uint32_t flags               # UnitFlag
    uint32_t offset              # offset of the messages in the datagram
    uint32_t size                # bytes of all messages
    uint16_t fragment            # index of the fragment, from 0
    uint16_t fragments           # number of fragments; 1: not fragmented
    uint16_t messages            # 0 also if they are neither delimited nor counted
    uint8_t delimiter            # Delimiter (messages.pxd)
    uint8_t encoding             # encoding of the payload, if the header has it (Roq)

cdef enum:  # UnitFlag
    UNIT_HEARTBEAT = 1           # shows that the sender is alive; has no messages
    UNIT_SNAPSHOT = 2            # part of a snapshot or a refresh
    UNIT_RETRANSMISSION = 4
    UNIT_UNSEQUENCED = 8         # `number` does not order it
    UNIT_RESET = 16              # earlier state is void: the numbering continues from `number`
    UNIT_START_OF_SESSION = 32   # first of a session: a later sending time means a new start
    UNIT_END_OF_SESSION = 64

cdef enum:
    # Most units in one datagram: MIAX's smallest has 12 bytes, a frame of 1,500 bytes holds 122.
    UNITS_MAX = 128
    # Most bytes of UDP over IPv4 or IPv6; so a count of messages fits 16 bits.
    WIRE_SIZE_MAX = 65_527

cdef enum:  # Malformed: why a datagram has no units
    MALFORMED_HEADER_SHORT = -1      # it ends inside the header
    MALFORMED_TOO_LONG = -2          # it is longer than any datagram of this framing
    MALFORMED_VERSION = -3           # a constant field of the header has another value
    MALFORMED_KIND = -4              # the framing does not define this type or flag
    MALFORMED_LENGTH_BEYOND = -5     # the length field reaches beyond the datagram
    MALFORMED_LENGTH_BELOW = -6      # the length field ends before the datagram, or in the header
    MALFORMED_COUNT_AND_BYTES = -7   # the counted messages do not fill the bytes
    MALFORMED_MESSAGE_SHORT = -8     # a message is shorter than its own header
    MALFORMED_MESSAGE_BEYOND = -9    # a message reaches beyond its unit
    MALFORMED_RANGE = -10            # a key is larger than any that the venue is known to use
    MALFORMED_UNITS_MANY = -11       # more units than the caller has room for
    MALFORMED_FRAGMENT_BEYOND = -12  # a fragment's index is above the last one's
    MALFORMED_FRAGMENT_SHORT = -13   # a fragment is neither the last one nor full
    MALFORMED_END = -14


cdef inline void unit_init(
    Unit* unit, uint32_t offset, uint32_t size, int delimiter, int messages,
) noexcept nogil:
    memset(unit, 0, sizeof(Unit))
    unit.count = 1
    unit.fragments = 1
    unit.offset = offset
    unit.size = size
    unit.delimiter = <uint8_t>delimiter
    unit.messages = <uint16_t>messages
