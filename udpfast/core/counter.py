"""Names, units and meanings of all counters, in the order of the enums in `counter.pxd`."""

from typing import NamedTuple

__all__ = [
    "ADDRESS_COUNTERS",
    "CHANNEL_COUNTERS",
    "FEED_COUNTERS",
    "LINE_COUNTERS",
    "VERDICTS",
    "CounterInfo",
]


class CounterInfo(NamedTuple):
    """Name of a counter, its unit (`count`, `bytes`, `ns` or `code`), and what it counts."""

    name: str
    unit: str
    meaning: str


#: Outcomes of a unit, or of a datagram without one: each gets exactly one. The index is the
#: `Verdict`.
VERDICTS: tuple[CounterInfo, ...] = (
    CounterInfo(
        "delivered", "count", "complete and next in order: passed on at once (also heartbeats)"
    ),
    CounterInfo(
        "held", "count", "first copy, kept until its turn or until its missing fragments arrive"
    ),
    CounterInfo("duplicate", "count", "this fragment had already arrived"),
    CounterInfo("late", "count", "its seqno had already been reported lost"),
    CounterInfo(
        "replay",
        "count",
        "older than the window remembers, or numbered anew: a replay, or a restart that is not "
        "yet confirmed",
    ),
    CounterInfo("too_short", "count", "shorter than its header"),
    CounterInfo("too_long", "count", "longer than any datagram of its framing"),
    CounterInfo("fragment_beyond_max", "count", "fragment > fragment_max"),
    CounterInfo(
        "short_fragment", "count", "not the last fragment, but its payload is not 512 bytes"
    ),
    CounterInfo("fragment_max_changed", "count", "fragment_max changed within one message"),
    CounterInfo("encoding_refused", "count", "its encoding is not allowed by the settings"),
    CounterInfo(
        "session_pending",
        "count",
        "does not continue the current numbering: kept with a run (of another session, a restart "
        "or a jump) until that is proven",
    ),
    CounterInfo(
        "session_retired", "count", "belongs to a session, or a numbering of it, that is over"
    ),
    CounterInfo(
        "session_foreign",
        "count",
        "of another session than the current one, and no sign of a new one: on the snapshot "
        "channel, or a retransmission",
    ),
    CounterInfo("slab_full", "count", "came early, but no cell was free to keep it"),
    CounterInfo("sender_refused", "count", "its sender is not on the allow-list"),
    CounterInfo(
        "heartbeat",
        "count",
        "a heartbeat that takes no number of its own and announces the next one",
    ),
    CounterInfo("unsequenced", "count", "passed on at once: its number implies no order"),
    CounterInfo(
        "stream_refused", "count", "belongs to a stream beyond the limit `wire.streams_max`"
    ),
    CounterInfo("wrong_version", "count", "a constant field of the header has another value"),
    CounterInfo("wrong_kind", "count", "its type or flags are not defined by the framing"),
    CounterInfo("length_beyond", "count", "the length field reaches beyond the datagram"),
    CounterInfo(
        "length_below", "count", "the length field ends before the datagram, or inside the header"
    ),
    CounterInfo("count_and_bytes", "count", "the number of messages does not match the bytes"),
    CounterInfo("message_short", "count", "a message is shorter than its own header"),
    CounterInfo("message_beyond", "count", "a message reaches beyond the end of its unit"),
    CounterInfo("out_of_range", "count", "a key is larger than any that the venue is known to use"),
    CounterInfo("units_many", "count", "the datagram has more units than udpfast has room for"),
    CounterInfo(
        "parity",
        "count",
        "a relay's parity: says nothing of its own, but what it rebuilds (`window.parity`)",
    ),
)

#: Counters of a line of a channel: the verdicts first, then its own. The index is the
#: `LineCounter`.
LINE_COUNTERS: tuple[CounterInfo, ...] = (
    *VERDICTS,
    CounterInfo(
        "datagrams",
        "count",
        "received from the kernel; `datagrams` + `units_more` = the sum of the verdicts",
    ),
    CounterInfo("units_more", "count", "units after the first one in a datagram"),
    CounterInfo("bytes", "bytes", "payload bytes of UDP"),
    CounterInfo("wins", "count", "fragments that this line delivered first"),
    CounterInfo("ties_lost", "count", "fragments that another line had delivered before"),
    CounterInfo(
        "lead_ns",
        "ns",
        "sum of this line's leads over the next line; negative where time stamps contradict the "
        "order of arrival",
    ),
    CounterInfo("leads", "count", "number of leads in `lead_ns`"),
    CounterInfo(
        "losses",
        "count",
        "messages that another line delivered and this one never did; counted after "
        "`lost_packet_wait`",
    ),
    CounterInfo("disagreements", "count", "copies whose bytes differ from the first copy"),
    CounterInfo(
        "kernel_drops",
        "count",
        "dropped before they reached the program (counted by the socket, or by AF_XDP)",
    ),
    CounterInfo(
        "receive_errors", "count", "failed receive calls: this line is down, the others continue"
    ),
    CounterInfo(
        "reopened",
        "count",
        "times that the socket was reopened because its interface had disappeared and returned",
    ),
    CounterInfo(
        "disconnected",
        "count",
        "times that the line fell silent (`session.inactivity_timeout_ms`); if this is one more "
        "than `ready`, it is silent now",
    ),
    CounterInfo("ready", "count", "times that the line spoke again after a silence"),
    CounterInfo(
        "heard_ns",
        "ns",
        "UNIX time of its latest datagram of the feed (updated ten times a second); 0: none yet",
    ),
    CounterInfo(
        "addresses_silent",
        "count",
        "of a line with several addresses: those that bring nothing now "
        "(`session.inactivity_timeout_ms`)",
    ),
    CounterInfo("no_timestamp", "count", "datagrams without a time stamp of the kernel or NIC"),
    CounterInfo("unused_bits", "count", "datagrams with unused control bits set (accepted)"),
    CounterInfo(
        "empty_final",
        "count",
        "messages of several fragments whose last fragment is empty (accepted)",
    ),
    CounterInfo(
        "repaired",
        "count",
        "datagrams that the line lost and its parity rebuilt; each has a verdict, and counts in "
        "`units_more`",
    ),
    CounterInfo(
        "parity_refused",
        "count",
        "parity that the datagrams which it covers contradict: nothing is rebuilt from it",
    ),
    CounterInfo(
        "frames",
        "count",
        "frames from AF_XDP = `datagrams` + the four counters that follow; 0 with a socket",
    ),
    CounterInfo(
        "frames_fragment", "count", "first fragment of a fragmented IP datagram: not reassembled"
    ),
    CounterInfo("frames_checksum", "count", "wrong IPv4 header checksum or UDP checksum"),
    CounterInfo(
        "frames_malformed", "count", "headers that contradict each other, or are cut short"
    ),
    CounterInfo(
        "frames_foreign",
        "count",
        "for none of the lines: another address, port, source or protocol",
    ),
)

#: Counters of each address of a line that has several. The index is the `AddressCounter`.
ADDRESS_COUNTERS: tuple[CounterInfo, ...] = (
    CounterInfo("datagrams", "count", "received from the kernel for this address"),
    CounterInfo(
        "heard_ns",
        "ns",
        "UNIX time of its latest datagram (updated ten times a second); 0: none yet",
    ),
    CounterInfo("silent", "code", "1: it has brought nothing for session.inactivity_timeout_ms"),
)

#: Counters of one channel, over all its lines. The index is the `ChannelCounter`.
CHANNEL_COUNTERS: tuple[CounterInfo, ...] = (
    CounterInfo("messages", "count", "complete messages in seqno order (heartbeats included)"),
    CounterInfo("heartbeats", "count", "messages without payload"),
    CounterInfo("fragmented", "count", "messages of more than one fragment"),
    CounterInfo("gaps", "count", "gaps reported"),
    CounterInfo("gaps_by_count", "count", "gaps declared because of out_of_order_max_interval"),
    CounterInfo("gaps_by_time", "count", "gaps declared because of lost_packet_wait"),
    CounterInfo(
        "gaps_window_full", "count", "gaps declared early because the window or its memory was full"
    ),
    CounterInfo("lost", "count", "seqnos in all gaps"),
    CounterInfo(
        "incomplete", "count", "messages of which only some fragments arrived (included in `lost`)"
    ),
    CounterInfo(
        "disregarded",
        "count",
        'complete messages dropped by on_gap = "latest_run" (included in `lost`)',
    ),
    CounterInfo("sessions", "count", "sessions begun"),
    CounterInfo(
        "session_restarts",
        "count",
        "sessions that began with the same id: the publisher restarted; on the snapshot channel: "
        "times that only this channel began again",
    ),
    CounterInfo(
        "session_discarded", "count", "messages that were still waiting when their session ended"
    ),
    CounterInfo(
        "disagreements", "count", "fragments whose copies differ, from two lines or from one"
    ),
    CounterInfo(
        "disconnected",
        "count",
        "times that all lines of the channel were silent (`session.inactivity_timeout_ms`)",
    ),
    CounterInfo("ready", "count", "times that the channel spoke again after a silence"),
    CounterInfo(
        "wait_ns",
        "ns",
        "how long a hole waits now before it is declared lost (`window.lost_packet_wait_us`)",
    ),
)

#: Counters of the whole feed. The index is the `FeedCounter`.
FEED_COUNTERS: tuple[CounterInfo, ...] = (
    CounterInfo("applied", "count", "passed on: its object is LIVE, or this message made it LIVE"),
    CounterInfo(
        "ungated",
        "count",
        "passed on without a check of its object: it needs no snapshot, or the feed has none",
    ),
    CounterInfo("collected", "count", "kept, because its object waits for a snapshot"),
    CounterInfo(
        "collect_full",
        "count",
        "kept updates that were given up at a limit; their object waits for a newer snapshot",
    ),
    CounterInfo("released", "count", "kept updates that were passed on after their snapshot"),
    CounterInfo(
        "collect_dropped",
        "count",
        "kept updates that were dropped: a snapshot contains them, or a loss or a new session "
        "made them useless",
    ),
    CounterInfo(
        "snapshots_skipped", "count", "snapshots of objects that are LIVE already: not decoded"
    ),
    CounterInfo(
        "snapshots_too_old", "count", "snapshots older than the kept updates, or than what is known"
    ),
    CounterInfo("snapshots_broken", "count", "snapshots that the kept updates do not continue"),
    CounterInfo(
        "updates_contained", "count", "updates that the object's snapshot already contains"
    ),
    CounterInfo("objects", "count", "objects seen in this session"),
    CounterInfo("objects_full", "count", "messages of objects for which the table had no room"),
    CounterInfo(
        "objects_waiting",
        "count",
        "objects whose book now waits for a snapshot or another complete state",
    ),
    CounterInfo(
        "objects_stranded",
        "count",
        "objects whose book waits now for a snapshot, although nothing that is configured brings "
        "any",
    ),
    CounterInfo(
        "stale", "count", "records STALE, each of one object; a GAP puts all in doubt without"
    ),
    CounterInfo(
        "waits_in_vain",
        "count",
        "times that an object was reported to wait for snapshots that do not come: their channel "
        "is silent, or there is none",
    ),
    CounterInfo(
        "recovered_chain",
        "count",
        "times that an object recovered without a snapshot, by last_seqno",
    ),
    CounterInfo("recovered_snapshot", "count", "times that an object recovered by a snapshot"),
    CounterInfo(
        "orders_unknown",
        "count",
        "changes of orders that were not there: their books are in doubt; and removals of levels "
        "that were not there, which change nothing",
    ),
    CounterInfo("books_full", "count", "orders or levels that the books had no room for"),
    CounterInfo(
        "books_undefined",
        "count",
        "instruments whose first change came before a definition told how deep their books are, or "
        "whose definition has the name of another one",
    ),
    CounterInfo("told", "count", "a venue's messages of which at least one record was made"),
    CounterInfo(
        "withheld",
        "count",
        "a venue's messages of which nothing is published, because their books are in doubt",
    ),
    CounterInfo(
        "nothing_new",
        "count",
        "a venue's messages that change nothing readers are told: parts of snapshots, snapshots of "
        "sound books, what was known before, levels that are not published",
    ),
    CounterInfo("updates", "count", "updates made of payloads"),
    CounterInfo("decode_refused", "count", "payloads that failed verification"),
    CounterInfo("types_opaque", "count", "payloads of known types that are passed on undecoded"),
    CounterInfo(
        "types_unknown",
        "count",
        "payloads of types that the schema does not know: passed on undecoded",
    ),
    CounterInfo("types_none", "count", "events without a type"),
    CounterInfo("fields_unknown", "count", "fields that the schema does not know: skipped"),
    CounterInfo(
        "channel_unexpected", "count", "messages of a type that is not expected on their channel"
    ),
    CounterInfo("truncated", "count", "texts or lists cut to fit their fixed layout"),
    CounterInfo(
        "names_full", "count", "names for which the table had no room; their records have id 0"
    ),
    CounterInfo("names_long", "count", "names too long for the table; their records have id 0"),
    CounterInfo(
        "stream_status", "count", "StreamStatus messages: used by the feed, never passed on"
    ),
    CounterInfo("records", "count", "records published"),
    CounterInfo("record_bytes", "bytes", "bytes published, headers and padding included"),
    CounterInfo("records_raw", "count", "records with the payload as published (MESSAGE)"),
    CounterInfo(
        "records_control", "count", "records by the feed itself (GAP, SESSION, STALE, ...)"
    ),
    CounterInfo(
        "records_too_large",
        "count",
        "records refused because they exceed the largest size that the ring takes",
    ),
    CounterInfo(
        "controls_full",
        "count",
        "records of the feed itself (SESSION, GAP, DISAGREEMENT, CONNECTION) that were lost, "
        "because too many waited to be published at once",
    ),
    CounterInfo("streams", "count", "streams found on the lines"),
    CounterInfo(
        "streams_replaced",
        "count",
        "streams that a single datagram had named, and that gave way to others",
    ),
    CounterInfo("batches", "count", "receive calls that returned datagrams"),
    CounterInfo("cycles", "count", "turns of the loop"),
    CounterInfo("cycle_longest_ns", "ns", "longest turn of the loop"),
    CounterInfo("cycles_slow", "count", "turns longer than 1 ms"),
    CounterInfo(
        "stalls",
        "count",
        "times that the loop stood still for 100 ms or more: a signal, a debugger, no time on its "
        "core",
    ),
    CounterInfo("stalled_ns", "ns", "how long it stood still, all `stalls` together"),
    CounterInfo(
        "decoder",
        "code",
        "what becomes of messages: 0 published as they came, 1 they pass the gate of Roq's "
        "objects, 2 they change the books of a venue",
    ),
    CounterInfo(
        "took_over",
        "code",
        "1: the process before this one was killed or failed; how much came between the two is not "
        "known, and in no counter",
    ),
    CounterInfo("bypass_stack", "code", "kernel bypass at start: 0 none, 1 onload, 2 vma, 3 xlio"),
    CounterInfo(
        "bypass_state",
        "code",
        "0 none, 1 requested but not loaded, 2 loaded but using the kernel's stack, 3 accelerated",
    ),
)
