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
#
#   RelayFeed          records in: this file
#     RelayRounds        snapshot rounds
#       RelayConflation    what is held, told whole, or said to be in doubt
#         RelayOutput        numbers, budget, send queues
#           RelayEncoding      updates as Roq's messages

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.agents.relay.relay_rounds cimport RelayRounds
from udpfast.core.layout cimport Record

cdef class RelayFeed(RelayRounds):
    cdef readonly list sessions
    cdef uint32_t generation         # of the state's session that `told` is about

    # Once `state` is what the first record builds on. 0, or -ENOMEM, as the next two.
    cdef int begin(self) noexcept nogil
    # Take a record, in the order of its log.
    cdef int take(self, const Record* header, const uint8_t* payload) noexcept nogil
    # The same of what nobody is told of: it lies back, and only what becomes of it counts.
    cdef int learn(self, const Record* header, const uint8_t* payload) noexcept nogil
    cdef int _follow(self) noexcept nogil
    cdef begin_session(self)
    # So many records are missing before the next one; `epoch`: of the log's writer now.
    cdef void miss(self, uint64_t count, uint64_t epoch) noexcept nogil
    cdef void _take_control(
        self, const Record* header, const uint8_t* payload, uint32_t gaps) noexcept nogil
    cdef void look_at_connection(self) noexcept nogil
    cdef void _take_update(self, const Record* header, const uint8_t* payload) noexcept nogil
    cdef void _look_at_object(self, const Record* header, uint64_t tag) noexcept nogil
    cdef void _doubt_values(self, int64_t stream) noexcept nogil
    # What is due, and send what waits; how many datagrams were due.
    cdef int work(self) noexcept nogil
