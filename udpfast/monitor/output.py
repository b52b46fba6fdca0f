"""What a feed writes, a ring or a store: who does, how far it is, who reads it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from udpfast.archive.bus_files import noted_store, shared_directory
from udpfast.log.cursor import RingCursor
from udpfast.log.journal_state import journal_state
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.counters import CounterBlock

__all__ = ["OutputFacts", "read_output"]


class OutputFacts(Struct, frozen=True):
    """A feed's ring or store at one moment.

    Attributes
    ----------
    writer_pid : int
    alive : bool
        The writer's process is there, whether it has closed it or not.
    state : str
        open, closed (the writer said that nothing more comes) or failed (an error ended it).
    epoch, records, position : int
        Which writer, and records and bytes so far.
    readers : Path
        The directory whose `readers/` says who reads it.
    kind : str
        ring or store.
    """

    writer_pid: int
    alive: bool
    state: str
    epoch: int
    records: int
    position: int
    readers: Path
    kind: str


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
            state = {"finished": "closed", "failed": "failed"}.get(cursor.life, "open")
            return OutputFacts(
                cursor.region.writer_pid, cursor.region.writer_alive(), state,
                cursor.epoch, cursor.tail_index, cursor.tail_position, instance, "ring",
            )  # fmt: skip
    kept = journal_state(store)
    state = "failed" if kept.failed else "closed" if kept.closed else "open"
    with CounterBlock.attach(instance) as block:
        pid, alive = block.region.writer_pid, block.region.writer_alive()
    return OutputFacts(
        pid, alive, state, kept.epoch, kept.index, kept.position,
        shared_directory(store), "store",
    )  # fmt: skip
