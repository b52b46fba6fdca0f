"""Where the state of a feed begins, for agents that keep one. `feed_state.pxd` has the rules."""

from libc.stdint cimport int64_t

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.market.state cimport State, StateMark, state_free, state_lapped
from udpfast.market.state_bytes cimport entry_copy, state_read
from udpfast.shm.image cimport ImageView, image_copy

from udpfast.archive.feed_cursor import open_feed_cursor
from udpfast.errors import FormatError
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.shm.image import ImageView

__all__ = []


cdef FeedCursor state_open(State* state, object directory, int64_t limit, object objects):
    cdef FeedCursor cursor = open_feed_cursor(directory, "tail", limit)
    try:
        if _resume(state, cursor, directory, objects):
            return cursor
    except BaseException:
        cursor.close()
        raise
    cursor.close()
    return _begin(state, directory, limit)


cdef FeedCursor _begin(State* state, object directory, int64_t limit):
    # Nothing is known. With the writer's first record that does not matter.
    cdef StateMark* mark = &state.mark
    cdef FeedCursor cursor
    try:
        cursor = open_feed_cursor(directory, "writer", limit)
        missed = 0
    except FormatError:
        cursor = open_feed_cursor(directory, "tail", limit)
        missed = cursor.index()
    mark.epoch = cursor.epoch()
    mark.position = cursor.position()
    mark.index = cursor.index()
    mark.ring_born_ns = cursor.born
    if missed:
        state_lapped(state, missed, mark.epoch)
    return cursor


cdef bint _resume(State* state, FeedCursor cursor, object directory, object objects) except -1:
    # Go on with the image that a keeper has written of this very log. What follows it may be
    # overwritten by now: then this state is lapped, like any reader's, and says so.
    cdef ImageView view
    cdef int rc = -1
    try:
        view = ImageView.attach(directory, ENTRY_HASH)
    except (FileNotFoundError, FormatError):
        return False
    with view:
        rc = state_read(state, <entry_copy>image_copy, &view.reader,
                        min(view.slots, objects + 1))
    if (rc < 0 or state.mark.ring_born_ns != cursor.born
            or state.mark.position > cursor.position()):
        state_free(state)
        return False
    cursor.seek(state.mark.position, state.mark.index)
    return True
