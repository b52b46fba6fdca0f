# Roq's header: 16 bytes before a borrowed payload. Reading it takes a few comparisons and one table
# look-up: the meaning of a control byte depends on the revision and the settings, which do not
# change while a feed runs.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely, unlikely
from udpfast.core.counter cimport (
    VERDICT_DELIVERED, VERDICT_ENCODING_REFUSED, VERDICT_FRAGMENT_BEYOND_MAX,
    VERDICT_SHORT_FRAGMENT, VERDICT_TOO_LONG, VERDICT_TOO_SHORT,
)
from udpfast.core.layout cimport (
    DATAGRAM_SIZE_MAX, DATAGRAM_TRUNCATED, ENCODING_FLATBUFFERS, ENCODING_NATIVE, FRAME_SIZE, Frame,
)

cdef enum:  # Revision
    REVISION_CURRENT = 0         # control byte: encoding, snapshot bit, unused bits
    REVISION_LEGACY = 1          # control byte: the encoding only

cdef enum:  # FrameTrait: meaning of a control byte under these settings
    FRAME_ALLOWED = 1            # the settings allow its encoding
    FRAME_SNAPSHOT = 2
    FRAME_UNUSED_BITS = 4        # bits without a meaning are set

cdef struct FrameReader:
    uint8_t traits[256]          # FrameTrait by control byte
    bint big_endian


cdef inline uint8_t frame_encoding(uint8_t control, int revision) noexcept nogil:
    return control if revision == REVISION_LEGACY else control & 0x0F


cdef inline void frame_reader_init(
    FrameReader* reader, int revision, bint big_endian, uint64_t encodings,
) noexcept nogil:
    # Encodings beyond 63 have no bit in the mask and are always refused.
    cdef int control
    cdef uint8_t encoding, traits
    reader.big_endian = big_endian
    for control in range(256):
        encoding = frame_encoding(<uint8_t>control, revision)
        traits = 0
        if encoding < 64 and (encodings >> encoding) & 1:
            traits |= FRAME_ALLOWED
        if revision == REVISION_CURRENT:
            if control & 0x10:
                traits |= FRAME_SNAPSHOT
            if control & 0xE0:
                traits |= FRAME_UNUSED_BITS
        reader.traits[control] = traits


cdef inline uint16_t swap_16(uint16_t value) noexcept nogil:
    return <uint16_t>((value >> 8) | (value << 8))


cdef inline uint32_t swap_32(uint32_t value) noexcept nogil:
    return ((value >> 24) | ((value >> 8) & 0xFF00) | ((value << 8) & 0xFF0000) | (value << 24))


cdef inline uint32_t frame_object(const Frame* frame) noexcept nogil:
    # Type and id of the object in one number.
    return (<uint32_t>frame.object_type << 16) | frame.object_id


cdef inline int frame_read(
    const FrameReader* reader, const uint8_t* data, uint32_t size, uint32_t flags, Frame* frame,
) noexcept nogil:
    # Returns VERDICT_DELIVERED for an acceptable datagram, otherwise why it is refused. The order
    # of the tests is part of the contract (wire/golden/headers): the first that fails decides.
    # `frame` is filled if there are 16 bytes, so that a refused header can be shown.
    if unlikely(size < FRAME_SIZE):
        return VERDICT_TOO_SHORT
    memcpy(frame, data, FRAME_SIZE)
    if unlikely(reader.big_endian):
        frame.object_id = swap_16(frame.object_id)
        frame.session_id = swap_16(frame.session_id)
        frame.seqno = swap_32(frame.seqno)
        frame.last_seqno = swap_32(frame.last_seqno)
    if unlikely(size > DATAGRAM_SIZE_MAX or flags & DATAGRAM_TRUNCATED):
        return VERDICT_TOO_LONG
    if frame.fragment != frame.fragment_max:
        if unlikely(frame.fragment > frame.fragment_max):
            return VERDICT_FRAGMENT_BEYOND_MAX
        if unlikely(size != DATAGRAM_SIZE_MAX):
            return VERDICT_SHORT_FRAGMENT
    if unlikely(not reader.traits[frame.control] & FRAME_ALLOWED) and size > FRAME_SIZE:
        return VERDICT_ENCODING_REFUSED
    return VERDICT_DELIVERED
