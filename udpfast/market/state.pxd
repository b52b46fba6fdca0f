# State: what a ring says is true at one position of it: the last value of every object, and which
# of them are in doubt. It grows by records in ring order (state_apply) and knows no ring, no region
# and no clock; whoever has the state as of a position and all records behind it has the state now.
#
#    State --> objects (key) --> values (kind, tag, text): header of the last record it contains,
#                                payload; of a book all levels of both sides, of ORDERS all orders
#
# What may be believed of an object is decided in market/doubt; of its values each may be missing.
#
# An object remembers the position up to which it contains everything (`until`): a record below it
# is passed over. So objects may be ahead of the state's own position, which is what a copy made
# while its writer went on looks like; the records in between make them all alike.
#
# Kept are all decoded kinds, up to STATE_VALUES_MAX values of an object. What tells two
# values apart is compared, never guessed: a text or a name that was cut (RECORD_TRUNCATED) tells
# nothing. Objects that carry what is not kept are known as `unkept`.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport CHANNEL_COUNT, LINES_MAX, Connection, Record, Session
from udpfast.market.doubt cimport Doubt, Doubts
from udpfast.market.kept_orders cimport OrderTable
from udpfast.market.ladder cimport Ladder

cdef enum:
    STATE_SLOTS_MIN = 64
    STATE_VALUES_MAX = 1024      # of one object: an entry is written whole when one of them changes
    STATE_ROWS_MAX = 1024        # of one value that updates are merged into, one by one

cdef struct StateValue:
    Record record                # header of the last record that it contains
    uint64_t tag                 # (exchange_id << 32) | symbol_id
    uint32_t object              # index of its object
    uint32_t place               # hash of all that tells it from others
    uint8_t* payload             # the fixed part, and rows that are no levels
    uint32_t size                # 0: nothing yet
    uint32_t room
    uint32_t next                # value of the same object, index + 1; 0: the last one
    uint8_t missing
    uint8_t cut                  # a book of which only the best levels were handed on
    uint8_t reserved[2]
    Ladder bids
    Ladder asks
    OrderTable orders            # of ORDERS

cdef struct StateObject:
    Doubt doubt
    uint64_t until               # contains all records of it below this position
    uint64_t index               # of the last of them
    uint64_t applied             # last incremental number contained, as far as it is known
    uint32_t values              # the first, index + 1
    uint32_t values_count
    uint16_t session
    uint8_t unkept               # it carries what no value is kept of
    uint8_t changed              # is in the list of changed ones
    uint8_t waits                # ObjectWait, of its last STALE
    uint8_t reserved[3]

cdef packed struct StateMark:    # what is not of an object
    uint64_t position            # everything below is contained
    uint64_t index               # of the record there
    uint64_t epoch               # of the ring's writer
    uint64_t ring_born_ns        # which ring: who keeps the state says so, nobody here asks
    int64_t ring_created_ns
    uint64_t lapped              # records missed, ever
    uint32_t generation          # of sessions: objects of another one are gone
    uint32_t refused             # of this session, for which there was no room
    uint32_t values_refused      # records of values beyond what an object may have, or cut names
    uint8_t silent_lines[CHANNEL_COUNT]  # bit masks: those that said so last
    uint8_t has_connection[CHANNEL_COUNT]
    Record connection_record[CHANNEL_COUNT]
    Connection connection[CHANNEL_COUNT]
    Record line_record[CHANNEL_COUNT][LINES_MAX]
    Connection line_connection[CHANNEL_COUNT][LINES_MAX]

cdef packed struct StateSession:  # of one stream, as its SESSION said
    Record record                # kind 0: there was none
    Session session

cdef struct State:
    StateMark mark
    StateSession* sessions       # as many as `doubts.heard`
    uint32_t sessions_count
    Doubts doubts                # of StateObject
    uint32_t objects_max
    # Some objects of a state that was read from an image contain records up to here (`until`): once
    # `mark.position` is there, all are true at one position.
    uint64_t newest
    StateValue* values
    uint32_t* value_slots        # as `slots` of Doubts, of values
    uint32_t value_slots_mask
    uint32_t values_count
    uint32_t values_room
    uint32_t took                # value that the last record was of, index + 1; 0: of none kept
    uint32_t* changed            # objects that changed since state_forget_changes
    uint32_t changed_count
    uint32_t changed_room


cdef inline StateObject* state_at(const State* state, uint32_t index) noexcept nogil:
    return <StateObject*>state.doubts.objects + index


cdef inline uint32_t state_index(const State* state, const StateObject* object) noexcept nogil:
    return <uint32_t>(object - <const StateObject*>state.doubts.objects)


# All zeros is a state without memory: state_init makes it one that may hold `objects_max` objects.
cdef void state_init(State* state, uint32_t objects_max) noexcept nogil
cdef void state_free(State* state) noexcept nogil
# Have room for what is of a stream (market/doubt, doubt_stream). False: out of memory.
cdef bint state_reach(State* state, uint32_t stream) noexcept nogil
# Take the next record. 0, or -ENOMEM. Damaged payloads leave their value missing.
cdef int state_apply(State* state, const Record* header, const uint8_t* payload) noexcept nogil
# Who keeps the state missed records: no value is what updates build on, until its next snapshot. A
# RESTART may have been among them, and ids may mean other names since: `epoch` is the ring's now.
cdef void state_lapped(State* state, uint64_t count, uint64_t epoch) noexcept nogil
cdef void state_forget_changes(State* state) noexcept nogil
# The object of a record of the stream, or NULL.
cdef StateObject* state_find(
    const State* state, const Record* header, uint64_t tag) noexcept nogil
# Whether a value is all that its object has, and nobody doubts that.
cdef bint state_sound(const State* state, const StateValue* value) noexcept nogil

# For state_bytes: an object that is not there yet (NULL: no memory), and a value of one.
cdef void state_changed(State* state, StateObject* object) noexcept nogil
cdef StateObject* state_add(State* state, uint64_t key, uint64_t tag) noexcept nogil
# `payload`: an update of that kind, at least its fixed part: what else tells values apart is in it.
cdef StateValue* state_value(
    State* state, const StateObject* object, uint16_t kind, uint64_t tag,
    const uint8_t* payload) noexcept nogil
cdef StateValue* state_value_add(
    State* state, StateObject* object, uint16_t kind, uint64_t tag,
    const uint8_t* payload) noexcept nogil
cdef bint state_keep(StateValue* value, const uint8_t* payload, uint32_t size) noexcept nogil
# Bytes of a kind's fixed part and of one of its rows; 0: the kind is not kept.
cdef uint32_t state_fixed(uint16_t kind, uint32_t* row) noexcept nogil
