# Every number that udpfast keeps about itself: enums here, labels and units in counter.py (their
# numbers are compared by shm/counters). A counter belongs to a scope: the feed, one of its two
# channels, or one line of a channel. Within a scope the slots lie densely, because one thread
# writes them all; scopes are 128 bytes apart, so that readers of one disturb no writer of
# another.
#
# A new outcome = a new enum value = a new label = a new line in docs/counters.md.

from libc.stdint cimport int64_t

# --- line scope: the verdicts first. A verdict's value is the index of its counter ------------

cdef enum:  # Verdict
    VERDICT_DELIVERED = 0         # next in order and whole (heartbeats too): went straight on
    VERDICT_HELD                  # first copy, kept until its turn or its missing parts come
    VERDICT_DUPLICATE             # the same fragment had come before
    VERDICT_LATE                  # its seqno was already reported lost
    VERDICT_REPLAY                # older than the window remembers, or a known run once more
    VERDICT_TOO_SHORT             # it ends inside its header
    VERDICT_TOO_LONG              # longer than its framing's datagrams can be
    VERDICT_FRAGMENT_BEYOND_MAX   # fragment > fragment_max
    VERDICT_SHORT_FRAGMENT        # not the last one, and its payload is not 512 bytes
    VERDICT_FRAGMENT_MAX_CHANGED  # fragment_max differs inside one message
    VERDICT_ENCODING_REFUSED      # an encoding that the settings do not allow
    VERDICT_SESSION_PENDING       # kept with a run, of any session, until that is proven
    VERDICT_SESSION_RETIRED       # of a session, or a numbering, that is over
    VERDICT_SESSION_FOREIGN       # of another session, where none may begin
    VERDICT_SLAB_FULL             # early, but no cell was free to hold it
    VERDICT_SENDER_REFUSED        # its sender is not on the allow-list
    VERDICT_HEARTBEAT             # takes no number, and names the one that comes next
    VERDICT_UNSEQUENCED           # went straight on: its number puts it in no order
    VERDICT_STREAM_REFUSED        # of a stream beyond as many as the settings allow
    VERDICT_WRONG_VERSION         # a constant of the header has another value
    VERDICT_WRONG_KIND            # a type or flag that the framing does not define
    VERDICT_LENGTH_BEYOND         # the length field reaches beyond the datagram
    VERDICT_LENGTH_BELOW          # the length field ends before the datagram, or in the header
    VERDICT_COUNT_AND_BYTES       # the messages counted do not fill the bytes
    VERDICT_MESSAGE_SHORT         # a message is shorter than its own header
    VERDICT_MESSAGE_BEYOND        # a message reaches beyond its unit
    VERDICT_OUT_OF_RANGE          # a key is wider than any that the venue is known to have
    VERDICT_UNITS_MANY            # more units than there is room for
    VERDICT_PARITY                # covers others, and says nothing of its own (feed/parity)
    VERDICT_COUNT

cdef enum:  # LineCounter
    LINE_DATAGRAMS = VERDICT_COUNT  # handed over by the kernel; with UNITS_MORE = all verdicts
    LINE_UNITS_MORE               # units behind the first one of their datagram
    LINE_BYTES
    LINE_WINS                     # fragments that this line brought first
    LINE_TIES_LOST                # fragments that another line had brought before
    LINE_LEAD_NS                  # sum of the leads by which it won against the next line
    LINE_LEADS                    # number of leads in that sum
    LINE_LOSSES                   # messages that it never brought, of those another line did
    LINE_DISAGREEMENTS            # other bytes than the first copy
    LINE_KERNEL_DROPS             # lost before user space (the socket's drop count, or AF_XDP's)
    LINE_RECEIVE_ERRORS           # receive calls that failed: the line is down, others go on
    LINE_REOPENED                 # sockets opened anew; agents/feed/line_watch writes it
    LINE_DISCONNECTED             # times that inactivity was declared
    LINE_READY                    # times that it spoke again
    LINE_HEARD_NS                 # when it was last heard, UNIX time; the loop's timer writes it
    LINE_ADDRESSES_SILENT         # of several addresses those that bring nothing; by the same timer
    LINE_NO_TIMESTAMP             # came without a kernel or NIC timestamp
    LINE_UNUSED_BITS              # unused control bits were set (accepted)
    LINE_EMPTY_FINAL              # last of several fragments without payload (accepted)
    LINE_REPAIRED                 # rebuilt from its parity: units more of the parity's datagram
    LINE_PARITY_REFUSED           # parity that the datagrams which it covers contradict
    LINE_FRAMES                   # taken from AF_XDP's ring = datagrams + the four that follow
    LINE_FRAMES_FRAGMENT          # first part of a fragmented IP datagram: not put together
    LINE_FRAMES_CHECKSUM          # wrong IPv4 header or UDP checksum
    LINE_FRAMES_MALFORMED         # headers that contradict each other, or end early
    LINE_FRAMES_FOREIGN           # for no line: another address, port, source or protocol
    LINE_COUNTER_COUNT

cdef enum:  # AddressCounter: of each address of a line that has several
    ADDRESS_DATAGRAMS = 0
    ADDRESS_HEARD_NS              # when it was last heard, UNIX time; the loop's timer writes it
    ADDRESS_SILENT                # 1: nothing for session.inactivity_timeout_ms
    ADDRESS_COUNTER_COUNT
    ADDRESS_STRIDE = 16           # slots from one to the next: its name lies between (shm/counters)

# --- channel scope -----------------------------------------------------------------------------

cdef enum:  # ChannelCounter
    CHANNEL_MESSAGES = 0          # whole messages in seqno order (heartbeats included)
    CHANNEL_HEARTBEATS
    CHANNEL_FRAGMENTED            # messages of more than one fragment
    CHANNEL_GAPS
    CHANNEL_GAPS_BY_COUNT
    CHANNEL_GAPS_BY_TIME
    CHANNEL_GAPS_WINDOW_FULL
    CHANNEL_LOST                  # seqnos inside gaps
    CHANNEL_INCOMPLETE            # messages of which only some fragments came (inside LOST)
    CHANNEL_DISREGARDED           # whole messages dropped by on_gap = "latest_run" (inside LOST)
    CHANNEL_SESSIONS              # sessions begun
    CHANNEL_SESSION_RESTARTS      # of these: same id (a restarted publisher)
    CHANNEL_SESSION_DISCARDED     # messages pending when their session ended
    CHANNEL_DISAGREEMENTS
    CHANNEL_DISCONNECTED          # times that inactivity was declared
    CHANNEL_READY                 # times that it spoke again
    CHANNEL_WAIT_NS               # how long holes wait, as of now
    CHANNEL_COUNTER_COUNT

# --- feed scope ----------------------------------------------------------------------------------

cdef enum:  # FeedCounter
    # objects: what became of each message behind the windows
    FEED_APPLIED = 0              # passed on because its object is LIVE (or became so by it)
    FEED_UNGATED                  # passed on without a gate: object type 0 or no snapshots
    FEED_COLLECTED                # kept: its object waits for a snapshot
    FEED_COLLECT_FULL             # given up: a limit was reached; the object waits longer
    FEED_RELEASED                 # kept ones passed on behind their snapshot
    FEED_COLLECT_DROPPED          # kept ones that a snapshot, a hole or a new session made void
    FEED_SNAPSHOTS_SKIPPED        # of LIVE objects: not decoded
    FEED_SNAPSHOTS_TOO_OLD        # older than what is collected, or known
    FEED_SNAPSHOTS_BROKEN         # the collected updates do not continue it
    FEED_UPDATES_CONTAINED        # the snapshot that their object has contains them
    FEED_OBJECTS                  # objects known in this session
    FEED_OBJECTS_FULL             # messages of objects beyond the table's size
    FEED_OBJECTS_WAITING          # objects that wait for a snapshot, as of now,
    FEED_OBJECTS_STRANDED         # or would, if anything brought any
    FEED_STALE                    # times that an object turned STALE
    FEED_WAITS_IN_VAIN            # objects that said that no snapshots come: the channel is silent
    FEED_RECOVERED_CHAIN          # times that one recovered by last_seqno, without a snapshot
    FEED_RECOVERED_SNAPSHOT       # times that one became LIVE by a snapshot
    FEED_ORDERS_UNKNOWN           # changes of orders, or removals of levels, that are not there
    FEED_BOOKS_FULL               # orders or levels that the books had no room for
    FEED_BOOKS_UNDEFINED          # instruments without a depth, or a name of their own
    # decoding
    FEED_TOLD                     # messages of a venue of which records were made
    FEED_WITHHELD                 # none was: their books are in doubt
    FEED_NOTHING_NEW              # none was: they change nothing that readers are told
    FEED_UPDATES                  # payloads decoded
    FEED_DECODE_REFUSED           # payloads that the verifier refused
    FEED_TYPES_OPAQUE             # known types that are passed on undecoded
    FEED_TYPES_UNKNOWN            # union codes beyond the schema: passed on undecoded
    FEED_TYPES_NONE               # events without a type
    FEED_FIELDS_UNKNOWN           # fields beyond the schema: skipped
    FEED_CHANNEL_UNEXPECTED       # a type on a channel where it is not expected
    FEED_TRUNCATED                # strings or lists cut to their fixed layout
    FEED_NAMES_FULL               # names that the table had no room for
    FEED_NAMES_LONG               # names longer than its entries: their records name nothing
    FEED_STREAM_STATUS            # StreamStatus: consumed, never passed on
    # the ring and the loop
    FEED_RECORDS                  # records published
    FEED_RECORD_BYTES
    FEED_RECORDS_RAW              # of these: payloads as published (MESSAGE)
    FEED_RECORDS_CONTROL          # of these: the feed's own word (GAP, SESSION, STALE, ...)
    FEED_RECORDS_TOO_LARGE        # did not fit the ring's largest record: refused
    FEED_CONTROLS_FULL            # what the feed had to say itself, and there was no room for
    FEED_STREAMS                  # numberings found on the lines
    FEED_STREAMS_REPLACED         # windows that went to another one, before their numbers went on
    FEED_BATCHES                  # receive calls that brought something
    FEED_CYCLES                   # turns of the loop
    FEED_CYCLE_LONGEST_NS
    FEED_CYCLES_SLOW              # turns longer than 1 ms
    FEED_STALLS                   # turns that came too late (agents/feed/feed_loop: STALL_NS)
    FEED_STALLED_NS               # by how much, all together
    # written once, at the start
    FEED_DECODER                  # Decoder: what becomes of messages
    FEED_TOOK_OVER                # 1: from a writer that did not end in good order
    FEED_BYPASS_STACK             # net/bypass: Stack.number
    FEED_BYPASS_STATE             # net/bypass: State
    FEED_COUNTER_COUNT

cdef enum:  # Decoder: the value of FEED_DECODER, by which the sums of messages are made
    DECODER_NONE = 0              # they are published as they came
    DECODER_ROQ                   # they pass the gate of their objects
    DECODER_VENUE                 # they change the books of a market

cdef struct Counters:
    # One pointer per scope, into one counter block (shm/counters) or plain memory (tests).
    int64_t* feed
    int64_t* channel[2]
    int64_t* line[2][8]
    int64_t* address[2][8]       # ADDRESS_STRIDE apart; NULL: the line has one address
