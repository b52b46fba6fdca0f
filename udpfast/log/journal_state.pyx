"""The state of a journal as its file `journal` has it: its identity, and how far it is written."""

import contextlib
from pathlib import Path

from msgspec import Struct

from udpfast.log.marks cimport (
    IDENTITY_BLOCK, JOURNAL_CLOSED, JOURNAL_FAILED, JOURNAL_HEADER, JournalHeader, KeptMark,
    WrittenMark, marks_kept, marks_written)
from udpfast.log.segment cimport IDENTITY_SIZE, checksum_of
from udpfast.shm.region cimport Region

from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import RegionError
from udpfast.log.journal_layouts import journal_layouts, layouts_path
from udpfast.log.segment import Segment as SegmentFace
from udpfast.log.segment import list_segments, segment_path, segments_identities, segments_identity

__all__ = [
    "JOURNAL_KIND",
    "JOURNAL_LAYOUT",
    "JournalState",
    "is_raw",
    "journal_identity",
    "journal_state",
]

#: Kind and layout of a journal's region. The layouts of its records are named by each segment.
JOURNAL_KIND = "JRNL"
JOURNAL_LAYOUT = 1  # version of JournalHeader

for _what, _size, _expected in (
    ("WrittenMark", sizeof(WrittenMark), 128),
    ("KeptMark", sizeof(KeptMark), 104),
    ("JournalHeader", sizeof(JournalHeader), 592),
):
    if _size != _expected:
        raise ImportError(f"{_what} has {_size} bytes, not {_expected}")


class JournalState(Struct, frozen=True):
    """The state that a journal's writer published last.

    Attributes
    ----------
    identity : bytes
        The journal's identity: 16 random bytes, made once.
    alive : bool
        The writer's process runs and has not closed the journal.
    closed : bool
        The writer closed it: it is complete.
    failed : bool
        It was closed because an error ended what it records; another writer may continue it.
    epoch : int
        Number of writers so far.
    position, index : int
        Position and index behind the last record.
    written_ns : int
        When that was published, UNIX ns.
    synced_position, synced_index : int
        All records below are on the disk. Later ones survive the process but may not survive a
        loss of power.
    synced_ns : int
        When they were synced, UNIX ns; 0: nothing was synced yet, or the writer never syncs.
    syncs, sync_errors, sync_longest_ns : int
        Number of syncs, of failed ones, and the duration of the longest, in ns.
    lapped, dropped : int
        Records that were overwritten before they were read, and records that the disk refused.
    removed : int
        Segments removed to make room.
    oldest_position, oldest_index : int
        Position and index of the first record that was not removed.
    cut_bytes : int
        Bytes that the last recovery cut off.
    source : bytes
        Identity of the ring that it records; zeros: not known.
    source_position, source_index : int
        Position and index in that ring of the record with which the journal continued ...
    resume_position, resume_index : int
        ... at this position and index of the journal.
    """

    identity: bytes
    alive: bool
    closed: bool
    failed: bool
    epoch: int
    position: int
    index: int
    written_ns: int
    synced_position: int
    synced_index: int
    synced_ns: int
    syncs: int
    sync_errors: int
    sync_longest_ns: int
    lapped: int
    dropped: int
    removed: int
    oldest_position: int
    oldest_index: int
    cut_bytes: int
    source: bytes
    source_position: int
    source_index: int
    resume_position: int
    resume_index: int


def journal_state(directory: str | os.PathLike[str]) -> JournalState:
    """Return the state that the writer of a journal published last.

    Raises
    ------
    RegionError, FileNotFoundError
        There is no file `journal`, or it is damaged, for example because the power failed
        while it was made. The segments may be sound all the same.
    """
    cdef Region region = Region.attach(Path(directory) / "journal", JOURNAL_KIND, JOURNAL_LAYOUT)
    with region:
        return region_state(region)


def journal_identity(directory: str | os.PathLike[str]) -> bytes:
    """Return the identity of a journal: 16 bytes that distinguish it from every other.

    It is taken from the file `journal`; if that is lost or damaged, from most of the segments.

    Raises
    ------
    FileNotFoundError
        There is no journal.
    RegionError
        Nothing of it is readable, or the file `journal` belongs to another journal.
    """
    cdef Region region
    cdef JournalHeader* header
    path = Path(directory) / "journal"
    try:
        region = Region.attach(path, JOURNAL_KIND, JOURNAL_LAYOUT)
        with region:
            header = <JournalHeader*>(region.pointer + JOURNAL_HEADER)
            identity = header_identity(header, path)
            former = header.former[:IDENTITY_SIZE]
    except (FileNotFoundError, RegionError):
        identity = segments_identity(directory)
        if identity is None:
            raise
        return identity
    others = segments_identities(directory)
    if others and identity not in others and former not in others:
        raise RegionError(
            f"{path}: expected journal {others.most_common(1)[0][0].hex()}, like the segments, "
            f"found {identity.hex()}")
    return identity


def is_raw(directory: str | os.PathLike[str]) -> bool:
    """Return whether a journal is a raw capture, whose payloads are datagrams, not updates.

    The first readable segment decides; if there is none yet, the layouts beside the segments.
    False if neither is known.
    """
    for number in list_segments(directory):
        try:
            segment = SegmentFace.open(segment_path(directory, number))
        except (FileNotFoundError, RegionError):
            continue
        if segment.layout_hash == CONTROL_LAYOUTS.hash:
            return True
        with contextlib.suppress(RegionError):  # whoever reads the records reports the error
            return journal_layouts(directory, segment.layout_hash).raw
        return False
    return layouts_path(directory, CONTROL_LAYOUTS.hash).exists()


cdef bytes header_identity(const JournalHeader* header, path):
    if header.checksum != checksum_of(header, IDENTITY_BLOCK):
        raise RegionError(f"{path}: expected an identity with its checksum, found other bytes")
    return header.identity[:IDENTITY_SIZE]


cdef region_state(Region region):
    cdef JournalHeader* header = <JournalHeader*>(region.pointer + JOURNAL_HEADER)
    cdef WrittenMark written
    cdef KeptMark kept
    identity = header_identity(header, region.path)
    alive = region.writer_alive()  # before its mark: who ends in between is not dead
    if not marks_kept(header, &kept) or not marks_written(header, &written):
        raise RegionError(f"{region.path}: expected marks with their checksum, found other bytes")
    closed = written.state in (JOURNAL_CLOSED, JOURNAL_FAILED)
    return JournalState(
        identity=identity, alive=alive and not closed, closed=closed,
        failed=written.state == JOURNAL_FAILED,
        epoch=written.epoch, position=written.position, index=written.index,
        written_ns=written.written_ns, synced_position=kept.synced_position,
        synced_index=kept.synced_index, synced_ns=kept.synced_ns, syncs=kept.syncs,
        sync_errors=kept.sync_errors, sync_longest_ns=kept.sync_longest_ns,
        lapped=written.lapped, dropped=written.dropped, removed=kept.removed,
        oldest_position=kept.oldest_position, oldest_index=kept.oldest_index,
        cut_bytes=written.cut_bytes, source=written.source[:IDENTITY_SIZE],
        source_position=written.source_position, source_index=written.source_index,
        resume_position=written.resume_position, resume_index=written.resume_index)
