# The resting orders of one instrument, built from ORDERS updates: the payload of a complete update,
# and a table that finds the row of an order by its id. The rows are not sorted, because each has
# its priority.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from udpfast.core.keyed cimport Key, keyed_word
from udpfast.market.updates cimport SIZE_ORDER_ID, Order

cdef enum:
    KEPT_ORDERS_MAX = 1048576    # per instrument: 64 MiB of rows
    KEPT_NEW = 1                 # the schema's UpdateAction
    KEPT_DELETE = 3

cdef struct OrderTable:
    uint32_t* slots              # index of a row, + 1, by the hash of its id
    uint32_t mask
    # How many rows the table knows; if this differs from the payload's, it is rebuilt.
    uint32_t count


cdef inline uint32_t order_hash(const Key* key, const Order* row) noexcept nogil:
    cdef uint64_t words[5]
    cdef uint64_t found = 0
    cdef int i
    words[4] = 0
    memcpy(words, row.order_id, SIZE_ORDER_ID)
    for i in range(5):
        found = keyed_word(key, found ^ words[i])
    return <uint32_t>found


cdef inline uint32_t* order_slot(
        const OrderTable* table, const Key* key, const Order* rows,
        const Order* row) noexcept nogil:
    # Return the slot of a row, or the one where it would go.
    cdef uint32_t place = order_hash(key, row) & table.mask
    while table.slots[place] and memcmp(
            rows[table.slots[place] - 1].order_id, row.order_id, SIZE_ORDER_ID):
        place = (place + 1) & table.mask
    return &table.slots[place]


cdef inline bint orders_index(
        OrderTable* table, const Key* key, const Order* rows, uint32_t count,
        uint64_t room) noexcept nogil:
    # Index these rows, with slots for `room` rows. Return False if there is no memory.
    cdef uint64_t slots = 16
    cdef uint32_t i
    cdef void* memory
    if table.slots != NULL and table.count == count and 2 * room <= <uint64_t>table.mask + 1:
        return True
    while slots < 2 * room:
        slots <<= 1
    if table.slots == NULL or slots > <uint64_t>table.mask + 1:
        memory = calloc(slots, sizeof(uint32_t))
        if memory == NULL:
            return False
        free(table.slots)
        table.slots = <uint32_t*>memory
        table.mask = <uint32_t>(slots - 1)
    else:
        memset(table.slots, 0, (<uint64_t>table.mask + 1) * sizeof(uint32_t))
    for i in range(count):
        order_slot(table, key, rows, &rows[i])[0] = i + 1
    table.count = count
    return True


cdef inline void order_put(
        OrderTable* table, const Key* key, Order* rows, const Order* row) noexcept nogil:
    cdef uint32_t* slot = order_slot(table, key, rows, row)
    if slot[0] == 0:
        slot[0] = table.count + 1
        table.count += 1
    rows[slot[0] - 1] = row[0]
    rows[slot[0] - 1].action = KEPT_NEW
    rows[slot[0] - 1].reason = 0     # of what changed it last


cdef inline void order_drop(
        OrderTable* table, const Key* key, Order* rows, const Order* row) noexcept nogil:
    # Move the last row to the freed place, and later slots of the run forward, so that searches
    # still find them.
    cdef uint32_t* slot = order_slot(table, key, rows, row)
    cdef uint32_t hole, place, home
    cdef uint32_t at = slot[0]
    if at == 0:
        return
    if at != table.count:
        order_slot(table, key, rows, &rows[table.count - 1])[0] = at
        rows[at - 1] = rows[table.count - 1]
    hole = place = <uint32_t>(slot - table.slots)
    while True:
        place = (place + 1) & table.mask
        if table.slots[place] == 0:
            break
        home = order_hash(key, &rows[table.slots[place] - 1]) & table.mask
        if ((place - home) & table.mask) >= ((place - hole) & table.mask):
            table.slots[hole] = table.slots[place]
            hole = place
    table.slots[hole] = 0
    table.count -= 1
