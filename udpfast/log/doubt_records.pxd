# Records that say in which doubt a log is: records are missing, were taken back, its writer died.
# Whoever finds that out makes them here, so that they look the same wherever they come from: about
# no stream, and nobody sent them.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_LAPPED, RECORD_SIZE, Lapped, Record, STREAM_NONE)


cdef inline void doubt_record(
        Record* header, int kind, uint64_t payload_size, int64_t unix_ns) noexcept nogil:
    # The header. `unix_ns`: when it was found out; 0: nobody but one reader ever sees it. The
    # caller sets position, index and session where they mean something.
    memset(header, 0, RECORD_SIZE)
    header.length = <int>(RECORD_SIZE + payload_size)
    header.kind = kind
    header.stream = STREAM_NONE
    header.flight_ns = FLIGHT_UNKNOWN
    header.received_ns = header.published_ns = unix_ns


cdef inline void doubt_record_lapped(
        Record* header, Lapped* lapped, uint64_t missed, uint32_t reason,
        int64_t unix_ns) noexcept nogil:
    # Header and payload of LAPPED: so many are missing where it stands.
    doubt_record(header, KIND_LAPPED, sizeof(Lapped), unix_ns)
    memset(lapped, 0, sizeof(Lapped))
    lapped.missed = missed
    lapped.reason = reason
