"""Readers in an event loop: `async for record in reader`, `await reader.arrival()`."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from udpfast.client.reader cimport READER_CLOSED, Reader, reader_deadline, reader_in_memory
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.idle cimport IDLE_SPIN

import asyncio

__all__ = ["Arrivals", "Records"]

cdef enum:
    # How often a sleeping reader looks without being woken: its writer may have died, another file
    # may have replaced the ring's, another thread may have called close. Costs 0.1 % of a core.
    TICK_NS = 50_000_000
    # The same if the writer cannot wake the reader: a ring of another user, or without a wake file.
    UNTOLD_TICK_NS = 5_000_000


@cython.final
cdef class Records:
    """The asynchronous iterator over a reader's records; `async for` makes it.

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
        """Return an awaitable of the next `ReadRecord`; it does not suspend if one is in memory."""
        cdef Next following = Next.__new__(Next)
        following._reader = self._reader
        return following


@cython.final
@cython.freelist(8)
cdef class Next:
    # Takes the next record only when it is awaited, so that a task cancelled before takes none. It
    # makes no coroutine if the record is in memory already.
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
    """Connects a reader to an event loop: the loop watches a descriptor while the reader waits.

    It has no reference to the reader, so that the loop does not keep a dropped reader alive.
    """

    cdef object _loop            # the loop that the sleeper's descriptor is registered with
    cdef object _sleeper         # None: the writer cannot wake this reader
    cdef list _asleep            # futures that waiting tasks sleep on, one per task

    def __cinit__(self):
        self._asleep = []

    async def wait(self, Reader reader not None, timeout: float | None = None) -> bool:
        """Wait until `reader` has something to read; return False on timeout or at its end."""
        cdef int64_t deadline_ns = reader_deadline(timeout)
        cdef int64_t ahead, rest_ns
        cdef uint64_t read
        if reader_in_memory(reader):
            return True
        # Yield once, so that a feed that never pauses cannot starve the loop's other tasks.
        await asyncio.sleep(0)
        while True:
            read = reader._read
            ahead = _look(reader)
            held_back = reader._read != read  # the filter dropped records; more may be there
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
        # Register with the running loop, and watch the wake file of the current writer.
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
        """Leave the event loop, and wake all waits. May be called from any thread."""
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
