# Records that state a doubt about a log: records are missing or were taken back, or its writer
# died. Everyone who finds such a doubt makes the record here, so that all look the same: they
# belong to no stream, and nobody sent them.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_LAPPED, RECORD_SIZE, Lapped, Record, STREAM_NONE)


cdef inline void doubt_record(
        Record* header, int kind, uint64_t payload_size, int64_t unix_ns) noexcept nogil:
    # Fill the header. unix_ns: when the doubt was found; 0 if only one reader ever sees the record.
    # The caller sets position, index and session where they have a meaning.
    memset(header, 0, RECORD_SIZE)
    header.length = <int>(RECORD_SIZE + payload_size)
    header.kind = kind
    header.stream = STREAM_NONE
    header.flight_ns = FLIGHT_UNKNOWN
    header.received_ns = header.published_ns = unix_ns


cdef inline void doubt_record_lapped(
        Record* header, Lapped* lapped, uint64_t missed, uint32_t reason,
        int64_t unix_ns) noexcept nogil:
    # Fill header and payload of a LAPPED: `missed` records are missing at this place.
    doubt_record(header, KIND_LAPPED, sizeof(Lapped), unix_ns)
    memset(lapped, 0, sizeof(Lapped))
    lapped.missed = missed
    lapped.reason = reason
