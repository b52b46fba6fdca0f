# Ladder: one side of a book with all fields of its rows, the best row at the end. A strategy's book
# (book.pxd) has price and quantity only, because it is small and hot; a ladder is passed on whole.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from udpfast.market.update_header cimport Level, level_refused

cdef enum:
    LADDER_ROWS_MIN = 64
    LADDER_ROWS_MAX = 1048576    # as many as a strategy's book has; further rows are refused

cdef struct Ladder:
    Level* rows
    uint32_t count
    uint32_t capacity
    double sign                  # key = price * sign: 1 bids, -1 asks


cdef inline void ladder_free(Ladder* ladder) noexcept nogil:
    free(ladder.rows)
    ladder.rows = NULL
    ladder.count = ladder.capacity = 0


cdef inline bint ladder_reserve(Ladder* ladder, uint64_t more) noexcept nogil:
    # Make room for `more` rows, up to LADDER_ROWS_MAX in all. Return False if there is no memory.
    cdef uint64_t wanted = min(ladder.count + more, <uint64_t>LADDER_ROWS_MAX)
    cdef void* memory
    if wanted <= ladder.capacity:
        return True
    wanted = min(max(wanted, 2 * <uint64_t>ladder.capacity, <uint64_t>LADDER_ROWS_MIN),
                 <uint64_t>LADDER_ROWS_MAX)
    memory = realloc(ladder.rows, wanted * sizeof(Level))
    if memory == NULL:
        return False
    ladder.rows = <Level*>memory
    ladder.capacity = <uint32_t>wanted
    return True


cdef inline uint32_t ladder_find(const Ladder* ladder, double key) noexcept nogil:
    # Return the first row that is not worse than `key`, as book_side_find does.
    cdef uint32_t high = ladder.count, low = 0, step = 1, middle
    while step <= high:
        if ladder.rows[high - step].price * ladder.sign < key:
            low = high - step + 1
            break
        high -= step
        step <<= 1
    while low < high:
        middle = (low + high) >> 1
        if ladder.rows[middle].price * ladder.sign < key:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint ladder_set(Ladder* ladder, const Level* row) noexcept nogil:
    # Set a row, insert it, or remove it (quantity 0). Return False if it is refused
    # (level_refused), or if there is no room.
    cdef double key = row.price * ladder.sign
    cdef uint32_t at
    cdef Level* place
    if level_refused(row.price, row.quantity):
        return False
    at = ladder_find(ladder, key)
    place = ladder.rows + at
    if at < ladder.count and place.price * ladder.sign == key:
        if row.quantity != 0:
            place[0] = row[0]
            return True
        ladder.count -= 1
        memmove(place, place + 1, (ladder.count - at) * sizeof(Level))
        return True
    if row.quantity == 0:
        return True
    if ladder.count == ladder.capacity:
        return False
    memmove(place + 1, place, (ladder.count - at) * sizeof(Level))
    place[0] = row[0]
    ladder.count += 1
    return True


cdef inline bint ladder_fill(Ladder* ladder, const Level* rows, uint32_t count) noexcept nogil:
    # Copy all rows at once if they are strictly sorted from best to worst, as those of snapshots
    # are. Return False otherwise.
    cdef uint32_t i
    cdef double key
    if count > ladder.capacity:
        return False
    for i in range(count):
        key = rows[count - 1 - i].price * ladder.sign
        if i > 0 and not key > ladder.rows[i - 1].price * ladder.sign:
            return False
        if rows[count - 1 - i].quantity == 0 or level_refused(key, rows[count - 1 - i].quantity):
            return False
        ladder.rows[i] = rows[count - 1 - i]
    ladder.count = count
    return True


cdef inline bint ladder_apply(
        Ladder* ladder, const Level* rows, uint32_t count, bint snapshot) noexcept nogil:
    # Apply all rows of an update, after ladder_reserve. A snapshot replaces the rows. Return False
    # if a row was refused, so that the ladder differs from the origin's.
    cdef uint32_t i
    cdef bint sound = True
    if snapshot:
        ladder.count = 0
        if ladder_fill(ladder, rows, count):
            return True
    for i in range(count):
        sound = ladder_set(ladder, rows + i) and sound
    return sound


cdef inline uint32_t ladder_copy(
        const Ladder* ladder, uint32_t depth, Level* out) noexcept nogil:
    # Copy the best `depth` rows, or all if `depth` is 0, the best first. Return how many.
    cdef uint32_t count = ladder_depth(ladder, depth), i
    for i in range(count):
        out[i] = ladder.rows[ladder.count - 1 - i]
    return count


cdef inline uint32_t ladder_depth(const Ladder* ladder, uint32_t depth) noexcept nogil:
    return ladder.count if depth == 0 else min(ladder.count, depth)
