"""Open the file `journal` for its next writer: check it, make a new one, or recognise a copy.

Two journals that are written never share an identity. A copy has the identity of its original and
may keep it as long as nobody records into it, because both have the same records. The file
`journal` therefore stores which file it is: its inode and birth time. A writer that finds another
file than that turns the copy into a journal of its own with the same records: it draws a new
identity and writes it to the segments too. Until all segments have it, the file stores the former
identity as well, so that the next writer can finish if this one is killed.
"""

import os
import shutil

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.clock cimport clock_realtime_ns
from udpfast.core.oserr cimport check
from udpfast.log.journal_state cimport header_identity
from udpfast.log.marks cimport (
    IDENTITY_BLOCK, JOURNAL_HEADER, JOURNAL_SIZE, JournalHeader, KeptMark, WrittenMark,
    marks_kept, marks_written)
from udpfast.log.segment cimport IDENTITY_SIZE, Segment, SegmentHeader, checksum_of
from udpfast.shm.region cimport Region

from udpfast.errors import RegionError
from udpfast.log.journal_state import JOURNAL_KIND, JOURNAL_LAYOUT
from udpfast.log.segment import (
    aside_path, list_segments, segment_path, segments_identities, segments_identity)

__all__ = ["NO_IDENTITY", "adopt_copy", "is_copy"]

cdef extern from "<fcntl.h>" nogil:
    enum:
        AT_EMPTY_PATH

cdef extern from "<sys/stat.h>" nogil:
    enum:
        STATX_INO, STATX_BTIME
    struct statx_timestamp:
        int64_t tv_sec
        unsigned int tv_nsec
    struct statx_result "statx":
        unsigned int stx_mask
        uint64_t stx_ino
        statx_timestamp stx_btime
    int statx(int fd, const char* path, int flags, unsigned int mask, statx_result* found)


#: Identity that stands for "no journal".
NO_IDENTITY: bytes = bytes(IDENTITY_SIZE)


cdef Region take_header(
        directory, WrittenMark* written, KeptMark* kept, bint* made, list notes, bytes identity):
    # Become the writer of a directory's file `journal`: of the existing one, or of a new one if it
    # is lost or damaged. `written` and `kept` receive its last marks. identity: identity for a new
    # journal that copies another host's; None: draw one.
    cdef Region region = None
    path = directory / "journal"
    made[0] = False
    try:
        region = Region.reopen_for_write(path, JOURNAL_KIND, JOURNAL_LAYOUT)
        _check(region, directory, written, kept)
    except FileNotFoundError:
        pass
    except RegionError as problem:  # torn by a power cut, damaged, or another journal's
        if region is not None:
            region.close()
        notes.append(f"{problem}: set aside as {aside_path(path).name}")
    else:
        try:
            _own(region, directory, notes)
        except BaseException:
            region.close()
            raise
        return region
    made[0] = True
    return _make(path, directory, written, kept, notes, identity)


def is_copy(directory: Path) -> bool:
    """Return whether the file `journal` is a copy, not the file that its writer made.

    A renamed directory or a rebooted host does not make it a copy. False, too, if there is no
    file or it is damaged: that is left to the next writer.
    """
    cdef JournalHeader header
    cdef uint64_t inode = 0
    cdef int64_t born_ns = 0
    try:
        fd = os.open(directory / "journal", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        said = os.pread(fd, sizeof(header), JOURNAL_HEADER)
        _look(fd, directory / "journal", &inode, &born_ns)
    finally:
        os.close(fd)
    if len(said) < <Py_ssize_t>sizeof(header):
        return False
    memcpy(&header, <const char*>said, sizeof(header))
    if header.checksum != checksum_of(&header, IDENTITY_BLOCK):
        return False
    return not _is_that(&header, inode, born_ns)


def adopt_copy(directory: Path) -> None:
    """Let a copy continue under the identity of its original, which must no longer be written.

    Raises
    ------
    FileNotFoundError, RegionError, WriterExistsError
        There is no journal; it is damaged; a living process writes it.
    """
    cdef Region region = Region.reopen_for_write(
        directory / "journal", JOURNAL_KIND, JOURNAL_LAYOUT)
    cdef JournalHeader* header = _header(region)
    try:
        header_identity(header, region.path)  # raises unless the header is sound
        _name(region, header.identity[:IDENTITY_SIZE], header.former[:IDENTITY_SIZE])
        check(_sync(region), "sync", str(region.path))
        region.mark_ready()
    finally:
        region.close()


cdef _check(Region region, directory, WrittenMark* written, KeptMark* kept):
    # Check that the file is sound and belongs to the segments. If it lies where it was made, it
    # does: then segments of another identity are foreign.
    cdef JournalHeader* header = _header(region)
    identity = header_identity(header, region.path)
    if not marks_written(header, written) or not marks_kept(header, kept):
        raise RegionError(f"{region.path}: expected marks with their checksum, found other bytes")
    others = segments_identities(directory)
    if (others and identity not in others and header.former[:IDENTITY_SIZE] not in others
            and not (_is_in_place(region) and header.folder == _folder(region))):
        raise RegionError(
            f"{region.path}: expected journal {others.most_common(1)[0][0].hex()}, like the "
            f"segments, found {identity.hex()}")


cdef Region _make(
        path, directory, WrittenMark* written, KeptMark* kept, list notes, bytes copied):
    # Make the file for a new journal, or for one of which only segments are left.
    cdef Region region = Region.create(
        path, JOURNAL_KIND, JOURNAL_SIZE, JOURNAL_LAYOUT, replace=True)
    cdef JournalHeader* header = _header(region)
    memset(written, 0, sizeof(WrittenMark))
    memset(kept, 0, sizeof(KeptMark))
    identity = segments_identity(directory)
    if identity is None:
        if segments_identities(directory):
            raise RegionError(
                f"{directory}: expected segments of one journal, found those of several, and no "
                "file `journal` that tells which of them to use")
        identity = copied or os.urandom(IDENTITY_SIZE)
    else:
        notes.append(f"{path}: made anew from the segments: the former one, which may have counted "
                     "more records, is lost or damaged")
    header.made_ns = clock_realtime_ns()
    _name(region, identity, NO_IDENTITY)
    for number in list_segments(directory):
        info = _info(segment_path(directory, number))
        if info is not None and info.identity == identity:
            written.epoch = max(written.epoch, info.epoch)
            kept.oldest_position = max(kept.oldest_position, info.oldest_position)
            kept.oldest_index = max(kept.oldest_index, info.oldest_index)
    return region


cdef _own(Region region, directory, list notes):
    # Finish what a killed writer began, then turn a copy into a journal of its own.
    cdef JournalHeader* header = _header(region)
    cdef bint in_place = _is_in_place(region)
    if header.former[:IDENTITY_SIZE] != NO_IDENTITY:
        _finish(region, directory)
    if in_place:
        return
    original = header.identity[:IDENTITY_SIZE]
    _name(region, os.urandom(IDENTITY_SIZE), original)
    check(_sync(region), "sync", str(region.path))
    _finish(region, directory)
    notes.append(
        f"{directory}: is a copy of journal {original.hex()}; it continues as journal "
        f"{header.identity[:IDENTITY_SIZE].hex()}, with the same records")


cdef _finish(Region region, directory):
    cdef JournalHeader* header = _header(region)
    identity, former = header.identity[:IDENTITY_SIZE], header.former[:IDENTITY_SIZE]
    for number in list_segments(directory):
        path = segment_path(directory, number)
        info = _info(path)
        if info is not None and info.identity == former:
            _rename_segment(path, identity)
    _name(region, identity, NO_IDENTITY)
    check(_sync(region), "sync", str(region.path))


def _rename_segment(path, identity):
    # A file with several names (hard links, as backups make them) belongs to the original and must
    # not change: work on a copy of it.
    cdef Segment segment
    cdef SegmentHeader header
    alone = path
    if path.stat().st_nlink > 1:
        alone = path.with_name(f"{path.name}.copied")
        shutil.copy2(path, alone)
    segment = Segment.open(alone, writable=True)
    memcpy(&header, segment.header, sizeof(header))
    memcpy(header.identity, <const char*>identity, IDENTITY_SIZE)
    header.checksum = checksum_of(&header, sizeof(header))
    memcpy(segment.header, &header, sizeof(header))
    check(segment.sync(), "sync", str(alone))
    segment.close()
    if alone != path:
        alone.replace(path)


cdef _name(Region region, identity, former):
    # Store which journal this is, and which file.
    cdef JournalHeader* header = _header(region)
    cdef JournalHeader named
    memcpy(&named, header, sizeof(named))
    memcpy(named.identity, <const char*>identity, IDENTITY_SIZE)
    memcpy(named.former, <const char*>former, IDENTITY_SIZE)
    _look(region._fd, region.path, &named.inode, &named.born_ns)
    named.folder = _folder(region)
    named.checksum = checksum_of(&named, IDENTITY_BLOCK)
    memcpy(header, &named, IDENTITY_BLOCK)


cdef bint _is_in_place(Region region) except *:
    cdef JournalHeader* header = _header(region)
    cdef uint64_t inode = 0
    cdef int64_t born_ns = 0
    _look(region._fd, region.path, &inode, &born_ns)
    return _is_that(header, inode, born_ns)


cdef bint _is_that(const JournalHeader* header, uint64_t inode, int64_t born_ns) noexcept:
    # Return whether a file is the one that the header describes. Some file systems store no birth
    # time.
    return header.inode == inode and (
        header.born_ns == born_ns or header.born_ns == 0 or born_ns == 0)


cdef uint32_t _folder(Region region) except? 0:
    return <uint32_t>region.path.parent.stat().st_ino


cdef _look(int fd, path, uint64_t* inode, int64_t* born_ns):
    # Get inode and birth time of the open file: no other file of this file system ever has both.
    cdef statx_result found
    memset(&found, 0, sizeof(found))
    if statx(fd, b"", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &found) != 0:
        check(-errno, "look at", str(path))
    inode[0] = found.stx_ino
    born_ns[0] = 0
    if found.stx_mask & STATX_BTIME:
        born_ns[0] = found.stx_btime.tv_sec * 1_000_000_000 + found.stx_btime.tv_nsec


cdef int _sync(Region region):
    try:
        os.fsync(region._fd)
    except OSError as error:
        return -error.errno
    return 0


def _info(path):
    # None: the segment is unreadable.
    try:
        return Segment.open(path).info()
    except (FileNotFoundError, RegionError):
        return None


cdef JournalHeader* _header(Region region):
    return <JournalHeader*>(region.pointer + JOURNAL_HEADER)
