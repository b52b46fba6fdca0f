"""The counter block: written by the one thread that counts, read by every tool, dead or alive."""

import hashlib
from pathlib import Path

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    CHANNEL_COUNTER_COUNT,
    FEED_COUNTER_COUNT,
    LINE_COUNTER_COUNT,
)
from udpfast.core.counter import CHANNEL_COUNTERS, FEED_COUNTERS, LINE_COUNTERS
from udpfast.core.layout cimport CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, LINES_MAX
from udpfast.errors import RegionError
from udpfast.shm.region cimport REGION_PAGE, Region

__all__ = ["CounterBlock"]

_KIND = "CNTR"
_CHANNELS = ("incremental", "snapshot")

# Two builds whose counters differ in name or order must not read each other's numbers.
_NAMES = ";".join(
    ",".join(info.name for info in infos)
    for infos in (FEED_COUNTERS, CHANNEL_COUNTERS, LINE_COUNTERS))
_LAYOUT_HASH = int.from_bytes(hashlib.sha256(_NAMES.encode()).digest()[:8], "little")

cdef enum:

    FEED_SIZE = (FEED_COUNTER_COUNT * 8 + 127) // 128 * 128
    CHANNEL_SIZE = (CHANNEL_COUNTER_COUNT * 8 + 127) // 128 * 128
    LINE_SIZE = (LINE_COUNTER_COUNT * 8 + 127) // 128 * 128


cdef class CounterBlock:
    """The counters of one instance: one feed scope, two channels, up to eight lines of each.

    Attributes
    ----------
    region : Region
    lines_incremental, lines_snapshot : tuple of str
        Names of the lines of each channel, in the order of their numbers.
    """

    @staticmethod
    def create(path, lines_incremental, lines_snapshot, publish=True):
        """Create the block with all counters 0, in place of a dead writer's.

        Parameters
        ----------
        path : str or path
            Of the file, or of an instance's directory (then its file `counters`).
        lines_incremental, lines_snapshot : sequence of str
            Names, 0 to 8 of each.
        publish : bool
            Let it be found; False: that is left to the caller (`region.mark_ready`).

        Raises
        ------
        WriterExistsError
            A living process counts there.
        """
        cdef CounterBlock block = CounterBlock.__new__(CounterBlock)
        for lines in (lines_incremental, lines_snapshot):
            if len(lines) > LINES_MAX or len(set(lines)) != len(lines):
                raise ValueError(f"lines must be <= {LINES_MAX} different names, were {lines}")
        block.lines_incremental = tuple(lines_incremental)
        block.lines_snapshot = tuple(lines_snapshot)
        size = _size_bytes(len(lines_incremental), len(lines_snapshot))
        block.region = Region.create(_counters_path(path), _KIND, size, _LAYOUT_HASH, replace=True)
        block.region.describe({"lines": [list(lines_incremental), list(lines_snapshot)]})
        block._set_pointers()
        if publish:
            block.region.mark_ready()
        return block

    @staticmethod
    def attach(path):
        """Attach to a block, read-only; its writer may be dead.

        Raises
        ------
        RegionError
            The file is no counter block, or one with other counters.
        """
        cdef CounterBlock block = CounterBlock.__new__(CounterBlock)
        block.region = Region.attach(_counters_path(path), _KIND, _LAYOUT_HASH)
        lines = block.region.description().get("lines")
        if not _lines_valid(lines):
            raise RegionError(f"{block.region.path}: expected two lists of line names, "
                              f"found {lines!r}")
        block.lines_incremental, block.lines_snapshot = map(tuple, lines)
        size = _size_bytes(len(lines[0]), len(lines[1]))
        if block.region.size_bytes != size:
            raise RegionError(f"{block.region.path}: expected {size} bytes, "
                              f"found {block.region.size_bytes}")
        block._set_pointers()
        return block

    def read(self):
        """Return all counters by scope and name.

        Scopes are `feed`, `incremental`, `snapshot`, and one for each line: `incremental.A`.
        The names in a scope, their units and meanings are those of `core.counter`. Numbers are
        read one after the other while the writer goes on: sums may differ by what it did
        meanwhile.
        """
        view = self.region.view()[REGION_PAGE:].cast("q")
        counters = {}
        for scope, offset, infos in self._scopes():
            counters[scope] = {info.name: view[offset // 8 + i] for i, info in enumerate(infos)}
        return counters

    def add(self, scope, name, count=1):
        """Add to one counter, by name. For tests: the hot loop uses `counters`.

        Raises
        ------
        KeyError
            There is no such scope, or no such counter in it.
        ValueError
            The block was attached, not created.
        """
        if not self.region.writable:
            raise ValueError(f"{self.region.path} is attached read-only")
        for scope_found, offset, infos in self._scopes():
            if scope_found == scope:
                index = {info.name: i for i, info in enumerate(infos)}[name]
                counter_add(<int64_t*>(self.region.pointer + <size_t>(REGION_PAGE + offset)
                                       + 8 * <size_t>index), count)
                return
        raise KeyError(scope)

    def close(self):
        """Let go of the block; the file stays for those who want to know how it ended."""
        self.region.close()
        memset(&self.counters, 0, sizeof(self.counters))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def _scopes(self):
        # Yield (name, offset behind the first page, counters) of each scope.
        yield "feed", 0, FEED_COUNTERS
        offset = FEED_SIZE
        for channel in _CHANNELS:
            yield channel, offset, CHANNEL_COUNTERS
            offset += CHANNEL_SIZE
        for channel, lines in zip(_CHANNELS, (self.lines_incremental, self.lines_snapshot)):
            for line in lines:
                yield f"{channel}.{line}", offset, LINE_COUNTERS
                offset += LINE_SIZE

    cdef _set_pointers(self):
        cdef uint8_t* at = self.region.pointer + REGION_PAGE
        cdef int channel, line
        self.counters.feed = <int64_t*>at
        at += FEED_SIZE
        for channel in range(2):
            self.counters.channel[channel] = <int64_t*>at
            at += CHANNEL_SIZE
        for line in range(len(self.lines_incremental)):
            self.counters.line[CHANNEL_INCREMENTAL][line] = <int64_t*>at
            at += LINE_SIZE
        for line in range(len(self.lines_snapshot)):
            self.counters.line[CHANNEL_SNAPSHOT][line] = <int64_t*>at
            at += LINE_SIZE


def _counters_path(path):
    path = Path(path)
    return path / "counters" if path.is_dir() else path


def _size_bytes(lines_incremental, lines_snapshot):
    return (REGION_PAGE + FEED_SIZE + 2 * CHANNEL_SIZE
            + (lines_incremental + lines_snapshot) * LINE_SIZE)


def _lines_valid(lines):
    return (isinstance(lines, list) and len(lines) == 2
            and all(isinstance(names, list) and len(names) <= LINES_MAX
                    and all(isinstance(name, str) for name in names) for names in lines))
