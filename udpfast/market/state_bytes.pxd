# A state as bytes. Two forms:
#
#   an entry    one object with all its values, to be taken in again (entry_read) by who goes on
#               from there: what an image holds
#   records     the whole state as a late joiner shall see it: SESSION, CONNECTION, then object by
#               object its values, each flagged SNAPSHOT, and what the feed says of it
#
#     0            64                  152
#     +------------+-------------------+---------+-------------------+---------+ ...
#     | StateEntry | StateEntryValue   | payload | StateEntryValue   | payload |
#     +------------+-------------------+---------+-------------------+---------+ ...
#
# Payloads are padded to 8. Entries may come from anybody's memory: entry_read believes no number.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport Record
from udpfast.market.doubt cimport Doubt, Heard
from udpfast.market.state cimport State, StateMark, StateSession

cdef packed struct StateHead:    # the first entry: what is of no object; StateStream[streams]
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
    uint32_t generation          # of the session, StateMark.generation
    uint32_t values              # how many follow
    uint16_t session
    uint8_t unkept
    uint8_t waits
    uint8_t reserved[4]

cdef packed struct StateEntryValue:  # 88 bytes; fields as in StateValue
    uint64_t tag
    uint64_t reserved2
    uint32_t size                # of the payload, without padding
    uint8_t missing
    uint8_t cut
    uint8_t reserved[2]
    Record record

cdef struct StateDoubts:         # how many objects are sound, or in doubt, and why: `doubts_count`
    uint64_t sound
    uint64_t gap                 # a message was lost since, which may have been theirs
    uint64_t waits[4]            # the feed said STALE: by ObjectWait
    uint64_t unheard             # records were missed, the feed's word perhaps among them
    uint64_t damaged             # entries that nobody can read

cdef struct StateOutput:         # records behind each other, each aligned to 8; memory is ours
    uint8_t* bytes
    uint64_t used
    uint64_t room
    int64_t count

# Copies entry i to `out`; its size, 0: there is none. -EMSGSIZE: room (8 bytes at least) is too
# small, *out holds the size; -EAGAIN, -EBADMSG as below.
ctypedef int64_t (*entry_copy)(
    const void* source, uint32_t i, uint8_t* out, uint64_t room) noexcept nogil


# Bytes that the entry of an object takes. depth: book levels per side, 0: all.
# bare: without values, which then count as missing.
cdef uint64_t entry_size(
    const State* state, uint32_t object, uint32_t depth, bint bare) noexcept nogil
cdef void entry_write(
    const State* state, uint32_t object, uint32_t depth, bint bare, uint8_t* out) noexcept nogil
# Take an entry into a state: 0; -EBADMSG: it is damaged; -EAGAIN: of another session; -ENOMEM.
cdef int entry_read(State* state, const uint8_t* entry, uint64_t size) noexcept nogil
# The first entry; bare: without streams and objects, which readers do not know of then.
cdef uint64_t head_size(const State* state, bint bare) noexcept nogil
cdef void head_write(const State* state, bint bare, uint8_t* out) noexcept nogil
# Take a whole state, which must be empty, from a source whose entry 0 is its StateHead and entry
# 1 .. its objects, at most `entries` in all: 0; -EAGAIN: try again from the beginning (the source
# changed meanwhile, or holds nothing yet); -EBADMSG: it is damaged; -ENOMEM. Objects may be ahead
# of the state: until its position is `newest`, it is no state that anybody else may begin with.
cdef int state_read(
    State* state, entry_copy copy, const void* source, uint64_t entries) noexcept nogil
# Count the objects of a source as for state_read by what may be believed of them: `copy` copies as
# many of an entry's first bytes as there is room for, which are enough. Entries are as of different
# moments. 0, -EAGAIN, -EBADMSG or -ENOMEM, as state_read.
cdef int doubts_read(
    StateDoubts* out, entry_copy copy, const void* source, uint64_t entries) noexcept nogil
# The state as records. 0 or -ENOMEM. The output is freed with free(output.bytes).
cdef int state_records(const State* state, StateOutput* output) noexcept nogil
