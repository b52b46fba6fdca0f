# Envelope: the header of every ZeroMQ message of the fan-out, before its body. The agent packs it;
# a reader in another process, perhaps on another host, unpacks it and checks everything before it
# is used. docs/zmq.md describes every byte, for authors of other subscribers.
#
#   topic | 0 or 1 | Envelope, 104 bytes | body
#
# `topic` is the subscription, exactly as the subscriber sent it. The byte behind it is 0 in
# messages of the stream, which all subscribers of the topic get, and 1 in an answer to one alone.

from libc.errno cimport EBADMSG, EMSGSIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport RECORD_SIZE, Record

cdef enum:
    ENVELOPE_SIZE = 104
    ENVELOPE_MAGIC = 0x7A706475      # "udpz"
    ENVELOPE_VERSION = 2
    # Longer subscriptions are refused; the fan-out does not read messages much longer than this.
    LONGEST_TOPIC = 1000
    # Largest message that a fan-out sends and a reader accepts: far above the largest record.
    LARGEST_MESSAGE = 1 << 24
    TOPIC_STREAM = 0
    TOPIC_ANSWER = 1

cdef enum:  # EnvelopeType
    ENVELOPE_RECORDS = 1         # body: records as in the ring, including padding
    ENVELOPE_LAST = 2            # body: last values, as records with RECORD_SNAPSHOT
    ENVELOPE_NAMES = 3           # body: u32 first id, then for each name: u16 size, its bytes
    # Ends the answer to a subscription: the stream follows. Count 1: last values were requested,
    # but the fan-out keeps none.
    ENVELOPE_BEGIN = 4
    ENVELOPE_ALIVE = 5           # a heartbeat: there is no new record; states how far the ring is
    ENVELOPE_END = 6             # the ring's writer closed it: no more records of this ring follow
    ENVELOPE_REFUSED = 7         # body: why the subscription is refused, as text
    ENVELOPE_FAILED = 8          # an error ended the ring's writer; another one may continue it

cdef packed struct Envelope:
    uint32_t magic
    uint8_t version
    uint8_t type             # EnvelopeType
    # ALIVE is sent after a silence this long. 0: the feed's loop stands still or catches up, so all
    # records are old, until a message has another value.
    uint16_t heartbeat_ms
    uint64_t layout          # hash of the layouts of records and updates
    uint64_t ring            # identity of the ring
    uint64_t epoch           # epoch of the ring's writer
    uint64_t began           # index of this writer's first record: the records of earlier writers
    uint64_t began_at        # are valid only before it; and its position
    uint64_t stream          # identity of the stream within which `sequence` counts
    uint64_t sequence        # records of this stream before this message, sent or dropped
    uint64_t unseen          # records of any stream that the fan-out itself has missed
    uint64_t index           # index of the ring's first record that the fan-out has not read yet
    uint64_t tail            # records written to the ring in its whole life
    uint32_t count           # records or names in the body
    uint32_t table           # number of the table of names
    uint32_t names           # names sent so far; of NAMES: including these
    uint32_t last            # in an answer: last values sent before this message

cdef inline uint64_t envelope_aligned(uint64_t length) noexcept nogil:
    return (length + 7) & ~<uint64_t>7

cdef inline int envelope_read(
        const uint8_t* message, size_t size, size_t topic_size, Envelope* envelope) noexcept nogil:
    # Copy the envelope out of a message whose topic has been checked. 0, or -EBADMSG: the message
    # is too short, or has no envelope of this version (the fields then state what was found).
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
    # The records of one body, and the offset of the next one.
    const uint8_t* body
    size_t size
    size_t at

cdef inline int64_t envelope_take(
        RecordWalk* walk, Record* header, uint8_t* payload, size_t room) noexcept nogil:
    # Copy the next record: header and payload with padding. Returns the bytes of `payload` used;
    # -EMSGSIZE: it does not fit `room`; -EBADMSG: there is no valid record.
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
