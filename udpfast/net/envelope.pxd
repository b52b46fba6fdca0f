# Envelope: what stands before the records in a ZeroMQ message of the fan-out. The agent packs it,
# a reader in another process, on another host perhaps, unpacks it and believes nothing before it
# is checked. docs/zmq.md describes every byte, for those who write subscribers of their own.
#
#   topic | 0 or 1 | Envelope, 104 bytes | body
#
# `topic` is the subscription, as its subscriber sent it. The byte behind it tells the stream, which
# all subscribers of that topic get, from what answers one of them alone.

from libc.errno cimport EBADMSG, EMSGSIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport RECORD_SIZE, Record

cdef enum:
    ENVELOPE_SIZE = 104
    ENVELOPE_MAGIC = 0x7A706475      # "udpz"
    ENVELOPE_VERSION = 2
    # Longer subscriptions are refused; the fan-out reads no message much longer than that.
    LONGEST_TOPIC = 1000
    # A message of the fan-out, and what a reader accepts: far above the largest record.
    LARGEST_MESSAGE = 1 << 24
    TOPIC_STREAM = 0
    TOPIC_ANSWER = 1

cdef enum:  # EnvelopeType
    ENVELOPE_RECORDS = 1         # body: records as they lie in the ring, padding included
    ENVELOPE_LAST = 2            # body: last values, as records with RECORD_SNAPSHOT
    ENVELOPE_NAMES = 3           # body: u32 first id, then for each name: u16 size, its bytes
    # Ends the answer to a subscription: the stream follows from here. Count 1: last values were
    # asked for, and none are kept.
    ENVELOPE_BEGIN = 4
    ENVELOPE_ALIVE = 5           # nothing new, and how far the ring is
    ENVELOPE_END = 6             # the ring's writer closed it: nothing more will come of this ring
    ENVELOPE_REFUSED = 7         # body: why the subscription is not served, as text
    ENVELOPE_FAILED = 8          # an error ended the ring's writer: the next one may go on with it

cdef packed struct Envelope:
    uint32_t magic
    uint8_t version
    uint8_t type             # EnvelopeType
    # After so long a silence it says ALIVE. 0: the feed's loop stands still or catches up, so that
    # all is old; one that is not 0 follows once it is not.
    uint16_t heartbeat_ms
    uint64_t layout          # hash of the layouts of records and updates
    uint64_t ring            # which ring: another number is another ring
    uint64_t epoch           # of the ring's writer
    uint64_t began           # index of this writer's first record: behind the last that is true of
    uint64_t began_at        # the writers before; and its position
    uint64_t stream          # which life of this stream: `sequence` counts within it
    uint64_t sequence        # records of this stream before this message, sent or dropped
    uint64_t unseen          # records that the fan-out itself missed, of any stream
    uint64_t index           # of the first record of the ring that is not looked at yet
    uint64_t tail            # records in the ring's life
    uint32_t count           # records or names in the body
    uint32_t table           # which table the names belong to
    uint32_t names           # names that were sent by now; of NAMES: with these
    uint32_t last            # of an answer: last values that were sent before this message

cdef inline uint64_t envelope_aligned(uint64_t length) noexcept nogil:
    return (length + 7) & ~<uint64_t>7

cdef inline int envelope_read(
        const uint8_t* message, size_t size, size_t topic_size, Envelope* envelope) noexcept nogil:
    # Copy the envelope out of a message whose topic is known to be the right one. 0, or -EBADMSG:
    # too short, or no envelope of this version (its fields then say what was found).
    cdef size_t at = topic_size + 1
    envelope.magic = 0
    envelope.version = 0
    if size < at + ENVELOPE_SIZE:
        return -EBADMSG
    memcpy(envelope, message + at, ENVELOPE_SIZE)
    if envelope.magic != <uint32_t>ENVELOPE_MAGIC or envelope.version != ENVELOPE_VERSION:
        return -EBADMSG
    return 0

cdef struct RecordWalk:
    # Where the records of one body are, and which is the next.
    const uint8_t* body
    size_t size
    size_t at

cdef inline int64_t envelope_take(
        RecordWalk* walk, Record* header, uint8_t* payload, size_t room) noexcept nogil:
    # Copy the next record: header and payload (padding included). Returns the bytes of room taken;
    # -EMSGSIZE: room is too small for it; -EBADMSG: what lies there is no record.
    cdef uint64_t left = walk.size - walk.at
    cdef uint64_t size
    if unlikely(left < RECORD_SIZE):
        return -EBADMSG
    memcpy(header, walk.body + walk.at, RECORD_SIZE)
    if unlikely(header.length < RECORD_SIZE):
        return -EBADMSG
    size = envelope_aligned(<uint64_t>header.length)
    if unlikely(size > left):
        return -EBADMSG
    if unlikely(size - RECORD_SIZE > room):
        return -EMSGSIZE
    memcpy(payload, walk.body + walk.at + RECORD_SIZE, size - RECORD_SIZE)
    walk.at += size
    return size - RECORD_SIZE
