# RelayEncoding makes a message of Roq's schema of an update, in memory of its own.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from udpfast.market.names cimport Names
from udpfast.market.update_header cimport Level, UpdateHeader
from udpfast.payload.roq.encode cimport Text

cdef enum:
    # A level takes 24 bytes at least: more of them fit no message of 131,072.
    ROWS_MAX = 5400

cdef class RelayEncoding:
    cdef object _names_table         # NameTable
    cdef Names names
    cdef bint has_names
    cdef uint8_t* encoded            # zeros, but while a message is encoded there
    cdef Level* rows
    cdef int64_t now_ns              # of this turn: monotonic,
    cdef int64_t unix_ns             # and UNIX
    cdef uint32_t _encode(
        self, int kind, const uint8_t* fixed, const uint8_t* rows, uint32_t size,
        int64_t created_ns, bint whole) noexcept nogil
    cdef uint32_t _encode_slowly(
        self, int kind, const uint8_t* payload, uint32_t size, int64_t created_ns,
        bint whole) noexcept nogil
    cdef uint32_t _encode_any(
        self, int kind, bytes payload, int64_t created_ns, bint whole) noexcept
    cdef void _stamp(self, UpdateHeader* header, int64_t created_ns) noexcept nogil
    cdef Text _text(self, uint32_t name_id) noexcept nogil
