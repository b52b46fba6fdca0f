# Orders: all resting orders of a feed, found by id. The table has a fixed size and allocates
# nothing: open addressing by a keyed hash, and lists by index. `priority` is an order's place in
# the queue of its price: lower is earlier.
#
# A slot holds the hash of its order beside the order's index. So a search skips the slots of other
# orders, and a removal moves them, without reading those orders: each would be a cache line that
# was not fetched.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word

cdef enum:
    SCOPE_NONE = 0xFFFFFFFF      # scope of an entry that is free

cdef struct RestingOrder:  # 64 bytes: a cache line
    uint64_t id                  # the venue's
    uint64_t priority
    int64_t price
    int64_t quantity
    uint32_t scope               # a stream or an instrument: ids are unique within it
    uint32_t instrument
    uint32_t next  # of the same instrument, + 1; in free entries: the next free one, + 1
    uint32_t before
    uint32_t hash                # of id and scope
    uint32_t gaps                # those of the stream when its price was said last
    uint8_t side
    uint8_t reserved[7]

cdef struct OrderSlot:
    uint32_t hash
    uint32_t order               # index of the order, + 1; 0: the slot is empty

cdef struct RestingOrders:
    RestingOrder* orders
    OrderSlot* slots             # at most half of the slots are full
    uint32_t slots_mask
    uint32_t orders_max
    uint32_t used                # entries ever used
    uint32_t free                # the first free one, + 1
    uint32_t count
    Key key


cdef inline uint32_t orders_slots(uint64_t orders_max) noexcept nogil:
    cdef uint32_t slots = 16
    while slots < 2 * orders_max:
        slots <<= 1
    return slots


cdef inline uint64_t orders_memory_size(uint64_t orders_max) noexcept nogil:
    return orders_max * sizeof(RestingOrder) + orders_slots(orders_max) * sizeof(OrderSlot)


cdef inline void orders_init(
        RestingOrders* table, uint8_t* memory, uint64_t orders_max) noexcept nogil:
    # The caller keeps `memory` alive: orders_memory_size bytes, aligned to 64. All of it is touched
    # here, so that no page fault comes later.
    memset(memory, 0, orders_memory_size(orders_max))
    memset(table, 0, sizeof(RestingOrders))
    table.orders = <RestingOrder*>memory
    table.slots = <OrderSlot*>(memory + orders_max * sizeof(RestingOrder))
    table.slots_mask = orders_slots(orders_max) - 1
    table.orders_max = <uint32_t>orders_max
    table.orders.scope = SCOPE_NONE
    keyed_draw(&table.key)


cdef inline uint32_t order_hash(
        const RestingOrders* table, uint64_t id, uint32_t scope) noexcept nogil:
    return <uint32_t>keyed_word(
        &table.key, id ^ (<uint64_t>scope * <uint64_t>0x9E3779B97F4A7C15))


cdef inline RestingOrder* order_guess(const RestingOrders* table, uint32_t hash) noexcept nogil:
    # Return the first order with this hash without reading it, or NULL. It may be another one.
    cdef uint32_t slot = hash & table.slots_mask
    while table.slots[slot].order:
        if table.slots[slot].hash == hash:
            return table.orders + table.slots[slot].order - 1
        slot = (slot + 1) & table.slots_mask
    return NULL


cdef inline RestingOrder* order_seek(
        const RestingOrders* table, uint64_t id, uint32_t scope, uint32_t hash,
        uint32_t* at) noexcept nogil:
    # Return NULL if no such order rests; `at` is the slot that it would get.
    cdef uint32_t slot = hash & table.slots_mask
    cdef RestingOrder* order
    while table.slots[slot].order:
        if table.slots[slot].hash == hash:
            order = table.orders + table.slots[slot].order - 1
            if likely(order.id == id and order.scope == scope):
                return order
        slot = (slot + 1) & table.slots_mask
    at[0] = slot
    return NULL


cdef inline RestingOrder* order_find(
        const RestingOrders* table, uint64_t id, uint32_t scope) noexcept nogil:
    # Return NULL if no such order rests.
    cdef uint32_t slot
    return order_seek(table, id, scope, order_hash(table, id, scope), &slot)


cdef inline bint order_add(
        RestingOrders* table, uint64_t id, uint32_t scope, RestingOrder** added) noexcept nogil:
    # Add an order; its other fields are zero. Return False if it already rests. `added` is NULL if
    # the table is full.
    cdef uint32_t hash = order_hash(table, id, scope)
    cdef uint32_t slot, index
    cdef RestingOrder* order
    added[0] = NULL
    if unlikely(order_seek(table, id, scope, hash, &slot) != NULL):
        return False
    if table.free:
        index = table.free - 1
        table.free = table.orders[index].next
    elif unlikely(table.used == table.orders_max):
        return True
    else:
        index = table.used
        table.used += 1
    table.slots[slot].hash = hash
    table.slots[slot].order = index + 1
    table.count += 1
    order = added[0] = table.orders + index
    memset(order, 0, sizeof(RestingOrder))
    order.id = id
    order.scope = scope
    order.hash = hash
    return True


cdef inline void order_remove(RestingOrders* table, RestingOrder* order) noexcept nogil:
    # Move later slots of the run forward, so that no slot has to be marked as deleted.
    cdef uint32_t index = <uint32_t>(order - table.orders)
    cdef uint32_t mask = table.slots_mask
    cdef uint32_t hole = order.hash & mask
    cdef uint32_t slot
    while table.slots[hole].order != index + 1:
        hole = (hole + 1) & mask
    slot = hole
    while True:
        slot = (slot + 1) & mask
        if table.slots[slot].order == 0:
            break
        if ((slot - table.slots[slot].hash) & mask) >= ((slot - hole) & mask):
            table.slots[hole] = table.slots[slot]
            hole = slot
    table.slots[hole].order = 0
    table.count -= 1
    order.scope = SCOPE_NONE
    order.next = table.free
    table.free = index + 1
