"""The counter block: written by the one thread that counts, and read by tools, even afterwards."""

import hashlib
from pathlib import Path

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    ADDRESS_COUNTER_COUNT,
    ADDRESS_STRIDE,
    CHANNEL_COUNTER_COUNT,
    FEED_COUNTER_COUNT,
    LINE_COUNTER_COUNT,
)
from udpfast.core.counter import (
    ADDRESS_COUNTERS,
    CHANNEL_COUNTERS,
    FEED_COUNTERS,
    LINE_COUNTERS,
)
from udpfast.core.layout cimport (
    ADDRESSES_MAX,
    CHANNEL_COUNT,
    CHANNEL_INCREMENTAL,
    CHANNEL_SNAPSHOT,
    LINES_MAX,
)
from udpfast.errors import RegionError
from udpfast.shm.region cimport REGION_PAGE, Region

__all__ = ["CounterBlock"]

_KIND = "CNTR"
_CHANNELS = ("incremental", "snapshot")

for _labels, _count in (
        (FEED_COUNTERS, FEED_COUNTER_COUNT), (CHANNEL_COUNTERS, CHANNEL_COUNTER_COUNT),
        (LINE_COUNTERS, LINE_COUNTER_COUNT), (ADDRESS_COUNTERS, ADDRESS_COUNTER_COUNT)):
    if len(_labels) != _count:
        raise ImportError(f"{_count} counters, but {len(_labels)} labels, from {_labels[0]}")

# Builds whose counters differ in name or order must not read each other's numbers.
_NAMES = ";".join(
    ",".join(info.name for info in infos)
    for infos in (FEED_COUNTERS, CHANNEL_COUNTERS, LINE_COUNTERS, ADDRESS_COUNTERS))
_LAYOUT_HASH = int.from_bytes(hashlib.sha256(_NAMES.encode()).digest()[:8], "little")

cdef enum:

    FEED_SIZE = (FEED_COUNTER_COUNT * 8 + 127) // 128 * 128
    CHANNEL_SIZE = (CHANNEL_COUNTER_COUNT * 8 + 127) // 128 * 128
    LINE_SIZE = (LINE_COUNTER_COUNT * 8 + 127) // 128 * 128
    ADDRESS_SIZE = ADDRESS_STRIDE * 8
    ADDRESS_NAME = 32            # offset of its name: UTF-8, padded with zeros


cdef class CounterBlock:
    """The counters of one instance: one feed scope, two channels, up to eight lines of each.

    Attributes
    ----------
    region : Region
    lines_incremental, lines_snapshot : tuple of str
        Names of the lines of each channel, in the order of their numbers.
    addresses : dict[str, tuple[str, ...]]
        Addresses of each line that has several, by its scope (for example `incremental.A`).
    """

    @staticmethod
    def create(
            path: str | os.PathLike[str], lines_incremental: Sequence[str],
            lines_snapshot: Sequence[str], publish: bool = True,
            addresses: Mapping[str, Sequence[str]] | None = None) -> CounterBlock:
        """Create the block with all counters 0, in place of a dead writer's.

        Parameters
        ----------
        path : str or path
            The block's file, or an instance's directory (then its file `counters`).
        lines_incremental, lines_snapshot : sequence of str
            Names of the lines, at most 8 per channel.
        publish : bool
            Let readers find it now. False: the caller calls `region.mark_ready` later.
        addresses : dict, optional
            As the attribute of this name.

        Raises
        ------
        WriterExistsError
            A living process writes the block.
        """
        cdef CounterBlock block = CounterBlock.__new__(CounterBlock)
        for lines in (lines_incremental, lines_snapshot):
            if len(lines) > LINES_MAX or len(set(lines)) != len(lines):
                raise ValueError(f"lines must be <= {LINES_MAX} different names, were {lines}")
        block.lines_incremental = tuple(lines_incremental)
        block.lines_snapshot = tuple(lines_snapshot)
        block.addresses = {scope: tuple(each) for scope, each in (addresses or {}).items()}
        block.region = Region.create(
            _counters_path(path), _KIND, block._size_bytes(), _LAYOUT_HASH, replace=True)
        block.region.describe({
            "lines": [list(lines_incremental), list(lines_snapshot)],
            # The addresses would not fit here: each lies beside its counters.
            "addresses": {scope: len(each) for scope, each in block.addresses.items()}})
        block._set_pointers()
        block._write_addresses()
        if publish:
            block.region.mark_ready()
        return block

    @staticmethod
    def attach(path: str | os.PathLike[str]) -> CounterBlock:
        """Attach to a block, read-only. Its writer may be dead.

        Raises
        ------
        RegionError
            The file is not a counter block, or has other counters.
        """
        cdef CounterBlock block = CounterBlock.__new__(CounterBlock)
        block.region = Region.attach(_counters_path(path), _KIND, _LAYOUT_HASH)
        description = block.region.description()
        lines, counts = description.get("lines"), description.get("addresses")
        if not _lines_valid(lines):
            raise RegionError(f"{block.region.path}: expected two lists of line names, "
                              f"found {lines!r}")
        block.lines_incremental, block.lines_snapshot = map(tuple, lines)
        if not _counts_valid(counts, block._line_scopes()):
            raise RegionError(f"{block.region.path}: expected how many addresses its lines have, "
                              f"found {counts!r}")
        block.addresses = {scope: ("",) * count for scope, count in counts.items()}
        size = block._size_bytes()
        if block.region.size_bytes != size:
            raise RegionError(f"{block.region.path}: expected {size} bytes, "
                              f"found {block.region.size_bytes}")
        block._set_pointers()
        block.addresses = block._read_names()
        return block

    def read(self) -> dict[str, dict[str, int]]:
        """Return all counters by scope and name.

        Scopes are `feed`, `incremental`, `snapshot`, and one for each line: `incremental.A`. The
        names, units and meanings of the counters are those of `core.counter`. The counters are read
        one after the other while the writer continues, so sums may be off by what it counts
        meanwhile.
        """
        view = self.region.view()[REGION_PAGE:].cast("q")
        counters = {}
        for scope, offset, infos in self._scopes():
            counters[scope] = {info.name: view[offset // 8 + i] for i, info in enumerate(infos)}
        return counters

    def read_addresses(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the counters of each address of the lines that have several.

        Returns
        -------
        dict
            By scope (`incremental.A`), then by address in the order of the settings, then by name
            (`core.counter.ADDRESS_COUNTERS`).
        """
        view = self.region.view()[REGION_PAGE:].cast("q")
        at = (self._lines_end() - REGION_PAGE) // 8
        found = {}
        for scope in self._line_scopes():
            for address in self.addresses.get(scope, ()):
                found.setdefault(scope, {})[address] = {
                    info.name: view[at + i] for i, info in enumerate(ADDRESS_COUNTERS)}
                at += ADDRESS_STRIDE
        return found

    def add(self, scope: str, name: str, count: int = 1) -> None:
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

    def close(self) -> None:
        """Release the block. The file stays for later reading."""
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
        for scope in self._line_scopes():
            yield scope, offset, LINE_COUNTERS
            offset += LINE_SIZE

    def _line_scopes(self):
        return [f"{channel}.{line}" for channel, lines in zip(
            _CHANNELS, (self.lines_incremental, self.lines_snapshot)) for line in lines]

    def _lines_end(self):
        lines = len(self.lines_incremental) + len(self.lines_snapshot)
        return REGION_PAGE + FEED_SIZE + 2 * CHANNEL_SIZE + lines * LINE_SIZE

    def _size_bytes(self):
        addresses = sum(len(each) for each in self.addresses.values())
        return self._lines_end() + addresses * ADDRESS_SIZE

    def _write_addresses(self):
        at = self._lines_end() + ADDRESS_NAME
        for scope in self._line_scopes():
            for address in self.addresses.get(scope, ()):
                name = address.encode()
                if len(name) > ADDRESS_SIZE - ADDRESS_NAME:
                    raise ValueError(f"addresses must have at most {ADDRESS_SIZE - ADDRESS_NAME} "
                                     f"bytes, was {address!r}")
                self.region.view()[at:at + len(name)] = name
                at += ADDRESS_SIZE

    def _read_names(self):
        at = self._lines_end() + ADDRESS_NAME
        found = {}
        for scope in self._line_scopes():
            for _ in self.addresses.get(scope, ()):
                name = bytes(self.region.view()[at:at + ADDRESS_SIZE - ADDRESS_NAME])
                found.setdefault(scope, []).append(name.rstrip(b"\0").decode(errors="replace"))
                at += ADDRESS_SIZE
        return {scope: tuple(names) for scope, names in found.items()}

    cdef _set_pointers(self):
        cdef uint8_t* at = self.region.pointer + REGION_PAGE
        cdef int channel, line, count
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
        names = (self.lines_incremental, self.lines_snapshot)
        for channel in range(CHANNEL_COUNT):
            for line in range(len(names[channel])):
                count = len(self.addresses.get(f"{_CHANNELS[channel]}.{names[channel][line]}", ()))
                self.counters.address[channel][line] = <int64_t*>at if count else NULL
                at += <size_t>count * ADDRESS_SIZE


def _counters_path(path):
    path = Path(path)
    return path / "counters" if path.is_dir() else path


def _lines_valid(lines):
    return (isinstance(lines, list) and len(lines) == 2
            and all(isinstance(names, list) and len(names) <= LINES_MAX
                    and all(isinstance(name, str) for name in names) for names in lines))


def _counts_valid(counts, scopes):
    return (isinstance(counts, dict) and set(counts) <= set(scopes)
            and all(type(count) is int and 1 < count <= ADDRESSES_MAX
                    for count in counts.values()))
