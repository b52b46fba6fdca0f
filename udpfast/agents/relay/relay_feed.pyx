"""What a feed publishes, once more as a Roq publisher. `relay_feed.pxd` has the rules."""

import secrets

cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from udpfast.agents.relay.relay_budget cimport HEADERS_IPV6, budget_cost_ns, budget_init
from udpfast.agents.relay.relay_held cimport held_free, held_init, held_reserve, held_reset
from udpfast.agents.relay.relay_lines cimport RelayLines
from udpfast.agents.relay.relay_rounds cimport RelayRounds
from udpfast.agents.relay.relay_told cimport (
    RELAY_RECORDS, RELAY_UPDATES, RELAY_GAPS, RELAY_SESSIONS, RELAY_LEARNT, RELAY_LAPPED,
    RELAY_NOT_CARRIED, RELAY_REFUSED, RELAY_CONTROL, RELAY_DOUBTED, RELAY_IN_WHOLE,
    RELAY_CONFLATED, RELAY_WAITING, RELAY_COUNT, TOLD_NOTHING, TOLD_SOUND, TOLD_WHOLE, Told)
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, CONNECTION_READY, DATAGRAM_SIZE_MAX,
    KIND_BUS, KIND_CONNECTION, KIND_GAP, KIND_LAPPED, KIND_MESSAGE, KIND_RECOVERED, KIND_SESSION,
    KIND_STALE, KIND_UPDATES, Lapped, MESSAGE_SIZE_MAX, RECORD_SIZE, Record)
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_EXTERNAL_LATENCY, KIND_ORDERS, KIND_TRADES
from udpfast.feed.publication cimport SEND_QUEUE_FLUSH, Publication
from udpfast.market.doubt cimport (
    doubt_key_stream, doubt_said_tag, doubt_stream, doubt_tag, doubts_begin_all)
from udpfast.market.publish cimport PUBLISH_ROOM
from udpfast.market.state cimport (
    StateObject, state_apply, state_at, state_find, state_free, state_init, state_lapped,
    state_sound)
from udpfast.market.updates cimport *

import numpy as np

from udpfast.feed.publication import Publication
from udpfast.shm.relay_counts import RELAY_COUNTS

__all__ = ["RelayFeed"]

cdef enum:
    SESSION_IDS = 1 << 16
    # Rounds take a quarter of the rate, so that an object in doubt is told of though levels wait.
    ROUND_SHARE = 4
    # A relay that sent nothing for so many heartbeats was stopped: fewer than make it silent there.
    PAUSE_HEARTBEATS = 5

if len(RELAY_COUNTS) != RELAY_COUNT:
    raise ImportError(f"expected {RELAY_COUNT} names, found {len(RELAY_COUNTS)}")


@cython.final
cdef class RelayFeed(RelayRounds):
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
    kept : tuple[list[bytes], list[bytes]]
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

    def __init__(
            self, RelayLines lines=None, *, objects: int = 1 << 18,
            heartbeat_interval_ns: int = 100_000_000, snapshot_interval_ns: int = 1_000_000_000,
            snapshot_rate_per_s: int = 20_000, session_id: int | None = None,
            counts: NDArray[np.int64] | None = None, bits_per_s: int = 0, burst_bytes: int = 16_384,
            headers: int = HEADERS_IPV6, late_ns: int = 1_000_000_000):
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

    def read_counts(self) -> dict[str, int]:
        """Return what was counted so far, by name."""
        return dict(zip(RELAY_COUNTS, self._counts_owner.tolist()))

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
            self.look_at_connection()

    cdef void look_at_connection(self) noexcept nogil:
        # Tell whether the venue is heard, as the feed has said last, if ever.
        cdef bint available = (
            self.state.mark.connection[CHANNEL_INCREMENTAL].status == CONNECTION_READY)
        if self.state.mark.has_connection[CHANNEL_INCREMENTAL] and available != self.available:
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
