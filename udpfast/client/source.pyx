"""What a `Reader` reads from: chosen by the prefix of its address."""

from importlib import import_module

from libc.errno cimport EBADMSG, EPIPE

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.idle cimport Idle, idle_step

from udpfast.client.appearing import deadline_of, time_left
from udpfast.errors import ConfigError, RingClosedError, shown

__all__ = ["PolledSource", "Source", "open_source"]

cdef enum:
    LOOK_TURNS = 64

#: Imported only for an address that is wrong.
_HINTS = "udpfast.client.addresses"
#: Prefix of an address -> the module whose `open_source` opens what follows it, and its form.
_SOURCES = {
    "ring": ("udpfast.client.ring_source", "'ring:NAME' or 'ring:/path/to/instance/directory'"),
    "journal": ("udpfast.client.journal_source", "'journal:NAME' or 'journal:/path/to/it'"),
    "store": ("udpfast.client.store_source", "'store:NAME' or 'store:/path/to/it'"),
    "group": ("udpfast.client.group_source", "'group:NAME'"),
    "composite": (
        "udpfast.client.composite_source", "'composite:NAME' or 'composite:/path/to/it'"),
    "zmq": ("udpfast.client.zmq_source", "'zmq:NAME', 'zmq:ipc://path' or 'zmq:tcp://host:port'"),
}


cdef class Source:
    """Records in order, from somewhere. Made by `open_source`; read by a `Reader` alone.

    Attributes
    ----------
    directory : Path or None
        Of the instance, if it is on this host.
    headers_array, offsets_array, payloads_array : numpy.ndarray
        What it fills: dtype `RECORD`, uint64, uint8.
    headers_array : NDArray[Any]
    offsets_array : NDArray[np.uint64]
    payloads_array : NDArray[np.uint8]
    """

    @property
    def origin(self) -> str:
        """Address of the source that the last records came from; empty: there is only one."""
        return ""

    cdef int64_t wait(self, int64_t limit, int64_t until_ns, Idle* idle) noexcept nogil:
        # Fill the arrays from their beginning with what is there, `limit` records at most; wait
        # for the first until until_ns (monotonic) or `closing`, resting by `idle`. Records of one
        # call follow each other without a hole; `missed` says how many are missing before them.
        # Returns the count; 0: nothing came; -EPIPE: nothing more will come; another -errno: what
        # `fail` explains.
        return -EPIPE

    cdef check(self):
        # Called about every 20 ms while nothing comes: raise if nothing ever will.
        pass

    cdef fail(self, int64_t code):
        # Raise what a negative count of `wait` means.
        raise RingClosedError("everything has been read, and the writer has closed it")

    cdef renew_names(self):
        # Set `names` anew if there are none yet, or if the writer began a new table.
        pass

    cdef bint names_missing(self):
        # Whether there are no names yet, and may be some now: then renew_names is called.
        return False

    cdef sleeper(self):
        # What an event loop waits on: an object with `fileno`, readable when there may be
        # something new; `arm`, called before it sleeps (and looks once more); `drain`, when it
        # woke; `replaced`; `close`. A new one at each call. None: look again from time to time.
        return None

    cdef report(self, uint64_t read):
        # Tell tools: everything before next_index was handed out or missed, `read` of it handed
        # out.
        pass

    cdef uint64_t next_index(self):
        # The index of the first record that the next `wait` may bring.
        return 0

    cdef bint joining(self):
        # Whether the next `wait` brings records of an image, which no index counts.
        return False

    cdef bint between(self):
        # Whether `written` does not tell how much there is, because another piece follows.
        return False

    cdef uint64_t missed_total(self):
        return 0

    cdef uint64_t written(self):
        # Index behind the last record written, as far as is known.
        return self.next_index()

    cdef uint64_t writer_epoch(self):
        # Grows by 1 with each writer that takes over; 0: not known.
        return 0

    cdef bint writer_alive(self):
        # Whether something may still come: of a ring, whether its writer's process runs.
        return not self.detached()

    cdef bint writer_ended(self):
        # Whether it said that nothing more will come.
        return False

    cdef bint writer_failed(self):
        # Whether it said that an error ended it: the next one may go on.
        return False

    cdef bint writer_stuck(self):
        # Whether its process is there, but its loop stands still.
        return False

    cdef names_published(self):
        # All exchanges and symbols that were published so far, as far as they are known here.
        table = self.names.table
        return [] if table is None else [table[i] for i in range(1, len(table) + 1)]

    cdef bint detached(self):
        return True

    cdef detach(self):
        # Let go of everything but the arrays. Idempotent; sets `entry` to NULL.
        self.entry = NULL

    cdef use_arrays(self, headers, offsets, payloads):
        self.headers_array = headers
        self.offsets_array = offsets
        self.payloads_array = payloads
        self.headers = <Record*> <size_t> headers.ctypes.data
        self.offsets = <uint64_t*> <size_t> offsets.ctypes.data
        self.payloads = <uint8_t*> <size_t> payloads.ctypes.data


cdef class PolledSource(Source):
    """A source of files that are looked at with the GIL: at once when one of them says that
    something is there, else from time to time.
    """

    def __cinit__(self, *args, **kwargs):
        self.look_turns = LOOK_TURNS

    cdef bint ready(self) noexcept nogil:
        # Whether a look would find something, as far as can be told without one.
        return False

    cdef int64_t poll(self, int64_t limit) except -1:
        # What `wait` returns, of what is there now.
        return -EPIPE

    cdef int64_t look(self, int64_t limit) noexcept:
        # `poll`; what it raised is for `fail`.
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
        start: str | datetime | int | tuple[str, int] | None, batch: int, buffer_bytes: int | None,
        timeout: float | None, name: str, image: bool = False,
        end: str | datetime | int | tuple[str, int] | None = None) -> Source:
    """Open what an address names, or several as one; the parameters are those of `Reader`.

    Raises
    ------
    ConfigError
        No source is called by that prefix, or it has no image, no times or no end.
    """
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
            raise ConfigError("end must be None unless the address is 'journal:...', was "
                              f"{shown(end)}")
    module = import_module(_SOURCES[prefix][0])
    return module.open_source(
        target, start=start, batch=batch, buffer_bytes=buffer_bytes, timeout=timeout, name=name,
        **options)
