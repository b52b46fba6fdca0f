# Instrument: what is kept of one of a venue's instruments, and how far it may be believed. They lie
# in one table of fixed size, found by the venue's id.
#
# Three things are believed apart, each a Face: the levels, the single orders where they are no part
# of the levels, and the levels that are implied by other instruments.

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

cdef enum:  # Said: what readers were told of a face last
    SAID_NOTHING = 0
    SAID_LIVE = 1
    SAID_STALE = 2

cdef struct Face:
    uint8_t status               # ObjectStatus: WAITING, LIVE, STALE; LIVE behind a gap is UNKNOWN
    uint8_t said                 # Said
    uint8_t replaced             # readers need all of it: it is no change of what they have
    uint8_t begun                # it was not empty once
    uint32_t sure                # gaps of its stream when it was last sure
    uint32_t told                # the same when readers were last told so
    uint64_t held_first          # position in the store of what is held, + 1; 0: nothing
    uint64_t held_last
    uint64_t held_since          # every change behind this number is held
    uint64_t stage               # the snapshot that is being taken in parts, + 1; 0: none
    uint32_t stage_parts         # how many of them came
    uint32_t stage_place         # where is noted which, + 1
    uint64_t staged              # of a whole one that waits for its round's end: its number + 1

# Its first three cache lines are all that most changes read and write: what names it, its sides,
# and the beginnings of the first two faces.
cdef struct Instrument:  # 448 bytes
    uint64_t id
    int64_t time_ns
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t symbol_before       # that it was published by until now
    uint32_t orders_first        # index + 1
    uint32_t orders_last
    uint16_t stream              # of its changes
    uint8_t homeless             # no change of it came yet
    uint8_t named
    uint8_t decimals             # of its prices
    uint8_t measured             # else its depth or decimals are a guess
    uint8_t dirty
    uint8_t top_said
    uint8_t best_changed         # bits of sides: since the top was told, their best may have
    uint8_t open                 # its own event goes on
    uint8_t pending              # its top changed while its event went on
    uint8_t defined
    Side sides[4]
    Face face[FACES]
    int64_t top[4]               # that readers have: bid price and quantity, those of the ask
    uint64_t chain               # its last number
    uint64_t chain_taken         # of the last snapshot that was taken
    uint64_t round               # the last snapshot that named it, + 1
    uint32_t implied_id          # the exchange that implied levels go by
    uint8_t linked               # chain is known
    uint8_t passing              # the last number that it was given continued its chain
    uint8_t depth[2]             # of its own levels, of implied ones
    uint8_t deepest[2]           # that its levels were, since all of them were known
    uint8_t status[2]            # of STATUS in two parts: what each said last
    uint32_t status_since[2]     # gaps of its stream + 1 then; 0: it said nothing
    uint32_t quoted[2]           # of QUOTE: gaps of its stream + 1 when the side came last
    Side shown[4]                # what readers have of them, where that is compared
    uint64_t defined_as          # a hash of what readers were told of its definition; 0: nothing
    uint8_t unfinished           # its last number has further messages (CHAIN_PREVIOUS)
    uint8_t unstored             # the table of names had no room for its name
    uint8_t reserved[14]

cdef struct InstrumentSlot:      # as OrderSlot
    uint32_t hash
    uint32_t instrument          # its index + 1; 0: the slot is empty

cdef struct Instruments:
    Instrument* items
    InstrumentSlot* slots        # at most half are full
    uint32_t* named              # by symbol, as many: index + 1; those who gave it up do not count
    uint32_t named_count         # ever put there
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
    # The memory, instruments_memory_size bytes aligned to 64, is borrowed.
    invariant(sizeof(Instrument) == 448)     # an odd number of lines: all sets of a cache take part
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
    # The first with this hash, without a look at it; NULL: none has it.
    cdef uint32_t slot = hash & table.slots_mask
    while table.slots[slot].instrument:
        if table.slots[slot].hash == hash:
            return table.items + table.slots[slot].instrument - 1
        slot = (slot + 1) & table.slots_mask
    return NULL


cdef inline Instrument* instrument_find(const Instruments* table, uint64_t id) noexcept nogil:
    # NULL: nobody named it yet.
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
    # One that is not there yet, all else of it zeros; NULL: the table is full.
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
    # Where a symbol's search begins. Its ids are ours, one behind the other: they need no key.
    return symbol_id * <uint32_t>0x9E3779B1 & table.slots_mask


cdef inline Instrument* instrument_named(
        const Instruments* table, uint32_t symbol_id) noexcept nogil:
    # Who goes by a symbol; NULL: nobody.
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
    # It goes by a symbol from now on. Names that were given up are cleared when they are many.
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
