"""Both ways through the decoder, side by side: the short one and the general one.

`decode_event` takes books, tops of book and trades by a path of their own. It must say and write
what the general path says and writes, whatever the bytes are.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from udpfast.market.names cimport NameTable
from udpfast.payload.roq.decode cimport (
    DecodeContext, decode_any, decode_event, decode_init, decode_size_bound,
)

__all__ = ["DecodePaths"]

cdef struct Outcome:  # what a call says beside the bytes
    int32_t result
    uint32_t size
    uint32_t message_type
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t flags
    uint32_t truncated
    uint32_t names_full
    uint64_t fields_unknown
    uint64_t names


cdef void _outcome(
        Outcome* into, int32_t result, const DecodeContext* context,
        NameTable names) noexcept:
    memset(into, 0, sizeof(Outcome))  # the padding too: it is compared
    into.result = result
    into.size = context.size
    into.message_type = context.message_type
    into.exchange_id = context.exchange_id
    into.symbol_id = context.symbol_id
    into.flags = context.flags
    into.truncated = context.truncated
    into.names_full = context.names_full
    into.fields_unknown = context.fields_unknown
    into.names = names.names.header.count


@cython.final
cdef class DecodePaths:
    """Decodes each payload by both paths, which remember what they learned.

    Parameters
    ----------
    names_max : int
        Capacity of each path's name table.
    """

    cdef DecodeContext[2] context
    cdef NameTable any_names
    cdef NameTable event_names
    cdef bytearray any_space
    cdef bytearray event_space

    def __cinit__(self, *, int names_max=4096):
        decode_init(&self.context[0], 0xFF)
        decode_init(&self.context[1], 0xFF)
        self.any_names = NameTable(capacity=names_max)
        self.event_names = NameTable(capacity=names_max)
        self.any_space = bytearray()
        self.event_space = bytearray()

    def decode(self, const uint8_t[::1] payload, *, room: int | None = None) -> int:
        """Decode a payload by both paths.

        Returns
        -------
        int
            The kind, or a negative code (`udpfast.market.found.Outcome`).

        Raises
        ------
        AssertionError
            The paths do not agree.
        """
        cdef Outcome any_, event
        cdef uint32_t size = <uint32_t> payload.shape[0]
        cdef uint32_t bound = decode_size_bound(size) if room is None else <uint32_t> room
        cdef uint8_t nothing = 0
        cdef const uint8_t* start = &payload[0] if size else &nothing
        if <uint32_t> len(self.any_space) < bound:
            self.any_space = bytearray(bound)
            self.event_space = bytearray(bound)
        # Different rubbish in both: what a path does not write shows.
        memset(<char*> self.any_space, 0x5A, bound)
        memset(<char*> self.event_space, 0xA5, bound)
        _outcome(&any_, decode_any(
            start, size, <uint8_t*> <char*> self.any_space, bound, &self.any_names.names,
            &self.context[0]), &self.context[0], self.any_names)
        _outcome(&event, decode_event(
            start, size, <uint8_t*> <char*> self.event_space, bound, &self.event_names.names,
            &self.context[1]), &self.context[1], self.event_names)
        if memcmp(&any_, &event, sizeof(Outcome)):
            raise AssertionError(
                f"the general path says {any_}, the short one {event}: {bytes(payload).hex()}")
        if any_.result > 0 and self.any_space[:any_.size] != self.event_space[:any_.size]:
            raise AssertionError(f"the paths write different updates: {bytes(payload).hex()}")
        return any_.result
