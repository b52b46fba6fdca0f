# Held: which objects wait until a short line has room for them, and which levels of their books
# have changed since the far end was told. Of a level the newest state is kept and nothing else.
#
#   queues (an object is in one of them at most; the oldest first):
#     HELD_TOPS      tops of book
#     HELD_LEVELS    books: the levels that changed, or all if those are too many
#     HELD_WHOLE     books that the far end does not know, or not to be sound
#
# An object that is no longer held stays in its queue until its turn. One that is in doubt here
# leaves the queue at its turn, and stays held: if nothing of it was lost it is sent then, and
# forgotten if something was.

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from udpfast.market.update_header cimport Level

cdef enum:
    HELD_NONE = 0
    HELD_TOPS = 1
    HELD_LEVELS = 2
    HELD_WHOLE = 3
    HELD_QUEUES = 4
    HELD_LEVELS_MAX = 64         # of one side: of a book that changed more, all is sent
    HELD_BOOKS = 1024            # 4 kB each: of further books all is sent

cdef struct HeldLevels:
    uint32_t next                # free one, index + 1
    uint32_t bid_count
    uint32_t ask_count
    uint32_t reserved
    Level bids[HELD_LEVELS_MAX]
    Level asks[HELD_LEVELS_MAX]

cdef struct HeldObject:
    int64_t since_ns             # when the first of its updates was held
    uint32_t updates             # of which nothing was said yet
    uint32_t next                # in its queue, index + 1
    uint32_t levels              # HeldLevels, index + 1; 0: none
    uint8_t queue
    uint8_t waits                # it is held
    uint8_t whole                # all of it is to be said
    uint8_t reserved

cdef struct Held:
    HeldObject* objects          # by index of the state's value
    uint32_t room
    uint32_t free                # of books that were used, index + 1
    uint32_t used                # books that were ever used: the others cost no memory yet
    HeldLevels* books            # HELD_BOOKS of them
    uint32_t heads[HELD_QUEUES]  # index + 1
    uint32_t tails[HELD_QUEUES]


cdef inline bint held_init(Held* held) noexcept nogil:
    held.books = <HeldLevels*>calloc(HELD_BOOKS, sizeof(HeldLevels))
    held_reset(held)
    return held.books != NULL


cdef inline void held_free(Held* held) noexcept nogil:
    free(held.books)
    free(held.objects)
    held.books = NULL
    held.objects = NULL


cdef inline bint held_reserve(Held* held, uint32_t room) noexcept nogil:
    # False: out of memory.
    cdef void* memory
    if room <= held.room:
        return True
    memory = realloc(held.objects, room * sizeof(HeldObject))
    if memory == NULL:
        return False
    held.objects = <HeldObject*>memory
    memset(held.objects + held.room, 0, (room - held.room) * sizeof(HeldObject))
    held.room = room
    return True


cdef inline void held_reset(Held* held) noexcept nogil:
    # Nothing is held: the objects are forgotten.
    cdef int i
    for i in range(HELD_QUEUES):
        held.heads[i] = held.tails[i] = 0
    if held.objects != NULL:
        memset(held.objects, 0, held.room * sizeof(HeldObject))
    held.free = held.used = 0


cdef inline void held_push(Held* held, uint32_t index, int queue) noexcept nogil:
    cdef HeldObject* object = held.objects + index
    object.queue = <uint8_t>queue
    object.next = 0
    if held.tails[queue]:
        held.objects[held.tails[queue] - 1].next = index + 1
    else:
        held.heads[queue] = index + 1
    held.tails[queue] = index + 1


cdef inline uint32_t held_pop(Held* held, int queue) noexcept nogil:
    # The queue is not empty.
    cdef uint32_t index = held.heads[queue] - 1
    cdef HeldObject* object = held.objects + index
    held.heads[queue] = object.next
    if object.next == 0:
        held.tails[queue] = 0
    object.queue = HELD_NONE
    object.next = 0
    return index


cdef inline void held_let_go(Held* held, HeldObject* object) noexcept nogil:
    # It is no longer held.
    if object.levels:
        held.books[object.levels - 1].next = held.free
        held.free = object.levels
    object.levels = object.updates = 0
    object.waits = object.whole = False
    object.since_ns = 0


cdef inline void held_all(Held* held, HeldObject* object) noexcept nogil:
    # All of it is to be said.
    if object.levels:
        held.books[object.levels - 1].next = held.free
        held.free = object.levels
        object.levels = 0
    object.whole = True


cdef inline void held_set(
        Held* held, HeldObject* object, const Level* bids, uint32_t bid_count, const Level* asks,
        uint32_t ask_count) noexcept nogil:
    # So many levels of it have changed.
    cdef HeldLevels* levels
    if object.whole:
        return
    if object.levels == 0:
        if held.free:
            object.levels = held.free
            held.free = held.books[object.levels - 1].next
        elif held.used < HELD_BOOKS:
            held.used += 1
            object.levels = held.used
        else:
            held_all(held, object)
            return
        levels = held.books + object.levels - 1
        levels.next = levels.bid_count = levels.ask_count = 0
    levels = held.books + object.levels - 1
    if not (held_set_side(levels.bids, &levels.bid_count, bids, bid_count)
            and held_set_side(levels.asks, &levels.ask_count, asks, ask_count)):
        held_all(held, object)


cdef inline bint held_set_side(
        Level* held, uint32_t* count, const Level* rows, uint32_t rows_count) noexcept nogil:
    cdef uint32_t i, at
    for i in range(rows_count):
        at = 0
        while at < count[0] and held[at].price != rows[i].price:
            at += 1
        if at == HELD_LEVELS_MAX:
            return False
        held[at] = rows[i]
        count[0] = max(count[0], at + 1)
    return True
