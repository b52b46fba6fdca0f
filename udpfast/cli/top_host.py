"""What `udpfast top` shows of a host besides its feeds: stores, journals and disks, faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import asdict

from udpfast.archive.groups import Group
from udpfast.archive.run_notes import RunNote, is_removed
from udpfast.cli.top_words import section, short, size, soon, tail
from udpfast.monitor.host import HostFacts
from udpfast.monitor.journals import Journals, JournalStatus
from udpfast.monitor.losses import HostLosses
from udpfast.monitor.status import InstanceStatus
from udpfast.monitor.stores import OutboxStatus, ReplicaStatus, StoreReader, StoreStatus
from udpfast.monitor.troubles import describe_troubles, store_troubles

__all__ = ["host_lines", "journal_lines", "store_lines"]

#: What is shown of a store, a number to a line.
_COUNTS = (
    *("end", "records", "synced", "released", "kept", "let_go", "unprotected"),
    *("reconnects", "damaged", "quarantined", "unauthentic"),
    *("removed", "removed_lacked", "dropped", "clock_steps"),
)


def host_lines(
    host: HostFacts,
    feeds: Mapping[str, InstanceStatus],
    unreadable: Mapping[str, str] | None = None,
    others: bool = False,
) -> Iterator[str]:
    """Yield the lines about a host and its feeds: what needs attention first.

    With `others` there are feeds that this user does not see: nothing is said of those.
    """
    troubles = describe_troubles(host, feeds, unreadable)
    unseen = ["nothing that this user sees; other users' instances were not looked at"]
    yield from section("what needs attention", troubles or unseen * others)
    yield from section(
        f"{'group':<16}{'state':<9}{'pid':>9}{'feeds':>7}{'running':>9}{'restarts':>10}",
        [_group_row(group, host.runs) for group in host.groups.found.values()],
    )
    yield from section(
        f"{'store':<16}{'host':<10}{'epoch':<9}{'end':>8}{'unsynced':>9}{'behind':>9}  state",
        [row for store in host.stores.found.values() for row in _store_rows(store)],
    )
    yield from journal_lines(host.journals)
    yield from _losses(host.losses)
    better = [each for each in host.findings if not each.fault]
    yield from section(
        "what of this host could be better (udpfast check says what it costs)",
        [f"  {each.name}: {each.have}, want {each.want}" for each in better],
    )


def store_lines(store: StoreStatus) -> Iterator[str]:
    """Yield all that is known of a store: a number to a line."""
    silent = store.silent_s
    idle = "does not run" if silent is None else f"has not run for {silent:,.0f} s"
    if store.starting:
        idle = f"{store.pid} is starting"
    elif store.stuck:
        idle = f"{store.pid} has stood still for {silent or 0:,.0f} s"
    alive = "" if store.alive else f"  (its daemon {idle})"
    behind = "" if store.lag_bytes is None else f", {store.lag_bytes:,} bytes behind"
    yield f"{store.store} on {store.host}: {_part(store)}{behind}, epoch {store.epoch}{alive}"
    for trouble in store_troubles(store):
        yield f"  ATTENTION: {trouble}"
    for what in _COUNTS:
        yield f"  {what:14} {getattr(store, what):>16,}"
    for host, copy in store.consumers.items():
        away = ", away: outboxes do not wait for it" if host in store.away else ""
        yield f"  copy {host}: {_behind(copy)}{away}"
    for reader in store.readers:
        gone = "" if reader.alive else " (gone)"
        yield f"  reader {reader.name} pid {reader.pid}{gone}: {_lag(reader)}, {reader.read:,} read"
    if store.feed is not None:
        failure = store.feed.failure
        yield f"  feed: {store.feed.state}{': ' + failure if failure else ''}"
    verdicts = [f"{count:,} {what}" for what, count in store.verdicts.items() if count]
    if verdicts:
        yield f"  messages: {', '.join(verdicts)}"
    for sender, outbox in store.outboxes.items():
        counts = ", ".join(f"{what} {n}" for what, n in asdict(outbox).items())
        yield f"  sender {sender}: {counts}"
    for name, why in store.unreadable.items():
        yield f"  {name}: {why}"
    for key in ("waits", "stopped", "problem"):
        if getattr(store, key):
            yield f"  {key}: {getattr(store, key)}"
    for line in store.said[-5:]:
        yield f"  said: {line}"


def journal_lines(journals: Journals) -> Iterator[str]:
    """Yield the lines about journals, and the disks that they lie on."""
    yield from section(
        f"{'journal':<32}{'state':<9}{'files':>7}{'kept':>9}{'grows/s':>10}{'unsynced':>10}",
        [row for each in journals.found.values() for row in _journal_rows(each)],
    )
    yield from (f"{path}: {why}" for path, why in journals.unreadable.items())
    if journals.disks:
        yield from section(
            f"{'disk of':<32}{'size':>9}{'free':>9}{'free %':>8}{'grows/s':>10}{'full in':>10}",
            [
                f"{tail(disk.directory, 31):<32}{size(disk.size_bytes):>9}"
                f"{size(disk.free_bytes):>9}{100 * disk.free:>8.1f}"
                f"{_rate(disk.bytes_per_s):>10}{soon(disk.full_s):>10}"
                for disk in journals.disks
            ],
        )


def _group_row(group: Group, runs: Mapping[str, RunNote]) -> str:
    running = group.alive * sum(
        feed.state == "running" and not is_removed(feed, runs) for feed in group.feeds
    )
    restarts = sum(feed.restarts for feed in group.feeds)
    return (
        f"{group.name[:15]:<16}{group.life:<9}{group.pid:>9}{len(group.feeds):>7}{running:>9}"
        f"{short(restarts):>10}"
    )


def _store_rows(store: StoreStatus) -> Iterator[str]:
    behind = "-" if store.lag_bytes is None else size(store.lag_bytes)
    states = {_part(store): store.alive, "starting": store.starting, "STUCK": store.stuck}
    state = next((name for name, so in states.items() if so), "stopped" if store.ended else "DEAD")
    yield (
        f"{store.store[:15]:<16}{store.host[:9]:<10}{store.epoch[:8]:<9}{size(store.end):>8}"
        f"{size(max(store.end - store.synced, 0)):>9}{behind:>9}  {state[:16]}"
    )
    for host, copy in store.consumers.items():
        yield f"  copy {host}: {_behind(copy)}"
    for sender, outbox in store.outboxes.items():
        yield f"  {_outbox(sender, outbox)}"
    for reader in store.readers:
        gone = "" if reader.alive else ", gone"
        yield f"  reader {reader.name or reader.pid}{gone}: {_lag(reader)}"


def _part(store: StoreStatus) -> str:
    # What the host does with it.
    if store.source_left:
        return f"{store.source_left} was stopped in good order"
    return "writes" if store.writer else f"copies from {store.writer_host or 'nobody yet'}"


def _outbox(sender: str, outbox: OutboxStatus) -> str:
    return (
        f"sender {sender}: {outbox.state}, {short(outbox.waiting)} of {short(outbox.slots)} "
        f"waiting ({100 * outbox.full:.0f} %), {short(outbox.resent)} sent again"
    )


def _behind(copy: ReplicaStatus) -> str:
    away = "" if copy.connected else "not connected, "
    if copy.acked is None:
        return f"{away}nothing was heard of it since this daemon began"
    return away + _lag(copy)


def _lag(behind: ReplicaStatus | StoreReader) -> str:
    return (
        f"{short(behind.lag_records or 0)} records, {size(behind.lag_bytes or 0)}, "
        f"{(behind.lag_ms or 0) / 1000:.3f} s behind"
    )


def _rate(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else size(bytes_per_s)


def _journal_rows(journal: JournalStatus) -> Iterator[str]:
    yield (
        f"{tail(journal.directory, 31):<32}{journal.state:<9}{short(journal.segments, 6):>7}"
        f"{size(journal.kept_bytes):>9}{_rate(journal.bytes_per_s):>10}"
        f"{size(journal.unsynced_bytes):>10}"
    )
    missed = {
        "overwritten before they were recorded": journal.lapped_records,
        "for which the disk had no room": journal.dropped_records,
    }
    yield from (f"  not recorded: {count:,} {why}" for why, count in missed.items() if count)
    if journal.sync_errors:
        yield f"  {journal.sync_errors:,} syncs failed"


def _losses(losses: HostLosses) -> Iterator[str]:
    counts = {name: count for name, count in asdict(losses).items() if name != "sockets"}
    yield from section(
        "what the kernel lost since this host began, in this network namespace",
        [f"  {name:<24}{count:>16,}" for name, count in counts.items() if count],
    )
