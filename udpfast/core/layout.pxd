# The structs that more than one process, or more than one layer, sees. No other file defines such a
# layout, except market/updates.pxd for decoded payloads. tests/core/test_layout.py pins every
# offset; layout.pyx makes the numpy dtypes from these structs.
#
# All integers are little-endian: importing udpfast on a big-endian host fails.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# --- limits of Roq's wire -------------------------------------------------------------------

cdef enum:
    FRAME_SIZE = 16
    FRAGMENT_SIZE = 512          # payload of every fragment but the last
    FRAGMENTS_MAX = 256
    DATAGRAM_SIZE_MAX = 528      # FRAME_SIZE + FRAGMENT_SIZE
    MESSAGE_SIZE_MAX = 131072    # FRAGMENTS_MAX * FRAGMENT_SIZE
    LINES_MAX = 8                # redundant copies of one channel
    # Most addresses of one line, each with a socket of its own: the options tape has 96.
    ADDRESSES_MAX = 128
    RECORD_SIZE = 64             # the record header, one cache line
    RECORD_ALIGN = 8

cdef enum:  # Channel: a set of lines; with Roq, each channel is one stream
    CHANNEL_INCREMENTAL = 0
    CHANNEL_SNAPSHOT = 1
    CHANNEL_COUNT = 2

cdef enum:  # Stream: an ordinal; Roq's two are the numbers of their channels
    STREAM_FIRST = 2             # first ordinal of other framings' streams, in the order found
    STREAM_NONE = 0xFFFF         # the record belongs to no stream of the feed
    FLIGHT_UNKNOWN = -2147483648

cdef enum:  # Encoding
    ENCODING_NATIVE = 1
    ENCODING_FLATBUFFERS = 2

# --- Frame: the 16-byte wire header ---------------------------------------------------------
#
#   0        1          2              3             4           6            8       12
#   +--------+----------+--------------+-------------+-----------+------------+-------+------------+
#   | control| fragment | fragment_max | object_type | object_id | session_id | seqno | last_seqno |
#   +--------+----------+--------------+-------------+-----------+------------+-------+------------+
#
# control: bits 0-3 encoding, bit 4 snapshot, bits 5-7 unused (older revision: all encoding).

cdef packed struct Frame:
    uint8_t control
    uint8_t fragment         # 0-based
    uint8_t fragment_max     # 0-based: a message has fragment_max + 1 fragments
    uint8_t object_type      # opaque, distinct per session; 0 is never gated and never cached
    uint16_t object_id
    uint16_t session_id
    uint32_t seqno           # per channel; all fragments of a message share it; wraps to 0
    uint32_t last_seqno      # last published incremental seqno of this object

# --- Datagram: what net hands to feed -------------------------------------------------------

cdef enum:  # DatagramFlag
    DATAGRAM_TRUNCATED = 1       # the kernel had more bytes than the slot (MSG_TRUNC)
    DATAGRAM_SENDER_REFUSED = 2  # its sender is not on the allow-list
    DATAGRAM_NO_TIMESTAMP = 4    # received_ns is the loop's clock, not the kernel's

cdef struct Datagram:
    const uint8_t* data      # borrowed: valid until the next receive into the batch
    uint32_t size            # bytes at data
    uint32_t flags           # DatagramFlag
    int64_t received_ns      # UNIX ns: NIC, kernel or (flagged) the loop's own clock
    uint8_t channel          # Channel
    uint8_t line             # 0-based line of that channel
    uint8_t address          # 0-based index among the addresses of that line

# --- Kind and flags of a record -------------------------------------------------------------

cdef enum:  # Kind
    KIND_PAD = 1             # fills the end of the ring; readers never see it
    KIND_MESSAGE = 2         # payload as published: whole message, undecoded
    KIND_GAP = 3             # Gap: lost numbers; all objects of the stream are in doubt
    KIND_SESSION = 4         # Session: a new publisher session; the old one's state is void
    KIND_STALE = 5           # ObjectState: this object is not sound and waits for a snapshot
    KIND_RECOVERED = 6       # ObjectState: this object is LIVE (again)
    KIND_CONNECTION = 7      # Connection: a channel or a line fell silent, or is heard again
    KIND_DISAGREEMENT = 8    # Disagreement: two copies of a fragment have different bytes
    KIND_RESTART = 9         # Restart: the log has a new writer; treat as a new session
    KIND_LAPPED = 10         # Lapped: records are missing at this place
    KIND_DATAGRAM = 11       # Capture, then a datagram as received: raw capture
    KIND_CLOCK = 12          # Clock: a time of the loop at which something changed: raw capture
    KIND_UPDATES = 16        # from here to KIND_BUS: decoded updates, each in update_kinds.pxd
    # A message of an app: number is its sender's, object is (type << 16) | sender, flight_ns the
    # sender's incarnation.
    KIND_BUS = 48
    KIND_SENDER = 49         # SenderEntry: registers this sender
    KIND_SENDERS = 50        # SenderEntry of every sender: a restart reads from here on
    KIND_ROLLBACK = 51       # Rollback: records that were read are gone; made by readers
    KIND_ORDER = 52          # OrderEntry: the records that a composite takes next of an input

cdef enum:  # RecordFlag
    RECORD_SNAPSHOT = 1      # complete state of its object, not a change to it
    RECORD_HEARTBEAT = 2     # a message without payload (window level only; not published)
    RECORD_RELEASED = 4      # held while its object waited, and applied after a snapshot
    RECORD_TRUNCATED = 8     # a string or list was cut to its fixed layout (counted)
    RECORD_NO_TIMESTAMP = 16  # received_ns is the loop's clock, not the kernel's or NIC's
    RECORD_UNGATED = 32      # its type has no snapshots: delivered in any state of its object
    RECORD_FIRST = 64        # its object had nothing before it: a change of an empty state
    RECORD_DOUBT = 128       # the feed did not know if its instrument's book was sound

# --- Record: a message at rest --------------------------------------------------------------
#
#    0        4      5      6       8          16      24            32
#   +--------+------+------+-------+----------+-------+-------------+--------------+
#   | length | kind | line | flags | position | index | received_ns | published_ns |
#   +--------+------+------+-------+----------+-------+-------------+--------------+
#   | number          | object | flight_ns | stream | session | checksum |
#   +-----------------+--------+-----------+--------+---------+----------+
#    40                48       52          56       58        60
#   64: payload (length - 64 bytes), then padding to a multiple of 8
#
# The first 8 bytes are the commit word: stored last, with release; 0 means "not there yet".
# The bytes are the same in ring, journal, replication and Spark.
#
# stream, session and number say where the record belongs in the feed's numbering. Sessions and
# objects get their names from the publisher; SESSION maps an ordinal to a session.

cdef packed struct Record:
    int32_t length           # header + payload, without the padding to RECORD_ALIGN; > 0
    uint8_t kind             # Kind
    uint8_t line             # the line that completed the message
    uint16_t flags           # RecordFlag
    uint64_t position        # byte offset of this record in its log; only grows
    uint64_t index           # ordinal of this record in its log; padding does not count
    int64_t received_ns      # UNIX ns: first receipt of the message's first datagram
    int64_t published_ns     # UNIX ns: the loop's clock when it handled the batch
    uint64_t number          # in its stream and session; 0 if it has none
    uint32_t object          # the publisher's number of the object, as the framing makes it
    int32_t flight_ns        # received_ns minus the sending time by the sender's clock
    uint16_t stream          # Stream; of CONNECTION: Channel; STREAM_NONE: none
    uint16_t session         # ordinal of the session in its log, from 1; 0: before the first
    uint32_t checksum        # CRC32C in a journal; 0 in a ring

# --- Message: what feed hands out, and agents turn into a Record ------------------------------

cdef struct Message:
    const uint8_t* payload   # borrowed: valid until the next call into the pipeline
    uint32_t size            # bytes at payload
    uint16_t kind            # KIND_MESSAGE, or GAP .. DISAGREEMENT with the payloads below
    uint16_t flags           # RecordFlag
    int64_t received_ns
    uint64_t number          # as Record.number
    uint16_t session         # as Record.session
    uint16_t stream          # as Record.stream
    uint8_t channel          # Channel of the line
    uint8_t line
    uint16_t fragments
    uint32_t object          # this and the next two as its unit has them
    uint64_t detail
    uint64_t session_id
    uint64_t tag             # of its object: (exchange_id << 32) | symbol_id; 0: not known yet
    # of every framing except Roq's
    int64_t sent_ns          # by the venue's clock, UNIX ns; 0: not stated
    uint32_t unit_flags      # UnitFlag
    uint32_t stream_key      # the publisher's name for the stream, as a number

# --- payloads of our own records --------------------------------------------------------------

cdef enum:  # GapReason
    GAP_COUNT = 1            # out_of_order_max_interval exceeded (on all live lines)
    GAP_TIME = 2             # lost_packet_wait elapsed
    GAP_WINDOW_FULL = 3      # the window or the slab could not hold more
    GAP_FINISH = 4           # the input ended with holes open
    GAP_ANEW = 5             # snapshot channel: numbered anew; skips the rest of the circle
    # The message came, but its payload breaks its protocol, or two copies of it differ.
    GAP_DAMAGED = 6
    # Messages of streams beyond streams_max. At most once a second: `count` since the last such
    # GAP, numbers of the newest; the record's stream is STREAM_NONE, its object the stream's name.
    GAP_STREAM_REFUSED = 7

cdef packed struct Gap:      # 40 bytes
    uint64_t first           # first lost number
    uint64_t last            # last lost number, inclusive
    uint64_t count           # how many are lost
    int64_t waited_ns        # from when the hole was found to the decision
    uint32_t reason          # GapReason
    uint32_t reserved

cdef enum:  # SessionReason
    SESSION_FIRST = 1        # the first session seen
    SESSION_NEW_ID = 2       # another session_id was adopted
    SESSION_SAME_ID = 3      # the publisher restarted and drew the same id
    SESSION_RESUMED = 4      # the previous numbering continues: its successor was not the feed's

cdef packed struct Session:  # 48 bytes
    uint64_t old_id          # as published; 0 with SESSION_FIRST
    uint64_t new_id
    uint64_t first_number    # first number of the new session that may be delivered
    uint64_t unseen          # numbers of the new session before it: refused or lost
    uint32_t reason          # SessionReason
    uint32_t discarded       # messages of the old session that were waiting
    uint32_t stream          # the publisher's name for the stream, as a number
    uint32_t reserved

cdef enum:  # ObjectStatus
    OBJECT_WAITING = 0       # nothing sound yet: collecting, waiting for a snapshot
    OBJECT_LIVE = 1
    OBJECT_UNKNOWN = 2       # a gap happened; its next update decides between LIVE and STALE
    OBJECT_STALE = 3         # an update was lost: collecting, waiting for a snapshot

cdef enum:  # ObjectWait
    WAIT_NONE = 0            # for nothing
    WAIT_SNAPSHOT = 1        # for a snapshot
    WAIT_SNAPSHOT_SILENT = 2  # for a snapshot, and that channel is silent
    WAIT_SNAPSHOT_ABSENT = 3  # for a snapshot, and the feed has no line that brings any

cdef packed struct ObjectState:  # 24 bytes
    uint32_t object          # as Record.object
    uint8_t status           # ObjectStatus
    uint8_t waits            # ObjectWait
    uint8_t continues        # RECOVERED: earlier updates still count; 0: a snapshot replaces them
    uint8_t reserved
    uint64_t applied         # last incremental number contained in the object's state
    uint32_t exchange_id     # interned name, 0 = not known yet
    uint32_t symbol_id

cdef enum:  # ConnectionStatus  # Roq's ConnectionStatus numbers
    CONNECTION_DISCONNECTED = 1
    CONNECTION_READY = 5

cdef enum:  # ConnectionScope
    CONNECTION_CHANNEL = 0   # the record's channel: all of its lines together
    CONNECTION_LINE = 1      # the record's line, one of several of its channel
    CONNECTION_WRITER = 2    # the ring's writer; READY: a new one, whose RESTART follows
    CONNECTION_FANOUT = 3  # a fan-out, the way to it, or a recorder: it says what was missed
    CONNECTION_LOOP = 4      # the ring's writer, whose loop stood still; READY: the same writer

cdef packed struct Connection:  # 16 bytes
    uint32_t status          # ConnectionStatus
    uint32_t scope           # ConnectionScope
    int64_t silent_ns        # how long nothing was heard; READY of a ring's writer or loop: 0

cdef packed struct Disagreement:  # 24 bytes
    uint64_t number
    uint32_t hash_first      # feed/fingerprint of the whole datagrams
    uint32_t hash_other
    uint16_t fragment
    uint8_t line_first       # the line whose bytes were used
    uint8_t line_other
    uint32_t reserved

cdef packed struct Restart:  # 16 bytes
    uint64_t epoch           # of the new writer; each adds 1
    int64_t restarted_ns     # UNIX ns

cdef enum:  # LappedReason
    LAPPED_READER = 0        # overwritten, or removed to make room, before it was read
    LAPPED_DISK = 1          # a recorder could not write it: the disk was full or failed
    LAPPED_DAMAGE = 2        # a journal's bytes are damaged, or its files are lost
    LAPPED_UNKNOWN = 3       # another log took the source's place: `missed` is a lower bound

cdef packed struct Lapped:   # 16 bytes
    uint64_t missed          # number of records
    uint32_t reason          # LappedReason
    uint32_t reserved

# --- raw capture: the input of the loop, before any verdict -------------------------------------
#
# A raw capture has all that the loop's records depend on: replayed in order and with their clocks,
# its records give the same records again. received_ns and published_ns are the datagram's receive
# stamp and the loop's clock; stream and line say where it came from.

cdef packed struct Capture:  # 16 bytes, before the datagram
    int64_t now_ns           # the loop's monotonic clock, which drives timers
    uint32_t flags           # DatagramFlag; from CAPTURE_LATE on: how much later it may have come
    uint32_t address         # as Datagram.address

cdef enum:
    CAPTURE_LATE = 8             # place of the microseconds by which it came after now_ns, at most
    CAPTURE_LATE_MAX_US = 0xFFFFFF

cdef enum:  # ClockReason
    CLOCK_EXPIRE = 1         # pipeline_expire at this time changed something
    CLOCK_FINISH = 2         # the input ended at this time
    CLOCK_DOUBT = 3          # what the kernel dropped did not show until then

cdef packed struct Clock:    # 16 bytes
    int64_t now_ns           # as in Capture
    uint32_t reason          # ClockReason
    uint32_t reserved

# --- a bus's stores: records of their sequencers, and of a composite ---------------------------

cdef packed struct SenderEntry:  # 104 bytes
    uint32_t sender          # from 1: index in the store's list of senders
    uint32_t incarnation     # from 1; grows with each new outbox of this name
    uint64_t next            # the number expected next
    uint64_t position        # of its last record
    uint64_t nonce           # drawn by its outbox: identifies the registration
    uint64_t reserved
    char name[32]
    char host[32]

cdef packed struct Rollback:  # 16 bytes
    uint64_t records         # how many of the records read last are gone
    uint64_t position        # from here on the log has other records

cdef enum:  # OrderFlag
    ORDER_BACK = 1           # the input lost these records, so the composite loses them too

cdef packed struct OrderEntry:  # 40 bytes
    uint32_t input           # index, from 0, among the composite's inputs in bus.toml
    uint32_t flags           # OrderFlag
    uint64_t first           # position of the first record in the input ...
    uint64_t end             # ... and behind the last record
    uint64_t first_index
    uint64_t count           # number of records
