"""The rare part of plans: to learn a vtable, and to find a plan that was not the last one."""

from libc.string cimport memset

from udpfast.payload.roq.schema cimport *

__all__ = []

if sizeof(Plan) != 256 or sizeof(UsualLevel) != 64 or sizeof(Head) != 1024:
    raise ImportError(f"plans have {sizeof(Plan)}, usual levels {sizeof(UsualLevel)}, heads "
                      f"{sizeof(Head)} bytes; expected 256, 64, 1024")


cdef inline uint32_t plan_field(uint32_t index, uint32_t field) noexcept nogil:
    # Return the place of a field in a plan. Fields of tops of book and trades get the places that
    # they have in books, so that one code reads what the types have in common.
    cdef uint8_t[10] top_of_book = [0, 1, 2, 3, 5, 6, 7, 12, 8, 9]
    cdef uint8_t[9] trades = [0, 1, 2, 3, 6, 7, 12, 8, 9]
    if index == TABLE_TOP_OF_BOOK:
        return top_of_book[field]
    return trades[field] if index == TABLE_TRADE_SUMMARY else field


cdef inline void plan_learn(
        Plan* plan, const uint8_t* vtable, uint32_t size, uint32_t index) noexcept nogil:
    cdef const SchemaTable* schema = SCHEMA_TABLES + index
    cdef const SchemaField* field
    cdef uint32_t i, offset, fields = (size - 4) >> 1
    memset(plan, 0, sizeof(Plan))
    plan.vtable_size = <uint16_t> size
    plan.extent = 8
    memcpy(plan.vtable, vtable, size)
    for i in range(fields):
        offset = load_u16(vtable + 4 + 2 * i)
        if i >= schema.count:
            plan.fields_unknown += offset != 0
            continue
        field = SCHEMA_FIELDS + schema.first + i
        if offset and field.kind != FIELD_SKIPPED:
            plan.extent = max(plan.extent, offset + field.size)
            plan.fields += 1
            plan.offset[plan_field(index, i)] = <uint16_t> offset
            plan.mask[plan_field(index, i)] = ~<uint64_t> 0
            if plan.straight == i and field.size == 8 and (
                    i == 0 or offset == load_u16(vtable + 2 + 2 * i) + <uint32_t> 8):
                plan.straight += 1


cdef const Plan* plan_search(
        PlanSet* plans, uint32_t index, const uint8_t* vtable, uint64_t room) noexcept nogil:
    cdef uint32_t size = load_u16(vtable)
    cdef uint64_t first, way
    cdef int i
    cdef Plan* plan
    if not 6 <= size <= <uint32_t> PLAN_VTABLE_MAX or size & 1 or size > room:
        return NULL
    first = vtable_key(vtable, size) * <uint64_t> 0x9E3779B97F4A7C15 >> 61
    for i in range(PLAN_WAYS):
        way = (first + <uint64_t> i) % PLAN_WAYS
        plan = &plans.plan[way]
        if plan.vtable_size == size and vtable_same(vtable, plan.vtable, size):
            plans.last = way
            return plan
        if plan.vtable_size == 0:
            break
    # All are taken, so replace one.
    else:
        way = plans.learned % PLAN_WAYS
        plan = &plans.plan[way]
    plan_learn(plan, vtable, size, index)
    plans.learned += 1
    plans.last = way
    return plan


cdef inline void usual_learn(
        UsualLevel* usual, const Plan* plan, const uint8_t* vtable) noexcept nogil:
    usual.fill = (<uint64_t> 0x00000000FFFF0000 if plan.vtable_size == 8
                  else <uint64_t> 0xFFFF0000FFFF0000)
    usual.key = load_u64(vtable) | usual.fill
    usual.price = plan_offset(plan, SLOT_MBP_UPDATE_PRICE)
    usual.quantity = plan_offset(plan, SLOT_MBP_UPDATE_QUANTITY)
    usual.mask[0] = plan.mask[0]
    usual.mask[1] = plan.mask[1]
    usual.extent = plan.extent


cdef const Plan* place_learn(
        Places* places, Plans* plans, const uint8_t* data, uint64_t size,
        uint64_t vtable) noexcept nogil:
    cdef uint64_t learned = plans.level.learned
    cdef const Plan* plan
    if vtable > size - 6:
        return NULL
    plan = plan_search(&plans.level, TABLE_MBP_UPDATE, data + vtable, size - vtable)
    if plan == NULL:
        return NULL
    if plans.level.learned != learned:  # it may have replaced a plan in `places`
        places_forget(places)
    if plan.fields == (plan.vtable_size - 4) >> 1 <= 2 and vtable <= size - 8:
        usual_learn(&plans.usual[plan.vtable_size >> 1 & 1], plan, data + vtable)
    places.vtable[1] = places.vtable[0]
    places.plan[1] = places.plan[0]
    places.vtable[0] = vtable
    places.plan[0] = plan
    return plan


cdef inline bint head_mark(Head* head, uint64_t at, uint64_t size) noexcept nogil:
    if at + size > HEAD_SIZE:
        return False
    memset(head.mask + at, 0xFF, size)
    head.length = max(head.length, <uint32_t> (at + size + 31) & ~<uint32_t> 31)
    return True


cdef inline bint head_mark_table(
        Head* head, const Plan* plan, const uint8_t* data, uint64_t at) noexcept nogil:
    # Mark the distance to its vtable, and the vtable except for the table's size, which is not
    # used.
    cdef uint64_t vtable = at - <uint64_t> <int64_t> <int32_t> load_u32(data + at)
    head.reach = max(head.reach, <uint32_t> at + plan.extent)
    return (head_mark(head, at, 4) and head_mark(head, vtable, 2)
            and head_mark(head, vtable + 4, plan.vtable_size - 4))


cdef void head_learn(
        Heads* heads, const uint8_t* data, uint64_t size, uint64_t at, const Plan* event,
        const Beginning* found) noexcept nogil:
    cdef Head* head = &heads.head[head_way(found.code, load_u32(data))]
    cdef uint64_t code_at = at + plan_offset(event, SLOT_EVENT_VALUE_TYPE)
    cdef bint marked
    head.misses += 1
    if head.misses != 1 and head.misses % HEAD_PATIENCE:
        return
    memset(head.mask, 0, HEAD_SIZE)
    head.length = 0
    head.reach = 0
    head.source = 0
    head.value = <uint32_t> (found.value.at - data)
    head.value_plan = found.value.plan[0]
    marked = (
        head_mark(head, 0, 4) and head_mark_table(head, event, data, at)
        and head_mark(head, at + plan_offset(event, SLOT_EVENT_VALUE), 4)
        and head_mark(head, code_at, 1)
        and head_mark_table(head, found.value.plan, data, head.value))
    if marked and found.source.plan != NULL:
        head.source = <uint32_t> (found.source.at - data)
        head.source_plan = found.source.plan[0]
        marked = (head_mark(head, at + plan_offset(event, SLOT_EVENT_SOURCE_INFO), 4)
                  and head_mark_table(head, found.source.plan, data, head.source))
    if not marked or head.length > size:
        head.length = 0
        return
    head.reach = max(head.reach, head.length)
    head.code = found.code
    head.fields_unknown = found.fields_unknown
    memcpy(head.bytes, data, head.length)
    heads.code_at = code_at


cdef inline bint head_table(
        PlanSet* plans, uint32_t index, const uint8_t* data, uint64_t size, uint64_t at,
        Beginning* found, PlannedTable* table) noexcept nogil:
    table.plan = plan_find(plans, index, data, size, at)
    if table.plan == NULL:
        return False
    table.at = data + at
    found.fields_unknown += table.plan.fields_unknown
    return True


cdef inline bint head_value(
        Plans* plans, const uint8_t* data, uint64_t size, uint64_t at,
        Beginning* found) noexcept nogil:
    if found.code == MESSAGE_MARKET_BY_PRICE_UPDATE:
        return head_table(&plans.value[0], TABLE_MARKET_BY_PRICE_UPDATE, data, size, at, found,
                          &found.value)
    if found.code == MESSAGE_TOP_OF_BOOK:
        return head_table(&plans.value[1], TABLE_TOP_OF_BOOK, data, size, at, found, &found.value)
    return found.code == MESSAGE_TRADE_SUMMARY and head_table(
        &plans.value[2], TABLE_TRADE_SUMMARY, data, size, at, found, &found.value)


cdef bint head_walk(
        Plans* plans, const uint8_t* data, uint64_t size, Beginning* found) noexcept nogil:
    cdef PlannedTable event
    cdef uint64_t at = load_u32(data)
    cdef uint32_t offset
    found.fields_unknown = 0
    found.source.plan = NULL
    if not head_table(&plans.event, TABLE_EVENT, data, size, at, found, &event):
        return False
    offset = plan_offset(event.plan, SLOT_EVENT_SOURCE_INFO)
    if offset and not head_table(
            &plans.source_info, TABLE_SOURCE_INFO, data, size,
            at + offset + load_u32(event.at + offset), found, &found.source):
        return False
    found.code = plan_u8(event.plan, event.at, SLOT_EVENT_VALUE_TYPE)
    offset = plan_offset(event.plan, SLOT_EVENT_VALUE)
    if offset == 0 or not head_value(
            plans, data, size, at + offset + load_u32(event.at + offset), found):
        return False
    head_learn(&plans.heads, data, size, at, event.plan, found)
    return True
