"""The only writer of a store: it refuses duplicates, and gives the other messages place and time.

What it knows of a sender is in the store, so that a restart can read it back: a SENDER record when
one registers, and SENDERS at the beginning of each segment and every 64 MiB. A message of a
registered sender is appended if it has the sender's next number, is a duplicate if its number is
lower, and is held if its number is less than 4,096 ahead.
"""

import enum

import numpy as np

from libc.stdint cimport INT64_MIN, uint16_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from udpfast.bus.log cimport (
    Place, header_position, log_append, place_look, place_record, place_whole)
from udpfast.bus.wire cimport (
    MESSAGE_HEADER_SIZE, NAME_SIZE, REFUSED_EPOCH, REFUSED_INCARNATION, REFUSED_NAME_IN_USE,
    REFUSED_SENDERS_FULL, SEND_HEADER_SIZE, SEND_REFUSED, SEND_REGISTER, SEND_SIZE_MAX, EpochBegin,
    SendHeader, send_whole)
from udpfast.core.layout cimport (
    FLIGHT_UNKNOWN, KIND_BUS, KIND_ORDER, KIND_RESTART, KIND_SENDER, KIND_SENDERS, RECORD_SIZE,
    STREAM_NONE, Record)

from udpfast.bus.wire import name_bytes, name_text, send_datagram
from udpfast.core.layout import SENDER_ENTRY

__all__ = ["Sequencer", "SequencerVerdict"]

cdef enum:
    CELL = SEND_SIZE_MAX         # bytes to hold one message


class SequencerVerdict(enum.IntEnum):
    """What became of a message, or of a datagram without messages."""

    ACCEPTED = SEQUENCER_ACCEPTED
    DUPLICATE = SEQUENCER_DUPLICATE
    EARLY = SEQUENCER_EARLY
    UNKNOWN = SEQUENCER_UNKNOWN
    FENCED = SEQUENCER_FENCED
    MALFORMED = SEQUENCER_MALFORMED
    UNAUTHENTIC = SEQUENCER_UNAUTHENTIC
    FULL = SEQUENCER_FULL


cdef EpochBegin epoch_begin(Store store, uint64_t epoch, int64_t unix_ns):
    cdef EpochBegin begin
    cdef bytes host = name_bytes(store.host)
    last = store.log.last
    memset(&begin, 0, sizeof(begin))
    begin.epoch = epoch
    begin.restarted_ns = unix_ns
    begin.old_end = store.end
    begin.tail_checksum = last[1] if last else 0
    memcpy(begin.host, <const char*>host, NAME_SIZE)
    return begin


cdef class Sequencer:
    """The writer of a store, from the store's end on.

    Parameters
    ----------
    store : Store
    epoch : int
        The epoch to write, which no host has used before.
    now_ns, unix_ns : int
        Monotonic time, and the host's UNIX time.

    Attributes
    ----------
    received : int
        Messages, and datagrams without messages: the sum of all verdicts and `held`.
    held : int
        Messages that wait for those before them.
    full : bool
        The log has no room at present: call `make_room`.
    """

    def __cinit__(self):
        self.senders = <Sender*>calloc(SENDERS_MAX + 1, sizeof(Sender))
        self._cells = <uint8_t*>malloc(<size_t>(HELD_MAX + 1) * CELL)
        if self.senders == NULL or self._cells == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t at
        if self.senders != NULL:
            for at in range(SENDERS_MAX + 1):
                free(self.senders[at].cells)
        free(self.senders)
        free(self._cells)

    def __init__(self, Store store, uint64_t epoch, int64_t now_ns, int64_t unix_ns):
        self.store = store
        self.log = store.log
        self._names = {}
        self._recover()
        self.clock.unix_ns = unix_ns
        self.clock.now_ns = self._began_ns = now_ns
        self._epoch = epoch
        self._key = store.key
        self._begin = epoch_begin(store, epoch, unix_ns)
        self._begin_due = True
        store.begin(epoch)
        if not self.make_room(now_ns, unix_ns):
            self.log.writer.limit = 0  # no record may precede the RESTART
        elif self._begin_due:
            self._write_begin(unix_ns)
            self._write_senders(unix_ns)

    cdef bint _write_begin(self, int64_t unix_ns):
        # Write RESTART: followers learn from it who writes, and so where to send messages.
        self._begin_due = False
        self._begin_due = not self._write(
            KIND_RESTART, <const uint8_t*>&self._begin, sizeof(EpochBegin), unix_ns)
        return not self._begin_due

    # --- what it knows of senders ---------------------------------------------------------------

    def _recover(self):
        # Read the senders back from the last segment that begins with SENDERS. That is the last
        # segment, unless its writer was killed before it wrote a record.
        cdef Place place
        cdef uint64_t position = self.log.writer.position
        cdef uint64_t first = self.log.first()[0]
        cdef uint64_t end = position
        cdef bint known = False
        while position > first and not known:
            position = header_position(self.log.segment_header(position - 1))
            _memory = self.log.place_at(position, &place)
            known = place_look(&place) > 0 and place_record(&place).kind == KIND_SENDERS
        while position < end:
            _memory = self.log.place_at(position, &place)
            if not place_whole(&place):
                position = self.log.behind(position)
                continue
            while place_whole(&place):
                self._read(place_record(&place))
                place.position += place_look(&place)
            position = place.position

    cdef _read(self, const Record* record):
        cdef const SenderEntry* entries = <const SenderEntry*>(<const uint8_t*>record + RECORD_SIZE)
        cdef uint64_t i
        cdef Sender* sender
        if record.kind == KIND_BUS and 0 < <uint16_t>record.object <= self.count:
            sender = self.senders + <uint16_t>record.object
            if sender.entry.incarnation == <uint32_t>record.flight_ns:
                sender.entry.next = record.number + 1
                sender.entry.position = record.position
        elif record.kind in (KIND_SENDER, KIND_SENDERS):
            for i in range((record.length - RECORD_SIZE) // sizeof(SenderEntry)):
                if entries[i].sender <= SENDERS_MAX:
                    self.senders[entries[i].sender].entry = entries[i]
                    self.count = max(self.count, entries[i].sender)
                    self._names[entries[i].name[:NAME_SIZE]] = entries[i].sender

    def known(self) -> NDArray[np.void]:
        """Return the entries of all senders, an array of dtype `SENDER_ENTRY`."""
        return np.frombuffer(self._entries(), SENDER_ENTRY)

    cdef bytes _entries(self):
        cdef uint32_t at
        return b"".join([
            (<char*>&self.senders[at].entry)[:sizeof(SenderEntry)]
            for at in range(1, self.count + 1)])

    # --- the log --------------------------------------------------------------------------------

    def make_room(self, int64_t now_ns, int64_t unix_ns) -> bool:
        """Begin the next segment if one is due; False: there is no room, or another host writes."""
        self.full = False
        if not self.store.writer:
            return False
        if self.log.writer.limit < self.log.writer.position + RECORD_SIZE + SEND_SIZE_MAX:
            return self._roll(steady_time(&self.clock, now_ns, unix_ns))
        return True

    cdef bint _roll(self, int64_t unix_ns):
        if not self.log.roll():
            self.full = True
            return False
        return self._write_senders(unix_ns) and (
            not self._begin_due or self._write_begin(unix_ns))

    cdef bint _write_senders(self, int64_t unix_ns):
        cdef bytes entries = self._entries()
        self._senders_due = self.log.writer.position + SENDERS_EVERY
        return self._write(
            KIND_SENDERS, <const uint8_t*><const char*>entries, len(entries), unix_ns)

    cdef bint _write(self, int kind, const uint8_t* payload, uint64_t size, int64_t unix_ns,
                     uint64_t number=0):
        # Write a record that is not a message.
        cdef Record record
        memset(&record, 0, sizeof(record))
        record.length = <int>(RECORD_SIZE + size)
        record.kind = kind
        record.number = number
        record.stream = STREAM_NONE
        record.flight_ns = FLIGHT_UNKNOWN
        record.received_ns = unix_ns
        while True:
            record.published_ns = max(
                unix_ns,
                self.log.last_ns + 1 if self.log.last_ns != INT64_MIN else 0)
            if log_append(self.log, &record, payload):
                return True
            if not self._roll(unix_ns):  # writes SENDERS
                return False

    # --- datagrams ------------------------------------------------------------------------------

    def receive(self, data: bytes, int64_t now_ns, int64_t unix_ns) -> bytes:
        """Take one datagram; return the reply to its sender, which is mostly empty.

        Parameters
        ----------
        data : bytes-like
        now_ns, unix_ns : int
            Monotonic time, and the host's UNIX time.
        """
        cdef bytes content = bytes(data)
        cdef const uint8_t* at = <const uint8_t*><const char*>content
        cdef const SendHeader* header = <const SendHeader*>at
        cdef int told = 0
        cdef int registering
        cdef int64_t stamp_ns = steady_time(&self.clock, now_ns, unix_ns)
        registering = self.accept(at, len(content), now_ns, stamp_ns, &told)
        if registering:
            told = self._register(<const Registration*>(at + SEND_HEADER_SIZE), now_ns, stamp_ns)
        if self.full:
            self.make_room(now_ns, unix_ns)
        if self.log.writer.position >= self._senders_due and self.store.writer:
            self._write_senders(stamp_ns)
        if told:
            return send_datagram(self.store.key, self.store.promised, header.sender,
                                 header.incarnation, told, 0, flags=SEND_REFUSED)
        return b""

    cdef int accept(self, const uint8_t* data, uint64_t size, int64_t now_ns, int64_t unix_ns,
                    int* told) noexcept nogil:
        # Take one datagram. Returns 1 if it is a registration (`_register`); *told: a Refusal to
        # send.
        cdef const SendHeader* header = <const SendHeader*>data
        cdef bint whole = send_whole(data, size)
        # A datagram without messages counts as one unit: it says that its sender is alive.
        cdef uint64_t units = max(header.count, 1) if whole else 1
        cdef int verdict = self._refusal(header, told) if whole else SEQUENCER_MALFORMED
        self.received += units
        if verdict >= 0:
            self._verdicts[verdict] += units
            return 0
        if header.flags == SEND_REGISTER:
            return 1
        self._take_messages(header, now_ns, unix_ns)
        return 0

    cdef void _take_messages(
            self, const SendHeader* header, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Take the messages of a valid datagram of this epoch and its sender's incarnation.
        cdef const uint8_t* message = <const uint8_t*>header + SEND_HEADER_SIZE
        cdef Sender* sender = self.senders + header.sender
        cdef uint64_t i
        cdef uint16_t length
        cdef int verdict
        sender.heard_ns = now_ns
        self._verdicts[SEQUENCER_ACCEPTED] += header.count == 0
        for i in range(header.count):
            memcpy(&length, message, 2)
            verdict = self._message(sender, header.first + i, message, unix_ns)
            if verdict >= 0:
                self._verdicts[verdict] += 1
            message += MESSAGE_HEADER_SIZE + length

    cdef int _refusal(self, const SendHeader* header, int* told) noexcept nogil:
        # Return the verdict on a valid datagram that is not for this store, epoch or incarnation;
        # -1: it is. A datagram for a later epoch ends this writer.
        cdef uint32_t sender = min(header.sender, <uint32_t>SENDERS_MAX)
        cdef const SenderEntry* known = &self.senders[sender].entry
        if header.store_key != self._key:
            return SEQUENCER_UNKNOWN
        if header.epoch > self.store.promised:
            with gil:
                self.store.fence(header.epoch)
        if not self.store.writer or header.epoch < self._epoch:
            told[0] = REFUSED_EPOCH
            return SEQUENCER_FENCED
        if header.flags == SEND_REGISTER:
            return -1
        if (header.sender == 0 or header.sender > self.count
                or header.incarnation > known.incarnation):
            return SEQUENCER_UNKNOWN
        if header.incarnation < known.incarnation:
            told[0] = REFUSED_INCARNATION
            return SEQUENCER_FENCED
        return -1

    cdef int _message(self, Sender* sender, uint64_t number, const uint8_t* message, int64_t unix_ns
                      ) noexcept nogil:
        # Return the verdict on one message; -1: it is held and gets one later.
        if sender.held:
            self._release(sender, unix_ns)
        if number < sender.entry.next:
            return SEQUENCER_DUPLICATE
        if number > sender.entry.next:
            return self._hold(sender, number, message)
        if not self._append(sender, message, unix_ns):
            return SEQUENCER_FULL
        if sender.held:
            self._release(sender, unix_ns)
        return SEQUENCER_ACCEPTED

    cdef bint _append(self, Sender* sender, const uint8_t* message, int64_t unix_ns) noexcept nogil:
        # Append the next message of a sender. False: there is no room.
        cdef Record record
        cdef uint16_t length, type
        cdef bint rolled
        memcpy(&length, message, 2)
        memcpy(&type, message + 2, 2)
        record.length = RECORD_SIZE + length
        record.kind = KIND_BUS
        record.line = 0
        record.flags = 0
        record.received_ns = unix_ns
        record.published_ns = max(unix_ns, self.log.last_ns + 1)
        record.number = sender.entry.next
        record.object = <uint32_t>type << 16 | sender.entry.sender
        record.flight_ns = <int>sender.entry.incarnation
        record.stream = STREAM_NONE
        record.session = 0
        record.checksum = 0
        while not log_append(self.log, &record, message + MESSAGE_HEADER_SIZE):
            with gil:
                rolled = self._roll(unix_ns)
            if not rolled:
                return False
            record.published_ns = max(unix_ns, self.log.last_ns + 1)  # SENDERS took a time stamp
        sender.entry.next += 1
        sender.entry.position = self.log.last_position
        return True

    cdef int _hold(self, Sender* sender, uint64_t number, const uint8_t* message) noexcept nogil:
        cdef uint32_t* place
        cdef uint32_t cell
        cdef uint16_t length
        if number - sender.entry.next > AHEAD_MAX - 1:
            return SEQUENCER_EARLY
        if sender.cells == NULL:
            sender.cells = <uint32_t*>calloc(AHEAD_MAX, 4)
        if sender.cells == NULL:
            return SEQUENCER_EARLY
        place = sender.cells + number % AHEAD_MAX
        if place[0]:
            return SEQUENCER_DUPLICATE
        cell = self._take_cell()
        if cell == 0:
            cell = self._give_up(sender, number)
        if cell == 0:
            return SEQUENCER_EARLY
        memcpy(&length, message, 2)
        memcpy(self._cells + cell * CELL, message, MESSAGE_HEADER_SIZE + length)
        place[0] = cell
        sender.top = max(sender.top, number) if sender.held else number
        sender.held += 1
        self.held += 1
        return -1

    cdef void _release(self, Sender* sender, int64_t unix_ns) noexcept nogil:
        # Append the held messages that are next.
        cdef uint32_t* place
        cdef uint32_t cell
        while sender.held:
            place = sender.cells + sender.entry.next % AHEAD_MAX
            cell = place[0]
            if cell == 0 or not self._append(sender, self._cells + cell * CELL, unix_ns):
                return
            self._give_cell(cell)
            place[0] = 0
            sender.held -= 1
            self.held -= 1
            self._verdicts[SEQUENCER_ACCEPTED] += 1

    cdef void _drop_held(self, Sender* sender) noexcept nogil:
        # Drop the messages held for an incarnation that has ended.
        cdef int at
        cdef uint32_t cell
        if sender.held == 0:
            return
        for at in range(AHEAD_MAX):
            cell = sender.cells[at]
            if cell:
                self._give_cell(cell)
                sender.cells[at] = 0
        self._verdicts[SEQUENCER_FENCED] += sender.held
        self.held -= sender.held
        sender.held = 0

    cdef uint32_t _take_cell(self) noexcept nogil:
        cdef uint32_t cell = self._free
        if cell:
            memcpy(&self._free, self._cells + cell * CELL, 4)
        elif self._fresh < HELD_MAX:
            self._fresh += 1
            cell = self._fresh
        return cell

    cdef uint32_t _give_up(self, Sender* sender, uint64_t number) noexcept nogil:
        # Take a cell from the sender that holds most: the one of its highest number, because
        # messages far ahead must not keep out those that they wait for. 0: it is this sender, and
        # the new number is higher still.
        cdef Sender* other = sender
        cdef uint32_t* place
        cdef uint32_t cell, at
        for at in range(1, self.count + 1):
            if self.senders[at].held > other.held:
                other = self.senders + at
        if other == sender and sender.top < number:
            return 0
        place = other.cells + other.top % AHEAD_MAX
        cell = place[0]
        place[0] = 0
        other.held -= 1
        self.held -= 1
        self._verdicts[SEQUENCER_EARLY] += 1
        while other.held and other.cells[other.top % AHEAD_MAX] == 0:
            other.top -= 1
        return cell

    cdef void _give_cell(self, uint32_t cell) noexcept nogil:
        memcpy(self._cells + cell * CELL, &self._free, 4)
        self._free = cell

    # --- registration ---------------------------------------------------------------------------

    cdef int _register(self, const Registration* registration, int64_t now_ns, int64_t unix_ns):
        # Register a sender. Returns a Refusal, or 0.
        cdef Sender* sender
        cdef SenderEntry entry
        name, host = registration.name[:NAME_SIZE], registration.host[:NAME_SIZE]
        at = self._names.get(name, 0)
        sender = self.senders + <uint32_t>at
        if at and sender.entry.nonce == registration.nonce:
            # The sender has not seen its registration, or a failover took it back: write it again.
            self._verdicts[SEQUENCER_DUPLICATE] += 1
            sender.heard_ns = now_ns
            entry = sender.entry
            self._write(KIND_SENDER, <const uint8_t*>&entry, sizeof(entry), unix_ns)
            return 0
        if at and memcmp(sender.entry.host, registration.host, NAME_SIZE) and (
                now_ns - max(sender.heard_ns, self._began_ns) < ALIVE_NS):
            self._verdicts[SEQUENCER_FENCED] += 1
            self.refused_names += 1
            self.store.said.append(
                f"refused a second sender {name_text(name)} on {name_text(host)}: the one on "
                f"{name_text(sender.entry.host[:NAME_SIZE])} is alive")
            return REFUSED_NAME_IN_USE
        if at == 0 and self.count == SENDERS_MAX:
            self._verdicts[SEQUENCER_FENCED] += 1
            return REFUSED_SENDERS_FULL
        memset(&entry, 0, sizeof(entry))
        entry.sender = at or self.count + 1
        entry.incarnation = sender.entry.incarnation + 1 if at else 1
        entry.next = 1
        entry.position = self.log.writer.position
        entry.nonce = registration.nonce
        memcpy(entry.name, registration.name, NAME_SIZE)
        memcpy(entry.host, registration.host, NAME_SIZE)
        if not self._write(KIND_SENDER, <const uint8_t*>&entry, sizeof(entry), unix_ns):
            self._verdicts[SEQUENCER_FULL] += 1
            return 0
        sender = self.senders + entry.sender
        self._drop_held(sender)
        sender.entry = entry
        sender.heard_ns = now_ns
        self.count = max(self.count, entry.sender)
        self._names[name] = entry.sender
        self._verdicts[SEQUENCER_ACCEPTED] += 1
        return 0

    def order(self, bytes entry, uint64_t epoch, int64_t now_ns, int64_t unix_ns) -> bool:
        """Append an entry to a composite's order log; False: there is no room for it yet.

        Parameters
        ----------
        entry : bytes
            An OrderEntry.
        epoch : int
            Epoch of the input's last record before the entry's end.
        now_ns, unix_ns : int
            Monotonic time, and the host's UNIX time.
        """
        if not self.store.writer:
            return False
        return self._write(KIND_ORDER, <const uint8_t*><const char*>entry, len(entry),
                           steady_time(&self.clock, now_ns, unix_ns), epoch)

    def refuse_unauthentic(self) -> None:
        """Count a datagram whose tag was wrong or missing."""
        self.received += 1
        self._verdicts[SEQUENCER_UNAUTHENTIC] += 1

    @property
    def verdicts(self) -> dict[SequencerVerdict, int]:
        """Number of messages, and of datagrams without messages, by verdict."""
        return {verdict: self._verdicts[<int>verdict] for verdict in SequencerVerdict}

    @property
    def clock_steps(self) -> int:
        """How often the host's clock was set by more than a second."""
        return self.clock.steps
