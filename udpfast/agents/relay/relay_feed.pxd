# RelayFeed: what one host's feed publishes, once more as a Roq publisher (docs/relay.md). Records
# in, datagrams out; no cursor, no socket and no clock.
#
#   records --> State (market/state): what is true here, and what is in doubt
#                 |
#               Told, one per value: what the far end has of it
#                 |
#               Publication (feed/publication): numbers, fragments, heartbeats --> send queues
#
# What a value goes through at the far end, by what was sent of it:
#
#               whole, on the incremental channel
#   NOTHING ----------------------------------------> SOUND <---+
#                                                      |  |     | whole
#      update; snapshots in every round <--------------+  |     |
#                                                         v     |
#                    in doubt here: STALE said, or      WHOLE --+   nothing is sent meanwhile
#                    a number was left out
#
# A number that is left out is a gap there: every object is in doubt until its next message, which
# names the one before, shows that nothing of it was lost. So a GAP here, which doubts all objects
# of a stream in the same way, costs one number and no message.
#
# With a budget (relay_budget.pxd) a top or a book for which there is no room is held (relay_held),
# and its newest state leaves as soon as there is. What was put is charged at once; its datagrams
# leave one by one as they are paid for. Every record has one verdict:
#
#   records = learnt + control + not_carried + refused + doubted
#             + updates + in_whole + delayed + conflated + waiting

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.agents.relay.relay_budget cimport Budget
from udpfast.agents.relay.relay_encoding cimport RelayEncoding
from udpfast.agents.relay.relay_held cimport Held
from udpfast.agents.relay.relay_lines cimport RelayLines
from udpfast.core.layout cimport CHANNEL_COUNT, Frame, Record
from udpfast.feed.publication cimport Publication
from udpfast.market.state cimport State, StateObject, StateValue

cdef enum:  # RelayCount: what is counted, as `RELAY_COUNTS` names it
    RELAY_RECORDS
    RELAY_UPDATES
    RELAY_WHOLE
    RELAY_REPEATED
    RELAY_SNAPSHOTS
    RELAY_ROUNDS
    RELAY_GAPS
    RELAY_STALE
    RELAY_SESSIONS
    RELAY_LEARNT
    RELAY_LAPPED
    RELAY_NOT_CARRIED
    RELAY_REFUSED
    RELAY_CONTROL
    RELAY_DOUBTED
    RELAY_IN_WHOLE
    RELAY_DELAYED
    RELAY_CONFLATED
    RELAY_WAITING
    RELAY_LATE
    RELAY_BEHIND
    RELAY_SHORT
    RELAY_COUNT

cdef enum:  # Told.status
    TOLD_NOTHING = 0
    TOLD_SOUND = 1
    TOLD_WHOLE = 2               # the next thing said of it is all of it

cdef struct Told:
    uint64_t number              # RelayFeed.number of its last incremental message
    uint32_t last_seqno          # its seqno; 0: none yet
    uint32_t refused_rows        # a book of so many levels was too large for a message
    uint16_t object_id
    uint8_t object_type          # 0: it has no object yet
    uint8_t status
    uint8_t parts                # a whole book comes in parts, of which there are more to come
    uint8_t reserved
    uint16_t fragments           # of its last message

cdef class RelayFeed(RelayEncoding):
    cdef State state
    cdef readonly Publication publication
    cdef readonly RelayLines lines   # None: datagrams are kept
    cdef readonly tuple kept
    cdef readonly list sessions
    cdef int64_t* counts             # RELAY_COUNT
    cdef object _counts_owner
    cdef Told* told                  # by index of the state's value
    cdef uint32_t told_room
    cdef uint32_t generation         # of the state's session that `told` is about
    cdef uint32_t given[16]          # objects of each kind
    cdef uint64_t number             # counts incremental messages, and numbers left out
    cdef uint64_t left_out           # the last one that was left out
    cdef bint said                   # something about objects was said since
    cdef bytes status_payload        # GatewayStatus, as it is now
    cdef bint status_due             # it was not said yet
    cdef bint available
    # the budget
    cdef Budget budget
    cdef Held held
    cdef int64_t late_ns             # what was held for so long is in doubt
    cdef int64_t pause_ns            # a turn that is so late follows a pause
    cdef int64_t held_ns             # when something was held last
    cdef bint holding                # there is a budget, or something was held ever
    cdef bint behind                 # what is taken is old: no book and no top may leave
    cdef uint32_t charged[CHANNEL_COUNT]     # datagrams of the send queue that are paid for,
    cdef int64_t charged_ns[CHANNEL_COUNT]   # and what they cost
    # the snapshot round
    cdef int64_t round_interval_ns
    cdef int64_t round_datagram_ns
    cdef int64_t round_due_ns
    cdef int64_t round_paid_ns       # up to when the datagrams of rounds are paid for
    cdef uint32_t round_at           # value whose turn is next
    cdef uint8_t* open_payload       # a snapshot whose fragments leave at a pace,
    cdef uint32_t open_size          # 0: there is none,
    cdef uint32_t open_fragment      # the next fragment,
    cdef Frame open_frame            # and its frame

    # Once `state` is what the first record builds on. 0, or -ENOMEM, as the next two.
    cdef int begin(self) noexcept nogil
    # Take a record, in the order of its log.
    cdef int take(self, const Record* header, const uint8_t* payload) noexcept nogil
    # The same of what nobody is told of: it lies back, and only what becomes of it counts.
    cdef int learn(self, const Record* header, const uint8_t* payload) noexcept nogil
    # So many records are missing before the next one; `epoch`: of the log's writer now.
    cdef void miss(self, uint64_t count, uint64_t epoch) noexcept nogil
    # What is due, and send what waits; how many datagrams were due.
    cdef int work(self) noexcept nogil
    # Whether so much waits to leave that no record is to be taken now.
    cdef bint full(self) noexcept nogil
    # What is taken from now on is old, or no longer is.
    cdef void fall_behind(self, bint behind) noexcept nogil
    cdef void _withdraw(self) noexcept nogil

    cdef int _follow(self) noexcept nogil
    cdef begin_session(self)
    cdef void _take_control(
        self, const Record* header, const uint8_t* payload, uint32_t gaps) noexcept nogil
    cdef void _look_at_connection(self) noexcept nogil
    cdef void _take_update(self, const Record* header, const uint8_t* payload) noexcept nogil
    cdef void _look_at_object(self, const Record* header, uint64_t tag) noexcept nogil
    cdef void _doubt_values(self, int64_t stream) noexcept nogil
    cdef void doubt_all(self) noexcept nogil
    cdef void _doubt(self, uint32_t index) noexcept nogil
    cdef void _say_doubt(self, uint32_t index) noexcept nogil
    cdef int64_t _credit_ns(self) noexcept nogil
    cdef bint _has_to_wait(self, uint32_t index, uint16_t kind) noexcept nogil
    cdef void _hold(
        self, uint32_t index, const Record* header, const uint8_t* payload) noexcept nogil
    cdef void _line_up(self, uint32_t index) noexcept nogil
    cdef void _tell_whole(self, uint32_t index) noexcept nogil
    cdef void _answer(self, uint32_t index, bint said) noexcept nogil
    cdef int _release(self) noexcept nogil
    cdef void _put_held(self, uint32_t index) noexcept nogil
    cdef void _look_at_late(self) noexcept nogil
    cdef void _look_at_budget(self) noexcept nogil
    cdef bint _put_record(
        self, uint32_t index, const Record* header, const uint8_t* payload) noexcept nogil
    cdef bint _put_whole(self, uint32_t index) noexcept nogil
    cdef uint32_t _encode_whole(self, uint32_t index) noexcept nogil
    cdef void _put(self, Told* told, uint32_t size, bint snapshot) noexcept nogil
    cdef bint _name(self, Told* told, int kind) noexcept nogil
    cdef void _put_status(self) noexcept nogil
    cdef void flush(self, int channel) noexcept nogil
    cdef void _send(self, int channel, uint32_t count) noexcept nogil
    cdef uint32_t _paid(self, int channel) noexcept nogil
    cdef int _round(self) noexcept nogil
    cdef uint32_t _round_next(self) noexcept nogil
    cdef void _open_snapshot(
        self, uint32_t size, uint8_t object_type, uint16_t object_id,
        uint32_t last_seqno) noexcept nogil
    cdef uint32_t _continue_snapshot(self, uint32_t allowed) noexcept nogil
