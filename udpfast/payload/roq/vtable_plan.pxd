# Plans: how a table with these vtable bytes is read, worked out once and remembered.
#
# A publisher uses the same few vtables for ever. A plan says where each field of such a table
# lies and how far the table must reach, so that reading it again takes one bounds check and no
# look at the schema. Plans are found by the vtable's bytes: first the one that was used last, then
# among eight, from the place on that a hash of the bytes gives.
#
# An absent field has offset 0 and mask 0: `load & mask` reads the table's first bytes (every plan
# reaches over 8) and gives 0 without a branch.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport likely, unlikely
from udpfast.market.update_header cimport Level
from udpfast.payload.roq.flatbuffer cimport load_f64, load_u16, load_u32, load_u64

cdef enum:
    PLAN_FIELDS = 16             # the fast types have 13 at most
    PLAN_VTABLE_MAX = 44         # and room for those that a later schema adds
    PLAN_WAYS = 8                # plans of one type that are remembered
    HEAD_SIZE = 192              # bytes in which the first three tables begin
    HEAD_WAYS = 16
    HEAD_PATIENCE = 64           # misses before a head gives way to another

cdef struct Plan:  # 256 bytes
    uint32_t extent              # bytes of the table up to the end of its last known field
    uint16_t vtable_size         # 0 = nothing remembered
    uint16_t fields_unknown      # present fields beyond the schema
    uint16_t fields              # present fields of the schema
    uint16_t straight            # that many from the first on are numbers of 8 bytes, side by side
    uint8_t vtable[PLAN_VTABLE_MAX]
    uint16_t offset[PLAN_FIELDS]
    uint64_t mask[PLAN_FIELDS]   # of a number: all bits, or none if it is absent
    uint8_t reserved[40]

cdef struct PlanSet:  # of one type
    Plan plan[PLAN_WAYS]
    uint64_t last                # index of the plan used last
    uint64_t learned             # changes when a plan gives way to another

cdef struct UsualLevel:  # a level with a price and a quantity, or with a price alone; 64 bytes
    uint64_t key                 # first 8 bytes of its vtable, with ones where they do not matter:
    uint64_t fill                # ones there, for the table's own size and an offset that is none
    uint64_t price               # offsets
    uint64_t quantity
    uint64_t mask[2]             # of price and quantity
    uint64_t extent              # 0 = not known yet
    uint64_t reserved

cdef struct Head:  # how messages begin: root, event, source info, value; 1 KiB
    uint8_t bytes[HEAD_SIZE]
    uint8_t mask[HEAD_SIZE]      # of those that say where a table lies and how it is read
    uint32_t length              # of both, a multiple of 32; 0 = nothing remembered
    uint32_t reach               # bytes that the tables need
    uint32_t source              # places; 0 = absent
    uint32_t value
    uint32_t code                # of the value
    uint32_t fields_unknown
    uint32_t misses
    uint32_t reserved[25]
    Plan source_plan
    Plan value_plan

cdef struct Heads:
    Head head[HEAD_WAYS]
    uint64_t code_at             # where the head learned last has its code

cdef struct Plans:  # zeroed at start; one per thread
    PlanSet event
    PlanSet source_info
    PlanSet value[3]             # of books, tops of book, trades
    UsualLevel usual[2]          # by bit 1 of the vtable's size, 8 or 6: usual in this feed
    PlanSet level                # of all others
    PlanSet layer
    PlanSet trade
    Heads heads


cdef inline bint vtable_same(
        const uint8_t* a, const uint8_t* b, uint32_t size) noexcept nogil:
    # Whether two vtables of one size, 6 to 44, place their fields alike. The table's own size,
    # bytes 2 and 3, differs with padding and is not used. Tails overlap.
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
    # All bits that say something, of a vtable with up to 3 fields; of a longer one, a mixture.
    if size >= 12:
        return load_u64(vtable + 4) ^ load_u64(vtable + size - 8) << 1
    if size >= 8:
        return load_u32(vtable + 4) | <uint64_t> load_u32(vtable + size - 4) << 32
    return load_u16(vtable + 4)


# The plan of a vtable with that many bytes behind its start, 6 or more; NULL if it is not sound,
# or is none for a plan. `index` is of udpfast_schema_tables.
cdef const Plan* plan_search(
    PlanSet* plans, uint32_t index, const uint8_t* vtable, uint64_t room) noexcept nogil

cdef struct PlannedTable:  # where it lies and how it is read
    const uint8_t* at
    const Plan* plan             # NULL = absent

cdef struct Beginning:  # of one message
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

# Walk from the root to the value, a book, a top of book or trades; False if one of the tables is
# not sound, or it is another value. Remembers how the message begins.
cdef bint head_walk(
    Plans* plans, const uint8_t* data, uint64_t size, Beginning* found) noexcept nogil


cdef inline uint32_t head_way(uint32_t code, uint32_t root) noexcept nogil:
    # The three values go different ways, and so do the roots that padding makes.
    return (code << 2 & 12) | (root >> 2 & 3)


cdef inline bint head_find(
        const Plans* plans, const uint8_t* data, uint64_t size, Beginning* found) noexcept nogil:
    # As head_walk, if the message begins as one before did: the same bytes say the same again.
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


cdef struct Places:  # the vtables of unusual levels in one message, the two that came last
    uint64_t vtable[2]
    const Plan* plan[2]

# The plan of levels with the vtable at that place, and remember it, as usual if it may be so; NULL
# if it is not sound.
cdef const Plan* place_learn(
    Places* places, Plans* plans, const uint8_t* data, uint64_t size,
    uint64_t vtable) noexcept nogil


cdef inline void places_forget(Places* places) noexcept nogil:
    places.vtable[0] = <uint64_t> 1 << 63  # where no 32-bit distance leads
    places.vtable[1] = <uint64_t> 1 << 63


cdef inline uint64_t usual_last(const UsualLevel* usual, uint64_t size) noexcept nogil:
    # The last place from which every usual level lies within the buffer; 0, where none is, if
    # there is no such place, or none is usual yet: a vtable of zeros would fit what is not known.
    cdef uint64_t extent = max(usual[0].extent, usual[1].extent)
    return size - extent if usual[0].extent and extent <= size else 0


cdef inline const Plan* plan_find(
        PlanSet* plans, uint32_t index, const uint8_t* data, uint64_t size,
        uint64_t at) noexcept nogil:
    # The plan of the table at `at`, which it fits; NULL as plan_search.
    cdef uint64_t vtable
    cdef const Plan* plan = &plans.plan[plans.last]
    if unlikely(at + 8 > size):
        return NULL
    vtable = at - <uint64_t> <int64_t> <int32_t> load_u32(data + at)
    if unlikely(vtable > size - 6):  # also when it lies before the buffer
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
