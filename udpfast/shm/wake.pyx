"""Wake readers that sleep in an event loop. The protocol is in `wake.pxd`."""

import os
from pathlib import Path

from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.unistd cimport close as c_close
from posix.unistd cimport read as c_read

from udpfast.core.atomics cimport fence_full
from udpfast.core.oserr cimport check

from udpfast.errors import RegionError

__all__ = ["Sleeper", "WakeRegion"]

cdef extern from "<sys/inotify.h>" nogil:
    int inotify_init1(int flags)
    int inotify_add_watch(int fd, const char* path, uint32_t mask)
    enum:
        IN_NONBLOCK
        IN_CLOEXEC
        IN_MODIFY

_KIND = "WAKE"
_LAYOUT_HASH = 1  # version of WakeHeader


cdef class WakeRegion:
    """The writer's end: it wakes readers that have announced that they sleep. The hot loop uses C.

    Attributes
    ----------
    region : Region
    """

    @staticmethod
    def create(directory: str | os.PathLike[str], publish: bool = True) -> WakeRegion:
        """Create the file `wake` in an instance's directory, or take it over from a dead writer.

        Parameters
        ----------
        directory : str or path
        publish : bool
            Let readers find it now. False: when `region.mark_ready` is called.

        Raises
        ------
        WriterExistsError
            A living process writes it.
        """
        cdef WakeRegion wake = WakeRegion.__new__(WakeRegion)
        cdef Region region
        path = Path(directory) / "wake"
        try:
            region = Region.reopen_for_write(path, _KIND, _LAYOUT_HASH, claim=False)
        except (FileNotFoundError, RegionError):
            region = Region.create(path, _KIND, sizeof(WakeHeader), _LAYOUT_HASH, replace=True)
        if publish:
            region.mark_ready()
        wake.region = region
        wake.waker.header = <WakeHeader*> region.pointer
        wake.waker.fd = region._fd
        return wake

    def turn(self, uint64_t position, int64_t now_ns) -> None:
        """Wake sleeping readers if there is a new record: `waker_turn`, for tests.

        Parameters
        ----------
        position : int
            Position of the ring's next record.
        now_ns : int
            Monotonic time.
        """
        if self.region.pointer != NULL:
            waker_turn(&self.waker, position, now_ns)

    def close(self) -> None:
        """Wake all readers a last time, and release the file. Idempotent."""
        if self.region.pointer != NULL:
            self.waker.header = NULL
            if self.region.writer_pid == os.getpid():  # not in a forked child
                pwrite(self.waker.fd, &self.waker.woken, sizeof(uint64_t), 192)
            self.region.close()


cdef class Sleeper:
    """A reader's end: a descriptor for its event loop, and the word that announces its sleep.

    Attributes
    ----------
    region : Region
    """

    def __cinit__(self):
        self._fd = -1

    @staticmethod
    def attach(directory: str | os.PathLike[str]) -> Sleeper:
        """Watch the file `wake` of an instance.

        Raises
        ------
        OSError
            There is no such file, it may not be written, or the system's limit of inotify
            instances is reached.
        RegionError
            The file is of another version.
        """
        cdef Sleeper sleeper = Sleeper.__new__(Sleeper)
        cdef bytes path = os.fsencode(Path(directory) / "wake")
        sleeper._fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        check(-c_errno if sleeper._fd < 0 else 0, "watch for records", str(directory))
        # Watch before mapping: if both are of one file, no notification was missed.
        if inotify_add_watch(sleeper._fd, path, IN_MODIFY) < 0:
            check(-c_errno, "watch for records", os.fsdecode(path))
        sleeper.region = Region.attach(os.fsdecode(path), _KIND, _LAYOUT_HASH, writable=True)
        if sleeper.region.replaced():
            raise FileNotFoundError(f"{os.fsdecode(path)} has just been replaced")
        sleeper._header = <WakeHeader*> sleeper.region.pointer
        return sleeper

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there may be a new record."""
        return self._fd

    def arm(self) -> None:
        """Announce that this reader is about to sleep. Check the ring once more after this call."""
        if self.region.pointer == NULL:
            return
        if load_relaxed(&self._header.asleep) == 0:
            store_relaxed(&self._header.asleep, 1)
        # Orders the store before the check of the ring; the writer reads the word in waker_turn.
        fence_full()

    def drain(self) -> None:
        """Read the events that made the descriptor readable."""
        cdef char events[4096]
        if self._fd >= 0:
            while c_read(self._fd, events, sizeof(events)) > 0:
                pass

    def replaced(self) -> bool:
        """Return whether another writer created another file: then attach anew."""
        return self.region.replaced()

    def close(self) -> None:
        """Release the file and the descriptor. Idempotent."""
        if self._fd >= 0:
            c_close(self._fd)
            self._fd = -1
        if self.region is not None:
            self.region.close()

    def __dealloc__(self):
        if self._fd >= 0:
            c_close(self._fd)


if sizeof(WakeHeader) != 200:
    raise ImportError(f"WakeHeader has {sizeof(WakeHeader)} bytes, not 200")
