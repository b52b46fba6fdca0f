# When each line, and each address of a line, was heard last, and which are silent.
# It is written where tools look.

from libc.stdint cimport INT64_MIN, int64_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    ADDRESS_DATAGRAMS, ADDRESS_HEARD_NS, ADDRESS_SILENT, ADDRESS_STRIDE, LINE_ADDRESSES_SILENT,
    LINE_HEARD_NS, Counters)
from udpfast.core.layout cimport CHANNEL_COUNT, Datagram
from udpfast.feed.lines cimport lines_spoke_ns
from udpfast.feed.pipeline_state cimport Pipeline

cdef struct Heard:
    int64_t silent_after_ns          # 0: never
    uint32_t addresses[2][8]         # CHANNEL_COUNT, LINES_MAX: how many each line has
    # By the loop's clock, of each address; 0: not yet looked at. ADDRESSES_MAX.
    int64_t heard_ns[2][8][128]


cdef inline void heard_note(
        Heard* heard, int64_t* address, const Datagram* item, int64_t now_ns) noexcept nogil:
    # `address`: the counters of its line's addresses.
    counter_add(&address[ADDRESS_STRIDE * item.address + ADDRESS_DATAGRAMS], 1)
    heard.heard_ns[item.channel][item.line][item.address] = now_ns


cdef inline void heard_tell(
        Heard* heard, const Pipeline* pipeline, Counters* counters, int64_t now_ns,
        int64_t unix_offset_ns) noexcept nogil:
    # `unix_offset_ns`: UNIX time less the loop's clock, as of now: a clock that was set gives no
    # line an age that it has not.
    cdef int64_t heard_ns
    cdef int64_t* slot
    cdef uint32_t i
    cdef int channel
    for channel in range(CHANNEL_COUNT):
        for i in range(pipeline.carrier[channel].lines):
            heard_ns = lines_spoke_ns(pipeline, channel, i)
            if heard_ns != INT64_MIN:
                slot = &counters.line[channel][i][LINE_HEARD_NS]
                counter_add(slot, heard_ns + unix_offset_ns - slot[0])
            if counters.address[channel][i] != NULL:
                heard_tell_addresses(heard, counters, channel, i, now_ns, unix_offset_ns)


cdef inline void heard_tell_addresses(
        Heard* heard, Counters* counters, int channel, uint32_t line, int64_t now_ns,
        int64_t unix_offset_ns) noexcept nogil:
    # As of each, and how many of them bring nothing.
    cdef int64_t* address = counters.address[channel][line]
    cdef int64_t* heard_ns = heard.heard_ns[channel][line]
    cdef int64_t* all_silent = &counters.line[channel][line][LINE_ADDRESSES_SILENT]
    cdef int64_t silent = 0
    cdef bint is_silent
    cdef uint32_t i
    for i in range(heard.addresses[channel][line]):
        if heard_ns[i] == 0:
            heard_ns[i] = now_ns         # its silence begins with the first look
        if address[ADDRESS_DATAGRAMS]:
            counter_add(&address[ADDRESS_HEARD_NS],
                        heard_ns[i] + unix_offset_ns - address[ADDRESS_HEARD_NS])
        is_silent = heard.silent_after_ns and now_ns - heard_ns[i] >= heard.silent_after_ns
        counter_add(&address[ADDRESS_SILENT], is_silent - address[ADDRESS_SILENT])
        silent += is_silent
        address += ADDRESS_STRIDE
    counter_add(all_silent, silent - all_silent[0])
