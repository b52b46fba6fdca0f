# A 32-bit fingerprint of a datagram: enough to see that two lines brought other bytes for one
# fragment, or that a datagram from the past is one we know. Not a checksum for storage, and not
# safe against someone who forges collisions (who could as well forge the first copy).
#
# Most messages are short, and a datagram has many. Their words are multiplied in pairs to 128 bits,
# both halves of which count (as wyhash does): a multiplication for 16 bytes, and little behind it.
# Long ones go through four lanes, because a multiplication takes 3 cycles, but one can start per
# cycle; each step is a bijection of its lane.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.check cimport likely
from udpfast.core.keyed cimport keyed_fold

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


cdef inline uint32_t fingerprint_end(uint64_t sum, uint32_t size) noexcept nogil:
    return <uint32_t>keyed_fold(
        sum ^ size * <uint64_t>0x9E3779B97F4A7C15, <uint64_t>0xC4CEB9FE1A85EC53)


cdef inline uint64_t fingerprint_pair(
    const uint8_t* data, const uint8_t* behind, uint64_t key, uint64_t other,
) noexcept nogil:
    # Two words, which lie beside each other or not.
    return keyed_fold(load_64(data) ^ key, load_64(behind) ^ other)


cdef inline uint64_t fingerprint_step(const uint8_t* data) noexcept nogil:
    # 32 bytes; the pairs have keys of their own.
    return fingerprint_pair(
        data, data + 8, <uint64_t>0xBE4BA423396CFEB8, <uint64_t>0x1CAD21F72C81017C,
    ) + fingerprint_pair(
        data + 16, data + 24, <uint64_t>0xDB979083E96DD4DE, <uint64_t>0x1F67B3B7A4A44072)


cdef inline uint64_t turned(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline uint32_t fingerprint_short(const uint8_t* data, uint32_t size) noexcept nogil:
    # `size` is less than a step.
    cdef uint64_t key = <uint64_t>0xBE4BA423396CFEB8
    cdef uint64_t other = <uint64_t>0x1CAD21F72C81017C
    cdef uint64_t sum
    if size < 8:
        return fingerprint_end(keyed_fold(load_tail(data, size) ^ key, other), size)
    sum = fingerprint_pair(data, data + size - 8, key, other)
    if size > 16:
        sum += fingerprint_pair(
            data + 8, data + size - 16, <uint64_t>0xDB979083E96DD4DE, <uint64_t>0x1F67B3B7A4A44072)
    return fingerprint_end(sum, size)


cdef inline uint32_t fingerprint_few(const uint8_t* data, uint32_t size) noexcept nogil:
    # All bytes of at most two steps. The second one, or half of one where that is enough, ends with
    # the data, and may take some again.
    cdef uint64_t sum
    if size < FINGERPRINT_EDGE:
        return fingerprint_short(data, size)
    sum = turned(fingerprint_step(data), 23)
    if size <= FINGERPRINT_EDGE + 16:
        return fingerprint_end(sum + fingerprint_pair(
            data + size - 16, data + size - 8, <uint64_t>0xBE4BA423396CFEB8,
            <uint64_t>0x1CAD21F72C81017C), size)
    return fingerprint_end(sum + fingerprint_step(data + size - FINGERPRINT_EDGE), size)


cdef inline uint32_t fingerprint_lanes(
    uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint32_t size,
) noexcept nogil:
    # The high halves go into the low ones: a changed top bit would otherwise stay a top bit.
    a = turned(a ^ (a >> 32), 47) + turned(b ^ (b >> 32), 17)
    c = turned(c ^ (c >> 32), 31) + (d ^ (d >> 32))
    return fingerprint_end(a ^ c, size)


cdef inline uint32_t fingerprint(const uint8_t* data, uint32_t size) noexcept nogil:
    # It covers all bytes, header and payload. The last step begins where it ends with the data, and
    # takes some bytes again.
    cdef uint64_t multiplier = <uint64_t>0x9FB21C651E98DF25
    cdef uint64_t a = <uint64_t>0xBE4BA423396CFEB8
    cdef uint64_t b = <uint64_t>0x1CAD21F72C81017C
    cdef uint64_t c = <uint64_t>0xDB979083E96DD4DE
    cdef uint64_t d = <uint64_t>0x1F67B3B7A4A44072
    cdef const uint8_t* last
    if size <= 2 * FINGERPRINT_EDGE:
        return fingerprint_few(data, size)
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
    return fingerprint_lanes(a, b, c, d, size)


cdef inline uint32_t fingerprint_edges(const uint8_t* data, uint32_t size) noexcept nogil:
    # It covers the first and the last 32 bytes of more than 64: what one line needs to know its own
    # past again. The header is in the first, the newest timestamps and values usually in the last.
    # Who forges a datagram that equals the true one in both, and in size, passes for its copy: to
    # read all bytes of each would cost one line more than all that is done with them here.
    # (Without a branch for short ones it is small enough to be inlined where datagrams pass.)
    cdef uint64_t multiplier = <uint64_t>0x9FB21C651E98DF25
    cdef uint64_t a, b, c, d
    cdef const uint8_t* tail = data + size - FINGERPRINT_EDGE
    a = (load_64(data) ^ load_64(tail) * multiplier) * multiplier
    b = (load_64(data + 8) ^ load_64(tail + 8) * multiplier) * multiplier
    c = (load_64(data + 16) ^ load_64(tail + 16) * multiplier) * multiplier
    d = (load_64(data + 24) ^ load_64(tail + 24) * multiplier) * multiplier
    return fingerprint_lanes(a, b, c, d, size)


cdef inline uint32_t message_hash(const uint8_t* data, uint32_t size, bint several) noexcept nogil:
    # One line alone needs to know its past again; several must agree in every byte.
    if several or size <= 2 * FINGERPRINT_EDGE:
        return fingerprint(data, size)
    return fingerprint_edges(data, size)


cdef inline uint32_t datagram_hash(const uint8_t* data, uint32_t size, bint several) noexcept nogil:
    # message_hash where each datagram is one message: what most of them need is inlined.
    if likely(size > 2 * FINGERPRINT_EDGE and not several):
        return fingerprint_edges(data, size)
    return message_hash(data, size, several)
