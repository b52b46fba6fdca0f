"""The name table for Python: ids to names for readers, interning for tests and publishers."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uintptr_t

from udpfast.core.atomics cimport store_release
from udpfast.core.crc32c cimport CRC32C_BEGIN, crc32c_words
from udpfast.core.keyed cimport Key

from udpfast.errors import FormatError

__all__ = ["NameTable", "name_table_size", "name_text"]

if sizeof(NamesHeader) != 64 or sizeof(NameEntry) != 128:
    raise ImportError(f"name table structs have {sizeof(NamesHeader)} and {sizeof(NameEntry)} "
                      "bytes, expected 64 and 128")


cdef uint32_t names_probe(
        Names* names, const uint8_t* text, uint32_t size, uint32_t hash_,
        bint exchange) noexcept nogil:
    cdef NamesHeader* header = names.header
    cdef uint32_t mask = <uint32_t> (header.slots - 1)
    cdef uint32_t slot = hash_ & mask, name_id
    cdef NameEntry* entry
    while True:  # ends, because at most half of the slots are used
        name_id = names.slots[slot]
        if name_id == 0 or name_id > header.count:
            break
        if names_is(names, name_id, text, size):
            return name_id
        slot = (slot + 1) & mask
    if header.count >= header.capacity:
        return 0
    name_id = <uint32_t> header.count + 1
    entry = names.entries + name_id
    entry.hash = hash_
    entry.size = size
    memcpy(entry.text, text, size)
    names.slots[slot] = name_id
    if exchange:
        _note_exchange(names, name_id)
    # Release: the entry above is complete before a reader (names_get, any process) sees the count.
    store_release(&header.count, name_id)
    return name_id


cdef void _note_exchange(Names* names, uint32_t name_id) noexcept nogil:
    cdef NameEntry* entry = names.entries
    cdef uint32_t count = entry.size
    if count < NAMES_EXCHANGES_MAX:
        (<uint32_t*>entry.text)[count] = name_id
        # Before the count of names, whose acquire orders this for readers, too.
        entry.size = count + 1


cdef bint names_is_exchange(const Names* names, uint32_t name_id) noexcept nogil:
    # Whether the table says that a name is an exchange's: of the first 30 it does.
    cdef const NameEntry* entry = names.entries
    cdef uint32_t i
    for i in range(min(entry.size, <uint32_t>NAMES_EXCHANGES_MAX)):
        if (<const uint32_t*>entry.text)[i] == name_id:
            return True
    return False


def name_text(bytes name) -> str:
    r"""Return a name as text, in which a byte that is not UTF-8 appears as `\xNN`.

    A replacement character would make two different names equal.
    """
    return name.decode("utf-8", "backslashreplace")


def name_table_size(capacity: int) -> int:
    """Return the bytes that a table for `capacity` names takes.

    Raises
    ------
    ValueError
        The capacity is out of range.
    """
    if not 0 < capacity <= NAMES_CAPACITY_MAX:
        raise ValueError(f"capacity must be 1 to {NAMES_CAPACITY_MAX} names, was {capacity}")
    return names_memory_size(capacity)


@cython.final
cdef class NameTable:
    """Interned names over borrowed memory: `table[id]` is the name, and ids begin at 1.

    Parameters
    ----------
    memory : bytes-like, optional
        Aligned to 8 bytes and kept alive by the table. A table over read-only memory cannot intern.
        Without `memory` the table owns its memory.
    capacity : int, optional
        Make an empty table for this many names. With 0, attach to the table in `memory`.
    key : bytes, optional
        With `capacity`: the `key` of the table that this one is to copy.

    Raises
    ------
    FormatError
        The memory holds no name table, or is too small for the one that it holds.
    ValueError
        The memory is too small for `capacity`, or not aligned.
    """

    def __cinit__(self, memory: Buffer | None = None, *, capacity: int = 0, bytes key=b""):
        if memory is None:
            capacity = capacity or 4096
            memory = bytearray(name_table_size(capacity))
        cdef const uint8_t[::1] view = memoryview(memory).cast("B")
        cdef uint8_t* start = <uint8_t*> &view[0] if view.shape[0] else NULL
        self._memory = memory
        self._writable = not memoryview(memory).readonly
        if <uintptr_t> start % 8:
            raise ValueError("memory of a name table must be aligned to 8 bytes")
        if capacity:
            size = name_table_size(capacity)
            if not self._writable or not names_init(
                    &self.names, start, view.shape[0], capacity):
                raise ValueError(f"{capacity} names take {size} writable bytes, "
                                 f"found {view.shape[0]}")
            if key:
                if len(key) != sizeof(Key):
                    raise ValueError(f"key must have {sizeof(Key)} bytes, has {len(key)}")
                memcpy(&self.names.header.key, <const char*> key, sizeof(Key))
        elif not names_attach(&self.names, start, view.shape[0]):
            raise FormatError(f"expected a name table, found {view.shape[0]} bytes without one")

    def __len__(self) -> int:
        """Return the number of names."""
        return names_count(&self.names)

    @property
    def capacity(self) -> int:
        """How many names fit."""
        return self.names.capacity

    @property
    def key(self) -> builtins.bytes:
        """The key of its hashes: 16 bytes."""
        return (<const char*> &self.names.header.key)[:sizeof(Key)]

    @property
    def mark(self) -> int:
        """Identifies this table, never 0: a checksum of `key`."""
        cdef Key* key = &self.names.header.key
        return <uint32_t> ~crc32c_words(
            CRC32C_BEGIN, <const uint8_t*> key, sizeof(Key)) or 1

    def bytes(self, name_id: int) -> builtins.bytes | None:
        """Return a name's bytes, or None for id 0 and for a damaged entry, as its hash shows.

        Raises
        ------
        IndexError
            No name with that id was published.
        """
        cdef uint32_t size = 0
        cdef const uint8_t* text
        if name_id == 0:
            return None
        text = names_get(&self.names, name_id, &size)
        if text == NULL:
            raise IndexError(f"name ids are 1 to {len(self)}, was {name_id}")
        if (self.names.entries[name_id].size != size
                or self.names.entries[name_id].hash != name_hash(
                    &self.names.header.key, text, size)):
            return None
        return PyBytes_FromStringAndSize(<const char*> text, size)

    def __getitem__(self, name_id: int) -> str | None:
        """Return a name as text (`name_text`), or None, as `bytes` does."""
        text = self.bytes(name_id)
        return None if text is None else name_text(text)

    @property
    def exchanges(self) -> list[int]:
        """Ids of names that are exchanges, the first 30; empty: the writer does not say."""
        cdef const NameEntry* entry = self.names.entries
        cdef uint32_t count = min(entry.size, <uint32_t>NAMES_EXCHANGES_MAX), i
        cdef uint64_t known = names_count(&self.names)
        ids = [(<const uint32_t*>entry.text)[i] for i in range(count)]
        return [each for each in ids if 0 < each <= known]

    def intern(self, name: str | builtins.bytes, exchange: bool = False) -> int:
        """Return the id of a name, which may be new.

        Return 0 if the table is full, or if the name is longer than 120 bytes.

        Parameters
        ----------
        name : str or bytes
        exchange : bool
            It is an exchange's; a name that the table has already stays what it was.

        Raises
        ------
        ValueError
            The memory is read-only.
        """
        cdef const uint8_t[::1] text
        if not self._writable:
            raise ValueError("the memory of this name table is read-only")
        encoded = name.encode() if isinstance(name, str) else bytes(name)
        if not encoded:
            return names_intern(&self.names, <const uint8_t*> "", 0, exchange)
        text = encoded
        return names_intern(&self.names, &text[0], <uint32_t> text.shape[0], exchange)
