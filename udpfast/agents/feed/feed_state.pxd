# The state that a feed's log says is true, for agents that keep one of their own: where it begins.

from libc.stdint cimport int64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.market.state cimport State

# The cursor that goes on behind `state`, which was initialised and is empty: it becomes that of the
# instance's image, if there is one of this log, or else what the writer's first record begins. If
# that is gone, nothing is known, and the state says so (state_lapped). `objects`: of the state.
cdef FeedCursor state_open(State* state, object directory, int64_t limit, object objects)
