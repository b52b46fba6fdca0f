"""One store on two hosts: what either end of a link does with bytes and time.

Neither end has a socket or a clock. `feed` takes what arrived, `output` gives what is to be sent,
`work` lets time pass. An end that is `closed` stays so: whoever holds it opens another link.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from udpfast.bus.log cimport (
    header_position, log_copy, place_look, place_run, place_whole, store_learn)
from udpfast.bus.wire cimport (
    LINK_ACK, LINK_BODY_MAX, LINK_BYE, LINK_DATA, LINK_FENCE, LINK_FENCED, LINK_HEADER_SIZE,
    LINK_HEARTBEAT, LINK_HELLO, LINK_NAMES, LINK_REFUSE, LINK_SEGMENT, LINK_WELCOME,
    PROGRESS_LEAST, Progress, link_header, link_look, progress_let_go)
from udpfast.core.atomics cimport load_acquire
from udpfast.core.hold cimport hold_give, hold_take
from udpfast.core.layout cimport Record
from udpfast.log.segment cimport LOOK_END, record_look

from udpfast.bus.hello import Fenced, Hello, Refuse, RefuseReason, Welcome
from udpfast.bus.lineage import divergence
from udpfast.bus.wire import link_frame, link_parse
from udpfast.errors import FormatError

__all__ = ["LinkReceiver", "LinkSender"]

# The newest epoch ends there: it has no end yet.
cdef uint64_t UNTIL_NONE = 0xFFFFFFFFFFFFFFFF

cdef enum:
    FRAME_MAX = LINK_HEADER_SIZE + LINK_BODY_MAX
    STAGING = 2 * FRAME_MAX      # one frame, whole, wherever it begins
    # What is wrong with DATA:
    DATA_PLACE = -1              # it does not continue the copy
    DATA_RECORD = -2             # a record is not what was written
    DATA_SEGMENT = -3            # records beyond the end of the segment

cdef bytes NO_IDENTITY = bytes(16)


cdef class LinkSender(LinkEnd):
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
                if self.take_ack(<const LinkHeader*><const char*>self._input, now_ns):
                    self._tell_acked()
                else:
                    self._take(frame, now_ns)
                self._input = self._input[size:]
        except ValueError as problem:
            self.close(f"not understood: {problem}")

    def _take(self, frame, now_ns):
        # Take a frame that is no ACK, or no good one.
        cdef Progress progress
        cdef bytes body = frame.body
        if frame.type == LINK_ACK and self.following and len(body) >= PROGRESS_LEAST:
            memcpy(&progress, <const char*>body, PROGRESS_LEAST)
            raise ValueError(f"an ACK of {progress.end}, {progress.synced} synced, where records "
                             f"up to {self._place.position} were sent")
        if frame.type == LINK_HELLO and not self.following:
            self._welcome(Hello.unpack(body), frame.epoch, now_ns)
        elif frame.type == LINK_FENCE and not self.following:
            self._fence(frame.epoch, body)
        else:
            raise ValueError(f"a frame of type {frame.type} here")

    cdef bint _note(self, const Progress* progress) noexcept nogil:
        # What the copy says of itself; False: that cannot be.
        if progress.end > self._place.position or progress.synced > progress.end:
            return False
        self.acked, self.acked_synced = progress.end, progress.synced
        self.acked_kept = progress.kept
        self._acks += 1
        return True

    cdef bint take_ack(self, const LinkHeader* header, int64_t now_ns) noexcept nogil:
        # Take a whole frame without the interpreter; False: it is no ACK that could be.
        if not self.following or header.type != LINK_ACK or header.length < PROGRESS_LEAST:
            return False
        self.heard_ns = now_ns
        return self._note(<const Progress*>(<const uint8_t*>header + LINK_HEADER_SIZE))

    def _tell_acked(self):
        # Each time: what was known of other epochs may have been dropped since.
        if self._acks != self._acks_known:
            self._acks_known = self._acks
            self.store.acks[self.consumer] = (self.acked, self.acked_kept)

    def _fence(self, uint64_t epoch, bytes identity):
        cdef Store store = self.store
        was_writer = store.writer
        if NO_IDENTITY in (identity, store.identity) or identity == store.identity:
            store.fence(epoch)
        self._output.append(link_frame(LINK_FENCED, 0, store.epoch, Fenced(
            store.promised, store.epoch, store.end, store.log.end_index, store.released,
            was_writer, store.host, store.identity).pack()))

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
        refuse = self._compare(hello)
        position = hello.position if hello.identity != NO_IDENTITY else store.log.first()[0]
        if refuse is None and position < store.end and not store.log.is_whole(position):
            return self._refuse_damaged(position)
        return refuse

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
                if self._is_damaged(hello.last[0]):
                    return self._refuse_damaged(hello.last[0])
                return Refuse(RefuseReason.DIVERGED, hello.last[0], own or 0, hello.last[1])
        return None

    def _is_damaged(self, uint64_t position):
        # Whether a record begins there that is not what was written, rather than another one.
        cdef Log log = self.store.log
        if log.is_whole(position):
            return False
        header = log.segment_header(position)
        return not header or log.run(header_position(header), position, 1 << 62)[0] <= position

    def _refuse_damaged(self, uint64_t position):
        self.store.note_damaged(position)
        return Refuse(RefuseReason.DAMAGED, position)

    def _stand(self, uint64_t position):
        # Go on there: maybe in another segment, maybe in another epoch.
        self._memory = self.store.log.place_at(position, &self._place)
        header = self.store.log.segment_header(position)
        # One that was ended empty ends where it begins: it is come to again and again.
        self._announced = (not header or position != header_position(header)
                           or header == self._segment_told)
        number = self.store.log.names_at(position)
        if number != self._names:
            self._names, self._names_told = number, 0
            self._names_memory = self.store.log.names_count(number, &self._names_count)
        self._look_epoch()

    def _look_epoch(self):
        epoch, until = self.store.lineage.at(self._place.position)
        self._epoch, self._until = epoch, UNTIL_NONE if until is None else until

    def attend(self) -> None:
        """Do what `run` cannot: go to the next segment, the next epoch; tell names.

        For a thread that waits for it, and has what is to be said from here then.
        """
        if not (self.wants or self._output):
            return
        hold_take(&self.hold)
        try:
            if self.wants:
                self._attend()
                self.wants = False
            self._hand_over()
        finally:
            hold_give(&self.hold)

    cdef _attend(self):
        try:
            self._go_on()
        except (OSError, FormatError) as problem:  # a file of the store is gone, or no such file
            self._end_damaged(str(problem))

    def _end_damaged(self, why):
        # The next link is refused, by what it asks for.
        self.store.note_damaged(self._place.position)
        self.close(why)

    def _go_on(self):
        cdef Store store = self.store
        if not self.following or self.over:
            return
        if store.cuts != self._cuts:
            self.close("records were set aside")
            return
        self._changes = store.changes
        self._look_epoch()
        if place_look(&self._place) == LOOK_END:
            self._stand(self._place.position)
        if not self._announced:
            self._segment_told = store.log.segment_header(self._place.position)
            self._output.append(link_frame(
                LINK_SEGMENT, self._place.position, self._epoch, self._segment_told))
            self._announced = True
        if self._names:
            self._tell_names()

    cdef int64_t run(self, LinkHeader* header, const uint8_t** at) noexcept nogil:
        # The next run of records and the header for it: its bytes; RUN_NONE, RUN_ATTEND.
        cdef uint64_t size, count
        if not self.following or self.over:
            return RUN_NONE
        if not self._announced or self._place.position >= self._until or (
                place_look(&self._place) == LOOK_END):
            return RUN_ATTEND
        # The writer's own tail is not looked at: a record is there when its commit word is.
        size = place_run(&self._place, self._until, RUN_BYTES, &count)
        if size == 0:
            size = place_run(&self._place, self._until, LINK_BODY_MAX, &count)
        # After a look at the records: what concerns them was there before them.
        if self._changes != load_acquire(&self.store.changes):
            return RUN_ATTEND
        if size == 0:
            return RUN_NONE
        if self._names and self._names_told != load_acquire(self._names_count):
            return RUN_ATTEND
        at[0] = <const uint8_t*><size_t>(self._place.base + self._place.position)
        link_header(header, LINK_DATA, <unsigned int>size, self._place.position, self._epoch, NULL)
        self._place.position += size
        self._place.index += count
        return <int64_t>size

    cdef _tell_names(self):
        # Each name was there before the first record that carries its id.
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
        cdef int64_t size
        cdef uint64_t total = 0
        parts = []
        while total < room:
            size = self.run(&header, &at)
            if size == RUN_ATTEND:
                self._attend()
                size = self.run(&header, &at)
            control = b"".join(self._output)
            self._output.clear()
            if control:
                parts.append(control)
                total += len(control)
            if size <= 0:
                break
            parts.append((<const char*>&header)[:LINK_HEADER_SIZE])
            parts.append((<const char*>at)[:size])
            total += LINK_HEADER_SIZE + size
        return b"".join(parts)

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
        self._tell_acked()
        if not (store.writer or self._relayed):
            # It looks for the writer now, to which alone its progress counts.
            self.close("another host writes the store")
            return
        if self._lost and store.writer_known:
            self.close("this host knows now who writes the store")
            return
        self._look_standing(now_ns)
        if self.closed:
            return
        told = (store.released if store.gate else 0, store.kept, store.let_go)
        since = now_ns - self.said_ns
        if since >= BEAT_NS or (told != self._told and since >= PROGRESS_NS):
            progress.end = store.end
            progress.synced = store.log.synced()
            progress.released = store.released
            progress.kept = store.kept
            progress.unix_ns = unix_ns
            progress.let_go = store.let_go
            self._output.append(link_frame(LINK_HEARTBEAT, 0, store.epoch,
                                           (<char*>&progress)[:sizeof(progress)]))
            self._told = told
            self.said_ns = now_ns

    cdef _look_standing(self, int64_t now_ns):
        # Where it stands still, although there should be more, its record may be damaged: a commit
        # word that is none looks as if the record were not there yet.
        cdef Store store = self.store
        cdef uint64_t position = self._place.position
        cdef uint64_t end = store.end
        if position != self._stood or position >= end:
            self._stood, self._stood_ns = position, now_ns
            return
        if now_ns - self._stood_ns < SILENT_NS or store.cuts != self._cuts:
            return
        self._stood_ns = now_ns
        hold_take(&self.hold)
        try:
            # What says that a segment ends may be damaged, too: the next one begins here then.
            if self._place.position == position and not place_whole(&self._place):
                self._stand(position)
        except (OSError, FormatError):
            pass
        finally:
            hold_give(&self.hold)
        if self._place.position == position and not store.log.is_whole(position):
            self._end_damaged(f"the record at position {position} is damaged")

    @property
    def sent(self) -> int:
        """Position behind the last record that was given out."""
        return self._place.position

    def end(self) -> None:
        """Say that this host is being stopped in good order."""
        if self.following and not self.closed:
            self._output.append(link_frame(LINK_BYE, self._place.position, self.store.epoch))

    def close(self, str reason) -> None:
        """End it. Idempotent."""
        if not self.closed:
            self.closed = reason
            hold_take(&self.hold)
            self.over = True
            hold_give(&self.hold)
            self._memory = self._names_memory = None
            if self.store.links.get(self.consumer) is self:
                del self.store.links[self.consumer]


cdef class LinkReceiver(LinkEnd):
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
    failed : bool
        It ended because this copy cannot take what came, damaged or not.
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
        cdef uint64_t room = 0
        if not self.stalled:
            self.space(&room)
        return room

    cdef uint8_t* space(self, uint64_t* room) noexcept nogil:
        # Where bytes that arrive go, and how many.
        if self._at == self._size:
            self._at = self._size = 0
        elif self._at and STAGING - self._size < FRAME_MAX:
            memmove(self._staging, self._staging + self._at, self._size - self._at)
            self._size -= self._at
            self._at = 0
        room[0] = STAGING - self._size
        return self._staging + self._size

    def feed(self, data, int64_t now_ns) -> int:
        """Take bytes that arrived, at most `room`; return how many were taken."""
        cdef bytes content = bytes(data)
        cdef uint64_t room = 0
        cdef uint64_t count
        cdef uint8_t* place = self.space(&room)
        count = 0 if self.stalled else min(<uint64_t>len(content), room)
        memcpy(place, <const char*>content, count)
        if not self.arrived(count, now_ns):
            self._process()
        return count

    cdef bint arrived(self, uint64_t count, int64_t now_ns) noexcept nogil:
        # Take bytes at `space`. False: not all that came could be done without the interpreter.
        cdef int64_t size
        self.heard_ns = now_ns
        self._size += count
        while True:
            size = link_look(self._staging + self._at, self._size - self._at)
            if size == 0:
                return True
            if size < 0 or not self._take(<const LinkHeader*>(self._staging + self._at)):
                return False
            self._at += size

    cdef bint _take(self, const LinkHeader* header) noexcept nogil:
        # Take a whole frame without the interpreter. False: it needs that, or has a failure.
        cdef const uint8_t* body = <const uint8_t*>header + LINK_HEADER_SIZE
        cdef const Progress* progress = <const Progress*>body
        if not self.following or self.over or self._is_over(header.epoch):
            return False
        if header.type == LINK_DATA and header.epoch == self._epoch:
            self._failure = self._data(self._log, header, body)
            return self._failure == 0
        if header.type == LINK_HEARTBEAT and header.length >= PROGRESS_LEAST:
            self.source_end = progress.end
            store_learn(self.store, progress.released, progress.kept,
                        progress_let_go(header, progress))
            return True
        return False

    def attend(self) -> None:
        """Do what the thread of this end cannot, and hand it what is to be said."""
        if not (self.wants or self._output):
            return
        hold_take(&self.hold)
        try:
            if self.wants and not self.stalled:
                self._process()
                self.wants = self.stalled
            self._hand_over()
        finally:
            hold_give(&self.hold)

    cdef uint32_t ack(self, uint8_t* frame, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # An ACK, in its thread, if there is news: its size, or 0.
        cdef LinkHeader* header = <LinkHeader*>frame
        cdef Progress* progress = <Progress*>(frame + LINK_HEADER_SIZE)
        cdef uint64_t end = self._log.writer.position
        if end == self._acked or not self.following or self.over:
            return 0
        progress.end = end
        progress.synced = min(self._synced, end)
        progress.released = self.store._released
        progress.kept = min(self._kept_most, end)
        progress.unix_ns = unix_ns
        progress.let_go = 0
        link_header(header, LINK_ACK, sizeof(Progress), 0, self.store.promised,
                    <const uint8_t*>progress)
        self._acked, self._acked_ns = end, now_ns
        return LINK_HEADER_SIZE + sizeof(Progress)

    cdef _process(self):
        # Take the frames that are there, with the interpreter where one needs it.
        cdef int64_t size
        cdef const LinkHeader* header
        try:
            if self._failure:
                self._fail()
            while not self.closed:
                size = link_look(self._staging + self._at, self._size - self._at)
                if size < 0:
                    self.damaged = self.failed = True
                    self.close("bytes that are not a frame")
                if size <= 0:
                    break
                header = <const LinkHeader*>(self._staging + self._at)
                if self._take(header):
                    pass
                elif header.type == LINK_DATA:
                    self._copy(header)
                elif not self._control(header, self._staging + self._at + LINK_HEADER_SIZE):
                    break
                self._at += size
        except ValueError as problem:
            self.failed = True
            self.close(f"not understood: {problem}")

    cdef _copy(self, const LinkHeader* header):
        # Records that `_take` did not: they fail, are of an epoch that is over, or begin one.
        if self._failure:
            self._fail()
            return
        if not self.following or header.epoch < self._epoch or self._is_over(header.epoch):
            self.close("records of an epoch that has ended")
            return
        if header.epoch > self._epoch:
            if header.position != self._log.writer.position:
                self._failure = DATA_PLACE
                self._fail()
                return
            self.store.begin_copied(header.epoch)
            self._epoch = header.epoch
            if not self._take(header):
                self._fail()

    cdef _fail(self):
        self.failed = True
        if self._failure == DATA_RECORD:
            self.damaged = True
            self.close("a record that differs from what was written")
        else:
            self.close("records that do not continue the copy" if self._failure == DATA_PLACE
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
        cdef bytes body = (<const char*>at)[:header.length]
        if header.type == LINK_HEARTBEAT and self.following and header.length >= PROGRESS_LEAST:
            self.close("an epoch that has ended")
        elif header.type == LINK_SEGMENT and self.following:
            return self._segment(header.position, body)
        elif header.type == LINK_NAMES and self.following:
            self._log.take_names(body)
        elif header.type == LINK_WELCOME and not self.following:
            self._welcomed(Welcome.unpack(body), header)
        elif header.type == LINK_REFUSE:
            self.refused = Refuse.unpack(body)
            self.failed = self.refused.reason == RefuseReason.DAMAGED
            self.close(f"refused: {self.refused.reason.name}, position {self.refused.at}"
                       if self.failed else f"refused: {self.refused.reason.name}")
        elif header.type == LINK_BYE and self.following:
            self.left = True
            self.close("its host was stopped")
        else:
            raise ValueError(f"a frame of type {header.type} here")
        return True

    cdef bint _is_over(self, uint64_t epoch) noexcept nogil:
        # Whether a later epoch was promised than the source knows. Its records may be older.
        self._known = max(self._known, epoch)
        return self._known < self.store.promised and not self._drain

    cdef _welcomed(self, welcome, const LinkHeader* header):
        cdef Store store = self.store
        if self._is_over(max((epoch for epoch, _ in welcome.lineage), default=0)):
            self.close("an epoch that has ended")
            return
        if store.identity == NO_IDENTITY:
            store.adopt(welcome.identity, welcome.first, welcome.first_index, welcome.lineage)
            self._epoch = store.epoch
        if store.identity != welcome.identity or header.position != store.end:
            raise ValueError(f"a WELCOME to {header.position} of {welcome.identity.hex()}")
        store.learn_lineage(welcome.lineage)
        self._epoch = store.epoch
        self.welcome = welcome
        self.following = True
        store.learn_writer(welcome.writer, header.epoch)
        self.source_end = welcome.end
        store.learn(welcome.released, welcome.kept, 0)

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
            hold_take(&self.hold)
            self.stalled = False
            self._process()
            self.wants = self.stalled
            hold_give(&self.hold)
            self.heard_ns = now_ns  # what it says lies where it is not read
        if now_ns - self.heard_ns >= SILENT_NS:
            self.close("silent")
            return
        if not self.following:
            return
        end = store.end
        kept = store.kept_below()
        # A thread says by itself how far the copy is (`ack`).
        told = (0 if self.carried else end, self._log.synced(),
                0 if self.carried and not store.followers else kept)
        self._synced = told[1]
        # Where nobody follows this one, what it gets is kept at once.
        self._kept_most = kept if store.followers else UNTIL_NONE
        since = now_ns - self._acked_ns
        if since >= BEAT_NS or (end - self._acked >= ACK_BYTES and not self.carried) or (
                told != self._told and since >= BUSY_ACK_NS):
            progress.end = end
            progress.synced = min(told[1], end)
            progress.released = store.released
            progress.kept = kept
            progress.unix_ns = unix_ns
            progress.let_go = 0
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
            hold_take(&self.hold)
            self.over = True
            hold_give(&self.hold)
            if self.store.intake is self:
                self.store.intake = None

    @property
    def diverged_at(self):
        """Where the copy is not its source's any more; None: as far as is known, it is."""
        if self.refused is None or self.refused.reason != RefuseReason.DIVERGED:
            return None
        return self.refused.at
