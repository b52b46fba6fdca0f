"""The loop of a feed: receive from every line, hand on, let time pass."""

import os
import threading
from errno import EPERM
from functools import partial

import cython

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.agents.feed.engine cimport Engine
from udpfast.agents.feed.output cimport output_note_current
from udpfast.core.agent cimport Agent, AgentRunner
from udpfast.core.atomics cimport counter_add, load_acquire, store_release
from udpfast.core.check cimport likely, unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.counter cimport (
    ADDRESS_DATAGRAMS, ADDRESS_STRIDE, FEED_BATCHES, FEED_CYCLE_LONGEST_NS, FEED_CYCLES,
    FEED_CYCLES_SLOW, FEED_STALLED_NS, FEED_STALLS, LINE_DATAGRAMS, LINE_KERNEL_DROPS,
    LINE_RECEIVE_ERRORS, LINE_REOPENED)
from udpfast.core.layout cimport CAPTURE_LATE_MAX_US, CHANNEL_INCREMENTAL
from udpfast.core.oserr cimport check
from udpfast.log.ring cimport RING_STUCK_NS
from udpfast.net.datagram cimport (
    DatagramBatch, DatagramReceiver, datagram_drops_read, datagram_receive)
from udpfast.net.poller cimport epoll_event, poller_add, poller_open, poller_wait
from udpfast.net.xdp cimport XdpReceiver
from udpfast.net.xdp_ring cimport XdpPorts, XdpQueue, xdp_stamp
from udpfast.shm.histogram cimport histogram_record

from udpfast.agents.feed.lines import receive_options, received_addresses, xdp_lines, xdp_options
from udpfast.errors import ConfigError
from udpfast.net.bypass import open_first_socket
from udpfast.net.xdp_host import group_lines

__all__ = ["FeedLoop"]

cdef enum:
    # Holes are looked at this often, not at every turn: fine against a wait of milliseconds.
    EXPIRE_INTERVAL_NS = 50_000
    # Holes wait by a clock that stands while a line has more to read, but for so many turns (a
    # line that is never read to its end shall not stop it for ever).
    BACKLOG_TURNS_MAX = 512
    # What lies in the sockets when the loop is stopped is read in so many turns: a full 64 MiB of
    # small datagrams, and as much again.
    LAST_TURNS = 4096
    # Without stamps nobody tells the drops of a full queue, with them the next datagram does: all
    # are asked this often. When each line was heard is told as often.
    DROPS_INTERVAL_NS = 100_000_000
    # A turn that comes so late follows a stall: the kernel may have dropped datagrams meanwhile.
    STALL_NS = 100_000_000
    # A line is not called silent for a time in which the loop did not listen: a late turn counts as
    # so long at most, or half of the time after which a line is silent. (Not less than a busy host
    # delays many turns: time has to pass.)
    LISTENED_MAX_NS = RING_STUCK_NS
    LISTENED_MIN_NS = 20_000_000
    # Every n-th batch is timed to its end: one more clock read, spread thin.
    SAMPLE_BATCHES = 16
    # Addresses of all lines (SOCKETS_MAX of config/parse.py), or with AF_XDP the queues of all
    # interfaces.
    BATCHES_MAX = 512
    # So many sockets are asked one after the other, each turn: an empty recv costs 0.3 us. Of more,
    # epoll tells which have something, for as much as one or two of them cost.
    SOCKETS_ASKED = 4
    READY_MAX = 64               # sockets that one turn hears of

cdef enum Recovery:              # from a stall: readers do not trust their books before its end
    RECOVERED = 0
    RECOVERY_READS = 1           # what lies in the sockets
    RECOVERY_WAITS = 2           # for what tells which messages the kernel dropped


@cython.final
cdef class FeedLoop(Agent):
    """The duty cycle of a feed.

    Parameters
    ----------
    engine : Engine
        Where datagrams go.
    config : FeedConfig
        Which lines to open; sockets are opened in the agent's own thread (preloaded stacks
        want that).
    ready : callable, optional
        Called when they are, before the first datagram is looked at.
    reopened : bool
        Whether the lines were closed for a while: what came meanwhile is lost, and each line's next
        datagram shows it. Readers do not trust their books before.
    """

    cdef Engine engine
    cdef object config
    cdef object ready
    cdef readonly list receivers
    cdef readonly str first_failure    # of a preloaded stack's first call; empty: none
    # NULL: let go of, since its interface is gone. From then on it is the watch's, which puts
    # another one there.
    cdef DatagramBatch* batches[BATCHES_MAX]
    cdef int batch_count
    cdef int poller                    # an epoll; -1: all sockets are asked at every turn
    cdef epoll_event heard[READY_MAX]
    cdef int let_go_error
    cdef list interfaces               # with AF_XDP, of each receiver: its lines, its batches
    cdef object lines_lock             # of who opens and closes receivers
    cdef bint lines_closed
    cdef int64_t turn_ns               # when the last turn began; 0: there was none
    cdef int64_t turn_unix_ns          # the same, in UNIX time
    cdef int64_t read_unix_ns          # what that clock said in the last turn
    # The clock of windows and of silence: it passes only while the loop listens.
    cdef int64_t listened_ns
    cdef int64_t listened_max_ns       # by so much in one turn, at most
    # All that had come by then was read. Holes wait by this clock: after the loop was held up,
    # what fills them may lie in the sockets.
    cdef int64_t read_until_ns
    cdef Recovery recovery
    cdef bint reopened                 # no line has been read since the lines were closed
    cdef int64_t recovery_ends_ns      # it waits until then, at most; 0: it does not wait
    cdef int64_t silent_after_ns
    # Which addresses of incremental lines dropped datagrams that no later one has shown yet; how
    # many do; and what had come of each, and of each line, by then.
    cdef bint owing[8][128]            # LINES_MAX, ADDRESSES_MAX
    cdef int owing_count
    cdef int64_t owed_from[8][128]
    cdef int64_t line_from[8]
    cdef int line_count
    cdef int addresses[8]
    cdef int backlog_turns
    cdef int64_t expire_at_ns
    cdef int64_t drops_at_ns
    cdef int drops_next                # the batch whose drops are asked for then
    cdef int64_t note_at_ns            # when it is told next when lines were heard
    cdef uint32_t sample

    def __init__(
            self, Engine engine, config: FeedConfig, ready: Callable[[], None] | None = None,
            reopened: bool = False):
        super().__init__(f"udpfast {config.name}"[:15])
        self.engine = engine
        self.config = config
        self.ready = ready
        self.reopened = reopened
        self.recovery = RECOVERY_READS if reopened else RECOVERED
        self.receivers = []
        self.poller = -1
        self.interfaces = []
        self.lines_lock = threading.Lock()
        self.first_failure = ""
        for line in config.incremental.lines:
            self.addresses[self.line_count] = len(line.every_address)
            self.line_count += 1
        self.silent_after_ns = config.session.inactivity_timeout_ms * 1_000_000
        self.listened_max_ns = max(
            min(LISTENED_MAX_NS, self.silent_after_ns // 2), LISTENED_MIN_NS)

    def on_start(self) -> None:
        """Open the sockets of all lines, or none."""
        try:
            if self.config.bypass.stack != "none":
                self.first_failure = open_first_socket(self.config.bypass.stack)
            self._open_lines()
            if self.ready is not None:
                self.ready()
        except BaseException:
            self._close_lines()
            raise

    def _open_lines(self):
        cdef DatagramReceiver receiver
        if self.config.receive.path == "xdp":
            return self._open_interfaces()
        options = receive_options(self.config)
        addresses = received_addresses(self.config)
        # A socket that polls its driver has to be asked itself; epoll asks none.
        if len(addresses) > SOCKETS_ASKED and not self.config.receive.busy_poll_us:
            self.poller = check(poller_open(), "open an epoll", self.config.name)
        for each in addresses:
            # One after the other: the first one's slots do for all of them.
            try:
                receiver = DatagramReceiver(
                    each.where, options, each.channel, each.line, self.config.receive.batch,
                    each.address, self.receivers[0] if self.receivers else None)
            except ConfigError as error:  # of an interface that is not there
                raise ConfigError(f"{each.name}: {error}") from None
            self.receivers.append(receiver)
            self._insist(receiver)
            self.batches[self.batch_count] = &receiver.batch
            if self.poller >= 0:
                receiver.replaced = partial(self._poll, receiver, self.batch_count)
                receiver.replaced()
            self.batch_count += 1

    def _poll(self, DatagramReceiver receiver, int place):
        # Another socket under the same descriptor is another one to the kernel.
        check(poller_add(self.poller, receiver.batch.fd, <uint32_t>place), "watch a socket",
              self.config.name)

    def _open_interfaces(self):
        for _, lines in group_lines(xdp_lines(self.config)):
            self.interfaces.append((lines, []))
            self.receivers.append(None)
            self._open_interface(len(self.receivers) - 1)

    def _open_interface(self, int index):
        cdef XdpReceiver receiver
        cdef int n
        lines, places = self.interfaces[index]
        receiver = XdpReceiver(lines, xdp_options(self.config), self.config.receive.batch)
        self.receivers[index] = receiver
        try:
            self._insist(receiver)
            receiver.count_into(&self.engine.counters)
            if self.batch_count + receiver.queue_count - len(places) > BATCHES_MAX:
                raise ConfigError(
                    f"xdp.queues: expected at most {BATCHES_MAX} queues on all interfaces "
                    f"together, {receiver.address} has {receiver.queue_count}")
        except BaseException:
            receiver.close()
            raise
        for n in range(receiver.queue_count):
            if n == len(places):
                places.append(self.batch_count)
                self.batch_count += 1
            # Orders what is behind the pointer before it; read by the loop's next turn.
            store_release(<uint64_t*>&self.batches[<int>places[n]], <uint64_t>receiver.batch(n))

    def has_let_go(self, int index) -> bool:
        """Whether the loop polls no queue of an interface any more, because it is gone."""
        return all([
            load_acquire(<uint64_t*>&self.batches[<int>place]) == 0
            for place in self.interfaces[index][1]])

    def reopen_interface(self, int index) -> bool:
        """Receive from an interface again that is gone; False: the loop still polls, or is over.

        Raises
        ------
        ConfigError, OSError
            It cannot be opened, or is not there yet; try again.
        """
        with self.lines_lock:
            if self.lines_closed or not self.has_let_go(index):
                return False
            self.receivers[index].close()
            self._open_interface(index)
            for item in self.interfaces[index][0]:
                self.count_reopened(item.channel, item.index)
            return True

    def on_stop(self) -> None:
        """Take what has come by now, deliver what waits, report the holes, close the sockets."""
        cdef int i, turns = 0
        # A sender that never pauses does not keep the loop here.
        with nogil:
            while turns < LAST_TURNS and self.do_work(clock_monotonic_ns()) > 0:
                turns += 1
        for i in range(self.batch_count):
            self._read_drops(i)
        self._listen(clock_monotonic_ns())
        self.engine.finish(self.listened_ns, clock_realtime_ns())
        self._close_lines()

    def _close_lines(self):
        with self.lines_lock:
            self.lines_closed = True
            self.batch_count = 0
            for receiver in self.receivers:
                if receiver is not None:
                    receiver.close()
            if self.poller >= 0:
                os.close(self.poller)
                self.poller = -1

    def count_turns(self, AgentRunner runner) -> None:
        """Have the thread that runs it count its turns where tools look."""
        cdef int64_t* feed = self.engine.counters.feed
        runner.count_into(&feed[FEED_CYCLES], &feed[FEED_CYCLE_LONGEST_NS], &feed[FEED_CYCLES_SLOW])

    def pass_time(self, int64_t now_ns) -> None:
        """Let time pass after the thread has ended: silence is said in-band.

        Nobody listens, so readers are not told that all was read: their books are in doubt.
        """
        self._listen(now_ns)
        self._expire(self.listened_ns)

    def count_reopened(self, channel: int, line: int) -> None:
        """Count a socket that was opened anew. Only one thread may call this."""
        counter_add(&self.engine.counters.line[channel][line][LINE_REOPENED], 1)

    def _insist(self, receiver):
        # With `agent.strict` an option that was not granted ends the start.
        for result in receiver.results:
            if self.config.agent.strict and result.reason:
                raise PermissionError(
                    EPERM, f"{result.name}: asked for {result.asked}, got {result.got}: "
                           f"{result.reason}")

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        cdef DatagramBatch* batch
        cdef int64_t unix_ns
        cdef int n, i, count, total = 0, failed = 0, error = 0
        cdef int asked = self.batch_count
        cdef bint backlog = False
        cdef int64_t stalled_ns = self._listen(now_ns)
        if unlikely(stalled_ns):
            counter_add(&self.engine.counters.feed[FEED_STALLS], 1)
            counter_add(&self.engine.counters.feed[FEED_STALLED_NS], stalled_ns)
        if self.poller >= 0:
            asked = poller_wait(self.poller, self.heard, READY_MAX)
            if unlikely(asked < 0):
                return asked
            backlog = asked == READY_MAX
        for n in range(asked):
            i = n if self.poller < 0 else <int>self.heard[n].place
            batch = <DatagramBatch*>load_acquire(<uint64_t*>&self.batches[i])
            if unlikely(batch is NULL):
                failed += 1
                error = self.let_go_error
                continue
            if asked > SOCKETS_ASKED and self.poller >= 0:
                batch.backlog = 1    # a busy moment: take all that waits in one call
            count = datagram_receive(batch)
            backlog |= batch.full
            if unlikely(count < 0):
                # One line's trouble (its interface went down) is not the other lines'.
                counter_add(&self._line(batch)[LINE_RECEIVE_ERRORS], 1)
                failed += 1
                error = count
                if batch.xdp is not NULL:
                    # Its interface is gone, and no call will ever succeed. Orders all use of the
                    # batch before the watch, in has_let_go, sees that it may close it.
                    self.let_go_error = error
                    store_release(<uint64_t*>&self.batches[i], 0)
            elif count > 0:
                total += count
                # What came was there before this clock was read, the one time that a batch needs
                # it. (Frames of AF_XDP are stamped by two clocks, and one batch of
                # SAMPLE_BATCHES is timed.)
                unix_ns = clock_realtime_ns()
                if batch.xdp is not NULL:
                    xdp_stamp(batch.items, count, unix_ns - clock_monotonic_ns())
                self.engine.accept(
                    batch.items, count, self.read_until_ns, self._late_us(unix_ns), unix_ns)
                self._note_batch(batch, unix_ns)
        if self.engine.asks:
            total += self.engine.take_answers(
                self.read_until_ns, self._late_us(clock_realtime_ns()))
        if unlikely(failed and failed == self.batch_count):
            return error
        self.backlog_turns = self.backlog_turns + 1 if backlog else 0
        if not backlog or self.backlog_turns > BACKLOG_TURNS_MAX:
            self.read_until_ns = self.listened_ns
            if unlikely(self.recovery == RECOVERY_READS):
                self._note_dropped()
        if now_ns >= self.expire_at_ns:
            self.expire_at_ns = now_ns + EXPIRE_INTERVAL_NS
            self._expire(self.read_until_ns)
            if not backlog and self.recovery == RECOVERED:
                output_note_current(self.engine.output, now_ns)
        if now_ns >= self.drops_at_ns:
            self._look_around(now_ns)
        return total if total else backlog  # it is not idle that read frames for no line

    cdef int64_t _listen(self, int64_t now_ns) noexcept nogil:
        # A turn begins. Returns how long the loop stood still before it; 0: it did not.
        cdef int64_t passed_ns = now_ns - self.turn_ns
        cdef int64_t unix_ns = clock_realtime_ns()
        cdef int64_t stalled_ns = 0
        if unlikely(self.turn_ns == 0):
            self.listened_ns = self.read_until_ns = now_ns
            self.turn_unix_ns = unix_ns
        else:
            # now_ns was read before: a stop between it and this clock is one in this turn.
            self.turn_unix_ns = min(unix_ns, self.read_unix_ns + passed_ns)
            self.listened_ns += min(passed_ns, self.listened_max_ns)
            if unlikely(passed_ns >= STALL_NS):
                self.recovery = RECOVERY_READS
                stalled_ns = passed_ns
        self.turn_ns = now_ns
        self.read_unix_ns = unix_ns
        return stalled_ns

    cdef uint32_t _late_us(self, int64_t unix_ns) noexcept nogil:
        # How much later than read_until_ns what was just read may have come, rounded up: the loop
        # may have been held up in this turn, or before it.
        cdef int64_t in_turn_ns = min(max(unix_ns - self.turn_unix_ns, 0), self.listened_max_ns)
        cdef int64_t late_ns = self.listened_ns + in_turn_ns - self.read_until_ns
        return <uint32_t>min((late_ns + 999) // 1000, CAPTURE_LATE_MAX_US)

    cdef void _note_dropped(self) noexcept nogil:
        # The sockets were read to their end after a stall. A full queue drops the newest, a closed
        # line drops all: what is missing shows with a line's next datagram. (Snapshots come again.)
        cdef DatagramBatch* batch
        cdef uint64_t known
        cdef int i
        self.recovery = RECOVERY_WAITS
        if not self.recovery_ends_ns:
            self.recovery_ends_ns = self.listened_ns + self.silent_after_ns
        for i in range(self.line_count):
            self.line_from[i] = self.engine.counters.line[CHANNEL_INCREMENTAL][i][LINE_DATAGRAMS]
        for i in range(self.batch_count):
            batch = self.batches[i]
            if batch is NULL:
                continue
            known = batch_drops(batch)
            self._read_drops(i)
            if self.reopened or batch_drops(batch) != known:
                self._owe(batch)
        self.reopened = False

    cdef void _owe(self, DatagramBatch* batch) noexcept nogil:
        # Which of its addresses an interface's queue dropped from, nobody says: all may have lost.
        cdef XdpPorts* ports
        cdef uint32_t i
        if batch.xdp is NULL:
            if batch.items[0].channel == CHANNEL_INCREMENTAL:
                self._owe_address(batch.items[0].line, batch.items[0].address)
            return
        ports = (<XdpQueue*>batch.xdp).ports
        for i in range(ports.count):
            if ports.items[i].channel == CHANNEL_INCREMENTAL:
                self._owe_address(ports.items[i].line, ports.items[i].address)

    cdef void _owe_address(self, int line, int address) noexcept nogil:
        if not self.owing[line][address]:
            self.owing[line][address] = True
            self.owing_count += 1
        self.owed_from[line][address] = self._came(line, address)
        self.recovery_ends_ns = self.listened_ns + self.silent_after_ns

    cdef int64_t _came(self, int line, int address) noexcept nogil:
        # How many datagrams came of an address of an incremental line.
        cdef int64_t* counted = self.engine.counters.address[CHANNEL_INCREMENTAL][line]
        if counted is NULL:
            return self.engine.counters.line[CHANNEL_INCREMENTAL][line][LINE_DATAGRAMS]
        return counted[ADDRESS_STRIDE * address + ADDRESS_DATAGRAMS]

    cdef void _expire(self, int64_t now_ns) noexcept nogil:
        self.engine.expire(now_ns, clock_realtime_ns())
        if likely(self.recovery != RECOVERY_WAITS):
            return
        if self.owing_count:
            self._note_shown(False)
        if now_ns >= self.recovery_ends_ns:
            # A line that stays silent holds readers no longer. What it dropped another one brought,
            # if that owes nothing and is alive; or it is not known, and that is said.
            if self.owing_count and not self._others_brought():
                self.engine.doubt(now_ns, clock_realtime_ns())
            self._note_shown(True)
        elif self.owing_count or self.engine.waits():
            return
        self.recovery = RECOVERED
        self.recovery_ends_ns = 0

    cdef void _note_shown(self, bint all_of_them) noexcept nogil:
        # Something came of an address since it dropped: it shows what is missing.
        cdef int line, address
        for line in range(self.line_count):
            for address in range(self.addresses[line]):
                if self.owing[line][address] and (
                        all_of_them or self._came(line, address) != self.owed_from[line][address]):
                    self.owing[line][address] = False
                    self.owing_count -= 1

    cdef bint _others_brought(self) noexcept nogil:
        # Whether an incremental line owes nothing, and has brought something since.
        cdef int line, address
        cdef bint dropped
        for line in range(self.line_count):
            dropped = False
            for address in range(self.addresses[line]):
                dropped |= self.owing[line][address]
            if not dropped and self.line_from[line] != (
                    self.engine.counters.line[CHANNEL_INCREMENTAL][line][LINE_DATAGRAMS]):
                return True
        return False

    cdef void _look_around(self, int64_t now_ns) noexcept nogil:
        # One socket at a time, so that many of them make no long turn.
        self.drops_at_ns = now_ns + DROPS_INTERVAL_NS // max(self.batch_count, 1)
        if self.drops_next >= self.batch_count:
            self.drops_next = 0
        if self.recovery != RECOVERY_READS:  # _note_dropped compares
            if self.drops_next < self.batch_count:
                self._read_drops(self.drops_next)
            self.drops_next += 1
        if now_ns >= self.note_at_ns:
            self.note_at_ns = now_ns + DROPS_INTERVAL_NS
            self.engine.note_lines(self.listened_ns, clock_realtime_ns() - self.listened_ns)

    cdef void _read_drops(self, int i) noexcept nogil:
        if load_acquire(<uint64_t*>&self.batches[i]):
            datagram_drops_read(self.batches[i])
            self._note_drops(self.batches[i])

    cdef void _note_batch(self, DatagramBatch* batch, int64_t unix_ns) noexcept nogil:
        counter_add(&self.engine.counters.feed[FEED_BATCHES], 1)
        self._note_drops(batch)
        self.sample += 1
        if self.sample % SAMPLE_BATCHES == 0:
            histogram_record(self.engine.loop_to_ring, clock_realtime_ns() - unix_ns)

    cdef void _note_drops(self, DatagramBatch* batch) noexcept nogil:
        if batch.xdp is not NULL:  # whose lines' counters have several writers, all below
            return
        counter_add(&self._line(batch)[LINE_KERNEL_DROPS],
                    <int64_t>(batch.kernel_drops - batch.drops_counted))
        batch.drops_counted = batch.kernel_drops

    cdef int64_t* _line(self, DatagramBatch* batch) noexcept nogil:
        # The counters of the line that a batch belongs to.
        return self.engine.counters.line[batch.items[0].channel][batch.items[0].line]


cdef inline uint64_t batch_drops(const DatagramBatch* batch) noexcept nogil:
    # As last read: of a socket, or of a queue of an interface and what went past all of them.
    cdef const XdpQueue* queue = <const XdpQueue*>batch.xdp
    cdef uint64_t drops
    cdef uint32_t i
    if queue is NULL:
        return batch.kernel_drops
    drops = queue.drops_seen
    if queue.first:
        for i in range(queue.ports.count):
            drops += queue.ports.items[i].member_drops
    return drops
