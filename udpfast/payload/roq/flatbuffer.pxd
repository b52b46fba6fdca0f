# FlatBuffers: unchecked reads of verified buffers, and the verifier that makes them safe.
#
# A buffer is little-endian, as is the host. Nothing is aligned: a payload may begin anywhere in a
# datagram, so every load is a memcpy, which compiles to one plain instruction.
#
#   root -> table: i32 distance back to its vtable | fields inline, references as u32 forward
#           vtable: u16 own bytes | u16 table bytes | u16 offset of field 0 (0 = absent) | ...
#
# Read only what event_verify accepted. It checks every table, vector and string that the schema can
# reach from the root. Fields of a later schema are counted and skipped.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.payload.roq.schema cimport (
    MESSAGE_CUSTOM_METRICS_UPDATE,
    MESSAGE_EXTERNAL_LATENCY,
    MESSAGE_MARKET_BY_ORDER_UPDATE,
    MESSAGE_MARKET_BY_PRICE_UPDATE,
    MESSAGE_MARKET_STATUS,
    MESSAGE_NONE,
    MESSAGE_REFERENCE_DATA,
    MESSAGE_STATISTICS_UPDATE,
    MESSAGE_TOP_OF_BOOK,
    MESSAGE_TRADE_SUMMARY,
    SLOT_EVENT_VALUE_TYPE,
    TABLE_COUNT,
)

cdef enum:
    VTABLE_SIZE_MAX = 516        # 256 fields, to limit the cost; the schema's largest table has 43
    DEPTH_MAX = 16               # nesting of tables; the schema itself needs 4
    EVENT_DAMAGED = -1           # returned by event_type and event_verify for a broken buffer


cdef inline uint16_t load_u16(const uint8_t* at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return value


cdef inline uint32_t load_u32(const uint8_t* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


cdef inline uint64_t load_u64(const uint8_t* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value


cdef inline double load_f64(const uint8_t* at) noexcept nogil:
    cdef double value
    memcpy(&value, at, 8)
    return value


cdef enum:
    VTABLE_SLOTS = 8             # vtables of one vector that are remembered by their place


cdef inline uint32_t vtable_slot(uint64_t place) noexcept nogil:
    return (<uint32_t> place * <uint32_t> 2654435761) >> 29


# --- a verified table ---------------------------------------------------------------------------

cdef struct Table:
    const uint8_t* at
    const uint8_t* vtable
    uint32_t vtable_size


cdef inline Table table_at(const uint8_t* at) noexcept nogil:
    cdef Table table
    table.at = at
    table.vtable = at - <int32_t> load_u32(at)
    table.vtable_size = load_u16(table.vtable)
    return table


cdef inline const uint8_t* follow(const uint8_t* reference) noexcept nogil:
    return reference + load_u32(reference)


cdef inline uint16_t table_offset(const Table* table, uint32_t slot) noexcept nogil:
    # Return the field's offset in the table; 0 if it is absent.
    return load_u16(table.vtable + slot) if slot < table.vtable_size else 0


cdef inline const uint8_t* table_reference(const Table* table, uint32_t slot) noexcept nogil:
    # Return what the field refers to; NULL if it is absent.
    cdef uint16_t offset = table_offset(table, slot)
    return follow(table.at + offset) if offset else NULL


cdef inline uint8_t table_u8(const Table* table, uint32_t slot) noexcept nogil:
    cdef uint16_t offset = table_offset(table, slot)
    return table.at[offset] if offset else 0


cdef inline uint16_t table_u16(const Table* table, uint32_t slot) noexcept nogil:
    cdef uint16_t offset = table_offset(table, slot)
    return load_u16(table.at + offset) if offset else 0


cdef inline uint32_t table_u32(const Table* table, uint32_t slot) noexcept nogil:
    cdef uint16_t offset = table_offset(table, slot)
    return load_u32(table.at + offset) if offset else 0


cdef inline uint64_t table_u64(const Table* table, uint32_t slot) noexcept nogil:
    cdef uint16_t offset = table_offset(table, slot)
    return load_u64(table.at + offset) if offset else 0


cdef inline double table_f64(
        const Table* table, uint32_t slot, double default) noexcept nogil:
    cdef uint16_t offset = table_offset(table, slot)
    return load_f64(table.at + offset) if offset else default


# --- verifying ----------------------------------------------------------------------------------

cdef enum:
    SHAPE_VTABLE_MAX = 92        # the schema's largest table has 44 fields
    SHAPE_REFERENCES_MAX = 16    # the schema's largest table has 13

cdef struct Reference:
    uint16_t offset              # of the field within its table
    uint16_t code_offset         # in a union: offset of its type code; 0: none
    uint8_t kind                 # FIELD_STRING .. FIELD_UNION
    uint8_t size                 # of an element of a vector
    uint8_t table                # the table's index that it refers to

cdef struct Shape:
    # What a vtable says about a table of one type. A publisher uses the same few vtables all the
    # time, so two per type are remembered: to compare them is cheaper than to read them.
    uint16_t vtable_size         # 0: nothing is remembered
    uint16_t reference_count
    uint32_t extent              # bytes of the table up to the end of its last known field
    uint32_t fields_unknown      # present fields that the schema does not have
    Reference reference[SHAPE_REFERENCES_MAX]
    uint8_t vtable[SHAPE_VTABLE_MAX]

cdef struct Shapes:  # zeroed at the start; one per thread
    Shape shape[TABLE_COUNT][2]
    uint8_t oldest[TABLE_COUNT]  # which of the two is replaced next

cdef struct Verification:
    uint64_t fields_unknown      # present fields that the schema does not have, in all tables
    int32_t message_type         # union code, also one beyond the schema; 0: none


# Check a whole event. Return its union code (0: NONE, above 51: unknown), or EVENT_DAMAGED, also if
# there is a type without a value. The buffer's size bounds the cost: a table takes at least 8 bytes
# (its vtable distance and one reference), so more tables than size / 8 mean that one is referred to
# twice. `shapes` only saves time; it never changes the result.
cdef int event_verify(
    const uint8_t* payload, uint32_t size, Shapes* shapes, Verification* result) noexcept nogil


cdef inline int event_type(const uint8_t* payload, uint32_t size) noexcept nogil:
    # Return only the union code, read within bounds, or EVENT_DAMAGED if that is impossible. This
    # is a cheap way to decide about a message before it is verified.
    cdef uint64_t table, vtable, vtable_size, offset
    cdef int64_t distance
    if size < 8:
        return EVENT_DAMAGED
    table = load_u32(payload)
    if table + 4 > size:
        return EVENT_DAMAGED
    distance = <int32_t> load_u32(payload + table)
    vtable = <uint64_t> (<int64_t> table - distance)
    if vtable > size - 4:  # also if it lies before the buffer
        return EVENT_DAMAGED
    vtable_size = load_u16(payload + vtable)
    if vtable_size < 4 or vtable + vtable_size > size:
        return EVENT_DAMAGED
    if vtable_size < SLOT_EVENT_VALUE_TYPE + 2:
        return MESSAGE_NONE
    offset = load_u16(payload + vtable + SLOT_EVENT_VALUE_TYPE)
    if offset == 0:
        return MESSAGE_NONE
    return payload[table + offset] if table + offset < size else EVENT_DAMAGED


cdef inline bint event_gated(int message_type) noexcept nogil:
    # Return True if objects of this type have snapshots: after a lost update they wait for one.
    return (message_type == MESSAGE_MARKET_BY_PRICE_UPDATE
            or message_type == MESSAGE_MARKET_BY_ORDER_UPDATE
            or message_type == MESSAGE_REFERENCE_DATA
            or message_type == MESSAGE_MARKET_STATUS
            or message_type == MESSAGE_STATISTICS_UPDATE
            or message_type == MESSAGE_CUSTOM_METRICS_UPDATE)


cdef inline bint event_expected(int message_type, int channel) noexcept nogil:
    # Return True if this type may come on this channel (0 incremental, 1 snapshot). All types may
    # come on the incremental channel; three never come as snapshots.
    return channel == 0 or not (
        message_type == MESSAGE_TOP_OF_BOOK
        or message_type == MESSAGE_TRADE_SUMMARY
        or message_type == MESSAGE_EXTERNAL_LATENCY)
