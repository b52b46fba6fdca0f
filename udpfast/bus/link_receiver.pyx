"""The receiving end of a link: it takes another host's records into the copy.

Like the other end (bus/link_sender), it has no socket and no clock: `feed`, `output`, `work`.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from udpfast.bus.log cimport BEAT_NS, SILENT_NS, log_copy, store_learn
from udpfast.bus.wire cimport (
    LINK_ACK, LINK_BODY_MAX, LINK_BYE, LINK_DATA, LINK_HEADER_SIZE, LINK_HEARTBEAT, LINK_HELLO,
    LINK_NAMES, LINK_REFUSE, LINK_SEGMENT, LINK_WELCOME, PROGRESS_LEAST, Progress, link_header,
    link_look, progress_let_go)
from udpfast.core.hold cimport hold_give, hold_take
from udpfast.core.layout cimport Record
from udpfast.log.segment cimport record_look

from udpfast.bus.hello import Hello, Refuse, RefuseReason, Welcome
from udpfast.bus.wire import link_frame
from udpfast.log.journal_header import NO_IDENTITY

__all__ = ["LinkReceiver"]

# Value of `_kept_most` if nobody follows this copy: everything received counts as kept.
cdef uint64_t KEPT_ALL = 0xFFFFFFFFFFFFFFFF

cdef enum:
    FRAME_MAX = LINK_HEADER_SIZE + LINK_BODY_MAX
    STAGING = 2 * FRAME_MAX      # room for a whole frame, wherever it begins
    # Results of `_data`:
    DATA_PLACE = -1              # the records do not continue the copy
    DATA_RECORD = -2             # a record is damaged
    DATA_SEGMENT = -3            # a record does not fit the segment


cdef class LinkReceiver(LinkEnd):
    """The receiving end of a link, at the copy.

    Parameters
    ----------
    store : Store
    nonce : int
        Random number drawn for this link.
    now_ns : int
        Monotonic time.
    any_source : bool
        Follow the other host, whether it is the store's writer or a replica.
    drain : bool
        Take the records that it has of an ended epoch, because this host is taking over.

    Attributes
    ----------
    closed : str
        Why the link ended; empty: it is alive.
    refused : Refuse or None
        The source's refusal.
    welcome : Welcome or None
        The source's WELCOME, once the copy follows.
    stalled : bool
        It waits for room for the next segment.
    damaged : bool
        The link ended because bytes had changed on the way.
    failed : bool
        The link ended because this copy cannot take what arrived, damaged or not.
    source_end : int
        End of the source's records, as the source last reported.
    """

    def __cinit__(self):
        self._staging = <uint8_t*>malloc(STAGING)
        if self._staging == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._staging)

    def __init__(
            self, Store store, nonce: int, int64_t now_ns, *, any_source: bool = False,
            drain: bool = False):
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
        """Number of bytes that `feed` takes now."""
        cdef uint64_t room = 0
        if not self.stalled:
            self.space(&room)
        return room

    cdef uint8_t* space(self, uint64_t* room) noexcept nogil:
        # Return where to put received bytes; *room: how many fit.
        if self._at == self._size:
            self._at = self._size = 0
        elif self._at and STAGING - self._size < FRAME_MAX:
            memmove(self._staging, self._staging + self._at, self._size - self._at)
            self._size -= self._at
            self._at = 0
        room[0] = STAGING - self._size
        return self._staging + self._size

    def feed(self, data: bytes, int64_t now_ns) -> int:
        """Take received bytes, at most `room` of them; return how many were taken."""
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
        # Take `count` bytes that were put at `space`. False: some of them need the interpreter.
        # Complete frames are a sign of life, and so is an incomplete frame of records: their
        # checksummed length says that more must come, whereas another frame might have a wrong
        # length and never be complete.
        cdef int64_t size
        self._size += count
        while True:
            size = link_look(self._staging + self._at, self._size - self._at)
            if size != 0 or self._records_come():
                self.heard_ns = now_ns
            if size == 0:
                return True
            if size < 0 or not self._take(<const LinkHeader*>(self._staging + self._at)):
                return False
            self._at += size

    cdef bint _records_come(self) noexcept nogil:
        # Return whether the incomplete frame is one of records.
        return (self._size - self._at >= LINK_HEADER_SIZE
                and (<const LinkHeader*>(self._staging + self._at)).type == LINK_DATA)

    cdef bint _take(self, const LinkHeader* header) noexcept nogil:
        # Process a complete frame without the interpreter. False: it needs it, or is invalid.
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
        """Do the work that the thread of this end cannot do, and hand it the output to send."""
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
        # In the link's thread: make an ACK if there is news. Returns its size, or 0.
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
        # Process the complete frames, with the interpreter where needed.
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
        # Process records that `_take` refused: they are invalid, of an ended epoch, or begin a new
        # one.
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
        # Copy a run of records. Each is completely checked before any of it becomes visible.
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
        # Process a control frame. False: it must wait.
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
            raise ValueError(f"unexpected frame of type {header.type}")
        return True

    cdef bint _is_over(self, uint64_t epoch) noexcept nogil:
        # Return whether this host has promised a later epoch than the source knows. (Single records
        # of the source may be older.)
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
            raise ValueError(f"unexpected WELCOME to {header.position} of {welcome.identity.hex()}")
        store.learn_lineage(welcome.lineage)
        self._epoch = store.epoch
        self.welcome = welcome
        self.following = True
        store.learn_writer(welcome.writer, header.epoch)
        self.source_end = welcome.end
        store.learn(welcome.released, welcome.kept, 0)

    cdef bint _segment(self, uint64_t position, bytes header) except *:
        if position != self._log.writer.position:
            raise ValueError(f"unexpected segment at {position}: the copy ends at {self.store.end}")
        self.stalled = not self._log.roll(header)
        return not self.stalled

    def work(self, int64_t now_ns, int64_t unix_ns) -> None:
        """Let time pass: acknowledge records; close if the source was silent for a second."""
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
            self.heard_ns = now_ns  # the source's frames were not read while stalled
        if now_ns - self.heard_ns >= SILENT_NS:
            self.close("silent")
            return
        if not self.following:
            return
        end = store.end
        kept = store.kept_below()
        # The thread acknowledges the end of the copy itself (`ack`).
        told = (0 if self.carried else end, self._log.synced(),
                0 if self.carried and not store.followers else kept)
        self._synced = told[1]
        # If nobody follows this copy, everything it receives counts as kept at once.
        self._kept_most = kept if store.followers else KEPT_ALL
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
        """Return the bytes to send next."""
        said = b"".join(self._output)
        self._output.clear()
        return said

    def close(self, str reason) -> None:
        """End the link. Idempotent."""
        if not self.closed:
            self.closed = reason
            hold_take(&self.hold)
            self.over = True
            hold_give(&self.hold)
            if self.store.intake is self:
                self.store.intake = None
