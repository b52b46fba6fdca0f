"""Send the messages of outboxes to the sequencer, and watch for them in the stream.

A message is delivered once this host's copy of the store has it. A message that is not seen there
in time is sent again; the sequencer refuses messages that it already has.
"""

from libc.stdint cimport INT64_MAX, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from udpfast.bus.log cimport place_look, place_record
from udpfast.bus.outbox cimport (
    OUTBOX_LOST, OUTBOX_NAME_IN_USE, OUTBOX_NEW, OUTBOX_REGISTERED, OUTBOX_SUPERSEDED,
    OutboxEntry)
from udpfast.bus.wire cimport (
    MESSAGE_HEADER_SIZE, NAME_SIZE, REFUSED_NAME_IN_USE, SEND_HEADER_SIZE, SEND_REFUSED,
    SEND_REGISTER, SEND_SIZE_MAX, SENDERS_MAX, EpochBegin, Registration)
from udpfast.core.atomics cimport fence_full, load_acquire, store_release
from udpfast.core.layout cimport (
    KIND_BUS, KIND_RESTART, KIND_SENDER, KIND_SENDERS, RECORD_SIZE, SenderEntry)
from udpfast.log.segment cimport LOOK_END

from udpfast.bus.wire import name_text, send_datagram, send_parse

__all__ = ["OutboxSender", "StreamWatch"]


cdef class OutboxSender:
    """Send the messages of one outbox to the sequencer, and let safe messages go.

    Parameters
    ----------
    outbox : Outbox
    store : Store
        This host's copy.
    now_ns : int
        Monotonic time.
    resend_ns : int
        Time after which a message that was not seen is sent again; the time then doubles up to
        8 s. At least 2 ms.
    """

    def __init__(
            self, Outbox outbox, Store store, int64_t now_ns, *, int64_t resend_ns=500_000_000):
        if resend_ns < 2_000_000:
            raise ValueError(f"resend_ns must be at least 2 ms, was {resend_ns}")
        self.outbox = outbox
        self.store = store
        self.header = outbox.header
        self._now_ns = now_ns
        self._resend_ns = resend_ns
        self._due_ns = INT64_MAX
        self.alive = True
        self._sent = self.header.seen  # messages of an earlier outbox sender are sent again

    cdef bint set_asleep(self, bint asleep) noexcept nogil:
        # Set whether the daemon sleeps; return whether there is something to send before it may.
        self.header.asleep = asleep
        if not asleep:
            return False
        fence_full()  # a sender accepts its message, then reads `asleep`
        return load_acquire(&self.header.accepted) > self._sent

    # --- replies and the stream -------------------------------------------------------------------

    cdef void note_seen(self, uint64_t number, uint64_t end) noexcept nogil:
        # Note that messages up to `number` are in the stream below position `end`.
        cdef OutboxHeader* header = self.header
        number = min(number, header.accepted)
        while header.seen < number:
            header.seen += 1
            self.outbox.entry(header.seen).seen_end = end
        self._sent = max(self._sent, header.seen)

    def registered(self, uint32_t sender, uint32_t incarnation, uint64_t nonce, uint64_t position
                   ) -> bool:
        """Take a SENDER record of this name; return whether it registers this outbox."""
        cdef OutboxHeader* header = self.header
        if nonce != header.nonce:
            if header.state == OUTBOX_REGISTERED and incarnation > header.incarnation:
                header.state = OUTBOX_SUPERSEDED
                self.store.said.append(
                    f"sender {self.outbox.name}: another process registered under this name; "
                    f"{header.accepted - header.seen} accepted messages are not in the stream")
            return False
        if header.state >= OUTBOX_SUPERSEDED:
            return False
        if header.incarnation != incarnation:
            header.registered = position
        header.sender = sender
        header.incarnation = incarnation
        header.state = OUTBOX_REGISTERED
        return True

    cdef void lost(self, uint64_t number):
        # Note that the stream has only messages up to `number`, although more were let go.
        cdef OutboxHeader* header = self.header
        header.state = OUTBOX_LOST
        self.store.said.append(
            f"sender {self.outbox.name}: {header.freed} messages were in the stream, but now only "
            f"{number} are; {header.accepted - header.freed} more are waiting and cannot be sent")

    def told(self, data: bytes) -> None:
        """Take a refusal from the sequencer. It is a hint: what is in the stream decides."""
        cdef OutboxHeader* header = self.header
        try:
            sent = send_parse(data)
        except ValueError:
            return  # damaged, or from somebody else
        if (sent.flags == SEND_REFUSED and sent.first == REFUSED_NAME_IN_USE
                and header.state == OUTBOX_NEW):
            header.state = OUTBOX_NAME_IN_USE

    def rolled_back(self, uint64_t position) -> None:
        """Forget the messages seen behind a position: they are no longer in the stream."""
        cdef OutboxHeader* header = self.header
        while header.seen > header.freed and (
                self.outbox.entry(header.seen).seen_end > position):
            self.outbox.entry(header.seen).seen_end = 0
            header.seen -= 1
        self._sent = min(self._sent, header.seen)
        header.watched = min(header.watched, position)
        if header.sender and header.registered >= position:
            # The sequencer may give its number to another sender now, even if this outbox is dead.
            header.sender = header.incarnation = 0
            if header.state == OUTBOX_REGISTERED:
                header.state = OUTBOX_NEW
                self._register_ns = self._clock_ns

    cdef _let_go(self):
        # Let messages go that are safe by the store's settings (bus/release).
        cdef OutboxHeader* header = self.header
        cdef uint64_t let_go = self.store.let_go
        cdef uint64_t freed = header.freed
        cdef uint64_t emptied = header.emptied
        while freed < header.seen and self.outbox.entry(freed + 1).seen_end <= let_go:
            freed += 1
            emptied = self.outbox.entry(freed).emptied
        if freed != header.freed:
            header.freed_epoch = self.store.epoch
            store_release(&header.emptied, emptied)
            # Orders every read of the freed messages before; read by outbox_send.
            store_release(&header.freed, freed)

    # --- sending ----------------------------------------------------------------------------------

    def work(self, int64_t now_ns, bint following, uint64_t most=64) -> list[bytes]:
        """Let time pass; return the datagrams to send.

        Parameters
        ----------
        now_ns : int
            Monotonic time.
        following : bool
            The stream arrives. While it does not, nothing is sent again: it may be in the stream.
        most : int
            Most datagrams to return.
        """
        cdef OutboxHeader* header = self.header
        cdef uint64_t accepted = load_acquire(&header.accepted)
        cdef uint64_t last, until
        self._let_go()
        if following:
            self._clock_ns += now_ns - self._now_ns
        self._now_ns = now_ns
        if header.state >= OUTBOX_SUPERSEDED or not self.store.key:
            return []
        self._epoch = self.store.promised
        if self.store.epoch != self._known:
            # A new writer may have none of the messages that were not seen.
            self._known = self.store.epoch
            self._sent = header.seen
            self._register_ns = self._clock_ns
            self._register_step = 0
        if header.state != OUTBOX_REGISTERED:
            datagrams = self._register()
            header.sent += len(datagrams)
            return datagrams
        datagrams = []
        if self._clock_ns >= self._due_ns:
            self._send_again(datagrams, most)
        last = min(accepted, header.seen + SENT_AHEAD)
        while self._sent < last and <uint64_t>len(datagrams) < most:
            until = self._send(datagrams, self._sent + 1, last, 0)
            self._sent = until
        if datagrams:
            self._alive_ns = self._now_ns
        elif self.alive and self._now_ns - self._alive_ns >= ALIVE_EVERY_NS:
            self._alive_ns = self._now_ns
            datagrams.append(self._datagram(header.seen + 1, b"", 0))
        header.sent += len(datagrams)
        return datagrams

    def _register(self):
        cdef Registration registration
        cdef OutboxHeader* header = self.header
        if self._clock_ns < self._register_ns:
            return []
        self._register_ns = self._clock_ns + min(
            self._resend_ns << self._register_step, <int64_t>RESEND_MAX_NS)
        self._register_step = min(self._register_step + 1, 16)
        registration.nonce = header.nonce
        memcpy(registration.name, header.name, NAME_SIZE)
        memcpy(registration.host, header.host, NAME_SIZE)
        return [send_datagram(
            self.store.key, self._epoch, 0, 0, 0, 0, flags=SEND_REGISTER,
            body=(<char*>&registration)[:sizeof(registration)])]

    cdef uint64_t fill(self, uint64_t first, uint64_t last, uint8_t* datagram, uint64_t* size
                       ) noexcept nogil:
        # Put as many messages into a datagram as fit; return the last one.
        cdef uint64_t number = first
        cdef uint16_t length
        cdef OutboxEntry* entry
        size[0] = 0
        while number <= last:
            entry = self.outbox.entry(number)
            if SEND_HEADER_SIZE + size[0] + MESSAGE_HEADER_SIZE + entry.size > SEND_SIZE_MAX:
                break
            length = <uint16_t>entry.size
            memcpy(datagram + size[0], &length, 2)
            memcpy(datagram + size[0] + 2, &entry.type, 2)
            memcpy(datagram + size[0] + MESSAGE_HEADER_SIZE,
                   self.outbox.payloads + entry.offset % self.header.capacity, length)
            size[0] += MESSAGE_HEADER_SIZE + length
            number += 1
        return number - 1

    def _send(self, list datagrams, uint64_t first, uint64_t last, int step):
        # Make one datagram with the messages from `first` on; return the last one that it has.
        cdef uint8_t[SEND_SIZE_MAX] body
        cdef uint64_t size
        cdef uint64_t number
        cdef uint64_t until = self.fill(first, last, body, &size)
        cdef OutboxEntry* entry
        for number in range(first, until + 1):
            entry = self.outbox.entry(number)
            entry.step = step
            entry.due_ns = self._clock_ns + min(self._resend_ns << step, <int64_t>RESEND_MAX_NS)
            self._due_ns = min(self._due_ns, entry.due_ns)
        datagrams.append(self._datagram(first, (<char*>body)[:size], until - first + 1))
        return until

    def _datagram(self, first, content, count):
        cdef OutboxHeader* header = self.header
        self._number += 1
        datagram = bytearray(send_datagram(
            self.store.key, self._epoch, header.sender, header.incarnation, first, self._number,
            body=content))
        datagram[6:8] = count.to_bytes(2, "little")
        return bytes(datagram)

    def _send_again(self, list datagrams, uint64_t most):
        # The oldest first, in runs of messages that were sent equally often.
        cdef OutboxHeader* header = self.header
        cdef uint64_t number = header.seen + 1
        cdef uint64_t last
        cdef int step
        self._due_ns = INT64_MAX
        while number <= self._sent:
            entry = self.outbox.entry(number)
            if entry.due_ns > self._clock_ns or <uint64_t>len(datagrams) >= most:
                self._due_ns = min(self._due_ns, entry.due_ns)
                number += 1
                continue
            step = entry.step
            last = number
            while (last < self._sent and self.outbox.entry(last + 1).step == step
                    and self.outbox.entry(last + 1).due_ns <= self._clock_ns):
                last += 1
            last = self._send(datagrams, number, last, min(step + 1, 16))
            header.resent += last - number + 1
            number = last + 1


cdef class StreamWatch:
    """Read this host's copy of a store, to find the messages of its outbox senders.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    outbox_senders : list[OutboxSender]
    """

    def __init__(self, Store store):
        self.store = store
        self.outbox_senders = []
        self._by_sender = {}
        self._cuts = store.cuts

    def add(self, OutboxSender outbox_sender) -> None:
        """Watch for the messages of another outbox, from where it was watched last."""
        cdef OutboxHeader* header = outbox_sender.header
        cdef uint64_t same
        if header.state == OUTBOX_NEW and header.watched == 0:
            header.watched = self.store.end  # nobody knows it yet
            header.watched_epoch = self.store.epoch
        # A daemon that was killed may have set records aside without telling the outboxes.
        same = self.store.lineage.until(header.watched_epoch, header.watched)
        if min(same, self.store.end) < header.watched:
            outbox_sender.rolled_back(min(same, self.store.end))
        self.outbox_senders.append(outbox_sender)
        self._note(outbox_sender)
        if self._standing:
            self._stand(min(self._place.position, outbox_sender.header.watched))

    def begin_sleep(self) -> bool:
        """Tell apps that the daemon goes to sleep; return whether it must not.

        Until `wake`, every message that an app sends rings the bell.
        """
        cdef OutboxSender outbox_sender
        cdef bint due = False
        for outbox_sender in self.outbox_senders:
            due |= outbox_sender.set_asleep(True)
        return due

    def wake(self) -> None:
        """Tell apps that the daemon is awake."""
        cdef OutboxSender outbox_sender
        for outbox_sender in self.outbox_senders:
            outbox_sender.set_asleep(False)

    def remove(self, OutboxSender outbox_sender) -> None:
        """Stop watching for the messages of an outbox."""
        self.outbox_senders.remove(outbox_sender)
        self._by_sender.pop(outbox_sender.header.sender, None)
        self._ours[outbox_sender.header.sender] = 0

    def _note(self, OutboxSender outbox_sender):
        if outbox_sender.header.sender and outbox_sender.header.sender <= SENDERS_MAX:
            self._by_sender[outbox_sender.header.sender] = outbox_sender
            self._ours[outbox_sender.header.sender] = 1

    def _stand(self, uint64_t position):
        position = max(position, <uint64_t>self.store.log.first()[0])
        self._memory = self.store.log.place_at(position, &self._place)
        self._standing = True

    def work(self) -> int:
        """Read the new records; return how many there were."""
        cdef uint64_t count = 0
        cdef int64_t size
        cdef const Record* record
        cdef const EpochBegin* begin
        cdef OutboxSender outbox_sender
        cdef uint64_t end
        cdef uint16_t sender
        if not self.store.key:
            return 0
        if self._cuts != self.store.cuts:
            self._roll_back()
        if not self._standing:
            self._stand(min([(<OutboxSender>c).header.watched for c in self.outbox_senders],
                            default=self.store.end))
        while True:
            size = place_look(&self._place)
            if size == LOOK_END:
                end = self._place.position
                self._stand(end)
                size = place_look(&self._place)
            if size <= 0:
                if self._is_through():
                    break
                continue
            record = place_record(&self._place)
            end = self._place.position + size
            if record.kind == KIND_BUS:
                sender = <uint16_t>record.object
                if sender <= SENDERS_MAX and self._ours[sender]:
                    outbox_sender = self._by_sender[sender]
                    if outbox_sender.header.incarnation == <uint32_t>record.flight_ns:
                        outbox_sender.note_seen(record.number, end)
            elif record.kind == KIND_SENDER or record.kind == KIND_SENDERS:
                self._senders(record, end)
            elif record.kind == KIND_RESTART and record.length >= <int>(
                    RECORD_SIZE + sizeof(EpochBegin)):
                begin = <const EpochBegin*>(<const uint8_t*>record + RECORD_SIZE)
                self.store.learn_writer(name_text(begin.host[:NAME_SIZE]), begin.epoch)
            self._place.position = end
            self._place.index += 1
            count += 1
        if count:
            epoch = self.store.lineage.at(self._place.position - 1)[0]
            for outbox_sender in self.outbox_senders:
                if outbox_sender.header.watched < self._place.position:
                    outbox_sender.header.watched = self._place.position
                    outbox_sender.header.watched_epoch = epoch
        return count

    cdef bint _is_through(self) except? False:
        # Return whether there is nothing more to read. Otherwise continue behind damaged records.
        cdef uint64_t position = self._place.position
        if position >= self.store.end or self.store.log.is_whole(position):
            return True
        self._stand(self.store.log.behind(position))
        return False

    cdef _senders(self, const Record* record, uint64_t end):
        cdef const SenderEntry* entries = <const SenderEntry*>(<const uint8_t*>record + RECORD_SIZE)
        cdef uint64_t i
        cdef OutboxSender outbox_sender
        for i in range((record.length - RECORD_SIZE) // sizeof(SenderEntry)):
            for outbox_sender in self.outbox_senders:
                if memcmp(entries[i].name, outbox_sender.header.name, NAME_SIZE) == 0 and (
                        outbox_sender.registered(
                            entries[i].sender, entries[i].incarnation, entries[i].nonce,
                            record.position)):
                    self._note(outbox_sender)
                    outbox_sender.note_seen(entries[i].next - 1, end)
                    # Records of earlier epochs, which are read again when a damaged end is copied
                    # anew, have fewer of its messages without any loss.
                    if entries[i].next <= outbox_sender.header.freed and (
                            self.store.lineage.at(record.position)[0]
                            > outbox_sender.header.freed_epoch):
                        outbox_sender.lost(entries[i].next - 1)

    def _roll_back(self):
        cdef OutboxSender outbox_sender
        cdef uint64_t end = self.store.cut_since(self._cuts)
        self._cuts = self.store.cuts
        for outbox_sender in self.outbox_senders:
            self._ours[outbox_sender.header.sender] = 0
            self._by_sender.pop(outbox_sender.header.sender, None)
            outbox_sender.rolled_back(end)
            self._note(outbox_sender)
        if self._standing:
            self._stand(min(self._place.position, end))
