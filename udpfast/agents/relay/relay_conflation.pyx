"""What the far end is told of each value, at once or later. `relay_conflation.pxd` says how."""

from libc.math cimport NAN
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from udpfast.agents.relay.relay_encoding cimport ROWS_MAX
from udpfast.agents.relay.relay_held cimport (
    HELD_LEVELS, HELD_TOPS, HELD_WHOLE, HeldLevels, HeldObject, held_all, held_let_go, held_pop,
    held_push, held_set)
from udpfast.agents.relay.relay_output cimport RelayOutput
from udpfast.agents.relay.relay_told cimport (
    RELAY_WHOLE, RELAY_STALE, RELAY_DOUBT_NOT_CARRIED, RELAY_DELAYED, RELAY_CONFLATED,
    RELAY_WAITING, RELAY_LATE, RELAY_SHORT, TOLD_SOUND, TOLD_WHOLE, Told)
from udpfast.agents.relay.relay_types cimport has_parts, has_snapshots
from udpfast.core.layout cimport RECORD_DOUBT, Record
from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_EXTERNAL_LATENCY, KIND_TOP_OF_BOOK, KIND_TRADES)
from udpfast.market.book cimport UPDATE_TYPE_SNAPSHOT, UPDATE_TYPE_STALE, update_replaces
from udpfast.market.ladder cimport ladder_copy
from udpfast.market.publish_header cimport UPDATE_INCREMENTAL
from udpfast.market.state cimport StateValue, state_sound
from udpfast.market.update_sizes cimport update_fixed
from udpfast.market.updates cimport *

__all__ = ["RelayConflation"]

cdef enum:
    # Levels leave a quarter of the burst to tops and trades.
    LEVELS_RESERVE = 4
    # So long after something was held last, the line is no longer called short.
    SHORT_NS = 1_000_000_000


cdef class RelayConflation(RelayOutput):
    """What the far end is told, and what waits."""

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
        self.counts[RELAY_DOUBT_NOT_CARRIED] += header.flags & RECORD_DOUBT != 0
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
