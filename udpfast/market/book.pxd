# A book of price levels. Each side is a sorted array with the best level at the end.
#
#   bids   99.8  99.9  100.0          <- levels come and go here: a change near the top
#   asks  100.3 100.2  100.1             moves only a few levels
#
# A level's key is its price (bids) or its negated price (asks), so that both sides ascend towards
# the best and share one code. Negation is exact. Nothing here allocates: the owner provides room
# (OrderBook.reserve, for as many levels as book_room says) before it applies an update.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memmove

from udpfast.core.check cimport unlikely
from udpfast.core.layout cimport RECORD_SNAPSHOT
from udpfast.market.update_header cimport Level, PRESENT_MORE, level_refused
from udpfast.market.updates cimport Book

cdef enum:
    BOOK_MALFORMED = -1          # the payload is shorter than its counts say
    UPDATE_TYPE_SNAPSHOT = 1     # the schema's UpdateType
    UPDATE_TYPE_STALE = 3

cdef struct PriceLevel:
    double key
    double quantity

cdef struct BookSide:
    PriceLevel* levels
    uint32_t count
    uint32_t capacity
    double sign                  # key = price * sign: 1 bids, -1 asks

cdef struct PriceBook:
    BookSide bids
    BookSide asks
    uint64_t removals_unknown    # removals of levels that did not exist
    uint64_t levels_refused      # level_refused, or beyond the capacity
    bint stale
    bint partial                 # the event of the last update goes on in the next one


cdef inline bint update_replaces(uint16_t flags, uint8_t update_type) noexcept nogil:
    # Return True if an update replaces all that was known of its object. Whoever keeps, exports or
    # shows updates uses this rule: the record is flagged as a snapshot (as all of the snapshot
    # channel are), or the update itself says so.
    return (flags & RECORD_SNAPSHOT) != 0 or update_type == UPDATE_TYPE_SNAPSHOT


cdef inline uint32_t book_side_find(const BookSide* side, double key) noexcept nogil:
    # Return the first level that is not worse than `key`. Search from the top in steps of 1, 2, 4,
    # ..., then by halves, because most updates are near the top.
    cdef uint32_t high = side.count, low = 0, step = 1, middle
    while step <= high:
        if side.levels[high - step].key < key:
            low = high - step + 1
            break
        high -= step
        step <<= 1
    while low < high:
        middle = (low + high) >> 1
        if side.levels[middle].key < key:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline void book_side_set(
        PriceBook* book, BookSide* side, double price, double quantity) noexcept nogil:
    # Set a level, insert it, or remove it (quantity 0).
    cdef double key = price * side.sign
    cdef uint32_t at
    cdef PriceLevel* level
    if unlikely(level_refused(price, quantity)):
        book.levels_refused += 1
        return
    at = book_side_find(side, key)
    level = side.levels + at
    if at < side.count and level.key == key:
        if quantity != 0:
            level.quantity = quantity
            return
        side.count -= 1
        memmove(level, level + 1, (side.count - at) * sizeof(PriceLevel))
    elif quantity == 0:
        book.removals_unknown += 1
    elif unlikely(side.count == side.capacity):
        book.levels_refused += 1
    else:
        memmove(level + 1, level, (side.count - at) * sizeof(PriceLevel))
        level.key = key
        level.quantity = quantity
        side.count += 1


cdef inline bint book_side_fill(
        BookSide* side, const Level* rows, uint32_t count) noexcept nogil:
    # Copy a whole side at once if its rows are strictly sorted from best to worst, as those of
    # snapshots are. Return False otherwise.
    cdef uint32_t i
    cdef double key
    if count > side.capacity:
        return False
    for i in range(count):
        key = rows[count - 1 - i].price * side.sign
        if not (i == 0 or key > side.levels[i - 1].key):
            return False
        if rows[count - 1 - i].quantity == 0 or level_refused(key, rows[count - 1 - i].quantity):
            return False
        side.levels[i].key = key
        side.levels[i].quantity = rows[count - 1 - i].quantity
    side.count = count
    return True


cdef inline void book_side_apply(
        PriceBook* book, BookSide* side, const Level* rows, uint32_t count,
        bint snapshot) noexcept nogil:
    cdef uint32_t i
    if snapshot:
        side.count = 0
        if book_side_fill(side, rows, count):
            return
    for i in range(count):
        book_side_set(book, side, rows[i].price, rows[i].quantity)


cdef inline int64_t book_room(const uint8_t* payload, uint64_t size) noexcept nogil:
    # Return by how many levels this payload can lengthen a side at most, or BOOK_MALFORMED if it is
    # too short.
    cdef const Book* update = <const Book*> payload
    if size < sizeof(Book):
        return BOOK_MALFORMED
    if size < sizeof(Book) + (<uint64_t> update.bid_count + update.ask_count) * sizeof(Level):
        return BOOK_MALFORMED
    return max(update.bid_count, update.ask_count)


cdef inline void book_apply(
        PriceBook* book, const uint8_t* payload, bint snapshot) noexcept nogil:
    # Apply a BOOK payload that book_room accepted. A snapshot replaces both sides; a side without
    # rows becomes empty. Any other update leaves a side without rows as it is. A refused level
    # makes the book stale.
    cdef const Book* update = <const Book*> payload
    cdef const Level* rows = <const Level*> (payload + sizeof(Book))
    cdef uint64_t refused = book.levels_refused
    snapshot = snapshot or update_replaces(0, update.header.update_type)
    book_side_apply(book, &book.bids, rows, update.bid_count, snapshot)
    book_side_apply(book, &book.asks, rows + update.bid_count, update.ask_count, snapshot)
    book.partial = (update.header.present & PRESENT_MORE) != 0
    if snapshot:
        book.stale = False
    elif update.header.update_type == UPDATE_TYPE_STALE:
        book.stale = True
    if unlikely(book.levels_refused != refused):
        # The book differs from the origin's.
        book.stale = True


cdef inline double book_side_price(const BookSide* side, uint32_t rank) noexcept nogil:
    # `rank` 0 is the best level; it must be below `count`.
    return side.levels[side.count - 1 - rank].key * side.sign


cdef inline double book_side_quantity(const BookSide* side, uint32_t rank) noexcept nogil:
    return side.levels[side.count - 1 - rank].quantity


cdef class OrderBook:
    cdef PriceBook book          # for nogil callers: book_apply(&order_book.book, ...)
    cdef readonly uint32_t levels_max
    cdef object _levels(self, const BookSide* side, object count)
    cdef int reserve(self, uint64_t more) noexcept nogil
    cdef void swap(self, OrderBook other) noexcept
