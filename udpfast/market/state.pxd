# State: what a ring says is true at one position: the last value of every object, and which objects
# are in doubt. It is built from records in ring order (state_apply) and knows no ring, no region
# and no clock. The state at a position and all records behind it give the current state.
#
#    State --> objects (key) --> values (kind, tag, text): header of the last record in it,
#                                payload; for BOOK all levels of both sides, for ORDERS all orders
#
# market/doubt decides how far an object can be trusted; each of its values may be missing.
#
# An object remembers up to which position it contains everything (`until`), and ignores records
# below it. So objects may be ahead of the state's own position. A copy that was made while its
# writer went on looks like that; the records in between bring all objects to the same position.
#
# All decoded kinds are kept, up to STATE_VALUES_MAX values per object. Values are told apart by
# exact comparison: a text or name that was cut (RECORD_TRUNCATED) identifies nothing. An object
# with updates that are not kept is marked `unkept`.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.core.layout cimport CHANNEL_COUNT, LINES_MAX, Connection, Record, Session
from udpfast.market.doubt cimport Doubt, Doubts
from udpfast.market.kept_orders cimport OrderTable
from udpfast.market.ladder cimport Ladder

cdef enum:
    STATE_SLOTS_MIN = 64
    STATE_VALUES_MAX = 1024      # per object: an entry is rewritten whole when one of them changes
    STATE_ROWS_MAX = 1024        # of a value into which updates are merged, one by one

cdef struct StateValue:
    Record record                # header of the last record in it
    uint64_t tag                 # (exchange_id << 32) | symbol_id
    uint32_t object              # index of its object
    uint32_t place               # hash of all that identifies it
    uint8_t* payload             # the fixed part, and rows other than levels
    uint32_t size                # 0: there is none yet
    uint32_t room
    uint32_t next                # the object's next value, index + 1; 0: this is the last one
    uint8_t missing
    uint8_t cut                  # a book of which only the best levels were passed on
    uint8_t reserved[2]
    Ladder bids
    Ladder asks
    OrderTable orders            # for ORDERS

cdef struct StateObject:
    Doubt doubt
    uint64_t until               # all its records below this position are contained
    uint64_t index               # of the last of them
    uint64_t applied             # last incremental number contained, as far as known
    uint32_t values              # its first value, index + 1
    uint32_t values_count
    uint16_t session
    uint8_t unkept               # some of its updates are not kept
    uint8_t changed              # it is in the list of changed objects
    uint8_t waits                # ObjectWait, from its last STALE
    uint8_t reserved[3]

cdef packed struct StateMark:    # what concerns no single object
    uint64_t position            # all records below are contained
    uint64_t index               # of the record there
    uint64_t epoch               # of the ring's writer
    uint64_t ring_born_ns        # identifies the ring; set by the owner of the state, not used here
    int64_t ring_created_ns
    uint64_t lapped              # records missed, ever
    uint32_t generation          # counts sessions: objects of another one are gone
    uint32_t refused             # objects of this session for which there was no room
    uint32_t values_refused      # records of values beyond STATE_VALUES_MAX, or with cut names
    uint8_t silent_lines[CHANNEL_COUNT]  # per channel a bit for each silent line
    uint8_t has_connection[CHANNEL_COUNT]
    Record connection_record[CHANNEL_COUNT]
    Connection connection[CHANNEL_COUNT]
    Record line_record[CHANNEL_COUNT][LINES_MAX]
    Connection line_connection[CHANNEL_COUNT][LINES_MAX]

cdef packed struct StateSession:  # the SESSION of one stream
    Record record                # kind 0: none came
    Session session

cdef struct State:
    StateMark mark
    StateSession* sessions       # as many as `doubts.heard`
    uint32_t sessions_count
    Doubts doubts                # their objects are StateObjects
    uint32_t objects_max
    # In a state that was read from an image, some objects contain records up to here (`until`).
    # Once `mark.position` has reached it, all objects are as of one position.
    uint64_t newest
    StateValue* values
    uint32_t* value_slots        # like `slots` of Doubts, for values
    uint32_t value_slots_mask
    uint32_t values_count
    uint32_t values_room
    uint32_t took                # the value of the last record, index + 1; 0: it is not kept
    uint32_t* changed            # objects that changed since state_forget_changes
    uint32_t changed_count
    uint32_t changed_room


cdef inline StateObject* state_at(const State* state, uint32_t index) noexcept nogil:
    return <StateObject*>state.doubts.objects + index


cdef inline uint32_t state_index(const State* state, const StateObject* object) noexcept nogil:
    return <uint32_t>(object - <const StateObject*>state.doubts.objects)


# Zeros are a state without memory; state_init prepares one for up to `objects_max` objects.
cdef void state_init(State* state, uint32_t objects_max) noexcept nogil
cdef void state_free(State* state) noexcept nogil
# Make room for a stream (an index as of doubt_stream). Return False if there is no memory.
cdef bint state_reach(State* state, uint32_t stream) noexcept nogil
# Take the next record. Return 0 or -ENOMEM. A damaged payload leaves its value missing.
cdef int state_apply(State* state, const Record* header, const uint8_t* payload) noexcept nogil
# The owner of the state missed `count` records. All values are missing until their next snapshot. A
# RESTART may have been among them, after which ids have other names: `epoch` is the ring's current
# one.
cdef void state_lapped(State* state, uint64_t count, uint64_t epoch) noexcept nogil
cdef void state_forget_changes(State* state) noexcept nogil
# Return the object of a record, or NULL.
cdef StateObject* state_find(
    const State* state, const Record* header, uint64_t tag) noexcept nogil
# Return True if the value is there, whole, and not in doubt.
cdef bint state_sound(const State* state, const StateValue* value) noexcept nogil

# For state_bytes. state_add adds an object that is not there yet; it returns NULL if there is no
# memory.
cdef void state_changed(State* state, StateObject* object) noexcept nogil
cdef StateObject* state_add(State* state, uint64_t key, uint64_t tag) noexcept nogil
