"""What a feed asks venues' servers for, and their answers. The protocol is in `answers.pxd`."""

from pathlib import Path
from typing import NamedTuple

from libc.string cimport memcpy, memset

from udpfast.core.atomics cimport counter_add, fence_acquire, load_acquire, store_release
from udpfast.shm.region cimport REGION_PAGE, Region

from udpfast.core.counter import CounterInfo
from udpfast.errors import RegionError

__all__ = ["AnswersRegion", "TALLIES", "Wants", "Wanted", "read_tallies"]

_KIND = "ANSW"
_LAYOUT_HASH = 4  # version of AnswersHeader and of the tallies
_TRIES = 64

#: Counters of each kind of agent, by the name of its table in a feed's file.
TALLIES: dict[str, tuple[CounterInfo, ...]] = {
    "retransmission": (
        CounterInfo("requests", "count", "requests sent"),
        CounterInfo("repeated", "count", "of these, requests for numbers that were asked for "
                                         "before and did not come in time"),
        CounterInfo("answers", "count", "datagrams that answer, handed to the feed"),
        CounterInfo("messages", "count", "messages in them"),
        CounterInfo("strange", "count", "datagrams that answer nothing: another session or "
                                        "server, numbers nobody asked for, or bytes that are not "
                                        "of the framing"),
        CounterInfo("quota", "count", "times that a request had to wait for the venue's limits, "
                                      "as the settings have them"),
        CounterInfo("unasked", "count", "looks at holes whose session no request can name"),
        CounterInfo("failures", "count", "requests that could not be sent, or that the server's "
                                         "host refused"),
        CounterInfo("full", "count", "answers that had to wait for room"),
        CounterInfo("dropped", "count", "answers dropped because too many waited for room"),
        CounterInfo("silent", "code", "1: the server has not answered its last requests, or "
                                      "cannot be asked"),
        CounterInfo("refusals", "count", "logins and requests that the server refused"),
        CounterInfo("late", "count", "answers for numbers that had come, or were lost, by then"),
        CounterInfo("others", "count", "datagrams of a group of answers that somebody else asked "
                                       "for; those that fill a hole are handed to the feed"),
    ),
    "snapshot_server": (
        CounterInfo("requests", "count", "snapshots asked for"),
        CounterInfo("snapshots", "count", "complete snapshots handed to the feed"),
        CounterInfo("messages", "count", "messages of snapshots that came"),
        CounterInfo("orders", "count", "orders handed to the feed"),
        CounterInfo("refusals", "count", "logins or requests that the server refused"),
        CounterInfo("failures", "count", "connections that could not be made, or ended before "
                                         "the snapshot did"),
        CounterInfo("broken", "count", "snapshots given up because of what they say"),
        CounterInfo("too_old", "count", "snapshots from before what the feed lacks, or from "
                                        "before the last one"),
        CounterInfo("ahead", "count", "snapshots that had to wait until the feed had come so far"),
        CounterInfo("full", "count", "datagrams that had to wait for room"),
        CounterInfo("silent", "code", "1: the last attempt brought no snapshot"),
        CounterInfo("quota", "count", "times that an attempt had to wait for "
                                      "`snapshot_server.requests_per_day`"),
    ),
}


class Wanted(NamedTuple):
    """Numbers of one stream that the feed lacks.

    Attributes
    ----------
    session : int
        As published.
    first, last : int
        Both inclusive. A snapshot must contain everything up to `last`.
    number : int
        The latest number of the stream that the feed delivered or lost.
    stream : int
        The stream, as its publisher names it.
    numbering : int
        Ordinal of the session in the feed's log. It tells numbers apart that a publisher began anew
        under the same session id: nothing that is known of the one holds for the other.
    """

    session: int
    first: int
    last: int
    number: int
    stream: int
    numbering: int = 0


class Wants(NamedTuple):
    """Everything that a feed asks for.

    Attributes
    ----------
    header : bytes
        The first bytes of a recent datagram.
    wanted : list[Wanted]
    """

    header: bytes
    wanted: list[Wanted]


cdef class AnswersRegion:
    """The file shared by a feed's loop and one agent that asks a server for what the feed lacks.

    Attributes
    ----------
    region : Region
    """

    @staticmethod
    def create(
            directory: str | os.PathLike[str], name: str, int channel, int line) -> AnswersRegion:
        """Create the empty file in an instance's directory; agents find it after `mark_ready`.

        Parameters
        ----------
        directory : str or path
        name : str
            A key of `TALLIES`.
        channel, line : int
            Channel and line as which the answers count.
        """
        cdef AnswersRegion made = AnswersRegion.__new__(AnswersRegion)
        made.region = Region.create(
            _path(directory, name), _KIND, REGION_PAGE + ANSWERS_BYTES, _LAYOUT_HASH,
            replace=True, keep=False)
        made._point()
        made._is_loop = True
        made.answers.channel = <uint8_t>channel
        made.answers.line = <uint8_t>line
        return made

    @staticmethod
    def attach(directory: str | os.PathLike[str], name: str) -> AnswersRegion:
        """Open the file of a running feed as its agent.

        Raises
        ------
        OSError
            There is no such file, or this user may not write it.
        RegionError
            The file is of another version.
        """
        cdef AnswersRegion made = AnswersRegion.__new__(AnswersRegion)
        made.region = Region.attach(_path(directory, name), _KIND, _LAYOUT_HASH, writable=True)
        if made.region.size_bytes != REGION_PAGE + ANSWERS_BYTES:
            raise RegionError(f"{made.region.path}: expected {REGION_PAGE + ANSWERS_BYTES} bytes, "
                              f"found {made.region.size_bytes}")
        made._point()
        return made

    cdef _point(self):
        self.answers.header = <AnswersHeader*>self.region.pointer
        self.answers.queue = self.region.pointer + REGION_PAGE
        self._written = self.answers.header.written

    def put(self, data: bytes | bytearray | memoryview) -> bool:
        """Hand a datagram to the loop; return False if there is no room for it now.

        Parameters
        ----------
        data : bytes
            The datagram, 1 to 65,535 bytes.
        """
        cdef bytes copied = bytes(data)
        cdef uint64_t size = len(copied)
        cdef uint64_t need = ANSWER_ALIGN + ((size + ANSWER_ALIGN - 1) & ~<uint64_t>7)
        cdef uint64_t at = self._written & (ANSWERS_BYTES - 1)
        cdef uint64_t rest = ANSWERS_BYTES - at
        cdef uint64_t padding = rest if rest < need else 0
        cdef uint64_t used = self._written - load_acquire(&self.answers.header.read)
        if not 0 < size < 65536:
            raise ValueError(f"expected 1 to 65535 bytes, found {size}")
        if used + padding + need > ANSWERS_BYTES:
            return False
        if padding:
            memset(self.answers.queue + at, 0, ANSWER_ALIGN)
            at = 0
        (<uint32_t*>(self.answers.queue + at))[0] = <uint32_t>size
        (<uint32_t*>(self.answers.queue + at))[1] = 0
        memcpy(self.answers.queue + at + ANSWER_ALIGN, <const char*>copied, size)
        self._written += padding + need
        store_release(&self.answers.header.written, self._written)  # read by answers_take
        return True

    @property
    def waiting(self) -> bool:
        """Whether some of the datagrams that were put have not been taken yet."""
        return load_acquire(&self.answers.header.read) != self._written

    @property
    def over(self) -> bool:
        """Whether the feed has ended."""
        return load_acquire(&self.answers.header.over) != 0

    def wants(self) -> Wants | None:
        """Return what the feed asks for now; None: the loop is writing it, try again."""
        cdef AnswersHeader* header = self.answers.header
        cdef AnswersHeader copied
        cdef uint64_t version
        cdef uint32_t i
        for _ in range(_TRIES):
            version = load_acquire(&header.version)
            if version & 1:
                continue
            memcpy(&copied, header, sizeof(AnswersHeader))
            fence_acquire()      # orders the copy before the second load of the version
            if load_acquire(&header.version) == version:
                wanted = [
                    Wanted(copied.wants[i].session, copied.wants[i].first, copied.wants[i].last,
                           copied.wants[i].number, copied.wants[i].stream,
                           copied.wants[i].numbering)
                    for i in range(min(copied.count, <uint32_t>WANTS_MAX))]
                size = min(copied.header_size, <uint32_t>HEADER_BYTES)
                return Wants(bytes(copied.header[:size]), wanted)
        return None

    def count(self, int index, int64_t more=1) -> None:
        """Add to a tally, given by its index in `TALLIES`. For the agent only."""
        counter_add(&self.answers.header.tallies[index], more)

    def tell(self, int index, int64_t value) -> None:
        """Set a tally that is not a sum. For the agent only."""
        counter_add(&self.answers.header.tallies[index],
                    value - self.answers.header.tallies[index])

    def say(self, wanted: list[Wanted], header: bytes = b"") -> None:
        """Publish what is asked for, as the loop does. For tests."""
        cdef Answers* a = &self.answers
        cdef Want* want
        cdef uint32_t count = 0
        cdef bytes begin = bytes(header)[:HEADER_BYTES]
        wants_begin(a)
        a.header.header_size = <uint32_t>len(begin)
        memcpy(a.header.header, <const char*>begin, len(begin))
        for one in wanted:
            want = &a.header.wants[count]
            want.session, want.first, want.last, want.number, want.stream, want.numbering = one
            count += 1
        wants_end(a, count)

    def take(self) -> list[bytes]:
        """Return the datagrams that the loop would take in one turn. For tests."""
        cdef Datagram items[ANSWERS_BATCH]
        cdef int i, count = answers_take(&self.answers, items)
        taken = [items[i].data[:items[i].size] for i in range(count)]
        answers_done(&self.answers)
        return taken

    def close(self) -> None:
        """Release the file. The loop's end also tells the agent that the feed ended. Idempotent."""
        if self._is_loop and self.answers.header != NULL:
            store_release(&self.answers.header.over, 1)
        self.answers.header = NULL
        self.region.close()


def read_tallies(directory: str | os.PathLike[str], name: str) -> dict[str, int]:
    """Return the counters of an instance's agent by name; empty: it has no such agent.

    Raises
    ------
    RegionError
        The file is of another version.
    """
    cdef Region region
    cdef const AnswersHeader* header
    cdef int i
    try:
        region = Region.attach(_path(directory, name), _KIND, _LAYOUT_HASH)
    except FileNotFoundError:
        return {}
    with region:
        header = <const AnswersHeader*>region.pointer
        return {info.name: header.tallies[i] for i, info in enumerate(TALLIES[name])}


def _path(directory, name):
    return Path(directory) / f"answers.{name}"
