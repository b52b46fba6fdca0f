# Names: exchanges and symbols, interned. A name is stored once, and records carry its id.
#
#   0         64                      64 + 4 * slots         + 128 * (capacity + 1)
#   +---------+-----------------------+----------------------+
#   | header  | slots: u32 ids, hashed| entries[0..capacity] |
#   +---------+-----------------------+----------------------+
#
# One writer (the loop) interns; any number of readers, also in other processes, turn ids into
# bytes. An entry is complete before `count` is stored with release, and never changes afterwards; a
# reader that loaded `count` with acquire may read entries 1..count without a lock. Only the writer
# reads the slots. Ids begin at 1, and 0 means no name. The empty name is a name.
#
# Entry 0 is no name's: it lists the ids of exchanges, the first 30, `size` of them; all other names
# are symbols. Only messages about wrong names need to know.
#
# The memory is borrowed and must be aligned to 8. A writer that attaches to used memory keeps its
# ids, so they outlive a restart of the writer.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport load_acquire
from udpfast.core.check cimport likely, unlikely
from udpfast.core.keyed cimport Key, keyed_draw, keyed_fold, keyed_word

cdef enum:
    NAME_SIZE_MAX = 120          # longer ones get no id; the origin's have at most 64 bytes
    NAMES_EXCHANGES_MAX = NAME_SIZE_MAX // 4
    NAMES_CAPACITY_MAX = 16777216
    NAMES_MAGIC = 0x73656D616E667564   # "dufnames"

cdef struct NamesHeader:  # 64 bytes
    uint64_t magic
    uint64_t capacity            # how many names fit
    uint64_t slots               # a power of two, at least 2 * capacity, which keeps probes short
    uint64_t count               # names published; stored last, with release
    Key key                      # for the hashes; drawn when the table is made
    uint64_t reserved[2]

cdef struct NameEntry:  # two cache lines; a short name touches only one
    uint32_t hash
    uint32_t size
    uint8_t text[NAME_SIZE_MAX]

cdef struct Names:  # a view of the memory; copies are cheap
    NamesHeader* header
    uint32_t* slots
    NameEntry* entries           # entries[id]; entries[0] lists exchanges
    uint64_t capacity            # as checked once: the memory may belong to another process


cdef inline uint64_t names_slots(uint64_t capacity) noexcept nogil:
    cdef uint64_t slots = 16
    while slots < 2 * capacity:
        slots <<= 1
    return slots


cdef inline uint64_t names_memory_size(uint64_t capacity) noexcept nogil:
    # Return the bytes that a table for `capacity` names takes.
    return (sizeof(NamesHeader) + 4 * names_slots(capacity)
            + (capacity + 1) * sizeof(NameEntry))


cdef inline bint names_attach(Names* names, uint8_t* memory, uint64_t size) noexcept nogil:
    # View a table that exists. Return False if the memory does not hold one of this size.
    cdef NamesHeader header
    if size < sizeof(NamesHeader):
        return False
    memcpy(&header, memory, sizeof(header))
    if header.magic != <uint64_t> NAMES_MAGIC or not (
            0 < header.capacity <= <uint64_t> NAMES_CAPACITY_MAX):
        return False
    if header.slots != names_slots(header.capacity) or size < names_memory_size(header.capacity):
        return False
    if header.count > header.capacity:
        return False
    names.header = <NamesHeader*> memory
    names.slots = <uint32_t*> (memory + sizeof(NamesHeader))
    names.entries = <NameEntry*> (memory + sizeof(NamesHeader) + 4 * header.slots)
    names.capacity = header.capacity
    return True


cdef inline bint names_init(
        Names* names, uint8_t* memory, uint64_t size, uint64_t capacity) noexcept nogil:
    # Make an empty table. Return False if the memory is too small or the capacity out of range.
    cdef NamesHeader* header = <NamesHeader*> memory
    if not 0 < capacity <= <uint64_t> NAMES_CAPACITY_MAX or size < names_memory_size(capacity):
        return False
    memset(memory, 0, names_memory_size(capacity))
    header.capacity = capacity
    header.slots = names_slots(capacity)
    keyed_draw(&header.key)
    header.magic = <uint64_t> NAMES_MAGIC
    return names_attach(names, memory, size)


cdef inline uint64_t _load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, p, 8)
    return value


cdef inline uint64_t _load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return value


cdef inline uint64_t name_tail(const uint8_t* text, uint32_t size) noexcept nogil:
    # Return the last eight bytes, or all of a shorter name.
    if size >= 8:
        return _load64(text + size - 8)
    if size >= 4:
        return _load32(text) | _load32(text + size - 4) << 32
    if size:
        return text[0] | <uint64_t> text[size >> 1] << 8 | <uint64_t> text[size - 1] << 16
    return 0


cdef inline bint name_same(const uint8_t* a, const uint8_t* b, uint32_t size) noexcept nogil:
    # Compare as memcmp does, but without a call: most names have less than 24 bytes. The last eight
    # bytes may overlap the ones before.
    cdef uint32_t at = 0
    while at + 8 < size:
        if _load64(a + at) != _load64(b + at):
            return False
        at += 8
    return name_tail(a, size) == name_tail(b, size)


cdef inline uint32_t name_hash(
        const Key* key, const uint8_t* text, uint32_t size) noexcept nogil:
    # Hash by multiplying and folding, eight bytes at a time. The last eight may overlap the ones
    # before.
    cdef uint64_t hash_ = key.mask + size
    cdef uint32_t at = 0
    while at + 8 < size:
        hash_ = keyed_fold(hash_ ^ _load64(text + at), key.factor)
        at += 8
    return <uint32_t> keyed_word(key, hash_ ^ name_tail(text, size))


# Return the id of a name that is new, or not in the slot of its hash; 0 if the table is full.
cdef uint32_t names_probe(
        Names* names, const uint8_t* text, uint32_t size, uint32_t hash_,
        bint exchange) noexcept nogil


cdef inline bint names_is(
        const Names* names, uint32_t name_id, const uint8_t* text, uint32_t size) noexcept nogil:
    # Return True if the id belongs to this name.
    cdef const NameEntry* entry = names.entries + name_id
    # An id above the count: the writer was killed before it published the name.
    return (name_id != 0 and name_id <= names.header.count and entry.size == size
            and name_same(entry.text, text, size))


cdef inline uint32_t names_intern(
        Names* names, const uint8_t* text, uint32_t size, bint exchange=False) noexcept nogil:
    # Return the id of a name, which may be new; 0 if the table is full, or if the name is longer
    # than NAME_SIZE_MAX. Long names are not cut, because all with the same beginning would be one.
    cdef uint32_t hash_, name_id
    if unlikely(size > NAME_SIZE_MAX):
        return 0
    hash_ = name_hash(&names.header.key, text, size)
    name_id = names.slots[hash_ & (<uint32_t> names.header.slots - 1)]
    return name_id if likely(names_is(names, name_id, text, size)) else names_probe(
        names, text, size, hash_, exchange)


cdef inline uint64_t names_count(const Names* names) noexcept nogil:
    # Acquire: pairs with the release in names_probe; entries are read after it.
    return min(load_acquire(&names.header.count), names.capacity)


cdef inline const uint8_t* names_get(
        const Names* names, uint32_t name_id, uint32_t* size) noexcept nogil:
    # Return a name's bytes, or NULL if no name with that id was published.
    cdef const NameEntry* entry
    if name_id == 0 or name_id > names_count(names):
        return NULL
    entry = names.entries + name_id
    size[0] = min(entry.size, <uint32_t> NAME_SIZE_MAX)
    return entry.text


cdef bint names_is_exchange(const Names* names, uint32_t name_id) noexcept nogil


cdef class NameTable:
    cdef Names names             # for nogil callers: names_intern(&table.names, ...)
    cdef object _memory          # keeps the borrowed memory alive
    cdef bint _writable
