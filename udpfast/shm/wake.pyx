"""Waking readers that sleep in an event loop; the protocol is in `wake.pxd`."""

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
_LAYOUT_HASH = 1  # of WakeHeader: counts its changes


cdef class WakeRegion:
    """The writer's end: wakes readers that said that they sleep. The hot loop uses C.

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
            Let readers find it now; False: when `region.mark_ready` is called.

        Raises
        ------
        WriterExistsError
            A living process is its writer.
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
        """Wake who sleeps, if there is something new; `waker_turn`, for tests.

        Parameters
        ----------
        position : int
            Of the ring's next record.
        now_ns : int
            Monotonic.
        """
        if self.region.pointer != NULL:
            waker_turn(&self.waker, position, now_ns)

    def close(self) -> None:
        """Wake everybody a last time, and let go of the file. Idempotent."""
        if self.region.pointer != NULL:
            self.waker.header = NULL
            if self.region.writer_pid == os.getpid():  # not in a forked child
                pwrite(self.waker.fd, &self.waker.woken, sizeof(uint64_t), 192)
            self.region.close()


cdef class Sleeper:
    """A reader's end: a descriptor for its event loop, and the word that says that it sleeps.

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
            It is another version's.
        """
        cdef Sleeper sleeper = Sleeper.__new__(Sleeper)
        cdef bytes path = os.fsencode(Path(directory) / "wake")
        sleeper._fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        check(-c_errno if sleeper._fd < 0 else 0, "watch for records", str(directory))
        # First the watch, then the mapping: if they are of one file, nothing came between.
        if inotify_add_watch(sleeper._fd, path, IN_MODIFY) < 0:
            check(-c_errno, "watch for records", os.fsdecode(path))
        sleeper.region = Region.attach(os.fsdecode(path), _KIND, _LAYOUT_HASH, writable=True)
        if sleeper.region.replaced():
            raise FileNotFoundError(f"{os.fsdecode(path)} has just been replaced")
        sleeper._header = <WakeHeader*> sleeper.region.pointer
        return sleeper

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there may be something new."""
        return self._fd

    def arm(self) -> None:
        """Say that this reader is about to sleep. Look at the ring once more behind this call."""
        if self.region.pointer == NULL:
            return
        if load_relaxed(&self._header.asleep) == 0:
            store_relaxed(&self._header.asleep, 1)
        # The look at the ring must not come before the store; read by waker_turn.
        fence_full()

    def drain(self) -> None:
        """Take off what made the descriptor readable."""
        cdef char events[4096]
        if self._fd >= 0:
            while c_read(self._fd, events, sizeof(events)) > 0:
                pass

    def replaced(self) -> bool:
        """Return whether another writer began another file: then attach anew."""
        return self.region.replaced()

    def close(self) -> None:
        """Let go of the file and of the descriptor. Idempotent."""
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
