# From datagram to record: the one path that live reception and replay share.
#
#    windows (feed/pipeline) -> market/gate -> payload -> ring or store (agents/feed/output)
#
# One writer, one thread. No Python object, no allocation, no lock between a datagram and its
# record, and no clock: whoever drives it says what time it is. (Answers of servers are stamped
# here, once for all that a turn takes.)
#
# Only engine.pyx knows the stages: the modules that drive an engine (subscriber, replayer) read
# none of their inline functions, and need not be compiled again when one of those changes.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from udpfast.agents.feed.output cimport Output
from udpfast.agents.feed.wanted cimport Wanted
from udpfast.core.counter cimport Counters
from udpfast.core.memory cimport Memory
from udpfast.core.layout cimport Datagram, Message, Record
from udpfast.log.ring cimport RingWriter
from udpfast.market.update_header cimport UpdateHeader
from udpfast.shm.answers cimport Answers
from udpfast.shm.histogram cimport Histogram
from udpfast.shm.wake cimport WakeRegion

cdef struct Stages                     # laid out in engine.pyx

cdef class Engine:
    cdef Stages* stages
    cdef Counters counters
    cdef Output output
    cdef WakeRegion wake               # readers that sleep in an event loop
    cdef RingWriter* capture           # where datagrams go before they are judged; NULL: nowhere
    cdef Histogram* origin_to_kernel   # publisher's clock -> receive stamp, per decoded update
    cdef Histogram* kernel_to_origin   # the same where the publisher's clock is ahead
    cdef Histogram* kernel_to_loop     # receive stamp -> the loop's clock, per datagram
    cdef Histogram* loop_to_ring       # the loop's clock -> batch published, sampled
    cdef int revision
    cdef bint carry_updates
    cdef bint carry_messages
    cdef readonly object directory
    cdef readonly object capture_face  # the same of `capture`; None: there is none
    cdef object _counter_block
    cdef object _latency_block
    cdef object _regions               # `regions.Regions`: all that is mapped
    cdef Memory _payload_memory        # what `payload` keeps of each symbol
    cdef bytearray _repair_memory      # newest datagrams, for parity; None: none is looked at
    cdef bint _repairs
    cdef Wanted wanted                 # what servers are asked for
    cdef bint asks                     # there is one

    # Take a batch; now_ns is monotonic (timers), unix_ns real time (stamps). Before now_ns nothing
    # of it had come; it may have come late_us later, and holes behind it wait from then.
    cdef void accept(
        self, Datagram* items, int count, int64_t now_ns, uint32_t late_us,
        int64_t unix_ns) noexcept nogil
    # Let time pass: holes become gaps, silence becomes DISCONNECTED.
    cdef void expire(self, int64_t now_ns, int64_t unix_ns) noexcept nogil
    # What agents brought from servers, some of it at each turn: how many datagrams.
    cdef int take_answers(self, int64_t now_ns, uint32_t late_us) noexcept nogil
    # Whether messages of the incremental channel wait for what is missing before them.
    cdef bint waits(self) noexcept nogil
    # What the kernel dropped did not show: all objects are in doubt, behind a GAP of no number.
    cdef void doubt(self, int64_t now_ns, int64_t unix_ns) noexcept nogil
    # The input has ended: whatever waits is delivered, and what is missing reported.
    cdef void finish(self, int64_t now_ns, int64_t unix_ns) noexcept nogil

    # When each line was heard last, for tools. `unix_offset_ns`: UNIX time less the loop's clock,
    # as of now: a clock that was set gives no line an age that it has not.
    cdef void note_lines(self, int64_t now_ns, int64_t unix_offset_ns) noexcept nogil

    cdef int _take_answers(self, Answers* answers, int64_t now_ns, uint32_t late_us) noexcept nogil
    cdef void _take_books(self, const Datagram* item, int64_t unix_ns) noexcept nogil
    cdef bint _take_parity(
        self, const Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef void _rebuild(self, const Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef void _count_arrival(self, Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef void _drain(self, int64_t unix_ns) noexcept nogil
    cdef bint _publish_neutral(self, const Message* message, int64_t unix_ns) noexcept nogil
    cdef int32_t _publish_payload(
        self, const Message* message, int32_t flight_ns, int64_t unix_ns) noexcept nogil
    cdef void _publish_damage(self, const Message* message, int64_t unix_ns) noexcept nogil
    cdef void _publish_dispute(self, const Message* message, int64_t unix_ns) noexcept nogil
    cdef int32_t _flight(self, const Message* message, uint64_t sent_ns) noexcept nogil
    cdef void _commit_as(
        self, Record* record, const Message* message, int kind, int flags, int32_t flight_ns,
        uint32_t size, uint32_t object, int64_t unix_ns) noexcept nogil
    cdef void _flush(self, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef void _drain_units(self, int64_t unix_ns) noexcept nogil
    cdef bint _decodes(self) noexcept nogil
    cdef void _publish_run(self, Message* message, int64_t unix_ns) noexcept nogil
    cdef void _expect(self) noexcept nogil
    cdef int _type(self, const Message* message) noexcept nogil
    cdef bint _is_gated(self, const Message* message, int message_type) noexcept nogil
    cdef bint _publish(self, Message* message, int message_type, int64_t unix_ns) noexcept nogil
    cdef int32_t _publish_update(self, Message* message, int64_t unix_ns) noexcept nogil
    cdef int32_t _update_flight(
        self, const Message* message, const UpdateHeader* header) noexcept nogil
    cdef int32_t _decode(self, Message* message, Record** record) noexcept nogil
    cdef bint _publish_framed(self, const Message* message, int64_t unix_ns) noexcept nogil
    cdef bint _publish_plain(
        self, const Message* message, int32_t flight_ns, int counter,
        int64_t unix_ns) noexcept nogil
    cdef void _commit(
        self, Record* record, const Message* message, int kind, int flags, int32_t flight_ns,
        uint32_t size, int64_t unix_ns) noexcept nogil
