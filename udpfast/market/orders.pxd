# Orders: every resting order of a feed, by id. One table of fixed size: open addressing by a keyed
# hash, and lists by index; nothing allocates. An order's place in the queue of its price is its
# `priority`: lower is earlier.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word

cdef struct RestingOrder:  # 56 bytes
    uint64_t id                  # the venue's
    uint64_t priority
    int64_t price
    int64_t quantity
    uint32_t scope               # within which its id is one: a stream or an instrument
    uint32_t instrument
    uint32_t next                # of the same instrument, + 1; free ones: the next free one, + 1
    uint32_t before
    uint8_t side
    uint8_t reserved[7]

cdef struct RestingOrders:
    RestingOrder* orders
    uint32_t* slots              # an order's index + 1; at most half are full
    uint32_t slots_mask
    uint32_t orders_max
    uint32_t used                # ever handed out
    uint32_t free                # the first free one, + 1
    uint32_t count
    Key key


cdef inline uint32_t orders_slots(uint64_t orders_max) noexcept nogil:
    cdef uint32_t slots = 16
    while slots < 2 * orders_max:
        slots <<= 1
    return slots


cdef inline uint64_t orders_memory_size(uint64_t orders_max) noexcept nogil:
    return orders_max * sizeof(RestingOrder) + <uint64_t>orders_slots(orders_max) * 4


cdef inline void orders_init(
        RestingOrders* table, uint8_t* memory, uint64_t orders_max) noexcept nogil:
    # The memory, orders_memory_size bytes aligned to 8, is borrowed, and touched once.
    memset(memory, 0, orders_memory_size(orders_max))
    memset(table, 0, sizeof(RestingOrders))
    table.orders = <RestingOrder*>memory
    table.slots = <uint32_t*>(memory + orders_max * sizeof(RestingOrder))
    table.slots_mask = orders_slots(orders_max) - 1
    table.orders_max = <uint32_t>orders_max
    keyed_draw(&table.key)


cdef inline uint32_t order_home(
        const RestingOrders* table, uint64_t id, uint32_t scope) noexcept nogil:
    return <uint32_t>keyed_word(
        &table.key, id ^ (<uint64_t>scope * <uint64_t>0x9E3779B97F4A7C15)) & table.slots_mask


cdef inline RestingOrder* order_find(
        const RestingOrders* table, uint64_t id, uint32_t scope) noexcept nogil:
    # NULL: no such order rests.
    cdef uint32_t slot = order_home(table, id, scope)
    cdef RestingOrder* order
    while table.slots[slot]:
        order = table.orders + table.slots[slot] - 1
        if likely(order.id == id and order.scope == scope):
            return order
        slot = (slot + 1) & table.slots_mask
    return NULL


cdef inline RestingOrder* order_add(
        RestingOrders* table, uint64_t id, uint32_t scope) noexcept nogil:
    # One that is not there yet, all else of it zeros; NULL: the table is full.
    cdef uint32_t slot = order_home(table, id, scope)
    cdef uint32_t index
    cdef RestingOrder* order
    if table.free:
        index = table.free - 1
        table.free = table.orders[index].next
    elif unlikely(table.used == table.orders_max):
        return NULL
    else:
        index = table.used
        table.used += 1
    while table.slots[slot]:
        slot = (slot + 1) & table.slots_mask
    table.slots[slot] = index + 1
    table.count += 1
    order = table.orders + index
    memset(order, 0, sizeof(RestingOrder))
    order.id = id
    order.scope = scope
    return order


cdef inline void order_remove(RestingOrders* table, RestingOrder* order) noexcept nogil:
    # Those behind it in its run of slots move up, so that no slot has to be marked.
    cdef uint32_t index = <uint32_t>(order - table.orders)
    cdef uint32_t hole = order_home(table, order.id, order.scope)
    cdef uint32_t slot, home
    while table.slots[hole] != index + 1:
        hole = (hole + 1) & table.slots_mask
    slot = hole
    while True:
        slot = (slot + 1) & table.slots_mask
        if table.slots[slot] == 0:
            break
        home = order_home(table, table.orders[table.slots[slot] - 1].id,
                          table.orders[table.slots[slot] - 1].scope)
        if ((slot - home) & table.slots_mask) >= ((slot - hole) & table.slots_mask):
            table.slots[hole] = table.slots[slot]
            hole = slot
    table.slots[hole] = 0
    table.count -= 1
    order.next = table.free
    table.free = index + 1
