"""From datagram to record: windows, objects, decoding and the ring as one path.

Live reception feeds it from sockets, replay from a capture; both make the same records.
"""

import contextlib
from pathlib import Path

import cython

from libc.stdint cimport uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.agents.feed.capture cimport capture_clock, capture_datagrams
from udpfast.agents.feed.engine_settings cimport books_configure, gate_configure, pipeline_configure
from udpfast.agents.feed.feed_names cimport names_open, store_names_open
from udpfast.agents.feed.heard cimport Heard, heard_note, heard_tell
from udpfast.agents.feed.output cimport (
    Output, output_claim, output_commit, output_flush, output_note_session, output_position,
    output_time)
from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.counter cimport (
    CHANNEL_MESSAGES, DECODER_ROQ, DECODER_VENUE, FEED_BYPASS_STACK, FEED_BYPASS_STATE,
    FEED_CHANNEL_UNEXPECTED, FEED_DECODER, FEED_RECORDS, FEED_RECORDS_CONTROL, FEED_RECORDS_RAW,
    FEED_RECORDS_TOO_LARGE, FEED_RECORD_BYTES, FEED_TOOK_OVER, FEED_UNGATED, LINE_BYTES,
    LINE_DATAGRAMS, LINE_NO_TIMESTAMP, LINE_PARITY_REFUSED, LINE_REPAIRED, LINE_UNITS_MORE,
    VERDICT_PARITY, VERDICT_UNSEQUENCED)
from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, CLOCK_DOUBT, CLOCK_EXPIRE, CLOCK_FINISH, DATAGRAM_NO_TIMESTAMP,
    DATAGRAM_SENDER_REFUSED, DATAGRAM_SIZE_MAX, DATAGRAM_TRUNCATED, ENCODING_FLATBUFFERS,
    FLIGHT_UNKNOWN, GAP_DAMAGED, FRAME_SIZE, Frame, KIND_DISAGREEMENT, KIND_GAP, KIND_MESSAGE,
    KIND_SESSION, RECORD_DOUBT, RECORD_FIRST, RECORD_HEARTBEAT, RECORD_NO_TIMESTAMP,
    RECORD_SIZE, Gap, Record)
from udpfast.core.oserr cimport check
from udpfast.core.update_kinds cimport KIND_BOOK
from udpfast.feed.expiry cimport pipeline_doubt_streams, pipeline_expire, pipeline_finish
from udpfast.feed.pipeline cimport pipeline_accept, pipeline_order
from udpfast.feed.pipeline_state cimport (
    Pipeline, PipelineSettings, pipeline_begin_at, pipeline_init, pipeline_memory_size)
from udpfast.feed.repair cimport (
    REPAIR_FOUND, Repair, repair_is_parity, repair_next, repair_note, repair_parity)
from udpfast.feed.taking cimport pipeline_peek, pipeline_take, pipeline_take_piece
from udpfast.feed.units cimport pipeline_units
from udpfast.feed.window_state cimport Window
from udpfast.log.ring cimport Ring
from udpfast.market.ahead cimport AHEAD
from udpfast.market.book cimport UPDATE_TYPE_STALE
from udpfast.market.found cimport (
    OUTCOME_NONE, OUTCOME_OPAQUE, OUTCOME_REFUSED, OUTCOME_ROOM, OUTCOME_UNKNOWN, Found,
    found_count, found_count_all)
from udpfast.market.gate cimport gate_admit, gate_known, gate_reject, gate_tag, gate_take
from udpfast.market.gate_state cimport Gate, GateSettings, gate_init
from udpfast.market.market cimport MarketSettings
from udpfast.market.names cimport Names
from udpfast.payload.payload cimport (
    PAYLOAD_NONE, PUBLISH_ROOM, PayloadContext, payload_control, payload_disputed, payload_expect,
    payload_init, payload_looks_ahead, payload_memory_size, payload_next, payload_withheld)
from udpfast.payload.served cimport served_stream
from udpfast.payload.roq.decode cimport (
    DecodeContext, decode_count, decode_event, decode_init, decode_size_bound)
from udpfast.payload.roq.flatbuffer cimport EVENT_DAMAGED, event_expected, event_gated, event_type
from udpfast.payload.roq.schema cimport MESSAGE_NONE
from udpfast.shm.answers cimport ANSWERS_BATCH, answers_done, answers_take
from udpfast.shm.counters cimport CounterBlock
from udpfast.shm.histogram cimport LatencyBlock, histogram_record, histogram_record_signed
from udpfast.shm.region cimport REGION_PAGE, Region
from udpfast.shm.wake cimport WakeRegion, waker_turn
from udpfast.wire.frame cimport REVISION_CURRENT, REVISION_LEGACY, frame_encoding
from udpfast.wire.roq cimport roq_control, roq_frame

from udpfast.agents.feed.engine_settings import engine_memory_size
from udpfast.agents.feed.lines import line_addresses
from udpfast.agents.feed.regions import Regions
from udpfast.config import PAYLOADS, payload_name
from udpfast.errors import UdpfastError
from udpfast.log.segment import list_segments
from udpfast.market.names import NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.instance import journal_directory
from udpfast.shm.names import names_table

__all__ = ["LATENCY_HOPS", "Engine"]

#: The hops that the loop measures, as `LatencyBlock` and `udpfast stat` name them.
#: `kernel_to_origin` is `origin_to_kernel` below 0: the publisher's clock ahead of this host's.
LATENCY_HOPS = ("origin_to_kernel", "kernel_to_origin", "kernel_to_loop", "loop_to_ring")

SLAB_KIND = "SLAB"

cdef enum:
    TYPE_OPAQUE = -2             # beside event_type's codes: not for us to read
    # Space claimed for an update before its size is known. Larger ones (a book of 2,000 levels)
    # are decoded twice: the first time says how much they need.
    CLAIM_SIZE = 65536
    FLIGHT_MAX = 2147483647      # ns; what took longer, or is further ahead, is said to be so long

cdef struct Stages:
    Pipeline pipeline
    Gate gate
    Names names
    DecodeContext context
    PayloadContext payload       # of other framings than Roq
    Repair* repair               # the newest datagrams of the incremental channel; NULL: none
    uint8_t rebuilt[DATAGRAM_SIZE_MAX]
    Heard heard


@cython.final
cdef class Engine:
    """The memory of one instance, and the path of a datagram through it.

    Parameters
    ----------
    config : FeedConfig
        The feed.
    directory : Path
        The instance's directory; its regions are created, or taken over from a dead writer.
    publish : bool
        Be the instance's writer now; False: lock it and take all memory, no more, until `publish`
        is called. An engine that is closed before leaves the instance as it was.
    disk : StoreDisk, optional
        Of the store that it writes, where `config.output` says so, in place of a ring.

    Attributes
    ----------
    directory : Path
    capture_face : Ring or None

    Raises
    ------
    WriterExistsError
        A live process writes this instance.
    OSError
        No room for a region.
    """

    def __cinit__(self):
        self.stages = <Stages*>calloc(1, sizeof(Stages))
        if self.stages == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.stages)

    def __init__(
            self, config: FeedConfig, directory: Path, publish: bool = True,
            disk: StoreDisk | None = None):
        self.directory = Path(directory)
        self._regions = Regions(config.agent.huge_pages)
        try:
            names = self._open_names(config, disk)
            self._open_output(config, disk, names)
            if config.record.what != "records":
                self._open_capture(config)
            self._open_counters(config)
            self._open_wanted(config)
            self._open_slab(config)
            decode_init(&self.stages.context, config.objects.status_mask)
            self._begin_payload(config)
            self.revision = (
                REVISION_LEGACY if config.wire.revision == "legacy" else REVISION_CURRENT)
            self.carry_updates = config.ring.carry != "messages"
            self.carry_messages = config.ring.carry != "updates"
            if self.stages.pipeline.roq:
                counter_add(&self.counters.feed[FEED_DECODER], DECODER_ROQ)
            elif self._decodes():
                counter_add(&self.counters.feed[FEED_DECODER], DECODER_VENUE)
            if publish:
                self.publish(clock_realtime_ns())
        except BaseException:
            self.close()
            raise

    def close(self, bint failed=False, bint again=False) -> None:
        """Close the ring, so that readers know that nothing more comes, and unmap the rest.

        The files stay: tools read what a dead instance last knew.

        Parameters
        ----------
        failed : bool
            An error ended the feed: readers are told that, and wait for the next one.
        again : bool
            It is stopped to be started again: readers wait for the next one, too.
        """
        if self.output is not None:
            self.output.close(failed, again)
        if self.wake is not None and (
                self.output.disk is None or self.wake is not self.output.disk.wake):
            self.wake.close()
        if self.capture_face is not None:
            self.capture_face.close(failed, again)
        self._regions.close()

    def missing_pages(self) -> list[str]:
        """Return a sentence for each region that did not get the huge pages that were asked for."""
        return self._regions.missing_pages()

    def read_counters(self) -> dict[str, dict[str, int]]:
        """Return all counters by scope: "feed", "incremental", "incremental.A", ..."""
        return self._counter_block.read()

    @property
    def ring_face(self) -> Ring | None:
        """The ring that it writes: `log.ring.Ring`; None: a store."""
        return None if self.output is None else self.output.ring_face

    @property
    def disk(self) -> StoreDisk | None:
        """The disk of the store that it writes; None: a ring."""
        return self.output.disk

    def note_bypass(self, int stack, int state) -> None:
        """Have tools know which network stack is preloaded, and how it is."""
        counter_add(&self.counters.feed[FEED_BYPASS_STACK], stack)
        counter_add(&self.counters.feed[FEED_BYPASS_STATE], state)

    def note_takeover(self) -> None:
        """Have tools know that the process before this one did not end in good order."""
        counter_add(&self.counters.feed[FEED_TOOK_OVER], 1)

    def publish(self, unix_ns: int) -> None:
        """Switch to what was made: nothing of it can be refused any more.

        The names come before the rings: who meets the new writer there finds what its ids mean.
        Readers of a log that goes on are told that its writer is another one.
        """
        self._regions.put()
        if self.capture_face is not None:
            self.capture_face.publish()
        self.output.begin(unix_ns)
        if self.capture_face is not None and self.capture_face.restarted:
            self.capture_face.announce_restart(unix_ns)

    def _open_output(self, config, disk, names):
        self.output = Output(self._open_ring(config, names) if disk is None else None, disk)
        if disk is not None and disk.wakes_itself:
            self.wake = disk.wake
            return
        self.wake = WakeRegion.create(self.directory, publish=False)
        self._regions.put_later(self.wake.region)

    def _open_ring(self, config, names):
        cdef Ring ring = Ring.create(
            self.directory / "ring", config.ring.capacity_bytes, PAYLOAD_HASH, publish=False,
            names=names, huge=self._regions.huge_pages)
        # After a reboot the log is another one, but the journal goes on: its readers are told.
        ring.restarted = ring.restarted or _has_journal(config)
        self._regions.collapse("ring", ring.region)
        return ring

    def _open_capture(self, config):
        cdef Ring ring = Ring.create(
            self.directory / "capture", config.record.capture_bytes, publish=False,
            huge=self._regions.huge_pages)
        self.capture_face = ring
        self._regions.collapse("capture", ring.region)
        self.capture = &ring.writer

    def _open_counters(self, config):
        cdef CounterBlock block = CounterBlock.create(
            self.directory / "counters",
            *config.line_names, publish=False, addresses=line_addresses(config))
        self._counter_block = block
        self.stages.heard.silent_after_ns = config.session.inactivity_timeout_ms * 1_000_000
        for channel, role in enumerate((config.incremental, config.snapshot)):
            for index, line in enumerate(role.lines):
                self.stages.heard.addresses[<int>channel][<int>index] = len(line.every_address)
        self._regions.keep(block, block.region)
        cdef LatencyBlock latency = LatencyBlock.create(
            self.directory / "latency", LATENCY_HOPS, publish=False)
        self._latency_block = latency
        self._regions.keep(latency, latency.region)
        self.counters = block.counters
        self.origin_to_kernel = latency.pointer("origin_to_kernel")
        self.kernel_to_origin = latency.pointer("kernel_to_origin")
        self.kernel_to_loop = latency.pointer("kernel_to_loop")
        self.loop_to_ring = latency.pointer("loop_to_ring")

    def _open_wanted(self, config):
        self.wanted = Wanted(config, self.directory)
        self.asks = self.wanted.any
        for answers in self.wanted.regions:
            self._regions.keep(answers, answers.region)

    def _open_names(self, config, disk):
        # Returns the mark of the table.
        if disk is not None:
            self._regions.keep(store_names_open(&self.stages.names, disk.log, config.ring.names))
            return 0
        region = names_open(
            &self.stages.names, self.directory / "names", config.ring.names,
            self._regions.huge_pages)
        self._regions.keep(region, region)
        return NameTable(names_table(region)).mark

    def _open_slab(self, config):
        # The windows' cells and what objects collect, behind each other in one region.
        cdef PipelineSettings pipeline
        cdef GateSettings gate
        cdef Region region
        cdef size_t pipeline_size
        pipeline_configure(&pipeline, config)
        gate_configure(&gate, config)
        pipeline_size = (pipeline_memory_size(&pipeline) + 63) & ~<size_t>63
        region = Region.create(self.directory / "slab", SLAB_KIND,
                               engine_memory_size(config)[0], 0, mode=0o600,
                               replace=True, keep=False,  # nobody else's business
                               huge=self._regions.huge_pages)
        self._regions.keep(region, region)
        self._regions.collapse("slab", region)
        check(pipeline_init(&self.stages.pipeline, &pipeline, region.pointer + REGION_PAGE,
                            pipeline_size, &self.counters), "set up windows", config.name)
        # Sessions of writers before this one have their ordinals.
        pipeline_begin_at(&self.stages.pipeline, <uint16_t>self.output.session)
        gate_init(&self.stages.gate, region.pointer + REGION_PAGE + pipeline_size, &gate,
                  self.counters.feed)

        self._repairs = config.window.parity
        if self._repairs:
            self._repair_memory = bytearray(sizeof(Repair))
            self.stages.repair = <Repair*><char*>self._repair_memory

    def _begin_payload(self, config):
        cdef int payload = PAYLOADS.index(payload_name(config.wire))
        cdef MarketSettings books
        books_configure(&books, config)
        self._payload_memory = Memory(payload_memory_size(payload, &books))
        payload_init(&self.stages.payload, payload, &books, self._payload_memory.pointer,
                     self.counters.feed)

    cdef void accept(
            self, Datagram* items, int count, int64_t now_ns, uint32_t late_us,
            int64_t unix_ns) noexcept nogil:
        cdef Pipeline* pipeline = &self.stages.pipeline
        cdef int i, n
        pipeline.late_ns = <int64_t>late_us * 1000
        unix_ns = output_time(self.output, unix_ns)
        if unlikely(self.capture != NULL):
            capture_datagrams(
                self.capture, items, count, pipeline.session, now_ns, late_us, unix_ns)
        if likely(pipeline.roq):
            for i in range(count):
                self._count_arrival(&items[i], now_ns, unix_ns)
                if unlikely(self._repairs) and self._take_parity(&items[i], now_ns, unix_ns):
                    continue
                pipeline_accept(pipeline, &items[i], now_ns)
                self._drain(unix_ns)
                if unlikely(self._repairs):
                    self._rebuild(&items[i], now_ns, unix_ns)
        else:
            for i in range(count):
                self._count_arrival(&items[i], now_ns, unix_ns)
                if unlikely(self.asks and self.wanted.is_books(&items[i])):
                    self._take_books(&items[i], unix_ns)
                    continue
                for n in range(pipeline_units(pipeline, &items[i])):
                    pipeline_order(pipeline, &items[i], &pipeline.units[n], now_ns)
                    self._drain(unix_ns)
            if unlikely(self.asks):
                self.wanted.note_header(&items[count - 1])
        self._flush(now_ns, unix_ns)

    cdef bint _take_parity(
            self, const Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Whether it is a parity datagram, and all that it has to say is said.
        cdef Repair* repair = self.stages.repair
        if (item.channel != CHANNEL_INCREMENTAL
                or item.flags & (DATAGRAM_SENDER_REFUSED | DATAGRAM_TRUNCATED)):
            return False
        if likely(not repair_is_parity(item.data, item.size)):
            repair_note(repair, item.data, item.size)
            return False
        counter_add(&self.counters.line[item.channel][item.line][VERDICT_PARITY], 1)
        if repair_parity(repair, item.data, item.size):
            self._rebuild(item, now_ns, unix_ns)
        return True

    cdef void _rebuild(self, const Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Take what can be rebuilt, as if the line of this datagram had brought it.
        cdef Repair* repair = self.stages.repair
        cdef int64_t* line = self.counters.line[item.channel][item.line]
        cdef Datagram rebuilt = item[0]
        cdef int rc = repair_next(repair, self.stages.rebuilt, &rebuilt.size)
        rebuilt.data = self.stages.rebuilt
        while rc:
            if rc == REPAIR_FOUND:
                counter_add(&line[LINE_REPAIRED], 1)
                counter_add(&line[LINE_UNITS_MORE], 1)
                pipeline_accept(&self.stages.pipeline, &rebuilt, now_ns)
                self._drain(unix_ns)
            else:
                counter_add(&line[LINE_PARITY_REFUSED], 1)
            rc = repair_next(repair, self.stages.rebuilt, &rebuilt.size)

    cdef int take_answers(self, int64_t now_ns, uint32_t late_us) noexcept nogil:
        cdef int total = 0
        if self.wanted.retransmission is not None:
            total += self._take_answers(&self.wanted.retransmission.answers, now_ns, late_us)
        if self.wanted.snapshot_server is not None:
            total += self._take_answers(&self.wanted.snapshot_server.answers, now_ns, late_us)
        return total

    cdef int _take_answers(
            self, Answers* answers, int64_t now_ns, uint32_t late_us) noexcept nogil:
        cdef Datagram items[ANSWERS_BATCH]
        cdef int count = answers_take(answers, items)
        if count:
            self.accept(items, count, now_ns, late_us, clock_realtime_ns())
            answers_done(answers)
        return count

    cdef void _take_books(self, const Datagram* item, int64_t unix_ns) noexcept nogil:
        # It names its stream; its books belong to that stream's present session.
        cdef Pipeline* pipeline = &self.stages.pipeline
        cdef const Window* window
        cdef Message message
        cdef uint32_t i, stream = served_stream(item.data, item.size)
        counter_add(&self.counters.line[item.channel][item.line][VERDICT_UNSEQUENCED], 1)
        counter_add(&self.counters.channel[item.channel][CHANNEL_MESSAGES], 1)
        counter_add(&self.counters.feed[FEED_UNGATED], 1)
        for i in range(pipeline.windows):
            window = &pipeline.window[i]
            if window.channel == CHANNEL_INCREMENTAL and window.stream_key == stream:
                memset(&message, 0, sizeof(Message))
                message.payload, message.size = item.data, item.size
                message.kind, message.channel, message.line = (
                    KIND_MESSAGE, item.channel, item.line)
                message.received_ns = item.received_ns
                if item.flags & DATAGRAM_NO_TIMESTAMP:
                    message.flags = RECORD_NO_TIMESTAMP
                message.stream = window.stream
                message.session = window.session
                self._publish_payload(&message, FLIGHT_UNKNOWN, unix_ns)
                return
        found_count_all(self.counters.feed, 0, False, True)  # nothing of its stream was heard

    cdef void _flush(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Tools, late readers and a next writer look at the tail; readers in step do not.
        output_flush(self.output, unix_ns)
        waker_turn(&self.wake.waker, output_position(self.output), now_ns)

    cdef void _count_arrival(self, Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Its line's counters, and when it came.
        cdef int64_t* line = self.counters.line[item.channel][item.line]
        cdef int64_t* address = self.counters.address[item.channel][item.line]
        if unlikely(address != NULL):
            heard_note(&self.stages.heard, address, item, now_ns)
        counter_add(&line[LINE_DATAGRAMS], 1)
        counter_add(&line[LINE_BYTES], item.size)
        if unlikely(item.flags & DATAGRAM_NO_TIMESTAMP):
            counter_add(&line[LINE_NO_TIMESTAMP], 1)
            item.received_ns = unix_ns
        else:
            histogram_record(self.kernel_to_loop, unix_ns - item.received_ns)

    cdef void note_lines(self, int64_t now_ns, int64_t unix_offset_ns) noexcept nogil:
        heard_tell(
            &self.stages.heard, &self.stages.pipeline, &self.counters, now_ns, unix_offset_ns)

    cdef void expire(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        cdef uint64_t position = output_position(self.output)
        # Captured even if they say nothing: the first call, which starts the watch for silence, and
        # those that choose how long holes wait.
        cdef bint first_turn = not self.stages.pipeline.watching
        cdef int64_t wait_due_ns = self.stages.pipeline.wait_due_ns
        unix_ns = output_time(self.output, unix_ns)
        self.stages.pipeline.late_ns = 0
        pipeline_expire(&self.stages.pipeline, now_ns)
        self._drain(unix_ns)
        if self.asks:
            self.wanted.note(
                &self.stages.pipeline, self.stages.payload.venue.market.streams, now_ns)
        # Called when nothing came, too: who fell asleep just before the last batch is woken.
        self._flush(now_ns, unix_ns)
        if unlikely(self.capture != NULL and (
                first_turn or self.stages.pipeline.wait_due_ns != wait_due_ns
                or output_position(self.output) != position)):
            capture_clock(self.capture, CLOCK_EXPIRE, now_ns, unix_ns)

    cdef bint waits(self) noexcept nogil:
        cdef const Window* window
        cdef uint32_t i
        for i in range(self.stages.pipeline.windows):
            window = &self.stages.pipeline.window[i]
            if window.channel == CHANNEL_INCREMENTAL and (
                    window.pending or window.waiting.named > window.next):
                return True
        return False

    cdef void doubt(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        unix_ns = output_time(self.output, unix_ns)
        if self.capture != NULL:
            capture_clock(self.capture, CLOCK_DOUBT, now_ns, unix_ns)
        pipeline_doubt_streams(&self.stages.pipeline, now_ns)
        self._drain(unix_ns)
        self._flush(now_ns, unix_ns)

    cdef void finish(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        unix_ns = output_time(self.output, unix_ns)
        if self.capture != NULL:
            capture_clock(self.capture, CLOCK_FINISH, now_ns, unix_ns)
        pipeline_finish(&self.stages.pipeline, now_ns)
        self._drain(unix_ns)
        output_flush(self.output, unix_ns)

    cdef int32_t _publish_payload(
            self, const Message* message, int32_t flight_ns, int64_t unix_ns) noexcept nogil:
        # Decoded straight into the ring. Returns 0, or why the message itself is to be published:
        # no update tells what it says (OUTCOME_*).
        cdef Found* found = &self.stages.payload.found
        cdef Record* record
        cdef int32_t outcome
        cdef bint told = False
        cdef Message other
        self.stages.payload.step = 0
        while True:
            record = output_claim(self.output, PUBLISH_ROOM)
            outcome = payload_next(
                &self.stages.payload, message, <uint8_t*>record + RECORD_SIZE, PUBLISH_ROOM,
                &self.stages.names)
            if outcome <= 0:
                break
            found_count(self.counters.feed, outcome, found)
            told = True
            if unlikely(found.stream and found.stream - 1 != message.stream):
                # A snapshot, of an object of another stream: that of its changes.
                other = message[0]
                other.stream = <uint16_t>(found.stream - 1)
                other.session = found.session
                self._commit_as(record, &other, outcome, message.flags | found.flags, flight_ns,
                                found.size, found.object, unix_ns)
                continue
            self._commit_as(record, message, outcome, message.flags | found.flags, flight_ns,
                            found.size, found.object, unix_ns)
            if found.last:
                outcome = 0
                break
        if unlikely(outcome):
            found_count(self.counters.feed, outcome, found)
        found_count_all(
            self.counters.feed, outcome, told, payload_withheld(&self.stages.payload))
        return outcome

    cdef void _publish_damage(self, const Message* message, int64_t unix_ns) noexcept nogil:
        # What it said, and of whom, is lost: a gap of one message, for the decoder as for readers.
        cdef Gap gap
        cdef Message lost = message[0]
        memset(&gap, 0, sizeof(Gap))
        gap.first = gap.last = message.number
        gap.count = 1
        gap.reason = GAP_DAMAGED
        lost.kind = KIND_GAP
        lost.payload = <const uint8_t*>&gap
        lost.size = sizeof(Gap)
        self._publish(&lost, TYPE_OPAQUE, unix_ns)

    cdef void _publish_dispute(self, const Message* message, int64_t unix_ns) noexcept nogil:
        # Two copies of a message differ, and the books have what the first one said. Their unit
        # names no object, so all books of the stream are in doubt.
        cdef Message disputed = message[0]
        if payload_disputed(&self.stages.payload, &disputed):
            self._publish_damage(&disputed, unix_ns)

    cdef void _drain(self, int64_t unix_ns) noexcept nogil:
        # Everything that the last unit, or the passing of time, has set free. Roq's frames name a
        # message's object and its predecessor, so Roq passes the gate.
        cdef Stages* stages = self.stages
        cdef Message message
        cdef Message* output
        cdef int message_type
        if unlikely(not stages.pipeline.roq):
            self._drain_units(unix_ns)
            return
        while pipeline_take(&stages.pipeline, &message):
            message_type = self._type(&message)
            gate_admit(&stages.gate, &message, self._is_gated(&message, message_type))
            output = gate_take(&stages.gate)
            while output != NULL:
                # An output that is not the admitted message is a STALE or RECOVERED, or an update
                # released with it. An update that is not published would leave its object silently
                # wrong.
                if unlikely(not self._publish(
                        output, message_type if output == &message else self._type(output),
                        unix_ns)):
                    gate_reject(&stages.gate, output)
                output = gate_take(&stages.gate)

    cdef void _drain_units(self, int64_t unix_ns) noexcept nogil:
        # The same for other framings, whose messages the decoders judge, if any does.
        cdef Stages* stages = self.stages
        cdef Message message
        while pipeline_take(&stages.pipeline, &message):
            if unlikely(message.flags & RECORD_HEARTBEAT):
                continue
            if message.kind == KIND_MESSAGE and not self._decodes():
                self._publish_run(&message, unix_ns)
                continue
            if stages.pipeline.ready != NULL and payload_looks_ahead(&stages.payload):
                self._expect()
            self._publish_neutral(&message, unix_ns)

    cdef bint _decodes(self) noexcept nogil:
        # Whether messages of venues become updates.
        return self.carry_updates and self.stages.payload.payload != PAYLOAD_NONE

    cdef void _publish_run(self, Message* message, int64_t unix_ns) noexcept nogil:
        # A message of a venue as it is, and those behind it in its unit: each is visible at once,
        # and they are counted together.
        cdef Pipeline* pipeline = &self.stages.pipeline
        cdef int64_t messages = 0, records = 0, size = 0
        cdef int32_t flight_ns = FLIGHT_UNKNOWN
        while True:
            messages += 1
            if message.sent_ns:
                flight_ns = self._flight(message, <uint64_t>message.sent_ns)
            if likely(record_append(self.output, message, flight_ns, unix_ns)):
                records += 1
                size += RECORD_SIZE + message.size
            if pipeline.ready == NULL:
                break
            pipeline_take_piece(pipeline, message)
            if unlikely(message.flags & RECORD_HEARTBEAT):
                break
        counter_add(&self.counters.feed[FEED_UNGATED], messages)
        counter_add(&self.counters.feed[FEED_RECORDS], records)
        counter_add(&self.counters.feed[FEED_RECORD_BYTES], size)
        counter_add(&self.counters.feed[FEED_RECORDS_RAW], records)
        counter_add(&self.counters.feed[FEED_RECORDS_TOO_LARGE], messages - records)

    cdef void _expect(self) noexcept nogil:
        # What the payload will ask its tables for, while the datagram at hand has more messages.
        cdef Pipeline* p = &self.stages.pipeline
        cdef const uint8_t* payload = NULL
        cdef uint32_t last = p.ready_piece - 1 + AHEAD
        cdef uint32_t n = 1 if p.ready_piece == 1 else last
        cdef uint32_t size
        while n <= last:
            size = pipeline_peek(p, n, &payload)
            payload_expect(&self.stages.payload, payload, size)
            n += 1

    cdef int _type(self, const Message* message) noexcept nogil:
        # Another encoding is opaque: bytes that look like a type by chance must not withhold it.
        if (message.kind != KIND_MESSAGE or frame_encoding(roq_control(message), self.revision)
                != ENCODING_FLATBUFFERS):
            return TYPE_OPAQUE
        return event_type(message.payload, message.size)

    cdef bint _is_gated(self, const Message* message, int message_type) noexcept nogil:
        # Whether its type has snapshots is in the payload, which feed does not read. A payload that
        # does not tell its type is what its object was before.
        return event_gated(message_type) or (
            (message_type == EVENT_DAMAGED or message_type == MESSAGE_NONE)
            and gate_known(&self.stages.gate, message.object))

    cdef bint _publish(
            self, Message* message, int message_type, int64_t unix_ns) noexcept nogil:
        # A message as updates, as published, or both; or what the feed says. False: what the
        # message said is in no record. (Below, a function that decodes returns an OUTCOME.)
        cdef int32_t outcome = OUTCOME_OPAQUE
        if unlikely(message.kind != KIND_MESSAGE or not self.stages.pipeline.roq):
            return self._publish_neutral(message, unix_ns)
        if message_type != TYPE_OPAQUE and self.carry_updates:
            outcome = self._publish_update(message, unix_ns)
        if (self.carry_messages or outcome == OUTCOME_OPAQUE or outcome == OUTCOME_UNKNOWN) and (
                not self._publish_framed(message, unix_ns)):
            return False
        return outcome not in (OUTCOME_REFUSED, OUTCOME_ROOM, OUTCOME_NONE)

    cdef bint _publish_neutral(self, const Message* message, int64_t unix_ns) noexcept nogil:
        # What the feed says, or a message of another framing than Roq.
        cdef int32_t outcome, flight_ns = FLIGHT_UNKNOWN
        cdef bint published
        if message.kind != KIND_MESSAGE:
            payload_control(&self.stages.payload, message)
            published = self._publish_plain(
                message, FLIGHT_UNKNOWN, FEED_RECORDS_CONTROL, unix_ns)
            if unlikely(message.kind == KIND_DISAGREEMENT) and self._decodes():
                self._publish_dispute(message, unix_ns)
            return published
        counter_add(&self.counters.feed[FEED_UNGATED], 1)
        if message.sent_ns:
            flight_ns = self._flight(message, <uint64_t>message.sent_ns)
        if self._decodes():
            outcome = self._publish_payload(message, flight_ns, unix_ns)
            if unlikely(outcome == OUTCOME_REFUSED):
                self._publish_damage(message, unix_ns)
            if outcome == 0 and not self.carry_messages:
                return True
        return self._publish_plain(message, flight_ns, FEED_RECORDS_RAW, unix_ns)

    cdef int32_t _publish_update(self, Message* message, int64_t unix_ns) noexcept nogil:
        # Decoded straight into the ring. Returns the kind, or why there is none (OUTCOME_*).
        cdef DecodeContext* context = &self.stages.context
        cdef Record* record = NULL
        cdef int32_t outcome = self._decode(message, &record)
        cdef int32_t flight_ns
        cdef bint doubted
        decode_count(self.counters.feed, outcome, context)
        if outcome <= 0:
            return outcome
        if unlikely(not event_expected(context.message_type, message.channel)):
            counter_add(&self.counters.feed[FEED_CHANNEL_UNEXPECTED], 1)
        if message.tag == 0 and context.symbol_id:
            gate_tag(
                &self.stages.gate, message.object,
                (<uint64_t>context.exchange_id << 32) | context.symbol_id)
        flight_ns = self._update_flight(
            message, <const UpdateHeader*>(<const uint8_t*>record + RECORD_SIZE))
        doubted = outcome == KIND_BOOK and message.channel == CHANNEL_INCREMENTAL and (
            (<const UpdateHeader*>(<const uint8_t*>record + RECORD_SIZE)).update_type
            == UPDATE_TYPE_STALE)
        self._commit(
            record, message, outcome,
            message.flags | context.flags | (RECORD_DOUBT if doubted else 0), flight_ns,
            context.size, unix_ns)
        # The publisher itself doubts this book: reject it, so that its object waits for a snapshot.
        return OUTCOME_NONE if unlikely(doubted) else outcome

    cdef int32_t _update_flight(
            self, const Message* message, const UpdateHeader* header) noexcept nogil:
        # Returns Record.flight_ns. A snapshot may repeat an old stamp, and any u64 may stand in a
        # payload.
        if header.source_send_time_utc == 0 or message.channel != CHANNEL_INCREMENTAL:
            return FLIGHT_UNKNOWN
        return self._flight(message, header.source_send_time_utc)

    cdef int32_t _flight(self, const Message* message, uint64_t sent_ns) noexcept nogil:
        cdef int64_t flight_ns = <int64_t>(<uint64_t>message.received_ns - sent_ns)
        if not message.flags & RECORD_NO_TIMESTAMP:
            histogram_record_signed(self.origin_to_kernel, self.kernel_to_origin, flight_ns)
        return <int32_t>max(-FLIGHT_MAX, min(flight_ns, <int64_t>FLIGHT_MAX))

    cdef int32_t _decode(self, Message* message, Record** record) noexcept nogil:
        cdef Stages* stages = self.stages
        cdef uint32_t room = min(decode_size_bound(message.size), <uint32_t>CLAIM_SIZE)
        cdef int32_t outcome
        record[0] = output_claim(self.output, room)
        outcome = decode_event(
            message.payload, message.size, <uint8_t*>record[0] + RECORD_SIZE, room,
            &stages.names, &stages.context)
        if unlikely(outcome == OUTCOME_ROOM):
            record[0] = output_claim(self.output, stages.context.size)
            if record[0] != NULL:
                outcome = decode_event(
                    message.payload, message.size, <uint8_t*>record[0] + RECORD_SIZE,
                    stages.context.size, &stages.names, &stages.context)
        return outcome

    cdef bint _publish_framed(self, const Message* message, int64_t unix_ns) noexcept nogil:
        # A message of Roq as published: behind its frame, which says how to read it.
        cdef uint32_t size = FRAME_SIZE + message.size
        cdef Record* record = output_claim(self.output, size)
        if unlikely(record == NULL):
            counter_add(&self.counters.feed[FEED_RECORDS_TOO_LARGE], 1)
            return False
        roq_frame(<Frame*>(<uint8_t*>record + RECORD_SIZE), message)
        memcpy(<uint8_t*>record + RECORD_SIZE + FRAME_SIZE, message.payload, message.size)
        self._commit(record, message, KIND_MESSAGE, message.flags, FLIGHT_UNKNOWN, size, unix_ns)
        counter_add(&self.counters.feed[FEED_RECORDS_RAW], 1)
        return True

    cdef bint _publish_plain(
            self, const Message* message, int32_t flight_ns, int counter,
            int64_t unix_ns) noexcept nogil:
        # What the feed says, or any other message, as it is.
        if unlikely(not record_append(self.output, message, flight_ns, unix_ns)):
            counter_add(&self.counters.feed[FEED_RECORDS_TOO_LARGE], 1)
            return False
        if unlikely(message.kind == KIND_SESSION):
            output_note_session(self.output, message.session)
        counter_add(&self.counters.feed[FEED_RECORDS], 1)
        counter_add(&self.counters.feed[FEED_RECORD_BYTES], RECORD_SIZE + message.size)
        counter_add(&self.counters.feed[counter], 1)
        return True

    cdef void _commit(
            self, Record* record, const Message* message, int kind, int flags, int32_t flight_ns,
            uint32_t size, int64_t unix_ns) noexcept nogil:
        if <uint32_t>message.detail == 0 and message.channel == CHANNEL_INCREMENTAL:
            flags |= RECORD_FIRST
        self._commit_as(record, message, kind, flags, flight_ns, size,
                        message.object, unix_ns)

    cdef void _commit_as(
            self, Record* record, const Message* message, int kind, int flags, int32_t flight_ns,
            uint32_t size, uint32_t object, int64_t unix_ns) noexcept nogil:
        record_fill(record, message, object, flight_ns, unix_ns)
        output_commit(self.output, record, kind, message.line, flags, size)
        counter_add(&self.counters.feed[FEED_RECORDS], 1)
        counter_add(&self.counters.feed[FEED_RECORD_BYTES], RECORD_SIZE + size)


cdef inline void record_fill(
        Record* record, const Message* message, uint32_t object, int32_t flight_ns,
        int64_t unix_ns) noexcept nogil:
    # Fill what output_commit leaves of the header. What the feed says before its first datagram it
    # says at its own time.
    record.received_ns = message.received_ns if likely(message.received_ns) else unix_ns
    record.published_ns = unix_ns
    record.number = message.number
    record.object = object
    record.flight_ns = flight_ns
    record.stream = message.stream
    record.session = message.session


cdef inline bint record_append(
        Output output, const Message* message, int32_t flight_ns, int64_t unix_ns) noexcept nogil:
    # A message as it is; False: it is larger than any record may be.
    cdef Record* record = output_claim(output, message.size)
    if unlikely(record == NULL):
        return False
    memcpy(<uint8_t*>record + RECORD_SIZE, message.payload, message.size)
    record_fill(record, message, message.object, flight_ns, unix_ns)
    output_commit(output, record, message.kind, message.line, message.flags, message.size)
    return True


def _has_journal(config):
    # Whether the feed's recorder continues a journal that has records.
    if not config.record.enabled:
        return False
    with contextlib.suppress(OSError, UdpfastError):  # the recorder will say what is wrong
        return bool(list_segments(journal_directory(config.record.directory or config.name)))
    return False
