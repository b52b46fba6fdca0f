"""One file of a journal, created before its use and filled once. Protocol: `segment.pxd`."""

import collections
import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from libc.errno cimport EINVAL, errno
from libc.stdint cimport INT64_MAX, INT64_MIN
from libc.string cimport memcpy, memset

from udpfast.core.oserr cimport check
from udpfast.shm.mapping cimport map_file

from udpfast.errors import RegionError
from udpfast.shm.lock import check_file, mode_below, open_existing

__all__ = [
    "SEGMENT_ENTRY",
    "SEGMENT_FORMAT",
    "Segment",
    "SegmentInfo",
    "SegmentSurvey",
    "aside_path",
    "list_segments",
    "segment_file_bytes",
    "segment_path",
    "segments_identities",
    "segments_identity",
    "set_aside",
]

cdef bytes _MAGIC = b"UDPFSEG\0"
_NAME = re.compile(r"([0-9]{8,19})\.segment")

#: Version of the fields by which a segment is walked. Readers know every version from 3 on.
SEGMENT_FORMAT: int = SEGMENT_VERSION

#: One entry of a segment's index by time.
SEGMENT_ENTRY: np.dtype[np.void] = np.dtype([
    ("position", "<u8"), ("index", "<u8"), ("before_ns", "<i8"), ("counted", "<u4"),
    ("checksum", "<u4"),
])

cdef extern from "<fcntl.h>" nogil:
    enum:
        FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
    int fallocate(int fd, int mode, long offset, long length)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int fd)

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void* address, size_t size, int advice)

cdef enum:
    MADV_POPULATE_WRITE = 23     # Linux 5.14; the headers of many a libc are older

for _what, _size, _expected in (
    ("SegmentHeader", sizeof(SegmentHeader), 192),
    ("SegmentSeal", sizeof(SegmentSeal), 80),
    ("SegmentEntry", sizeof(SegmentEntry), SEGMENT_ENTRY.itemsize),
):
    if _size != _expected:
        raise ImportError(f"{_what} has {_size} bytes, not {_expected}")


class SegmentInfo(Struct, frozen=True):
    """Contents of one segment's header and seal.

    Attributes
    ----------
    path : pathlib.Path
    identity : bytes
        Identity of the journal, 16 bytes.
    number : int
        Number of the segment, from 1; it is the file's name.
    position, index : int
        Position and index of its first record, where the previous segment ended.
    end_position, end_index : int or None
        Position and index behind its last record; None while it is not sealed.
    first_ns, last_ns : int
        Earliest and latest `published_ns`, UNIX ns; 0 if it is empty or not sealed.
    durable : bool
        Everything was on the disk when it was sealed.
    last : bool
        The writer closed the journal when it sealed it, and no writer opened it since.
    oldest_position, oldest_index : int
        Position and index of the first record that the journal had when it was sealed; 0 if it
        is not sealed.
    names : int
        Number of the file of names that its records use; 0: none.
    names_mark : int
        Mark that identifies that file among others of its number; 0: not stated.
    layout_hash : int
        Hash of the layouts of its records.
    opened_ns : int
        When it was begun, UNIX ns.
    epoch : int
        Epoch of the journal's writer.
    name : str
        Name of the instance.
    capacity_bytes : int
        Room for records.
    source : bytes
        Identity of the ring that its first record comes from; zeros: not stated.
    source_index : int
        Index of that record in the ring.
    """

    path: Path
    identity: bytes
    number: int
    position: int
    index: int
    end_position: int | None
    end_index: int | None
    first_ns: int
    last_ns: int
    durable: bool
    last: bool
    oldest_position: int
    oldest_index: int
    names: int
    names_mark: int
    layout_hash: int
    opened_ns: int
    epoch: int
    name: str
    capacity_bytes: int
    source: bytes
    source_index: int


def segment_path(directory: str | os.PathLike[str], number: int) -> Path:
    """Return the path of a segment's file."""
    return Path(directory) / f"{number:08}.segment"


def list_segments(directory: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of a journal's segments in increasing order."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[1]) for match in found if match)


def segment_file_bytes(capacity_bytes: int) -> int:
    """Return the size of the file of a segment with `capacity_bytes` for records."""
    return _first_byte(capacity_bytes) + capacity_bytes


def segments_identity(directory: str | os.PathLike[str]) -> bytes | None:
    """Return the identity that most segments of a directory have; None: there is no majority."""
    found = segments_identities(directory).most_common(2)
    if len(found) == 2 and found[0][1] == found[1][1]:
        return None
    return found[0][0] if found else None


def segments_identities(directory: str | os.PathLike[str]) -> Counter[bytes]:
    """Return the number of segments of each identity in a directory."""
    found = collections.Counter()
    for number in list_segments(directory):
        try:
            found[Segment.open(segment_path(directory, number)).info().identity] += 1
        except (FileNotFoundError, RegionError):
            continue
    return found


def aside_path(path: Path) -> Path:
    """Return the name that `set_aside` would give a file."""
    for count in itertools.count(1):
        target = path.with_name(f"{path.name}.aside-{count}")
        if not target.exists():
            return target


def set_aside(path: Path) -> Path:
    """Rename a file that is no part of the journal; return its new path. Nothing is deleted."""
    return path.rename(aside_path(path))


class SegmentSurvey(NamedTuple):
    """Result of reading a segment to its end.

    Attributes
    ----------
    end_position, end_index : int
        Position and index behind the last valid record, or where its records should end.
    first_ns, last_ns : int
        Earliest and latest `published_ns`.
    missing : int
        Records that should be there but are not valid.
    damaged_position : int
        Where the first of them begins.
    places : int
        Number of runs of them.
    rest_bytes : int
        Bytes written behind the end of a segment that has not been ended. 0 unless asked for.
    """

    end_position: int
    end_index: int
    first_ns: int
    last_ns: int
    missing: int
    damaged_position: int
    places: int
    rest_bytes: int


cdef class Segment:
    """A segment's file, mapped into memory. Made by `prepare` or `open`.

    Attributes
    ----------
    path : pathlib.Path
    """

    def __cinit__(self):
        self.fd = -1

    @staticmethod
    def prepare(path: str | os.PathLike[str], capacity_bytes: int) -> Segment:
        """Create the file of a future segment, with all its space on the disk reserved.

        Raises
        ------
        OSError
            ENOSPC: the file system has no room for it; the message has the needed and free bytes.
        """
        cdef Segment segment = Segment.__new__(Segment)
        cdef uint64_t first_byte = _first_byte(capacity_bytes)
        cdef Py_ssize_t size = first_byte + <uint64_t>capacity_bytes
        path = Path(path)
        path.unlink(missing_ok=True)
        mode = mode_below(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                     mode & 0o700)
        segment.fd = fd
        segment.path = path
        try:
            os.fchmod(fd, mode)
            # Without disk space for a page, the writer's store to it would raise SIGBUS.
            _reserve(fd, path, size)
            segment._map(size, True)
        except BaseException:
            segment.close()
            path.unlink(missing_ok=True)
            raise
        segment._place(first_byte, capacity_bytes)
        return segment

    @staticmethod
    def open(path: str | os.PathLike[str], writable: bool = False) -> Segment:
        """Map an existing segment and check its header.

        Parameters
        ----------
        path : str or path
        writable : bool
            Open it for writing, and restore the size of a file that was truncated.

        Raises
        ------
        RegionError
            The header is not valid; the message says what was expected and what was found.
        """
        cdef Segment segment = Segment.__new__(Segment)
        cdef uint64_t first_byte, capacity
        path = Path(path)
        segment.path = path
        segment.fd = open_existing(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            size = check_file(segment.fd, path)
            if size < SEGMENT_PAGE:
                raise RegionError(f"{path}: expected at least {SEGMENT_PAGE} bytes, found {size}")
            segment._map(size, writable)
            if not writable:  # use the checked copy, whatever happens to the file
                memcpy(&segment.header_copy, segment.pointer, sizeof(SegmentHeader))
                segment.header = &segment.header_copy
            segment._check()
            first_byte, capacity = segment.header.first_byte, segment.header.capacity
            if writable and <uint64_t>size < first_byte + capacity:
                # A crash of the file system truncated it: the missing bytes come back as zeros.
                size = first_byte + capacity
                _reserve(segment.fd, path, size)
                segment._map(size, True)
            segment._place(first_byte, capacity)
            segment.limit = min(capacity, max(<uint64_t>size, first_byte) - first_byte)
            if not writable:
                os.close(segment.fd)
                segment.fd = -1
        except BaseException:
            segment.close()
            raise
        return segment

    def _map(self, Py_ssize_t size, bint writable):
        self.mapping = map_file(self.fd, size, writable, False)
        self.pointer = self.mapping.pointer
        self.header = <SegmentHeader*>self.pointer
        self.seal = <SegmentSeal*>(self.pointer + SEGMENT_SEAL)
        self.entries = <SegmentEntry*>(self.pointer + SEGMENT_PAGE)

    def _place(self, uint64_t first_byte, uint64_t capacity):
        self.records = self.pointer + first_byte
        self.entry_count = capacity // SEGMENT_STRIDE + 1
        self.limit = capacity
        # The file was truncated inside the index.
        if <uint64_t>self.mapping.size_bytes < first_byte:
            self.entry_count = (self.mapping.size_bytes - SEGMENT_PAGE) // sizeof(SegmentEntry)

    def _check(self):
        cdef SegmentHeader* header = self.header
        match = _NAME.fullmatch(self.path.name)
        number = int(match[1]) if match else header.number
        for what, expected, found in (
            ("magic", _MAGIC, header.magic[:8]),
            ("version", SEGMENT_VERSION, header.version),
            ("checksum", f"{checksum_of(header, sizeof(SegmentHeader)):08x}",
             f"{header.checksum:08x}"),
            ("number", number, header.number),
            ("first byte", _first_byte(header.capacity), header.first_byte),
        ):
            if expected != found:
                raise RegionError(f"{self.path}: expected {what} {expected!r}, found {found!r}")

    @property
    def layout_hash(self) -> int:
        """Hash of the layouts of its records and of their payloads."""
        return self._open_header().layout_hash

    def info(self) -> SegmentInfo:
        """Return the contents of the segment's header and seal."""
        cdef SegmentHeader* header = self._open_header()
        cdef SegmentSeal* seal = self.seal
        cdef bint sealed = self.sealed()
        cdef bint filled = sealed and seal.index > header.index
        return SegmentInfo(
            path=self.path, identity=header.identity[:IDENTITY_SIZE], number=header.number,
            position=header.position, index=header.index,
            end_position=seal.position if sealed else None,
            end_index=seal.index if sealed else None,
            first_ns=seal.first_ns if filled else 0, last_ns=seal.last_ns if filled else 0,
            durable=sealed and seal.flags & SEAL_DURABLE != 0,
            last=sealed and seal.flags & SEAL_LAST != 0,
            oldest_position=seal.oldest_position if sealed else 0,
            oldest_index=seal.oldest_index if sealed else 0, names=header.names,
            names_mark=header.names_mark, layout_hash=header.layout_hash,
            opened_ns=header.opened_ns, epoch=header.epoch,
            name=header.name[:SEGMENT_NAME_SIZE].rstrip(b"\0").decode(errors="replace"),
            capacity_bytes=header.capacity, source=header.source[:IDENTITY_SIZE],
            source_index=header.source_index)

    def index(self) -> NDArray[Any]:
        """Return the valid entries of the index by time, an array of dtype `SEGMENT_ENTRY`."""
        cdef uint64_t i, count = 0
        self._open_header()
        found = np.zeros(self.entry_count, SEGMENT_ENTRY)
        cdef SegmentEntry* target = <SegmentEntry*><size_t>found.ctypes.data
        for i in range(self.entry_count):
            memcpy(target + count, self.entries + i, sizeof(SegmentEntry))
            count += _valid(target + count)
        return found[:count]

    def view(self) -> memoryview:
        """Return a memoryview of the whole file. The view keeps the mapping alive after `close`."""
        self._open_header()
        return memoryview(self.mapping)

    def close(self) -> None:
        """Release the file. Views stay valid. Idempotent."""
        self.pointer = NULL
        self.mapping = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            os.close(self.fd)

    cdef SegmentHeader* _open_header(self) except NULL:
        if self.pointer == NULL:
            raise ValueError(f"segment {self.path} is closed")
        return self.header

    # --- for those who fill it: a journal's writer, and recovery --------------------------------

    cdef begin(self, SegmentHeader* header):
        # Make this a segment of a journal. The caller has filled the other fields of `header`.
        memcpy(header.magic, <const char*>_MAGIC, 8)
        header.version = SEGMENT_VERSION
        header.capacity = self.limit
        header.first_byte = self.records - self.pointer
        header.checksum = checksum_of(header, sizeof(SegmentHeader))
        memcpy(self.header, header, sizeof(SegmentHeader))

    cdef uint64_t room_end(self) noexcept nogil:
        # Return the position at which the room for records ends.
        return self.header.position + self.limit - min(self.limit, <uint64_t>SEGMENT_END_SIZE)

    cdef void start(self, SegmentWriter* w, bint enter) noexcept nogil:
        # Put a writer before the first record. enter: write the index anew on the way.
        w.position = self.header.position
        w.base = <uint64_t><size_t>self.records - w.position
        w.limit = self.room_end()
        w.index = self.header.index
        w.beyond = 0 - w.index
        w.entry_due = w.position
        w.entry = self.entries if enter else NULL
        w.entries_end = self.entries + self.entry_count if enter else NULL
        w.first_ns = INT64_MAX
        w.last_ns = INT64_MIN

    cdef int scan(self, SegmentWriter* w) noexcept nogil:
        # Move `w` over all valid records that follow. Returns why it stopped: LOOK_*.
        cdef int64_t size
        cdef uint64_t offset
        cdef const Record* record
        while True:
            offset = min(w.position - self.header.position, self.limit)
            size = record_look(
                self.records + offset, self.limit - offset, w.position, w.index)
            if size <= 0:
                return <int>size
            record = <const Record*>(self.records + offset)
            if w.position >= w.entry_due:
                segment_enter(w)
            w.first_ns = min(w.first_ns, record.published_ns)
            w.last_ns = max(w.last_ns, record.published_ns)
            w.beyond += stands_for(self.records + offset) - 1
            w.position += size
            w.index += 1

    def read_to_end(
            self, uint64_t end_position, uint64_t end_index, bint deep, *, bint rest = False
            ) -> SegmentSurvey:
        """Read the whole segment, across damage, to its end.

        Parameters
        ----------
        end_position, end_index : int
            Where its records end, if it has no seal; 0: unknown.
        deep : bool
            Also search for records where none are known to be.
        rest : bool
            Count `rest_bytes`, too.
        """
        cdef Survey found
        cdef uint64_t behind = 0
        with nogil:
            self.survey(end_position, end_index, deep, &found)
            if rest and not found.ended and not self.sealed():
                behind = self.written_behind(found.writer.position)
        return SegmentSurvey(
            found.writer.position, found.writer.index, found.writer.first_ns,
            found.writer.last_ns, found.missing, found.damaged_position, found.places, behind)

    cdef void survey(
            self, uint64_t end_position, uint64_t end_index, bint deep,
            Survey* found) noexcept nogil:
        # Read the whole segment, across damage, up to the known end of its records: the seal's, or
        # else end_position (0: unknown). deep: also search for records where none are known to be.
        cdef SegmentWriter* w = &found.writer
        cdef uint64_t position = 0, index = 0
        cdef bint more, sealed = self.sealed()
        memset(found, 0, sizeof(Survey))
        if sealed:
            end_position, end_index = self.seal.position, self.seal.index
        elif end_position - self.header.position > self.limit:
            end_position = end_index = 0  # the end lies in a later segment
        self.start(w, False)
        while True:
            found.ended = self.scan(w) == LOOK_END
            if w.position >= end_position if sealed else found.ended:
                return
            more = self.find_behind(w.position, &position, &index)
            if not more and w.position < end_position:
                more = True
                if not self.find_valid(w.position, w.index, &position, &index) or (
                        position > end_position):
                    position, index = end_position, end_index
            if not more and deep:
                more = self.find_valid(w.position, w.index, &position, &index)
            if not more:
                return
            if found.missing == 0:
                found.damaged_position = w.position
            found.missing += index - w.index
            found.places += 1
            w.position, w.index = position, index

    cdef uint64_t written_behind(self, uint64_t position) noexcept nogil:
        # Return how many bytes lie between `position` and the last byte that is not 0.
        cdef uint64_t offset = min(position - self.header.position, self.limit)
        cdef uint64_t end = self.limit
        while end > offset and self.records[end - 1] == 0:
            end -= 1
        return end - offset

    cdef uint64_t cut(self, SegmentWriter* w) noexcept nogil:
        # Zero everything behind the writer: records, index and seal. Returns how many bytes had
        # been written behind the last valid record.
        cdef uint64_t size = self.written_behind(w.position)
        memset(segment_place(w), 0, size)
        if w.entry != NULL:
            memset(w.entry, 0, <uint8_t*>w.entries_end - <uint8_t*>w.entry)
        memset(self.seal, 0, sizeof(SegmentSeal))
        return size

    cdef void write_seal(
            self, const SegmentWriter* w, int64_t now_ns, uint64_t flags,
            uint64_t oldest_position, uint64_t oldest_index) noexcept nogil:
        cdef SegmentSeal seal
        memset(&seal, 0, sizeof(seal))
        seal.position = w.position
        seal.index = w.index
        seal.first_ns = w.first_ns
        seal.last_ns = w.last_ns
        seal.sealed_ns = now_ns
        seal.flags = flags
        seal.number = self.header.number
        seal.oldest_position = oldest_position
        seal.oldest_index = oldest_index
        seal.checksum = checksum_of(&seal, sizeof(seal))
        memcpy(self.seal, &seal, sizeof(seal))

    cdef void seal_as_earlier(self) noexcept nogil:
        # The journal continues behind this segment: its seal must no longer say that it is the
        # last.
        cdef SegmentSeal seal
        memcpy(&seal, self.seal, sizeof(seal))
        seal.flags &= ~<uint64_t>SEAL_LAST
        seal.checksum = checksum_of(&seal, sizeof(seal))
        memcpy(self.seal, &seal, sizeof(seal))

    cdef void release_rest(self, uint64_t used) noexcept nogil:
        # Return the disk space behind `used` bytes of records (and END) to the file system, if it
        # supports that. The file keeps its size, so that no mapping of it becomes invalid.
        cdef uint64_t first = self.records - self.pointer + used + SEGMENT_END_SIZE
        first = (first + SEGMENT_PAGE - 1) & ~<uint64_t>(SEGMENT_PAGE - 1)
        if first < <uint64_t>self.mapping.size_bytes:
            fallocate(self.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, <long>first,
                      <long>(self.mapping.size_bytes - first))

    cdef int sync(self) noexcept nogil:
        # Return 0 once everything written before the call is on the disk, or -errno.
        return -errno if fdatasync(self.fd) != 0 else 0

    cdef int populate(self, uint64_t until) noexcept nogil:
        # Touch the pages of the file's first `until` bytes, so that the writer does not have to:
        # the first touch costs 8 times a store. Returns 0 or -errno.
        cdef uint64_t page = SEGMENT_PAGE
        until = min((until + page - 1) & ~(page - 1), <uint64_t>self.mapping.size_bytes)
        if until <= self.populated:
            return 0
        if madvise(self.pointer + self.populated, until - self.populated, MADV_POPULATE_WRITE):
            if errno != EINVAL:  # before Linux 5.14: the writer's stores touch them
                return -errno
        self.populated = until
        return 0

    # --- for readers ----------------------------------------------------------------------------

    cdef bint sealed(self) noexcept nogil:
        # Return whether the segment is sealed, that is, has a seal with a valid checksum.
        cdef SegmentSeal* seal = self.seal
        return (seal.checksum == checksum_of(seal, sizeof(SegmentSeal)) and seal.sealed_ns != 0
                and seal.number == self.header.number
                and seal.position >= self.header.position
                and seal.position - self.header.position <= self.header.capacity)

    cdef bint find_behind(
            self, uint64_t after, uint64_t* position, uint64_t* index) noexcept nogil:
        # Find the first valid record behind position `after` that the index names, to continue
        # behind damaged bytes. False: there is none.
        cdef uint64_t i
        cdef SegmentEntry entry
        for i in range(self.entry_count):
            memcpy(&entry, self.entries + i, sizeof(entry))
            if _valid(&entry) and entry.position > after and self._holds(&entry):
                position[0] = entry.position
                index[0] = entry.index
                return True
        return False

    cdef bint find_valid(
            self, uint64_t after, uint64_t least, uint64_t* position,
            uint64_t* index) noexcept nogil:
        # Find the first valid record behind position `after` at any multiple of 8: a record knows
        # its own position. Its index must be `least` or more. For damage behind the last entry;
        # nothing follows a record that was torn when its writer was killed.
        cdef uint64_t offset = min(after - self.header.position, self.limit) + 8
        cdef const Record* record
        while offset + RECORD_SIZE <= self.limit:
            record = <const Record*>(self.records + offset)
            if (record.position == self.header.position + offset and record.index >= least
                    and record_look(self.records + offset, self.limit - offset, record.position,
                                    record.index) > 0):
                position[0] = record.position
                index[0] = record.index
                return True
            offset += 8
        return False

    cdef void find_start(
            self, uint64_t position, int64_t published_ns, uint64_t* found,
            uint64_t* index) noexcept nogil:
        # Find a record to begin reading at, such that no record is missed that lies at or behind
        # `position` and was published at or after published_ns.
        cdef uint64_t i
        cdef SegmentEntry entry
        found[0] = self.header.position
        index[0] = self.header.index
        for i in range(self.entry_count):
            memcpy(&entry, self.entries + i, sizeof(entry))
            if entry.checksum == 0 and entry.before_ns == 0:
                break
            if not _valid(&entry):
                continue
            if entry.position > position and entry.before_ns >= published_ns:
                break
            if ((entry.position <= position or entry.before_ns < published_ns)
                    and self._holds(&entry)):
                found[0] = entry.position
                index[0] = entry.index

    cdef bint count_to(self, uint64_t index, uint64_t* source_index) noexcept nogil:
        # Find the index in the source of a record of the segment, or of the one behind its last, by
        # counting from the nearest index entry before it. False: not every record in between is
        # readable, and the result is a lower bound. Records behind the segment's end may be of
        # another source.
        cdef uint64_t i, position = self.header.position, at = self.header.index, until = index
        cdef uint64_t source = self.header.source_index
        cdef int64_t size
        cdef const uint8_t* record
        cdef SegmentEntry entry
        if self.sealed():
            until = min(index, self.seal.index)
        for i in range(self.entry_count):
            memcpy(&entry, self.entries + i, sizeof(entry))
            if entry.checksum == 0 and entry.before_ns == 0:
                break
            if _valid(&entry) and entry.counted != 0 and at < entry.index <= index:
                # `counted` has the low bits of that index, which lies behind the one known so far.
                source += <uint32_t>(self.header.source_index + entry.counted - source)
                position, at = entry.position, entry.index
        while at < until:
            i = position - self.header.position
            if i >= self.limit:
                break
            record = self.records + i
            size = record_look(record, self.limit - i, position, at)
            if size == LOOK_END:
                until = at
            if size <= 0:
                break
            source += stands_for(record)
            position += size
            at += 1
        # Each unreadable record stands for at least one, except that the first may be a LAPPED
        # about the previous log only, where a log begins.
        source_index[0] = source + (until - at) - (at < until and at == self.header.index and (
            self.header.source_index == 0))
        return at == index

    cdef bint count_back(
            self, uint64_t position, uint64_t index, uint64_t end, uint64_t end_source,
            uint64_t* source_index) noexcept nogil:
        # Find the index in the source of the record at a place, or of the one behind the segment's
        # last, by counting back from record `end`, whose index in the source is known. False: not
        # every record in between is readable.
        cdef uint64_t i, at = index, stood_for = 0
        cdef int64_t size
        while at < end:
            i = position - self.header.position
            if i >= self.limit:
                return False
            size = record_look(self.records + i, self.limit - i, position, at)
            if size <= 0:
                return False
            stood_for += stands_for(self.records + i)
            position += size
            at += 1
        source_index[0] = end_source - stood_for
        return at == end and stood_for <= end_source

    cdef bint _holds(self, const SegmentEntry* entry) noexcept nogil:
        cdef uint64_t offset = entry.position - self.header.position
        return (entry.position >= self.header.position and offset < self.limit
                and offset % 8 == 0
                and record_look(self.records + offset, self.limit - offset, entry.position,
                                entry.index) > 0)


cdef bint _valid(const SegmentEntry* entry) noexcept nogil:
    return entry.checksum == checksum_of(entry, sizeof(SegmentEntry))


cdef uint64_t _first_byte(uint64_t capacity):
    cdef uint64_t size = SEGMENT_PAGE + (capacity // SEGMENT_STRIDE + 1) * sizeof(SegmentEntry)
    return (size + SEGMENT_PAGE - 1) & ~<uint64_t>(SEGMENT_PAGE - 1)


def _reserve(fd, path, size):
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        space = os.statvfs(path.parent)
        check(-error.errno, f"reserve {size} bytes ({space.f_bavail * space.f_frsize} free)",
              str(path))
