# What a run holds: its newest datagrams, each as its line brought it, in a ring.

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memcpy

from udpfast.core.layout cimport Datagram
from udpfast.feed.run cimport (
    BYTES_EMPTY, BYTES_SAME, CLAIM_NONE, RUN_BACK_MAX, RUN_HELD, RUN_PROVING, RUN_REVIVED, Evidence,
    HeldUnit, Run, run_first, run_span, run_step,
)
from udpfast.wire.unit cimport Unit


cdef inline void run_hold(
    Run* c, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # The first of copies that follow each other is enough.
    cdef HeldUnit* held
    if c.held_total:
        held = run_place(c, c.held_total - 1)
        if held.datagram == c.packing.datagram:
            held.units += 1
            return
        if held.size == d.size and memcmp(run_held_data(held), d.data, d.size) == 0:
            return
    held = run_place(c, c.held_total)
    held.received_ns = d.received_ns
    held.datagram = c.packing.datagram
    held.units = 1
    held.size = d.size
    held.flags = <uint16_t>d.flags
    held.known_in = 0
    held.unit = unit[0]
    memcpy(run_held_data(held), d.data, d.size)
    c.held_total += 1


cdef inline void run_hold_known(
    Run* c, const Datagram* d, const Unit* unit, const Evidence* e,
) noexcept nogil:
    # The current numbering may have had the same bytes.
    cdef HeldUnit* held
    run_hold(c, d, unit)
    held = run_place(c, c.held_total - 1)
    if e.bytes == BYTES_SAME or (e.bytes == BYTES_EMPTY and e.repeated):
        if held.units == 1:
            held.known_in = c.proof
    elif held.units > 1:
        held.known_in = 0


cdef inline bint run_is_copy(const Run* c, const HeldUnit* held) noexcept nogil:
    # What the current numbering had, and went on: it was a copy of that.
    return held.known_in != 0 and held.known_in != c.proof


cdef inline uint8_t* run_held_data(HeldUnit* held) noexcept nogil:
    return <uint8_t*>held + sizeof(HeldUnit)


cdef inline HeldUnit* run_place(Run* c, uint32_t n) noexcept nogil:
    return <HeldUnit*>(c.held + <size_t>(n % c.held_capacity) * c.held_stride)


cdef inline uint32_t run_held_count(const Run* c) noexcept nogil:
    return c.held_total if c.held_total < c.held_capacity else c.held_capacity


cdef inline bint run_is_full(const Run* c) noexcept nogil:
    # Whether the next datagram that is held takes an older one's place.
    return c.held_total >= c.held_capacity


cdef inline HeldUnit* run_held(Run* c, uint32_t i) noexcept nogil:
    # The i-th of those held, oldest first.
    return run_place(c, c.held_total - run_held_count(c) + i)


cdef inline void run_begin_at(
    Run* c, uint64_t session_id, uint64_t number,
) noexcept nogil:
    # What a run of this session holds from before this number was delivered then.
    cdef HeldUnit* held
    cdef uint32_t i
    if c.claim == CLAIM_NONE or c.session_id != session_id:
        return
    for i in range(run_held_count(c)):
        held = run_held(c, i)
        if run_step(c, held.unit.number, number) < 0:
            held.known_in = c.proof % 0xFFFF + 1
    if run_step(c, run_first(c), number) < 0:
        c.first = number
        c.broken = 0


cdef inline bint run_returns(
    Run* c, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # A copy of a unit of a refuted run, or one that lies between them, does not break it off: it is
    # held with them. Other bytes than are held begin another run.
    cdef HeldUnit* held
    cdef uint32_t count = run_held_count(c)
    cdef uint32_t i
    if c.mode == RUN_PROVING or c.session_id != unit.session:
        return False
    if not 0 <= run_step(c, c.furthest, unit.number) <= run_span(
        c, RUN_BACK_MAX,
    ):
        return False
    if run_step(c, unit.number, c.first) < 0:
        return False
    for i in range(count - RUN_HELD if count > RUN_HELD else 0, count):
        held = run_held(c, i)
        if held.unit.fragment == unit.fragment and held.unit.number == unit.number:
            if held.size != d.size or memcmp(run_held_data(held), d.data, d.size):
                return False
    if c.mode != RUN_REVIVED or run_step(c, unit.number, c.returned_first) < 0:
        c.returned_first = unit.number
    c.mode = RUN_REVIVED
    run_hold(c, d, unit)
    return True
