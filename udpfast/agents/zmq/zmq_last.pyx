"""What the fan-out tells a new subscriber first: the same state that an image holds (market/state).

It is the fan-out's own, so it is true at the very record from which the stream goes on.
"""

import cython

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.market.state cimport (
    state_apply, state_forget_changes, state_free, state_init, state_lapped)
from udpfast.market.state_bytes cimport StateOutput, entry_copy, state_read, state_records
from udpfast.shm.image cimport ImageView, image_copy

from udpfast.errors import UdpfastError
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.shm.image import ImageView

__all__ = ["LastValues"]


@cython.final
cdef class LastValues:
    """The last values of a feed's objects.

    Parameters
    ----------
    objects : int
        So many at most.
    """

    def __init__(self, objects: int):
        state_init(&self._state, objects)

    def __dealloc__(self):
        state_free(&self._state)

    cdef begin(self, FeedCursor cursor, uint64_t missed):
        # Nothing is known as of where the cursor is. With the writer's first record (missed: 0)
        # that does not matter.
        state_free(&self._state)
        self._state.mark.epoch = cursor.epoch()
        self._state.mark.position = cursor.position()
        self._state.mark.index = cursor.index()
        if missed:
            state_lapped(&self._state, missed, cursor.epoch())

    cdef bint resume(self, FeedCursor cursor, directory) except -1:
        # Take what an image keeper left of this very log, and move the cursor to where it ends.
        cdef ImageView view
        cdef int rc = 0
        state_free(&self._state)
        try:
            view = ImageView.attach(directory, ENTRY_HASH)
        except (FileNotFoundError, UdpfastError):
            return False
        with view:
            rc = state_read(&self._state, <entry_copy>image_copy, &view.reader,
                            min(view.slots, <uint64_t>self._state.objects_max + 1))
        # A keeper that lives is further by now than the cursor, but never than the log.
        if (rc < 0 or self._state.mark.ring_born_ns != cursor.born
                or self._state.newest > cursor.end()):
            state_free(&self._state)
            return False
        cursor.seek(self._state.mark.position, self._state.mark.index)
        return True

    cdef int apply(self, FeedCursor cursor, int64_t count) noexcept nogil:
        # The records of the cursor's last poll. 0, or -ENOMEM.
        cdef int64_t i
        for i in range(count):
            if state_apply(&self._state, cursor.headers + i,
                           cursor.payloads + cursor.offsets[i]) < 0:
                return -ENOMEM
        state_forget_changes(&self._state)
        return 0

    cdef void lapped(self, FeedCursor cursor, uint64_t count) noexcept nogil:
        state_lapped(&self._state, count, cursor.epoch())

    cdef bint ready(self) noexcept nogil:
        # Whether it is true at one record: of what an image left, some objects may be of later.
        return self._state.mark.position >= self._state.newest

    cdef bytes records(self):
        # As records behind each other, each padded to 8. For a subscriber who goes on where the
        # fan-out is now, so only while it is `ready`.
        cdef StateOutput output
        memset(&output, 0, sizeof(output))
        try:
            if state_records(&self._state, &output) < 0:
                raise MemoryError(
                    "not enough memory for the last values of "
                    f"{self._state.doubts.count} objects")
            return (<char*>output.bytes)[:output.used] if output.used else b""
        finally:
            free(output.bytes)
