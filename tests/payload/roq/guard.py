"""Memory whose neighbours may not be touched: a read beyond a payload ends the process."""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE


class Guarded:
    """A run of pages between two that are closed; payloads lie flush with either end."""

    def __init__(self, pages: int) -> None:
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        self.size = pages * PAGE
        self.view = np.frombuffer(self.memory, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        start = self.view.ctypes.data
        for guard in (start, start + (pages + 1) * PAGE):
            if libc.mprotect(guard, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def at_end(self, payload: bytes) -> np.ndarray:
        """Return the payload's bytes, the last one just before a closed page."""
        place = self.view[PAGE + self.size - len(payload) : PAGE + self.size]
        place[:] = np.frombuffer(payload, np.uint8)
        return place

    def at_start(self, payload: bytes) -> np.ndarray:
        """Return the payload's bytes, the first one just behind a closed page."""
        place = self.view[PAGE : PAGE + len(payload)]
        place[:] = np.frombuffer(payload, np.uint8)
        return place
