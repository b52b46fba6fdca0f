"""The sources that a `Reader` reads from; the prefix of an address selects one."""

from importlib import import_module

import numpy as np

from libc.errno cimport EBADMSG, EPIPE

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.idle cimport Idle, idle_step

from udpfast.archive.names import names_by_role
from udpfast.client.appearing import deadline_of, time_left
from udpfast.errors import ConfigError, RingClosedError, shown

__all__ = ["START_EXPECTED", "PolledSource", "Source", "open_source"]

cdef enum:
    LOOK_TURNS = 64

#: What the start of a reader must be, in the words of an error.
START_EXPECTED = "'tail', 'begin', 'oldest' or a time"

#: Imported only for an invalid address.
_HINTS = "udpfast.client.addresses"
#: By prefix: the module whose `open_source` opens the rest of the address, and the address's form.
_SOURCES = {
    "ring": ("udpfast.client.ring_source", "'ring:NAME' or 'ring:/path/to/instance/directory'"),
    "journal": ("udpfast.client.journal_source", "'journal:NAME' or 'journal:/path/to/journal'"),
    "store": ("udpfast.client.store_source", "'store:NAME' or 'store:/path/to/store'"),
    "group": ("udpfast.client.group_source", "'group:NAME'"),
    "composite": (
        "udpfast.client.composite_source", "'composite:NAME' or 'composite:/path/to/order/log'"),
    "zmq": ("udpfast.client.zmq_source", "'zmq:NAME', 'zmq:ipc://path' or 'zmq:tcp://host:port'"),
}


cdef class Source:
    """The base class of sources: records in order. Made by `open_source`, used by one `Reader`.

    Attributes
    ----------
    directory : Path or None
        Directory of the instance; None if it is not on this host.
    headers_array, offsets_array, payloads_array : numpy.ndarray
        The arrays that `wait` fills: dtype `RECORD`, uint64, uint8.
    headers_array : NDArray[Any]
    offsets_array : NDArray[np.uint64]
    payloads_array : NDArray[np.uint8]
    """

    @property
    def origin(self) -> str:
        """Address of the source of the last records, if there are several; otherwise empty."""
        return ""

    cdef join_others(self):
        self.among = True

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        # Fill the arrays from their beginning with up to `limit` records. Wait for the first one
        # until until_ns (monotonic) or until `closing`, idling as `idle` says. The records of one
        # call are consecutive; `missed` states how many are missing before them. Returns the
        # count; 0: no record came; -EPIPE: none will come any more; another -errno: `fail` raises
        # the reason.
        return -EPIPE

    cdef check(self):
        # Called about every 20 ms while no record comes. Raise if none will ever come.
        pass

    cdef fail(self, int64_t code):
        # Raise the exception for a negative result of `wait`.
        raise RingClosedError("everything has been read, and the writer has closed it")

    cdef renew_names(self):
        # Set `names` if they are not known yet, or if the writer began a new table.
        pass

    cdef bint names_missing(self):
        # Whether names are missing and may exist by now, so that renew_names should be called.
        return False

    cdef sleeper(self):
        # Return a new object for an event loop to wait on: `fileno`, readable when there may be
        # new records; `arm`, called before a last poll and the sleep; `drain`, called after waking;
        # `replaced`; `close`. None: the event loop must poll from time to time.
        return None

    cdef report(self, uint64_t read):
        # Publish this reader's progress for tools: everything before next_index was handed out
        # (`read` records) or missed.
        pass

    cdef uint64_t next_index(self):
        # Index of the first record that the next `wait` may return.
        return 0

    cdef uint64_t next_position(self):
        # Position of that record; 0: not known.
        return 0

    cdef bint joining(self):
        # Whether the next `wait` returns records of an image, which indices do not count.
        return False

    cdef object end(self):
        # Where ends what there is to read now, for `passed`; None: nobody knows yet.
        return self.written()

    cdef bint passed(self, end) except -1:
        # Whether `wait` has returned all up to that end, and the record behind it. What no index
        # counts, a CONNECTION for example, may come in between.
        return self.next_index() > end and not self.joining()

    cdef uint64_t missed_total(self):
        return 0

    cdef uint64_t written(self):
        # Index behind the last record written, as far as known.
        return self.next_index()

    cdef uint64_t writer_epoch(self):
        # Grows by 1 with each writer that takes over; 0: not known.
        return 0

    cdef bint begins_again(self):
        # Whether another writer may go on behind one that has ended.
        return False

    cdef bint writer_alive(self):
        # Whether the writer works; for a ring, whether its process runs.
        return not self.detached()

    cdef bint writer_ended(self):
        # Whether the writer stated that no more records will come.
        return False

    cdef bint writer_failed(self):
        # Whether the writer stated that an error ended it. Another writer may continue.
        return False

    cdef bint writer_stuck(self):
        # Whether the writer's process exists, but its loop does not run.
        return False

    cdef names_published(self):
        # The exchanges and the symbols published so far, as far as known here.
        table = self.names.table
        return (set(), set()) if table is None else names_by_role(table)

    cdef tuple feeds(self):
        # The names of the feed whose records are in memory, and of the log that apps' messages
        # among them belong to, as an export names them (archive/recorded_feed.py); empty: unknown.
        name = "" if self.directory is None else self.directory.name
        return name, name

    cdef bint detached(self):
        return True

    cdef detach(self):
        # Release everything but the arrays. Idempotent; sets `entry` to NULL.
        self.entry = NULL

    cdef use_arrays(self, headers, offsets, payloads):
        self.headers_array = headers
        self.offsets_array = offsets
        self.payloads_array = payloads
        self.headers = <Record*> <size_t> headers.ctypes.data
        self.offsets = <uint64_t*> <size_t> offsets.ctypes.data
        self.payloads = <uint8_t*> <size_t> payloads.ctypes.data


cdef class PolledSource(Source):
    """A source whose records are polled with the GIL held: at once when `ready` says that there
    are some, and otherwise from time to time.
    """

    def __cinit__(self, *args, **kwargs):
        self.look_turns = LOOK_TURNS

    cdef bint ready(self) noexcept nogil:
        # Whether `poll` would find records, as far as can be told without the GIL.
        return False

    cdef int64_t poll(self, int64_t limit) except -1:
        # As `wait`, without waiting.
        return -EPIPE

    cdef int64_t look(self, int64_t limit) noexcept:
        # Call `poll`; keep an exception for `fail` to raise.
        try:
            return self.poll(limit)
        except BaseException as failure:
            self.failure = failure
            return -EBADMSG

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        cdef uint64_t turns = 0
        cdef bint look = True
        cdef int64_t count
        while True:
            if look or self.ready():
                with gil:
                    count = self.look(limit)
                if count != 0:
                    idle_step(idle, 1)
                    return count
            if look and (self.closing or clock_monotonic_ns() >= until_ns):
                return 0
            idle_step(idle, 0)
            turns += 1
            look = idle.parked or turns % self.look_turns == 0

    cdef bint detached(self):
        return self.done


def open_source(
        address: str | list[str] | tuple[str, ...], *,
        start: Moment | tuple[str, int] | None, batch: int, buffer_bytes: int | None,
        timeout: float | None, name: str, image: bool = False,
        end: Moment | tuple[str, int] | None = None) -> Source:
    """Open the source of an address, or of several as one; the parameters are those of `Reader`.

    Raises
    ------
    ConfigError
        The address is invalid, or its source does not support `image`, `end` or this `start`.
    """
    start, end = _plain(start), _plain(end)
    if isinstance(address, (list, tuple)):
        if image:
            raise ConfigError(f"image must be False for several addresses, was {shown(image)}")
        merged = import_module("udpfast.client.merged_source")
        deadline_s = deadline_of(timeout)
        return merged.open_sources(
            address,
            lambda one, start: open_source(
                one, start=start, batch=batch, buffer_bytes=buffer_bytes,
                timeout=None if timeout is None else time_left(deadline_s), name=name, end=end),
            start=start, batch=batch, buffer_bytes=buffer_bytes, deadline_s=deadline_s)
    prefix, colon, target = address.partition(":") if isinstance(address, str) else ("", "", "")
    if not colon or not target or prefix not in _SOURCES:
        if prefix in _SOURCES:
            form = f"be {_SOURCES[prefix][1]}"
        else:
            *most, last = (f"'{each}:'" for each in _SOURCES)
            form = f"begin with {', '.join(most)} or {last}"
        if colon and target:
            hint = import_module(_HINTS).prefix_hint(prefix, target, _SOURCES)
        else:
            hint = "" if colon or not prefix else import_module(_HINTS).address_hint(address)
        raise ConfigError(f"address must {form}, was {shown(address)}{hint}")
    options = {"image": True} if image else {}
    if prefix in ("journal", "store", "composite"):
        start = "tail" if image else "begin" if start is None else start
        options["end"] = end
    else:
        start = "tail" if start is None or image else start
        if prefix == "zmq" and start not in ("tail", "begin", "oldest"):
            raise ConfigError(f"start must be 'tail', 'begin' or 'oldest', was {shown(start)}")
        if end is not None:
            raise ConfigError("end must be None unless the address is 'journal:...' (to end what "
                              f"is live: docs/cookbook.md), was {shown(end)}")
    module = import_module(_SOURCES[prefix][0])
    return module.open_source(
        target, start=start, batch=batch, buffer_bytes=buffer_bytes, timeout=timeout, name=name,
        **options)


def _plain(place):
    # A number of numpy's is as good as an int: a time of an array, a position of a batch.
    if isinstance(place, np.integer):
        return int(place)
    return tuple(map(_plain, place)) if isinstance(place, tuple) else place
