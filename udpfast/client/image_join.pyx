"""How a late reader joins: it reads the image first, and then the log behind it.

Objects are copied out of the image one by one while its keeper keeps writing, so some are newer
than others. The log's records from the image's mark on are applied to the copy, each to the objects
that do not contain it yet, up to the log's end as it was when the copy began, or up to the newest
object if that is later. The copy is then correct at one position, and the reader's cursor is put
there, so that the reader gets every later record from the log.
"""

import time
from pathlib import Path

import cython

from libc.errno cimport EAGAIN, EBADMSG, ENOMEM, EPIPE
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.layout cimport RECORD_SIZE
from udpfast.market.state cimport state_apply, state_free, state_init
from udpfast.market.state_bytes cimport entry_copy, state_read, state_records
from udpfast.shm.image cimport ImageView, image_copy

from udpfast.errors import FormatError, ImageError, NotReadyError
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.shm.image import ImageView

__all__ = ["ImageJoin"]

_PAUSE_S = 0.001
_NONE = "there is none; set [image] enabled = true in the feed's file"

cdef enum:
    JOIN_BATCH = 1 << 16         # records per poll; the cursor's own limit may be lower


@cython.final
cdef class ImageJoin:
    """The state of all objects at a cursor's position, as records.

    Parameters
    ----------
    directory : Path
        Directory of the instance.
    cursor : FeedCursor
        A cursor in its ring or store; it is moved to the position of the state.
    patience_s : float
        Seconds to keep trying: a keeper that was just started, or is behind, needs a moment. If
        the feed works and keeps no image, that is reported at once.

    Raises
    ------
    ImageError
        There is no usable image; the message says why.
    """

    def __init__(self, directory: Path, FeedCursor cursor not None, patience_s: float):
        deadline_s = time.monotonic() + patience_s
        while True:
            # Its writer says before it is found whether there will be an image (`note_image`).
            final = not (cursor.ended() or cursor.failed() or cursor.gone())
            reason = self._try(Path(directory), cursor)
            if reason is None:
                return
            if time.monotonic() >= deadline_s or final and reason is _NONE:
                raise ImageError(f"{Path(directory) / 'image'}: {reason}")
            time.sleep(_PAUSE_S)

    def __dealloc__(self):
        state_free(&self._state)
        free(self._output.bytes)

    @property
    def payload_max(self) -> int:
        """Size of the largest payload among the records that are left, in bytes."""
        cdef uint64_t at = self._at
        cdef uint64_t largest = 0
        cdef uint64_t length
        while at < self._output.used:
            length = (<const Record*>(self._output.bytes + at)).length
            largest = max(largest, length - RECORD_SIZE)
            at += (length + 7) & ~<uint64_t>7
        return largest

    cdef int64_t take(
            self, Record* headers, uint64_t* offsets, uint8_t* payloads, uint64_t room,
            int64_t limit) noexcept nogil:
        cdef const Record* record
        cdef uint64_t size, used = 0
        cdef int64_t count = 0
        while count < limit and self.left > 0:
            record = <const Record*>(self._output.bytes + self._at)
            size = (<uint64_t>record.length + 7) & ~<uint64_t>7
            if used + size - RECORD_SIZE > room:
                break
            memcpy(headers + count, record, RECORD_SIZE)
            memcpy(payloads + used, <const uint8_t*>record + RECORD_SIZE, size - RECORD_SIZE)
            offsets[count] = used
            used += size - RECORD_SIZE
            self._at += size
            self.left -= 1
            count += 1
        return count

    cdef _forget(self):
        state_free(&self._state)
        free(self._output.bytes)
        memset(&self._output, 0, sizeof(self._output))

    cdef str _try(self, directory, FeedCursor cursor):
        # Return None on success, otherwise the reason of the failure.
        cdef ImageView view
        cdef uint64_t tail = 0
        cdef int rc = 0
        self._forget()
        try:
            view = ImageView.attach(directory, ENTRY_HASH)
        except FileNotFoundError:
            return _NONE
        except NotReadyError:
            return "its keeper has not begun it yet"
        except FormatError as error:
            return str(error)
        with view:
            alive = view.region.writer_alive()
            keeper = (f"its keeper (pid {view.region.writer_pid}) "
                      f"{'lives' if alive else 'is dead'}")
            if view.slots == 0:
                return "expected slots, found none"
            state_init(&self._state, <unsigned int>(view.slots - 1))
            tail = cursor.end()
            with nogil:
                rc = state_read(&self._state, <entry_copy>image_copy, &view.reader,
                                view.reader.slots_count)
        if rc == -EAGAIN:
            return f"expected a complete state, found one that is being written; {keeper}"
        if rc == -EBADMSG:
            return f"expected a valid state, found damage; {keeper}"
        if rc == -ENOMEM:
            raise MemoryError("not enough memory for the state of an image")
        return self._catch_up(cursor, tail, keeper)

    cdef str _catch_up(self, FeedCursor cursor, uint64_t target, keeper):
        # Apply the log from the image's mark to its end. Return None, or the reason of the failure.
        cdef int rc
        mark = self._state.mark.position
        if (self._state.mark.ring_born_ns != cursor.born
                or self._state.mark.ring_created_ns != cursor.created_ns()):
            return (
                f"expected the image of this {cursor.kind}, found that of an earlier one; "
                f"{keeper}")
        if mark > cursor.end():
            return (
                f"expected a position no later than the {cursor.kind}'s end {cursor.end()}, "
                f"found {mark}; {keeper}")
        cursor.seek(mark, self._state.mark.index)
        target = max(target, self._state.newest)
        with nogil:
            rc = self._follow(cursor, target)
        if rc == -EAGAIN:
            return (
                f"the {cursor.kind} has already overwritten the records after position {mark}, "
                f"where the image ends; {keeper}")
        if rc == -ENOMEM:
            raise MemoryError("not enough memory for the state of an image")
        if rc < 0:
            return (f"expected a record of the {cursor.kind} at position {cursor.position()}, "
                    f"found none; {keeper}")
        if cursor.position() < self._state.newest:
            return (
                f"expected objects no later than the {cursor.kind}'s end {cursor.position()}, "
                f"found one at {self._state.newest}; {keeper}")
        if cursor.epoch() != self._state.mark.epoch:
            return (
                f"the {cursor.kind}'s writer {cursor.epoch()} has not yet reported that it took "
                "over")
        if state_records(&self._state, &self._output) < 0:
            raise MemoryError("not enough memory for the records of an image")
        state_free(&self._state)
        self._at = 0
        self.left = self._output.count
        return None

    cdef int _follow(self, FeedCursor cursor, uint64_t target) noexcept nogil:
        # Apply the log's records up to `target`, and the rest of that run. -EAGAIN: lapped.
        cdef int64_t count, i
        cdef int rc
        while cursor.position() < target:
            count = cursor.poll(JOIN_BATCH)
            if cursor.missed or (count == 0 and cursor.jumped()):
                return -EAGAIN
            if count == 0 or count == -EPIPE:
                break
            if count < 0:
                return <int>count
            for i in range(count):
                rc = state_apply(&self._state, cursor.headers + i,
                                 cursor.payloads + cursor.offsets[i])
                if rc < 0:
                    return rc
        return 0
