# A 32-bit fingerprint of a datagram: enough to see that two lines brought other bytes for one
# fragment, or that a datagram from the past is one we know. Not a checksum for storage, and not
# safe against someone who forges collisions (who could as well forge the first copy).
#
# Four independent lanes, because a 64-bit multiplication takes 3 cycles but one can start per
# cycle. Every step is a bijection of its lane, so that any single changed word changes the result
# before the final mixing.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    FINGERPRINT_EDGE = 32        # bytes at either end that fingerprint_edges reads


cdef inline uint64_t load_64(const uint8_t* data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline uint64_t load_tail(const uint8_t* data, uint32_t size) noexcept nogil:
    # The last `size` < 8 bytes, zero-extended.
    cdef uint64_t word = 0
    memcpy(&word, data, size)
    return word


cdef inline uint32_t fingerprint_mix(
    uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t size,
) noexcept nogil:
    # The finaliser of MurmurHash3 (Appleby, public domain), once over the rotated sum of the lanes.
    cdef uint64_t h = size * <uint64_t>0x9E3779B97F4A7C15
    h ^= a
    h += ((b << 17) | (b >> 47))
    h ^= ((c << 31) | (c >> 33))
    h += ((d << 47) | (d >> 17))
    h = (h ^ (h >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    h = (h ^ (h >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return <uint32_t>(h ^ (h >> 33))


cdef inline uint32_t fingerprint_short(const uint8_t* data, uint32_t size) noexcept nogil:
    # `size` is less than one step of `fingerprint`.
    cdef uint64_t multiplier = <uint64_t>0x9FB21C651E98DF25
    cdef uint64_t a = <uint64_t>0xBE4BA423396CFEB8
    cdef uint64_t b = <uint64_t>0x1CAD21F72C81017C
    cdef uint32_t left = size
    while left >= 8:
        a = (a ^ load_64(data)) * multiplier
        a ^= a >> 29
        data += 8
        left -= 8
    if left:
        b = (b ^ load_tail(data, left)) * multiplier
    return fingerprint_mix(a ^ (a >> 32), b ^ (b >> 32), 0, 0, size)


cdef inline uint32_t fingerprint(const uint8_t* data, uint32_t size) noexcept nogil:
    # It covers all bytes, header and payload. The last step begins where it ends with the data, and
    # takes some bytes again.
    cdef uint64_t multiplier = <uint64_t>0x9FB21C651E98DF25
    cdef uint64_t a = <uint64_t>0xBE4BA423396CFEB8
    cdef uint64_t b = <uint64_t>0x1CAD21F72C81017C
    cdef uint64_t c = <uint64_t>0xDB979083E96DD4DE
    cdef uint64_t d = <uint64_t>0x1F67B3B7A4A44072
    cdef const uint8_t* last
    if size < FINGERPRINT_EDGE:
        return fingerprint_short(data, size)
    last = data + size - FINGERPRINT_EDGE
    while data < last:
        a = (a ^ load_64(data)) * multiplier
        b = (b ^ load_64(data + 8)) * multiplier
        c = (c ^ load_64(data + 16)) * multiplier
        d = (d ^ load_64(data + 24)) * multiplier
        data += FINGERPRINT_EDGE
    a = (a ^ load_64(last)) * multiplier
    b = (b ^ load_64(last + 8)) * multiplier
    c = (c ^ load_64(last + 16)) * multiplier
    d = (d ^ load_64(last + 24)) * multiplier
    # The high halves go into the low ones: a changed top bit would otherwise stay a top bit.
    return fingerprint_mix(a ^ (a >> 32), b ^ (b >> 32), c ^ (c >> 32), d ^ (d >> 32), size)


cdef inline uint32_t fingerprint_edges(const uint8_t* data, uint32_t size) noexcept nogil:
    # It covers the first and the last 32 bytes: what one line needs to know its own past again.
    # The header is in the first, the newest timestamps and values usually in the last. Who forges a
    # datagram that equals the true one in both, and in size, passes for its copy: to read all bytes
    # of each would cost one line more than all that is done with them here.
    cdef uint64_t multiplier = <uint64_t>0x9FB21C651E98DF25
    cdef uint64_t a, b, c, d
    cdef const uint8_t* tail
    if size < FINGERPRINT_EDGE:
        return fingerprint_short(data, size)
    tail = data + size - FINGERPRINT_EDGE
    a = (load_64(data) ^ load_64(tail) * multiplier) * multiplier
    b = (load_64(data + 8) ^ load_64(tail + 8) * multiplier) * multiplier
    c = (load_64(data + 16) ^ load_64(tail + 16) * multiplier) * multiplier
    d = (load_64(data + 24) ^ load_64(tail + 24) * multiplier) * multiplier
    return fingerprint_mix(a ^ (a >> 32), b ^ (b >> 32), c ^ (c >> 32), d ^ (d >> 32), size)
