# The slots of all messages of a unit at once: of the first copy, and of those that other lines
# bring behind it. These are calls: inlined where units are judged, a loop over messages would not
# keep what it needs in registers.

from libc.stdint cimport int64_t, uint32_t

from udpfast.core.layout cimport Datagram
from udpfast.feed.window_state cimport Window
from udpfast.wire.unit cimport Unit

# A unit's messages, the first `skipped` ones aside, are the next in order: fill their slots, and
# `places` with where all of them lie (pieces). Nothing but the slots of `w` is changed.
cdef void slots_fill(
    Window* w, const Datagram* d, const Unit* unit, uint32_t skipped, uint32_t* places,
) noexcept nogil

# The first copy of a unit that this line brings, of messages from key `at` on that another line
# brought first: how many of them, from the first one on, are just that, byte for byte. They are
# counted. What comes behind is anything else (window_compare_delivered).
cdef uint32_t slots_match(
    Window* w, const Datagram* d, const Unit* unit, int64_t at,
) noexcept nogil
