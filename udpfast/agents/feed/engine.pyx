"""From datagram to record: windows, objects, decoding and the ring as one path.

Live reception feeds it from sockets, replay from a capture; both make the same records.
"""

from pathlib import Path

import cython

from libc.stdint cimport INT64_MIN, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.agents.feed.output cimport (
    Output, output_claim, output_commit, output_flush, output_note_session, output_position,
    output_time)
from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport likely, unlikely
from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.counter cimport (
    ADDRESS_DATAGRAMS,
    ADDRESS_HEARD_NS,
    ADDRESS_SILENT,
    ADDRESS_STRIDE,
    FEED_CHANNEL_UNEXPECTED,
    FEED_RECORD_BYTES,
    FEED_RECORDS,
    FEED_RECORDS_CONTROL,
    FEED_RECORDS_RAW,
    FEED_RECORDS_TOO_LARGE,
    FEED_UNGATED,
    LINE_ADDRESSES_SILENT,
    LINE_BYTES,
    LINE_DATAGRAMS,
    LINE_HEARD_NS,
    LINE_NO_TIMESTAMP,
    LINE_PARITY_REFUSED,
    LINE_REPAIRED,
    LINE_UNITS_MORE,
    VERDICT_PARITY,
    VERDICT_UNSEQUENCED,
)
from udpfast.core.keyed cimport Key
from udpfast.core.layout cimport (
    ADDRESSES_MAX,
    CHANNEL_COUNT,
    CHANNEL_INCREMENTAL,
    CHANNEL_SNAPSHOT,
    CLOCK_EXPIRE,
    CLOCK_FINISH,
    DATAGRAM_NO_TIMESTAMP,
    DATAGRAM_SENDER_REFUSED,
    DATAGRAM_SIZE_MAX,
    DATAGRAM_TRUNCATED,
    ENCODING_FLATBUFFERS,
    FLIGHT_UNKNOWN,
    GAP_DAMAGED,
    FRAME_SIZE,
    Frame,
    KIND_CLOCK,
    KIND_DATAGRAM,
    KIND_GAP,
    KIND_MESSAGE,
    KIND_SESSION,
    LINES_MAX,
    RECORD_FIRST,
    RECORD_HEARTBEAT,
    RECORD_NO_TIMESTAMP,
    RECORD_SIZE,
    STREAM_NONE,
    Capture,
    Clock,
    Gap,
    Record,
)
from udpfast.core.oserr cimport check
from udpfast.feed.holes cimport Hole, pipeline_holes
from udpfast.feed.lines cimport lines_spoke_ns
from udpfast.feed.pipeline cimport (
    pipeline_accept,
    pipeline_expire,
    pipeline_finish,
    pipeline_order,
    pipeline_settings_framing,
)
from udpfast.feed.pipeline_state cimport (
    Pipeline,
    PipelineSettings,
    pipeline_begin_at,
    pipeline_init,
    pipeline_memory_size,
    pipeline_settings_default,
)
from udpfast.feed.repair cimport (
    REPAIR_FOUND,
    Repair,
    repair_is_parity,
    repair_next,
    repair_note,
    repair_parity,
)
from udpfast.core.update_kinds cimport KIND_BOOK
from udpfast.feed.taking cimport pipeline_peek, pipeline_take
from udpfast.feed.units cimport pipeline_units
from udpfast.feed.window_state cimport Window
from udpfast.log.ring cimport Ring, ring_claim, ring_commit, ring_flush
from udpfast.market.ahead cimport AHEAD
from udpfast.market.book cimport UPDATE_TYPE_STALE
from udpfast.market.market cimport MarketSettings, MarketStream
from udpfast.market.found cimport (
    OUTCOME_NONE,
    OUTCOME_OPAQUE,
    OUTCOME_REFUSED,
    OUTCOME_ROOM,
    OUTCOME_UNKNOWN,
    Found,
    found_count,
)
from udpfast.market.gate cimport (
    Gate,
    GateSettings,
    gate_admit,
    gate_init,
    gate_known,
    gate_memory_size,
    gate_reject,
    gate_tag,
    gate_take,
)
from udpfast.market.names cimport (
    Names, names_attach, names_init, names_intern, names_memory_size)
from udpfast.payload.payload cimport (
    PAYLOAD_NONE,
    PUBLISH_ROOM,
    PayloadContext,
    payload_control,
    payload_expect,
    payload_init,
    payload_looks_ahead,
    payload_memory_size,
    payload_next,
)
from udpfast.payload.served cimport served_stream
from udpfast.payload.roq.decode cimport (
    DecodeContext,
    decode_count,
    decode_event,
    decode_init,
    decode_size_bound,
)
from udpfast.payload.roq.flatbuffer cimport EVENT_DAMAGED, event_expected, event_gated, event_type
from udpfast.payload.roq.schema cimport MESSAGE_NONE
from udpfast.shm.answers cimport (
    ANSWERS_BATCH,
    HEADER_BYTES,
    WANTS_MAX,
    AnswersHeader,
    AnswersRegion,
    Want,
    answers_done,
    answers_take,
    wants_begin,
    wants_end,
)
from udpfast.shm.counters cimport CounterBlock
from udpfast.shm.histogram cimport LatencyBlock, histogram_record, histogram_record_signed
from udpfast.shm.region cimport REGION_PAGE, Region
from udpfast.shm.wake cimport WakeRegion, waker_turn
from udpfast.wire.frame cimport REVISION_CURRENT, REVISION_LEGACY, frame_encoding
from udpfast.wire.roq cimport roq_control, roq_frame

from udpfast.agents.feed.lines import line_addresses
from udpfast.config import PAYLOADS, framing_name, payload_name
from udpfast.config.stages import WindowConfig
from udpfast.core.layout import Encoding
from udpfast.errors import ConfigError, FormatError
from udpfast.market.names import NameTable
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.payload.traits import is_said_once
from udpfast.shm.names import create_names, names_table, reopen_names
from udpfast.wire.framing import Framing

__all__ = ["LATENCY_HOPS", "Engine", "engine_memory_size"]

#: The hops that the loop measures, as `LatencyBlock` and `udpfast stat` name them.
#: `kernel_to_origin` is `origin_to_kernel` below 0: the publisher's clock ahead of this host's.
LATENCY_HOPS = ("origin_to_kernel", "kernel_to_origin", "kernel_to_loop", "loop_to_ring")

SLAB_KIND = "SLAB"

cdef enum:
    TYPE_OPAQUE = -2             # beside event_type's codes: not for us to read
    # Space claimed for an update before its size is known. Larger ones (a book of 2,000 levels)
    # are decoded twice: the first time says how much they need.
    CLAIM_SIZE = 65536
    WANTS_INTERVAL_NS = 250_000  # a server is tens of microseconds away, at best
    INSTRUMENTS_MAX = 1 << 18    # of a venue
    FLIGHT_MAX = 2147483647      # ns; what took longer, or is further ahead, is said to be so long

cdef struct Stages:
    Pipeline pipeline
    Gate gate
    Names names
    DecodeContext context
    PayloadContext payload       # of other framings than Roq
    Repair* repair               # the newest datagrams of the incremental channel; NULL: none
    uint8_t rebuilt[DATAGRAM_SIZE_MAX]


cdef inline uint32_t heard_place(uint32_t channel, uint32_t line) noexcept nogil:
    return (channel * LINES_MAX + line) * ADDRESSES_MAX


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

    def __init__(self, config, directory, publish=True, disk=None):
        self.directory = Path(directory)
        self._regions = []
        self._renewed = []
        self._huge_pages = config.agent.huge_pages
        self._pages = []
        try:
            names = self._open_names(config, disk)
            self._open_output(config, disk, names)
            if config.record.what != "records":
                self._open_capture(config)
            self._open_counters(config)
            self._open_answers(config)
            self._open_slab(config)
            if publish:
                self.publish(clock_realtime_ns())
        except BaseException:
            self.close()
            raise
        decode_init(&self.stages.context, config.objects.status_mask)
        self._begin_payload(config)
        self.revision = REVISION_LEGACY if config.wire.revision == "legacy" else REVISION_CURRENT
        self.carry_updates = config.ring.carry != "messages"
        self.carry_messages = config.ring.carry != "updates"

    def close(self, bint failed=False) -> None:
        """Close the ring, so that readers know that nothing more comes, and unmap the rest.

        The files stay: tools read what a dead instance last knew.

        Parameters
        ----------
        failed : bool
            An error ended the feed: readers are told that, and wait for the next one.
        """
        if self.output is not None:
            self.output.close(failed)
        if self.wake is not None and (
                self.output.disk is None or self.wake is not self.output.disk.wake):
            self.wake.close()
        if self.capture_face is not None:
            self.capture_face.close(failed)
        for region in self._regions:
            region.close()
        self._regions = []

    def missing_pages(self) -> list[str]:
        """Return a sentence for each region that did not get the huge pages that were asked for."""
        return [
            f"huge pages for the {name}: got {got:,} of {wanted:,} bytes ({reason}); the rest is "
            "on ordinary pages, which are slower"
            for name, wanted, got, reason in self._pages if reason]

    def read_counters(self) -> dict[str, dict[str, int]]:
        """Return all counters by scope: "feed", "incremental", "incremental.A", ..."""
        return self._counter_block.read()

    @property
    def ring_face(self):
        """The ring that it writes: `log.ring.Ring`; None: a store."""
        return None if self.output is None else self.output.ring_face

    def publish(self, unix_ns: int) -> None:
        """Switch to what was made: nothing of it can be refused any more.

        The names come before the rings: who meets the new writer there finds what its ids mean.
        Readers of a log that goes on are told that its writer is another one.
        """
        for region in self._renewed:
            region.mark_ready()
        self._renewed = []
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
        self._renewed.append(self.wake.region)

    def _open_ring(self, config, names):
        cdef Ring ring = Ring.create(
            self.directory / "ring", config.ring.capacity_bytes, PAYLOAD_HASH, publish=False,
            names=names, huge=self._huge_pages)
        self._collapse("ring", ring.region)
        return ring

    def _open_capture(self, config):
        cdef Ring ring = Ring.create(
            self.directory / "capture", config.record.capture_bytes, publish=False,
            huge=self._huge_pages)
        self.capture_face = ring
        self._collapse("capture", ring.region)
        self.capture = &ring.writer

    def _open_counters(self, config):
        cdef CounterBlock block = CounterBlock.create(
            self.directory / "counters",
            *config.line_names, publish=False, addresses=line_addresses(config))
        self._counter_block = block
        self._heard = bytearray(8 * CHANNEL_COUNT * LINES_MAX * ADDRESSES_MAX)
        self.heard_ns = <int64_t*><char*>self._heard
        self.silent_after_ns = config.session.inactivity_timeout_ms * 1_000_000
        for channel, role in enumerate((config.incremental, config.snapshot)):
            for index, line in enumerate(role.lines):
                self.address_count[<int>channel][<int>index] = len(line.every_address)
        self._regions.append(block)
        self._renewed.append(block.region)
        cdef LatencyBlock latency = LatencyBlock.create(
            self.directory / "latency", LATENCY_HOPS, publish=False)
        self._latency_block = latency
        self._regions.append(latency)
        self._renewed.append(latency.region)
        self.counters = block.counters
        self.origin_to_kernel = latency.pointer("origin_to_kernel")
        self.kernel_to_origin = latency.pointer("kernel_to_origin")
        self.kernel_to_loop = latency.pointer("kernel_to_loop")
        self.loop_to_ring = latency.pointer("loop_to_ring")

    def _open_answers(self, config):
        self.retransmission = self._open_server(config, "retransmission", CHANNEL_INCREMENTAL)
        self.snapshot_server = self._open_server(config, "snapshot_server", CHANNEL_SNAPSHOT)
        self._ask_after_ns = 1_000 * _lost_packet_wait_us(config, config.incremental)

    def _open_server(self, config, name, channel):
        cdef AnswersRegion made
        if not getattr(config, name).enabled:
            (self.directory / f"answers.{name}").unlink(missing_ok=True)
            return None
        made = AnswersRegion.create(
            self.directory, name, channel, len(config.line_names[channel]) - 1)
        self._regions.append(made)
        self._renewed.append(made.region)
        self.asks = True
        return made

    def _open_names(self, config, disk):
        # Ids outlive a restart of the writer: the ring still holds records that carry them. A
        # table of another size begins with the old one's names, in their order, and is the same by
        # its key, too. Returns its mark.
        cdef Region region
        cdef Key key
        cdef Py_ssize_t size = REGION_PAGE + names_memory_size(config.ring.names)
        cdef list known = []
        cdef uint64_t i
        path = self.directory / "names"
        if disk is not None:
            return self._open_store_names(config, disk)
        try:
            region = reopen_names(path, claim=False)
            if names_attach(
                    &self.stages.names, region.pointer + REGION_PAGE,
                    region.size_bytes - REGION_PAGE):
                if region.size_bytes == size:
                    self._regions.append(region)
                    self._renewed.append(region)
                    return NameTable(names_table(region)).mark
                key = self.stages.names.header.key
                for i in range(1, self.stages.names.header.count + 1):
                    entry = &self.stages.names.entries[i]
                    known.append(entry.text[:entry.size])
            region.close()
        except (FileNotFoundError, FormatError):
            pass
        if len(known) > config.ring.names:
            raise ConfigError(
                f"ring.names: expected at least {len(known)}, the number of names that the "
                f"instance has already, found {config.ring.names}")
        region = create_names(path, size - REGION_PAGE)
        self._regions.append(region)
        names_init(&self.stages.names, region.pointer + REGION_PAGE, size - REGION_PAGE,
                   config.ring.names)
        if known:
            self.stages.names.header.key = key
        for name in known:
            names_intern(&self.stages.names, name, len(name))
        self._renewed.append(region)
        return NameTable(names_table(region)).mark

    def _open_store_names(self, config, disk):
        cdef Region region
        try:
            region = disk.log.begin_names(config.ring.names)
        except ValueError as problem:
            raise ConfigError(f"ring.names: expected {problem}, found {config.ring.names}"
                              ) from None
        self._regions.append(region)
        names_attach(
            &self.stages.names, region.pointer + REGION_PAGE, region.size_bytes - REGION_PAGE)
        return 0

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
                               huge=self._huge_pages)
        self._regions.append(region)
        self._renewed.append(region)
        self._collapse("slab", region)
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

    def _collapse(self, name, region):
        if self._huge_pages:
            self._pages.append((name, *region.collapse()))

    def _begin_payload(self, config):
        cdef int payload = PAYLOADS.index(payload_name(config.wire))
        cdef MarketSettings books
        books_configure(&books, config)
        self._payload_memory = Memory(payload_memory_size(payload, &books))
        payload_init(&self.stages.payload, payload, &books, self._payload_memory.pointer,
                     self.counters.feed)

    cdef void accept(
            self, Datagram* items, int count, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        cdef Pipeline* pipeline = &self.stages.pipeline
        cdef int i, n
        unix_ns = output_time(self.output, unix_ns)
        if unlikely(self.capture != NULL):
            self._capture(items, count, now_ns, unix_ns)
        if likely(pipeline.roq):
            for i in range(count):
                self._note(&items[i], now_ns, unix_ns)
                if unlikely(self._repairs) and self._note_parity(&items[i], now_ns, unix_ns):
                    continue
                pipeline_accept(pipeline, &items[i], now_ns)
                self._drain(unix_ns)
                if unlikely(self._repairs):
                    self._rebuild(&items[i], now_ns, unix_ns)
        else:
            for i in range(count):
                self._note(&items[i], now_ns, unix_ns)
                if unlikely(self.asks and self._is_books(&items[i])):
                    self._take_books(&items[i], unix_ns)
                    continue
                for n in range(pipeline_units(pipeline, &items[i])):
                    pipeline_order(pipeline, &items[i], &pipeline.units[n], now_ns)
                    self._drain(unix_ns)
            if unlikely(self.asks):
                self._note_header(&items[count - 1])
        self._flush(now_ns, unix_ns)

    cdef bint _note_parity(
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

    cdef int take_answers(self, int64_t now_ns) noexcept nogil:
        cdef Datagram items[ANSWERS_BATCH]
        cdef int count, total = 0
        if self.retransmission is not None:
            count = answers_take(&self.retransmission.answers, items)
            if count:
                self.accept(items, count, now_ns, clock_realtime_ns())
                answers_done(&self.retransmission.answers)
                total += count
        if self.snapshot_server is not None:
            count = answers_take(&self.snapshot_server.answers, items)
            if count:
                self.accept(items, count, now_ns, clock_realtime_ns())
                answers_done(&self.snapshot_server.answers)
                total += count
        return total

    cdef bint _is_books(self, const Datagram* item) noexcept nogil:
        # Whether our agent wrote it down: it is no datagram of the venue.
        return item.channel == CHANNEL_SNAPSHOT and self.snapshot_server is not None and (
            item.line == self.snapshot_server.answers.line)

    cdef void _take_books(self, const Datagram* item, int64_t unix_ns) noexcept nogil:
        # It says of which stream of changes it is, and belongs to what that has by now.
        cdef Pipeline* pipeline = &self.stages.pipeline
        cdef const Window* window
        cdef Message message
        cdef uint32_t i, stream = served_stream(item.data, item.size)
        counter_add(&self.counters.line[item.channel][item.line][VERDICT_UNSEQUENCED], 1)
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

    cdef void _note_header(self, const Datagram* item) noexcept nogil:
        # What a request has to repeat of what its venue sends: an agent compares the session that
        # it names with the one that is wanted.
        cdef AnswersHeader* header
        if self.retransmission is None or item.channel != CHANNEL_INCREMENTAL:
            return
        header = self.retransmission.answers.header
        wants_begin(&self.retransmission.answers)
        header.header_size = min(item.size, <uint32_t>HEADER_BYTES)
        memcpy(header.header, item.data, header.header_size)
        wants_end(&self.retransmission.answers, header.count)

    cdef void _note_wants(self, int64_t now_ns) noexcept nogil:
        if now_ns < self._wants_at_ns:
            return
        self._wants_at_ns = now_ns + WANTS_INTERVAL_NS
        if self.retransmission is not None:
            self._want_messages(now_ns)
        if self.snapshot_server is not None:
            self._want_snapshots()

    cdef void _want_messages(self, int64_t now_ns) noexcept nogil:
        cdef Hole holes[WANTS_MAX]
        cdef Want* want = self.retransmission.answers.header.wants
        cdef uint32_t i
        cdef uint32_t count = pipeline_holes(
            &self.stages.pipeline, now_ns - self._ask_after_ns, holes, WANTS_MAX)
        if count == 0 and self._wanted[CHANNEL_INCREMENTAL] == 0:
            return
        self._wanted[CHANNEL_INCREMENTAL] = count
        wants_begin(&self.retransmission.answers)
        for i in range(count):
            want[i].session = holes[i].session
            want[i].first, want[i].last = holes[i].first, holes[i].last
            want[i].number = holes[i].last
            want[i].stream = holes[i].stream
        wants_end(&self.retransmission.answers, count)

    cdef void _want_snapshots(self) noexcept nogil:
        cdef Pipeline* pipeline = &self.stages.pipeline
        cdef const MarketStream* stream
        cdef const Window* window
        cdef Want* want = self.snapshot_server.answers.header.wants
        cdef uint32_t i, count = 0
        for i in range(pipeline.windows):
            window = &pipeline.window[i]
            stream = &self.stages.payload.venue.market.streams[window.stream]
            if window.channel == CHANNEL_INCREMENTAL and stream.needs and count < WANTS_MAX:
                if count == 0:
                    wants_begin(&self.snapshot_server.answers)
                want[count].session, want[count].stream = window.session_id, window.stream_key
                want[count].first = want[count].last = stream.needs - 1
                want[count].number = stream.number
                count += 1
        if count == 0:
            if self._wanted[CHANNEL_SNAPSHOT] == 0:
                return
            wants_begin(&self.snapshot_server.answers)
        self._wanted[CHANNEL_SNAPSHOT] = count
        wants_end(&self.snapshot_server.answers, count)

    cdef void _flush(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Tools, late readers and a next writer look at the tail; readers in step do not.
        output_flush(self.output, unix_ns)
        waker_turn(&self.wake.waker, output_position(self.output), now_ns)

    cdef void _note(self, Datagram* item, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Its line's counters, and when it came.
        cdef int64_t* line = self.counters.line[item.channel][item.line]
        cdef int64_t* address = self.counters.address[item.channel][item.line]
        if unlikely(address != NULL):
            counter_add(&address[ADDRESS_STRIDE * item.address + ADDRESS_DATAGRAMS], 1)
            self.heard_ns[heard_place(item.channel, item.line) + item.address] = now_ns
        counter_add(&line[LINE_DATAGRAMS], 1)
        counter_add(&line[LINE_BYTES], item.size)
        if unlikely(item.flags & DATAGRAM_NO_TIMESTAMP):
            counter_add(&line[LINE_NO_TIMESTAMP], 1)
            item.received_ns = unix_ns
        else:
            histogram_record(self.kernel_to_loop, unix_ns - item.received_ns)

    cdef void note_lines(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        cdef const Pipeline* pipeline = &self.stages.pipeline
        cdef int64_t heard_ns
        cdef int64_t* slot
        cdef uint32_t i
        cdef int channel
        for channel in range(CHANNEL_COUNT):
            for i in range(pipeline.carrier[channel].lines):
                heard_ns = lines_spoke_ns(pipeline, channel, i)
                if heard_ns != INT64_MIN:
                    slot = &self.counters.line[channel][i][LINE_HEARD_NS]
                    counter_add(slot, heard_ns + unix_ns - slot[0])
                if self.counters.address[channel][i] != NULL:
                    self._note_addresses(channel, i, now_ns, unix_ns)

    cdef void _note_addresses(
            self, int channel, uint32_t line, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # As of each, and how many of them bring nothing.
        cdef int64_t* address = self.counters.address[channel][line]
        cdef int64_t* heard_ns = self.heard_ns + heard_place(channel, line)
        cdef int64_t* all_silent = &self.counters.line[channel][line][LINE_ADDRESSES_SILENT]
        cdef int64_t silent = 0
        cdef bint is_silent
        cdef uint32_t i
        for i in range(<uint32_t>self.address_count[channel][line]):
            if heard_ns[i] == 0:
                heard_ns[i] = now_ns     # not yet: its silence begins with the first look
            if address[ADDRESS_DATAGRAMS]:
                counter_add(&address[ADDRESS_HEARD_NS],
                            heard_ns[i] + unix_ns - address[ADDRESS_HEARD_NS])
            is_silent = self.silent_after_ns and now_ns - heard_ns[i] >= self.silent_after_ns
            counter_add(&address[ADDRESS_SILENT], is_silent - address[ADDRESS_SILENT])
            silent += is_silent
            address += ADDRESS_STRIDE
        counter_add(all_silent, silent - all_silent[0])

    cdef void expire(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        cdef uint64_t position = output_position(self.output)
        # The first one begins the watch for silence, whether it says something or not.
        cdef bint mattered = not self.stages.pipeline.watching
        unix_ns = output_time(self.output, unix_ns)
        pipeline_expire(&self.stages.pipeline, now_ns)
        self._drain(unix_ns)
        if self.asks:
            self._note_wants(now_ns)
        # Called when nothing came, too: who fell asleep just before the last batch is woken.
        self._flush(now_ns, unix_ns)
        if unlikely(self.capture != NULL and (
                mattered or output_position(self.output) != position)):
            self._capture_clock(CLOCK_EXPIRE, now_ns, unix_ns)

    cdef void finish(self, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        unix_ns = output_time(self.output, unix_ns)
        if self.capture != NULL:
            self._capture_clock(CLOCK_FINISH, now_ns, unix_ns)
        pipeline_finish(&self.stages.pipeline, now_ns)
        self._drain(unix_ns)
        output_flush(self.output, unix_ns)

    cdef void _capture(
            self, const Datagram* items, int count, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        # Keep a batch as it came. The capture ring never waits for its recorder either.
        cdef const Datagram* item
        cdef Record* record
        cdef Capture* before
        cdef int i
        for i in range(count):
            item = &items[i]
            record = ring_claim(self.capture, sizeof(Capture) + item.size)
            if unlikely(record == NULL):
                continue  # longer than an eighth of the ring: no datagram is
            record.kind = KIND_DATAGRAM
            record.flags = 0
            record.received_ns = item.received_ns
            if item.flags & DATAGRAM_NO_TIMESTAMP:
                record.flags = RECORD_NO_TIMESTAMP
                record.received_ns = unix_ns
            record.published_ns = unix_ns
            record.line = item.line
            record.number = 0
            record.object = 0
            record.flight_ns = FLIGHT_UNKNOWN
            record.stream = item.channel
            record.session = self.stages.pipeline.session
            before = <Capture*>(<uint8_t*>record + RECORD_SIZE)
            before.now_ns = now_ns
            before.flags = item.flags
            before.address = item.address
            memcpy(<uint8_t*>before + sizeof(Capture), item.data, item.size)
            ring_commit(self.capture, sizeof(Capture) + item.size)
        ring_flush(self.capture)

    cdef void _capture_clock(self, int reason, int64_t now_ns, int64_t unix_ns) noexcept nogil:
        cdef Record* record = ring_claim(self.capture, sizeof(Clock))
        cdef Clock* clock = <Clock*>(<uint8_t*>record + RECORD_SIZE)
        if unlikely(record == NULL):
            return  # no ring is so small
        memset(<uint8_t*>record + 4, 0, RECORD_SIZE - 4)  # not the length: it is not there yet
        record.kind = KIND_CLOCK
        record.stream = STREAM_NONE
        record.flight_ns = FLIGHT_UNKNOWN
        record.received_ns = unix_ns
        record.published_ns = unix_ns
        clock.now_ns = now_ns
        clock.reason = <uint32_t>reason
        clock.reserved = 0
        ring_commit(self.capture, sizeof(Clock))
        ring_flush(self.capture)

    cdef int32_t _publish_payload(
            self, const Message* message, int32_t flight_ns, int64_t unix_ns) noexcept nogil:
        # Decoded straight into the ring. Returns 0, or why the message itself is to be published:
        # no update tells what it says (OUTCOME_*).
        cdef Found* found = &self.stages.payload.found
        cdef Record* record
        cdef int32_t outcome
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
        if outcome:
            found_count(self.counters.feed, outcome, found)
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

    cdef void _drain(self, int64_t unix_ns) noexcept nogil:
        # Everything that the last unit, or the passing of time, has set free. Only Roq's frames say
        # which object a message is of, and what that had before, so only its messages pass the
        # gate here; what a venue's message is of is known to its decoder.
        cdef Stages* stages = self.stages
        cdef Message message
        cdef Message* output
        cdef int message_type
        while pipeline_take(&stages.pipeline, &message):
            if unlikely(not stages.pipeline.roq):
                if not message.flags & RECORD_HEARTBEAT:
                    if stages.pipeline.ready != NULL and payload_looks_ahead(&stages.payload):
                        self._expect()
                    self._publish(&message, TYPE_OPAQUE, unix_ns)
                continue
            message_type = self._type(&message)
            gate_admit(&stages.gate, &message, self._is_gated(&message, message_type))
            output = gate_take(&stages.gate)
            while output != NULL:
                # Another one than was admitted is a state, or was kept. An update that is not
                # published would leave its object silently wrong.
                if unlikely(not self._publish(
                        output, message_type if output == &message else self._type(output),
                        unix_ns)):
                    gate_reject(&stages.gate, output)
                output = gate_take(&stages.gate)

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
        # message said is in no record.
        cdef int32_t outcome = OUTCOME_OPAQUE
        if unlikely(message.kind != KIND_MESSAGE or not self.stages.pipeline.roq):
            return self._publish_neutral(message, unix_ns)
        if message_type != TYPE_OPAQUE and self.carry_updates:
            outcome = self._publish_update(message, unix_ns)
        if (self.carry_messages or outcome == OUTCOME_OPAQUE or outcome == OUTCOME_UNKNOWN) and (
                not self._publish_raw(message, FLIGHT_UNKNOWN, unix_ns)):
            return False
        return outcome not in (OUTCOME_REFUSED, OUTCOME_ROOM, OUTCOME_NONE)

    cdef bint _publish_neutral(self, Message* message, int64_t unix_ns) noexcept nogil:
        # What the feed says, or a message of another framing than Roq.
        cdef int32_t outcome, flight_ns = FLIGHT_UNKNOWN
        if message.kind != KIND_MESSAGE:
            payload_control(&self.stages.payload, message)
            return self._publish_raw(message, FLIGHT_UNKNOWN, unix_ns)
        counter_add(&self.counters.feed[FEED_UNGATED], 1)
        if message.sent_ns:
            flight_ns = self._flight(message, <uint64_t>message.sent_ns)
        if self.carry_updates and self.stages.payload.payload != PAYLOAD_NONE:
            outcome = self._publish_payload(message, flight_ns, unix_ns)
            if unlikely(outcome == OUTCOME_REFUSED):
                self._publish_damage(message, unix_ns)
            if outcome == 0 and not self.carry_messages:
                return True
        return self._publish_raw(message, flight_ns, unix_ns)

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
        flight_ns = self._note_origin(
            message, <const UpdateHeader*>(<const uint8_t*>record + RECORD_SIZE))
        doubted = outcome == KIND_BOOK and message.channel == CHANNEL_INCREMENTAL and (
            (<const UpdateHeader*>(<const uint8_t*>record + RECORD_SIZE)).update_type
            == UPDATE_TYPE_STALE)
        self._commit(record, message, outcome, message.flags | context.flags, flight_ns,
                     context.size, unix_ns)
        # A publisher that doubts its own book: what it knew of it is of no use, as if it was lost.
        return OUTCOME_NONE if unlikely(doubted) else outcome

    cdef int32_t _note_origin(
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

    cdef bint _publish_raw(
            self, Message* message, int32_t flight_ns, int64_t unix_ns) noexcept nogil:
        # A message of Roq has its frame too, which says how to read it.
        cdef bint is_roq = message.kind == KIND_MESSAGE and self.stages.pipeline.roq
        cdef uint32_t before = FRAME_SIZE if is_roq else 0
        cdef uint32_t size = before + message.size
        cdef Record* record = output_claim(self.output, size)
        if unlikely(record == NULL):
            counter_add(&self.counters.feed[FEED_RECORDS_TOO_LARGE], 1)
            return False
        memcpy(<uint8_t*>record + RECORD_SIZE + before, message.payload, message.size)
        if likely(is_roq):
            roq_frame(<Frame*>(<uint8_t*>record + RECORD_SIZE), message)
            self._commit(record, message, KIND_MESSAGE, message.flags, flight_ns, size, unix_ns)
        else:
            self._commit_as(record, message, message.kind, message.flags, flight_ns, size,
                            message.object, unix_ns)
            if message.kind != KIND_MESSAGE:
                if message.kind == KIND_SESSION:
                    output_note_session(self.output, message.session)
                counter_add(&self.counters.feed[FEED_RECORDS_CONTROL], 1)
                return True
        counter_add(&self.counters.feed[FEED_RECORDS_RAW], 1)
        return True

    cdef void _commit(
            self, Record* record, Message* message, int kind, int flags, int32_t flight_ns,
            uint32_t size, int64_t unix_ns) noexcept nogil:
        if <uint32_t>message.detail == 0 and message.channel == CHANNEL_INCREMENTAL:
            flags |= RECORD_FIRST
        self._commit_as(record, message, kind, flags, flight_ns, size,
                        message.object, unix_ns)

    cdef void _commit_as(
            self, Record* record, const Message* message, int kind, int flags, int32_t flight_ns,
            uint32_t size, uint32_t object, int64_t unix_ns) noexcept nogil:
        record.received_ns = message.received_ns
        record.published_ns = unix_ns
        record.number = message.number
        record.object = object
        record.flight_ns = flight_ns
        record.stream = message.stream
        record.session = message.session
        output_commit(self.output, record, kind, message.line, flags, size)
        counter_add(&self.counters.feed[FEED_RECORDS], 1)
        counter_add(&self.counters.feed[FEED_RECORD_BYTES], RECORD_SIZE + size)


def engine_memory_size(config) -> tuple[int, int]:
    """Return how many bytes an engine takes: of its slab's file, and for books, in no file."""
    cdef PipelineSettings pipeline
    cdef GateSettings gate
    cdef MarketSettings books
    pipeline_configure(&pipeline, config)
    gate_configure(&gate, config)
    books_configure(&books, config)
    windows = (pipeline_memory_size(&pipeline) + 63) & ~<size_t>63
    return (REGION_PAGE + windows + gate_memory_size(&gate),
            payload_memory_size(PAYLOADS.index(payload_name(config.wire)), &books))


def _lost_packet_wait_us(config, role):
    # "auto": no less than this.
    wait_us = role.lost_packet_wait_us or config.window.lost_packet_wait_us
    return WindowConfig().lost_packet_wait_us if wait_us == "auto" else wait_us


cdef pipeline_configure(PipelineSettings* settings, config):
    # The feed's configuration as the windows take it.
    pipeline_settings_default(settings)
    pipeline_settings_framing(settings, Framing(framing_name(config.wire)))
    settings.awaits_start = is_said_once(PAYLOADS.index(payload_name(config.wire)))
    settings.streams = config.wire.streams_max
    settings.encodings = 0
    for name in config.wire.encodings:
        settings.encodings |= <uint64_t>1 << Encoding[name.upper()].value
    settings.window = config.window.size
    settings.slab_cells = config.window.slab_cells
    for channel, role in enumerate((config.incremental, config.snapshot)):
        settings.lines[<int>channel] = len(config.line_names[channel])
        settings.served[<int>channel] = len(config.line_names[channel]) > len(role.lines)
        settings.out_of_order_max_interval[<int>channel] = (
            role.out_of_order_max_interval or config.window.out_of_order_max_interval
            or config.window.size)
        settings.lost_packet_wait_ns[<int>channel] = 1_000 * _lost_packet_wait_us(config, role)
        settings.lost_packet_wait_auto[<int>channel] = (
            role.lost_packet_wait_us or config.window.lost_packet_wait_us) == "auto"
    if config.retransmission.enabled:
        settings.lost_packet_wait_ns[CHANNEL_INCREMENTAL] += 1_000 * config.retransmission.wait_us
    settings.line_dead_ns = config.window.line_dead_ms * 1_000_000
    settings.on_gap = config.window.on_gap == "latest_run"
    settings.session_adopt_datagrams = config.session.adopt_datagrams
    settings.stale_session_grace_ns = int(config.session.stale_grace_s * 1e9)
    settings.restart_datagrams = config.session.restart_datagrams
    settings.inactivity_timeout_ns = config.session.inactivity_timeout_ms * 1_000_000
    settings.doubt_when_silent = config.session.doubt_when_silent


cdef gate_configure(GateSettings* settings, config):
    settings.objects_max = config.objects.max
    settings.collect_messages_max = config.objects.collect_messages
    settings.collect_bytes = config.objects.collect_bytes
    settings.snapshots = len(config.line_names[CHANNEL_SNAPSHOT]) > 0


cdef books_configure(MarketSettings* settings, config):
    settings.levels = config.books.levels
    settings.orders = config.books.orders
    settings.top = config.books.top
    settings.depth = config.books.depth
    settings.places[0] = config.books.places
    settings.places[1] = config.books.places_implied
    settings.orders_max = config.books.orders_max
    settings.instruments_max = min(config.ring.names, INSTRUMENTS_MAX)
    settings.awaits_definitions = config.has_definitions
    settings.held_max = (
        config.snapshot_server.held_changes if config.snapshot_server.enabled else 0)
