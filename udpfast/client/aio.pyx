"""Readers in an event loop: `async for record in reader`, `await reader.arrival()`."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from udpfast.client.reader cimport READER_CLOSED, Reader, reader_deadline, reader_in_memory
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.idle cimport IDLE_SPIN

import asyncio

__all__ = ["Arrivals", "Records"]

cdef enum:
    # A sleeper looks by itself this often: for the end of its writer, for a file that replaced the
    # ring's, for a close from another thread. 20 looks per second cost 0.1 % of a core.
    TICK_NS = 50_000_000
    # The same where the writer cannot be told: a ring of another user, or without its file.
    UNTOLD_TICK_NS = 5_000_000


@cython.final
cdef class Records:
    """Records of a reader, as an asynchronous iterator. Made by `async for`.

    Parameters
    ----------
    reader : Reader
    """

    cdef Reader _reader

    def __init__(self, Reader reader not None):
        self._reader = reader

    def __aiter__(self) -> Self:
        """Iterate over the records; see `Reader.__aiter__`."""
        return self

    def __anext__(self) -> Awaitable[ReadRecord]:
        """Return an awaitable of the next `ReadRecord`: done at once if it is in memory."""
        cdef Next following = Next.__new__(Next)
        following._reader = self._reader
        return following


@cython.final
@cython.freelist(8)
cdef class Next:
    # The record that is next when it is awaited, and not before: whoever is cancelled first takes
    # none. No coroutine for one that is there already.
    cdef Reader _reader

    def __await__(self):
        if reader_in_memory(self._reader):
            return self
        return _arrived(self._reader).__await__()

    def __iter__(self):
        return self

    def __next__(self):
        if not reader_in_memory(self._reader):
            raise RuntimeError("a record can be awaited only once")
        raise StopIteration(self._reader.take())


async def _arrived(Reader reader):
    if not await reader.arrival():
        raise StopAsyncIteration
    return reader.take()


cdef class Arrivals:
    """A reader's place in an event loop: a descriptor that the loop watches, while it waits.

    The loop holds it, and it does not hold the reader: a reader that is dropped is freed.
    """

    cdef object _loop            # where the sleeper's descriptor is registered
    cdef object _sleeper         # None: the writer cannot be told
    cdef list _asleep            # the futures that waits sleep on: one for each task

    def __cinit__(self):
        self._asleep = []

    async def wait(self, Reader reader not None, timeout: float | None = None) -> bool:
        """Wait until `reader` has something to read; False: the time is over, or it ended."""
        cdef int64_t deadline_ns = reader_deadline(timeout)
        cdef int64_t ahead, rest_ns
        cdef uint64_t read
        if reader_in_memory(reader):
            return True
        # A feed that never pauses must not keep the loop from its other tasks.
        await asyncio.sleep(0)
        while True:
            read = reader._read
            ahead = _look(reader)
            held_back = reader._read != read  # by the filter: more may be there
            if ahead == 0 and not held_back and reader._idle.mode != IDLE_SPIN:
                self._settle(reader)
                if self._sleeper is not None:
                    self._sleeper.arm()
                    ahead = _look(reader)
            if ahead != 0:
                if ahead == READER_CLOSED:
                    self.release()
                return ahead > 0
            rest_ns = deadline_ns - clock_monotonic_ns()
            if rest_ns <= 0:
                return False
            if held_back or reader._idle.mode == IDLE_SPIN:
                await asyncio.sleep(0)
            else:
                await self._sleep(rest_ns)

    async def _sleep(self, int64_t rest_ns):
        tick_ns = UNTOLD_TICK_NS if self._sleeper is None else TICK_NS
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        self._asleep.append(woken)
        timer = loop.call_later(min(rest_ns, tick_ns) / 1e9, self._wake)
        try:
            await woken
        finally:
            timer.cancel()
            self._asleep.remove(woken)

    def _settle(self, Reader reader):
        # Be in the running loop, and watch the file that the present writer writes.
        loop = asyncio.get_running_loop()
        if self._loop is loop and (self._sleeper is None or not self._sleeper.replaced()):
            return
        self.release()
        self._loop = loop
        self._sleeper = reader._source.sleeper()
        if self._sleeper is not None:
            loop.add_reader(self._sleeper.fileno(), self._ring)

    def _ring(self):
        if self._sleeper is not None:
            self._sleeper.drain()
        self._wake()

    def _wake(self):
        for woken in self._asleep:
            if not woken.done():
                woken.set_result(None)

    def release(self) -> None:
        """Leave the event loop. From any thread; a wait then ends if its reader is closed."""
        loop, self._loop = self._loop, None
        sleeper, self._sleeper = self._sleeper, None
        if loop is None or loop.is_closed() or asyncio._get_running_loop() is loop:
            self._leave(loop, sleeper)
        else:
            loop.call_soon_threadsafe(self._leave, loop, sleeper)

    def _leave(self, loop, sleeper):
        if sleeper is not None:
            if not loop.is_closed():
                loop.remove_reader(sleeper.fileno())
            sleeper.close()
        self._wake()


cdef int64_t _look(Reader reader) except -2:
    if reader_in_memory(reader):
        return 1
    return reader._fill(reader._batch, 0, True)
