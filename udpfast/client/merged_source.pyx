"""Several sources as one stream: what `Reader([ADDRESS, ...])` reads from.

The order is that of `published_ns`, of equal ones that of the list; the records of one source stay
in their own order. Of journals that are complete it is thus a function of their files. A source
that is live and has nothing new holds up no other: what it publishes later comes later. A feed that
ends in good order says so by a CONNECTION, because the reader goes on with the others. Images come
before all of that, one behind the other: what each object was when its source was opened.
"""

cimport cython
from libc.errno cimport EPIPE
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy

from udpfast.client.ring_source cimport RingSource
from udpfast.client.source cimport PolledSource, Source
from udpfast.core.idle cimport IDLE_SPIN, Idle, idle_reset
from udpfast.core.layout cimport RECORD_SIZE, Record

from functools import partial

import numpy as np

from udpfast.client.appearing import when_there
from udpfast.client.history_source import HistorySource
from udpfast.client.journal_source import journal_start, journal_there
from udpfast.client.ring_history import is_history_of
from udpfast.core.layout import RECORD
from udpfast.errors import ConfigError, RingClosedError

__all__ = ["MergedSource", "Member", "open_sources"]

cdef enum:
    LOOK_TURNS = 16              # a spinning wait looks at its sources this often


@cython.final
cdef class Member:
    """One source of several, and what it brought that is not handed on yet.

    Parameters
    ----------
    source : Source
    address : str
    place : int
        In the list, from 1 on.
    """

    def __init__(self, Source source not None, str address not None, place):
        self.source = source
        self.source.among = True
        self.address = address
        self.place = place

    cdef const Record* ahead(self) noexcept:
        return self.source.headers + self.next

    cdef int look(self, int64_t limit) except -1:
        # Bring something into memory, if there is something. -1 is for exceptions: a source's
        # own trouble is returned as its -errno, negated; 0: none.
        cdef Idle idle
        cdef int64_t count
        if self.ended or self.next < self.count:
            return 0
        idle_reset(&idle, IDLE_SPIN, 0)
        self.source.report(self.read)
        count = self.source.wait(limit, 0, &idle)
        self.next = self.count = 0
        if count == -EPIPE:
            self.ended = True
        elif count < 0:
            return <int>-count
        elif count > 0:
            self.count = count
            self.missed = self.source.missed
            if self.source.names_missing() or self.missed:
                self.source.renew_names()
        return 0


@cython.final
cdef class MergedSource(PolledSource):
    """Some sources, merged.

    Parameters
    ----------
    members : list of Member
    batch : int
        Records that one wait may bring.
    """

    def __init__(self, list members not None, int64_t batch):
        self.look_turns = LOOK_TURNS
        self.members = members
        self.current = members[0]
        self.room = max(len((<Member>each).source.payloads_array) for each in members)
        self.use_arrays(np.zeros(batch, RECORD), np.zeros(batch, np.uint64),
                        np.zeros(self.room, np.uint8))
        self._use_names()

    @property
    def origin(self) -> str:
        """The address whose records the last wait brought."""
        return self.current.source.origin or self.current.address

    cdef int64_t poll(self, int64_t limit) except -1:
        cdef Member member, first = None
        cdef int64_t first_ns = 0, ended = 0
        cdef int code
        self.from_image = False
        for member in self.members:
            code = member.look(len(member.source.headers_array))
            if code != 0:
                self.failing = member
                self.code = -code
                raise _MemberFailed()
            ended += member.ended
            if member.next < member.count and member.source.from_image:
                self.from_image = True
                return self._hand_on(member, min(member.count - member.next, limit))
            if member.next < member.count and (
                    first is None or member.ahead().published_ns < first_ns):
                first, first_ns = member, member.ahead().published_ns
        if first is None:
            return -EPIPE if ended == len(self.members) else 0
        return self._hand_on(first, self._run(first, limit))

    cdef int64_t _run(self, Member member, int64_t limit) except -1:
        # How many records of one source come before those of all others; one at least.
        cdef Member other
        cdef const Record* headers = member.source.headers
        cdef int64_t last_ns = INT64_MAX, end = member.next + 1
        cdef bint before = True      # in the list
        for other in self.members:
            if other is member:
                before = False
            elif other.next < other.count:
                last_ns = min(last_ns, other.ahead().published_ns - before)
        while (end < min(member.count, member.next + limit)
               and headers[end].published_ns <= last_ns):
            end += 1
        return end - member.next

    cdef int64_t _hand_on(self, Member member, int64_t count) except -1:
        cdef Source source = member.source
        cdef uint64_t used = 0, size
        cdef int64_t i, done = 0
        for i in range(member.next, member.next + count):
            size = <uint64_t>source.headers[i].length - RECORD_SIZE
            if used + size > <uint64_t>self.room:
                if done:
                    break
                self._enlarge(size)  # of a source that goes on in a larger ring
            memcpy(self.headers + done, source.headers + i, RECORD_SIZE)
            memcpy(self.payloads + used, source.payloads + source.offsets[i], size)
            self.offsets[done] = used
            used += (size + 7) & ~<uint64_t>7
            done += 1
        self.missed = member.missed
        self.missed_reason = source.missed_reason
        member.missed = 0
        member.next += done
        member.read += done
        self.current = member
        self._use_names()
        return done

    cdef _enlarge(self, uint64_t size):
        self.room = size
        self.use_arrays(self.headers_array, self.offsets_array, np.zeros(size, np.uint8))

    cdef _use_names(self):
        # Ids mean others in each source, and so do numbers of sessions and objects.
        self.names = self.current.source.names
        self.names.source = self.current.place
        self.names.address = self.current.address

    cdef check(self):
        cdef Member member
        for member in self.members:
            if not member.ended:
                member.source.check()

    cdef fail(self, int64_t code):
        if code == -EPIPE:
            raise RingClosedError("everything has been read, and none of the sources has a writer")
        if isinstance(self.failure, _MemberFailed):
            self.failing.source.fail(self.code)
        raise self.failure

    cdef renew_names(self):
        self.current.source.renew_names()
        self._use_names()

    cdef bint names_missing(self):
        return self.current.source.names_missing()

    cdef uint64_t next_index(self):
        # Behind the run that was handed on, so that the reader's lag is the sum of all.
        cdef Member member = self.current
        if member.next < member.count and not member.source.from_image:
            return member.source.headers[member.next].index
        return member.source.next_index()

    cdef uint64_t missed_total(self):
        return sum((<Member>each).source.missed_total() for each in self.members)

    cdef uint64_t written(self):
        cdef Member member
        cdef uint64_t ahead = 0, written, index
        for member in self.members:
            if not member.ended and not member.source.detached():
                written, index = member.source.written(), member.source.next_index()
                ahead += max(written, index) - index  # it may be read further than it was flushed
            if not member.source.from_image:
                ahead += member.count - member.next
        return self.next_index() + ahead

    cdef bint joining(self):
        cdef Member member
        for member in self.members:
            if member.source.joining() or (
                    member.source.from_image and member.next < member.count):
                return True
        return False

    cdef bint between(self):
        cdef Member member
        for member in self.members:
            if not (member.ended or member.source.detached()) and member.source.between():
                return True
        return False

    cdef uint64_t writer_epoch(self):
        return self.current.source.writer_epoch()

    cdef bint writer_alive(self):
        cdef Member member
        for member in self.members:
            if not member.ended and member.source.writer_alive():
                return True
        return False

    cdef bint writer_ended(self):
        cdef Member member
        for member in self.members:
            if not (member.ended or member.source.writer_ended()):
                return False
        return True

    cdef bint writer_stuck(self):
        cdef Member member
        for member in self.members:
            if not member.ended and member.source.writer_stuck():
                return True
        return False

    cdef names_published(self):
        return {name for each in self.members for name in (<Member>each).source.names_published()}

    cdef detach(self):
        cdef Member member
        self.done = True
        for member in self.members:
            member.source.detach()


class _MemberFailed(Exception):
    """One of the sources failed: it says why itself."""


def open_sources(
        addresses: Sequence[str], open_one: Callable[..., Source], *,
        start: str | datetime | int | tuple[str, int] | None, batch: int, buffer_bytes: int | None,
        deadline_s: float) -> MergedSource:
    """Open several addresses as one source.

    Parameters
    ----------
    addresses : sequence of str
    open_one : callable
        Opens one of them, at a place.
    start, batch, buffer_bytes
        As `Reader` has them.
    deadline_s : float
        Until when what is not there yet is waited for, by `time.monotonic`.

    Raises
    ------
    ConfigError
        There are none, or one of them is named twice.
    """
    if not addresses or len(set(addresses)) != len(addresses):
        raise ConfigError(
            f"address must be one or more different addresses, was {list(addresses)!r}")
    left = list(addresses)
    opened = {}
    try:
        for ring in addresses:
            journals = [each for each in left if each.startswith("journal:")]
            if journals and ring.startswith("ring:"):
                opened[ring] = _open_joined(journals, ring, left, open_one, start, (
                    batch, buffer_bytes, deadline_s))
        for address in left:
            if opened.get(address) is None:
                opened[address] = open_one(address, start)
    except BaseException:
        for source in opened.values():
            if source is not None:
                (<Source>source).detach()
        raise
    return MergedSource(
        [Member(opened[address], address, place) for place, address in enumerate(left, 1)], batch)


def _open_joined(journals, ring, left, open_one, start, options):
    # A journal and the ring whose records it has are one source: history, then live. None: none of
    # the journals has them.
    cdef RingSource live = open_one(ring, "tail")
    batch, buffer_bytes, deadline_s = options
    try:
        for address in journals:
            target = address.partition(":")[2]
            directory = when_there(partial(journal_there, target), deadline_s)
            if when_there(partial(is_history_of, directory, live), deadline_s):
                left.remove(address)
                return HistorySource(
                    directory, journal_start(start), live, (address, ring), batch=batch,
                    buffer_bytes=buffer_bytes)
    except BaseException:
        live.detach()
        raise
    live.detach()
    return None
