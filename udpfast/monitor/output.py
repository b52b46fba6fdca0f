"""What a feed writes, a ring or a store: who does, how far it is, who reads it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from udpfast.archive.bus_files import Live, noted_store, shared_directory
from udpfast.core.clock import monotonic_ns
from udpfast.log.cursor import RingCursor
from udpfast.log.journal_state import journal_state
from udpfast.log.readers import ReaderInfo
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.counters import CounterBlock

__all__ = ["OutputFacts", "find_overwritten", "read_output"]


class OutputFacts(Struct, frozen=True):
    """A feed's ring or store at one moment.

    Attributes
    ----------
    writer_pid : int
    alive : bool
        The writer's process is there, whether it has closed it or not.
    state : str
        open, closed (the writer said that nothing more comes), left (it was stopped, and another
        one is to go on) or failed (an error ended it).
    stuck_ns : int
        The writer's process is there, and has not been up to date for so long; 0: it is.
    epoch, records, position : int
        Which writer, and records and bytes so far.
    readers : Path
        The directory whose `readers/` says who reads it.
    kind : str
        ring or store.
    log : bytes
        Of a ring: which log it is of.
    capacity : int
        Of a ring: bytes of records that it holds; 0: it is a store.
    """

    writer_pid: int
    alive: bool
    state: str
    stuck_ns: int
    epoch: int
    records: int
    position: int
    readers: Path
    kind: str
    log: bytes = b""
    capacity: int = 0


def read_output(instance: Path) -> OutputFacts:
    """Return what a feed's instance writes, live or dead.

    Raises
    ------
    FileNotFoundError, RegionError
        There is none, or it is of another version.
    """
    store = noted_store(instance)
    if store is None:
        with RingCursor.attach(
            instance, limit=1, payload_hash=PAYLOAD_HASH, populate=False
        ) as cursor:
            alive = cursor.region.writer_alive()  # first: who ends in between is not dead
            life = cursor.life
            state = {"finished": "closed", "left": "left", "failed": "failed"}.get(life, "open")
            stuck_ns = monotonic_ns() - cursor.current_ns if life == "stuck" else 0
            return OutputFacts(
                cursor.region.writer_pid, alive, state, stuck_ns,
                cursor.epoch, cursor.tail_index, cursor.tail_position, instance, "ring",
                cursor.log, cursor.capacity_bytes,
            )  # fmt: skip
    with CounterBlock.attach(instance) as block:
        pid, alive = block.region.writer_pid, block.region.writer_alive()
    kept = journal_state(store)
    state = "failed" if kept.failed else "closed" if kept.closed else "open"
    stuck_ns = _silent_ns(store) if alive and state == "open" else 0
    return OutputFacts(
        pid, alive, state, stuck_ns, kept.epoch, kept.index, kept.position,
        shared_directory(store), "store",
    )  # fmt: skip


def find_overwritten(instance: Path, readers: Iterable[ReaderInfo], output: OutputFacts) -> int:
    """Return the index of the oldest record that a ring still has, if a reader lacks some of it.

    Returns
    -------
    int
        0: each of the readers has its next record in the ring, as far as bytes tell.
    """
    if not output.capacity or all(
        output.position - reader.position <= output.capacity for reader in readers
    ):
        return 0
    with RingCursor.attach(instance, limit=1, payload_hash=PAYLOAD_HASH, populate=False) as cursor:
        return cursor.extent()[0] if cursor.log == output.log else 0


def _silent_ns(store: Path) -> int:
    # For how long who keeps a store has not said that it is at work; 0: it does.
    live = Live(store)
    return 0 if live.is_alive() else monotonic_ns() - live.read().alive_ns
