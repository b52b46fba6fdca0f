# What the feed itself has to say (SESSION, CONNECTION, DISAGREEMENT) waits here until take(). What
# all streams may have to say at once does not: a window makes its GAP, and begins a session that
# has waited for its other lines, when its turn has come.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.layout cimport Connection, Disagreement, Gap, Session

cdef enum:
    # The caller takes after every unit, which brings a handful, or one for each of its messages: a
    # disagreement about what waits is kept with it, and comes with its message.
    CONTROLS = 2048              # a power of two; a unit has a thousand messages at most

cdef union ControlPayload:
    Gap gap
    Session session
    Connection connection
    Disagreement disagreement

cdef struct Control:
    int64_t received_ns
    uint64_t number
    uint32_t size
    uint16_t kind
    uint16_t session
    uint16_t stream
    uint8_t channel
    uint8_t line
    uint32_t object_key          # DISAGREEMENT: the object in doubt
    uint64_t session_id
    ControlPayload payload

cdef struct ControlQueue:
    int64_t* lost                # a counter: what there was no room for
    uint32_t first
    uint32_t count
    uint32_t mask                # of `control`, one less than it has
    Control* control


cdef inline Control* control_push(ControlQueue* queue) noexcept nogil:
    # A cleared slot to fill in, or NULL when the queue is full, which is counted.
    cdef Control* control
    if queue.count > queue.mask:
        counter_add(queue.lost, 1)
        return NULL
    control = &queue.control[(queue.first + queue.count) & queue.mask]
    memset(control, 0, sizeof(Control))
    queue.count += 1
    return control


cdef inline Control* control_pop(ControlQueue* queue) noexcept nogil:
    # The oldest one; valid until the next push.
    cdef Control* control
    if queue.count == 0:
        return NULL
    control = &queue.control[queue.first & queue.mask]
    queue.first += 1
    queue.count -= 1
    return control
