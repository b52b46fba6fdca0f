"""The walk over SBE messages: a flat table of instructions, made once per schema.

    message    header | block | group: dimensions, rows (each: block | groups | data) | data
    plan       for each message: GROUP .. END for a group and its contents, DATA, .., END
    walk       for each level (root or group): where its rows are; for each row: where its data is

A walk copies nothing; rows are copied when they are asked for. Every length and count is compared
with the bytes that are left before it is used. A message that does not fit leaves no row.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.payload.sbe.walk cimport (
    DEPTH_MAX, HEADER_NUMBERS, IS_BLOCK_BEYOND, IS_BYTES_LEFT, IS_COUNT_BEYOND, IS_DATA_BEYOND,
    IS_FOREIGN, IS_GROUP_BEYOND, IS_HEADER_SHORT, IS_OTHER, IS_ROWS_MANY, IS_SOUND, IS_UNKNOWN,
    NOWHERE, NO_MEMORY, OP_DATA, OP_END, OP_GROUP_END, ROOM_MIN, ROWS_EMPTY_MAX, Data, Frame, Level,
    Number, Op, Place, Result, Row, Template, load, number, refuse, level_reserve, level_add,
    row_begin, data_step, group_begin)

from enum import IntEnum

import numpy as np

__all__ = ["DAMAGE", "DATA", "ROW", "Plan", "Verdict", "Walk", "bytes_places"]


class Verdict(IntEnum):
    """The outcome of walking over a payload.

    From HEADER_SHORT on the payload is damaged: its lengths and counts do not fit its bytes. A
    damaged payload has no rows.
    """

    SOUND = IS_SOUND
    OTHER = IS_OTHER
    FOREIGN = IS_FOREIGN
    UNKNOWN = IS_UNKNOWN
    HEADER_SHORT = IS_HEADER_SHORT
    BLOCK_BEYOND = IS_BLOCK_BEYOND
    GROUP_BEYOND = IS_GROUP_BEYOND
    DATA_BEYOND = IS_DATA_BEYOND
    COUNT_BEYOND = IS_COUNT_BEYOND
    ROWS_MANY = IS_ROWS_MANY
    BYTES_LEFT = IS_BYTES_LEFT


ROW = np.dtype([("payload", "i8"), ("parent", "i8"), ("offset", "u8"), ("version", "u8"),
                ("size", "u8")])
DATA = np.dtype([("offset", "u8"), ("size", "u8")])
DAMAGE = np.dtype([("payload", "i8"), ("verdict", "i4"), ("op", "i4"), ("at", "u8"),
                   ("wanted", "u8"), ("found", "u8"), ("template", "i8")])
if ROW.itemsize != sizeof(Row) or DATA.itemsize != sizeof(Data):
    raise ImportError(f"rows must have {sizeof(Row)} bytes, dtypes have {ROW.itemsize}")
if DAMAGE.itemsize != sizeof(Result):
    raise ImportError(f"damage must have {sizeof(Result)} bytes, have {DAMAGE.itemsize}")


cdef class Plan:
    """The instructions for all messages of a schema.

    Parameters
    ----------
    big : bool
        True for big endian.
    schema_id, version : int
        Of the schema.
    header_size : int
        Bytes of a message's header.
    header : sequence of tuple
        `(offset, width, constant, high)` of blockLength, templateId, schemaId, version.
    templates : sequence of tuple
        `(id, level, level_end, first)`, sorted by id.
    ops : sequence of tuple
        `(code, level, slot, beyond, header, flat, since, length, count)`; the last two as in
        `header`.
    slots : sequence of int
        For each level, how many data its rows have.
    """

    cdef Op* ops
    cdef Template* templates
    cdef Number[HEADER_NUMBERS] header
    cdef readonly int template_count
    cdef readonly int level_count
    cdef readonly list slots
    cdef uint64_t header_size
    cdef uint64_t schema_id
    cdef uint64_t version
    cdef bint big

    def __cinit__(self, *, big, schema_id, version, header_size, header, templates, ops, slots):
        cdef int i
        self.big = big
        self.schema_id = schema_id
        self.version = version
        self.header_size = header_size
        self.slots = list(slots)
        self.level_count = len(slots)
        self.template_count = len(templates)
        self.templates = <Template*>calloc(len(templates) + 1, sizeof(Template))
        self.ops = <Op*>calloc(len(ops) + 1, sizeof(Op))
        if self.templates == NULL or self.ops == NULL:
            raise MemoryError
        for i in range(HEADER_NUMBERS):
            set_number(&self.header[i], header[i])
        for i, (number, level, level_end, first) in enumerate(templates):
            self.templates[i].id = number
            self.templates[i].level = level
            self.templates[i].level_end = level_end
            self.templates[i].first = first
        for i, op in enumerate(ops):
            self.ops[i].code = op[0]
            self.ops[i].level = op[1]
            self.ops[i].slot = op[2]
            self.ops[i].beyond = op[3]
            self.ops[i].header = op[4]
            self.ops[i].flat = op[5]
            self.ops[i].since = op[6]
            set_number(&self.ops[i].length, op[7])
            set_number(&self.ops[i].count, op[8])

    def __dealloc__(self):
        free(self.templates)
        free(self.ops)

    def template(self, payload):
        """Return the index of a payload's template.

        Return -1 if the schema does not have it, None if the payload is shorter than a header.
        """
        cdef Py_buffer view
        cdef int found
        cdef const uint8_t* data
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        data = <const uint8_t*>view.buf
        if <uint64_t>view.len < self.header_size:
            PyBuffer_Release(&view)
            return None
        found = -1
        if number(&self.header[2], data, self.big) == self.schema_id:
            found = self.find(number(&self.header[1], data, self.big))
        PyBuffer_Release(&view)
        return found

    cdef int find(self, uint64_t id) noexcept nogil:
        # Search by halves: a schema has some dozens of templates.
        cdef int low = 0, high = self.template_count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.templates[middle].id < id:
                low = middle + 1
            else:
                high = middle
        return low if low < self.template_count and self.templates[low].id == id else -1

    cdef int64_t walk_message(
        self, Level* levels, const uint8_t* data, uint64_t size, uint64_t begin, int64_t payload,
        int wanted, bint joined, Result* result,
    ) noexcept nogil:
        # Walk over the message at `begin`. Return where it ends, or -1, with the reason in
        # `result`. On entry `result` has the template of the message before, which the next one
        # often repeats.
        cdef uint64_t length, id
        cdef Place place
        cdef bint is_newer
        cdef const Template* template
        cdef int found, i
        cdef int64_t end
        if unlikely(size - begin < self.header_size):
            refuse(result, IS_HEADER_SHORT, -1, begin, self.header_size, size - begin)
            return -1
        if unlikely(number(&self.header[2], data + begin, self.big) != self.schema_id):
            refuse(result, IS_FOREIGN, -1, begin, self.schema_id,
                   number(&self.header[2], data + begin, self.big))
            return -1
        found = result.template
        id = number(&self.header[1], data + begin, self.big)
        if self.templates[found].id != id or self.template_count == 0:
            found = self.find(id)
        if unlikely(found < 0):
            refuse(result, IS_UNKNOWN, -1, begin, 0, id)
            return -1
        result.template = found
        # If only one message is wanted, the others are walked over only to find where the next
        # begins.
        if wanted >= 0 and found != wanted and not joined:
            result.verdict = IS_OTHER
            return -1
        template = &self.templates[found]
        length = number(&self.header[0], data + begin, self.big)
        place.data = data
        place.size = size
        place.at = begin + self.header_size
        place.version = number(&self.header[3], data + begin, self.big)
        place.rows_left = size - begin + ROWS_EMPTY_MAX
        place.payload = payload
        if unlikely(length > size - place.at):
            refuse(result, IS_BLOCK_BEYOND, -1, place.at, length, size - place.at)
            return -1
        for i in range(template.level, template.level_end):
            levels[i].mark = levels[i].count
        if unlikely(not level_reserve(&levels[template.level], 1)):
            result.verdict = NO_MEMORY
            return -1
        level_add(&levels[template.level], &place, -1, length)
        place.at += length
        end = self.walk_rows(levels, template, &place, result)
        is_newer = place.version > self.version
        if end >= 0 and not joined and not is_newer and <uint64_t>end != size:
            refuse(result, IS_BYTES_LEFT, -1, end, 0, size - <uint64_t>end)
            end = -1
        if unlikely(end < 0) or (wanted >= 0 and found != wanted):
            if end >= 0:
                result.verdict = IS_OTHER
            for i in range(template.level, template.level_end):
                levels[i].count = levels[i].mark
        return end

    cdef int64_t walk_rows(
        self, Level* levels, const Template* template, Place* place, Result* result,
    ) noexcept nogil:
        # Walk over the groups and data behind the root block. Return where they end, or -1.
        cdef Frame[DEPTH_MAX + 1] frames
        cdef Frame* frame = &frames[0]
        cdef int32_t index = template.first
        cdef const Op* op
        cdef Level* level
        cdef uint64_t length = 0, count = 0
        frame.row = levels[template.level].count - 1
        while True:
            op = &self.ops[index]
            if op.code == OP_END:
                return place.at
            if op.code == OP_GROUP_END:
                frame.left -= 1
                if frame.left == 0:
                    frame -= 1
                    index += 1
                    continue
                index = frame.op
                if unlikely(not row_begin(&levels[op.level], place, index, frame, result)):
                    return -1
                index += 1
                continue
            if op.since > place.version:
                index = op.beyond
                continue
            if op.code == OP_DATA:
                if unlikely(not data_step(&levels[op.level], op, place, index, frame.row, self.big,
                                          result)):
                    return -1
                index += 1
                continue
            if unlikely(not group_begin(op, place, index, self.big, &length, &count, result)):
                return -1
            if count == 0:
                index = op.beyond
                continue
            level = &levels[op.level]
            if op.flat:
                if unlikely(not level_reserve(level, count)):
                    result.verdict = NO_MEMORY
                    return -1
                while count:
                    level_add(level, place, frame.row, length)
                    place.at += length
                    count -= 1
                index = op.beyond
                continue
            frame += 1
            frame.op = index
            frame.left = count
            frame.size = length
            if unlikely(not row_begin(level, place, index, frame, result)):
                return -1
            index += 1

    def walk(self, const uint64_t[::1] addresses, const uint64_t[::1] sizes, keep, *,
             int wanted=-1, int prefix=-1):
        """Walk over payloads.

        Parameters
        ----------
        addresses, sizes : ndarray of uint64
            Address and size in bytes of each payload.
        keep : object
            Owns their memory; the walk keeps it alive.
        wanted : int
            Index of the only template to walk over; -1: all.
        prefix : int
            -1: a payload is one message. 0: it is several messages, one after another. Larger: it
            is several messages, each behind this many bytes, of which the first two are the size
            of both.

        Returns
        -------
        Walk

        Raises
        ------
        MemoryError
            There is not enough memory for all rows.
        """
        cdef Walk walk = Walk.__new__(Walk)
        cdef int64_t i, count = addresses.shape[0]
        cdef Result last
        cdef bint whole = True
        if sizes.shape[0] != count:
            raise ValueError(f"expected {count} sizes, found {sizes.shape[0]}")
        walk.prepare(self, np.asarray(addresses), keep)
        memset(&last, 0, sizeof(last))
        with nogil:
            for i in range(count):
                last.payload = i
                whole = self.walk_payload(walk, <const uint8_t*>addresses[i], sizes[i], wanted,
                                          prefix, &last)
                if unlikely(not whole):
                    break
        if not whole:
            raise MemoryError("not enough memory for the rows of these messages")
        return walk

    cdef bint walk_payload(
        self, Walk walk, const uint8_t* data, uint64_t size, int wanted, int prefix, Result* last,
    ) noexcept nogil:
        # Walk over all messages of a payload, and keep its first damage. Return False if there is
        # no memory.
        cdef uint64_t begin = 0, span
        cdef int64_t end
        cdef bint is_told = False
        if prefix >= 0 and size == 0:
            return True
        while True:
            last.verdict = IS_SOUND
            span = size - begin
            if prefix > 0:
                span = load(data + begin, 2, False) if span >= <uint64_t>prefix else 0
                if unlikely(span < <uint64_t>prefix or span > size - begin):
                    refuse(last, IS_HEADER_SHORT, -1, begin, max(span, <uint64_t>prefix),
                           size - begin)
                    span = size - begin  # nobody knows where the next one begins
            end = -1
            if last.verdict == IS_SOUND:
                end = self.walk_message(walk.levels, data, begin + span, begin + max(prefix, 0),
                                        last.payload, wanted, prefix == 0, last)
            if unlikely(last.verdict == NO_MEMORY):
                return False
            walk.tally[last.verdict] += 1
            if unlikely(last.verdict > IS_OTHER and not is_told):
                is_told = True
                if not walk.keep_damage(last):
                    return False
            if prefix < 0 or (prefix == 0 and end < 0):
                return True
            begin = begin + span if prefix else <uint64_t>end
            if begin == size:
                return True

    def read(self, bytes payload not None):
        """Walk over one message.

        Returns
        -------
        tuple
            The index of its template, and for each of its levels a list of rows: `(parent, offset,
            version, size, spans)`, where `spans` has `(offset, size)` for each data, or None if it
            is absent. For a damaged message None, and what `Walk.damage` has for it.
        """
        cdef Level* levels = <Level*>calloc(self.level_count + 1, sizeof(Level))
        cdef Result last
        cdef const Template* template
        cdef const uint8_t* data = payload
        cdef uint64_t size = len(payload)
        cdef int i
        if levels == NULL:
            raise MemoryError
        memset(&last, 0, sizeof(last))
        for i in range(self.level_count):
            levels[i].slots = self.slots[i]
        try:
            with nogil:
                self.walk_message(levels, data, size, 0, 0, -1, False, &last)
            if last.verdict == NO_MEMORY:
                raise MemoryError("not enough memory for the rows of this message")
            if last.verdict != IS_SOUND:
                return None, last
            template = &self.templates[last.template]
            return last.template, [
                level_list(&levels[i]) for i in range(template.level, template.level_end)]
        finally:
            for i in range(self.level_count):
                free(levels[i].rows)
                free(levels[i].data)
            free(levels)


cdef list level_list(const Level* level):
    cdef int64_t i, slot
    cdef const Row* row
    cdef const Data* data
    rows = []
    for i in range(level.count):
        row = &level.rows[i]
        spans = []
        for slot in range(i * level.slots, (i + 1) * level.slots):
            data = &level.data[slot]
            spans.append(None if data.offset == NOWHERE else (data.offset, data.size))
        rows.append((row.parent, row.offset, row.version, row.size, spans))
    return rows


def bytes_places(list payloads not None):
    """Return addresses and sizes of bytes objects. Keep these alive while the results are used."""
    cdef int64_t i, count = len(payloads)
    cdef bytes payload
    addresses, sizes = np.empty(count, np.uint64), np.empty(count, np.uint64)
    cdef uint64_t[::1] to_addresses = addresses
    cdef uint64_t[::1] to_sizes = sizes
    for i in range(count):
        payload = payloads[i]
        to_addresses[i] = <uint64_t><const char*>payload
        to_sizes[i] = len(payload)
    return addresses, sizes


@cython.final
cdef class Walk:
    """Where the rows of all messages of a batch are.

    Attributes
    ----------
    counts : dict of Verdict to int
        How many messages got each verdict.
    """

    cdef Level* levels
    cdef readonly Plan plan
    cdef Result* damaged         # the first damage of each damaged payload
    cdef int64_t damaged_count
    cdef int64_t damaged_room
    cdef int64_t[IS_BYTES_LEFT + 1] tally
    cdef object keep
    cdef const uint64_t[::1] addresses

    def __init__(self):
        raise TypeError("a Walk is made by Plan.walk")

    cdef int prepare(self, Plan plan, addresses, keep) except -1:
        cdef int i
        self.plan = plan
        self.keep = keep
        self.addresses = addresses
        memset(self.tally, 0, sizeof(self.tally))
        self.levels = <Level*>calloc(plan.level_count + 1, sizeof(Level))
        if self.levels == NULL:
            raise MemoryError
        for i in range(plan.level_count):
            self.levels[i].slots = plan.slots[i]
        return 0

    def __dealloc__(self):
        cdef int i
        if self.levels != NULL:
            for i in range(self.plan.level_count):
                free(self.levels[i].rows)
                free(self.levels[i].data)
            free(self.levels)
        free(self.damaged)

    cdef bint keep_damage(self, const Result* result) noexcept nogil:
        cdef int64_t room = max(2 * self.damaged_room, ROOM_MIN)
        cdef void* grown
        if self.damaged_count == self.damaged_room:
            grown = realloc(self.damaged, room * sizeof(Result))
            if grown == NULL:
                return False
            self.damaged = <Result*>grown
            self.damaged_room = room
        self.damaged[self.damaged_count] = result[0]
        self.damaged_count += 1
        return True

    def damage(self):
        """Return the first damage of each damaged payload, dtype `DAMAGE`."""
        damage = np.empty(self.damaged_count, DAMAGE)
        cdef uint64_t target = damage.ctypes.data
        if self.damaged_count:
            memcpy(<void*>target, self.damaged, self.damaged_count * sizeof(Result))
        return damage

    cdef Level* level(self, int64_t index) except NULL:
        if not 0 <= index < self.plan.level_count:
            raise IndexError(f"this schema has {self.plan.level_count} levels, was {index}")
        return &self.levels[index]

    @property
    def counts(self):
        """How many messages got each verdict; each message of a payload has its own."""
        counts = {verdict: self.tally[<int>verdict] for verdict in Verdict}
        return {verdict: count for verdict, count in counts.items() if count}

    def count(self, int64_t level) -> int:
        """Return how many rows a level has."""
        return self.level(level).count

    def rows(self, int64_t level):
        """Return where the rows of a level are, dtype `ROW`; a copy."""
        cdef Level* found = self.level(level)
        rows = np.empty(found.count, ROW)
        cdef uint64_t target = rows.ctypes.data
        if found.count:
            memcpy(<void*>target, found.rows, found.count * sizeof(Row))
        return rows

    def data(self, int64_t level):
        """Return where the data of each row is, shape (rows, slots), dtype `DATA`; a copy."""
        cdef Level* found = self.level(level)
        data = np.empty((found.count, found.slots), DATA)
        cdef uint64_t target = data.ctypes.data
        if found.count * found.slots:
            memcpy(<void*>target, found.data, found.count * found.slots * sizeof(Data))
        return data

    def gather(self, int64_t level, const uint8_t[::1] absent, const int64_t[:, ::1] leaves,
               const uint64_t[::1] since):
        """Return the blocks of a level's rows, one after another.

        Parameters
        ----------
        level : int
            Index of the level.
        absent : ndarray of uint8
            A block with all fields absent, which completes a row shorter than the schema's.
        leaves : ndarray of int64
            Offset and end of each single value in the block.
        since : ndarray of uint64
            The version that brought each of them.

        Returns
        -------
        ndarray of uint8
            Shape (rows * size,); a copy.
        """
        cdef Level* found = self.level(level)
        cdef int64_t size = absent.shape[0], i, j, count = leaves.shape[0]
        cdef uint64_t newest = max(since, default=0)
        cdef const Row* row
        cdef uint8_t* target
        cdef const uint8_t* none = &absent[0] if size else NULL
        gathered = np.empty(found.count * size, np.uint8)
        cdef uint64_t address = gathered.ctypes.data
        if size == 0:
            return gathered
        with nogil:
            target = <uint8_t*>address
            for i in range(found.count):
                row = &found.rows[i]
                if row.size >= <uint64_t>size and row.version >= newest:
                    memcpy(target, <const uint8_t*>self.addresses[row.payload] + row.offset, size)
                else:
                    memcpy(target, <const uint8_t*>self.addresses[row.payload] + row.offset,
                           min(row.size, <uint64_t>size))
                    if row.size < <uint64_t>size:
                        memcpy(target + row.size, none + row.size, size - row.size)
                    for j in range(count):
                        if since[j] > row.version or <uint64_t>leaves[j, 1] > row.size:
                            memcpy(target + leaves[j, 0], none + leaves[j, 0],
                                   leaves[j, 1] - leaves[j, 0])
                target += size
        return gathered

    def texts(self, int64_t level, int64_t slot):
        """Return one data of all rows: offsets (rows + 1), bytes, and which rows lack it."""
        cdef Level* found = self.level(level)
        cdef int64_t i
        cdef uint64_t total = 0
        cdef const Data* data
        if not 0 <= slot < found.slots:
            raise IndexError(f"these rows have {found.slots} data, was {slot}")
        offsets = np.zeros(found.count + 1, np.int64)
        absent = np.zeros(found.count, np.uint8)
        cdef int64_t[::1] ends = offsets
        cdef uint8_t[::1] lacking = absent
        for i in range(found.count):
            data = &found.data[i * found.slots + slot]
            lacking[i] = data.offset == NOWHERE
            total += data.size
            ends[i + 1] = total
        joined = np.empty(total, np.uint8)
        cdef uint64_t address = joined.ctypes.data
        with nogil:
            for i in range(found.count):
                data = &found.data[i * found.slots + slot]
                if data.size:
                    memcpy(<void*>(address + <uint64_t>ends[i]),
                           <const uint8_t*>self.addresses[found.rows[i].payload] + data.offset,
                           data.size)
        return offsets, joined, absent.view(np.bool_)


cdef int set_number(Number* into, said) except -1:
    into.offset, into.width, into.constant, into.high = said
    return 0
