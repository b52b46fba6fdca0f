# Object types of what a relay sends: 1 for books and so on, as the kinds of updates follow each
# other. An object type has 65,536 ids; what has no room there has the next type of its kind.
#
#   object_type = 1 + (kind - KIND_BOOK) + KINDS * number

from libc.stdint cimport uint8_t, uint16_t

from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_CUSTOM_METRICS, KIND_EXTERNAL_LATENCY, KIND_STATISTICS, KIND_TOP_OF_BOOK,
    KIND_TRADES)

cdef enum:
    STATUS_TYPE = 0              # the relay's own status: of no object
    KINDS = 16                   # between two object types of one kind; there are fewer kinds
    TYPES_MAX = 14               # object types of one kind but the first: 8 bits hold them all


cdef inline uint8_t relay_type(int kind, int number) noexcept nogil:
    return <uint8_t>(1 + kind - KIND_BOOK + KINDS * number)


cdef inline bint is_type_of(uint8_t object_type, int kind) noexcept nogil:
    return object_type % KINDS == relay_type(kind, 0)


cdef inline bint has_snapshots(uint16_t kind) noexcept nogil:
    # Whether the protocol has snapshots of it, for which a subscriber's objects wait.
    return kind != KIND_TOP_OF_BOOK and kind != KIND_TRADES and kind != KIND_EXTERNAL_LATENCY


cdef inline bint has_parts(uint16_t kind) noexcept nogil:
    # Whether an update may say less than all.
    return kind == KIND_BOOK or kind == KIND_STATISTICS or kind == KIND_CUSTOM_METRICS
