# Walk: the steps over one SBE message. plan.pyx has the instructions and the order of the steps.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc

from udpfast.core.check cimport unlikely

cdef extern from *:
    """
    #define UDPFAST_NOWHERE UINT64_MAX
    """
    const uint64_t NOWHERE "UDPFAST_NOWHERE"

cdef enum:
    DEPTH_MAX = 32               # groups inside groups; parse.py refuses more
    HEADER_NUMBERS = 4           # blockLength, templateId, schemaId, version
    ROWS_EMPTY_MAX = 65_535      # rows without bytes that a message may have, beside one per byte
    ROOM_MIN = 256               # rows or data that a new table has room for

cdef enum:  # the instructions
    OP_END = 0                   # the message ends
    OP_GROUP = 1
    OP_GROUP_END = 2
    OP_DATA = 3

cdef enum:  # Verdict
    IS_SOUND = 0
    IS_OTHER = 1
    IS_FOREIGN = 2
    IS_UNKNOWN = 3
    IS_HEADER_SHORT = 4
    IS_BLOCK_BEYOND = 5
    IS_GROUP_BEYOND = 6
    IS_DATA_BEYOND = 7
    IS_COUNT_BEYOND = 8
    IS_ROWS_MANY = 9
    IS_BYTES_LEFT = 10
    NO_MEMORY = -1               # the walk failed, not a message

cdef struct Number:
    int32_t offset
    int32_t width                # bytes; 0: it is a constant
    uint64_t constant
    uint64_t high                # larger numbers are damage

cdef struct Op:
    int32_t code
    int32_t level                # of a group; of data: the level of its rows
    int32_t slot                 # of data: which of the level's data
    int32_t beyond               # of a group: the instruction behind its END
    int32_t header               # bytes
    int32_t flat                 # of a group: it contains neither groups nor data
    uint64_t since
    Number length
    Number count

cdef struct Template:
    uint64_t id
    int32_t level                # its root; its groups follow
    int32_t level_end
    int32_t first                # instruction

cdef struct Row:
    int64_t payload              # index in the batch
    int64_t parent               # row in the level above; -1: none
    uint64_t offset              # of the block in its payload
    uint64_t version             # of the schema that wrote it
    uint64_t size                # bytes of the block as written

cdef struct Data:
    uint64_t offset              # in its payload; NOWHERE: absent
    uint64_t size

cdef struct Level:
    Row* rows
    Data* data                   # `slots` per row, row after row
    int64_t count
    int64_t room
    int64_t slots
    int64_t mark                 # rows before the current message

cdef struct Frame:
    int32_t op                   # the instruction of its GROUP
    uint64_t left                # rows left, the current one included
    uint64_t size
    int64_t row

cdef struct Place:
    const uint8_t* data          # of the payload
    uint64_t size                # up to the end of the message, as far as that is known
    uint64_t at
    uint64_t version             # of the schema that wrote it
    uint64_t rows_left
    int64_t payload

cdef struct Result:
    int64_t payload
    int32_t verdict
    int32_t op                   # whose number did not fit; -1: the message's own
    uint64_t at                  # offset in the payload
    uint64_t wanted              # bytes needed from there on, or rows
    uint64_t found
    int64_t template             # the last message's


cdef inline uint64_t load(const uint8_t* at, int32_t width, bint big) noexcept nogil:
    # Read an integer of any width at any address. Compilers turn each branch into one load.
    cdef uint64_t value = 0
    cdef int32_t i
    if width == 2:
        return (<uint64_t>at[0] << 8 | at[1]) if big else (<uint64_t>at[1] << 8 | at[0])
    if width == 1:
        return at[0]
    for i in range(width):
        value |= <uint64_t>at[i] << 8 * (width - 1 - i if big else i)
    return value


cdef inline uint64_t number(
    const Number* n, const uint8_t* header, bint big,
) noexcept nogil:
    return load(header + n.offset, n.width, big) if n.width else n.constant


cdef inline bint level_reserve(Level* level, int64_t rows) noexcept nogil:
    # Make room for more rows. The room doubles, so that allocations are rare.
    cdef int64_t room
    cdef void* grown
    if level.count + rows <= level.room:
        return True
    room = max(max(2 * level.room, level.count + rows), ROOM_MIN)
    grown = realloc(level.rows, room * sizeof(Row))
    if grown == NULL:
        return False
    level.rows = <Row*>grown
    if level.slots:
        grown = realloc(level.data, room * level.slots * sizeof(Data))
        if grown == NULL:
            return False
        level.data = <Data*>grown
    level.room = room
    return True


cdef inline int64_t level_add(
    Level* level, const Place* place, int64_t parent, uint64_t size,
) noexcept nogil:
    # Add a row whose block begins here. The caller has made room for it.
    cdef int64_t row = level.count
    cdef int64_t slot
    level.rows[row].payload = place.payload
    level.rows[row].parent = parent
    level.rows[row].offset = place.at
    level.rows[row].version = place.version
    level.rows[row].size = size
    for slot in range(row * level.slots, (row + 1) * level.slots):
        level.data[slot].offset = NOWHERE
        level.data[slot].size = 0
    level.count = row + 1
    return row


cdef inline int32_t refuse(
    Result* result, int32_t verdict, int32_t op, uint64_t at, uint64_t wanted, uint64_t found,
) noexcept nogil:
    result.verdict = verdict
    result.op = op
    result.at = at
    result.wanted = wanted
    result.found = found
    return verdict


cdef inline bint row_begin(
    Level* level, Place* place, int32_t index, Frame* frame, Result* result,
) noexcept nogil:
    # Begin the next row of a group whose rows have more than a block.
    if unlikely(frame.size > place.size - place.at):
        refuse(result, IS_GROUP_BEYOND, index, place.at, frame.size, place.size - place.at)
        return False
    if unlikely(not level_reserve(level, 1)):
        result.verdict = NO_MEMORY
        return False
    frame.row = level_add(level, place, (frame - 1).row, frame.size)
    place.at += frame.size
    return True


cdef inline bint data_step(
    Level* level, const Op* op, Place* place, int32_t index, int64_t row, bint big, Result* result,
) noexcept nogil:
    # Step over one data field.
    cdef uint64_t length
    cdef uint64_t left = place.size - place.at
    if unlikely(<uint64_t>op.header > left):
        refuse(result, IS_DATA_BEYOND, index, place.at, op.header, left)
        return False
    length = number(&op.length, place.data + place.at, big)
    place.at += op.header
    left -= op.header
    if unlikely(length > op.length.high or length > left):
        refuse(result, IS_DATA_BEYOND, index, place.at, length, min(left, op.length.high))
        return False
    level.data[row * level.slots + op.slot].offset = place.at
    level.data[row * level.slots + op.slot].size = length
    place.at += length
    return True


cdef inline bint group_begin(
    const Op* op, Place* place, int32_t index, bint big, uint64_t* length, uint64_t* count,
    Result* result,
) noexcept nogil:
    # Step over a group's dimensions.
    cdef uint64_t left = place.size - place.at
    if unlikely(<uint64_t>op.header > left):
        refuse(result, IS_GROUP_BEYOND, index, place.at, op.header, left)
        return False
    length[0] = number(&op.length, place.data + place.at, big)
    count[0] = number(&op.count, place.data + place.at, big)
    place.at += op.header
    left -= op.header
    if unlikely(count[0] > op.count.high):
        refuse(result, IS_COUNT_BEYOND, index, place.at, op.count.high, count[0])
        return False
    if unlikely(count[0] > place.rows_left):
        refuse(result, IS_ROWS_MANY, index, place.at, count[0], place.rows_left)
        return False
    place.rows_left -= count[0]
    # Divide, because the product could wrap.
    if unlikely(length[0] and count[0] > left // length[0]):
        refuse(result, IS_GROUP_BEYOND, index, place.at, length[0], left)
        return False
    return True
