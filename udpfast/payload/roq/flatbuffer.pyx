"""The verifier of event payloads: no payload is read before it was verified."""

from libc.string cimport memset

from udpfast.core.check cimport likely, unlikely
from udpfast.payload.roq.schema cimport (
    FIELD_SCALAR,
    FIELD_SCALARS,
    FIELD_SKIPPED,
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


cdef struct Walk:  # the buffer being verified
    const uint8_t* data
    uint64_t size
    Shapes* shapes
    uint64_t tables_left         # budgets: what is referred to twice is counted twice
    uint64_t strings_left
    uint64_t fields_unknown


cdef inline bint _same(const uint8_t* a, const uint8_t* b, uint32_t size) noexcept nogil:
    # Return True if two vtables of the same size place their fields alike. The table's own size,
    # bytes 2 and 3, depends on padding and is not used. The last eight bytes compared may overlap
    # the ones before.
    cdef uint32_t at = 4
    if size < 12:
        if size < 8:
            return size == 4 or load_u16(a + 4) == load_u16(b + 4)
        return load_u32(a + 4) == load_u32(b + 4) and load_u32(a + size - 4) == load_u32(
            b + size - 4)
    while at + 8 < size:
        if load_u64(a + at) != load_u64(b + at):
            return False
        at += 8
    return load_u64(a + size - 8) == load_u64(b + size - 8)


cdef inline const Shape* _shape(Walk* walk, uint64_t vtable, uint32_t index) noexcept nogil:
    # Return the shape of a table by its vtable, or NULL if the vtable is not sound.
    cdef Shape* shape = &walk.shapes.shape[index][0]
    cdef uint32_t size
    if unlikely(vtable > walk.size - 4):  # also if it lies before the buffer: size >= 8
        return NULL
    size = load_u16(walk.data + vtable)
    if unlikely(size < 4 or vtable + size > walk.size):
        return NULL
    if likely(size == shape.vtable_size and _same(walk.data + vtable, shape.vtable, size)):
        return shape
    shape += 1
    if likely(size == shape.vtable_size and _same(walk.data + vtable, shape.vtable, size)):
        return shape
    shape = &walk.shapes.shape[index][walk.shapes.oldest[index]]
    walk.shapes.oldest[index] ^= 1
    return shape if _learn(walk.data + vtable, size, index, shape) else NULL


cdef bint _learn(
        const uint8_t* vtable, uint32_t size, uint32_t index, Shape* shape) noexcept nogil:
    # Learn the vtable of a table of this type.
    cdef const SchemaTable* schema = SCHEMA_TABLES + index
    cdef const SchemaField* field
    cdef Reference* reference
    cdef uint32_t i, offset, code_offset = 0, fields = (size - 4) >> 1
    if size > VTABLE_SIZE_MAX or size & 1:
        return False
    shape.vtable_size = 0
    shape.extent = 4
    shape.reference_count = 0
    shape.fields_unknown = 0
    for i in range(fields):
        offset = load_u16(vtable + 4 + 2 * i)
        if i >= schema.count:
            shape.fields_unknown += offset != 0
            continue
        field = SCHEMA_FIELDS + schema.first + i
        if offset and field.kind != FIELD_SKIPPED:
            shape.extent = max(shape.extent, offset + field.size)
            if field.kind != FIELD_SCALAR:
                reference = &shape.reference[shape.reference_count]
                reference.offset = <uint16_t> offset
                reference.code_offset = <uint16_t> code_offset
                reference.kind = field.kind
                reference.size = field.size
                reference.table = field.table
                shape.reference_count += 1
        code_offset = offset
    if size <= SHAPE_VTABLE_MAX:
        memcpy(shape.vtable, vtable, size)
        shape.vtable_size = <uint16_t> size
    return True


cdef inline uint64_t _vtable(const Walk* walk, uint64_t at) noexcept nogil:
    # Return where a table's vtable lies. A distance that leads out of the buffer, even below zero,
    # gives a number beyond its size.
    return <uint64_t> (<int64_t> at - <int32_t> load_u32(walk.data + at))


cdef inline bint _string(const Walk* walk, uint64_t at) noexcept nogil:
    # Check a length, the bytes, and the zero behind them, which the format requires.
    cdef uint64_t size
    if unlikely(at + 5 > walk.size):
        return False
    size = load_u32(walk.data + at)
    return at + 5 + size <= walk.size and walk.data[at + 4 + size] == 0


cdef struct Known:  # a vtable of this vector; a copy, because shapes get replaced
    uint64_t vtable
    uint32_t extent
    uint32_t fields_unknown


cdef inline bint _leaves(
        Walk* walk, uint64_t at, uint64_t count, uint32_t index) noexcept nogil:
    # Check a vector of tables without references: mostly the levels of a book. Their few vtables
    # (rows with and without a quantity, padded or not) are remembered by place.
    cdef const uint8_t* data = walk.data
    cdef uint64_t size = walk.size, end = at + 4 * count, unknown = 0, table, vtable
    cdef Known[VTABLE_SLOTS] knowns
    cdef Known* known = knowns
    cdef const Shape* shape
    cdef int slot
    for slot in range(VTABLE_SLOTS):
        knowns[slot].vtable = <uint64_t> 1 << 63  # no 32-bit distance leads there
    while at < end:
        table = at + load_u32(data + at)
        if unlikely(table + 4 > size):
            return False
        vtable = _vtable(walk, table)
        if vtable != known.vtable:
            known = knowns + vtable_slot(vtable)
            if vtable != known.vtable:
                shape = _shape(walk, vtable, index)
                if shape == NULL:
                    return False
                known.vtable = vtable
                known.extent = shape.extent
                known.fields_unknown = shape.fields_unknown
        if unlikely(table + known.extent > size):
            return False
        unknown += known.fields_unknown
        at += 4
    walk.fields_unknown += unknown
    return True


cdef bint _vector(
        Walk* walk, uint64_t at, const Reference* reference, int depth) noexcept nogil:
    # Check a vector of scalars, strings or tables.
    cdef uint64_t count, _
    if at + 4 > walk.size:
        return False
    count = load_u32(walk.data + at)
    at += 4
    if at + count * reference.size > walk.size:
        return False
    if reference.kind == FIELD_SCALARS:
        return True
    if reference.kind == FIELD_STRINGS:
        if count > walk.strings_left:
            return False
        walk.strings_left -= count
        for _ in range(count):
            if not _string(walk, at + load_u32(walk.data + at)):
                return False
            at += 4
        return True
    if SCHEMA_TABLES[reference.table].leaf:
        if count > walk.tables_left:
            return False
        walk.tables_left -= count
        return _leaves(walk, at, count, reference.table)
    for _ in range(count):
        if not _table(walk, at + load_u32(walk.data + at), reference.table, depth):
            return False
        at += 4
    return True


cdef bint _table(Walk* walk, uint64_t at, uint32_t index, int depth) noexcept nogil:
    # Check a table and all that it refers to. No type of the schema contains itself, so the shape
    # is not replaced while the tables below are checked.
    cdef const Shape* shape
    cdef const Reference* reference
    cdef uint64_t target
    cdef uint32_t i, code
    if unlikely(at + 4 > walk.size or walk.tables_left == 0 or depth == 0):
        return False
    walk.tables_left -= 1
    shape = _shape(walk, _vtable(walk, at), index)
    if unlikely(shape == NULL or at + shape.extent > walk.size):
        return False
    walk.fields_unknown += shape.fields_unknown
    for i in range(shape.reference_count):
        reference = &shape.reference[i]
        target = at + reference.offset
        target += load_u32(walk.data + target)
        if reference.kind == FIELD_STRING:
            if unlikely(not _string(walk, target)):
                return False
        elif reference.kind == FIELD_TABLE:
            if not _table(walk, target, reference.table, depth - 1):
                return False
        elif reference.kind == FIELD_UNION:
            code = walk.data[at + reference.code_offset] if reference.code_offset else 0
            if 0 < code < MESSAGE_COUNT and not _table(
                    walk, target, SCHEMA_MEMBERS[code], depth - 1):
                return False
        elif not _vector(walk, target, reference, depth - 1):
            return False
    return True


cdef int event_verify(
        const uint8_t* payload, uint32_t size, Shapes* shapes,
        Verification* result) noexcept nogil:
    cdef Walk walk
    cdef Table event
    if size < 8:
        return EVENT_DAMAGED
    walk.data = payload
    walk.size = size
    walk.shapes = shapes
    walk.tables_left = size >> 3
    walk.strings_left = size >> 2
    walk.fields_unknown = 0
    if not _table(&walk, load_u32(payload), TABLE_EVENT, DEPTH_MAX):
        return EVENT_DAMAGED
    event = table_at(payload + load_u32(payload))
    result.fields_unknown = walk.fields_unknown
    result.message_type = table_u8(&event, SLOT_EVENT_VALUE_TYPE)
    if 0 < result.message_type < MESSAGE_COUNT and (
            table_offset(&event, SLOT_EVENT_VALUE) == 0):
        return EVENT_DAMAGED     # it has a type, but no value
    return result.message_type


def verify(const uint8_t[::1] payload) -> tuple[int, int]:
    """Verify an event payload.

    Returns
    -------
    message_type : int
        Its union code: 0 for an event without a type, above 51 for a type of a later schema.
    fields_unknown : int
        Present fields of a later schema, which were skipped.

    Raises
    ------
    FormatError
        An offset, length or count leads out of the buffer, tables nest or repeat too much, or an
        event with a type has no value.
    """
    cdef Verification result
    cdef Shapes shapes
    cdef int code = EVENT_DAMAGED
    memset(&shapes, 0, sizeof(shapes))
    if payload.shape[0] and payload.shape[0] <= 0x7FFFFFFF:
        with nogil:
            code = event_verify(&payload[0], <uint32_t> payload.shape[0], &shapes, &result)
    if code < 0:
        raise FormatError(
            f"expected a valid FlatBuffer event, found {payload.shape[0]} bytes that are none")
    return code, result.fields_unknown


def message_type(const uint8_t[::1] payload) -> int:
    """Return the union code of an event that is not verified; -1 if it cannot be found."""
    if payload.shape[0] == 0:
        return EVENT_DAMAGED
    return event_type(&payload[0], <uint32_t> payload.shape[0])


def is_gated(message_type: int) -> bool:
    """Return whether objects of this type wait for a snapshot after a lost update."""
    return event_gated(message_type)


def is_expected(message_type: int, channel: int) -> bool:
    """Return whether messages of this type may come on this channel."""
    return event_expected(message_type, Channel(channel))
