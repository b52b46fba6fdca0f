# FlatBuffers: unchecked reads of verified buffers, and the verifier that makes them safe.
#
# A buffer is little-endian, and so are we. Nothing is assumed about alignment: a payload may begin
# anywhere in a datagram, so every load is a memcpy, which compiles to one plain instruction.
#
#   root -> table: i32 distance back to its vtable | fields inline, references as u32 forward
#           vtable: u16 own bytes | u16 table bytes | u16 offset of field 0 (0 = absent) | ...
#
# Read only what event_verify accepted. It checks every table, vector and string that the schema
# can reach from the root; what a later schema may have added is counted and not looked at.

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
    VTABLE_SIZE_MAX = 516        # 256 fields; the schema's largest table has 43: bounds the cost
    DEPTH_MAX = 16               # nesting of tables; the schema itself needs 4
    EVENT_DAMAGED = -1           # what event_type and event_verify say of a broken buffer


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
    # Where the field lies within the table; 0 = absent.
    return load_u16(table.vtable + slot) if slot < table.vtable_size else 0


cdef inline const uint8_t* table_reference(const Table* table, uint32_t slot) noexcept nogil:
    # Where the field's reference points to; NULL = absent.
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
    uint16_t code_offset         # union: where its type code lies; 0 = none
    uint8_t kind                 # FIELD_STRING .. FIELD_UNION
    uint8_t size                 # of a vector's elements
    uint8_t table                # what it refers to

cdef struct Shape:
    # What a vtable's bytes say of a table of one type. A publisher uses the same few vtables for
    # ever, so two of each type are remembered and compared: cheaper than reading them.
    uint16_t vtable_size         # 0 = nothing learned yet
    uint16_t reference_count
    uint32_t extent              # bytes of the table up to the end of its last known field
    uint32_t fields_unknown      # present fields beyond the schema
    Reference reference[SHAPE_REFERENCES_MAX]
    uint8_t vtable[SHAPE_VTABLE_MAX]

cdef struct Shapes:  # zeroed at start; one per thread
    Shape shape[TABLE_COUNT][2]
    uint8_t oldest[TABLE_COUNT]  # which of the two to forget next

cdef struct Verification:
    uint64_t fields_unknown      # present fields beyond the schema, over all tables
    int32_t message_type         # union code, 0 = none; also of codes beyond the schema


# Check a whole event. Returns its union code (0 NONE, above 51 unknown), or EVENT_DAMAGED: also
# where a type is without its value. Cost is bounded by the buffer's size: a table takes 8 bytes at
# least (its vtable distance and one reference), so more tables than size / 8 mean that one is
# referred to twice. What `shapes` remembers changes the cost only, never the result.
cdef int event_verify(
    const uint8_t* payload, uint32_t size, Shapes* shapes, Verification* result) noexcept nogil


cdef inline int event_type(const uint8_t* payload, uint32_t size) noexcept nogil:
    # The union code alone, read within bounds; EVENT_DAMAGED if even that is broken. Cheap: for
    # deciding about a message before it is verified.
    cdef uint64_t table, vtable, vtable_size, offset
    cdef int64_t distance
    if size < 8:
        return EVENT_DAMAGED
    table = load_u32(payload)
    if table + 4 > size:
        return EVENT_DAMAGED
    distance = <int32_t> load_u32(payload + table)
    vtable = <uint64_t> (<int64_t> table - distance)
    if vtable > size - 4:  # also when it lies before the buffer
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
    # Whether this type has a state that snapshots carry: it waits for one when it missed an update.
    return (message_type == MESSAGE_MARKET_BY_PRICE_UPDATE
            or message_type == MESSAGE_MARKET_BY_ORDER_UPDATE
            or message_type == MESSAGE_REFERENCE_DATA
            or message_type == MESSAGE_MARKET_STATUS
            or message_type == MESSAGE_STATISTICS_UPDATE
            or message_type == MESSAGE_CUSTOM_METRICS_UPDATE)


cdef inline bint event_expected(int message_type, int channel) noexcept nogil:
    # Whether this type may come on this channel (0 incremental, 1 snapshot). All may on the
    # incremental one; three never come as snapshots.
    return channel == 0 or not (
        message_type == MESSAGE_TOP_OF_BOOK
        or message_type == MESSAGE_TRADE_SUMMARY
        or message_type == MESSAGE_EXTERNAL_LATENCY)
