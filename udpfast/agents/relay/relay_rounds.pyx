"""The relay's snapshot round. `relay_rounds.pxd` says how."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from udpfast.agents.relay.relay_conflation cimport RelayConflation
from udpfast.agents.relay.relay_told cimport (
    RELAY_REPEATED, RELAY_SNAPSHOTS, RELAY_ROUNDS, TOLD_SOUND, Told)
from udpfast.agents.relay.relay_types cimport STATUS_TYPE, has_snapshots
from udpfast.core.layout cimport CHANNEL_SNAPSHOT
from udpfast.core.update_kinds cimport KIND_EXTERNAL_LATENCY, KIND_TRADES
from udpfast.feed.publication cimport SEND_QUEUE_FLUSH
from udpfast.market.state cimport StateValue, state_sound

__all__ = ["RelayRounds"]

cdef enum:
    ROUND_BURST = 64             # datagrams of a round at one turn, as in feed/snapshot_cycle
    ROUND_LOOKS = 4096           # values looked at in one turn


cdef class RelayRounds(RelayConflation):
    """Each value in its turn."""

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
