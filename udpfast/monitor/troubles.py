"""What on a host needs attention now, beside its feeds: a sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from udpfast.monitor.host import HostFacts
from udpfast.monitor.journals import DiskStatus
from udpfast.monitor.stores import StoreStatus

__all__ = ["describe_troubles"]

#: Of an outbox that is full by this part, its app soon cannot send.
OUTBOX_FULL = 0.8
#: A disk needs attention if so small a part of it is free, or if it is full so soon.
DISK_FREE, DISK_FULL_S = 0.05, 4 * 3600.0
#: A copy that is connected is behind by less than this, unless it catches up.
LAG_MS = 10_000


def describe_troubles(host: HostFacts) -> list[str]:
    """Return what needs attention: faults of the host first, then stores, then disks."""
    found = [f"{each.name}: {each.have}, want {each.want}" for each in host.findings if each.fault]
    for store in host.stores.found.values():
        found += [f"store {store.store} on {store.host}: {each}" for each in _of_store(store)]
    found += [f"{path}: {why}" for path, why in host.stores.unreadable.items()]
    for disk in host.journals.disks:
        found += _of_disk(disk)
    for journal in host.journals.found.values():
        if journal.dropped_records and journal.state == "writing":
            found.append(
                f"journal {journal.directory}: the disk had no room for "
                f"{journal.dropped_records:,} records"
            )
    unread = host.journals.unreadable.items()
    return found + [f"{path}: {why}" for path, why in unread if path not in host.stores.unreadable]


def _of_store(store: StoreStatus) -> Iterator[str]:
    if not store.alive and not store.ended:
        yield "its daemon does not run, and did not end by itself"
    for what, text in (("stopped", store.stopped), ("waits", store.waits), ("disk", store.problem)):
        if text:
            yield f"{what}: {text}"
    if store.feed is not None and store.feed.failure:
        yield f"feed {store.feed.state}: {store.feed.failure}"
    if store.away and store.alive:
        yield (
            f"{store.unprotected:,} records are unprotected: outboxes do not wait for copies on "
            f"{', '.join(store.away)}, which lack them"
        )
    for host, copy in store.consumers.items() if store.alive else ():
        if not copy.connected:
            yield f"copy {host} is not connected"
        elif (copy.lag_ms or 0) > LAG_MS:
            yield f"copy {host} is {(copy.lag_ms or 0) / 1000:,.0f} s behind"
    for sender, outbox in store.outboxes.items():
        if outbox.state not in ("registered", "new"):
            yield f"sender {sender}: {outbox.state}: nothing of it gets into the stream"
        elif outbox.full >= OUTBOX_FULL:
            yield f"outbox of {sender} is {100 * outbox.full:.0f} % full"
    for name, why in store.unreadable.items():
        yield f"{name}: {why}"


def _of_disk(disk: DiskStatus) -> Iterator[str]:
    if disk.full_s is not None and disk.full_s < DISK_FULL_S:
        yield f"disk of {disk.directory}: full in {disk.full_s / 60:,.0f} min at this rate"
    elif disk.free < DISK_FREE:
        yield f"disk of {disk.directory}: {100 * disk.free:.1f} % free"
