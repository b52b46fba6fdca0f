# What hosts of a bus say to each other: frames on a TCP link that copies a store, datagrams that
# carry messages to its sequencer. All integers are little-endian.
#
# A frame:
#
#   0       4      5         6       8        12         16         24      32
#   +-------+------+---------+-------+--------+----------+----------+-------+------------------+
#   | magic | type | version | flags | length | checksum | position | epoch | body: `length` B |
#   +-------+------+---------+-------+--------+----------+----------+-------+------------------+
#
# checksum: CRC32C of the header, its own field as 0, and of the body, except of DATA: records carry
# their own. A body is a multiple of 8 bytes, so that records stay aligned wherever they arrive.
#
# A datagram:
#
#   0       4         5       6       8           16      24       28            32      40       48
#   +-------+---------+-------+-------+-----------+-------+--------+-------------+-------+--------+
#   | magic | version | flags | count | store_key | epoch | sender | incarnation | first | number |
#   +-------+---------+-------+-------+-----------+-------+--------+-------------+-------+--------+
#   48: `count` times length u16, type u16, payload; or what a flag says
#
# An epoch counts promotions (upper 24 bits) and starts since (16); the other bits are random. Two
# hosts that were promoted at once never take each other's epoch for their own: one is higher.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.crc32c cimport CRC32C_BEGIN, crc32c_words

cdef enum:
    LINK_MAGIC = 0x4B4E4C55      # "ULNK"
    SEND_MAGIC = 0x444E5355      # "USND"
    BUS_VERSION = 1
    PROGRESS_LEAST = 40          # of Progress, as the first versions send it
    LINK_HEADER_SIZE = 32
    # Bytes of a body. More would keep whoever is up to date waiting for the end of it; the largest
    # record, a message of 131,072 bytes, fits.
    LINK_BODY_MAX = 1 << 18
    SEND_HEADER_SIZE = 48
    # An Ethernet frame of 1,500 bytes less IPv4 and UDP headers, less 32 for a tag (bus/seal.py).
    SEND_SIZE_MAX = 1440
    MESSAGE_HEADER_SIZE = 4
    SENT_SIZE_MAX = 1388         # payload of the largest message: it fits one datagram
    SENDERS_MAX = 1024           # names that a store may have in its life; a record holds them all
    NAME_SIZE = 32               # bytes of a host's or sender's name, UTF-8

cdef enum:  # LinkType
    LINK_HELLO = 1               # receiver: which store, how far, which lineage
    LINK_WELCOME = 2             # source: what follows continues it
    LINK_REFUSE = 3              # source: why not
    LINK_SEGMENT = 4             # the header of the segment whose records follow
    LINK_DATA = 5                # whole records, one behind the other
    LINK_ACK = 6                 # receiver: how far it is
    LINK_HEARTBEAT = 7           # source: how far it is, and that it lives
    LINK_BYE = 8                 # source: its host is being stopped in good order
    # How far is it? Who is asked takes nothing of lower epochs than the one that is named any more.
    LINK_ASK = 9
    LINK_ANSWER = 10             # how far this host is
    LINK_NAMES = 11              # source: what name ids mean in records that follow

cdef enum:  # SendFlag
    SEND_REGISTER = 1            # the body is a Registration
    SEND_REFUSED = 2             # from the sequencer: `first` is the reason, `epoch` its epoch

cdef enum:  # Refusal: of a datagram, told to who sent it
    REFUSED_EPOCH = 1            # an epoch that is over
    REFUSED_INCARNATION = 2      # another process sends under this name since
    REFUSED_NAME_IN_USE = 3      # another host's process, which lives, has this name
    REFUSED_SENDERS_FULL = 4     # the store has SENDERS_MAX names

cdef packed struct LinkHeader:
    uint32_t magic
    uint8_t type                 # LinkType
    uint8_t version
    uint16_t flags
    uint32_t length              # of the body
    uint32_t checksum
    uint64_t position            # in the store: of DATA's first record, of SEGMENT's
    uint64_t epoch               # of the records; else the latest that the speaker knows

cdef packed struct Progress:     # body of HEARTBEAT and ACK, 48 bytes
    uint64_t end                 # behind the last record
    uint64_t synced              # the disk has all before
    uint64_t released            # readers may see all before
    uint64_t kept                # all standbys have all before
    int64_t unix_ns              # the speaker's clock
    uint64_t let_go              # outboxes let all before go; versions before it end here

cdef packed struct SendHeader:
    uint32_t magic
    uint8_t version
    uint8_t flags                # SendFlag
    uint16_t count               # of messages
    uint64_t store_key           # the first 8 bytes of the store's identity
    uint64_t epoch               # the latest that the sender knows
    uint32_t sender
    uint32_t incarnation
    uint64_t first               # number of the first message
    uint64_t number              # of the datagram, for whoever looks at captures

cdef packed struct Registration:  # 72 bytes
    uint64_t nonce
    char name[32]
    char host[32]

cdef packed struct EpochBegin:   # payload of RESTART in a bus's store; begins as Restart does
    uint64_t epoch
    int64_t restarted_ns
    uint64_t old_end             # position where the epoch before ended, for this store
    uint32_t tail_checksum       # of the last record before; 0: there is none
    uint32_t reserved
    char host[32]


cdef inline uint64_t progress_let_go(
        const LinkHeader* header, const Progress* progress) noexcept nogil:
    # A version that does not send it lets outboxes wait for all standbys.
    return progress.let_go if header.length >= sizeof(Progress) else progress.kept


cdef inline uint32_t link_checksum(const LinkHeader* header, const uint8_t* body) noexcept nogil:
    cdef LinkHeader copy
    cdef uint64_t state
    memcpy(&copy, header, sizeof(copy))
    copy.checksum = 0
    state = crc32c_words(CRC32C_BEGIN, <const uint8_t*>&copy, sizeof(copy))
    if header.type != LINK_DATA:
        state = crc32c_words(state, body, header.length)
    return <uint32_t>~state


cdef inline void link_header(
        LinkHeader* header, int type, uint32_t length, uint64_t position, uint64_t epoch,
        const uint8_t* body) noexcept nogil:
    header.magic = LINK_MAGIC
    header.type = <uint8_t>type
    header.version = BUS_VERSION
    header.flags = 0
    header.length = length
    header.position = position
    header.epoch = epoch
    header.checksum = link_checksum(header, body)


cdef inline int64_t link_look(const uint8_t* at, uint64_t size) noexcept nogil:
    # How many bytes the frame at `at` has; 0: more must come first; -1: not a frame.
    cdef const LinkHeader* header = <const LinkHeader*>at
    if size < LINK_HEADER_SIZE:
        return 0
    if (header.magic != LINK_MAGIC or header.version != BUS_VERSION
            or header.length > LINK_BODY_MAX or header.length % 8):
        return -1
    # The checksum of DATA covers the header alone; it is checked before the length is believed.
    if header.type == LINK_DATA and header.checksum != link_checksum(header, NULL):
        return -1
    if size < LINK_HEADER_SIZE + header.length:
        return 0
    if header.checksum != link_checksum(header, at + LINK_HEADER_SIZE):
        return -1
    return LINK_HEADER_SIZE + <int64_t>header.length


cdef inline int send_count(const uint8_t* body, uint64_t size) noexcept nogil:
    # How many messages fill these bytes exactly; -1: none do.
    cdef uint16_t length
    cdef int count = 0
    while size:
        if size < MESSAGE_HEADER_SIZE:
            return -1
        memcpy(&length, body, 2)
        if size < MESSAGE_HEADER_SIZE + <uint64_t>length:
            return -1
        body += MESSAGE_HEADER_SIZE + length
        size -= MESSAGE_HEADER_SIZE + length
        count += 1
    return count


cdef inline bint send_whole(const uint8_t* data, uint64_t size) noexcept nogil:
    # Whether a datagram is what a sender sends: a registration, or its messages and no byte more.
    cdef const SendHeader* header = <const SendHeader*>data
    if (size < SEND_HEADER_SIZE or header.magic != SEND_MAGIC or header.version != BUS_VERSION
            or header.flags > SEND_REGISTER):
        return False
    if header.flags == SEND_REGISTER:
        return size == SEND_HEADER_SIZE + sizeof(Registration) and header.count == 0
    return header.first != 0 and (
        send_count(data + SEND_HEADER_SIZE, size - SEND_HEADER_SIZE) == header.count)
