# What the loop was given, kept before anything judges it: a raw capture. Replayed in their order
# and by their clocks, its records make the same records of the feed again.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport (
    CAPTURE_LATE, DATAGRAM_NO_TIMESTAMP, FLIGHT_UNKNOWN, KIND_CLOCK, KIND_DATAGRAM,
    RECORD_NO_TIMESTAMP, RECORD_SIZE, STREAM_NONE, Capture, Clock, Datagram, Record)
from udpfast.log.ring cimport RingWriter, ring_claim, ring_commit, ring_flush


cdef inline void capture_datagrams(
        RingWriter* capture, const Datagram* items, int count, uint16_t session,
        int64_t now_ns, uint32_t late_us, int64_t unix_ns) noexcept nogil:
    # A batch. The capture ring never waits for its recorder either.
    cdef const Datagram* item
    cdef Record* record
    cdef Capture* before
    cdef int i, flags
    for i in range(count):
        item = &items[i]
        record = ring_claim(capture, sizeof(Capture) + item.size)
        if unlikely(record == NULL):
            continue  # longer than an eighth of the ring: no datagram is
        flags = 0
        record.received_ns = item.received_ns
        if item.flags & DATAGRAM_NO_TIMESTAMP:
            flags = RECORD_NO_TIMESTAMP
            record.received_ns = unix_ns
        record.published_ns = unix_ns
        record.number = 0
        record.object = 0
        record.flight_ns = FLIGHT_UNKNOWN
        record.stream = item.channel
        record.session = session
        before = <Capture*>(<uint8_t*>record + RECORD_SIZE)
        before.now_ns = now_ns
        before.flags = item.flags | late_us << CAPTURE_LATE
        before.address = item.address
        memcpy(<uint8_t*>before + sizeof(Capture), item.data, item.size)
        ring_commit(
            capture, KIND_DATAGRAM, item.line, flags, sizeof(Capture) + item.size)
    ring_flush(capture)


cdef inline void capture_clock(
        RingWriter* capture, int reason, int64_t now_ns, int64_t unix_ns) noexcept nogil:
    # Time passed in the loop, and it mattered.
    cdef Record* record = ring_claim(capture, sizeof(Clock))
    cdef Clock* clock = <Clock*>(<uint8_t*>record + RECORD_SIZE)
    if unlikely(record == NULL):
        return  # no ring is so small
    memset(<uint8_t*>record + 4, 0, RECORD_SIZE - 4)  # not the length: it is not there yet
    record.stream = STREAM_NONE
    record.flight_ns = FLIGHT_UNKNOWN
    record.received_ns = unix_ns
    record.published_ns = unix_ns
    clock.now_ns = now_ns
    clock.reason = <uint32_t>reason
    clock.reserved = 0
    ring_commit(capture, KIND_CLOCK, 0, 0, sizeof(Clock))
    ring_flush(capture)
