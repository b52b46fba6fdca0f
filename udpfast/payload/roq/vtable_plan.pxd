# Plans: how to read a table that has a certain vtable, worked out once and remembered.
#
# A publisher uses the same few vtables all the time. A plan says where each field of such a table
# lies and how long the table must be, so that reading the next one takes one bounds check and no
# look at the schema. Plans are found by the vtable's bytes: first the last one used, then among
# eight, beginning where a hash of the bytes says.
#
# An absent field has offset 0 and mask 0: `load & mask` reads the first bytes of the table (every
# plan requires at least 8) and gives 0 without a branch.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport likely, unlikely
from udpfast.market.update_header cimport Level
from udpfast.payload.roq.flatbuffer cimport load_f64, load_u16, load_u32, load_u64

cdef enum:
    PLAN_FIELDS = 16             # the fast types have at most 13
    PLAN_VTABLE_MAX = 44         # with room for fields of a later schema
    PLAN_WAYS = 8                # plans per type that are remembered
    HEAD_SIZE = 192              # bytes in which the first three tables begin
    HEAD_WAYS = 16
    HEAD_PATIENCE = 64           # misses before a head is replaced

cdef struct Plan:  # 256 bytes
    uint32_t extent              # bytes of the table up to the end of its last known field
    uint16_t vtable_size         # 0: nothing is remembered
    uint16_t fields_unknown      # present fields that the schema does not have
    uint16_t fields              # present fields that the schema has
    uint16_t straight            # how many fields, from the first, are adjacent numbers of 8 bytes
    uint8_t vtable[PLAN_VTABLE_MAX]
    uint16_t offset[PLAN_FIELDS]
    uint64_t mask[PLAN_FIELDS]   # of a number: all bits, or none if it is absent
    uint8_t reserved[40]

cdef struct PlanSet:  # the plans of one type
    Plan plan[PLAN_WAYS]
    uint64_t last                # index of the plan used last
    uint64_t learned             # plans ever made: shows that one was replaced

cdef struct UsualLevel:  # a level with price and quantity, or with price only; 64 bytes
    # The first 8 bytes of its vtable, with ones where they do not matter: in the table's own size,
    # and in the offset that a vtable of 6 bytes does not have. `fill` has only these ones.
    uint64_t key
    uint64_t fill
    uint64_t price               # offsets
    uint64_t quantity
    uint64_t mask[2]             # of price and quantity
    uint64_t extent              # 0: not known yet
    uint64_t reserved

cdef struct Head:  # how messages begin: root, event, source info, value; 1 KiB
    uint8_t bytes[HEAD_SIZE]
    uint8_t mask[HEAD_SIZE]      # the bytes that say where tables lie and how to read them
    uint32_t length              # of both, a multiple of 32; 0: nothing is remembered
    uint32_t reach               # how long the message must be
    uint32_t source              # places of tables; 0: absent
    uint32_t value
    uint32_t code                # of the value
    uint32_t fields_unknown
    uint32_t misses
    uint32_t reserved[25]
    Plan source_plan
    Plan value_plan

cdef struct Heads:
    Head head[HEAD_WAYS]
    uint64_t code_at             # place of the type code in the head learned last

cdef struct Plans:  # zeroed at the start; one per thread
    PlanSet event
    PlanSet source_info
    PlanSet value[3]             # of books, tops of book, trades
    UsualLevel usual[2]          # by bit 1 of the vtable's size, 8 or 6
    PlanSet level                # of all other levels
    PlanSet layer
    PlanSet trade
    Heads heads


cdef inline bint vtable_same(
        const uint8_t* a, const uint8_t* b, uint32_t size) noexcept nogil:
    # Return True if two vtables of the same size, 6 to 44, place their fields alike. The table's
    # own size, bytes 2 and 3, depends on padding and is not used. The last eight bytes compared may
    # overlap the ones before.
    cdef uint64_t difference
    if size < 12:
        return vtable_key(a, size) == vtable_key(b, size)
    difference = (load_u64(a + 4) ^ load_u64(b + 4)) | (
        load_u64(a + size - 8) ^ load_u64(b + size - 8))
    if size > 20:
        difference |= load_u64(a + 12) ^ load_u64(b + 12)
    if size > 28:
        difference |= load_u64(a + 20) ^ load_u64(b + 20)
    if size > 36:
        difference |= load_u64(a + 28) ^ load_u64(b + 28)
    return difference == 0


cdef inline uint64_t vtable_key(const uint8_t* vtable, uint32_t size) noexcept nogil:
    # Return the significant bits of a vtable with up to 3 fields; for a longer one a mixture of
    # them.
    if size >= 12:
        return load_u64(vtable + 4) ^ load_u64(vtable + size - 8) << 1
    if size >= 8:
        return load_u32(vtable + 4) | <uint64_t> load_u32(vtable + size - 4) << 32
    return load_u16(vtable + 4)


# Return the plan for a vtable, learning it if necessary. `room`: bytes from its start to the end of
# the buffer, at least 6. NULL: the vtable is not sound, or not suitable. `index` is the type's
# index in udpfast_schema_tables.
cdef const Plan* plan_search(
    PlanSet* plans, uint32_t index, const uint8_t* vtable, uint64_t room) noexcept nogil

cdef struct PlannedTable:  # where a table lies and how to read it
    const uint8_t* at
    const Plan* plan             # NULL: absent

cdef struct Beginning:  # the first tables of one message
    PlannedTable source
    PlannedTable value
    uint32_t code
    uint32_t fields_unknown

cdef extern from *:
    """
    typedef uint64_t udpfast_part __attribute__((vector_size(16), aligned(1), may_alias));
    static inline int udpfast_head_same(
        const uint8_t* a, const uint8_t* b, const uint8_t* mask, uint32_t length)
    {
        udpfast_part difference = {0, 0};
        for (uint32_t i = 0; i < length; i += 16)
            difference |= *(const udpfast_part*) (mask + i)
                & (*(const udpfast_part*) (a + i) ^ *(const udpfast_part*) (b + i));
        return (difference[0] | difference[1]) == 0;
    }
    """
    bint head_same "udpfast_head_same" (
        const uint8_t* a, const uint8_t* b, const uint8_t* mask, uint32_t length) noexcept nogil

# Walk from the root to the value: a book, a top of book or trades. Return False if a table is not
# sound, or the value is of another type. Remember how the message begins.
cdef bint head_walk(
    Plans* plans, const uint8_t* data, uint64_t size, Beginning* found) noexcept nogil


cdef inline uint32_t head_way(uint32_t code, uint32_t root) noexcept nogil:
    # Each of the three types has its own heads, and so has each root that padding causes.
    return (code << 2 & 12) | (root >> 2 & 3)


cdef inline bint head_find(
        const Plans* plans, const uint8_t* data, uint64_t size, Beginning* found) noexcept nogil:
    # As head_walk, if the message begins with the same bytes as an earlier one.
    cdef const Head* head
    if unlikely(plans.heads.code_at >= size):
        return False
    head = &plans.heads.head[head_way(data[plans.heads.code_at], load_u32(data))]
    if unlikely(head.length == 0 or head.reach > size
                or not head_same(data, head.bytes, head.mask, head.length)):
        return False
    found.source.at = data + head.source
    found.source.plan = &head.source_plan if head.source else NULL
    found.value.at = data + head.value
    found.value.plan = &head.value_plan
    found.code = head.code
    found.fields_unknown = head.fields_unknown
    return True


cdef struct Places:  # the last two vtables of unusual levels in one message
    uint64_t vtable[2]
    const Plan* plan[2]

# Return the plan of levels with the vtable at that place, and remember it, as a usual one if
# possible. Return NULL if the vtable is not sound.
cdef const Plan* place_learn(
    Places* places, Plans* plans, const uint8_t* data, uint64_t size,
    uint64_t vtable) noexcept nogil


cdef inline void places_forget(Places* places) noexcept nogil:
    places.vtable[0] = <uint64_t> 1 << 63  # no 32-bit distance leads there
    places.vtable[1] = <uint64_t> 1 << 63


cdef inline uint64_t usual_last(const UsualLevel* usual, uint64_t size) noexcept nogil:
    # Return the last place from which a usual level lies within the buffer. Return 0, where no
    # level is, if there is no such place, or no level is usual yet: a vtable of zeros would match
    # an empty key.
    cdef uint64_t extent = max(usual[0].extent, usual[1].extent)
    return size - extent if usual[0].extent and extent <= size else 0


cdef inline const Plan* plan_find(
        PlanSet* plans, uint32_t index, const uint8_t* data, uint64_t size,
        uint64_t at) noexcept nogil:
    # Return the plan of the table at `at`; NULL as plan_search, or if the table leaves the buffer.
    cdef uint64_t vtable
    cdef const Plan* plan = &plans.plan[plans.last]
    if unlikely(at + 8 > size):
        return NULL
    vtable = at - <uint64_t> <int64_t> <int32_t> load_u32(data + at)
    if unlikely(vtable > size - 6):  # also if it lies before the buffer
        return NULL
    if unlikely(
            plan.vtable_size == 0 or vtable + plan.vtable_size > size
            or load_u16(data + vtable) != plan.vtable_size
            or not vtable_same(data + vtable, plan.vtable, plan.vtable_size)):
        plan = plan_search(plans, index, data + vtable, size - vtable)
        if plan == NULL:
            return NULL
    return plan if likely(at + plan.extent <= size) else NULL


cdef inline uint32_t plan_offset(const Plan* plan, uint32_t slot) noexcept nogil:
    return plan.offset[(slot - 4) >> 1]


cdef inline uint64_t plan_u64(const Plan* plan, const uint8_t* at, uint32_t slot) noexcept nogil:
    return load_u64(at + plan_offset(plan, slot)) & plan.mask[(slot - 4) >> 1]


cdef inline uint32_t plan_u32(const Plan* plan, const uint8_t* at, uint32_t slot) noexcept nogil:
    return load_u32(at + plan_offset(plan, slot)) & <uint32_t> plan.mask[(slot - 4) >> 1]


cdef inline uint32_t plan_u16(const Plan* plan, const uint8_t* at, uint32_t slot) noexcept nogil:
    return load_u16(at + plan_offset(plan, slot)) & <uint32_t> plan.mask[(slot - 4) >> 1]


cdef inline uint32_t plan_u8(const Plan* plan, const uint8_t* at, uint32_t slot) noexcept nogil:
    return at[plan_offset(plan, slot)] & <uint32_t> plan.mask[(slot - 4) >> 1]


cdef inline double plan_f64_or_0(
        const Plan* plan, const uint8_t* at, uint32_t slot) noexcept nogil:
    cdef uint64_t bits = plan_u64(plan, at, slot)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline double plan_f64(
        const Plan* plan, const uint8_t* at, uint32_t slot, double default) noexcept nogil:
    cdef uint32_t offset = plan_offset(plan, slot)
    return load_f64(at + offset) if offset else default
