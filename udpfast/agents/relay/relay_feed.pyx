"""What a feed publishes, once more as a Roq publisher. `relay_feed.pxd` has the rules."""

import secrets

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport ENOMEM
from libc.math cimport NAN
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset

from udpfast.agents.relay.relay_budget cimport (
    HEADERS_IPV6, budget_cost_ns, budget_credit_ns, budget_init, budget_pay)
from udpfast.agents.relay.relay_encoding cimport ROWS_MAX, RelayEncoding
from udpfast.agents.relay.relay_held cimport (
    HELD_LEVELS, HELD_TOPS, HELD_WHOLE, HeldLevels, HeldObject, held_all, held_free, held_init,
    held_let_go, held_pop, held_push, held_reserve, held_reset, held_set)
from udpfast.agents.relay.relay_lines cimport RelayLines
from udpfast.agents.relay.relay_types cimport (
    STATUS_TYPE, TYPES_MAX, has_parts, has_snapshots, is_type_of, relay_type)
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, CONNECTION_READY, DATAGRAM_SIZE_MAX,
    FRAGMENT_SIZE, FRAGMENTS_MAX, Frame,
    KIND_BUS, KIND_CONNECTION, KIND_GAP, KIND_LAPPED, KIND_MESSAGE, KIND_RECOVERED, KIND_SESSION,
    KIND_STALE, KIND_UPDATES, Lapped, MESSAGE_SIZE_MAX, RECORD_SIZE, Record)
from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_CUSTOM_METRICS, KIND_EXTERNAL_LATENCY, KIND_ORDERS, KIND_STATISTICS,
    KIND_TOP_OF_BOOK, KIND_TRADES)
from udpfast.feed.publication cimport (
    SEND_QUEUE_FLUSH, SEND_QUEUE_SLOTS, SendQueue, Publication, send_queue_datagram,
    send_queue_frame, send_queue_move)
from udpfast.market.book cimport UPDATE_TYPE_SNAPSHOT, UPDATE_TYPE_STALE, update_replaces
from udpfast.market.doubt cimport (
    doubt_key_stream, doubt_said_tag, doubt_stream, doubt_tag, doubts_begin_all)
from udpfast.market.ladder cimport ladder_copy
from udpfast.market.publish cimport PUBLISH_ROOM, UPDATE_INCREMENTAL
from udpfast.market.state cimport (
    StateObject, StateValue, state_apply, state_at, state_find, state_free, state_init,
    state_lapped, state_sound)
from udpfast.market.update_sizes cimport update_fixed
from udpfast.market.updates cimport *

import numpy as np

from udpfast.feed.publication import Publication
from udpfast.payload.roq.event import encode_event
from udpfast.shm.relay_counts import RELAY_COUNTS

__all__ = ["RelayFeed"]

#: What a relay may carry, as the bits of a gateway's status have it: all that a feed decodes, but
#: single orders.
SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x20 | 0x40
#: What a short line holds back: tops of book, and books by price.
HELD_BACK = 0x4 | 0x8

cdef enum:
    ROUND_BURST = 64             # datagrams of a round at one turn, as in feed/snapshot_cycle
    ROUND_LOOKS = 4096           # values looked at in one turn
    SESSION_IDS = 1 << 16
    # The last one shows what is lost before it, if it arrives: several do.
    END_HEARTBEATS = 3
    # Levels leave a quarter of the burst to tops and trades. Rounds take a quarter of the rate, so
    # that an object in doubt is told of though levels wait without end.
    LEVELS_RESERVE = 4
    ROUND_SHARE = 4
    # A relay that sent nothing for so many heartbeats was stopped: fewer than make it silent there.
    PAUSE_HEARTBEATS = 5
    # So long after something was held last, the line is no longer called short.
    SHORT_NS = 1_000_000_000
    ROOM_KEPT = 16               # datagrams of a send queue for heartbeats and the relay's status

if len(RELAY_COUNTS) != RELAY_COUNT:
    raise ImportError(f"expected {RELAY_COUNT} names, found {len(RELAY_COUNTS)}")


cdef inline bint is_level_or_top(Frame frame) noexcept nogil:
    return (is_type_of(frame.object_type, KIND_BOOK)
            or is_type_of(frame.object_type, KIND_TOP_OF_BOOK))


@cython.final
cdef class RelayFeed(RelayEncoding):
    """Records in, datagrams out.

    Parameters
    ----------
    lines : RelayLines or None
        Where datagrams go. None: they are kept in `kept`, for tests.
    objects : int
        Objects of one session, at most; records of further ones are counted and not sent.
    heartbeat_interval_ns, snapshot_interval_ns : int
        Silence on a channel until a heartbeat; between the beginnings of two rounds, at least.
    snapshot_rate_per_s : int
        Datagrams per second that rounds take, at most.
    session_id : int, optional
        Drawn at random by default.
    counts : numpy.ndarray, optional
        int64, one for each of `shm.relay_counts.RELAY_COUNTS`: where it counts, and kept.
    bits_per_s, burst_bytes : int
        What a line takes that carries all datagrams, and at once after a silence; 0 bits: all.
    headers : int
        Bytes of a datagram on the line beside its payload.
    late_ns : int
        An object that was held for so long is said to be in doubt.

    Attributes
    ----------
    publication : Publication
    sessions : list of int
        Ids of all sessions so far.
    kept : pair of list of bytes
        Datagrams by channel, without lines.
    """

    def __cinit__(self):
        self.open_payload = <uint8_t*>calloc(1, MESSAGE_SIZE_MAX)
        if self.open_payload == NULL:
            raise MemoryError

    def __dealloc__(self):
        state_free(&self.state)
        held_free(&self.held)
        free(self.open_payload)
        free(self.told)

    def __init__(self, RelayLines lines=None, *, objects=1 << 18,
                 heartbeat_interval_ns=100_000_000, snapshot_interval_ns=1_000_000_000,
                 snapshot_rate_per_s=20_000, session_id=None, counts=None, bits_per_s=0,
                 burst_bytes=16_384, headers=HEADERS_IPV6, late_ns=1_000_000_000):
        cdef int64_t[::1] memory
        state_init(&self.state, objects)
        self.lines = lines
        self.kept = ([], [])
        if counts is None:
            counts = np.zeros(RELAY_COUNT, np.int64)
        memory = counts
        if len(counts) != RELAY_COUNT:
            raise ValueError(f"expected {RELAY_COUNT} counts, found {len(counts)}")
        self._counts_owner = counts
        self.counts = &memory[0]
        if session_id is None:
            session_id = secrets.randbelow(SESSION_IDS)
        self.publication = Publication(session_id, heartbeat_interval_ns=heartbeat_interval_ns)
        self.sessions = [session_id]
        self.counts[RELAY_SESSIONS] += 1
        self.round_interval_ns = snapshot_interval_ns
        self.round_datagram_ns = max(1, 1_000_000_000 // snapshot_rate_per_s)
        budget_init(&self.budget, bits_per_s, burst_bytes, headers)
        self.late_ns = late_ns
        self.pause_ns = min(late_ns, PAUSE_HEARTBEATS * heartbeat_interval_ns)
        if bits_per_s:
            self.round_datagram_ns = max(
                self.round_datagram_ns,
                ROUND_SHARE * budget_cost_ns(&self.budget, DATAGRAM_SIZE_MAX))
            self.holding = True
        if not held_init(&self.held):
            raise MemoryError
        self.available = True
        self._say_status()

    def flush_all(self) -> None:
        """Send what waits, whether or not it is paid for."""
        cdef int channel
        self._credit_ns()
        for channel in range(CHANNEL_COUNT):
            self._send(channel, self.publication.send_queues[channel].count)

    def read_counts(self) -> dict:
        """Return what was counted so far, by name."""
        return dict(zip(RELAY_COUNTS, self._counts_owner.tolist()))

    def say_available(self, bint available) -> None:
        """Let the far end know whether the venue is heard here: a GatewayStatus, if that changed.

        It leaves with the next turn.
        """
        if available != self.available:
            self.available = available
            self._say_status()

    def say_end(self) -> None:
        """Tell the far end that nothing more comes: all is in doubt, and nothing is available."""
        self.say_available(False)
        self._put_status()
        self.doubt_all()
        for _ in range(END_HEARTBEATS):
            self.publication.put_heartbeat(CHANNEL_INCREMENTAL, self.now_ns)
            self.flush_all()

    def _say_status(self):
        status = {"supported": SUPPORTED, "account": "relay"}
        # What a short line holds back is neither available nor unavailable.
        held_back = HELD_BACK if self.available and self.counts[RELAY_SHORT] else 0
        status["available" if self.available else "unavailable"] = SUPPORTED & ~held_back
        self.status_payload = encode_event({"value_name": "GatewayStatus", "value": status})
        self.status_due = True

    # --- records in -----------------------------------------------------------------------------

    cdef int begin(self) noexcept nogil:
        self.generation = self.state.mark.generation
        return self._follow()

    cdef int take(self, const Record* header, const uint8_t* payload) noexcept nogil:
        cdef uint32_t stream = doubt_stream(header.stream)
        cdef uint32_t gaps = (
            self.state.doubts.heard[stream].gaps if stream < self.state.doubts.streams else 0)
        cdef int rc = state_apply(&self.state, header, payload)
        if unlikely(rc < 0):
            return rc
        rc = self._follow()
        if unlikely(rc < 0):
            return rc
        self.counts[RELAY_RECORDS] += 1
        if likely(KIND_UPDATES <= header.kind < KIND_BUS):
            self._take_update(header, payload)
        else:
            self._take_control(header, payload, gaps)
        return 0

    cdef int learn(self, const Record* header, const uint8_t* payload) noexcept nogil:
        cdef int rc = state_apply(&self.state, header, payload)
        if likely(rc == 0):
            rc = self._follow()
        self.counts[RELAY_RECORDS] += 1
        self.counts[RELAY_LEARNT] += 1
        return rc

    cdef int _follow(self) noexcept nogil:
        # As many of `told` as the state has values, of the session that it is in.
        cdef void* memory
        if unlikely(self.state.mark.generation != self.generation):
            with gil:
                self.begin_session()
        if unlikely(self.state.values_room > self.told_room):
            memory = realloc(self.told, self.state.values_room * sizeof(Told))
            if memory == NULL:
                return -ENOMEM
            self.told = <Told*>memory
            memset(self.told + self.told_room, 0,
                   (self.state.values_room - self.told_room) * sizeof(Told))
            self.told_room = self.state.values_room
            if not held_reserve(&self.held, self.told_room):
                return -ENOMEM
        return 0

    cdef begin_session(self):
        # Objects are numbered anew, and the far end forgets all of them.
        session_id = self.publication.session
        while session_id == self.publication.session:
            session_id = secrets.randbelow(SESSION_IDS)
        self.flush_all()
        self.publication.restart(session_id)
        self.sessions.append(session_id)
        self.counts[RELAY_SESSIONS] += 1
        self.generation = self.state.mark.generation
        if self.told != NULL:
            memset(self.told, 0, self.told_room * sizeof(Told))
        # What waited is told anew, or forgotten, with its object.
        self.counts[RELAY_CONFLATED] += self.counts[RELAY_WAITING]
        self.counts[RELAY_WAITING] = 0
        held_reset(&self.held)
        memset(self.given, 0, sizeof(self.given))
        self.number = self.left_out = 0
        self.said = False
        self.open_size = 0
        self.round_at = 0
        self.status_due = True

    cdef void miss(self, uint64_t count, uint64_t epoch) noexcept nogil:
        # Records were missed: whatever they said, the far end has not been told.
        state_lapped(&self.state, count, epoch)
        self.counts[RELAY_LAPPED] += <int64_t>count
        self._follow()
        self._doubt_values(-1)

    cdef void _take_control(
            self, const Record* header, const uint8_t* payload, uint32_t gaps) noexcept nogil:
        cdef Lapped lapped
        self.counts[RELAY_NOT_CARRIED if header.kind == KIND_MESSAGE else RELAY_CONTROL] += 1
        if header.kind == KIND_GAP:
            if self.state.doubts.heard[doubt_stream(header.stream)].gaps != gaps:
                self.counts[RELAY_GAPS] += 1
                self.doubt_all()
        elif header.kind == KIND_STALE or header.kind == KIND_RECOVERED:
            self._look_at_object(header, doubt_said_tag(header, payload))
        elif header.kind == KIND_SESSION and not doubts_begin_all(header):
            self._doubt_values(<int64_t>doubt_stream(header.stream))
        elif header.kind == KIND_LAPPED:
            lapped.missed = 0
            if header.length >= <int64_t>(RECORD_SIZE + sizeof(Lapped)):
                memcpy(&lapped, payload, sizeof(Lapped))
            self.counts[RELAY_LAPPED] += <int64_t>lapped.missed
            self._doubt_values(-1)
        elif header.kind == KIND_CONNECTION:
            if self.state.mark.has_connection[CHANNEL_INCREMENTAL]:
                self._look_at_connection()

    cdef void _look_at_connection(self) noexcept nogil:
        cdef bint available = (
            self.state.mark.connection[CHANNEL_INCREMENTAL].status == CONNECTION_READY)
        if available != self.available:
            with gil:
                self.say_available(available)

    cdef void _take_update(self, const Record* header, const uint8_t* payload) noexcept nogil:
        cdef uint32_t index = self.state.took - 1
        cdef const UpdateHeader* update = <const UpdateHeader*>payload
        cdef Told* told
        if header.kind == KIND_ORDERS:
            self.counts[RELAY_NOT_CARRIED] += 1
            return
        if unlikely(self.state.took == 0):
            # Beyond a limit, or damaged: then its object is in doubt, if that is known.
            self.counts[RELAY_REFUSED] += 1
            if header.length >= <int64_t>(RECORD_SIZE + sizeof(UpdateHeader)):
                self._look_at_object(header, doubt_tag(update.exchange_id, update.symbol_id))
            return
        told = self.told + index
        if header.kind == KIND_TRADES or header.kind == KIND_EXTERNAL_LATENCY:
            if self._put_record(index, header, payload):
                self.counts[RELAY_UPDATES] += 1
            else:
                self.counts[RELAY_REFUSED] += 1
                self.doubt_all()     # of these nothing but a gap tells that one is missing
            return
        if unlikely(not state_sound(&self.state, self.state.values + index)):
            self.counts[RELAY_DOUBTED] += 1
            self._doubt(index)
            return
        if header.kind == KIND_BOOK and update.present & PRESENT_MORE and (
                <uint64_t>header.length - RECORD_SIZE + sizeof(Level) > PUBLISH_ROOM):
            told.parts = True        # as much as a record takes: the book is not whole yet
            self.counts[RELAY_IN_WHOLE] += 1
            return
        if unlikely(self.holding) and self._has_to_wait(index, header.kind):
            self._hold(index, header, payload)
            self.held.objects[index].updates += 1
            self.counts[RELAY_WAITING] += 1
            return
        if likely(told.status == TOLD_SOUND and not told.parts):
            if likely(self._put_record(index, header, payload)):
                self.counts[RELAY_UPDATES] += 1
                return
        self.counts[RELAY_IN_WHOLE if self._put_whole(index) else RELAY_REFUSED] += 1

    cdef void _look_at_object(self, const Record* header, uint64_t tag) noexcept nogil:
        # What is true of its values may be another thing now.
        cdef StateObject* object = state_find(&self.state, header, tag)
        cdef uint32_t at
        if object == NULL:
            return
        at = object.values
        while at:
            if not state_sound(&self.state, self.state.values + at - 1):
                self._doubt(at - 1)
            elif self.told[at - 1].status == TOLD_WHOLE:
                self._tell_whole(at - 1)
            elif self.holding:
                self._line_up(at - 1)
            at = self.state.values[at - 1].next

    cdef void _doubt_values(self, int64_t stream) noexcept nogil:
        # All values of a stream's objects (-1: of all streams) are other ones, or unknown.
        cdef uint32_t i
        cdef bint any_ = False
        for i in range(self.state.values_count):
            if stream < 0 or doubt_key_stream(
                    state_at(&self.state, self.state.values[i].object).doubt.key) == stream:
                any_ = any_ or self.told[i].status == TOLD_SOUND
                self.told[i].status = TOLD_WHOLE if self.told[i].status else TOLD_NOTHING
                self.told[i].parts = False
                self._answer(i, False)
        if any_:
            self.doubt_all()

    # --- doubt ----------------------------------------------------------------------------------

    cdef void doubt_all(self) noexcept nogil:
        # Leave a number out. The heartbeat behind it shows the hole at once.
        if not self.said:
            return
        self.said = False
        self.publication.leave_out()
        self.number += 1
        self.left_out = self.number
        self.publication.put_heartbeat(CHANNEL_INCREMENTAL, self.now_ns)
        self.number += 1
        self.round_due_ns = 0        # what is sound here need not wait

    cdef void _doubt(self, uint32_t index) noexcept nogil:
        # A value is in doubt here: the far end must not believe it either.
        self._answer(index, False)
        self._say_doubt(index)

    cdef void _say_doubt(self, uint32_t index) noexcept nogil:
        cdef Told* told = self.told + index
        cdef const StateValue* value = self.state.values + index
        cdef Book book
        cdef TopOfBook top
        cdef uint32_t size = 0
        if told.status != TOLD_SOUND or (
                value.record.kind == KIND_TRADES or value.record.kind == KIND_EXTERNAL_LATENCY):
            return
        told.status = TOLD_WHOLE
        told.parts = False
        self.counts[RELAY_STALE] += 1
        if told.number < self.left_out:
            return                   # it is in doubt there since that number, and will remain so
        if value.record.kind == KIND_BOOK and value.size >= sizeof(Book):
            memcpy(&book, value.payload, sizeof(Book))
            book.bid_count = book.ask_count = book.header.row_count = 0
            book.header.present &= ~(PRESENT_ROWS | PRESENT_ASKS)
            book.header.update_type = UPDATE_TYPE_STALE
            size = self._encode(KIND_BOOK, <const uint8_t*>&book, NULL, sizeof(Book),
                                value.record.received_ns, False)
        elif value.record.kind == KIND_TOP_OF_BOOK and value.size >= sizeof(TopOfBook):
            memcpy(&top, value.payload, sizeof(TopOfBook))
            top.bid_price = top.ask_price = NAN
            top.bid_quantity = top.ask_quantity = 0
            top.header.present &= ~PRESENT_LAYER
            top.header.update_type = UPDATE_TYPE_STALE
            size = self._encode(KIND_TOP_OF_BOOK, <const uint8_t*>&top, NULL, sizeof(TopOfBook),
                                value.record.received_ns, False)
        if size:
            self._put(told, size, False)
        else:
            self.doubt_all()         # the protocol has no word for it of this kind

    # --- messages out ---------------------------------------------------------------------------

    cdef bint _put_record(
            self, uint32_t index, const Record* header, const uint8_t* payload) noexcept nogil:
        # An update as it is. False: it fits no message.
        cdef Told* told = self.told + index
        cdef const UpdateHeader* update = <const UpdateHeader*>payload
        cdef uint32_t row
        cdef uint32_t fixed = update_fixed(header.kind, &row)
        cdef uint32_t size = self._encode(
            header.kind, payload, payload + fixed, fixed + update.row_count * row,
            header.received_ns, False)
        if size == 0 or not self._name(told, header.kind):
            memset(self.encoded, 0, size)
            return False
        self._put(told, size, has_snapshots(header.kind) and (
            not has_parts(header.kind) or update_replaces(header.flags, update.update_type)))
        return True

    cdef bint _put_whole(self, uint32_t index) noexcept nogil:
        # All that there is of a value, which is sound.
        cdef Told* told = self.told + index
        cdef uint16_t kind = self.state.values[index].record.kind
        cdef uint32_t size = self._encode_whole(index) if self._name(told, kind) else 0
        if size == 0:
            self._doubt(index)
            return False
        self.counts[RELAY_WHOLE] += 1
        self._put(told, size, has_snapshots(kind))
        told.status = TOLD_SOUND
        told.parts = False
        self._answer(index, True)
        return True

    cdef uint32_t _encode_whole(self, uint32_t index) noexcept nogil:
        # 0: it fits no message.
        cdef const StateValue* value = self.state.values + index
        cdef Told* told = self.told + index
        cdef Book book
        cdef uint32_t size, rows = value.bids.count + value.asks.count
        if value.record.kind != KIND_BOOK:
            size = self._encode(
                value.record.kind, value.payload, NULL, value.size, value.record.received_ns, True)
            return size
        if told.refused_rows and rows >= told.refused_rows:
            return 0                 # nor does it fit now
        size = 0
        if rows <= ROWS_MAX:
            memcpy(&book, value.payload, sizeof(Book))
            book.bid_count = ladder_copy(&value.bids, 0, self.rows)
            book.ask_count = ladder_copy(&value.asks, 0, self.rows + book.bid_count)
            book.header.row_count = rows
            book.header.present |= PRESENT_ROWS | PRESENT_ASKS
            book.header.update_type = UPDATE_TYPE_SNAPSHOT
            size = self._encode(
                KIND_BOOK, <const uint8_t*>&book, <const uint8_t*>self.rows,
                sizeof(Book) + rows * sizeof(Level), value.record.received_ns, True)
        told.refused_rows = 0 if size else rows
        return size

    cdef void _put(self, Told* told, uint32_t size, bint snapshot) noexcept nogil:
        # What was encoded, as the next message of its object.
        told.last_seqno = self.publication.put_chained(
            self.encoded, size, told.object_type, told.object_id, snapshot, told.last_seqno,
            self.now_ns)
        memset(self.encoded, 0, size)
        self.number += 1
        told.number = self.number
        told.fragments = <uint16_t>((size - 1) // FRAGMENT_SIZE + 1)
        self.said = True
        if self.publication.send_queues[CHANNEL_INCREMENTAL].count >= SEND_QUEUE_FLUSH:
            self.flush(CHANNEL_INCREMENTAL)
        if unlikely(self.publication.send_queues[CHANNEL_INCREMENTAL].count
                    > SEND_QUEUE_SLOTS - FRAGMENTS_MAX - ROOM_KEPT):
            # One record made more than the line may carry at once: a message has to fit behind it.
            self._send(CHANNEL_INCREMENTAL, self.publication.send_queues[CHANNEL_INCREMENTAL].count)

    cdef bint _name(self, Told* told, int kind) noexcept nogil:
        # See that it has an object: types of its kind, with all ids of each. False: none is left.
        cdef uint32_t given = self.given[kind - KIND_BOOK]
        if likely(told.object_type):
            return True
        if given >> 16 > TYPES_MAX:
            return False
        told.object_type = relay_type(kind, <int>(given >> 16))
        told.object_id = <uint16_t>given
        self.given[kind - KIND_BOOK] = given + 1
        return True

    cdef void _put_status(self) noexcept nogil:
        with gil:
            memcpy(self.encoded, PyBytes_AS_STRING(self.status_payload), len(self.status_payload))
            self.publication.put_chained(
                self.encoded, <uint32_t>len(self.status_payload), STATUS_TYPE, 0, False, 0,
                self.now_ns)
            memset(self.encoded, 0, len(self.status_payload))
        self.number += 1
        self.status_due = False

    # --- a short line ---------------------------------------------------------------------------

    cdef int64_t _credit_ns(self) noexcept nogil:
        # What may leave at once after all that was put; below 0: so long it takes to leave.
        cdef SendQueue* send_queue
        cdef int64_t cost_ns
        cdef int channel
        if self.budget.ps_per_byte == 0:
            return INT64_MAX
        if self.lines is not None and self.lines.parity_bytes:
            budget_pay(&self.budget, self.now_ns, (
                self.lines.parity_bytes + self.lines.parity_datagrams * self.budget.headers)
                * self.budget.ps_per_byte // 1000)
            self.lines.parity_bytes = self.lines.parity_datagrams = 0
        for channel in range(CHANNEL_COUNT):
            send_queue = &self.publication.send_queues[channel]
            while self.charged[channel] < send_queue.count:
                cost_ns = budget_cost_ns(&self.budget, send_queue.sizes[self.charged[channel]])
                budget_pay(&self.budget, self.now_ns, cost_ns)
                self.charged_ns[channel] += cost_ns
                self.charged[channel] += 1
        return budget_credit_ns(&self.budget, self.now_ns)

    cdef uint32_t _paid(self, int channel) noexcept nogil:
        # How many datagrams of a send queue may leave now. Snapshots come behind the increments.
        cdef SendQueue* send_queue = &self.publication.send_queues[channel]
        cdef int64_t credit_ns = self._credit_ns()
        cdef uint32_t count = 0
        if self.budget.ps_per_byte == 0:
            return send_queue.count
        credit_ns += self.charged_ns[channel]
        if channel == CHANNEL_INCREMENTAL:
            credit_ns += self.charged_ns[CHANNEL_SNAPSHOT]
        while count < send_queue.count and credit_ns > 0:
            credit_ns -= budget_cost_ns(&self.budget, send_queue.sizes[count])
            count += 1
        return count

    cdef bint full(self) noexcept nogil:
        return self.budget.ps_per_byte and self._credit_ns() < -self.budget.burst_ns

    cdef void fall_behind(self, bint behind) noexcept nogil:
        if behind and not self.behind:
            self.counts[RELAY_BEHIND] += 1
            self.holding = True
            self._withdraw()
            self.doubt_all()
        elif self.behind and not behind:
            # What is whole may arrive before the hole is a gap there: the round comes behind that.
            self.round_due_ns = self.now_ns + self.publication.heartbeat_interval
        self.behind = behind

    cdef void _withdraw(self) noexcept nogil:
        # Books, tops and snapshots that have not left are old by now: the far end finds their
        # numbers missing.
        cdef SendQueue* send_queue
        cdef int64_t cost_ns, spared_ns = 0
        cdef uint32_t i, count
        cdef int channel
        self._credit_ns()            # all of them are charged
        self.open_size = 0
        for channel in range(CHANNEL_COUNT):
            send_queue = &self.publication.send_queues[channel]
            count = send_queue.count
            send_queue.count = 0
            for i in range(count):
                if channel == CHANNEL_INCREMENTAL and not is_level_or_top(
                        send_queue_frame(send_queue, i)):
                    send_queue_move(send_queue, send_queue.count, i)
                    send_queue.count += 1
                    continue
                self.said = True
                if self.budget.ps_per_byte:
                    cost_ns = budget_cost_ns(&self.budget, send_queue.sizes[i])
                    self.charged_ns[channel] -= cost_ns
                    spared_ns += cost_ns
            if self.budget.ps_per_byte:
                self.charged[channel] = send_queue.count
        self.budget.paid_ns -= spared_ns

    cdef bint _has_to_wait(self, uint32_t index, uint16_t kind) noexcept nogil:
        # Tops and books wait for the line, and behind those that wait already.
        cdef int64_t credit_ns
        if kind != KIND_TOP_OF_BOOK and kind != KIND_BOOK:
            return False
        if self.behind or self.held.objects[index].waits or self.held.heads[HELD_TOPS]:
            return True
        credit_ns = self._credit_ns()
        if kind == KIND_TOP_OF_BOOK:
            return credit_ns <= 0
        return (credit_ns <= self.budget.burst_ns // LEVELS_RESERVE
                or self.held.heads[HELD_LEVELS] or self.held.heads[HELD_WHOLE])

    cdef void _hold(
            self, uint32_t index, const Record* header, const uint8_t* payload) noexcept nogil:
        # Keep in mind that there is something to say of a sound value; NULL: all of it.
        cdef Told* told = self.told + index
        cdef HeldObject* object = self.held.objects + index
        cdef const Book* book = <const Book*>payload
        cdef const Level* rows
        self.held_ns = self.now_ns
        if not object.waits:
            object.waits = True
            object.since_ns = self.now_ns
        if self.behind and told.status == TOLD_SOUND:
            # What continues would be sound there with what it was, for the moment before it.
            told.status = TOLD_WHOLE
        if self.state.values[index].record.kind == KIND_BOOK:
            if (payload == NULL or told.status != TOLD_SOUND or told.parts
                    or update_replaces(header.flags, book.header.update_type)):
                held_all(&self.held, object)
            else:
                rows = <const Level*>(payload + sizeof(Book))
                held_set(&self.held, object, rows, book.bid_count, rows + book.bid_count,
                         book.ask_count)
            told.parts = told.parts and payload == NULL
        self._line_up(index)

    cdef void _line_up(self, uint32_t index) noexcept nogil:
        # What is held waits in its queue.
        cdef HeldObject* object = self.held.objects + index
        if not object.waits or object.queue:
            return
        if self.told[index].status != TOLD_SOUND:
            held_push(&self.held, index, HELD_WHOLE)
        elif self.state.values[index].record.kind == KIND_BOOK:
            held_push(&self.held, index, HELD_LEVELS)
        else:
            held_push(&self.held, index, HELD_TOPS)

    cdef void _tell_whole(self, uint32_t index) noexcept nogil:
        # A value is sound again: now, or when the line has room for it.
        if self.holding and self._has_to_wait(index, self.state.values[index].record.kind):
            self._hold(index, NULL, NULL)
        else:
            self._put_whole(index)

    cdef void _answer(self, uint32_t index, bint said) noexcept nogil:
        # What was held of a value was said just now, all in one; or is not said at all.
        cdef HeldObject* object
        object = self.held.objects + index
        if object.updates:
            self.counts[RELAY_WAITING] -= object.updates
            self.counts[RELAY_DELAYED] += said
            self.counts[RELAY_CONFLATED] += <int64_t>object.updates - said
        held_let_go(&self.held, object)

    cdef int _release(self) noexcept nogil:
        # Say what was held, as far as there is room: tops first, whole books last.
        cdef int queue, done = 0
        cdef uint32_t index
        cdef int64_t kept_ns
        for queue in range(HELD_TOPS, HELD_WHOLE + 1):
            kept_ns = 0 if queue == HELD_TOPS else self.budget.burst_ns // LEVELS_RESERVE
            while self.held.heads[queue]:
                if self.behind or self._credit_ns() <= kept_ns:
                    return done
                index = held_pop(&self.held, queue)
                if self.held.objects[index].waits and state_sound(
                        &self.state, self.state.values + index):
                    self._put_held(index)
                    done += 1
        return done

    cdef void _put_held(self, uint32_t index) noexcept nogil:
        # The newest state of a sound value: of a book the levels that changed, or all of it.
        cdef Told* told = self.told + index
        cdef const StateValue* value = self.state.values + index
        cdef HeldObject* object = self.held.objects + index
        cdef HeldLevels* levels
        cdef Book book
        cdef uint32_t size
        if told.parts:               # more of it comes, and is told with that
            return
        if told.status != TOLD_SOUND or value.record.kind != KIND_BOOK or object.levels == 0:
            self._put_whole(index)
            return
        levels = self.held.books + object.levels - 1
        memcpy(&book, value.payload, sizeof(Book))
        book.bid_count = levels.bid_count
        book.ask_count = levels.ask_count
        book.header.row_count = book.bid_count + book.ask_count
        book.header.present |= PRESENT_ROWS | PRESENT_ASKS
        book.header.update_type = UPDATE_INCREMENTAL
        memcpy(self.rows, levels.bids, book.bid_count * sizeof(Level))
        memcpy(self.rows + book.bid_count, levels.asks, book.ask_count * sizeof(Level))
        size = self._encode(
            KIND_BOOK, <const uint8_t*>&book, <const uint8_t*>self.rows,
            sizeof(Book) + book.header.row_count * sizeof(Level), value.record.received_ns, False)
        if size == 0:
            self._put_whole(index)
            return
        self._put(told, size, False)
        self._answer(index, True)

    cdef void _look_at_late(self) noexcept nogil:
        # What waits for too long may be wrong by now.
        cdef int queue
        cdef uint32_t index
        cdef HeldObject* object
        for queue in range(HELD_TOPS, HELD_LEVELS + 1):
            while self.held.heads[queue]:
                index = self.held.heads[queue] - 1
                object = self.held.objects + index
                if object.waits and self.now_ns - object.since_ns < self.late_ns:
                    break
                held_pop(&self.held, queue)
                if not object.waits:
                    continue
                if self.full():
                    self.doubt_all()     # cheaper than a word for each
                self.counts[RELAY_LATE] += 1
                held_all(&self.held, object)
                self._say_doubt(index)
                self._line_up(index)

    cdef void _look_at_budget(self) noexcept nogil:
        # Whether the far end has to know that the line is short, or no longer is.
        cdef bint is_short = self.held_ns > 0 and self.now_ns - self.held_ns < SHORT_NS
        self._look_at_late()
        if is_short != (self.counts[RELAY_SHORT] != 0):
            self.counts[RELAY_SHORT] = is_short
            with gil:
                self._say_status()

    # --- turns ----------------------------------------------------------------------------------

    cdef int work(self) noexcept nogil:
        # What is due: status, what was held, heartbeats, snapshots. How many datagrams that were.
        cdef int channel, done = 0
        if self.budget.ps_per_byte:
            self._look_at_budget()
        if self.status_due:
            self._put_status()
            done += 1
        if self.holding and not self.behind:
            done += self._release()
        for channel in range(CHANNEL_COUNT):
            if (self.now_ns - self.publication.last_published_ns[channel]
                    >= self.publication.heartbeat_interval and not (
                        channel == CHANNEL_SNAPSHOT and self.open_size)):
                self.publication.put_heartbeat(channel, self.now_ns)
                done += 1
        if not (self.behind or self.full()) and (
                self.publication.send_queues[CHANNEL_SNAPSHOT].count < SEND_QUEUE_FLUSH):
            done += self._round()
        self.flush(CHANNEL_INCREMENTAL)
        self.flush(CHANNEL_SNAPSHOT)
        if self.lines is not None:
            self.lines.expire(self.now_ns)
        return done

    cdef void flush(self, int channel) noexcept nogil:
        # Send what is paid for. Who was stopped since this turn began sends nothing old.
        if self.lines is not None and not self.behind and (
                self.lines.turn_ns(self.now_ns) >= self.pause_ns):
            self.fall_behind(True)
        if self.publication.send_queues[channel].count:
            self._send(channel, self._paid(channel))

    cdef void _send(self, int channel, uint32_t count) noexcept nogil:
        # The first so many datagrams of a send queue.
        cdef SendQueue* send_queue = &self.publication.send_queues[channel]
        cdef uint32_t i, rest = send_queue.count - count
        if count == 0:
            return
        for i in range(count if self.budget.ps_per_byte else <uint32_t>0):
            self.charged_ns[channel] -= budget_cost_ns(&self.budget, send_queue.sizes[i])
        send_queue.count = count
        if self.lines is not None:
            self.lines.send(channel, send_queue, self.now_ns)
        else:
            with gil:
                self.kept[channel].extend(self.publication.take(channel))
        send_queue.count = rest
        self.charged[channel] = rest
        if rest:
            memmove(send_queue.data, send_queue_datagram(send_queue, count),
                    <size_t>rest * DATAGRAM_SIZE_MAX)
            memmove(send_queue.sizes, send_queue.sizes + count, rest * sizeof(int64_t))

    cdef int _round(self) noexcept nogil:
        # Each value once a round: what the far end is not sure of, on the incremental channel; its
        # snapshot; of tops, which have none, the same once more.
        cdef uint32_t allowed, done = 0, looks = 0
        if self.round_at >= self.state.values_count and self.open_size == 0:
            if self.now_ns < self.round_due_ns or self.state.values_count == 0:
                return 0
            self.round_at = 0
            self.round_due_ns = self.now_ns + self.round_interval_ns
            self.counts[RELAY_ROUNDS] += 1
            with gil:
                self._open_status()
        self.round_paid_ns = max(
            self.round_paid_ns, self.now_ns - ROUND_BURST * self.round_datagram_ns)
        allowed = <uint32_t>((self.now_ns - self.round_paid_ns) // self.round_datagram_ns)
        while done < allowed and looks < ROUND_LOOKS and not self.behind:
            if self.open_size:
                done += self._continue_snapshot(allowed - done)
            elif self.round_at < self.state.values_count:
                done += self._round_next()
                looks += 1
            else:
                break
        self.round_paid_ns += done * self.round_datagram_ns
        return <int>done

    cdef uint32_t _round_next(self) noexcept nogil:
        # The next value's turn: how many datagrams it took at once.
        cdef uint32_t index = self.round_at, size
        cdef const StateValue* value = self.state.values + index
        cdef Told* told = self.told + index
        self.round_at += 1
        if (value.record.kind == KIND_TRADES or value.record.kind == KIND_EXTERNAL_LATENCY
                or told.parts or not state_sound(&self.state, value)):
            return 0
        # What nothing was said of since a number was left out is in doubt there, and sound here.
        if told.status != TOLD_SOUND or told.number < self.left_out:
            return told.fragments if self._put_whole(index) else 0
        if self.holding:
            self._line_up(index)
        size = self._encode_whole(index)
        if size == 0:
            return 0
        if not has_snapshots(value.record.kind):
            self.counts[RELAY_REPEATED] += 1
            self._put(told, size, False)
            self._answer(index, True)
            return told.fragments
        self.counts[RELAY_SNAPSHOTS] += 1
        self._open_snapshot(size, told.object_type, told.object_id, told.last_seqno)
        return 0

    cdef void _open_snapshot(
            self, uint32_t size, uint8_t object_type, uint16_t object_id,
            uint32_t last_seqno) noexcept nogil:
        # What was encoded leaves as a snapshot, at the round's pace.
        memcpy(self.open_payload, self.encoded, size)
        memset(self.encoded, 0, size)
        self.open_size = size
        self.open_fragment = 0
        self.open_frame = self.publication.take_snapshot(
            size, object_type, object_id, last_seqno, self.now_ns)

    def _open_status(self):
        memcpy(self.encoded, PyBytes_AS_STRING(self.status_payload), len(self.status_payload))
        self._open_snapshot(<uint32_t>len(self.status_payload), STATUS_TYPE, 0, 0)

    cdef uint32_t _continue_snapshot(self, uint32_t allowed) noexcept nogil:
        cdef uint32_t total = <uint32_t>self.open_frame.fragment_max + 1
        cdef uint32_t first = self.open_fragment
        cdef uint32_t stop = min(total, first + allowed)
        self.publication.emit(
            CHANNEL_SNAPSHOT, &self.open_frame, self.open_payload, self.open_size, first, stop,
            -1, 0)
        self.publication.last_published_ns[CHANNEL_SNAPSHOT] = self.now_ns
        self.open_fragment = stop
        if stop == total:
            self.open_size = 0
        if self.publication.send_queues[CHANNEL_SNAPSHOT].count >= SEND_QUEUE_FLUSH:
            self.flush(CHANNEL_SNAPSHOT)
        return stop - first
