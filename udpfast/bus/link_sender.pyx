"""The sending end of a link: it serves one copy.

It has no socket and no clock: `feed` takes received bytes, `output` returns bytes to send, `work`
lets time pass. An end that is `closed` stays so; its owner opens another link.
"""

from libc.string cimport memcpy

from udpfast.bus.log cimport (
    BEAT_NS, SILENT_NS, header_position, place_look, place_run, place_whole)
from udpfast.bus.wire cimport (
    LINK_ACK, LINK_BODY_MAX, LINK_BYE, LINK_DATA, LINK_ASK, LINK_ANSWER, LINK_HEADER_SIZE,
    LINK_HEARTBEAT, LINK_HELLO, LINK_NAMES, LINK_REFUSE, LINK_SEGMENT, LINK_WELCOME,
    PROGRESS_LEAST, Progress, link_header)
from udpfast.core.atomics cimport load_acquire
from udpfast.core.hold cimport hold_give, hold_take
from udpfast.log.segment cimport LOOK_END

from udpfast.bus.admission import refusal
from udpfast.bus.hello import Answer, Hello, Welcome
from udpfast.bus.wire import link_frame, link_parse
from udpfast.errors import FormatError
from udpfast.log.journal_header import NO_IDENTITY

__all__ = ["LinkSender"]

# End of the newest epoch: none yet.
cdef uint64_t UNTIL_NONE = 0xFFFFFFFFFFFFFFFF


cdef class LinkSender(LinkEnd):
    """The sending end of a link, at the source.

    Parameters
    ----------
    store : Store
    nonce : int
        Random number drawn for this link.
    now_ns : int
        Monotonic time.

    Attributes
    ----------
    receiver_host : str
        The host that it copies to; empty before its HELLO.
    closed : str
        Why the link ended; empty: it is alive.
    following : bool
        The copy was welcomed and gets records.
    acked, acked_synced : int
        End of what the copy has, and of what is on its disk.
    """

    def __init__(self, Store store, nonce: int, int64_t now_ns):
        self.store = store
        self.receiver_host = self.closed = ""
        self._nonce = nonce
        self._input = b""
        self._output = []
        self.heard_ns = self.said_ns = now_ns

    def feed(self, data: bytes, int64_t now_ns) -> None:
        """Take received bytes."""
        self._input += bytes(data)
        try:
            while not self.closed:
                found = link_parse(self._input)
                if found is None:
                    return
                frame, size = found
                self.heard_ns = now_ns
                if self.take_ack(<const LinkHeader*><const char*>self._input, now_ns):
                    self._tell_acked()
                else:
                    self._take(frame, now_ns)
                self._input = self._input[size:]
        except ValueError as problem:
            self.close(f"not understood: {problem}")

    def _take(self, frame, now_ns):
        # Process a frame that is not a valid ACK.
        cdef Progress progress
        cdef bytes body = frame.body
        if frame.type == LINK_ACK and self.following and len(body) >= PROGRESS_LEAST:
            memcpy(&progress, <const char*>body, PROGRESS_LEAST)
            raise ValueError(f"an ACK of {progress.end}, {progress.synced} synced, where records "
                             f"up to {self._place.position} were sent")
        if frame.type == LINK_HELLO and not self.following:
            self._welcome(Hello.unpack(body), frame.epoch, now_ns)
        elif frame.type == LINK_ASK and not self.following:
            self._fence(frame.epoch, body)
        else:
            raise ValueError(f"unexpected frame of type {frame.type}")

    cdef bint _note(self, const Progress* progress) noexcept nogil:
        # Note the copy's progress. False: it is impossible.
        if progress.end > self._place.position or progress.synced > progress.end:
            return False
        self.acked, self.acked_synced = progress.end, progress.synced
        self.acked_kept = progress.kept
        self._acks += 1
        return True

    cdef bint take_ack(self, const LinkHeader* header, int64_t now_ns) noexcept nogil:
        # Process a complete frame without the interpreter. False: it is not a valid ACK.
        if not self.following or header.type != LINK_ACK or header.length < PROGRESS_LEAST:
            return False
        self.heard_ns = now_ns
        return self._note(<const Progress*>(<const uint8_t*>header + LINK_HEADER_SIZE))

    def _tell_acked(self):
        # After every ACK: what the store knew may have been dropped with an earlier epoch.
        if self._acks != self._acks_known:
            self._acks_known = self._acks
            self.store.acks[self.receiver_host] = (self.acked, self.acked_kept)

    def _fence(self, uint64_t epoch, bytes identity):
        cdef Store store = self.store
        was_writer = store.writer
        if NO_IDENTITY in (identity, store.identity) or identity == store.identity:
            store.fence(epoch)
        self._output.append(link_frame(LINK_ANSWER, 0, store.epoch, Answer(
            store.promised, store.epoch, store.end, store.log.end_index, store.released,
            was_writer, store.host, store.identity).pack()))

    def _welcome(self, hello, uint64_t promised, now_ns):
        cdef Store store = self.store
        refuse = refusal(store, hello, promised, now_ns)
        if refuse is not None:
            self._output.append(link_frame(LINK_REFUSE, 0, store.promised, refuse.pack()))
            self.close(f"refused {refuse.reason.name}")
            return
        first, first_index = store.log.first()
        self.receiver_host = hello.host
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

    def _stand(self, uint64_t position):
        # Continue at a position, possibly in another segment or epoch.
        self._memory = self.store.log.place_at(position, &self._place)
        header = self.store.log.segment_header(position)
        # A segment that ended without a record ends where it begins, so it is entered repeatedly.
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
        """Do the work that `run` cannot do: enter the next segment or epoch, and send names.

        For the thread that carries the link; it then sends the output itself.
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
        except (OSError, FormatError) as problem:  # a file of the store is gone or damaged
            self._end_damaged(str(problem))

    def _end_damaged(self, why):
        # The copy's next link is refused because of the position that it asks for.
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
        # Find the next run of records and fill its header. Returns its bytes, RUN_NONE or
        # RUN_ATTEND.
        cdef uint64_t size, count
        if not self.following or self.over:
            return RUN_NONE
        if not self._announced or self._place.position >= self._until or (
                place_look(&self._place) == LOOK_END):
            return RUN_ATTEND
        # The writer's tail is not read: a record is there as soon as its commit word is.
        size = place_run(&self._place, self._until, RUN_BYTES, &count)
        if size == 0:
            size = place_run(&self._place, self._until, LINK_BODY_MAX, &count)
        # Loaded after the records: changes that concern them were stored before them.
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
        # Send the new names. Each name is in the table before the first record that carries its id.
        while True:
            said, told = self.store.log.names_since(self._names, self._names_told)
            if not said:
                return
            self._output.append(link_frame(LINK_NAMES, self._place.position, self._epoch, said))
            self._names_told = told

    def output(self, uint64_t room=1 << 20) -> bytes:
        """Return the bytes to send next: complete frames, each of which begins below `room`."""
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
        """Let time pass: report the store's progress; close if the copy was silent for a second."""
        cdef Progress progress
        cdef Store store = self.store
        if self.closed:
            return
        if self.is_silent(now_ns):
            self.close("silent")
            return
        if not self.following:
            return
        self._tell_acked()
        if not (store.writer or self._relayed):
            # The copy will look for the writer now, because only there its progress counts.
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
        # If the link makes no progress although there are more records, the next one may be
        # damaged: a zeroed commit word looks as if the record were not there yet.
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
            # The END of a segment may be damaged too: then the next segment begins here.
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
        """Position behind the last record sent."""
        return self._place.position

    def is_silent(self, int64_t now_ns) -> bool:
        """Return whether the other end has been silent for so long that it must be dead."""
        return now_ns - self.heard_ns >= SILENT_NS

    def end(self) -> None:
        """Tell the copy that this host is being stopped in good order."""
        if self.following and not self.closed:
            self._output.append(link_frame(LINK_BYE, self._place.position, self.store.epoch))

    def close(self, str reason) -> None:
        """End the link. Idempotent."""
        if not self.closed:
            self.closed = reason
            hold_take(&self.hold)
            self.over = True
            hold_give(&self.hold)
            self._memory = self._names_memory = None
            if self.store.links.get(self.receiver_host) is self:
                del self.store.links[self.receiver_host]
