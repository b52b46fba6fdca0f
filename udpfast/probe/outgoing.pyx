"""The sender's loop: probes leave at their planned times, and echoes are taken, in one thread.

Open loop: a probe's time is fixed before the run. A sender that was stopped catches up at once, and
what the stop cost shows in the round trips instead of being left out.
"""

from libc.errno cimport EIO
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport cython

from udpfast.core.atomics cimport cpu_relax, load_acquire, store_release
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_monotonic_ns, clock_realtime_ns
from udpfast.core.idle cimport idle_sleep
from udpfast.core.layout cimport DATAGRAM_NO_TIMESTAMP, DATAGRAM_TRUNCATED, Datagram
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport (
    BATCH_MAX, DatagramBatch, datagram_batch_free, datagram_batch_init, datagram_drops_read,
    datagram_receive,
)
from udpfast.net.departures cimport Departures, departure_next
from udpfast.net.poller cimport POLLIN, pollfd, sockets_wait
from udpfast.net.sender cimport DatagramSender, SendBatch, datagram_send, send_batch_add
from udpfast.probe.layout cimport (
    CONTROL_BYTES, KIND_ECHO, KIND_PROBE, PROBE_HEADER, PROBE_MAGIC, PROBE_SIZE_MAX, Mailbox,
    ProbeHeader, mail_put, mail_take,
)
from udpfast.shm.histogram cimport Histogram, LatencyHistogram, histogram_record

__all__ = ["LINES_MAX", "Outgoing"]

#: Lines of one run.
LINES_MAX = 8

if sizeof(ProbeHeader) != PROBE_HEADER:
    raise ImportError(f"struct ProbeHeader has {sizeof(ProbeHeader)} bytes, not {PROBE_HEADER}")

cdef enum:
    OUTGOING_LINES = 8
    # A full queue is asked again for some 50 us; the schedule then goes on without these probes.
    SEND_ATTEMPTS = 50
    RECEIVE_BATCH = 16           # echoes at a time: they hold the next probe up by a few us at most
    CLOCK_PERIOD_NS = 1_000_000  # how old the difference of the two clocks may be
    CLOCK_READ_NS = 500          # of three readings without interruption
    DEPARTED_SLOTS = 8192        # probes whose stamp of departure may still come, a power of two
    # A sleep ends up to 60 us late, so the last part of a pause is spun.
    SLEEP_MARGIN_NS = 150_000
    SLEEP_MAX_NS = 1_000_000     # what other threads ask for may wait this long
    UNREAD_SLEEP_NS = 20_000     # while a socket has an error that nobody takes
    NIC_CLOCK_LIMIT_NS = 1_000_000_000  # as for what is received: net/datagram.pyx
    ERRNO_END = 134              # one past the last of asm-generic/errno.h

cdef struct Session:
    # A listener counts arrivals from 1, and so does the next one; so does the same one, if it gave
    # up on a silent line and is back.
    uint64_t cookie
    uint16_t epoch
    uint32_t before              # arrivals at those before it, as far as echoes have told
    uint32_t latest              # the highest place so far


cdef struct OutLine:
    DatagramBatch receive
    SendBatch* send
    uint64_t cookie              # written by Python, also during the run: another listener
    int64_t* sent_ns             # monotonic; 0: not sent
    int64_t* departed_ns         # UNIX: the stamp of kernel or NIC; 0: none
    int64_t* reached_ns          # UNIX of the listener; 0: no echo
    int64_t* turned_ns
    int64_t* returned_ns         # monotonic
    int64_t* back_ns             # UNIX: the stamp of kernel or NIC, else our clock
    uint32_t* out_order
    uint32_t* back_order
    Histogram* round_trip
    Session sessions[2]          # the latest that has echoed, and the one before it
    int64_t session_count
    int64_t unsent
    int64_t refusals[ERRNO_END]  # those of `unsent` by errno
    int64_t echoes
    int64_t back_arrivals
    int64_t repeated             # echoes of probes that were back already
    int64_t back_duplicates      # those of them that are the first echo once more
    int64_t strangers
    int64_t malformed
    int64_t latest_ns            # monotonic, of the last echo; 0: none
    bint departs                 # the kernel stamps what leaves
    uint64_t troubles            # failures to send, when the run began
    uint32_t departures          # datagrams sent since it does: the number that the next one gets
    uint64_t departed[DEPARTED_SLOTS]  # 1 + the probe of each number; 0: not a probe
    int64_t departures_pending
    uint8_t slots[BATCH_MAX][PROBE_SIZE_MAX]
    uint8_t greeting[CONTROL_BYTES]


@cython.final
cdef class Outgoing:
    """Both directions of a run at the sender; `run` holds the thread until all is done.

    Parameters
    ----------
    senders : sequence of DatagramSender
        1..8 lines. Echoes come back by the same sockets.
    samples : sequence of dict of str to numpy.ndarray
        Memory of each line, one element per probe, zeros: int64 `sent_ns`, `departed_ns`,
        `reached_ns`, `turned_ns`, `returned_ns`, `back_ns`, uint32 `out_order`, `back_order`.
    due_ns : numpy.ndarray of int64
        When each probe is due, ns after the start; not falling.
    nonce : int
    size_bytes : int
        Of a datagram, 64..2048.
    stamped : bool
        The sockets ask for stamps of what they receive.
    departs : sequence of bool
        Whether a line's socket asks for stamps of what it sends.

    Attributes
    ----------
    histograms : tuple[LatencyHistogram, ...]
    """

    cdef OutLine* lines
    cdef uint32_t line_count
    cdef tuple senders
    cdef object _kept
    cdef readonly tuple histograms
    cdef const int64_t* due_ns
    cdef int64_t count
    cdef int64_t next
    cdef int64_t end             # probes that are to be sent
    cdef uint64_t batches
    cdef uint64_t nonce
    cdef uint32_t size
    cdef int64_t start_ns
    cdef int64_t utc_offset_ns
    cdef int64_t utc_read_ns
    cdef int64_t progress_ns     # monotonic, of the last probe, or of the last that came back
    cdef uint64_t stopping
    cdef uint64_t greeting_wanted
    cdef Mailbox mailbox

    def __cinit__(self):
        self.lines = <OutLine*>calloc(OUTGOING_LINES, sizeof(OutLine))
        if self.lines is NULL:
            raise MemoryError("no memory for lines")

    def __init__(
            self, senders: Sequence[DatagramSender], samples: Sequence[Mapping[str, NDArray[Any]]],
            const int64_t[::1] due_ns, *, nonce: int, int size_bytes, bint stamped,
            departs: Sequence[bool]):
        cdef int index
        if not 1 <= len(senders) <= OUTGOING_LINES:
            raise ValueError(f"expected 1 to {OUTGOING_LINES} lines, found {len(senders)}")
        if not PROBE_HEADER <= size_bytes <= PROBE_SIZE_MAX:
            raise ValueError(
                f"size_bytes must be {PROBE_HEADER} to {PROBE_SIZE_MAX}, was {size_bytes}")
        if self.line_count:
            raise RuntimeError("a run can be opened only once")
        self.senders = tuple(senders)
        self._kept = (samples, due_ns)
        self.count = due_ns.shape[0]
        self.due_ns = &due_ns[0]
        self.nonce = nonce
        self.size = size_bytes
        self.histograms = tuple(LatencyHistogram() for _ in senders)
        for index in range(len(senders)):
            self._open(&self.lines[index], index, samples[index], stamped, departs[index])
            self.line_count += 1

    cdef _open(self, OutLine* line, int index, arrays, bint stamped, bint departs):
        cdef int slot
        line.send = &(<DatagramSender?>self.senders[index]).batch
        line.sent_ns = column(arrays["sent_ns"], self.count)
        line.departed_ns = column(arrays["departed_ns"], self.count)
        line.reached_ns = column(arrays["reached_ns"], self.count)
        line.turned_ns = column(arrays["turned_ns"], self.count)
        line.returned_ns = column(arrays["returned_ns"], self.count)
        line.back_ns = column(arrays["back_ns"], self.count)
        line.out_order = order_column(arrays["out_order"], self.count)
        line.back_order = order_column(arrays["back_order"], self.count)
        line.round_trip = (<LatencyHistogram>self.histograms[index]).histogram
        line.departs = departs
        for slot in range(BATCH_MAX):
            memset(&line.slots[slot][0], 0, PROBE_SIZE_MAX)
        check(datagram_batch_init(
            &line.receive, line.send.fd, 0, <uint8_t>index, 0, RECEIVE_BATCH, False, stamped, False,
            NULL), "take memory for", f"line {index}")

    def __dealloc__(self):
        cdef int index
        if self.lines is not NULL:
            for index in range(OUTGOING_LINES):
                datagram_batch_free(&self.lines[index].receive)
            free(self.lines)

    def set_cookie(self, int line, cookie: int) -> None:
        """Have all further probes of a line carry this cookie; from any thread."""
        store_release(&self._line(line).cookie, <uint64_t>cookie)

    def set_greeting(self, int line, bytes greeting) -> None:
        """Keep what is sent on a line at `greet`; before the run, at most 1200 bytes."""
        cdef const uint8_t* data = greeting
        if len(greeting) != CONTROL_BYTES:
            raise ValueError(f"a greeting must have {CONTROL_BYTES} bytes, had {len(greeting)}")
        memcpy(self._line(line).greeting, data, CONTROL_BYTES)

    def greet(self) -> None:
        """Have the loop send the greeting on every line, from any thread."""
        store_release(&self.greeting_wanted, 1)

    def stop(self) -> None:
        """Have the loop send no more and wait for what is on its way; once more: end at once.

        From any thread and from a signal's handler.
        """
        store_release(&self.stopping, load_acquire(&self.stopping) + 1)

    def take_mail(self) -> list[tuple[int, bytes]]:
        """Return the datagrams that are no echoes, as a list of (line, bytes); for one thread."""
        return mail_take(&self.mailbox)

    def run(self, int64_t linger_ns, bint spin=True) -> None:
        """Send all probes when they are due, and take echoes until none came for `linger_ns`.

        Without the GIL. Ends early after `stop`, and when all that was sent came back.

        Raises
        ------
        OSError
            No line can send any more.
        """
        cdef int rc
        with nogil:
            rc = self._run(linger_ns, spin)
        check(rc, "send", "probes")

    def counts(self, int line) -> dict[str, int]:
        """Return what was counted on a line so far, by name; from any thread."""
        cdef OutLine* own = self._line(line)
        if own.receive.items is not NULL:
            datagram_drops_read(&own.receive)
        return {
            "unsent": own.unsent,
            "echoes": own.echoes,
            "repeated": own.repeated,
            "back_duplicates": own.back_duplicates,
            "sessions": own.session_count,
            "strangers": own.strangers,
            "malformed": own.malformed,
            "kernel_drops": own.receive.kernel_drops,
            "nic_stamps": own.receive.nic_stamps,
            "latest_ns": own.latest_ns,
        }

    def refusals(self, int line) -> dict[int, int]:
        """Return why probes of a line were not sent: how many by errno; from any thread."""
        cdef OutLine* own = self._line(line)
        return {error: own.refusals[error] for error in range(ERRNO_END) if own.refusals[error]}

    @property
    def due(self) -> int:
        """Probes whose time has come so far."""
        return self.next

    @property
    def start(self) -> int:
        """Monotonic ns at which the schedule began; 0: not yet."""
        return self.start_ns

    @property
    def utc_offset(self) -> int:
        """UNIX time minus the monotonic clock, ns, as last read."""
        return self.utc_offset_ns

    cdef OutLine* _line(self, int line) except NULL:
        if not 0 <= line < <int>self.line_count:
            raise IndexError(f"line must be 0 to {<int>self.line_count - 1}, was {line}")
        return &self.lines[line]

    cdef int _run(self, int64_t linger_ns, bint spin) noexcept nogil:
        cdef int64_t now_ns = clock_monotonic_ns()
        cdef int64_t wait_ns
        cdef pollfd sockets[OUTGOING_LINES]
        cdef bint heard = 0
        cdef OutLine* line
        cdef uint32_t index
        cdef int work, rc
        self.start_ns = now_ns + 1_000_000
        self._read_offset(now_ns)
        for index in range(self.line_count):
            line = &self.lines[index]
            sockets[index].fd, sockets[index].events = line.send.fd, POLLIN
            line.troubles = line.send.icmp_errors + line.send.unreachable
        self.end = self.count
        self.progress_ns = now_ns
        while load_acquire(&self.stopping) < 2:
            now_ns = clock_monotonic_ns()
            work = 0
            if unlikely(load_acquire(&self.stopping)):
                self.end = self.next  # what is on its way may still come back
            if self.next < self.end:
                wait_ns = self.start_ns + self.due_ns[self.next] - now_ns
                if wait_ns <= 0:
                    rc = self._send_due(now_ns)
                    if rc < 0:
                        return rc
                    work = 1
                    self.progress_ns = now_ns
            elif self._is_over(now_ns, linger_ns):
                return 0
            else:
                wait_ns = SLEEP_MAX_NS
            work += self._receive()
            if unlikely(load_acquire(&self.greeting_wanted)):
                store_release(&self.greeting_wanted, 0)
                self._greet()
            if now_ns - self.utc_read_ns > CLOCK_PERIOD_NS:
                self._read_offset(now_ns)
            if work > 0:
                heard = 0
            elif spin or wait_ns < SLEEP_MARGIN_NS:
                cpu_relax()
            elif heard:
                idle_sleep(UNREAD_SLEEP_NS)
                heard = 0
            else:
                wait_ns = min(wait_ns - SLEEP_MARGIN_NS, SLEEP_MAX_NS)
                heard = sockets_wait(sockets, <int>self.line_count, wait_ns)
        return 0

    cdef bint _is_over(self, int64_t now_ns, int64_t linger_ns) noexcept nogil:
        cdef uint32_t index
        if now_ns - self.progress_ns >= linger_ns:
            return 1
        for index in range(self.line_count):
            if (self.lines[index].echoes + self.lines[index].unsent < self.end
                    or self.lines[index].departures_pending > 0):
                return 0
        return 1

    cdef void _read_offset(self, int64_t now_ns) noexcept nogil:
        # The two clocks drift together: NTP and PTP steer both. Only a step changes this: a reading
        # during which the thread was interrupted counts only if it is off by more than that took.
        cdef int64_t before_ns = clock_monotonic_ns()
        cdef int64_t unix_ns = clock_realtime_ns()
        cdef int64_t took_ns = clock_monotonic_ns() - before_ns
        cdef int64_t offset_ns = unix_ns - before_ns - took_ns // 2
        self.utc_read_ns = now_ns
        if (took_ns <= CLOCK_READ_NS
                or not -took_ns <= offset_ns - self.utc_offset_ns <= took_ns):
            self.utc_offset_ns = offset_ns

    cdef int _send_due(self, int64_t now_ns) noexcept nogil:
        # All that is due, a batch at most, on each line in turn. Which line is first changes with
        # each batch: being second costs a microsecond, which no line shall pay alone.
        cdef uint32_t turn, index, failed = 0
        cdef int64_t first = self.next
        cdef int64_t end = first
        cdef int rc = 0
        while (end < self.count and end - first < BATCH_MAX
                and self.start_ns + self.due_ns[end] <= now_ns):
            end += 1
        for turn in range(self.line_count):
            index = <uint32_t>((self.batches + turn) % self.line_count)
            rc = self._send_line(&self.lines[index], index, first, end, now_ns)
            now_ns = 0
            failed += rc < 0
        self.next = end
        self.batches += 1
        return rc if failed == self.line_count else 0

    cdef int _send_line(
            self, OutLine* line, uint32_t index, int64_t first, int64_t end,
            int64_t now_ns) noexcept nogil:
        # `now_ns` 0: a line before this one has taken its time.
        cdef int64_t at, done
        cdef ProbeHeader* header
        cdef int _attempt, rc = 0
        if now_ns == 0:
            now_ns = clock_monotonic_ns()
        for at in range(first, end):
            header = <ProbeHeader*>&line.slots[at - first][0]
            header.magic = PROBE_MAGIC
            header.kind = KIND_PROBE
            header.line = <uint8_t>index
            header.nonce = self.nonce
            header.cookie = load_acquire(&line.cookie)
            header.index = <uint64_t>at
            header.sent_ns = now_ns + self.utc_offset_ns
            send_batch_add(line.send, header, self.size)
        for _attempt in range(SEND_ATTEMPTS):
            rc = datagram_send(line.send)
            if rc < 0 or line.send.count == 0:
                break
        done = end if line.send.count == 0 else first + line.send.first
        line.send.first = line.send.count = 0
        for at in range(first, done):
            if unlikely(line.send.given_up[at - first]):
                _refused(line, line.send.given_up[at - first], 1)
                line.send.given_up[at - first] = 0
                continue
            line.sent_ns[at] = now_ns
            self._departing(line, at + 1)
        if unlikely(done < end):  # those that it was not even asked for have the same reason
            _refused(line, -rc if rc < 0 else line.send.blocked_errno, end - done)
        if unlikely(done < end or line.troubles != line.send.icmp_errors + line.send.unreachable):
            # Whether the kernel has numbered those that failed is its secret: no stamp of departure
            # can be trusted from here on.
            line.departs = 0
            line.departures_pending = 0
        return min(rc, 0)

    cdef inline void _departing(self, OutLine* line, int64_t mark) noexcept nogil:
        if line.departs:
            line.departed[line.departures % DEPARTED_SLOTS] = <uint64_t>mark
            line.departures += 1
            line.departures_pending += 1

    cdef void _greet(self) noexcept nogil:
        cdef uint32_t index
        cdef OutLine* line
        for index in range(self.line_count):
            line = &self.lines[index]
            (<ProbeHeader*>line.greeting).index = <uint64_t>self.next
            send_batch_add(line.send, line.greeting, CONTROL_BYTES)
            if datagram_send(line.send) < 0 or line.send.count:
                line.send.first = line.send.count = 0
                line.departs = 0
            else:
                self._departing(line, 0)
            line.send.given_up[0] = 0

    cdef int _receive(self) noexcept nogil:
        cdef uint32_t index
        cdef int count, place, work = 0
        cdef int64_t now_ns
        cdef OutLine* line
        for index in range(self.line_count):
            line = &self.lines[index]
            count = datagram_receive(&line.receive)
            if count > 0:
                now_ns = clock_monotonic_ns()
                for place in range(count):
                    self._take(line, index, &line.receive.items[place], now_ns)
                work += count
            elif line.departures_pending > 0:
                work += self._read_departure(line)
        return work

    cdef void _take(
            self, OutLine* line, uint32_t origin, Datagram* item, int64_t now_ns) noexcept nogil:
        cdef const ProbeHeader* header = <const ProbeHeader*>item.data
        cdef uint64_t index
        cdef uint32_t place
        if unlikely(item.size < PROBE_HEADER or item.flags & DATAGRAM_TRUNCATED):
            line.malformed += 1
            return
        if unlikely(header.magic != PROBE_MAGIC or header.nonce != self.nonce
                    or header.line != origin):
            line.strangers += 1
            return
        if unlikely(header.kind != KIND_ECHO):
            mail_put(&self.mailbox, item.data, item.size, origin)
            return
        index = header.index
        if unlikely(index >= <uint64_t>self.count or item.size != self.size
                    or line.sent_ns[index] == 0 or header.reached_ns == 0):
            line.malformed += 1
            return
        line.back_arrivals += 1
        line.latest_ns = now_ns
        place = place_of(line, header)
        if unlikely(line.returned_ns[index] != 0):
            line.repeated += 1
            line.back_duplicates += line.out_order[index] == place
            return
        line.echoes += 1
        self.progress_ns = now_ns
        line.reached_ns[index] = header.reached_ns
        line.turned_ns[index] = header.turned_ns
        line.returned_ns[index] = now_ns
        line.back_ns[index] = (
            now_ns + self.utc_offset_ns if item.flags & DATAGRAM_NO_TIMESTAMP
            else item.received_ns)
        line.out_order[index] = place
        line.back_order[index] = <uint32_t>line.back_arrivals
        histogram_record(
            line.round_trip, now_ns - self.start_ns - self.due_ns[index])

    cdef bint _read_departure(self, OutLine* line) noexcept nogil:
        cdef Departures found
        cdef int64_t apart_ns
        cdef uint64_t mark
        if not departure_next(line.send.fd, &found):
            return 0
        if <uint32_t>(line.departures - found.number - 1) >= DEPARTED_SLOTS:
            return 1
        mark = line.departed[found.number % DEPARTED_SLOTS]
        if mark == 0:  # a greeting
            line.departures_pending -= 1
            return 1
        apart_ns = found.stamp_ns - line.sent_ns[mark - 1] - self.utc_offset_ns
        if found.hardware and not -NIC_CLOCK_LIMIT_NS < apart_ns < NIC_CLOCK_LIMIT_NS:
            return 1  # the NIC's clock is not UNIX time
        line.departures_pending -= line.departed_ns[mark - 1] == 0
        # A stamp of the NIC follows the kernel's, under the same number, and replaces it.
        line.departed_ns[mark - 1] = found.stamp_ns
        return 1


cdef inline void _refused(OutLine* line, int error, int64_t probes) noexcept nogil:
    line.unsent += probes
    line.refusals[error if 0 < error < ERRNO_END else EIO] += probes


cdef inline uint32_t place_of(OutLine* line, const ProbeHeader* header) noexcept nogil:
    # Among all arrivals of the run. A new listener is greeted once the line was silent for a
    # second: an echo that is later than that, of the one before it, has its place all the same.
    cdef Session* session = &line.sessions[0]
    cdef uint32_t place
    if unlikely(session.cookie != header.cookie or session.epoch != header.epoch):
        session = &line.sessions[1]
        if session.cookie != header.cookie or session.epoch != header.epoch:
            session[0] = line.sessions[0]
            session = &line.sessions[0]
            session.cookie, session.epoch = header.cookie, header.epoch
            session.before = session.latest
            line.session_count += 1
    place = session.before + <uint32_t>header.arrival
    session.latest = max(session.latest, place)
    return place


cdef int64_t* column(int64_t[::1] values, int64_t count) except NULL:
    if values.shape[0] != count:
        raise ValueError(f"expected {count} elements, found {values.shape[0]}")
    return &values[0]


cdef uint32_t* order_column(uint32_t[::1] values, int64_t count) except NULL:
    if values.shape[0] != count:
        raise ValueError(f"expected {count} elements, found {values.shape[0]}")
    return &values[0]
