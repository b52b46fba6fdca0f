# Instrument: the state of one of a venue's instruments, and how far it can be trusted. All
# instruments lie in one table of fixed size, and are found by the venue's id.
#
# Up to three parts of a book are trusted separately, each a Face: the levels; the single orders, if
# levels are not sums of them; and the levels implied by other instruments.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.check cimport invariant, likely, unlikely
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word
from udpfast.market.side cimport Side

cdef enum:  # Faces
    FACE_LEVELS = 0
    FACE_ORDERS = 1
    FACE_IMPLIED = 2
    FACES = 3

cdef enum:  # Said: what readers were last told about a face
    SAID_NOTHING = 0
    SAID_LIVE = 1
    SAID_STALE = 2

cdef enum:  # Unstored: why a name that was said is in no table
    UNSTORED_ROOM = 1
    UNSTORED_LONG = 2

cdef struct Face:
    uint8_t status               # ObjectStatus: WAITING, LIVE, STALE; LIVE behind a gap is UNKNOWN
    uint8_t said                 # Said
    uint8_t replaced             # readers need the whole face: they cannot use a change of it
    uint8_t begun                # the face has held something
    uint32_t sure                # the stream's count of gaps when the face was last sure
    uint32_t told                # the same when readers were last told so
    uint64_t held_first          # position of the first held change, + 1; 0: none is held
    uint64_t held_last
    uint64_t held_since          # every change with a later number is held
    uint64_t stage               # the snapshot that is being taken in parts, + 1; 0: none
    uint32_t stage_parts         # parts that came
    uint32_t stage_place         # index of the bits that tell which came, + 1
    uint64_t staged  # number, + 1, of a complete snapshot that waits for the end of its round

# Most changes touch only the first three cache lines: ids, sides, and the beginning of the first
# two faces.
cdef struct Instrument:  # 448 bytes
    uint64_t id
    int64_t time_ns
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t symbol_before  # the name under which it was published until now; 0: it did not change
    uint32_t orders_first        # index + 1
    uint32_t orders_last
    uint16_t stream              # of its changes
    uint8_t homeless             # no change of it has come yet
    uint8_t named
    uint8_t decimals             # of its prices
    uint8_t measured             # depth and decimals are known; otherwise they are a guess
    uint8_t dirty
    uint8_t top_said
    # Bits of the sides whose best may have changed since the top was published.
    uint8_t best_changed
    uint8_t open                 # the instrument's own event goes on
    uint8_t pending              # its top changed during an event that goes on
    uint8_t defined
    Side sides[4]
    Face face[FACES]
    int64_t top[4]               # what readers have: price and quantity of the bid, then of the ask
    uint64_t chain               # its last number
    uint64_t chain_taken         # of the last snapshot that was taken
    uint64_t round               # number of the last snapshot that named it, + 1
    uint32_t implied_id          # the exchange under which implied levels are published
    uint8_t linked               # chain is known
    uint8_t passing              # the last change with a number continued the chain
    uint8_t depth[2]             # levels of a side: its own, implied
    # How deep its sides were at most since all their levels were known.
    uint8_t deepest[2]
    uint8_t status[2]            # STATUS in two parts: the last of each
    uint32_t status_since[2]     # the stream's gaps + 1 at that time; 0: that part never came
    uint32_t quoted[2]           # QUOTE: the stream's gaps + 1 when each side last came
    Side shown[4]                # the sides as readers have them, if they are compared
    uint64_t defined_as          # a hash of the definition that readers have; 0: they have none
    uint8_t unfinished           # more messages with its last number follow (CHAIN_PREVIOUS)
    uint8_t unstored             # UNSTORED_*: the table of names does not hold its name; 0: it does
    uint8_t reserved[14]

cdef struct InstrumentSlot:      # like OrderSlot
    uint32_t hash
    uint32_t instrument          # its index + 1; 0: the slot is empty

cdef struct Instruments:
    Instrument* items
    InstrumentSlot* slots        # at most half are full
    # By symbol: index + 1. Entries of instruments that lost their name are skipped.
    uint32_t* named
    uint32_t named_count         # entries ever made there
    uint32_t slots_mask
    uint32_t instruments_max
    uint32_t count
    Key key


cdef inline uint32_t instruments_slots(uint64_t instruments_max) noexcept nogil:
    cdef uint32_t slots = 16
    while slots < 2 * instruments_max:
        slots <<= 1
    return slots


cdef inline uint64_t instruments_memory_size(uint64_t instruments_max) noexcept nogil:
    return (instruments_max * sizeof(Instrument)
            + instruments_slots(instruments_max) * (sizeof(InstrumentSlot) + 4))


cdef inline void instruments_init(
        Instruments* table, uint8_t* memory, uint64_t instruments_max) noexcept nogil:
    # The caller keeps `memory` alive: instruments_memory_size bytes, aligned to 64.
    # An odd number of cache lines spreads instruments over all sets of a cache.
    invariant(sizeof(Instrument) == 448)
    memset(memory, 0, instruments_memory_size(instruments_max))
    memset(table, 0, sizeof(Instruments))
    table.items = <Instrument*>memory
    table.slots = <InstrumentSlot*>(memory + instruments_max * sizeof(Instrument))
    table.slots_mask = instruments_slots(instruments_max) - 1
    table.named = <uint32_t*>(table.slots + table.slots_mask + 1)
    table.instruments_max = <uint32_t>instruments_max
    keyed_draw(&table.key)


cdef inline uint32_t instrument_hash(const Instruments* table, uint64_t id) noexcept nogil:
    return <uint32_t>keyed_word(&table.key, id)


cdef inline Instrument* instrument_guess(const Instruments* table, uint32_t hash) noexcept nogil:
    # Return the first instrument with this hash without reading it, or NULL. It may be another one.
    cdef uint32_t slot = hash & table.slots_mask
    while table.slots[slot].instrument:
        if table.slots[slot].hash == hash:
            return table.items + table.slots[slot].instrument - 1
        slot = (slot + 1) & table.slots_mask
    return NULL


cdef inline Instrument* instrument_find(const Instruments* table, uint64_t id) noexcept nogil:
    # Return NULL if no message has named the instrument yet.
    cdef uint32_t hash = instrument_hash(table, id)
    cdef uint32_t slot = hash & table.slots_mask
    cdef Instrument* found
    while table.slots[slot].instrument:
        if table.slots[slot].hash == hash:
            found = table.items + table.slots[slot].instrument - 1
            if likely(found.id == id):
                return found
        slot = (slot + 1) & table.slots_mask
    return NULL


cdef inline Instrument* instrument_add(Instruments* table, uint64_t id) noexcept nogil:
    # Add an instrument that is not there yet; its other fields are zero. Return NULL if the table
    # is full.
    cdef uint32_t hash = instrument_hash(table, id)
    cdef uint32_t slot = hash & table.slots_mask
    cdef Instrument* made
    if unlikely(table.count == table.instruments_max):
        return NULL
    while table.slots[slot].instrument:
        slot = (slot + 1) & table.slots_mask
    made = table.items + table.count
    table.count += 1
    table.slots[slot].hash = hash
    table.slots[slot].instrument = table.count
    made.id = id
    return made


cdef inline uint32_t instrument_place(const Instruments* table, uint32_t symbol_id) noexcept nogil:
    # Return where the search for a symbol begins. Symbol ids are our own and consecutive, so they
    # need no keyed hash.
    return symbol_id * <uint32_t>0x9E3779B1 & table.slots_mask


cdef inline Instrument* instrument_named(
        const Instruments* table, uint32_t symbol_id) noexcept nogil:
    # Return the instrument that has a symbol, or NULL.
    cdef uint32_t slot = instrument_place(table, symbol_id)
    cdef Instrument* found
    while table.named[slot]:
        found = table.items + table.named[slot] - 1
        if found.symbol_id == symbol_id:
            return found
        slot = (slot + 1) & table.slots_mask
    return NULL


cdef inline void instrument_put_name(Instruments* table, const Instrument* i) noexcept nogil:
    cdef uint32_t slot = instrument_place(table, i.symbol_id)
    while table.named[slot]:
        slot = (slot + 1) & table.slots_mask
    table.named[slot] = <uint32_t>(i - table.items) + 1
    table.named_count += 1


cdef inline void instrument_name(
        Instruments* table, Instrument* i, uint32_t symbol_id) noexcept nogil:
    # Give the instrument a symbol. When the table is three quarters full, entries of lost names are
    # cleared.
    cdef uint32_t at
    i.symbol_id = symbol_id
    if unlikely(table.named_count >= table.slots_mask // 4 * 3):
        memset(table.named, 0, (<uint64_t>table.slots_mask + 1) * 4)
        table.named_count = 0
        for at in range(table.count):
            if table.items[at].symbol_id and table.items + at != i:
                instrument_put_name(table, table.items + at)
    if symbol_id:
        instrument_put_name(table, i)
