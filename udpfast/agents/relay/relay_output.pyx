"""What a relay sends leaves: numbers, the budget, send queues. `relay_output.pxd` says how."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MAX, int64_t, uint16_t, uint32_t
from libc.string cimport memcpy, memmove, memset

from udpfast.agents.relay.relay_budget cimport budget_cost_ns, budget_credit_ns, budget_pay
from udpfast.agents.relay.relay_encoding cimport RelayEncoding
from udpfast.agents.relay.relay_told cimport RELAY_BEHIND, RELAY_SHORT, Told
from udpfast.agents.relay.relay_types cimport STATUS_TYPE, TYPES_MAX, is_type_of, relay_type
from udpfast.core.check cimport likely, unlikely
from udpfast.core.layout cimport (
    CHANNEL_COUNT, CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, DATAGRAM_SIZE_MAX, FRAGMENT_SIZE,
    FRAGMENTS_MAX, Frame)
from udpfast.core.update_kinds cimport KIND_BOOK, KIND_TOP_OF_BOOK
from udpfast.feed.publication cimport (
    SEND_QUEUE_FLUSH, SEND_QUEUE_SLOTS, SendQueue, send_queue_datagram, send_queue_frame,
    send_queue_move)

from udpfast.payload.roq.event import encode_event

__all__ = ["RelayOutput"]

#: What a relay may carry, as the bits of a gateway's status have it: all that a feed decodes, but
#: single orders.
SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x20 | 0x40
#: What a short line holds back: tops of book, and books by price.
HELD_BACK = 0x4 | 0x8

cdef enum:
    # The last one shows what is lost before it, if it arrives: several do.
    END_HEARTBEATS = 3
    ROOM_KEPT = 16               # datagrams of a send queue for heartbeats and the relay's status


cdef inline bint is_level_or_top(Frame frame) noexcept nogil:
    return (is_type_of(frame.object_type, KIND_BOOK)
            or is_type_of(frame.object_type, KIND_TOP_OF_BOOK))


cdef class RelayOutput(RelayEncoding):
    """Messages leave, as far as the budget has room.

    Attributes
    ----------
    lines : RelayLines or None
    kept : tuple[list[bytes], list[bytes]]
    """

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

    def flush_all(self) -> None:
        """Send what waits, whether or not it is paid for."""
        cdef int channel
        self._credit_ns()
        for channel in range(CHANNEL_COUNT):
            self._send(channel, self.publication.send_queues[channel].count)

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

    def _say_status(self):
        status = {"supported": SUPPORTED, "account": "relay"}
        # What a short line holds back is neither available nor unavailable.
        held_back = HELD_BACK if self.available and self.counts[RELAY_SHORT] else 0
        status["available" if self.available else "unavailable"] = SUPPORTED & ~held_back
        self.status_payload = encode_event({"value_name": "GatewayStatus", "value": status})
        self.status_due = True

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
