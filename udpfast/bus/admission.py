"""Decide which copies a host serves: only those that are a prefix of its own store."""

from __future__ import annotations

from udpfast.bus.hello import Hello, Refuse, RefuseReason
from udpfast.bus.lineage import divergence
from udpfast.bus.log import Store
from udpfast.log.journal_header import NO_IDENTITY

__all__ = ["refusal"]


def refusal(store: Store, hello: Hello, promised: int, now_ns: int) -> Refuse | None:
    """Return why a copy is not served; None: it is.

    If the copy knows a later epoch, the store is fenced. An older link to the copy's host is closed
    if it is dead.

    Parameters
    ----------
    store : Store
    hello : Hello
        The HELLO of the copy.
    promised : int
        The epoch that the copy's host has promised.
    now_ns : int
        Monotonic time.
    """
    if store.identity == NO_IDENTITY:
        return Refuse(RefuseReason.BEHIND)
    if hello.identity not in (NO_IDENTITY, store.identity):
        return Refuse(RefuseReason.WRONG_STORE)
    if hello.layout_hash != store.log.layout_hash:
        return Refuse(RefuseReason.LAYOUT, own=0, other=0)
    known = max([promised, *(epoch for epoch, _ in hello.lineage)])
    if known > store.promised:
        # Another host was promoted since: this host's later records will be discarded.
        store.fence(known)
    if store.epoch < store.promised and not hello.drain:
        return Refuse(RefuseReason.FENCED, store.promised)
    other = store.links.get(hello.host)
    if other is not None and not other.closed:
        if not other.is_silent(now_ns):
            return Refuse(RefuseReason.NAME_IN_USE)
        other.close("another link of that host began")
    if not (store.writer or hello.any_source or hello.drain):
        return Refuse(RefuseReason.NOT_WRITER)
    refuse = compare(store, hello)
    position = hello.position if hello.identity != NO_IDENTITY else store.log.first()[0]
    if refuse is None and position < store.end and not store.log.is_whole(position):
        return _damaged(store, position)
    return refuse


def compare(store: Store, hello: Hello) -> Refuse | None:
    """Return why a copy is not a prefix of the store, or cannot continue from its end; or None."""
    if hello.identity == NO_IDENTITY:
        return None
    at = divergence(store.lineage.pairs, store.end, hello.lineage, hello.position)
    last_at, last_checksum = hello.last or (0, 0)
    if hello.position > at:
        # The copy is further in the epoch of this host's last record: the records may still arrive
        # here.
        if (
            not store.writer
            and at == store.end
            and hello.lineage
            and max(hello.lineage)[0] == store.epoch
        ):
            return Refuse(RefuseReason.BEHIND, at)
        there = last_checksum if hello.last and last_at == at else 0
        return Refuse(RefuseReason.DIVERGED, at, store.log.checksum_at(at) or 0, there)
    first = store.log.first()[0]
    if hello.position < first:
        return Refuse(RefuseReason.GONE, first)
    if hello.last and last_at >= first:
        own = store.log.checksum_at(last_at)
        if own != last_checksum:
            if store.log.is_damaged(last_at):
                return _damaged(store, last_at)
            return Refuse(RefuseReason.DIVERGED, last_at, own or 0, last_checksum)
    return None


def _damaged(store: Store, position: int) -> Refuse:
    store.note_damaged(position)
    return Refuse(RefuseReason.DAMAGED, position)
