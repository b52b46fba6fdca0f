"""The listener's loop: each probe is noted and goes back as its echo, in one thread.

Python opens and closes tracks (a line of a session each) beside the running loop; the loop itself
never allocates, and does no more for a datagram than it costs to receive one and send it.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cimport cython

from udpfast.core.atomics cimport cpu_relax, fence_full, load_acquire, store_release
from udpfast.core.check cimport unlikely
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.idle cimport idle_sleep
from udpfast.core.layout cimport DATAGRAM_NO_TIMESTAMP, DATAGRAM_TRUNCATED, Datagram
from udpfast.core.oserr cimport check
from udpfast.net.datagram cimport (
    BATCH_MAX, DatagramBatch, datagram_batch_free, datagram_batch_init, datagram_drops_read,
    datagram_receive,
)
from udpfast.net.poller cimport POLLIN, pollfd, sockets_wait
from udpfast.net.sender cimport SendBatch, datagram_send, send_batch_add, send_batch_init
from udpfast.probe.layout cimport (
    KIND_ECHO, KIND_PROBE, PROBE_HEADER, PROBE_MAGIC, Mailbox, ProbeHeader,
    mail_put, mail_take,
)
from udpfast.shm.histogram cimport Histogram, LatencyHistogram, histogram_record_signed

__all__ = ["TRACKS_MAX", "Reflector"]

#: Lines of all sessions together.
TRACKS_MAX = 64

cdef enum:
    REFLECTOR_TRACKS = 64
    SLEEP_MAX_NS = 1_000_000     # what other threads ask for may wait this long
    UNREAD_SLEEP_NS = 20_000     # while a socket has an error that nobody takes
    SEND_ATTEMPTS = 50           # of a full queue: some 50 us, then these echoes are given up

cdef enum TrackState:
    TRACK_FREE = 0               # Python's
    TRACK_OPEN = 1               # the loop's
    TRACK_CLOSING = 2            # Python wants it back; the loop makes it free

cdef struct Track:
    uint64_t state
    DatagramBatch receive
    SendBatch send
    uint64_t nonce
    uint64_t cookie
    uint8_t line
    uint16_t epoch
    uint32_t size
    int64_t count
    int64_t* sent_ns             # UNIX of the sender, as the probe says
    int64_t* reached_ns          # UNIX of this host; 0: did not arrive
    uint32_t* order
    Histogram* out
    Histogram* out_negative
    int64_t arrivals
    int64_t distinct
    int64_t duplicates
    int64_t reordered
    int64_t unsent
    int64_t strangers
    int64_t malformed
    int64_t errors
    int64_t highest              # largest index so far; -1: none


@cython.final
cdef class Reflector:
    """Up to 64 tracks, each with a connected socket of its own, and the loop that serves them."""

    cdef Track* tracks
    cdef list _kept
    cdef uint64_t stopping
    cdef uint64_t running
    cdef uint64_t opened
    cdef uint64_t used               # tracks from here on were never open: nobody looks at them
    cdef Mailbox mailbox

    def __cinit__(self):
        self.tracks = <Track*>calloc(REFLECTOR_TRACKS, sizeof(Track))
        if self.tracks is NULL:
            raise MemoryError("no memory for tracks")
        self._kept = [None] * REFLECTOR_TRACKS

    def __dealloc__(self):
        cdef int place
        if self.tracks is not NULL:
            for place in range(REFLECTOR_TRACKS):
                datagram_batch_free(&self.tracks[place].receive)
            free(self.tracks)

    def open(
            self, sock: socket.socket, arrays: Mapping[str, NDArray[Any]], *, nonce: int,
            cookie: int, int line, int size_bytes, bint stamped) -> int:
        """Serve a line of a session from now on; one thread opens and closes.

        Parameters
        ----------
        sock : socket.socket
            Connected to the sender, non-blocking; kept until `close`.
        arrays : dict of str to numpy.ndarray
            One element per probe, zeros: int64 `sent_ns` and `reached_ns`, uint32 `order`.
        nonce, cookie, line : int
            What the probes carry.
        size_bytes : int
        stamped : bool
            The socket asks for stamps.

        Returns
        -------
        int
            The track; -1: all are taken.
        """
        cdef int place
        cdef Track* track
        cdef int64_t[::1] sent = arrays["sent_ns"]
        cdef int64_t[::1] reached = arrays["reached_ns"]
        cdef uint32_t[::1] order = arrays["order"]
        cdef LatencyHistogram out, negative
        if not 0 < sent.shape[0] == reached.shape[0] == order.shape[0]:
            raise ValueError("expected arrays of one length, one element or more")
        for place in range(REFLECTOR_TRACKS):
            track = &self.tracks[place]
            if load_acquire(&track.state) == TRACK_FREE:
                break
        else:
            return -1
        out, negative = LatencyHistogram(), LatencyHistogram()
        memset(track, 0, sizeof(Track))
        check(datagram_batch_init(
            &track.receive, sock.fileno(), 0, <uint8_t>line, 0, BATCH_MAX, False, stamped, False,
            NULL), "take memory for", f"line {line}")
        send_batch_init(&track.send, sock.fileno())
        self.opened += 1
        track.nonce, track.cookie, track.line = nonce, cookie, <uint8_t>line
        track.epoch = <uint16_t>self.opened
        track.size, track.count, track.highest = size_bytes, sent.shape[0], -1
        track.sent_ns, track.reached_ns, track.order = &sent[0], &reached[0], &order[0]
        track.out, track.out_negative = out.histogram, negative.histogram
        self._kept[place] = (sock, arrays, sent, reached, order, out, negative)
        store_release(&track.state, TRACK_OPEN)  # all of it before: read by the loop
        if place >= <int>load_acquire(&self.used):
            store_release(&self.used, <uint64_t>place + 1)
        return place

    def close(self, int place) -> dict[str, int]:
        """Serve a track no more; its arrays are the caller's again when this returns.

        Returns
        -------
        dict of str to int
            `counts` of all that was served.
        """
        cdef Track* track = self._track(place)
        if load_acquire(&track.state) == TRACK_FREE:
            return self.counts(place)
        store_release(&track.state, TRACK_CLOSING)
        # Either the loop, which says that it runs and then looks, sees this, or it is seen here.
        fence_full()
        # The loop may end meanwhile: then nobody else touches the track.
        while load_acquire(&self.running) and load_acquire(&track.state) != TRACK_FREE:
            with nogil:
                idle_sleep(100_000)
        counts = self.counts(place)
        datagram_batch_free(&track.receive)
        self._kept[place] = None
        store_release(&track.state, TRACK_FREE)
        return counts

    def stop(self) -> None:
        """Have the loop end soon, from any thread and from a signal's handler."""
        store_release(&self.stopping, 1)

    def take_mail(self) -> list[tuple[int, bytes]]:
        """Return the datagrams that are no probes, as a list of (track, bytes); for one thread."""
        return mail_take(&self.mailbox)

    def counts(self, int place) -> dict[str, int]:
        """Return what was counted on a track so far, by name; from any thread while it is open."""
        cdef Track* track = self._track(place)
        if track.receive.items is not NULL:
            datagram_drops_read(&track.receive)
        return {
            "arrivals": track.arrivals,
            "distinct": track.distinct,
            "duplicates": track.duplicates,
            "reordered": track.reordered,
            "unsent": track.unsent + <int64_t>track.send.unreachable,
            "strangers": track.strangers,
            "malformed": track.malformed,
            "errors": track.errors,
            "kernel_drops": track.receive.kernel_drops,
            "nic_stamps": track.receive.nic_stamps,
        }

    def histograms(self, int place) -> tuple[LatencyHistogram, LatencyHistogram]:
        """Return the histograms of the way out on a track: of values above 0, and of those below.

        They are differences of two hosts' clocks.
        """
        self._track(place)
        kept = self._kept[place]
        return kept[5:7] if kept is not None else (LatencyHistogram(), LatencyHistogram())

    def run(self, bint spin=True) -> None:
        """Serve the tracks until `stop`; without the GIL. It sleeps while there are none."""
        store_release(&self.running, 1)
        fence_full()  # pairs with close
        with nogil:
            self._run(spin)
        store_release(&self.running, 0)

    cdef Track* _track(self, int place) except NULL:
        if not 0 <= place < REFLECTOR_TRACKS:
            raise IndexError(f"track must be 0 to {REFLECTOR_TRACKS - 1}, was {place}")
        return &self.tracks[place]

    cdef void _run(self, bint spin) noexcept nogil:
        cdef int place, work, served
        cdef bint heard = 0
        cdef uint64_t state
        cdef Track* track
        cdef pollfd sockets[REFLECTOR_TRACKS]
        while not load_acquire(&self.stopping):
            work = served = 0
            for place in range(<int>load_acquire(&self.used)):
                track = &self.tracks[place]
                state = load_acquire(&track.state)
                if state == TRACK_OPEN:
                    sockets[served].fd, sockets[served].events = track.receive.fd, POLLIN
                    served += 1
                    work += self._serve(track, place)
                elif unlikely(state == TRACK_CLOSING):
                    store_release(&track.state, TRACK_FREE)
            if work > 0:
                heard = 0
            elif spin and served:
                cpu_relax()
            elif heard:
                idle_sleep(UNREAD_SLEEP_NS)
                heard = 0
            else:  # also where there are none
                heard = sockets_wait(sockets, served, SLEEP_MAX_NS)

    cdef int _serve(self, Track* track, int place) noexcept nogil:
        cdef int count = datagram_receive(&track.receive)
        cdef int index, _attempt
        cdef int64_t now_ns = 0, turned_ns
        if count <= 0:
            track.errors += count < 0
            return 0
        if track.receive.items.flags & DATAGRAM_NO_TIMESTAMP:
            now_ns = clock_realtime_ns()
        for index in range(count):
            self._take(track, place, &track.receive.items[index], now_ns)
        if track.send.count == 0:
            return count
        turned_ns = clock_realtime_ns()
        for index in range(<int>track.send.count):
            (<ProbeHeader*>track.send.vectors[index].iov_base).turned_ns = turned_ns
        for _attempt in range(SEND_ATTEMPTS):
            if datagram_send(&track.send) < 0 or track.send.count == 0:
                break
        if unlikely(track.send.count):
            track.unsent += track.send.count - track.send.first
            track.send.first = track.send.count = 0
        return count

    cdef inline void _take(
            self, Track* track, int place, Datagram* item, int64_t now_ns) noexcept nogil:
        cdef ProbeHeader* header = <ProbeHeader*>item.data
        cdef int64_t index, reached_ns
        if unlikely(item.size < PROBE_HEADER or item.flags & DATAGRAM_TRUNCATED):
            track.malformed += 1
            return
        if unlikely(header.magic != PROBE_MAGIC or header.nonce != track.nonce
                    or header.line != track.line):
            track.strangers += 1
            return
        if unlikely(header.kind != KIND_PROBE):
            mail_put(&self.mailbox, item.data, item.size, <uint32_t>place)
            return
        if unlikely(header.cookie != track.cookie):
            track.strangers += 1
            return
        if unlikely(header.index >= <uint64_t>track.count or item.size != track.size):
            track.malformed += 1
            return
        index = <int64_t>header.index
        reached_ns = item.received_ns
        if unlikely(item.flags & DATAGRAM_NO_TIMESTAMP):
            # The first of a batch had a stamp and this one has none: they were just asked for.
            reached_ns = now_ns if now_ns != 0 else clock_realtime_ns()
        track.arrivals += 1
        if unlikely(track.reached_ns[index] != 0):
            track.duplicates += 1
        else:
            track.distinct += 1
            track.reordered += index < track.highest
            track.highest = max(track.highest, index)
            track.sent_ns[index] = header.sent_ns
            track.reached_ns[index] = reached_ns
            track.order[index] = <uint32_t>track.arrivals
            histogram_record_signed(
                track.out, track.out_negative,
                <int64_t>(<uint64_t>reached_ns - <uint64_t>header.sent_ns))
        header.kind = KIND_ECHO
        header.epoch = track.epoch
        header.reached_ns = reached_ns
        header.arrival = <uint64_t>track.arrivals
        send_batch_add(&track.send, header, item.size)
