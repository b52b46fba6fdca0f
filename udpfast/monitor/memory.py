"""How much of a host's memory feeds take, by their settings alone: nothing is opened."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from udpfast.agents.feed.engine_settings import engine_memory_size
from udpfast.agents.feed.factories import wanted_agents
from udpfast.config import FeedConfig
from udpfast.errors import UdpfastError
from udpfast.host import HostUse
from udpfast.market.names import name_table_size
from udpfast.monitor.output import read_output
from udpfast.shm.instance import instance_directory, instance_root

__all__ = ["FeedMemory", "feed_memory", "with_memory"]

_PAGE = 4096
#: An entry's slot in the image: shm/image.pxd.
_IMAGE_SLOT = 64
#: Counters, latencies, roster, wake and feed.json; answers of two servers, of 1 MiB each.
_SMALL_FILES = 2 << 20
_ANSWERS_FILE = (1 << 20) + _PAGE
#: Interpreter and modules of one process, as measured: 23 MiB; 21 MiB of files are all processes'.
_PROCESS = 30 << 20


class FeedMemory(Struct, frozen=True):
    """What one feed takes, in bytes.

    Attributes
    ----------
    files : dict
        What it shares: file of its instance -> bytes, all of which are taken when it starts.
    books : int
        Orders, levels and instruments of a venue's books.
    processes : int
        Interpreters: the feed's, and those of agents that have a process of their own.
    """

    files: dict[str, int]
    books: int
    processes: int

    @property
    def shared(self) -> int:
        """Bytes of the instance's files."""
        return sum(self.files.values())

    @property
    def private(self) -> int:
        """Bytes that are in no file."""
        return self.books + self.processes


def feed_memory(config: FeedConfig) -> FeedMemory:
    """Return what a feed takes.

    Not in it: what the kernel queues for its sockets in a burst (`receive.rcvbuf_bytes` each), and
    what agents beside the feed keep of each object.
    """
    slab, books = engine_memory_size(config)
    servers = config.retransmission.enabled + config.snapshot_server.enabled
    files = {"slab": slab, "other": _SMALL_FILES + servers * _ANSWERS_FILE}
    if config.output == "ring":
        files["ring"] = _PAGE + config.ring.capacity_bytes
        files["names"] = _PAGE + name_table_size(config.ring.names)
    if config.record.what != "records":
        files["capture"] = _PAGE + config.record.capture_bytes
    if config.image.enabled:
        slots = config.image.objects + 1
        files["image"] = _PAGE + slots * _IMAGE_SLOT + config.image.capacity_bytes
    apart = sum(agent.apart or config.run.processes == "each" for agent in wanted_agents(config))
    return FeedMemory(files, books, (1 + apart) * _PROCESS)


def with_memory(use: HostUse, configs: Iterable[FeedConfig]) -> HostUse:
    """Return the use that feeds make of a host, with the memory that starting them takes.

    A feed that was here before uses its slab and its names again; all other files are made beside
    the old ones. What one has that runs is not asked for twice.
    """
    shared = private = 0
    for config in configs:
        memory = feed_memory(config)
        kept, running = _standing(config.name)
        shared += max(memory.shared - kept, 0)
        private += 0 if running else memory.private
    return use._replace(
        shm_path=str(_shared_place()), shm_bytes=shared, memory_bytes=shared + private
    )


def _shared_place() -> Path:
    # What is mounted there may be a file system of its own.
    root = instance_root()
    return next(each for each in (root, *root.parents) if each.exists())


def _standing(name: str) -> tuple[int, bool]:
    # Bytes that a start of this feed takes over or gives back first, and whether it runs now.
    try:
        directory = instance_directory(name)
    except (UdpfastError, OSError):
        return 0, False
    files = (directory / "slab", directory / "names")
    kept = sum(each.stat().st_size for each in files if each.exists())
    try:
        output = read_output(directory)
    except (UdpfastError, OSError):
        return kept, False
    return kept, output.alive and output.state == "open"
