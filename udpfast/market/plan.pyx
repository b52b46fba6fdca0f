"""What plans do seldom: learning a vtable, finding one that was not the last, odd levels."""

from libc.math cimport NAN
from libc.string cimport memset

from udpfast.market.schema cimport (
    FIELD_SKIPPED,
    SCHEMA_FIELDS,
    SCHEMA_TABLES,
    SLOT_MBP_UPDATE_IMPLIED_QUANTITY,
    SLOT_MBP_UPDATE_NUMBER_OF_ORDERS,
    SLOT_MBP_UPDATE_PRICE,
    SLOT_MBP_UPDATE_PRICE_LEVEL,
    SLOT_MBP_UPDATE_QUANTITY,
    SLOT_MBP_UPDATE_UPDATE_ACTION,
    TABLE_MBP_UPDATE,
    TABLE_TOP_OF_BOOK,
    TABLE_TRADE_SUMMARY,
    SchemaField,
    SchemaTable,
)

__all__ = []

if sizeof(Plan) != 256 or sizeof(LevelPlan) != 32:
    raise ImportError(f"plans have {sizeof(Plan)} and those of levels {sizeof(LevelPlan)} bytes, "
                      "expected 256 and 32")


cdef inline uint32_t plan_field(uint32_t index, uint32_t field) noexcept nogil:
    # Where a plan keeps a field. Tops of book and trades are brought into the order of the
    # book's fields, so that one code reads what they share.
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
    else:  # all are taken: one gives way
        way = plans.learned % PLAN_WAYS
        plan = &plans.plan[way]
    plan_learn(plan, vtable, size, index)
    plans.learned += 1
    plans.last = way
    return plan


cdef inline void level_learn(
        LevelPlan* level, uint64_t key, const Plan* plan) noexcept nogil:
    level.key = key
    level.extent = plan.extent
    level.price = <uint16_t> plan_offset(plan, SLOT_MBP_UPDATE_PRICE)
    level.quantity = <uint16_t> plan_offset(plan, SLOT_MBP_UPDATE_QUANTITY)
    level.mask[0] = plan.mask[0]
    level.mask[1] = plan.mask[1]


cdef bint level_odd(
        Plans* plans, const uint8_t* data, uint64_t size, uint64_t at, Level* into,
        uint64_t* fields_unknown) noexcept nogil:
    cdef const Plan* plan = plan_find(&plans.level_odd, TABLE_MBP_UPDATE, data, size, at)
    cdef const uint8_t* table = data + at
    cdef const uint8_t* vtable
    cdef uint64_t key
    if plan == NULL:
        return False
    fields_unknown[0] += plan.fields_unknown
    into.price = plan_f64(plan, table, SLOT_MBP_UPDATE_PRICE, NAN)
    into.quantity = plan_f64_or_0(plan, table, SLOT_MBP_UPDATE_QUANTITY)
    into.implied_quantity = plan_f64_or_0(plan, table, SLOT_MBP_UPDATE_IMPLIED_QUANTITY)
    into.price_level = plan_u32(plan, table, SLOT_MBP_UPDATE_PRICE_LEVEL)
    into.number_of_orders = <uint16_t> plan_u16(plan, table, SLOT_MBP_UPDATE_NUMBER_OF_ORDERS)
    into.update_action = <uint8_t> plan_u8(plan, table, SLOT_MBP_UPDATE_UPDATE_ACTION)
    into.reserved = 0
    vtable = table - <int32_t> load_u32(table)
    if plan.vtable_size <= 8 and plan.mask[0] and vtable + 8 <= data + size:
        key = level_key(vtable)
        level_learn(&plans.level[level_way(key)], key, plan)
    return True
