"""The Source of a list of addresses: several sources as one stream.

Records come in the order of `published_ns`, equal times in the order of the list; the records of
one source keep their own order. For complete journals the order thus depends only on their files. A
live source that has nothing new does not delay the others: its later records come later. When a
feed ends normally, a CONNECTION reports it, because the reader goes on with the other sources; if
it is started again, the reader joins it again, behind its RESTART.
Images come first, one after the other: the state of each object when its source was opened.
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
    LOOK_TURNS = 16              # a spinning wait polls its sources every so many turns
    # Feeds that never pause leave no wait in which to look whether one that ended goes on: then it
    # is done every so many polls. It costs a call of stat.
    AGAIN_POLLS = 1024


@cython.final
cdef class Member:
    """One of several sources, with the records it returned that are not handed on yet.

    Parameters
    ----------
    source : Source
    address : str
        The source's address.
    place : int
        Its place in the list of addresses, from 1.
    """

    def __init__(self, Source source not None, str address not None, place):
        self.source = source
        self.source.join_others()
        self.address = address
        self.place = place

    cdef const Record* ahead(self) noexcept:
        return self.source.headers + self.next

    cdef int look(self, int64_t limit) except -1:
        # Load records into memory if there are some and none is left there. Returns 0, or the
        # positive errno of a source that failed: -1 is reserved for exceptions.
        cdef Idle idle
        cdef int64_t count
        if self.ended or self.next < self.count:
            return 0
        idle_reset(&idle, IDLE_SPIN, 0)
        self.source.report(self.read)
        count = self.source.wait(limit, 0, &idle)
        self.next = self.count = 0
        self.dry = count == 0
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
    """Several sources, merged.

    Parameters
    ----------
    members : list of Member
    batch : int
        Most records that one wait may return.
    """

    def __init__(self, list members not None, int64_t batch):
        self.look_turns = LOOK_TURNS
        self.members = members
        self.current = members[0]
        self.recorded = all((<Member>each).source.recorded for each in members)
        self.room = max(len((<Member>each).source.payloads_array) for each in members)
        self.use_arrays(np.zeros(batch, RECORD), np.zeros(batch, np.uint64),
                        np.zeros(self.room, np.uint8))
        self._use_names()

    @property
    def origin(self) -> str:
        """Address of the source whose records the last wait returned."""
        return self.current.source.origin or self.current.address

    cdef int64_t poll(self, int64_t limit) except -1:
        cdef Member member, first = None
        cdef int64_t first_ns = 0, ended = 0
        cdef int code
        self.from_image = False
        self.turn += 1
        if self.turn % AGAIN_POLLS == 0:
            self._begin_again()
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
            if ended < len(self.members):
                return 0
            self.recorded = True  # each feed's end has been told by its CONNECTION
            return -EPIPE
        return self._hand_on(first, self._run(first, limit))

    cdef int64_t _run(self, Member member, int64_t limit) except -1:
        # Return how many records of one source precede those of all others, at least 1.
        cdef Member other
        cdef const Record* headers = member.source.headers
        cdef int64_t last_ns = INT64_MAX, end = member.next + 1
        cdef bint before = True      # `other` comes before `member` in the list
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
                self._enlarge(size)  # the source continues in a ring with larger payloads
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
        self.entry = source.entry
        self._use_names()
        return done

    cdef _enlarge(self, uint64_t size):
        self.room = size
        self.use_arrays(self.headers_array, self.offsets_array, np.zeros(size, np.uint8))

    cdef _use_names(self):
        # Each source has its own ids of names, and its own numbers of sessions and objects.
        self.names = self.current.source.names
        self.names.source = self.current.place
        self.names.address = self.current.address

    cdef _begin_again(self):
        cdef Member member
        for member in self.members:
            if member.ended and member.source.begins_again():
                member.ended = False

    cdef check(self):
        cdef Member member
        self._begin_again()
        for member in self.members:
            # What is in hand lies in the source's arrays, which it leaves for another piece's.
            if not member.ended and member.next == member.count:
                member.source.check()

    cdef fail(self, int64_t code):
        if code == -EPIPE:
            raise RingClosedError("everything has been read, and none of the sources has a writer")
        if isinstance(self.failure, _MemberFailed):
            self.failing.source.fail(self.code)
        raise self.failure

    cdef tuple feeds(self):
        return self.current.source.feeds()

    cdef renew_names(self):
        self.current.source.renew_names()
        self._use_names()

    cdef bint names_missing(self):
        return self.current.source.names_missing()

    cdef uint64_t next_index(self):
        # The index behind the run that was handed on: the reader's lag is then that of all sources.
        cdef Member member = self.current
        if member.next < member.count and not member.source.from_image:
            return member.source.headers[member.next].index
        return member.source.next_index()

    cdef uint64_t next_position(self):
        return self.current.source.next_position()

    cdef uint64_t missed_total(self):
        return sum((<Member>each).source.missed_total() for each in self.members)

    cdef uint64_t written(self):
        cdef Member member
        cdef uint64_t ahead = 0, written, index
        for member in self.members:
            if not member.ended and not member.source.detached():
                written, index = member.source.written(), member.source.next_index()
                ahead += max(written, index) - index  # records are read before they are flushed
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

    cdef object end(self):
        return [_End(member) for member in self.members]

    cdef bint passed(self, end) except -1:
        cdef _End each
        cdef bint passed = True
        for each in end:
            passed = each.passed() and passed  # ask all: each notes when its source has passed
        return passed

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
        exchanges, symbols = set(), set()
        for each in self.members:
            found = (<Member>each).source.names_published()
            exchanges |= found[0]
            symbols |= found[1]
        return exchanges, symbols

    cdef detach(self):
        cdef Member member
        self.done = True
        self.entry = NULL
        for member in self.members:
            member.source.detach()


@cython.final
cdef class _End:
    # Where ends what a member has to read now. Its source reads ahead, into the member's memory:
    # once that has passed the end, or has nothing, what is in memory then is the last to hand on.
    cdef Member member
    cdef object end              # of its source; None: not known yet
    cdef bint read               # its source has passed it
    cdef uint64_t until          # then: how many records the member will have handed on

    def __init__(self, Member member not None):
        self.member = member
        self.end = member.source.end()
        member.dry = False

    cdef bint passed(self) except -1:
        cdef Member member = self.member
        if not self.read:
            if self.end is None:
                self.end = member.source.end()
            self.read = member.ended or member.dry or member.source.detached() or (
                self.end is not None and member.source.passed(self.end))
            self.until = member.read + member.count - member.next
        return self.read and member.read >= self.until


class _MemberFailed(Exception):
    """A source failed; its own `fail` raises the reason."""


def open_sources(
        addresses: Sequence[str], open_one: Callable[..., Source], *,
        start: Moment | tuple[str, int] | None, batch: int, buffer_bytes: int | None,
        deadline_s: float) -> MergedSource:
    """Open several addresses as one source.

    Parameters
    ----------
    addresses : sequence of str
        The addresses, each once.
    open_one : callable
        Called with an address and a start; returns its Source.
    start, batch, buffer_bytes
        As for `Reader`.
    deadline_s : float
        How long to wait for targets that do not exist yet, by `time.monotonic`.

    Raises
    ------
    ConfigError
        `addresses` is empty, or has an address twice.
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
    # Open a ring and the journal that keeps its records as one source: history, then live. Return
    # None if none of the journals keeps them.
    # Whoever wants history does not wait for the next writer of a ring that has ended.
    cdef RingSource live = open_one(ring, "tail" if start == "tail" else "oldest")
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
