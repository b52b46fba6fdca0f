"""What a framing costs: a nogil loop over datagrams in memory, into units, and on into messages.

    python -c "from bench.loops.wire_cost import main; main()"

Question: how many ns does it take to make units of a datagram (the walk over its messages is part
of that), and how many to look at each message again? The datagrams lie in 64 slots, as a receiving
batch does.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from posix.stdlib cimport posix_memalign

from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.wire.framing cimport framing_units
from udpfast.wire.messages cimport MessageWalk, message_walk_begin, message_walk_next
from udpfast.wire.unit cimport UNITS_MAX, Unit

import statistics

from ..lab_parts import Sent, build
from udpfast.wire.framing import Framing

__all__ = ["main", "wire_cost_ns"]

cdef enum:
    SLOTS = 64
    SLOT_SIZE = 1536             # a frame of 1,500 bytes on cache lines of its own


cdef int64_t make_units(
    int framing, const uint8_t* slots, uint32_t size, int64_t count, Unit* units,
) noexcept nogil:
    # The sum of all counts: what was not made would show.
    cdef int64_t i, sum_ = 0
    for i in range(count):
        if framing_units(framing, slots + (i % SLOTS) * SLOT_SIZE, size, units, UNITS_MAX) < 0:
            return -1
        sum_ += units.count
    return sum_


cdef int64_t make_messages(
    int framing, const uint8_t* slots, uint32_t size, int64_t count, Unit* units,
) noexcept nogil:
    # The sum of all bytes of messages.
    cdef int64_t i, sum_ = 0
    cdef const uint8_t* data
    cdef MessageWalk walk
    cdef uint32_t offset = 0, bytes_ = 0
    cdef int found, place
    for i in range(count):
        data = slots + (i % SLOTS) * SLOT_SIZE
        found = framing_units(framing, data, size, units, UNITS_MAX)
        for place in range(found):
            message_walk_begin(&walk, data, &units[place])
            while message_walk_next(&walk, &offset, &bytes_):
                sum_ += bytes_
    return sum_


def wire_cost_ns(
        str name, bytes datagram, int64_t count=1_000_000, *, bint messages=False) -> float:
    """Return ns per datagram, of making units of it, or of going over its messages as well.

    Parameters
    ----------
    name : str
        Of the framing.
    datagram : bytes
        A sound one of at most 1,536 bytes.
    count : int
        How often.
    messages : bool
        Go over the messages, too.

    Raises
    ------
    ValueError
        The datagram is too long, or not sound.
    """
    cdef int framing = Framing(name).index
    cdef uint32_t size = <uint32_t>len(datagram)
    cdef const uint8_t* source = datagram
    cdef uint8_t* slots = NULL
    cdef Unit[UNITS_MAX] units
    cdef int64_t start, elapsed, found
    cdef int slot
    if size > SLOT_SIZE:
        raise ValueError(f"a datagram has at most {SLOT_SIZE} bytes here, was {size}")
    if posix_memalign(<void**>&slots, 64, SLOTS * SLOT_SIZE):
        raise MemoryError
    try:
        for slot in range(SLOTS):
            memcpy(slots + slot * SLOT_SIZE, source, size)
        with nogil:
            start = clock_monotonic_ns()
            if messages:
                found = make_messages(framing, slots, size, count, units)
            else:
                found = make_units(framing, slots, size, count, units)
            elapsed = clock_monotonic_ns() - start
    finally:
        free(slots)
    expected = sum(len(data) for _, data in Framing(name).messages(datagram)) if messages else (
        Framing(name).units(datagram)[0].count)
    if found != expected * count:
        raise ValueError(f"{name}: expected {expected * count}, found {found}")
    return float(elapsed) / float(count)


def main() -> None:
    """Print the best and the median of nine runs of each case."""
    numbers = {
        "roq": Sent(7, (bytes(64),)),
        "cme_mdp3": Sent(7, (bytes(64), bytes(32))),
        "moldudp64": Sent(7, (bytes(40),) * 30, (), b"000010059D"),
        "iex_tp": Sent(7, (bytes(30),) * 3, (0x8004, 1), 99),
        "deribit_sbe": Sent(7, (bytes(140),), (3,)),
        "cboe_pitch": Sent(7, (bytes(24),) * 3, (1,)),
        "miax_mach": Sent(7, (bytes(37),) * 3, (), 1),
    }
    print("framing      bytes  messages  ns per datagram: units   and messages  (best, median)")
    for name, sent in numbers.items():
        datagram = build(name, sent)
        costs = [
            sorted(wire_cost_ns(name, datagram, messages=messages) for _ in range(9))
            for messages in (False, True)
        ]
        print(f"{name:12} {len(datagram):5} {len(sent.messages):9} "
              + "".join(f"{runs[0]:16.1f} {statistics.median(runs):6.1f}" for runs in costs))
