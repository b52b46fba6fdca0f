"""What `udpfast top` shows of feeds, as lines of at most 80 columns: of all, and of one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime

from udpfast.cli.top_host import journal_lines
from udpfast.cli.top_words import section, short
from udpfast.client.latency import Hop
from udpfast.core.counter import VERDICTS
from udpfast.monitor.change import FeedChange, HostLook, LineChange
from udpfast.monitor.losses import VERDICTS_USED
from udpfast.monitor.objects import REASONS
from udpfast.monitor.status import InstanceStatus
from udpfast.monitor.troubles import feed_troubles
from udpfast.shm.histogram import VALUE_MAX

__all__ = [
    "HOST_TITLE",
    "RELAY_WAITS",
    "feed_lines",
    "host_caption",
    "host_row",
    "object_lines",
    "replay_lines",
]

RELAY_WAITS = "relay: waits for the next feed of this name"

#: Columns of the table of feeds; `host_row` has its rows.
HOST_TITLE = (
    f"{'feed':<14}{'state':<8}{'lines':>6}{'datagr/s':>10}{'records/s':>10}{'lost':>8}"
    f"{'drops':>7}{'missed':>7}{'p99 us':>9}"
)

_GAP_REASONS = ("by_count", "by_time", "window_full")
_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


def host_caption(look: HostLook) -> str:
    """Return the time, and how many feeds run."""
    lives = [status.life for status in look.feeds.values()]
    states = [f"{lives.count(life)} {life}" for life in ("running", "stopped", "failed", "dead")]
    states[1:1] = [f"{lives.count(life)} {life}" for life in ("stuck", "paused") if life in lives]
    if look.replays:
        states.append(f"{len(look.replays)} replayed")
    if look.unreadable:
        states.append(f"{len(look.unreadable)} unreadable")
    when = datetime.fromtimestamp(look.unix_ns / 1e9, UTC)
    return f"udpfast top  {when:%H:%M:%S} UTC  feeds: {', '.join(states)}"


def host_row(feed: FeedChange) -> str:
    """Return a feed as one line below `HOST_TITLE`."""
    speaking = sum(not line.silent for line in feed.lines)
    hop = feed.hops.get("kernel_to_loop")
    # Nobody counts what came while no process ran.
    unknown = "+?" if feed.status.counters["feed"]["took_over"] else ""
    lost = short(feed.lost_total, 6 - len(unknown)) + unknown
    return (
        f"{feed.name[:13]:<14}{feed.status.life_shown:<8}{f'{speaking}/{len(feed.lines)}':>6}"
        f"{short(feed.datagrams_per_s):>10}{short(feed.records_per_s):>10}"
        f"{lost:>8}{short(feed.kernel_drops_total, 6):>7}"
        f"{short(feed.lapped_total, 6):>7}{_microseconds(hop, 'p99')[0]:>9}"
    )


def replay_lines(look: HostLook) -> Iterator[str]:
    """Yield a line for each ring that a replay of records writes or wrote."""
    for name, status in look.replays.items():
        readers = sum(reader.alive for reader in status.readers)
        yield (
            f"{name}: {status.life}, {status.text}; {short(status.records)} records, "
            f"{readers} readers"
        )


def feed_lines(feed: FeedChange, unix_ns: int) -> Iterator[str]:
    """Yield the lines about one feed: its lines, readers, latency, losses, agents."""
    status = feed.status
    age = max(unix_ns - status.started_ns, 0) // 1_000_000_000
    since = f"{age // 3600}:{age // 60 % 60:02}:{age % 60:02}"
    state = status.life
    if not status.alive:
        told = status.life_told if state == "paused" else state.upper()
        state = f"{told}, what follows is the last known"
    yield f"{feed.name}: {state}; pid {status.writer_pid}, started {since} ago"
    if status.replay is not None:
        yield f"replay of {status.replay.source}, {status.replay.text}"
    yield f"{short(feed.datagrams_per_s)} datagrams/s, {short(feed.records_per_s)} records/s"
    troubles = [textwrap.wrap(each, 79) for each in feed_troubles(feed.name, status)]
    yield from section("what needs attention", [row for rows in troubles for row in rows])
    yield from _tables(feed)
    yield ""
    yield from object_lines(status)
    yield from section("losses since the start, by stage", list(_losses(feed)))
    yield from section(
        f"{'gaps since the start':<20}{'gaps':>10}{'by count':>11}{'by time':>11}{'no room':>11}"
        f"{'messages':>12}",
        list(_gaps(feed)),
    )
    yield from section(
        f"{'verdicts other than delivery':<32}{'line':<26}{'count':>14}", list(_verdicts(feed))
    )
    yield from section("relay, since its start", list(_relay_rows(status)))
    yield from journal_lines(status.journals)
    was = "" if status.alive else "was "
    yield from section(
        "agents",
        [
            f"{agent.name}: {was}{agent.state}, {agent.restarts_text}"
            + (f"; {agent.failure}" if agent.failure else "")
            for agent in status.agents
        ],
    )
    yield from status.silent
    yield from (row for each in status.silent_addresses for row in textwrap.wrap(each, 79))
    yield from (f"FULL: {sentence}" for sentence in status.limits.values())


def _tables(feed: FeedChange) -> Iterator[str]:
    # Lines, readers and latencies: a row for each.
    yield from section(
        f"{'line':<26}{'datagr/s':>10}{'first':>8}{'lead us':>10}{'losses':>10}{'drops':>8}",
        [
            f"{line.name[:25]:<26}{short(line.datagrams_per_s):>10}{_share(line.first):>8}"
            f"{_number(line.lead_ns, 1e3):>10}{short(line.losses_total):>10}"
            f"{short(line.kernel_drops_total, 7):>8}{_silence(feed, line)}"
            for line in feed.lines
        ],
    )
    yield from section(
        f"{'reader':<20}{'pid':>9}{'records/s':>11}{'lag':>11}{'missed':>10}{'p50 us':>9}"
        f"{'p99 us':>9}",
        [
            f"{(one.status.name or 'reader')[:19]:<20}{one.status.pid:>9}"
            f"{short(one.records_per_s):>11}{short(one.status.lag):>11}"
            f"{short(one.status.lapped):>10}"
            + "".join(f"{value:>9}" for value in _microseconds(one.way, "p50", "p99"))
            + ("" if one.status.alive else " DEAD")
            for one in feed.readers
        ],
    )
    yield from section(
        f"{'latency, us':<22}{'count':>12}" + "".join(f"{name:>11}" for name in _PERCENTS),
        [
            f"{name:<22}{short(hop.count, 11):>12}"
            + "".join(f"{value:>11}" for value in _microseconds(hop, *_PERCENTS))
            for name, hop in feed.hops.items()
        ],
    )


def _relay_rows(status: InstanceStatus) -> Iterator[str]:
    if status.relay_waits:
        yield RELAY_WAITS
    for scope, values in (status.relay or {}).items():
        told = ", ".join(f"{key} {short(value).strip()}" for key, value in values.items() if value)
        yield from textwrap.wrap(f"{scope}: {told or 'nothing yet'}", 79)


def _silence(feed: FeedChange, line: LineChange) -> str:
    # A line that speaks may have addresses that do not: how many.
    silent = feed.status.counters[line.name]["addresses_silent"]
    return " SILENT" if line.silent else f" {silent} SILENT" if silent else ""


def object_lines(status: InstanceStatus) -> Iterator[str]:
    """Yield the lines about objects: how many are in doubt, and why."""
    gaps, stale = status.counters["incremental"]["gaps"], status.counters["feed"]["stale"]
    # A GAP puts all objects of its stream in doubt, without a STALE of each.
    caused = f"since the start: {short(gaps)} GAP, {short(stale)} STALE"
    if status.objects is None:
        known = short(status.counters["feed"]["objects"])
        yield f"objects: {known}; {caused} ([image] counts doubts)"
        return
    sound, doubted = short(status.objects.sound), short(status.objects.doubted)
    yield f"objects: {sound} sound, {doubted} in doubt; {caused}"
    for reason, count in status.objects.in_doubt.items():
        if count:
            yield f"  {short(count)}: {REASONS[reason]}"


def _gaps(feed: FeedChange) -> Iterator[str]:
    for channel in ("incremental", "snapshot"):
        values = feed.status.counters[channel]
        if values["gaps"]:
            yield f"{channel:<20}{short(values['gaps']):>10}" + "".join(
                f"{short(values[f'gaps_{reason}']):>11}" for reason in _GAP_REASONS
            ) + f"{short(values['lost']):>12}"  # fmt: skip


def _verdicts(feed: FeedChange) -> Iterator[str]:
    # A duplicate is no loss: of two lines, each brings what the other brought.
    for line in feed.lines:
        for info in VERDICTS:
            count = feed.status.counters[line.name][info.name]
            if count and info.name not in VERDICTS_USED:
                yield f"{info.name:<32}{line.name[:25]:<26}{short(count, 14):>14}"


def _losses(feed: FeedChange) -> Iterator[str]:
    counters = feed.status.counters
    found = {
        "kernel: datagrams dropped": feed.kernel_drops_total,
        "window: messages lost, incremental": counters["incremental"]["lost"],
        "window: messages lost, snapshot": counters["snapshot"]["lost"],
        "memory: early datagrams without room": sum(
            counters[line.name]["slab_full"] for line in feed.lines
        ),
        "objects: messages without room": counters["feed"]["objects_full"]
        + counters["feed"]["collect_full"],
        "publish: payloads refused": counters["feed"]["decode_refused"],
        "readers: records missed": feed.lapped_total,
    }
    for name, count in found.items():
        if count:
            yield f"{name:<42}{count:>14,}"
    if not feed.status.alive and not feed.status.ledger.adds_up:
        yield "THE SUMS DIFFER"


def _share(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _number(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:,.1f}"


def _microseconds(hop: Hop | None, *percents: str) -> list[str]:
    if hop is None or not hop.count:
        return ["-"] * len(percents)
    # All at once: each look sums the histogram up.
    found = hop.percentiles({percent: _PERCENTS[percent] for percent in percents})
    return [
        "> 1 h"
        if hop.above and found[percent] >= VALUE_MAX
        else f"{found[percent] / 1e3:,.2f}"
        if abs(found[percent]) < 1_000_000
        else short(found[percent] / 1e3, 8)
        for percent in percents
    ]
