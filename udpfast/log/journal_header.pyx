"""The file `journal`, as its next writer takes it up: checked, made anew, or told to be a copy.

Two journals never have one identity. A copy has that of its original, and may keep it as long as
nobody records on in it: all that is read from either is the same. So the file `journal` says which
file it is itself, by its inode and the time when that was born. A writer that finds another one
there makes the copy a journal of its own, with its records: it draws an identity, and gives it to
the segments too. Until all have it, the file has the former one as well, for a writer that goes on
where this one was killed.
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


#: What stands for no journal where one is named.
NO_IDENTITY: bytes = bytes(IDENTITY_SIZE)


cdef Region take_header(
        directory, WrittenMark* written, KeptMark* kept, bint* made, list notes, bytes identity):
    # Become the writer of a directory's file `journal`: that which is there, or a new one, if it is
    # lost or cannot be believed. Its last marks are in `written` and `kept`. identity: of a new
    # one, that copies another host's; None: its own.
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
    return _make(path, directory, written, kept, identity)


def is_copy(directory: Path) -> bool:
    """Return whether the file `journal` is not the one that its writer made, but a copy of it.

    Of a directory that was renamed, or whose host was started again, it is not. False, too, if
    there is none, or one that does not say what it is: that is for the next writer.
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
    """Have a copy go on as the journal that it is a copy of: that one is not written any more.

    Raises
    ------
    FileNotFoundError, RegionError, WriterExistsError
        There is no journal; it is damaged; a living process writes it.
    """
    cdef Region region = Region.reopen_for_write(
        directory / "journal", JOURNAL_KIND, JOURNAL_LAYOUT)
    cdef JournalHeader* header = _header(region)
    try:
        header_identity(header, region.path)  # which is whole
        _name(region, header.identity[:IDENTITY_SIZE], header.former[:IDENTITY_SIZE])
        check(_sync(region), "sync", str(region.path))
        region.mark_ready()
    finally:
        region.close()


cdef _check(Region region, directory, WrittenMark* written, KeptMark* kept):
    # What the file says must be whole, and of this journal: that of its segments, unless the file
    # lies where it was made; then the segments are foreign.
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


cdef Region _make(path, directory, WrittenMark* written, KeptMark* kept, bytes copied):
    # A new journal's, or that of one whose segments are left.
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
    # A copy becomes a journal of its own; what a killed writer began of that is done first.
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
    # A file that has another name too, as backups make them, is the original's: it stays.
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
    # Say which journal it is, in which file.
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
    # Whether a file is the one that a header says. Not every file system knows when it was born.
    return header.inode == inode and (
        header.born_ns == born_ns or header.born_ns == 0 or born_ns == 0)


cdef uint32_t _folder(Region region) except? 0:
    return <uint32_t>region.path.parent.stat().st_ino


cdef _look(int fd, path, uint64_t* inode, int64_t* born_ns):
    # The open file's: no other one of this file system ever has both.
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
    # None: nobody can read it.
    try:
        return Segment.open(path).info()
    except (FileNotFoundError, RegionError):
        return None


cdef JournalHeader* _header(Region region):
    return <JournalHeader*>(region.pointer + JOURNAL_HEADER)
