# Side: one side of a book, in integers. Levels lie in blocks of a slab that exists from the start;
# nothing allocates.
#
#   by price   sorted, the best level at the end: a change near the top moves only a few levels
#   by place   places[0] is the best; a place may be unknown

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memmove, memset

from udpfast.core.check cimport likely, unlikely

cdef enum:
    BLOCK_LEVELS = 8  # of the smallest block; each class is twice as large as the one before
    BLOCK_CLASSES = 24
    SEEK_NEAR = 16               # levels from the best on that are compared one by one

cdef struct SideLevel:  # 24 bytes
    int64_t price
    int64_t quantity
    uint32_t orders
    uint32_t unknown             # by place: no message has said yet what is there

cdef struct LevelSlab:
    SideLevel* levels
    uint32_t count               # of all blocks together
    uint32_t used                # by blocks that were ever in use
    uint32_t free[BLOCK_CLASSES]  # per class the first free block, + 1

cdef struct Side:  # 12 bytes
    uint32_t at                  # where its block begins in the slab
    uint32_t count
    uint8_t cls                  # class of its block, + 1; 0: it has no block
    uint8_t ask
    uint8_t reserved[2]


cdef inline SideLevel* side_levels(LevelSlab* slab, const Side* side) noexcept nogil:
    return slab.levels + side.at


cdef inline uint32_t side_room(const Side* side) noexcept nogil:
    return <uint32_t>BLOCK_LEVELS << (side.cls - 1) if side.cls else 0


cdef inline void side_free(LevelSlab* slab, Side* side) noexcept nogil:
    # Free the side's block, and with it its levels.
    if side.cls:
        slab.levels[side.at].orders = slab.free[side.cls - 1]
        slab.free[side.cls - 1] = side.at + 1
    side.cls = 0
    side.count = 0


cdef inline bint side_reserve(LevelSlab* slab, Side* side, uint32_t wanted) noexcept nogil:
    # Make room for `wanted` levels. Return False if the slab is full.
    cdef uint32_t cls = side.cls
    cdef uint32_t size, at
    cdef Side old = side[0]
    if likely(wanted <= side_room(side)):
        return True
    while <uint32_t>BLOCK_LEVELS << cls < wanted:
        cls += 1
    if unlikely(cls >= BLOCK_CLASSES):
        return False
    size = <uint32_t>BLOCK_LEVELS << cls
    if slab.free[cls]:
        at = slab.free[cls] - 1
        slab.free[cls] = slab.levels[at].orders
    elif unlikely(slab.count - slab.used < size):
        return False
    else:
        at = slab.used
        slab.used += size
    memmove(slab.levels + at, slab.levels + side.at, side.count * sizeof(SideLevel))
    side_free(slab, &old)
    side.at = at
    side.cls = <uint8_t>(cls + 1)
    return True


# --- by price ------------------------------------------------------------------------------------

cdef inline uint32_t side_seek(LevelSlab* slab, const Side* side, int64_t price) noexcept nogil:
    # Return the first level that is not worse than the price. Most changes concern the best few
    # levels: these are counted four at a time, without a branch that could be mispredicted. Behind
    # them the search goes in growing steps, then by halves.
    cdef const SideLevel* levels = slab.levels + side.at
    cdef int64_t flip = -<int64_t>side.ask         # makes keys ascend towards the best
    cdef int64_t key = price ^ flip
    cdef uint32_t high = side.count, low = 0, step = 1, middle, better
    while high >= 4 and side.count - high < SEEK_NEAR:
        better = ((levels[high - 1].price ^ flip) >= key) + (
            (levels[high - 2].price ^ flip) >= key) + (
            (levels[high - 3].price ^ flip) >= key) + ((levels[high - 4].price ^ flip) >= key)
        high -= better
        if better < 4:
            return high
    while step <= high:
        if (levels[high - step].price ^ flip) < key:
            low = high - step + 1
            break
        high -= step
        step <<= 1
    while low < high:
        middle = (low + high) >> 1
        if (levels[middle].price ^ flip) < key:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint side_is_best(
        const LevelSlab* slab, const Side* side, const SideLevel* level) noexcept nogil:
    return level == slab.levels + side.at + side.count - 1


cdef inline SideLevel* side_find(LevelSlab* slab, const Side* side, int64_t price) noexcept nogil:
    # Return NULL if there is no such level.
    cdef uint32_t at = side_seek(slab, side, price)
    if at < side.count and slab.levels[side.at + at].price == price:
        return slab.levels + side.at + at
    return NULL


cdef inline SideLevel* side_put(LevelSlab* slab, Side* side, int64_t price) noexcept nogil:
    # Return the level at this price, a new one if there was none; NULL if the slab is full.
    cdef uint32_t at = side_seek(slab, side, price)
    cdef SideLevel* level
    if at < side.count and slab.levels[side.at + at].price == price:
        return slab.levels + side.at + at
    if unlikely(not side_reserve(slab, side, side.count + 1)):
        return NULL
    level = slab.levels + side.at + at
    memmove(level + 1, level, (side.count - at) * sizeof(SideLevel))
    memset(level, 0, sizeof(SideLevel))
    level.price = price
    side.count += 1
    return level


cdef inline void side_drop(LevelSlab* slab, Side* side, SideLevel* level) noexcept nogil:
    cdef uint32_t at = <uint32_t>(level - (slab.levels + side.at))
    side.count -= 1
    memmove(level, level + 1, (side.count - at) * sizeof(SideLevel))


# --- by place ------------------------------------------------------------------------------------

cdef inline bint places_unknown(LevelSlab* slab, Side* side, uint32_t depth) noexcept nogil:
    # Mark all places as unknown. Return False if the slab is full.
    cdef uint32_t i
    if not side_reserve(slab, side, depth + 1):
        return False
    side.count = depth
    for i in range(depth):
        memset(slab.levels + side.at + i, 0, sizeof(SideLevel))
        slab.levels[side.at + i].unknown = 1
    return True


cdef inline uint32_t places_missing(LevelSlab* slab, const Side* side) noexcept nogil:
    # Return how many places are unknown.
    cdef uint32_t i, missing = 0
    for i in range(side.count):
        missing += slab.levels[side.at + i].unknown
    return missing


cdef inline bint place_new(
        LevelSlab* slab, Side* side, uint32_t place, uint32_t depth,
        const SideLevel* level) noexcept nogil:
    # Insert a level. Return False if there is no such place, or no room.
    cdef SideLevel* at
    if place == 0 or place > side.count + 1 or place > depth:
        return False
    if not side_reserve(slab, side, max(side.count, depth) + 1):
        return False
    at = slab.levels + side.at + place - 1
    memmove(at + 1, at, (side.count - place + 1) * sizeof(SideLevel))
    at[0] = level[0]
    side.count = min(side.count + 1, depth)
    return True


cdef inline bint place_set(
        LevelSlab* slab, Side* side, uint32_t place, const SideLevel* level) noexcept nogil:
    # Return False if there is no such place.
    if place == 0 or place > side.count:
        return False
    slab.levels[side.at + place - 1] = level[0]
    return True


cdef inline bint place_delete(
        LevelSlab* slab, Side* side, uint32_t first, uint32_t last) noexcept nogil:
    # Remove the places `first` to `last`; those behind them move up.
    cdef SideLevel* at
    if first == 0 or first > last or last > side.count:
        return False
    at = slab.levels + side.at + first - 1
    memmove(at, slab.levels + side.at + last, (side.count - last) * sizeof(SideLevel))
    side.count -= last - first + 1
    return True
