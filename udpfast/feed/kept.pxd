# What a run keeps: its newest datagrams, each as its line brought it, in a ring.

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memcpy

from udpfast.core.layout cimport Datagram
from udpfast.feed.run cimport (
    BYTES_EMPTY, BYTES_SAME, CLAIM_NONE, RUN_BACK_MAX, RUN_KEPT, RUN_PROVING, RUN_REVIVED, Evidence,
    KeptUnit, Run, run_first, run_span, run_step,
)
from udpfast.wire.unit cimport Unit


cdef inline void run_keep(
    Run* run, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # The first of copies that follow each other is enough.
    cdef KeptUnit* kept
    if run.kept_total:
        kept = run_place(run, run.kept_total - 1)
        if kept.datagram == run.packing.datagram:
            kept.units += 1
            return
        if kept.size == d.size and memcmp(run_kept_data(kept), d.data, d.size) == 0:
            return
    kept = run_place(run, run.kept_total)
    kept.received_ns = d.received_ns
    kept.datagram = run.packing.datagram
    kept.units = 1
    kept.size = d.size
    kept.flags = <uint16_t>d.flags
    kept.known_in = 0
    kept.unit = unit[0]
    memcpy(run_kept_data(kept), d.data, d.size)
    run.kept_total += 1


cdef inline void run_keep_known(
    Run* run, const Datagram* d, const Unit* unit, const Evidence* e,
) noexcept nogil:
    # The current numbering may have had the same bytes.
    cdef KeptUnit* kept
    run_keep(run, d, unit)
    kept = run_place(run, run.kept_total - 1)
    if e.bytes == BYTES_SAME or (e.bytes == BYTES_EMPTY and e.repeated):
        if kept.units == 1:
            kept.known_in = run.proof
    elif kept.units > 1:
        kept.known_in = 0


cdef inline bint run_is_copy(const Run* run, const KeptUnit* kept) noexcept nogil:
    # What the current numbering had, and went on: it was a copy of that.
    return kept.known_in != 0 and kept.known_in != run.proof


cdef inline uint8_t* run_kept_data(KeptUnit* kept) noexcept nogil:
    return <uint8_t*>kept + sizeof(KeptUnit)


cdef inline KeptUnit* run_place(Run* run, uint32_t n) noexcept nogil:
    return <KeptUnit*>(run.kept + <size_t>(n % run.kept_capacity) * run.kept_stride)


cdef inline uint32_t run_kept_count(const Run* run) noexcept nogil:
    return run.kept_total if run.kept_total < run.kept_capacity else run.kept_capacity


cdef inline bint run_is_full(const Run* run) noexcept nogil:
    # Whether the next datagram that is kept takes an older one's place.
    return run.kept_total >= run.kept_capacity


cdef inline KeptUnit* run_kept(Run* run, uint32_t i) noexcept nogil:
    # The i-th of those kept, oldest first.
    return run_place(run, run.kept_total - run_kept_count(run) + i)


cdef inline void run_begin_at(
    Run* run, uint64_t session_id, uint64_t number,
) noexcept nogil:
    # What a run of this session holds from before this number was delivered then.
    cdef KeptUnit* kept
    cdef uint32_t i
    if run.claim == CLAIM_NONE or run.session_id != session_id:
        return
    for i in range(run_kept_count(run)):
        kept = run_kept(run, i)
        if run_step(run, kept.unit.number, number) < 0:
            kept.known_in = run.proof % 0xFFFF + 1
    if run_step(run, run_first(run), number) < 0:
        run.first = number
        run.broken = 0


cdef inline bint run_returns(
    Run* run, const Datagram* d, const Unit* unit,
) noexcept nogil:
    # A copy of a unit of a refuted run, or one that lies between them, does not break it off: it is
    # kept with them. Other bytes than are kept begin another run.
    cdef KeptUnit* kept
    cdef uint32_t count = run_kept_count(run)
    cdef uint32_t i
    if run.mode == RUN_PROVING or run.session_id != unit.session:
        return False
    if not 0 <= run_step(run, run.furthest, unit.number) <= run_span(
        run, RUN_BACK_MAX,
    ):
        return False
    if run_step(run, unit.number, run.first) < 0:
        return False
    for i in range(count - RUN_KEPT if count > RUN_KEPT else 0, count):
        kept = run_kept(run, i)
        if kept.unit.fragment == unit.fragment and kept.unit.number == unit.number:
            if kept.size != d.size or memcmp(run_kept_data(kept), d.data, d.size):
                return False
    if run.mode != RUN_REVIVED or run_step(run, unit.number, run.returned_first) < 0:
        run.returned_first = unit.number
    run.mode = RUN_REVIVED
    run_keep(run, d, unit)
    return True
