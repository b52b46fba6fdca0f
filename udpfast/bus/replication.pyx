"""One store on two hosts: what either end of a link does with bytes and time.

Neither end has a socket or a clock. `feed` takes what arrived, `output` gives what is to be sent,
`work` lets time pass. An end that is `closed` stays so: whoever holds it opens another link.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from udpfast.bus.log cimport header_position, log_copy, place_look, place_run
from udpfast.bus.wire cimport (
    LINK_ACK, LINK_BODY_MAX, LINK_BYE, LINK_DATA, LINK_FENCE, LINK_FENCED, LINK_HEADER_SIZE,
    LINK_HEARTBEAT, LINK_HELLO, LINK_NAMES, LINK_REFUSE, LINK_SEGMENT, LINK_WELCOME, Progress,
    link_header, link_look)
from udpfast.core.layout cimport Record
from udpfast.log.segment cimport LOOK_END, record_look

from udpfast.bus.hello import Fenced, Hello, Refuse, RefuseReason, Welcome
from udpfast.bus.lineage import divergence
from udpfast.bus.wire import link_frame, link_parse

__all__ = ["Consumer", "Source"]

# Of the newest epoch: it has no end yet.
cdef uint64_t UNTIL_NONE = 0xFFFFFFFFFFFFFFFF

cdef enum:
    STAGING = LINK_HEADER_SIZE + LINK_BODY_MAX  # one frame, whole
    # What is wrong with DATA:
    DATA_PLACE = -1              # it does not continue the copy
    DATA_RECORD = -2             # a record is not what was written
    DATA_SEGMENT = -3            # records beyond the end of the segment

cdef bytes NO_IDENTITY = bytes(16)


cdef class Source:
    """The end of a link at which the records are.

    Parameters
    ----------
    store : Store
    nonce : int
        Drawn for this link.
    now_ns : int
        Monotonic.

    Attributes
    ----------
    consumer : str
        The host that it copies to; empty before its HELLO.
    closed : str
        Why it ended; empty: it lives.
    following : bool
    acked, acked_synced : int
        What the copy has, and what its disk has.
    """

    def __init__(self, Store store, nonce, int64_t now_ns):
        self.store = store
        self.consumer = self.closed = ""
        self._nonce = nonce
        self._input = b""
        self._output = []
        self.heard_ns = self.said_ns = now_ns

    def feed(self, data, int64_t now_ns) -> None:
        """Take bytes that arrived."""
        self.heard_ns = now_ns
        self._input += bytes(data)
        try:
            while not self.closed:
                found = link_parse(self._input)
                if found is None:
                    return
                frame, size = found
                self._input = self._input[size:]
                self._take(frame, now_ns)
        except ValueError as problem:
            self.close(f"not understood: {problem}")

    def _take(self, frame, now_ns):
        cdef Progress progress
        cdef bytes body = frame.body
        if frame.type == LINK_ACK and self.following and len(body) >= <int>sizeof(Progress):
            memcpy(&progress, <const char*>body, sizeof(progress))
            if progress.end > self.store.end or progress.synced > progress.end:
                raise ValueError(f"an ACK of {progress.end}, {progress.synced} synced, of a store "
                                 f"that ends at {self.store.end}")
            self.acked, self.acked_synced = progress.end, progress.synced
            self.store.acks[self.consumer] = (progress.end, progress.kept)
        elif frame.type == LINK_HELLO and not self.following:
            self._welcome(Hello.unpack(body), frame.epoch, now_ns)
        elif frame.type == LINK_FENCE and not self.following:
            self._fence(frame.epoch)
        else:
            raise ValueError(f"a frame of type {frame.type} here")

    def _fence(self, uint64_t epoch):
        cdef Store store = self.store
        was_writer = store.writer
        store.fence(epoch)
        self._output.append(link_frame(LINK_FENCED, 0, store.epoch, Fenced(
            store.promised, store.epoch, store.end, store.log.end_index, store.released,
            was_writer, store.host).pack()))

    def _welcome(self, hello, uint64_t promised, now_ns):
        cdef Store store = self.store
        refuse = self._decide(hello, promised, now_ns)
        if refuse is not None:
            self._output.append(link_frame(LINK_REFUSE, 0, store.promised, refuse.pack()))
            self.close(f"refused {refuse.reason.name}")
            return
        first, first_index = store.log.first()
        self.consumer = hello.host
        self.following = True
        self._relayed = hello.any_source or hello.drain
        self._lost = not store.writer_known
        store.links[hello.host] = self
        self._cuts = store.cuts
        self._place.position = first if hello.identity == NO_IDENTITY else hello.position
        self._stand(self._place.position)
        self.acked = self._place.position
        self._output.append(link_frame(LINK_WELCOME, self._place.position, store.epoch, Welcome(
            store.identity, first, first_index, store.end, store.log.synced(), store.released,
            store.kept, self._nonce, store.host, store.writer_known,
            tuple(store.lineage.pairs)).pack()))
        self.said_ns = now_ns

    def _decide(self, hello, uint64_t promised, now_ns):
        # Why this copy is not served; None: it is.
        cdef Store store = self.store
        if hello.identity != NO_IDENTITY and hello.identity != store.identity:
            return Refuse(RefuseReason.WRONG_STORE if store.identity != NO_IDENTITY
                          else RefuseReason.BEHIND)
        if store.identity == NO_IDENTITY:
            return Refuse(RefuseReason.BEHIND)
        if hello.layout_hash != store.log.layout_hash:
            return Refuse(RefuseReason.LAYOUT, own=0, other=0)
        known = max([promised] + [epoch for epoch, _ in hello.lineage])
        if known > store.promised:
            # Somebody was promoted since: whatever this host writes from now on is of no worth.
            store.fence(known)
        if store.epoch < store.promised and not hello.drain:
            return Refuse(RefuseReason.FENCED, store.promised)
        other = store.links.get(hello.host)
        if other is not None and not other.closed:
            if now_ns - other.heard_ns < SILENT_NS:
                return Refuse(RefuseReason.NAME_IN_USE)
            other.close("another link of that host began")
        if not (store.writer or hello.any_source or hello.drain):
            return Refuse(RefuseReason.NOT_WRITER)
        return self._compare(hello)

    def _compare(self, hello):
        # Whether a copy is the beginning of this one, and goes on where this one still has records.
        cdef Store store = self.store
        first = store.log.first()[0]
        if hello.identity == NO_IDENTITY:
            return None
        at = divergence(store.lineage.pairs, store.end, hello.lineage, hello.position)
        if hello.position > at:
            # In the epoch of this one's last record, further: it may come here yet.
            if (not store.writer and at == store.end and hello.lineage
                    and max(hello.lineage)[0] == store.epoch):
                return Refuse(RefuseReason.BEHIND, at)
            return Refuse(RefuseReason.DIVERGED, at, store.log.checksum_at(at) or 0,
                          hello.last[1] if hello.last and hello.last[0] == at else 0)
        if hello.position < first:
            return Refuse(RefuseReason.GONE, first)
        if hello.last is not None and hello.last[0] >= first:
            own = store.log.checksum_at(hello.last[0])
            if own != hello.last[1]:
                return Refuse(RefuseReason.DIVERGED, hello.last[0], own or 0, hello.last[1])
        return None

    def _stand(self, uint64_t position):
        # Go on there: maybe in another segment, maybe in another epoch.
        self._memory = self.store.log.place_at(position, &self._place)
        header = self.store.log.segment_header(position)
        self._announced = not header or position != header_position(header)
        number = self.store.log.names_at(position)
        if number != self._names:
            self._names, self._names_told = number, 0
        self._look_epoch()

    def _look_epoch(self):
        epoch, until = self.store.lineage.at(self._place.position)
        self._epoch, self._until = epoch, UNTIL_NONE if until is None else until

    cdef uint64_t next_run(self, LinkHeader* header, const uint8_t** at):
        # The next run of records and the header for it; 0: there is none now.
        cdef uint64_t size, count
        cdef Store store = self.store
        if not self.following or self.closed:
            return 0
        if store.cuts != self._cuts:
            self.close("records were set aside")
            return 0
        if self._until == UNTIL_NONE:
            self._look_epoch()
        if self._place.position >= self._until:
            self._look_epoch()
        if place_look(&self._place) == LOOK_END:
            self._stand(self._place.position)
        if not self._announced:
            self._output.append(link_frame(
                LINK_SEGMENT, self._place.position, self._epoch,
                store.log.segment_header(self._place.position)))
            self._announced = True
        # The writer's own tail is not looked at: a record is there when its commit word is.
        size = place_run(&self._place, self._until, LINK_BODY_MAX, &count)
        if size:
            at[0] = <const uint8_t*><size_t>(self._place.base + self._place.position)
            link_header(header, LINK_DATA, <unsigned int>size, self._place.position, self._epoch,
                        NULL)
            self._place.position += size
            self._place.index += count
            if self._names:
                self._tell_names()
        return size

    cdef _tell_names(self):
        # After a look at the records: each name was there before the first that carries its id.
        while True:
            said, told = self.store.log.names_since(self._names, self._names_told)
            if not said:
                return
            self._output.append(link_frame(LINK_NAMES, self._place.position, self._epoch, said))
            self._names_told = told

    def output(self, uint64_t room=1 << 20) -> bytes:
        """Return what is to be sent next: whole frames, as long as they begin below `room`."""
        cdef LinkHeader header
        cdef const uint8_t* at = NULL
        cdef uint64_t size
        cdef uint64_t total = 0
        parts = []
        while total < room:
            size = self.next_run(&header, &at)
            control = self.take_control()
            if control:
                parts.append(control)
                total += len(control)
            if size == 0:
                break
            parts.append((<const char*>&header)[:LINK_HEADER_SIZE])
            parts.append((<const char*>at)[:size])
            total += LINK_HEADER_SIZE + size
        return b"".join(parts)

    def take_control(self) -> bytes:
        """Return the frames that are no records, which go before the records of `next_run`."""
        control = b"".join(self._output)
        self._output.clear()
        return control

    def work(self, int64_t now_ns, int64_t unix_ns) -> None:
        """Let time pass: tell how far the store is; end if nothing was heard for a second."""
        cdef Progress progress
        cdef Store store = self.store
        if self.closed:
            return
        if now_ns - self.heard_ns >= SILENT_NS:
            self.close("silent")
            return
        if not self.following:
            return
        if not (store.writer or self._relayed):
            # It looks for the writer now, to which alone its progress counts.
            self.close("another host writes the store")
            return
        if self._lost and store.writer_known:
            self.close("this host knows now who writes the store")
            return
        told = (store.released if store.gate else 0, store.kept)
        since = now_ns - self.said_ns
        if since >= BEAT_NS or (told != self._told and since >= PROGRESS_NS):
            progress.end = store.end
            progress.synced = store.log.synced()
            progress.released = store.released
            progress.kept = store.kept
            progress.unix_ns = unix_ns
            self._output.append(link_frame(LINK_HEARTBEAT, 0, store.epoch,
                                           (<char*>&progress)[:sizeof(progress)]))
            self._told = told
            self.said_ns = now_ns

    @property
    def sent(self) -> int:
        """Position behind the last record that was given out."""
        return self._place.position

    def end(self) -> None:
        """Say that the writer closed the store, and that this was all."""
        if self.following and not self.closed:
            self._output.append(link_frame(LINK_BYE, self._place.position, self.store.epoch))

    def close(self, str reason) -> None:
        """End it. Idempotent."""
        if not self.closed:
            self.closed = reason
            self._memory = None
            if self.store.links.get(self.consumer) is self:
                del self.store.links[self.consumer]


cdef class Consumer:
    """The end of a link at which the copy is.

    Parameters
    ----------
    store : Store
    nonce : int
        Drawn for this link.
    now_ns : int
        Monotonic.
    any_source : bool
        Follow the other host whether that is the store's writer or a replica.
    drain : bool
        Take what it has of an epoch that is over: this host takes over.

    Attributes
    ----------
    closed : str
        Why it ended; empty: it lives.
    refused : Refuse or None
    welcome : Welcome or None
    stalled : bool
        There is no room for the next segment.
    damaged : bool
        It ended because bytes were not what was sent.
    source_end : int
        Where the source's records end, as it said last.
    """

    def __cinit__(self):
        self._staging = <uint8_t*>malloc(STAGING)
        if self._staging == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._staging)

    def __init__(self, Store store, nonce, int64_t now_ns, *, any_source=False, drain=False):
        self.store = store
        self._log = store.log
        self.closed = ""
        self.heard_ns = self._acked_ns = now_ns
        self._acked = store.end
        self._epoch = store.epoch
        store.unroll()
        self._drain = drain
        self._any = any_source
        self._output = [link_frame(LINK_HELLO, store.end, store.promised, Hello(
            store.identity, self._log.layout_hash, store.end, self._log.end_index, self._log.last,
            any_source, drain, nonce, store.host, tuple(store.lineage.before(store.end))).pack())]

    @property
    def room(self) -> int:
        """How many bytes `feed` takes now."""
        return 0 if self.stalled else STAGING - self._size

    def feed(self, data, int64_t now_ns) -> int:
        """Take bytes that arrived, at most `room`; return how many were taken."""
        cdef bytes content = bytes(data)
        cdef uint64_t count = min(<uint64_t>len(content), <uint64_t>self.room)
        self.heard_ns = now_ns
        memcpy(self._staging + self._size, <const char*>content, count)
        self._size += count
        self._process()
        return count

    cdef _process(self):
        cdef uint64_t at = 0
        cdef int64_t size
        cdef const LinkHeader* header
        try:
            while not self.closed:
                size = link_look(self._staging + at, self._size - at)
                if size < 0:
                    self.damaged = True
                    self.close("bytes that are no frame")
                if size <= 0:
                    break
                header = <const LinkHeader*>(self._staging + at)
                if header.type == LINK_DATA:
                    self._copy(header, self._staging + at + LINK_HEADER_SIZE)
                elif not self._control(header, self._staging + at + LINK_HEADER_SIZE):
                    break
                at += size
        except ValueError as problem:
            self.close(f"not understood: {problem}")
        memmove(self._staging, self._staging + at, self._size - at)
        self._size -= at

    cdef _copy(self, const LinkHeader* header, const uint8_t* body):
        cdef int rc
        cdef Log log = self._log
        if not self.following or header.epoch < self._epoch or self._is_over(header.epoch):
            self.close("records of an epoch that is over")
            return
        if header.epoch > self._epoch:
            if header.position != self._log.writer.position:
                self.close("records that do not continue the copy")
                return
            self.store.begin_copied(header.epoch)
            self._epoch = header.epoch
        with nogil:
            rc = self._data(log, header, body)
        if rc == DATA_RECORD:
            self.damaged = True
            self.close("a record that is not what was written")
        elif rc < 0:
            self.close("records that do not continue the copy" if rc == DATA_PLACE
                       else "records beyond the end of their segment")

    cdef int _data(self, Log log, const LinkHeader* header, const uint8_t* body) noexcept nogil:
        # Copy a run of records. Each is checked in full before any of it can be seen.
        cdef int64_t size
        cdef uint64_t at = 0
        if header.position != log.writer.position:
            return DATA_PLACE
        while at < header.length:
            size = record_look(
                body + at, header.length - at, log.writer.position, log.writer.index)
            if size <= 0:
                return DATA_RECORD
            if not log_copy(log, <const Record*>(body + at), size):
                return DATA_SEGMENT
            at += size
        return 0

    cdef bint _control(self, const LinkHeader* header, const uint8_t* at) except *:
        # False: it must wait.
        cdef Progress progress
        cdef bytes body = (<const char*>at)[:header.length]
        if header.type == LINK_HEARTBEAT and self.following and header.length >= sizeof(progress):
            if self._is_over(header.epoch):
                self.close("an epoch that is over")
                return True
            memcpy(&progress, at, sizeof(progress))
            self.source_end = progress.end
            self.store.learn(progress.released, progress.kept)
        elif header.type == LINK_SEGMENT and self.following:
            return self._segment(header.position, body)
        elif header.type == LINK_NAMES and self.following:
            self._log.take_names(body)
        elif header.type == LINK_WELCOME and not self.following:
            self._welcomed(Welcome.unpack(body), header)
        elif header.type == LINK_REFUSE:
            self.refused = Refuse.unpack(body)
            self.close(f"refused: {self.refused.reason.name}")
        elif header.type == LINK_BYE and self.following:
            self.complete = True
            self.close("complete")
        else:
            raise ValueError(f"a frame of type {header.type} here")
        return True

    cdef bint _is_over(self, uint64_t epoch):
        # Whether a later epoch was promised than the source knows. Its records may be older.
        self._known = max(self._known, epoch)
        return self._known < self.store.promised and not self._drain

    cdef _welcomed(self, welcome, const LinkHeader* header):
        cdef Store store = self.store
        if self._is_over(max((epoch for epoch, _ in welcome.lineage), default=0)):
            self.close("an epoch that is over")
            return
        if store.identity == NO_IDENTITY:
            store.adopt(welcome.identity, welcome.first, welcome.first_index, welcome.lineage)
            self._epoch = store.epoch
        if store.identity != welcome.identity or header.position != store.end:
            raise ValueError(f"a WELCOME to {header.position} of {welcome.identity.hex()}")
        self.welcome = welcome
        self.following = True
        store.learn_writer(welcome.writer, header.epoch)
        self.source_end = welcome.end
        store.learn(welcome.released, welcome.kept)

    cdef bint _segment(self, uint64_t position, bytes header) except *:
        if position != self._log.writer.position:
            raise ValueError(f"a segment at {position} of a copy that ends at {self.store.end}")
        self.stalled = not self._log.roll(header)
        return not self.stalled

    def work(self, int64_t now_ns, int64_t unix_ns) -> None:
        """Let time pass: say how far the copy is; end if nothing was heard for a second."""
        cdef Progress progress
        cdef Store store = self.store
        if self.closed:
            return
        if self.stalled:
            self.stalled = False
            self._process()
            self.heard_ns = now_ns  # what it says lies where it is not read
        if now_ns - self.heard_ns >= SILENT_NS:
            self.close("silent")
            return
        if not self.following:
            return
        end = store.end
        kept = store.kept_below()
        told = (end, self._log.synced(), kept)
        since = now_ns - self._acked_ns
        if since >= BEAT_NS or end - self._acked >= ACK_BYTES or (
                told != self._told and since >= BUSY_ACK_NS):
            progress.end = end
            progress.synced = min(told[1], end)
            progress.released = store.released
            progress.kept = kept
            progress.unix_ns = unix_ns
            self._output.append(link_frame(LINK_ACK, 0, store.promised,
                                           (<char*>&progress)[:sizeof(progress)]))
            self._acked, self._acked_ns, self._told = end, now_ns, told

    def output(self) -> bytes:
        """Return what is to be sent next."""
        said = b"".join(self._output)
        self._output.clear()
        return said

    def close(self, str reason) -> None:
        """End it. Idempotent."""
        if not self.closed:
            self.closed = reason

    @property
    def diverged_at(self):
        """Where the copy is not its source's any more; None: as far as is known, it is."""
        if self.refused is None or self.refused.reason != RefuseReason.DIVERGED:
            return None
        return self.refused.at
