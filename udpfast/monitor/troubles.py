"""What on a host needs attention now: its feeds, stores, journals and disks, the worst first.

The one place that says so: `stat`, `top`, the page and Prometheus show what is found here.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from udpfast.archive.groups import Group, GroupFeed, list_groups
from udpfast.archive.run_notes import RunNote, read_run
from udpfast.core.clock import realtime_ns
from udpfast.monitor.host import HostFacts
from udpfast.monitor.journals import DiskStatus, Journals
from udpfast.monitor.servers import describe_servers, is_served
from udpfast.monitor.status import PAUSED, AgentStatus, InstanceStatus
from udpfast.monitor.stores import StoreStatus
from udpfast.page.words import moment
from udpfast.shm.instance import RUNS, instance_root

__all__ = [
    "Trouble",
    "TroubleKind",
    "describe_troubles",
    "feed_troubles",
    "find_feed_troubles",
    "find_troubles",
    "list_troubles",
    "run_trouble",
    "store_troubles",
]

#: The app of an outbox that is full by this part soon cannot send.
OUTBOX_FULL = 0.8
#: A disk needs attention if so small a part of it is free, or if it is full so soon.
DISK_FREE, DISK_FULL_S = 0.05, 4 * 3600.0
#: A feed that was just started may find itself at the beginning of a session after all.
STRANDED_NS = 10_000_000_000
#: For so long it is said that a feed was started again (UdpfastFeedRestarted pages for as long).
RESTARTED_NS = 600_000_000_000
#: More messages than these, lost in 15 minutes, need attention (udpfast:threshold:lost_per_15m).
LOST_RECENT = 100
#: A copy that is connected is behind by less than this, unless it catches up.
LAG_MS = 10_000


class TroubleKind(IntEnum):
    """What is wrong, the worst first: that is their order wherever they are shown."""

    FEED_DEAD = 1
    FEED_STUCK = 2
    FEED_REMOVED = 3
    FEED_RESTARTED = 4
    FEED_SILENT = 5
    LINES_DISAGREE = 6
    LOSING = 7
    OBJECTS_STRANDED = 8
    AGENT_DOWN = 9
    RELAY_GONE = 10
    SOURCE_GONE = 11
    DISK_FULL = 12
    LINE_SILENT = 13
    SERVER_SILENT = 14
    TABLE_FULL = 15
    OUTBOX_FULL = 16
    NOT_RECORDED = 17
    RELAY_SHORT = 18
    HOST_FAULT = 19
    UNREADABLE = 20


#: An agent's failure by which there was no room for a further segment, or no quota.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Trouble(Struct, frozen=True):
    """One thing that needs attention, in a sentence; `feed`: whose it is, empty: the host's."""

    kind: TroubleKind
    text: str
    feed: str = ""


def find_troubles(
    host: HostFacts,
    feeds: Mapping[str, InstanceStatus],
    unreadable: Mapping[str, str] | None = None,
) -> list[Trouble]:
    """Return what needs attention on a host and at its feeds, the worst first.

    `unreadable` says of instances why they cannot be read.
    """
    failures, tried = _of_members(host.groups.found.values())
    found = [
        replace(each, feed=name)
        for name, status in feeds.items()
        for each in _of_feed(name, status, failures.get(name, ""))
        if each.kind != TroubleKind.FEED_DEAD or name not in tried
    ]
    found += [
        _of_run(name, note)
        for name, note in host.runs.items()
        if name not in feeds and name not in tried
    ]
    found += [
        Trouble(TroubleKind.UNREADABLE, f"instance {name} cannot be read: {why}", name)
        for name, why in (unreadable or {}).items()
    ]
    found += _of_host(host)
    for group in host.groups.found.values():
        found += _of_group(group)
    return sorted(found, key=lambda each: each.kind)


def describe_troubles(
    host: HostFacts,
    feeds: Mapping[str, InstanceStatus] | None = None,
    unreadable: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the same as sentences."""
    return [each.text for each in find_troubles(host, feeds or {}, unreadable)]


def find_feed_troubles(name: str, status: InstanceStatus) -> list[Trouble]:
    """Return of the same what is so at one feed, and at the disks that it writes to."""
    # A path may lead to another user's, of whose groups nothing is known.
    groups = list_groups()[0].values() if status.path.parent == instance_root() else ()
    failures, tried = _of_members(groups)
    found = [
        replace(each, feed=name)
        for each in _of_feed(name, status, failures.get(name, ""))
        if each.kind != TroubleKind.FEED_DEAD or name not in tried
    ]
    found += [each for group in groups for each in _of_group(group) if each.feed == name]
    return sorted([*found, *_of_journals(status.journals)], key=lambda each: each.kind)


def _of_members(groups: Iterable[Group]) -> tuple[dict[str, str], set[str]]:
    # What groups know of the ends of their feeds' processes, and which feeds they start again.
    members = [(group, feed) for group in groups for feed in group.feeds]
    failures = {feed.name: feed.failure for group, feed in members if group.alive}
    return failures, {feed.name for group, feed in members if _tried(group, feed)}


def feed_troubles(name: str, status: InstanceStatus) -> list[str]:
    """Return the same as sentences."""
    return [each.text for each in find_feed_troubles(name, status)]


def list_troubles(found: Sequence[Trouble]) -> list[dict[str, str]]:
    """Return what needs attention for a program, as `udpfast stat --json` prints it."""
    return [
        {"kind": each.kind.name.lower(), "feed": each.feed, "sentence": each.text} for each in found
    ]


def run_trouble(name: str) -> str | None:
    """Return what is wrong with the run of a feed that has no files, as a sentence."""
    note = read_run(name)
    return None if note is None else _of_run(name, note).text


def store_troubles(store: StoreStatus) -> list[str]:
    """Return what needs attention at one store, as sentences."""
    return [text for _, text in sorted(_of_store(store), key=lambda each: each[0])]


def _of_feed(name: str, status: InstanceStatus, failure: str = "") -> Iterator[Trouble]:
    # `failure`: what its group knows of the end of the process before this one.
    yield from _of_end(name, status)
    if status.note is not None:
        yield _of_run(name, status.note)
    if status.life == "stuck":
        yield Trouble(TroubleKind.FEED_STUCK, f"feed {name} {_why_stuck(status)}")
    for sentence in status.limits.values():
        yield Trouble(TroubleKind.TABLE_FULL, f"feed {name}: full: {sentence}")
    # It waits for the next feed where this one has ended.
    if status.relay_gone:
        yield Trouble(
            TroubleKind.RELAY_GONE,
            f"feed {name}: its relay is gone: process {status.relay_gone} was killed or failed, "
            "and no other has begun since. What it sent is in doubt at the far end",
        )
    if status.life != "running":
        return
    age_ns = realtime_ns() - status.started_ns
    if status.counters["feed"]["took_over"] and age_ns < RESTARTED_NS:
        yield Trouble(
            TroubleKind.FEED_RESTARTED,
            f"feed {name} was started again {max(age_ns, 0) // 1_000_000_000} s ago: "
            f"{failure or 'the process before it was killed or failed'}. What came meanwhile is "
            "lost, in no counter, and how much is not known (this is said for 10 minutes)",
        )
    sentences = _by_scope(status)
    for scope, sentence in sentences.items():
        channel = scope.partition(".")[0]
        lines = [
            other
            for other in status.counters
            if other.startswith(f"{channel}.") and not is_served(other)
        ]
        if all(line in status.silent_lines for line in lines):
            if scope == lines[0]:
                told = _together(sentences[line] for line in lines)
                text = f"feed {name}: every line of {channel} is silent: {told}"
                yield Trouble(TroubleKind.FEED_SILENT, text)
        else:
            yield Trouble(TroubleKind.LINE_SILENT, f"feed {name}: {sentence}")
    yield from _of_late(name, status)
    yield from _of_objects(name, status)
    for sentence in status.silent_addresses:
        yield Trouble(TroubleKind.LINE_SILENT, f"feed {name}: {sentence}")
    for sentence in describe_servers(status.servers):
        yield Trouble(TroubleKind.SERVER_SILENT, f"feed {name}: {sentence}")
    relay = (status.relay or {}).get("relay", {})
    if relay.get("short"):
        yield Trouble(
            TroubleKind.RELAY_SHORT,
            f"feed {name}: its relay's lines are too thin: {relay['waiting']:,} updates wait "
            f"now; since its start {relay['conflated']:,} were conflated, and {relay['late']:,} "
            "sound books and tops became STALE because they waited for longer than relay.late_ms",
        )
    for agent in status.agents:
        if not agent.works:
            text = f"agent {agent.name} {_of_agent(agent, status)}"
            if agent.state != "running" and _errno_of(agent.failure) in _NO_ROOM:
                yield Trouble(TroubleKind.DISK_FULL, f"feed {name}: no room left: {text}")
            else:
                yield Trouble(TroubleKind.AGENT_DOWN, f"feed {name}: {text}")


def _of_end(name: str, status: InstanceStatus) -> Iterator[Trouble]:
    if status.life == "dead":
        yield Trouble(
            TroubleKind.FEED_DEAD,
            f"feed {name} is dead: its process {status.writer_pid} is gone and did not end in "
            "good order",
        )
    if status.life == "failed":
        reason = next((each.failure for each in status.agents if each.failure), "see its log")
        yield Trouble(TroubleKind.FEED_DEAD, f"feed {name} has failed: {reason}")
    if status.life == "paused" and (ended := _feed_failure(status)):
        yield Trouble(TroubleKind.FEED_DEAD, f"feed {name} has ended: {ended}")
    elif status.paused_long:
        yield Trouble(
            TroubleKind.FEED_DEAD,
            f"feed {name} was {PAUSED}, {status.paused_ns // 1_000_000_000:,} s ago",
        )


def _feed_failure(status: InstanceStatus) -> str:
    # What ended a feed that is to be started again, if nobody asked it to.
    feed = next((each for each in status.agents if each.name == "feed"), None)
    return feed.failure if feed is not None and feed.state == "failed" else ""


def _of_run(name: str, note: RunNote) -> Trouble:
    when = moment(note.at_ns)
    if note.what == "removed":
        return Trouble(
            TroubleKind.FEED_REMOVED,
            f"feed {name} (process {note.pid}) cannot be found, since {when}: {note.reason}",
            name,
        )
    tries = f" {note.times} times in a row, last" if note.times > 1 else ","
    return Trouble(
        TroubleKind.FEED_DEAD,
        f"feed {name} did not start{tries} at {when}: {note.reason}. (Start it, or remove "
        f"{instance_root() / RUNS / name}.json if it should not run.)",
        name,
    )


def _why_stuck(status: InstanceStatus) -> str:
    for agent in status.agents:
        if agent.name == "feed" and agent.state == "waiting":
            return (
                "receives nothing: its lines are closed until its network is back (tried again and "
                f"again), and readers' books are in doubt: {agent.failure}"
            )
    return (
        f"stands still: its process {status.writer_pid} is there, and its loop has not been up to "
        f"date for {status.stuck_ns // 1_000_000_000} s: a signal or a debugger stopped it, or its "
        "core has no time for it"
    )


def _errno_of(failure: str) -> int:
    # The text of an OSError begins with its errno. 0: it is another failure.
    found = re.match(r"\w+: \[Errno (\d+)\]", failure)
    return int(found[1]) if found else 0


def _of_objects(name: str, status: InstanceStatus) -> Iterator[Trouble]:
    counted = status.counters["feed"]
    stranded = counted["objects_stranded"]
    if stranded and realtime_ns() - status.started_ns >= STRANDED_NS:
        yield Trouble(
            TroubleKind.OBJECTS_STRANDED,
            f"feed {name}: {stranded:,} of {counted['objects']:,} objects wait for a snapshot, but "
            "nothing in its file brings one: they have no sound book before the market's next "
            "session. Start the feed before its market, or set [[snapshot.lines]] (for a venue: "
            "[[recovery.lines]] or [snapshot_server])",
        )


def _of_late(name: str, status: InstanceStatus) -> Iterator[Trouble]:
    # What the alerts' rules call for, by the same numbers.
    for each in status.agents:
        if each.disagreements_recent:
            yield Trouble(
                TroubleKind.LINES_DISAGREE,
                f"feed {name}: lines brought different bytes for the same fragment, "
                f"{each.disagreements_recent:,} times in the last 15 minutes: which are right, "
                "nobody knows",
            )
        if each.lost_recent > LOST_RECENT:
            yield Trouble(
                TroubleKind.LOSING,
                f"feed {name}: {each.lost_recent:,} messages were lost in the last 15 minutes, of "
                f"{status.counters['incremental']['lost']:,} since its start (udpfast stat {name} "
                "--losses says where)",
            )


def _by_scope(status: InstanceStatus) -> dict[str, str]:
    return dict(zip(status.silent_lines, status.silent, strict=True))


def _together(sentences: Iterable[str]) -> str:
    # What waits for several lines is said once, behind them.
    parts = [sentence.partition("; ") for sentence in sentences]
    waiting = dict.fromkeys(effect for _, _, effect in parts if effect)
    return "; ".join([*(line for line, _, _ in parts), *waiting])


def _of_agent(agent: AgentStatus, status: InstanceStatus) -> str:
    since_ns = agent.changed_ns if agent.state == "stuck" else agent.down_ns or agent.changed_ns
    age_s = max(realtime_ns() - since_ns, 0) // 1_000_000_000
    since = f"{moment(since_ns)} ({age_s:,} s)"
    if agent.state == "stuck":
        return f"has made no turn since {since}"
    if agent.state == "ended":
        return f"has ended, at {since}"
    reason = agent.failure or agent.state
    if not agent.down_ns:
        return f"is {agent.state} since {since}: {reason}"
    came = max(status.counters["feed"]["records"] - agent.down_records, 0)
    again = ", and is tried again now" if agent.state == "starting" else ""
    if agent.state == "running":
        run_s = max(realtime_ns() - agent.changed_ns, 0) // 1_000_000_000
        return (
            f"failed at {since}, and has worked again for {run_s:,} s (this is said until it has "
            f"for run.restart_steady_ms): {reason}"
        )
    return f"does not work since {since}{again}; {came:,} records have come since: {reason}"


def _of_host(host: HostFacts) -> Iterator[Trouble]:
    for finding in host.findings:
        if finding.fault:
            text = f"{finding.name}: {finding.have}, want {finding.want}"
            yield Trouble(TroubleKind.HOST_FAULT, text)
    for store in host.stores.found.values():
        for kind, text in _of_store(store):
            yield Trouble(kind, f"store {store.store} on {store.host}: {text}")
    for path, why in host.stores.unreadable.items():
        yield Trouble(TroubleKind.UNREADABLE, f"{path}: {why}")
    for name, why in host.groups.unreadable.items():
        yield Trouble(TroubleKind.UNREADABLE, f"group {name}: {why}")
    for trouble in _of_journals(host.journals):
        if not any(trouble.text.startswith(f"{path}: ") for path in host.stores.unreadable):
            yield trouble


def _of_group(group: Group) -> Iterator[Trouble]:
    if group.life == "dead":
        yield Trouble(
            TroubleKind.AGENT_DOWN,
            f"group {group.name}: its supervisor {group.pid} is gone and did not end in good "
            "order: nothing starts its feeds again",
        )
    for feed in group.feeds:
        if _tried(group, feed):
            yield Trouble(
                TroubleKind.FEED_DEAD,
                f"feed {feed.name} of group {group.name} does not run, after {feed.restarts} "
                f"restarts: {feed.failure}",
                feed.name,
            )


def _tried(group: Group, feed: GroupFeed) -> bool:
    # Whether it ended with an error, and its group starts it again: the group knows why it ended,
    # its last run's files do not.
    return group.alive and feed.state in ("waiting", "starting") and bool(feed.failure)


def _of_journals(journals: Journals) -> Iterator[Trouble]:
    for disk in journals.disks:
        for text in _of_disk(disk):
            yield Trouble(TroubleKind.DISK_FULL, f"disk of {disk.directory}: {text}")
    for journal in journals.found.values():
        if journal.dropped_records and journal.state == "writing":
            yield Trouble(
                TroubleKind.NOT_RECORDED,
                f"journal {journal.directory}: the disk had no room for "
                f"{journal.dropped_records:,} records",
            )
    for path, why in journals.unreadable.items():
        yield Trouble(TroubleKind.UNREADABLE, f"{path}: {why}")


def _of_store(store: StoreStatus) -> Iterator[tuple[TroubleKind, str]]:
    if store.stuck:
        yield (
            TroubleKind.SOURCE_GONE,
            f"its daemon stands still: its process {store.pid} is there, and has said nothing for "
            f"{store.silent_s or 0:,.0f} s: a signal or a debugger stopped it, or its core has no "
            "time for it",
        )
    elif not (store.alive or store.starting or store.ended):
        yield TroubleKind.SOURCE_GONE, "its daemon does not run, and did not end in good order"
    for what, text in (("stopped", store.stopped), ("waits", store.waits), ("disk", store.problem)):
        if text:
            yield TroubleKind.SOURCE_GONE, f"{what}: {text}"
    if store.source_gone:
        source = store.writer_host or "the host that writes it"
        yield TroubleKind.SOURCE_GONE, f"nothing has come from {source} since {store.source_gone}"
    if store.feed is not None and store.feed.failure:
        yield TroubleKind.SOURCE_GONE, f"feed {store.feed.state}: {store.feed.failure}"
    if store.away and store.alive:
        yield (
            TroubleKind.SOURCE_GONE,
            f"up to {store.unprotected:,} records are unprotected: outboxes do not wait for copies "
            f"on {', '.join(store.away)}, which lack them",
        )
    for host, copy in store.consumers.items() if store.alive else ():
        if not copy.connected:
            yield TroubleKind.SOURCE_GONE, f"copy {host} is not connected"
        elif (copy.lag_ms or 0) > LAG_MS:
            behind = f"copy {host} is {(copy.lag_ms or 0) / 1000:,.0f} s behind"
            yield TroubleKind.OUTBOX_FULL, behind
    for sender, outbox in store.outboxes.items():
        if outbox.state not in ("registered", "new"):
            yield (
                TroubleKind.OUTBOX_FULL,
                f"sender {sender}: {outbox.state}: nothing of it gets into the stream",
            )
        elif outbox.full >= OUTBOX_FULL:
            yield TroubleKind.OUTBOX_FULL, f"outbox of {sender} is {100 * outbox.full:.0f} % full"
    for name, why in store.unreadable.items():
        yield TroubleKind.UNREADABLE, f"{name}: {why}"


def _of_disk(disk: DiskStatus) -> Iterator[str]:
    if not disk.fits:
        yield (
            f"no further segment of {disk.segment_bytes:,} bytes fits: {disk.free_bytes:,} bytes "
            "are free"
        )
    elif disk.full_s is not None and disk.full_s < DISK_FULL_S:
        yield f"full in {disk.full_s / 60:,.0f} min at this rate"
    elif disk.free < DISK_FREE:
        yield f"{100 * disk.free:.1f} % free"
