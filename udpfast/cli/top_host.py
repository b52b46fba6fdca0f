"""What `udpfast top` shows of a host beside its feeds: stores, journals and disks, faults."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from udpfast.cli.top_words import section, short, size, soon, tail
from udpfast.monitor.host import HostFacts
from udpfast.monitor.journals import Journals, JournalStatus
from udpfast.monitor.losses import HostLosses
from udpfast.monitor.stores import OutboxStatus, ReplicaStatus, StoreReader, StoreStatus
from udpfast.monitor.troubles import describe_troubles

__all__ = ["host_lines", "journal_lines", "store_lines"]

#: What is shown of a store, a number to a line.
_COUNTS = (
    *("end", "records", "synced", "released", "kept"),
    *("reconnects", "damaged", "quarantined", "unauthentic"),
    *("removed", "removed_lacked", "dropped", "clock_steps"),
)


def host_lines(host: HostFacts) -> Iterator[str]:
    """Yield the lines about a host: what needs somebody first."""
    yield from section("what needs somebody", describe_troubles(host))
    yield from section(
        f"{'store':<18}{'host':<10}{'epoch':<10}{'end':>9}{'unsynced':>9}  state",
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
    silence = "" if store.silent_s is None else f", for {store.silent_s:,.0f} s"
    alive = "" if store.alive else f"  (its daemon does not run{silence})"
    yield f"{store.store} on {store.host}: {_part(store)}, epoch {store.epoch}{alive}"
    for what in _COUNTS:
        yield f"  {what:14} {getattr(store, what):>16,}"
    for host, copy in store.consumers.items():
        yield f"  copy {host}: {_behind(copy)}"
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
        counts = asdict(outbox).items()
        yield f"  sender {sender}: " + ", ".join(f"{what} {n}" for what, n in counts)
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
        f"{'journal':<24}{'state':<9}{'kept':>8}{'per s':>9}{'unsynced':>9}{'disk free':>12}"
        f"{'full in':>9}",
        [row for each in journals.found.values() for row in _journal_rows(each)],
    )
    yield from (f"{path}: {why}" for path, why in journals.unreadable.items())


def _store_rows(store: StoreStatus) -> Iterator[str]:
    state = _part(store) if store.alive else "ENDED" if store.ended else "DEAD"
    yield (
        f"{store.store[:17]:<18}{store.host[:9]:<10}{store.epoch[:9]:<10}{size(store.end):>9}"
        f"{size(max(store.end - store.synced, 0)):>9}  {state}"
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
    if store.writer:
        return "writes"
    behind = "" if store.lag_bytes is None else f", {store.lag_bytes:,} bytes behind"
    return f"copies from {store.writer_host or 'nobody yet'}{behind}"


def _outbox(sender: str, outbox: OutboxStatus) -> str:
    return (
        f"sender {sender}: {outbox.state}, {short(outbox.waiting)} of {short(outbox.slots)} "
        f"messages on their way ({100 * outbox.full:.0f} % full), {short(outbox.resent)} sent again"
    )


def _behind(copy: ReplicaStatus) -> str:
    away = "" if copy.connected else "not connected, "
    if copy.acked is None:
        return f"{away}nothing was heard of it since this daemon began"
    return away + _lag(copy)


def _lag(behind: ReplicaStatus | StoreReader) -> str:
    return (
        f"{behind.lag_records or 0:,} records, {behind.lag_bytes or 0:,} bytes, "
        f"{(behind.lag_ms or 0) / 1000:.3f} s behind"
    )


def _journal_rows(journal: JournalStatus) -> Iterator[str]:
    rate = "-" if journal.bytes_per_s is None else size(journal.bytes_per_s)
    part = 100 * journal.free_bytes / max(journal.size_bytes, 1)
    yield (
        f"{tail(journal.directory, 23):<24}{journal.state:<9}{size(journal.kept_bytes):>8}"
        f"{rate:>9}{size(journal.unsynced_bytes):>9}"
        f"{f'{size(journal.free_bytes)} {part:.0f}%':>12}{soon(journal.full_s):>9}"
    )
    missed = {
        "overwritten before they were read": journal.lapped_records,
        "for which the disk had no room": journal.dropped_records,
    }
    yield from (f"  not recorded: {count:,} {why}" for why, count in missed.items() if count)
    if journal.sync_errors:
        yield f"  {journal.sync_errors:,} syncs failed"


def _losses(losses: HostLosses) -> Iterator[str]:
    counts = {name: count for name, count in asdict(losses).items() if name != "sockets"}
    yield from section(
        "what the kernel lost since this host began, whoever it was for",
        [f"  {name:<24}{count:>16,}" for name, count in counts.items() if count],
    )
