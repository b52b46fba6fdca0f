# Where a unit lies, seen from the current numbering, and what is known of it: that is what
# `numbering` weighs.

from libc.stdint cimport int64_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.check cimport unlikely
from udpfast.core.counter cimport LINE_EMPTY_FINAL, VERDICT_LATE
from udpfast.core.layout cimport Datagram
from udpfast.feed.beginning cimport beginning_is_announced
from udpfast.feed.fingerprint cimport message_hash
from udpfast.feed.lines cimport line_was_beyond
from udpfast.feed.pipeline_state cimport Pipeline, pipeline_first_hash, pipeline_look
from udpfast.feed.placing cimport pipeline_compare
from udpfast.feed.run cimport BYTES_NEW, BYTES_NONE, CLAIM_SESSION, evidence_begin, run_refute
from udpfast.feed.weighed cimport (
    PLACE_BEYOND, PLACE_KNOWN, PLACE_NAMED, PLACE_OLD, PLACE_PACKED, PLACE_SESSION, PLACE_WITHIN,
    Located,
)
from udpfast.feed.whereabouts cimport (
    numbering_is_left_over, numbering_is_straggler, numbering_may_be_late,
)
from udpfast.feed.window cimport window_is_copy, window_is_whole
from udpfast.feed.window_state cimport (
    LineAccount, Slot, Window, window_begin, window_slot, window_unwrap,
)
from udpfast.wire.unit cimport Unit


cdef inline void pipeline_locate(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit, bint adopted,
    Located* where, int64_t now_ns,
) noexcept nogil:
    # Where a unit lies, seen from the current numbering, and what is known of it.
    where.announced = False
    where.forward = False
    evidence_begin(&where.evidence)
    where.evidence.bytes = BYTES_NEW
    where.place = PLACE_SESSION
    if unlikely(unit.session != w.session_id or not w.numbering.sessions.begun):
        return
    if not p.roq and w.started and not adopted:
        where.place = PLACE_OLD
        if p.announces_start and now_ns < w.numbering.previous_until_ns:
            if unit.sent_ns < w.begun_sent_ns:
                return
        where.announced = beginning_is_announced(p, w, line, d, unit)
        if unlikely(where.announced):
            return
    where.place = PLACE_NAMED
    if unit.count == 0:
        return
    pipeline_look(p, w)
    if unlikely(unit.fragments > 1 and unit.size == 0):
        counter_add(&line.counters[LINE_EMPTY_FINAL], 1)
    if line.foreign.claim == CLAIM_SESSION:
        run_refute(&line.foreign)        # the current session speaks on this line
    if unlikely(not w.started):
        where.place = PLACE_OLD
        if numbering_is_straggler(p, w, unit, now_ns):
            return
        window_begin(w, unit.number, now_ns)
    pipeline_find(p, w, line, d, unit, where, now_ns)


cdef inline void pipeline_find(
    Pipeline* p, Window* w, LineAccount* line, const Datagram* d, const Unit* unit,
    Located* where, int64_t now_ns,
) noexcept nogil:
    # Where a unit with numbers of the current session lies. What brings nothing new is compared.
    cdef int64_t at = window_unwrap(w, unit.number)
    where.at = at
    where.last = at + unit.count - 1
    where.place = PLACE_PACKED
    if unlikely(p.undelimited) and pipeline_is_packed_otherwise(p, w, d, unit, at):
        return
    where.place = PLACE_KNOWN
    if where.last < w.next:
        where.verdict = pipeline_compare(p, w, d, unit, at, now_ns, &where.evidence)
        if where.verdict == VERDICT_LATE and numbering_may_be_late(w, now_ns):
            where.evidence.bytes = BYTES_NONE
            where.evidence.straggler = True
        return
    where.sent_after = line_was_beyond(line, where.last, unit)
    where.left_over = (
        unlikely(now_ns < w.numbering.previous_until_ns)
        and numbering_is_left_over(w, unit, at, pipeline_first_hash(p, w, d, unit))
    )
    if at >= w.next + w.size:
        where.place = PLACE_BEYOND
    elif where.sent_after or where.left_over or pipeline_is_new(w, unit, where):
        where.place = PLACE_WITHIN
    else:
        where.verdict = pipeline_compare(p, w, d, unit, at, now_ns, &where.evidence)


cdef inline bint pipeline_is_new(
    Window* w, const Unit* unit, const Located* where,
) noexcept nogil:
    # Whether a unit in the window brings anything that is not there.
    cdef int64_t at = max(where.at, w.next)
    if where.last >= w.next + w.size:
        return True
    while at < where.last:
        if not window_is_whole(w, at):
            return True
        at += 1
    return not window_is_copy(w, unit, at)


cdef inline bint pipeline_is_packed_otherwise(
    Pipeline* p, Window* w, const Datagram* d, const Unit* unit, int64_t at,
) noexcept nogil:
    # Whether a unit whose messages do not say where they end overlaps what is known, and does not
    # begin and end at the same numbers. It cannot be cut or compared (all but the first number of
    # such a unit have no bytes of their own): what it alone brings becomes a gap.
    cdef uint32_t empty = message_hash(d.data, 0, w.several)
    cdef const Slot* slot
    cdef uint32_t known = 0
    cdef uint32_t n
    for n in range(unit.count):
        slot = window_slot(w, at + n)
        if slot.key == at + n:
            known += 1
            if (slot.hash == empty) != (n > 0):
                return True
    if known == 0:
        return at < w.next < at + unit.count
    slot = window_slot(w, at + unit.count)
    return known < unit.count or (slot.key == at + unit.count and slot.hash == empty)
