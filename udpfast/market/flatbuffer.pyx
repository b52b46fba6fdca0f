"""The verifier of event payloads: nothing is read before it said yes."""

from udpfast.core.check cimport unlikely
from udpfast.market.schema cimport (
    FIELD_SCALAR,
    FIELD_SCALARS,
    FIELD_STRING,
    FIELD_STRINGS,
    FIELD_TABLE,
    FIELD_UNION,
    MESSAGE_COUNT,
    SCHEMA_FIELDS,
    SCHEMA_MEMBERS,
    SCHEMA_TABLES,
    SLOT_EVENT_VALUE,
    TABLE_EVENT,
    SchemaField,
    SchemaTable,
)

from udpfast.core.layout import Channel
from udpfast.errors import FormatError

__all__ = ["is_expected", "is_gated", "message_type", "verify"]

if MESSAGE_COUNT > 256:
    raise ImportError(f"a union code is one byte, the schema has {MESSAGE_COUNT}")


cdef struct Walk:  # one buffer on its way through the verifier
    const uint8_t* data
    uint64_t size
    uint64_t tables_left         # budgets: what is referred to twice is paid for twice
    uint64_t strings_left
    uint64_t fields_unknown


cdef struct Shape:  # what a checked vtable says of every table that uses it
    uint64_t vtable
    uint64_t vtable_size
    uint64_t extent              # bytes of the table up to the end of its last known field
    uint64_t fields_unknown


cdef bint _shape(
        Walk* walk, uint64_t vtable, const SchemaTable* schema, Shape* shape) noexcept nogil:
    # Check a vtable for tables of one type.
    cdef const SchemaField* field = SCHEMA_FIELDS + schema.first
    cdef uint64_t size, slot, end, offset
    if vtable + 4 > walk.size:
        return False
    size = load_u16(walk.data + vtable)
    if size < 4 or size > VTABLE_SIZE_MAX or size & 1 or vtable + size > walk.size:
        return False
    shape.vtable = vtable
    shape.vtable_size = size
    shape.extent = 4
    shape.fields_unknown = 0
    end = min(size, <uint64_t> 4 + 2 * schema.count)
    slot = 4
    while slot < end:
        offset = load_u16(walk.data + vtable + slot)
        if offset:
            shape.extent = max(shape.extent, offset + field.size)
        field += 1
        slot += 2
    while slot < size:
        shape.fields_unknown += load_u16(walk.data + vtable + slot) != 0
        slot += 2
    return True


cdef inline bint _string(Walk* walk, uint64_t at) noexcept nogil:
    # Length, bytes, and the zero behind them that the format promises.
    cdef uint64_t size
    if at + 5 > walk.size:
        return False
    size = load_u32(walk.data + at)
    return at + 5 + size <= walk.size and walk.data[at + 4 + size] == 0


cdef bint _vector(Walk* walk, uint64_t at, const SchemaField* field, int depth) noexcept nogil:
    # A vector of scalars, strings or tables.
    cdef uint64_t count, _
    cdef Shape shape
    if at + 4 > walk.size:
        return False
    count = load_u32(walk.data + at)
    at += 4
    if at + count * field.size > walk.size:
        return False
    if field.kind == FIELD_SCALARS:
        return True
    if field.kind == FIELD_STRINGS:
        if count > walk.strings_left:
            return False
        walk.strings_left -= count
        for _ in range(count):
            if not _string(walk, at + load_u32(walk.data + at)):
                return False
            at += 4
        return True
    shape.vtable = walk.size  # no vtable lies there
    for _ in range(count):
        if not _table(walk, at + load_u32(walk.data + at), field.table, depth, &shape):
            return False
        at += 4
    return True


cdef bint _table(
        Walk* walk, uint64_t at, uint32_t index, int depth, Shape* shape) noexcept nogil:
    # A table and all that it refers to. `shape` is the last vtable that was checked for this
    # type: neighbours in a vector nearly always share it, which makes them four loads each.
    cdef const SchemaTable* schema = SCHEMA_TABLES + index
    cdef uint64_t vtable
    if unlikely(at + 4 > walk.size or walk.tables_left == 0):
        return False
    walk.tables_left -= 1
    # A distance that leads out of the buffer, even below zero, is beyond its size as unsigned.
    vtable = <uint64_t> (<int64_t> at - <int32_t> load_u32(walk.data + at))
    if vtable != shape.vtable and (
            vtable > walk.size or not _shape(walk, vtable, schema, shape)):
        return False
    if unlikely(at + shape.extent > walk.size):
        return False
    walk.fields_unknown += shape.fields_unknown
    return True if schema.leaf else _references(walk, at, schema, shape, depth)


cdef bint _references(
        Walk* walk, uint64_t at, const SchemaTable* schema, const Shape* shape,
        int depth) noexcept nogil:
    # What the fields of a table refer to; the fields themselves are within bounds.
    cdef const uint8_t* vtable = walk.data + shape.vtable
    cdef const SchemaField* field
    cdef uint64_t offset, target
    cdef uint32_t i, code = 0
    cdef Shape fresh
    cdef uint64_t known = min(<uint64_t> schema.count, (shape.vtable_size - 4) >> 1)
    if depth == 0:
        return False
    for i in range(known):
        field = SCHEMA_FIELDS + schema.first + i
        offset = load_u16(vtable + 4 + 2 * i)
        if field.kind <= FIELD_SCALAR or offset == 0:
            # Kept for the union that may be the next field. Zero when absent.
            code = walk.data[at + offset] if offset and field.size == 1 else 0
            continue
        target = at + offset + load_u32(walk.data + at + offset)
        fresh.vtable = walk.size
        if field.kind == FIELD_STRING:
            if not _string(walk, target):
                return False
        elif field.kind == FIELD_TABLE:
            if not _table(walk, target, field.table, depth - 1, &fresh):
                return False
        elif field.kind == FIELD_UNION:
            if 0 < code < MESSAGE_COUNT and not _table(
                    walk, target, SCHEMA_MEMBERS[code], depth - 1, &fresh):
                return False
        elif not _vector(walk, target, field, depth - 1):
            return False
    return True


cdef int event_verify(
        const uint8_t* payload, uint32_t size, Verification* result) noexcept nogil:
    cdef Walk walk
    cdef Shape shape
    cdef Table event
    if size < 8:
        return EVENT_DAMAGED
    walk.data = payload
    walk.size = size
    walk.tables_left = size >> 3
    walk.strings_left = size >> 2
    walk.fields_unknown = 0
    shape.vtable = size
    if not _table(&walk, load_u32(payload), TABLE_EVENT, DEPTH_MAX, &shape):
        return EVENT_DAMAGED
    event = table_at(payload + load_u32(payload))
    result.fields_unknown = walk.fields_unknown
    result.message_type = table_u8(&event, SLOT_EVENT_VALUE_TYPE)
    if result.message_type < MESSAGE_COUNT and table_offset(&event, SLOT_EVENT_VALUE) == 0:
        result.message_type = 0
    return result.message_type


def verify(const uint8_t[::1] payload) -> tuple[int, int]:
    """Check an event payload whole.

    Returns
    -------
    message_type : int
        Its union code: 0 for an event without a value, above 51 for one of a later schema.
    fields_unknown : int
        Present fields of a later schema; they were skipped.

    Raises
    ------
    FormatError
        An offset, length or count leads out of the buffer, or tables nest or repeat too much.
    """
    cdef Verification result
    cdef int code = EVENT_DAMAGED
    if payload.shape[0] and payload.shape[0] <= 0x7FFFFFFF:
        with nogil:
            code = event_verify(&payload[0], <uint32_t> payload.shape[0], &result)
    if code < 0:
        raise FormatError(f"an event must be a sound FlatBuffer, {payload.shape[0]} bytes are not")
    return code, result.fields_unknown


def message_type(const uint8_t[::1] payload) -> int:
    """Return the union code of an event that nobody verified; -1 if it cannot be found."""
    if payload.shape[0] == 0:
        return EVENT_DAMAGED
    return event_type(&payload[0], <uint32_t> payload.shape[0])


def is_gated(message_type: int) -> bool:
    """Return whether messages of this type wait for a snapshot when their object missed one."""
    return event_gated(message_type)


def is_expected(message_type: int, channel: int) -> bool:
    """Return whether messages of this type may come on this channel."""
    return event_expected(message_type, Channel(channel))
