"""The last values that a new subscriber gets first: the same state as in an image (market/state).

The fan-out keeps its own, so that they are exact at the record from which the stream continues.
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
        Most objects to keep.
    """

    def __init__(self, objects: int):
        state_init(&self._state, objects)

    def __dealloc__(self):
        state_free(&self._state)

    cdef begin(self, FeedCursor cursor, uint64_t missed):
        # Begin with an empty state at the cursor. It is complete if the cursor is at the writer's
        # first record (missed: 0); otherwise every object is in doubt.
        state_free(&self._state)
        self._state.mark.epoch = cursor.epoch()
        self._state.mark.position = cursor.position()
        self._state.mark.index = cursor.index()
        if missed:
            state_lapped(&self._state, missed, cursor.epoch())

    cdef bint resume(self, FeedCursor cursor, directory) except -1:
        # Take the state from an image of this log, and move the cursor to where the image ends.
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
        # A running keeper may be ahead of the cursor, but never of the log.
        if (rc < 0 or self._state.mark.ring_born_ns != cursor.born
                or self._state.newest > cursor.end()):
            state_free(&self._state)
            return False
        cursor.seek(self._state.mark.position, self._state.mark.index)
        return True

    cdef int apply(self, FeedCursor cursor, int64_t count) noexcept nogil:
        # Apply the records of the cursor's last poll. Returns 0 or -ENOMEM.
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
        # Whether the state is that of one record: objects from an image may be newer than its mark.
        return self._state.mark.position >= self._state.newest

    cdef bytes records(self):
        # Return the state as consecutive records, each padded to 8 bytes. Requires `ready`: the
        # subscriber continues at the fan-out's current record.
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
