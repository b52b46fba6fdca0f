"""Names, units and meanings of all counters, in the order of the enums in `counter.pxd`."""

from typing import NamedTuple

__all__ = [
    "CHANNEL_COUNTERS",
    "FEED_COUNTERS",
    "LINE_COUNTERS",
    "VERDICTS",
    "CounterInfo",
]


class CounterInfo(NamedTuple):
    """What a counter is called, its unit (`count`, `bytes`, `ns`, `code`), and what it counts."""

    name: str
    unit: str
    meaning: str


#: What became of a unit, or of a datagram that has none: each gets one. The index is the `Verdict`.
VERDICTS = (
    CounterInfo("delivered", "count", "next in order and whole (heartbeats too): went straight on"),
    CounterInfo("held", "count", "first copy, kept until its turn or its missing parts come"),
    CounterInfo("duplicate", "count", "the same fragment had come before"),
    CounterInfo("late", "count", "its seqno was already reported lost"),
    CounterInfo(
        "replay", "count",
        "older than the window remembers, or numbered anew: a replay, or a restart that is not "
        "believed yet"),
    CounterInfo("too_short", "count", "it ends inside its header"),
    CounterInfo("too_long", "count", "longer than its framing's datagrams can be"),
    CounterInfo("fragment_beyond_max", "count", "fragment > fragment_max"),
    CounterInfo("short_fragment", "count", "not the last one, and its payload is not 512 bytes"),
    CounterInfo("fragment_max_changed", "count", "fragment_max differs inside one message"),
    CounterInfo("encoding_refused", "count", "an encoding that the settings do not allow"),
    CounterInfo(
        "session_pending", "count",
        "of a session, or a jump beyond the window, that is not believed yet: held beside"),
    CounterInfo("session_retired", "count", "of a session that is over"),
    CounterInfo(
        "session_foreign", "count",
        "snapshot channel: not the incremental channel's session"),
    CounterInfo("slab_full", "count", "early, but no cell was free to hold it"),
    CounterInfo("sender_refused", "count", "its sender is not on the allow-list"),
    CounterInfo("heartbeat", "count", "takes no number, and names the one that comes next"),
    CounterInfo("unsequenced", "count", "went straight on: its number puts it in no order"),
    CounterInfo(
        "stream_refused", "count", "of a stream beyond as many as `wire.streams_max` allows"),
    CounterInfo("wrong_version", "count", "a constant of the header has another value"),
    CounterInfo("wrong_kind", "count", "a type or flag that the framing does not define"),
    CounterInfo("length_beyond", "count", "the length field reaches beyond the datagram"),
    CounterInfo(
        "length_below", "count", "the length field ends before the datagram, or in the header"),
    CounterInfo("count_and_bytes", "count", "the messages counted do not fill the bytes"),
    CounterInfo("message_short", "count", "a message is shorter than its own header"),
    CounterInfo("message_beyond", "count", "a message reaches beyond its unit"),
    CounterInfo(
        "out_of_range", "count", "a key is wider than any that the venue is known to have"),
    CounterInfo("units_many", "count", "more units than there is room for"),
)

#: Of one line of one channel: the verdicts first, then its own. The index is the `LineCounter`.
LINE_COUNTERS = (
    *VERDICTS,
    CounterInfo(
        "datagrams", "count",
        "handed over by the kernel; with `units_more`, the sum of the verdicts"),
    CounterInfo("units_more", "count", "units behind the first one of their datagram"),
    CounterInfo("bytes", "bytes", "payload bytes of UDP"),
    CounterInfo("wins", "count", "fragments that this line brought first"),
    CounterInfo("ties_lost", "count", "fragments that another line had brought before"),
    CounterInfo(
        "lead_ns", "ns",
        "sum of the leads by which it won against the next line; stamps that contradict the order "
        "count as negative"),
    CounterInfo("leads", "count", "number of leads in that sum"),
    CounterInfo(
        "losses", "count",
        "messages that it never brought, of those another line did; counted once "
        "`lost_packet_wait` has passed"),
    CounterInfo("disagreements", "count", "other bytes than the first copy"),
    CounterInfo(
        "kernel_drops", "count",
        "lost before user space (the socket's drop count, or AF_XDP's)"),
    CounterInfo(
        "receive_errors", "count",
        "receive calls that failed: the line is down, others go on"),
    CounterInfo(
        "reopened", "count",
        "sockets opened anew because the interface had been removed and came again"),
    CounterInfo(
        "disconnected", "count",
        "times that inactivity was declared; one more than `ready`: it is silent"),
    CounterInfo("ready", "count", "times that it spoke again"),
    CounterInfo(
        "heard_ns", "ns",
        "when it last brought a datagram of the feed, UNIX time (renewed ten times a second); "
        "0: never"),
    CounterInfo("no_timestamp", "count", "came without a kernel or NIC timestamp"),
    CounterInfo("unused_bits", "count", "unused control bits were set (accepted)"),
    CounterInfo("empty_final", "count", "last of several fragments without payload (accepted)"),
    CounterInfo(
        "frames", "count",
        "taken from AF_XDP's ring = `datagrams` + the four that follow; 0 with a socket"),
    CounterInfo(
        "frames_fragment", "count",
        "first part of a fragmented IP datagram: not put together"),
    CounterInfo("frames_checksum", "count", "wrong IPv4 header or UDP checksum"),
    CounterInfo("frames_malformed", "count", "headers that contradict each other, or end early"),
    CounterInfo(
        "frames_foreign", "count",
        "for no line: another address, port, source or protocol"),
)

#: Of one channel, over all its lines. The index is the `ChannelCounter`.
CHANNEL_COUNTERS = (
    CounterInfo("messages", "count", "whole messages in seqno order (heartbeats included)"),
    CounterInfo("heartbeats", "count", "messages without payload"),
    CounterInfo("fragmented", "count", "messages of more than one fragment"),
    CounterInfo("gaps", "count", "gaps reported"),
    CounterInfo("gaps_by_count", "count", "decided by out_of_order_max_interval"),
    CounterInfo("gaps_by_time", "count", "decided by lost_packet_wait"),
    CounterInfo("gaps_window_full", "count", "forced: window or slab could not hold more"),
    CounterInfo("lost", "count", "seqnos inside gaps"),
    CounterInfo("incomplete", "count", "messages of which only some fragments came (inside LOST)"),
    CounterInfo(
        "disregarded", "count",
        "whole messages dropped by on_gap = `latest_run` (inside LOST)"),
    CounterInfo("sessions", "count", "sessions begun"),
    CounterInfo(
        "session_restarts", "count",
        "of these: same id (a restarted publisher); snapshot channel: times that it alone began "
        "anew"),
    CounterInfo("session_discarded", "count", "messages pending when their session ended"),
    CounterInfo(
        "disagreements", "count",
        "fragments of which copies with different bytes came, by two lines or by one"),
    CounterInfo("disconnected", "count", "times that inactivity was declared"),
    CounterInfo("ready", "count", "times that it spoke again"),
)

#: Of the whole feed. The index is the `FeedCounter`.
FEED_COUNTERS = (
    CounterInfo("applied", "count", "passed on because its object is LIVE (or became so by it)"),
    CounterInfo("ungated", "count", "passed on without a gate: object type 0 or no snapshots"),
    CounterInfo("collected", "count", "kept: its object waits for a snapshot"),
    CounterInfo(
        "collect_full", "count",
        "given up: a limit was reached; the object waits longer"),
    CounterInfo("released", "count", "kept ones passed on behind their snapshot"),
    CounterInfo(
        "collect_dropped", "count",
        "kept ones that a snapshot, a hole or a new session made void"),
    CounterInfo("snapshots_skipped", "count", "of LIVE objects: not decoded"),
    CounterInfo("snapshots_too_old", "count", "older than what is collected, or known"),
    CounterInfo("snapshots_broken", "count", "the collected updates do not continue it"),
    CounterInfo(
        "updates_contained", "count",
        "the snapshot that their object has contains them"),
    CounterInfo("objects", "count", "objects known in this session"),
    CounterInfo("objects_full", "count", "messages of objects beyond the table's size"),
    CounterInfo("stale", "count", "times that an object turned STALE"),
    CounterInfo(
        "waits_in_vain", "count",
        "times that an object said that no snapshots come: their channel is silent, or absent"),
    CounterInfo(
        "recovered_chain", "count",
        "times that one recovered by last_seqno, without a snapshot"),
    CounterInfo("recovered_snapshot", "count", "times that one became LIVE by a snapshot"),
    CounterInfo("updates", "count", "payloads decoded"),
    CounterInfo("decode_refused", "count", "payloads that the verifier refused"),
    CounterInfo("types_opaque", "count", "known types that are passed on undecoded"),
    CounterInfo("types_unknown", "count", "union codes beyond the schema: passed on undecoded"),
    CounterInfo("types_none", "count", "events without a type"),
    CounterInfo("fields_unknown", "count", "fields beyond the schema: skipped"),
    CounterInfo("channel_unexpected", "count", "a type on a channel where it is not expected"),
    CounterInfo("truncated", "count", "strings or lists cut to their fixed layout"),
    CounterInfo("names_full", "count", "names that the table had no room for"),
    CounterInfo(
        "names_long", "count",
        "names longer than its entries: their records name nothing"),
    CounterInfo("stream_status", "count", "StreamStatus: consumed, never passed on"),
    CounterInfo("records", "count", "records published"),
    CounterInfo("record_bytes", "bytes", "bytes published, headers and padding included"),
    CounterInfo("records_raw", "count", "of these: payloads as published (MESSAGE)"),
    CounterInfo(
        "records_control", "count",
        "of these: the feed's own word (GAP, SESSION, STALE, ...)"),
    CounterInfo("records_too_large", "count", "did not fit the ring's largest record: refused"),
    CounterInfo("streams", "count", "numberings found on the lines"),
    CounterInfo("batches", "count", "receive calls that brought something"),
    CounterInfo("cycles", "count", "turns of the loop"),
    CounterInfo("cycle_longest_ns", "ns", "longest turn of the loop"),
    CounterInfo("cycles_slow", "count", "turns longer than 1 ms"),
    CounterInfo(
        "bypass_stack", "code",
        "kernel bypass at the start: 0 none, 1 onload, 2 vma, 3 xlio"),
    CounterInfo(
        "bypass_state", "code",
        "0 none, 1 asked for but not loaded, 2 loaded but on the kernel's stack, 3 accelerated"),
)

if len(VERDICTS) != VERDICT_COUNT:
    raise ImportError(f"{VERDICT_COUNT} verdicts, but {len(VERDICTS)} labels")
if len(LINE_COUNTERS) != LINE_COUNTER_COUNT:
    raise ImportError(f"{LINE_COUNTER_COUNT} line counters, but {len(LINE_COUNTERS)} labels")
if len(CHANNEL_COUNTERS) != CHANNEL_COUNTER_COUNT:
    raise ImportError(
        f"{CHANNEL_COUNTER_COUNT} channel counters, but {len(CHANNEL_COUNTERS)} labels")
if len(FEED_COUNTERS) != FEED_COUNTER_COUNT:
    raise ImportError(f"{FEED_COUNTER_COUNT} feed counters, but {len(FEED_COUNTERS)} labels")
