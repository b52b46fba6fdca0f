# The protocol between the hosts of a bus: frames on a TCP link that copies a store, and datagrams
# with messages for its sequencer. All integers are little-endian.
#
# A frame:
#
#   0       4      5         6       8        12         16         24      32
#   +-------+------+---------+-------+--------+----------+----------+-------+------------------+
#   | magic | type | version | flags | length | checksum | position | epoch | body: `length` B |
#   +-------+------+---------+-------+--------+----------+----------+-------+------------------+
#
# checksum: CRC32C of the header, with this field taken as 0, and the body; for DATA of the header
# alone, because records have checksums of their own. A body is a multiple of 8 bytes, so that
# records stay aligned wherever they are received.
#
# A datagram:
#
#   0       4         5       6       8           16      24       28            32      40       48
#   +-------+---------+-------+-------+-----------+-------+--------+-------------+-------+--------+
#   | magic | version | flags | count | store_key | epoch | sender | incarnation | first | number |
#   +-------+---------+-------+-------+-----------+-------+--------+-------------+-------+--------+
#   48: `count` times length u16, type u16, payload; or what the flag says
#
# An epoch counts promotions (upper 24 bits) and starts since the last one (next 16 bits); the rest
# is random. So two hosts that were promoted at the same time never have the same epoch: one is
# higher.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.crc32c cimport CRC32C_BEGIN, crc32c_words

cdef enum:
    LINK_MAGIC = 0x4B4E4C55      # "ULNK"
    SEND_MAGIC = 0x444E5355      # "USND"
    BUS_VERSION = 1
    PROGRESS_LEAST = 40          # bytes of Progress as the first versions send it
    LINK_HEADER_SIZE = 32
    # Most bytes of a body. Longer frames would delay copies that are up to date; the largest
    # record, a message of 131,072 bytes, fits.
    LINK_BODY_MAX = 1 << 18
    SEND_HEADER_SIZE = 48
    # The payload of IPv4 and UDP in an Ethernet frame of 1,500 bytes, less 32 for a tag
    # (bus/seal.py).
    SEND_SIZE_MAX = 1440
    MESSAGE_HEADER_SIZE = 4
    SENT_SIZE_MAX = 1388         # payload of the largest message, which fits one datagram
    SENDERS_MAX = 1024           # most names that a store may ever have; one record holds all
    NAME_SIZE = 32               # bytes of a host's or sender's name, UTF-8

cdef enum:  # LinkType
    LINK_HELLO = 1               # receiver: its store, end and lineage
    LINK_WELCOME = 2             # source: the records that follow continue the receiver's copy
    LINK_REFUSE = 3              # source: why it does not serve the copy
    LINK_SEGMENT = 4             # the header of the segment whose records follow
    LINK_DATA = 5                # whole records, one behind the other
    LINK_ACK = 6                 # receiver: its progress
    LINK_HEARTBEAT = 7           # source: its progress, and a sign of life
    LINK_BYE = 8                 # source: its host is being stopped in good order
    # Asks a host for its state, and to promise to take nothing of epochs below this frame's.
    LINK_ASK = 9
    LINK_ANSWER = 10             # the state of the host that was asked
    LINK_NAMES = 11              # source: the meaning of name ids in the records that follow

cdef enum:  # SendFlag
    SEND_REGISTER = 1            # the body is a Registration
    SEND_REFUSED = 2             # from the sequencer: `first` is the Refusal, `epoch` its epoch

cdef enum:  # why the sequencer refuses a datagram; sent to its sender
    REFUSED_EPOCH = 1            # for an epoch that has ended
    REFUSED_INCARNATION = 2      # another process has registered under this name since
    REFUSED_NAME_IN_USE = 3      # a living process of another host has this name
    REFUSED_SENDERS_FULL = 4     # the store has SENDERS_MAX names

cdef packed struct LinkHeader:
    uint32_t magic
    uint8_t type                 # LinkType
    uint8_t version
    uint16_t flags
    uint32_t length              # of the body
    uint32_t checksum
    uint64_t position            # in the store: of the first record of DATA or SEGMENT
    uint64_t epoch               # of the records; else the latest that the sending host knows

cdef packed struct Progress:     # body of HEARTBEAT and ACK, 48 bytes
    uint64_t end                 # position behind the last record
    uint64_t synced              # everything below is on the disk
    uint64_t released            # readers may see everything below
    uint64_t kept                # all standbys have everything below
    int64_t unix_ns              # clock of the sending host
    uint64_t let_go              # outboxes let everything below go; absent in the first versions

cdef packed struct SendHeader:
    uint32_t magic
    uint8_t version
    uint8_t flags                # SendFlag
    uint16_t count               # of messages
    uint64_t store_key           # the first 8 bytes of the store's identity
    uint64_t epoch               # the latest epoch that the sender knows
    uint32_t sender
    uint32_t incarnation
    uint64_t first               # number of the first message
    uint64_t number              # of the datagram, for those who look at captures

cdef packed struct Registration:  # 72 bytes
    uint64_t nonce
    char name[32]
    char host[32]

cdef packed struct EpochBegin:   # payload of RESTART in a bus's store; begins as Restart does
    uint64_t epoch
    int64_t restarted_ns
    uint64_t old_end             # position where the previous epoch of this store ended
    uint32_t tail_checksum       # checksum of the record before; 0: there is none
    uint32_t reserved
    char host[32]


cdef inline uint64_t progress_let_go(
        const LinkHeader* header, const Progress* progress) noexcept nogil:
    # The first versions do not send `let_go`: outboxes then wait for all standbys.
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
    # Return the size of the frame at `at`; 0: it is incomplete; -1: it is not a frame.
    cdef const LinkHeader* header = <const LinkHeader*>at
    if size < LINK_HEADER_SIZE:
        return 0
    if (header.magic != LINK_MAGIC or header.version != BUS_VERSION
            or header.length > LINK_BODY_MAX or header.length % 8):
        return -1
    # The checksum of DATA covers only the header, and is checked before the length is trusted.
    if header.type == LINK_DATA and header.checksum != link_checksum(header, NULL):
        return -1
    if size < LINK_HEADER_SIZE + header.length:
        return 0
    if header.checksum != link_checksum(header, at + LINK_HEADER_SIZE):
        return -1
    return LINK_HEADER_SIZE + <int64_t>header.length


cdef inline int send_count(const uint8_t* body, uint64_t size) noexcept nogil:
    # Return how many messages fill these bytes exactly; -1: they do not.
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
    # Return whether a datagram is valid: a registration, or exactly its messages.
    cdef const SendHeader* header = <const SendHeader*>data
    if (size < SEND_HEADER_SIZE or header.magic != SEND_MAGIC or header.version != BUS_VERSION
            or header.flags > SEND_REGISTER):
        return False
    if header.flags == SEND_REGISTER:
        return size == SEND_HEADER_SIZE + sizeof(Registration) and header.count == 0
    return header.first != 0 and (
        send_count(data + SEND_HEADER_SIZE, size - SEND_HEADER_SIZE) == header.count)
