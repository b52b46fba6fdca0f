# Segment: one file of a journal: a header, a sparse index by time, and the records one behind the
# other.
#
#   0        512    4096            first_byte
#   +--------+------+---------------+------------------------------------------------------+
#   | header | seal | index entries | record, record, ..., END, zeros (a hole in the file) |
#   +--------+------+---------------+------------------------------------------------------+
#
# The protocol, in six rules:
#
#   1. The record at position p lies at first_byte + (p - header.position). Records follow each
#      other without a hole; position and index continue from one segment to the next.
#   2. A record's commit word is stored last, with release; 0 means "not there yet". A committed
#      byte never changes. Each record's checksum is the CRC32C of all its bytes, padding
#      included, with the checksum itself taken as 0.
#   3. END, a commit word of its own, follows a segment's last record; the next record is the
#      next segment's first. END takes no position.
#   4. The seal says where the segment ends. It is written once no record will follow and, if the
#      journal is synced at all, once everything before it is on the disk (SEAL_DURABLE).
#   5. Header, seal and index entries have checksums of their own. An entry is a hint, to be
#      checked against the record that it names.
#
#   6. The fields needed to walk the records have the same place in every version: length, kind,
#      position, index, published_ns, checksum (core/layouts). Other fields are found by name.
#
# So the files alone determine what is valid; recovery (log/recovery) needs nothing else.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.check cimport unlikely
from udpfast.core.crc32c cimport (
    CRC32C_BEGIN, crc32c_copied, crc32c_fast, crc32c_word, crc32c_words, load_word)
from udpfast.core.layout cimport (
    KIND_LAPPED, KIND_PAD, LAPPED_UNKNOWN, Lapped, RECORD_SIZE, Record)
from udpfast.shm.mapping cimport Mapping

cdef enum:
    SEGMENT_VERSION = 3
    SEGMENT_PAGE = 4096
    SEGMENT_SEAL = 512           # in a disk sector of its own, which is written as a whole
    SEGMENT_STRIDE = 65536       # bytes of records per index entry: 10 us of reading
    SEGMENT_END_SIZE = 8         # bytes of END
    SEGMENT_BYTES_MIN = 1 << 18  # holds the largest message
    SEGMENT_BYTES_MAX = 1 << 30  # keeps sizes within the i32 of a record's length
    SEGMENT_NAME_SIZE = 64
    IDENTITY_SIZE = 16           # random bytes, made once, that identify a journal or a ring

cdef enum:  # SealFlag
    SEAL_DURABLE = 1             # everything was on the disk before the seal was written
    SEAL_LAST = 2                # the writer closed the journal here, and nobody opened it since
    SEAL_DAMAGED = 4             # its times are those of the readable records only

cdef packed struct SegmentHeader:  # 192 bytes
    char magic[8]                # "UDPFSEG\0"
    uint32_t version
    uint32_t names               # number of the file of names that its records use; 0: none
    uint64_t layout_hash         # hash of the layouts of its records, which lie beside it
    uint64_t number              # of the segment, from 1; it is the file's name
    uint64_t position            # of its first record, where the previous segment ended
    uint64_t index
    uint64_t capacity            # bytes for records and END
    uint64_t first_byte          # offset of the records in the file: a multiple of SEGMENT_PAGE
    int64_t opened_ns            # UNIX ns
    uint64_t epoch               # of the journal's writer
    uint8_t identity[16]         # of the journal
    uint8_t source[16]           # of the ring that its first record comes from; zeros: not stated
    uint64_t source_index        # in that ring: a recorder that continues counts from here. (If a
    # feed writes the segment itself: the session at its beginning.)
    char name[64]                # of the instance, UTF-8, padded with zeros
    uint32_t names_mark          # mark that the file of names must have; 0: not stated
    uint32_t checksum            # CRC32C of all before it

cdef packed struct SegmentSeal:  # 80 bytes
    uint64_t position            # behind its last record
    uint64_t index
    int64_t first_ns             # the earliest published_ns; INT64_MAX if it is empty
    int64_t last_ns              # the latest published_ns; INT64_MIN if it is empty
    int64_t sealed_ns            # UNIX ns
    uint64_t flags               # SealFlag
    uint64_t number              # of the segment
    uint64_t oldest_position     # of the first record that the journal had when it was sealed
    uint64_t oldest_index
    uint32_t reserved
    uint32_t checksum            # CRC32C of all before it

cdef packed struct SegmentEntry:  # 32 bytes
    uint64_t position            # of a record
    uint64_t index               # of that record
    int64_t before_ns            # the latest published_ns in this segment before it
    uint32_t counted             # records of its source that precede it in this segment, including
    # those that LAPPEDs stand for, modulo 2^32; 0: none, or not stated
    uint32_t checksum            # CRC32C of all before it

cdef enum:  # results of record_look if there is no valid record
    LOOK_NONE = 0                # not there yet
    LOOK_END = -1                # the segment ends here
    LOOK_INVALID = -2            # bytes that are no record


cdef inline uint64_t segment_end_word() noexcept nogil:
    return SEGMENT_END_SIZE | (<uint64_t>KIND_PAD << 32)


cdef inline uint32_t checksum_of(const void* at, uint64_t size) noexcept nogil:
    # CRC32C of a struct that ends with its checksum, which counts as 0. `size` is a multiple of 8.
    cdef uint64_t word = 0
    cdef uint64_t state = crc32c_words(CRC32C_BEGIN, <const uint8_t*>at, size - 8)
    memcpy(&word, <const uint8_t*>at + size - 8, 4)
    return <uint32_t>~crc32c_words(state, <const uint8_t*>&word, 8)


cdef inline uint64_t record_size(uint64_t length) noexcept nogil:
    return (length + 7) & ~<uint64_t>7


cdef inline uint64_t header_state(
        uint64_t word_0, uint64_t word_1, uint64_t word_2, uint64_t word_3, uint64_t word_4,
        uint64_t word_5, uint64_t word_6, uint64_t word_7) noexcept nogil:
    # Return the CRC32C state after a record's header. It takes registers, because the writer's
    # words come from different places: loads from memory would wait for the stores that assemble
    # them.
    cdef uint64_t[8] words
    cdef uint64_t state
    if not crc32c_fast():
        words = [word_0, word_1, word_2, word_3, word_4, word_5, word_6, word_7]
        return crc32c_words(CRC32C_BEGIN, <const uint8_t*>words, RECORD_SIZE)
    state = crc32c_word(CRC32C_BEGIN, word_0)
    state = crc32c_word(state, word_1)
    state = crc32c_word(state, word_2)
    state = crc32c_word(state, word_3)
    state = crc32c_word(state, word_4)
    state = crc32c_word(state, word_5)
    state = crc32c_word(state, word_6)
    return crc32c_word(state, word_7)


cdef inline uint32_t record_checksum(const uint8_t* at, uint64_t size) noexcept nogil:
    # Return the checksum of a record that is padded with zeros to `size` and 8-aligned. Its
    # checksum field (the upper half of word 7) counts as 0.
    cdef const uint64_t* words = <const uint64_t*>at
    cdef uint64_t state = header_state(
        words[0], words[1], words[2], words[3], words[4], words[5], words[6], <uint32_t>words[7])
    return <uint32_t>~crc32c_words(state, at + RECORD_SIZE, size - RECORD_SIZE)


cdef inline int64_t record_look(
        const uint8_t* at, uint64_t room, uint64_t position, uint64_t index) noexcept nogil:
    # Return the size of the record at `at`, checked completely, or LOOK_*. It must have this
    # position and index. room: bytes of the segment from `at` on.
    cdef const Record* record = <const Record*>at
    cdef uint64_t word, length, size
    if room < SEGMENT_END_SIZE:
        return LOOK_INVALID
    # Acquire: the record's bytes are read after its commit word (segment_append).
    word = load_acquire(<const uint64_t*>at)
    if word == 0:
        return LOOK_NONE
    if word == segment_end_word():
        return LOOK_END
    length = <uint32_t>word
    size = record_size(length)
    if length < RECORD_SIZE or size > room:
        return LOOK_INVALID
    if record.position != position or record.index != index:
        return LOOK_INVALID
    if record_checksum(at, size) != record.checksum:
        return LOOK_INVALID
    return <int64_t>size

# --- writing ----------------------------------------------------------------------------------

cdef struct SegmentWriter:
    uint64_t base                # the address of position 0, if it were in memory
    uint64_t limit               # position at which the room for records ends; 0: no segment
    uint64_t position            # of the next record
    uint64_t index
    uint64_t beyond              # index + beyond is `counted` for the next record
    uint64_t entry_due           # position from which on an index entry is due
    SegmentEntry* entry          # the next index entry
    SegmentEntry* entries_end
    int64_t first_ns
    int64_t last_ns


cdef inline uint8_t* segment_place(const SegmentWriter* w) noexcept nogil:
    # Return where the next record begins.
    return <uint8_t*><size_t>(w.base + w.position)


cdef inline void segment_enter(SegmentWriter* w) noexcept nogil:
    # Add the next record to the index.
    cdef SegmentEntry entry
    if w.entry == w.entries_end:
        return
    entry.position = w.position
    entry.index = w.index
    entry.before_ns = w.last_ns
    entry.counted = <uint32_t>(w.index + w.beyond)
    entry.checksum = checksum_of(&entry, sizeof(entry))
    memcpy(w.entry, &entry, sizeof(entry))
    w.entry += 1
    w.entry_due += SEGMENT_STRIDE


cdef inline uint64_t stands_for(const uint8_t* at) noexcept nogil:
    # Return how many records of its source a record stands for: one, unless it is a LAPPED. A
    # LAPPED of reason UNKNOWN, at the beginning of another log, adds one to `missed` for the
    # unknown number of records of the previous log; it does not count here.
    cdef const Lapped* lapped = <const Lapped*>(at + RECORD_SIZE)
    cdef uint64_t word = (<const uint64_t*>at)[0]
    if <uint8_t>(word >> 32) != KIND_LAPPED or <uint32_t>word < RECORD_SIZE + sizeof(Lapped):
        return 1
    return lapped.missed - (lapped.reason == LAPPED_UNKNOWN)


cdef inline bint segment_append(
        SegmentWriter* w, const Record* header, const uint8_t* payload) noexcept nogil:
    # Append a copy of a record with the position, index and checksum that it gets in this journal.
    # False: it does not fit, and nothing was changed. The header's words stay in registers between
    # load and store.
    cdef const uint8_t* source = <const uint8_t*>header
    cdef uint64_t* place = <uint64_t*>segment_place(w)
    cdef uint64_t commit = load_word(source)
    cdef uint64_t word_3 = load_word(source + 24)
    cdef uint64_t word_4 = load_word(source + 32)
    cdef uint64_t word_5 = load_word(source + 40)
    cdef uint64_t word_6 = load_word(source + 48)
    cdef uint64_t word_7 = <uint32_t>load_word(source + 56)
    cdef uint64_t length = <uint32_t>commit
    cdef uint64_t size = record_size(length)
    cdef uint64_t state
    if w.position + size > w.limit:
        return False
    if w.position >= w.entry_due:
        segment_enter(w)
    state = header_state(commit, w.position, w.index, word_3, word_4, word_5, word_6, word_7)
    if length != RECORD_SIZE:    # `payload` may have anything in its padding; here it is zeros
        state = crc32c_copied(state, <uint8_t*>(place + 8), payload, length - RECORD_SIZE)
    place[1] = w.position
    place[2] = w.index
    place[3] = word_3
    place[4] = word_4
    place[5] = word_5
    place[6] = word_6
    place[7] = word_7 | ~state << 32
    # Orders the whole record before its commit word; read by record_look in any process.
    store_release(place, commit)
    if <int64_t>word_4 < w.first_ns:
        w.first_ns = <int64_t>word_4
    if <int64_t>word_4 > w.last_ns:
        w.last_ns = <int64_t>word_4
    if unlikely(<uint8_t>(commit >> 32) == KIND_LAPPED):
        w.beyond += stands_for(<uint8_t*>place) - 1
    w.position += size
    w.index += 1
    return True


cdef inline bint segment_has_room(const SegmentWriter* w, uint64_t size) noexcept nogil:
    # Return whether a record of `size` bytes, padding included, fits at segment_place.
    return w.position + size <= w.limit


cdef inline void segment_commit(
        SegmentWriter* w, int kind, int line, int flags, uint32_t payload_size) noexcept nogil:
    # Make the record visible that was filled in place: the payload, and the header behind `index`.
    # Until now its first word is 0. The bytes behind it may hold anything, because more room was
    # claimed.
    cdef uint64_t* place = <uint64_t*>segment_place(w)
    cdef uint64_t length = RECORD_SIZE + <uint64_t>payload_size
    cdef uint64_t size = record_size(length)
    cdef uint64_t commit = (length | <uint64_t>kind << 32 | <uint64_t>line << 40
                            | <uint64_t>flags << 48)
    cdef uint64_t word_7 = <uint32_t>place[7]
    cdef uint64_t state
    if length != size:           # zero the padding: equal records have equal bytes everywhere
        (place + size // 8 - 1)[0] &= ~<uint64_t>0 >> (8 * (size - length))
    if w.position >= w.entry_due:
        segment_enter(w)
    place[1] = w.position
    place[2] = w.index
    state = header_state(
        commit, w.position, w.index, place[3], place[4], place[5], place[6], word_7)
    state = crc32c_words(state, <uint8_t*>(place + 8), size - RECORD_SIZE)
    place[7] = word_7 | ~state << 32
    (place + size // 8)[0] = 0   # the next record is not there yet; END has room here
    # Orders the whole record, and the 0 behind it, before its commit word; read by record_look.
    store_release(place, commit)
    w.first_ns = min(w.first_ns, <int64_t>place[4])
    w.last_ns = max(w.last_ns, <int64_t>place[4])
    if unlikely(kind == KIND_LAPPED):
        w.beyond += stands_for(<uint8_t*>place) - 1
    w.position += size
    w.index += 1


cdef inline void segment_end(SegmentWriter* w) noexcept nogil:
    # Mark that the next record is in the next segment. There is always room for END. Release:
    # whoever reads END can read every record before it.
    store_release(<uint64_t*>segment_place(w), segment_end_word())

cdef struct Survey:              # result of reading a segment to its end
    SegmentWriter writer         # behind the last valid record, or where its records should end
    uint64_t missing             # records that should be there but are not valid
    uint64_t damaged_position    # where the first of them begins
    uint64_t places              # number of runs of them
    bint ended                   # END was found

# --- the mapped file ---------------------------------------------------------------------------

cdef class Segment:
    cdef Mapping mapping
    cdef uint8_t* pointer        # the header; NULL once closed
    cdef SegmentHeader* header
    cdef SegmentHeader header_copy  # the header as a reader checked it
    cdef SegmentSeal* seal
    cdef SegmentEntry* entries
    cdef uint64_t entry_count    # number of entries that there is room for
    cdef uint8_t* records        # where position header.position lies
    cdef uint64_t limit          # bytes of records in the file; less than capacity if it was cut
    cdef uint64_t populated      # bytes of the file that have been touched for writing
    cdef int fd                  # the writer's; -1 for readers
    cdef readonly object path
    cdef SegmentHeader* _open_header(self) except NULL
    cdef begin(self, SegmentHeader* header)
    cdef uint64_t room_end(self) noexcept nogil
    cdef void start(self, SegmentWriter* w, bint enter) noexcept nogil
    cdef int scan(self, SegmentWriter* w) noexcept nogil
    cdef void survey(
        self, uint64_t end_position, uint64_t end_index, bint deep,
        Survey* found) noexcept nogil
    cdef uint64_t written_behind(self, uint64_t position) noexcept nogil
    cdef uint64_t cut(self, SegmentWriter* w) noexcept nogil
    cdef void write_seal(
        self, const SegmentWriter* w, int64_t now_ns, uint64_t flags, uint64_t oldest_position,
        uint64_t oldest_index) noexcept nogil
    cdef void seal_as_earlier(self) noexcept nogil
    cdef void release_rest(self, uint64_t used) noexcept nogil
    cdef int sync(self) noexcept nogil
    cdef int populate(self, uint64_t until) noexcept nogil
    cdef bint sealed(self) noexcept nogil
    cdef bint find_behind(self, uint64_t after, uint64_t* position, uint64_t* index) noexcept nogil
    cdef bint find_valid(
        self, uint64_t after, uint64_t least, uint64_t* position, uint64_t* index) noexcept nogil
    cdef void find_start(
        self, uint64_t position, int64_t published_ns, uint64_t* found,
        uint64_t* index) noexcept nogil
    cdef bint count_to(self, uint64_t index, uint64_t* source_index) noexcept nogil
    cdef bint count_back(
        self, uint64_t position, uint64_t index, uint64_t end, uint64_t end_source,
        uint64_t* source_index) noexcept nogil
    cdef bint _holds(self, const SegmentEntry* entry) noexcept nogil
