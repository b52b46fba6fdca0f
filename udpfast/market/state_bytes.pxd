# A state as bytes. There are two forms:
#
#   an entry    one object with all its values, which an image holds; entry_read takes it in again
#   records     the whole state for a late joiner: SESSION, CONNECTION, then, object by object, its
#               values, flagged SNAPSHOT, and what the feed says of it
#
#     0            64                  152
#     +------------+-------------------+---------+-------------------+---------+ ...
#     | StateEntry | StateEntryValue   | payload | StateEntryValue   | payload |
#     +------------+-------------------+---------+-------------------+---------+ ...
#
# Payloads are padded to 8 bytes. Entries may come from another process: entry_read checks every
# number.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.market.doubt cimport Doubt, Heard
from udpfast.market.state cimport State, StateMark, StateSession

# The first entry: what concerns no single object. StateStream[streams] follow.
cdef packed struct StateHead:
    StateMark mark
    uint32_t objects
    uint32_t streams

cdef packed struct StateStream:
    Heard heard
    StateSession session

cdef packed struct StateEntry:   # 64 bytes; fields as in StateObject
    Doubt doubt
    uint64_t until
    uint64_t index
    uint64_t applied
    uint32_t generation          # StateMark.generation of its session
    uint32_t values              # how many follow
    uint16_t session
    uint8_t unkept
    uint8_t waits
    uint8_t reserved[4]

cdef packed struct StateEntryValue:  # 88 bytes; fields as in StateValue
    uint64_t tag
    uint64_t reserved2
    uint32_t size                # of the payload without padding
    uint8_t missing
    uint8_t cut
    uint8_t reserved[2]
    Record record

# How many objects are sound or in doubt, and why (doubts_count).
cdef struct StateDoubts:
    uint64_t sound
    uint64_t gap                 # a lost message may have concerned them
    uint64_t waits[4]            # the feed said STALE, by ObjectWait
    uint64_t unheard             # records were missed, perhaps also what the feed said
    uint64_t damaged             # entries that cannot be read

# Records one after another, each aligned to 8. The owner of the output frees `bytes`.
cdef struct StateOutput:
    uint8_t* bytes
    uint64_t used
    uint64_t room
    int64_t count

# Copies entry i to `out`. Returns its size, or 0 if there is none; -EMSGSIZE if `room` (at least 8
# bytes) is too small, with the size in *out; -EAGAIN or -EBADMSG as below.
ctypedef int64_t (*entry_copy)(
    const void* source, uint32_t i, uint8_t* out, uint64_t room) noexcept nogil


# Return the size of an object's entry. `depth`: book levels per side, 0: all. `bare`: without
# values, which then count as missing.
cdef uint64_t entry_size(
    const State* state, uint32_t object, uint32_t depth, bint bare) noexcept nogil
cdef void entry_write(
    const State* state, uint32_t object, uint32_t depth, bint bare, uint8_t* out) noexcept nogil
# Take an entry into a state. Return 0; -EBADMSG if it is damaged; -EAGAIN if it belongs to another
# session; -ENOMEM.
cdef int entry_read(State* state, const uint8_t* entry, uint64_t size) noexcept nogil
# The first entry. `bare`: without streams and objects, of which readers then know nothing.
cdef uint64_t head_size(const State* state, bint bare) noexcept nogil
cdef void head_write(const State* state, bint bare, uint8_t* out) noexcept nogil
# Read a whole state into an empty one, from a source whose entry 0 is its StateHead and entries 1
# .. its objects, at most `entries` in all. Return 0; -EAGAIN if the source changed meanwhile or is
# still empty: try again from the beginning; -EBADMSG if it is damaged; -ENOMEM. Objects may be
# ahead of the state: only once its position has reached `newest` may others start from it.
cdef int state_read(
    State* state, entry_copy copy, const void* source, uint64_t entries) noexcept nogil
# Count the objects of a source by how far they can be trusted. `copy` may copy only the first bytes
# of an entry, for which there is room. The entries may be as of different moments. Return 0,
# -EAGAIN, -EBADMSG or -ENOMEM, as state_read.
cdef int doubts_read(
    StateDoubts* out, entry_copy copy, const void* source, uint64_t entries) noexcept nogil
# Write the state as records. Return 0 or -ENOMEM. Free the output with free(output.bytes).
cdef int state_records(const State* state, StateOutput* output) noexcept nogil
