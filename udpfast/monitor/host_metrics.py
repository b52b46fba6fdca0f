"""The facts of a host besides its feeds for Prometheus: stores, journals, disks, findings."""

from __future__ import annotations

from collections.abc import Mapping

from udpfast.archive.groups import Group
from udpfast.archive.run_notes import RunNote, is_removed
from udpfast.monitor.families import Families, distinct_names
from udpfast.monitor.host import HostFacts
from udpfast.monitor.journals import DiskStatus, JournalStatus
from udpfast.monitor.stores import OutboxStatus, ReplicaStatus, StoreStatus

__all__ = ["add_host"]

#: What a store's daemon counts since it was started; the key is the metric's name.
_COUNTERS = {
    "reconnects": ("reconnects", "links to the source that were begun again"),
    "damaged_links": ("damaged", "links that ended because bytes were not what was sent"),
    "quarantined_records": ("quarantined", "records that were set aside"),
    "unauthentic": ("unauthentic", "links and datagrams whose tag was wrong"),
    "dropped_records": ("dropped", "records of a feed that the disk had no room for"),
    "removed_segments": ("removed", "segments that were removed"),
    "removed_lacked_segments": ("removed_lacked", "removed segments that a replica still lacked"),
    "clock_steps": ("clock_steps", "times that the clock was set by more than 1 s, while writing"),
}


def add_host(families: Families, host: HostFacts) -> None:
    """Add the samples of a host."""
    readable = "whether a store can be read: 0, it is damaged, or of another version"
    for path, store in host.stores.found.items():
        families.gauge("store_readable", readable, 1, directory=path)
        _add_store(families, store)
    for path in host.stores.unreadable:
        families.gauge("store_readable", readable, 0, directory=path)
    readable = "whether a journal can be read: 0, it is damaged, or of another version"
    for path, journal in host.journals.found.items():
        families.gauge("journal_readable", readable, 1, directory=path)
        _add_journal(families, journal)
    for path in host.journals.unreadable:
        families.gauge("journal_readable", readable, 0, directory=path)
    for disk in host.journals.disks:
        _add_disk(families, disk)
    for group in host.groups.found.values():
        _add_group(families, group, host.runs)
    wrong = (
        "host settings that feeds need changed; fault 1: a feed cannot run as it is asked "
        "to, 0: it costs time, or datagrams under load"
    )
    for finding in host.findings:
        labels = {"finding": finding.name, "fault": str(int(finding.fault))}
        families.gauge("host_finding", wrong, 1, **labels)
    faults = sum(finding.fault for finding in host.findings)
    families.gauge("host_faults", "findings of the host that are faults", faults)


def _add_group(families: Families, group: Group, runs: Mapping[str, RunNote]) -> None:
    up = "whether the process that supervises the group lives"
    families.gauge("group_up", up, group.alive, group=group.name)
    ended = "whether it ended in good order"
    families.gauge("group_ended", ended, group.ended, group=group.name)
    down = (
        "1: a feed of the group does not run yet, ended with an error and is started again, or "
        "runs and cannot be found"
    )
    restarts = "times that a feed of the group was started again"
    for feed in group.feeds:
        labels = {"group": group.name, "feed": feed.name}
        is_down = group.alive and (feed.state in ("starting", "waiting") or is_removed(feed, runs))
        families.gauge("group_feed_down", down, is_down, **labels)
        families.counter("group_feed_restarts", restarts, feed.restarts, **labels)


def _add_journal(families: Families, journal: JournalStatus) -> None:
    labels = {"directory": journal.directory}
    up = "whether a process writes the journal"
    families.gauge("journal_up", up, journal.state == "writing", **labels)
    closed = "whether its writer closed the journal: it is complete"
    families.gauge("journal_closed", closed, journal.state == "closed", **labels)
    families.counter("journal_records", "records ever written", journal.records, **labels)
    written = "bytes of records ever written"
    families.counter("journal_written_bytes", written, journal.written_bytes, **labels)
    kept = "bytes of records that are there still"
    families.gauge("journal_kept_bytes", kept, journal.kept_bytes, **labels)
    families.gauge("journal_segments", "files with records", journal.segments, **labels)
    unsynced = "bytes written that a power cut may cost: not known to be on the disk"
    families.gauge("journal_unsynced_bytes", unsynced, journal.unsynced_bytes, **labels)
    synced = "when the disk had all before, UNIX time; 0: never"
    at_s = journal.synced_unix_ns / 1e9
    families.gauge("journal_synced_timestamp_seconds", synced, at_s, **labels)
    families.counter("journal_sync_errors", "syncs that failed", journal.sync_errors, **labels)
    longest = "how long the longest sync took"
    families.gauge("journal_sync_longest_seconds", longest, journal.sync_longest_ns / 1e9, **labels)
    lapped = "records that were overwritten before the recorder read them"
    families.counter("journal_lapped_records", lapped, journal.lapped_records, **labels)
    dropped = "records for which the disk had no room"
    families.counter("journal_dropped_records", dropped, journal.dropped_records, **labels)
    removed = "files removed to make room"
    families.counter("journal_removed_segments", removed, journal.removed_segments, **labels)


def _add_disk(families: Families, disk: DiskStatus) -> None:
    labels = {"directory": disk.directory}
    free = "room that is left on a disk of journals, for this user"
    families.gauge("journal_disk_free_bytes", free, disk.free_bytes, **labels)
    families.gauge("journal_disk_size_bytes", "size of that disk", disk.size_bytes, **labels)
    segment = "bytes that the next file of a journal on that disk takes; 0: nobody knows"
    families.gauge("journal_disk_segment_bytes", segment, disk.segment_bytes, **labels)


def _add_store(families: Families, store: StoreStatus) -> None:
    labels = {"store": store.store, "host": store.host, "directory": store.directory}
    families.gauge("store_up", "whether the store's daemon lives", store.alive, **labels)
    ended = "whether the daemon ended by itself, in good order"
    families.gauge("store_ended", ended, store.ended, **labels)
    writer = "whether this host writes the store: of all its hosts, one does"
    families.gauge("store_writer", writer, store.writer, **labels)
    families.counter("store_records", "records of this copy", store.records, **labels)
    families.counter("store_written_bytes", "bytes of this copy", store.end, **labels)
    unsynced = "bytes of this copy that a power cut may cost: the disk does not have them"
    families.gauge("store_unsynced_bytes", unsynced, max(store.end - store.synced, 0), **labels)
    unreleased = "bytes of this copy that readers may not see yet"
    families.gauge(
        "store_unreleased_bytes", unreleased, max(store.end - store.released, 0), **labels
    )
    if store.lag_bytes is not None:
        behind = "bytes that this copy is behind the host that it copies from"
        families.gauge("store_source_lag_bytes", behind, store.lag_bytes, **labels)
    lacked = "at most so many records were let go although a standby that is away lacks them"
    families.gauge("store_unprotected_records", lacked, store.unprotected, **labels)
    away = "standbys for which outboxes do not wait, because they have lacked records for long"
    families.gauge("store_standbys_away", away, len(store.away), **labels)
    gone = "whether nothing comes from the host that writes the store"
    families.gauge("store_source_gone", gone, bool(store.source_gone), **labels)
    stopped = "whether the daemon says that something is wrong: it waits, stopped, or has no disk"
    trouble = bool(store.stopped or store.waits or store.problem)
    families.gauge("store_trouble", stopped, trouble, **labels)
    for name, (field, text) in _COUNTERS.items():
        families.counter(f"store_{name}", text, getattr(store, field), **labels)
    for verdict, count in store.verdicts.items():
        text = "messages by what became of them at the writer: each has one verdict"
        families.counter("store_verdicts", text, count, **labels, verdict=verdict)
    for host, copy in store.consumers.items():
        _add_replica(families, copy, {**labels, "replica": host})
    lacked = "records that a reader of the store lacks"
    names = distinct_names((reader.name, reader.pid) for reader in store.readers)
    for reader, name in zip(store.readers, names, strict=True):
        own = {**labels, "reader": name, "pid": str(reader.pid)}
        families.gauge("store_reader_lag_records", lacked, reader.lag_records, **own)
    for sender, outbox in store.outboxes.items():
        _add_outbox(families, outbox, {**labels, "sender": sender})


def _add_replica(families: Families, copy: ReplicaStatus, labels: dict[str, str]) -> None:
    connected = "whether a copy on another host is connected"
    families.gauge("replica_connected", connected, copy.connected, **labels)
    if copy.acked is None:
        return
    records = "records that a copy on another host lacks"
    families.gauge("replica_lag_records", records, copy.lag_records or 0, **labels)
    size = "bytes that a copy on another host lacks"
    families.gauge("replica_lag_bytes", size, copy.lag_bytes or 0, **labels)
    age = "age of the first record that a copy on another host lacks"
    families.gauge("replica_lag_seconds", age, (copy.lag_ms or 0) / 1e3, **labels)


def _add_outbox(families: Families, outbox: OutboxStatus, labels: dict[str, str]) -> None:
    registered = "whether what is in the outbox gets into the stream"
    families.gauge("outbox_registered", registered, outbox.state == "registered", **labels)
    families.counter("outbox_accepted", "messages taken from the app", outbox.accepted, **labels)
    families.counter("outbox_seen", "messages seen in the stream", outbox.seen, **labels)
    families.counter("outbox_resent", "messages sent again", outbox.resent, **labels)
    families.counter("outbox_datagrams", "datagrams sent", outbox.datagrams, **labels)
    waiting = "messages that were accepted and not let go"
    families.gauge("outbox_waiting", waiting, outbox.waiting, **labels)
    slots = "messages that may be on their way at once"
    families.gauge("outbox_slots", slots, outbox.slots, **labels)
    size = "bytes of messages that were accepted and not let go"
    families.gauge("outbox_waiting_bytes", size, outbox.waiting_bytes, **labels)
    capacity = "bytes of messages that may be on their way at once"
    families.gauge("outbox_capacity_bytes", capacity, outbox.capacity_bytes, **labels)
