"""The image keeper: reads a ring or store and keeps what is true for readers to come.

It applies every record to a state of its own, and writes what changed into the image from time to
time: objects first, then up to which position all of them are true. Who joins copies the image
and reads on from there, so it does not matter how far behind the image is as long as the ring
still holds what follows.
"""

from pathlib import Path

import cython

from libc.errno cimport ENOENT, EPIPE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.agents.feed.feed_state cimport state_open
from udpfast.archive.feed_cursor cimport FeedCursor
from udpfast.core.agent cimport AGENT_DONE, Agent
from udpfast.core.atomics cimport store_relaxed
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.linux cimport ECANCELED
from udpfast.log.readers cimport ReaderRegistration
from udpfast.market.state cimport (
    State, state_apply, state_forget_changes, state_free, state_init, state_lapped)
from udpfast.market.state_bytes cimport entry_size, entry_write, head_size, head_write
from udpfast.shm.image cimport Image, ImageWriter, image_begin, image_end, image_reserve

from udpfast.config import FeedConfig, ImageConfig
from udpfast.errors import ConfigError
from udpfast.log.readers import ReaderRegistration
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.shm.image import Image

__all__ = ["ImageKeeper", "build"]

cdef enum:
    BATCH = 1024                 # records of one turn
    DUTY = 10                    # writing takes at most one part of so many of the time
    REPORT_NS = 10_000_000       # tools see how far it is so often, or at every turn with records
    LOOK_NS = 500_000_000        # whether readers can still find the image


@cython.final
cdef class ImageKeeper(Agent):
    """Keep the image of an instance.

    Parameters
    ----------
    config : ImageConfig
    directory : Path
        The instance's.
    huge_pages : bool
        The image shall have pages of 2 MiB.
    """

    cdef object _config
    cdef bint _huge_pages
    cdef object _directory
    cdef FeedCursor _cursor
    cdef Image _image
    cdef ReaderRegistration _registration
    cdef State _state
    cdef uint32_t _depth
    cdef int64_t _interval_ns
    cdef int64_t _publish_at_ns
    cdef uint64_t _published     # position that the image has
    cdef uint64_t _read          # records since it was started
    cdef int64_t _report_at_ns
    cdef int64_t _look_at_ns

    def __init__(self, config: ImageConfig, directory: Path, huge_pages: bool = False):
        super().__init__("udpfast image")
        self._config = config
        self._huge_pages = huge_pages
        self._directory = Path(directory)
        self._depth = config.depth
        self._interval_ns = config.interval_ms * 1_000_000
        state_init(&self._state, config.objects)

    def __dealloc__(self):
        state_free(&self._state)

    def on_start(self) -> None:
        """Attach to the log, where the image before this one ends if there is such."""
        self._cursor = state_open(&self._state, self._directory, BATCH, self._config.objects)
        try:
            self._image = Image.create(
                self._directory, self._config.objects + 1, self._config.capacity_bytes,
                ENTRY_HASH, self._huge_pages)
            if not image_reserve(
                    &self._image.writer, 0, head_size(&self._state, True)):
                raise ConfigError("image.capacity_bytes: expected room for one entry, found "
                                  f"{self._config.capacity_bytes}")
            self._publish()
            self._registration = ReaderRegistration.create(
                self._cursor.readers, "image", self._cursor.index(), clock_realtime_ns())
        except BaseException:
            self._cursor.close()
            if self._image is not None:
                self._image.close()
            raise

    def on_stop(self) -> None:
        """Write what is known, and let go of log and image; the image stays for its readers."""
        self._publish()
        self._registration.close()
        self._image.close()
        self._cursor.close()

    @property
    def position(self) -> int:
        """Position of the next record to read."""
        return self._state.mark.position

    @property
    def index(self) -> int:
        """Index of the next record to read."""
        return self._state.mark.index

    @property
    def lapped(self) -> int:
        """Records missed, those from before this keeper included."""
        return self._state.mark.lapped

    @property
    def objects(self) -> int:
        """Objects known in this session."""
        return self._state.doubts.count

    @property
    def refused(self) -> tuple[int, int]:
        """Objects and values of this session that are not kept.

        Objects beyond `image.objects`; records of further values of an object that has 1,024, or of
        values that a cut text does not tell from others. Readers are told that these objects wait.
        """
        return self._state.mark.refused, self._state.mark.values_refused

    def work(self, int64_t now_ns) -> int:
        """Do one turn, as a runner does; for tests."""
        return self.do_work(now_ns)

    def publish(self) -> None:
        """Write what changed now; for tests."""
        self._publish()

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef int64_t i, count
        cdef int rc
        count = self._cursor.poll(BATCH)
        if count < 0:
            return AGENT_DONE if count == -EPIPE else self._fail(count)
        if self._cursor.missed:
            state_lapped(&self._state, self._cursor.missed, self._cursor.epoch())
        for i in range(count):
            rc = state_apply(&self._state, self._cursor.headers + i,
                             self._cursor.payloads + self._cursor.offsets[i])
            if rc < 0:
                return rc
        if self._state.mark.position != self._published and now_ns >= self._publish_at_ns:
            self._publish()
        if count or now_ns >= self._report_at_ns:
            self._report_at_ns = now_ns + REPORT_NS
            self._read += count
            store_relaxed(&self._registration.entry.read, self._read)
            self._cursor.report(self._registration.entry)
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + LOOK_NS
            with gil:
                if self._is_removed():
                    return -ECANCELED
        return <int>count

    cdef bint _is_removed(self):
        # Another one is made by the next run. With the whole instance gone, there is no place.
        path = self._directory / "image"
        if path.exists() or not (self._directory / "counters").exists():
            return False
        self.failure = FileNotFoundError(
            ENOENT, "the image was removed while the feed runs: another one is made", str(path))
        return True

    cdef int _fail(self, int64_t code) noexcept nogil:
        with gil:
            try:
                self._cursor.fail(code)
            except BaseException as failure:
                self.failure = failure
        return -ECANCELED

    cdef void _publish(self) noexcept nogil:
        # What changed, object by object, and then how far all of it is true.
        cdef State* state = &self._state
        cdef int64_t began_ns = clock_monotonic_ns(), ended_ns
        cdef uint32_t i
        for i in range(state.changed_count):
            self._publish_object(state.changed[i])
        state_forget_changes(state)
        state.mark.ring_created_ns = self._cursor.created_ns()
        self._publish_head()
        image_end(&self._image.writer, 0)
        self._published = state.mark.position
        ended_ns = clock_monotonic_ns()
        self._publish_at_ns = ended_ns + max(self._interval_ns, DUTY * (ended_ns - began_ns))

    cdef void _publish_head(self) noexcept nogil:
        cdef ImageWriter* writer = &self._image.writer
        cdef uint8_t* place = image_begin(writer, 0, head_size(&self._state, False))
        cdef bint bare = place == NULL
        if bare:  # for which there is room always
            place = image_begin(writer, 0, head_size(&self._state, True))
        head_write(&self._state, bare, place)

    cdef void _publish_object(self, uint32_t object) noexcept nogil:
        # An object for whose values there is no room is said to have none: a reader waits for
        # them. Room for that is taken before its first version, or else that one would stay when
        # it is true no more. Without such room a reader does not know of the object: as well.
        cdef ImageWriter* writer = &self._image.writer
        cdef uint64_t size = entry_size(&self._state, object, self._depth, False)
        cdef uint8_t* place
        cdef bint bare
        if writer.slots[1 + object].done == 0 and not image_reserve(
                writer, 1 + object, entry_size(&self._state, object, self._depth, True)):
            return
        place = image_begin(writer, 1 + object, size)
        bare = place == NULL
        if bare:
            size = entry_size(&self._state, object, self._depth, True)
            place = image_begin(writer, 1 + object, size)
        entry_write(&self._state, object, self._depth, bare, place)
        image_end(writer, 1 + object)


def build(config: FeedConfig, directory: Path) -> ImageKeeper:
    """Return the keeper that a feed's file asks for, for the instance in `directory`."""
    return ImageKeeper(config.image, directory, config.agent.huge_pages)
