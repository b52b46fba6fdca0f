# What the next records of a batch will ask for, fetched before their turn. Where books are many, an
# update waits for one line of memory after the other: the slot of its object, the object, the book,
# its best levels. Each is asked for some records later.
#
# Nothing here changes or promises anything: a wrong guess costs the fetch of a line.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.batch cimport BatchMemory
from udpfast.client.books cimport Track
from udpfast.core.atomics cimport prefetch_read, prefetch_write
from udpfast.core.layout cimport RECORD_SIZE, Record
from udpfast.core.update_kinds cimport KIND_BOOK
from udpfast.market.book cimport BookSide, OrderBook
from udpfast.market.doubt cimport Doubts, doubt_key, doubt_tag, doubts_hash
from udpfast.market.update_header cimport UpdateHeader

cdef extern from "Python.h":
    # As it is: without a count of who has it, which lies in the line that is to be fetched.
    PyObject* list_item "PyList_GET_ITEM" (object items, Py_ssize_t index) noexcept

cdef enum:
    BOOKS_AHEAD = 8              # records that are looked at before their turn
    BOOKS_AHEAD_STEP = 2         # records from one fetch to the next
    BOOKS_AHEAD_RING = 16
    BOOKS_AHEAD_MANY = 512       # objects: what fewer need, caches have

cdef struct BooksAhead:
    # The hash of the object of each record, by its index, and a bit above it; 0: it has no book.
    uint64_t hashes[BOOKS_AHEAD_RING]


cdef inline void books_ahead_slot(
        const Doubts* doubts, BooksAhead* ahead, int64_t i, const Record* header,
        const uint8_t* payload) noexcept:
    cdef const UpdateHeader* update = <const UpdateHeader*> payload
    cdef uint32_t hash_
    if header.kind != KIND_BOOK or header.length < <int64_t> (RECORD_SIZE + sizeof(UpdateHeader)):
        return
    hash_ = doubts_hash(
        doubts, doubt_key(header), doubt_tag(update.exchange_id, update.symbol_id))
    ahead.hashes[i & BOOKS_AHEAD_RING - 1] = <uint64_t> 1 << 32 | hash_
    prefetch_read(doubts.slots + (hash_ & doubts.slots_mask))


cdef inline Track* books_ahead_guess(
        const Doubts* doubts, const BooksAhead* ahead, int64_t i) noexcept:
    # The first object at the place of the one of a record; NULL: there is none.
    cdef uint64_t hash_ = ahead.hashes[i & BOOKS_AHEAD_RING - 1]
    cdef uint32_t slot = doubts.slots[<uint32_t> hash_ & doubts.slots_mask] if hash_ else 0
    return <Track*> (doubts.objects + slot - 1) if slot else NULL


cdef inline PyObject* books_ahead_book(list books, const Track* track) noexcept:
    # NULL: it has none.
    if track == NULL or not 0 <= track.book < len(books):
        return NULL
    return list_item(books, track.book)


cdef inline void books_ahead_levels(const BookSide* side) noexcept:
    # The best ones, and the place of one more.
    prefetch_write(side.levels + side.count)
    if side.count >= 4:
        prefetch_write(side.levels + side.count - 4)


cdef inline void books_expect(
        const Doubts* doubts, list books, BatchMemory memory, BooksAhead* ahead, int64_t i,
        int64_t end) noexcept:
    # Before each record of a run up to `end`: record i is the one BOOKS_AHEAD behind it.
    cdef Track* track = books_ahead_guess(doubts, ahead, i - BOOKS_AHEAD_STEP)
    cdef PyObject* book
    ahead.hashes[i & BOOKS_AHEAD_RING - 1] = 0
    if i < end:
        books_ahead_slot(
            doubts, ahead, i, memory.headers + i, memory.payloads + memory.offsets[i])
    if track != NULL:
        prefetch_write(track)
    book = books_ahead_book(books, books_ahead_guess(doubts, ahead, i - 2 * BOOKS_AHEAD_STEP))
    if book != NULL:
        prefetch_write(book)
        prefetch_write(<uint8_t*> book + 64)
    book = books_ahead_book(books, books_ahead_guess(doubts, ahead, i - 3 * BOOKS_AHEAD_STEP))
    if book != NULL:
        books_ahead_levels(&(<OrderBook> book).book.bids)
        books_ahead_levels(&(<OrderBook> book).book.asks)
