# CRC32C (Castagnoli; RFC 3720, B.4), which journals use: computed by the processor's instructions
# where it has them (SSE 4.2 and PCLMULQDQ; ARMv8.1 where the build may assume it), otherwise by
# tables. Both give the same result.
#
# A state begins as CRC32C_BEGIN, takes bytes piece by piece, and the result is ~state. A state has
# 64 bits of which the upper half is 0, as the instruction takes and returns it.
#
# The instruction processes 8 bytes in 3 cycles, but a processor can start one every cycle. So
# adjacent pieces are processed in parallel, each from state 0, and then combined: n words further
# on, the state s stands for s * x^(64 n) modulo the polynomial. crc32c_behind multiplies by x^(64 n
# - 33). The product is added to the last of these words, and the instruction that takes it does the
# rest: it multiplies by x^32, and the product of two reflected factors is one bit off.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    CRC32C_BEGIN = 0xFFFFFFFF
    CRC32C_PIECE = 64            # bytes; three of them in parallel keep the processor busy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__)
    #include <emmintrin.h>
    #define UDPFAST_CRC32C_PIECES 1
    static inline int udpfast_crc32c_fast(void) {
        return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    }
    /* In assembly: an intrinsic would require compiling the whole module for SSE 4.2. */
    static inline uint64_t udpfast_crc32c_word(uint64_t state, uint64_t word) {
        __asm__("crc32q %1, %0" : "+r"(state) : "rm"(word));
        return state;
    }
    static inline uint64_t udpfast_crc32c_behind(uint64_t state, uint32_t power) {
        __m128i product = _mm_cvtsi64_si128((long long)state);
        __m128i factor = _mm_cvtsi32_si128((int)power);
        __asm__("pclmulqdq $0, %1, %0" : "+x"(product) : "x"(factor));
        return (uint64_t)_mm_cvtsi128_si64(product);
    }
    #else
    #define UDPFAST_CRC32C_PIECES 0
    static inline uint64_t udpfast_crc32c_behind(uint64_t state, uint32_t power) { return 0; }
    #if defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static inline int udpfast_crc32c_fast(void) { return 1; }
    static inline uint64_t udpfast_crc32c_word(uint64_t state, uint64_t word) {
        return __crc32cd((uint32_t)state, word);
    }
    #else
    static inline int udpfast_crc32c_fast(void) { return 0; }
    static inline uint64_t udpfast_crc32c_word(uint64_t state, uint64_t word) { return state; }
    #endif
    #endif
    static inline uint64_t udpfast_load_word(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }
    """
    enum:
        CRC32C_PIECES "UDPFAST_CRC32C_PIECES"    # whether crc32c_behind exists
    bint crc32c_fast "udpfast_crc32c_fast" () noexcept nogil
    uint64_t crc32c_word "udpfast_crc32c_word" (uint64_t state, uint64_t word) noexcept nogil
    uint64_t crc32c_behind "udpfast_crc32c_behind" (
        uint64_t state, uint32_t power) noexcept nogil
    uint64_t load_word "udpfast_load_word" (const uint8_t* p) noexcept nogil

cdef enum:  # x^(64 n - 33), reflected, where n is the number of words of one, two or three pieces
    BEHIND_ONE_PIECE = 0x9E4ADDF8
    BEHIND_TWO_PIECES = 0x0D3B6092
    BEHIND_THREE_PIECES = 0xAB7AFF2A

# By tables, 8 bytes per step. `size` may be any number.
cdef uint64_t crc32c_by_table(uint64_t state, const uint8_t* at, uint64_t size) noexcept nogil


cdef inline uint64_t crc32c_words(uint64_t state, const uint8_t* at, uint64_t size) noexcept nogil:
    # Add `size` bytes, a multiple of 8.
    return crc32c_copied(state, NULL, at, size)


cdef inline uint64_t crc32c_copied(
        uint64_t state, uint8_t* to, const uint8_t* at, uint64_t size) noexcept nogil:
    # Add bytes and copy them to `to` (unless that is NULL), both padded with zeros to a multiple of
    # 8. One pass: the processor stores what the checksum has just loaded.
    cdef uint64_t last
    if not crc32c_fast():
        return crc32c_copied_by_table(state, to, at, size)
    if CRC32C_PIECES:
        while size >= 3 * CRC32C_PIECE:
            if to != NULL:
                memcpy(to, at, 3 * CRC32C_PIECE)
                to += 3 * CRC32C_PIECE
            state = crc32c_three_pieces(state, at)
            at += 3 * CRC32C_PIECE
            size -= 3 * CRC32C_PIECE
        while size >= CRC32C_PIECE:
            if to != NULL:
                memcpy(to, at, CRC32C_PIECE)
                to += CRC32C_PIECE
            last = load_word(at + 56) ^ crc32c_behind(state, BEHIND_ONE_PIECE)
            state = crc32c_word(crc32c_seven_words(at), last)
            at += CRC32C_PIECE
            size -= CRC32C_PIECE
    while size >= 8:
        if to != NULL:
            memcpy(to, at, 8)
            to += 8
        state = crc32c_word(state, load_word(at))
        at += 8
        size -= 8
    if size:
        last = 0
        memcpy(&last, at, size)
        if to != NULL:
            memcpy(to, &last, 8)
        state = crc32c_word(state, last)
    return state


cdef inline uint64_t crc32c_copied_by_table(
        uint64_t state, uint8_t* to, const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint64_t last = 0
    cdef uint64_t words = size & ~<uint64_t>7
    memcpy(&last, at + words, size - words)
    if to != NULL:
        memcpy(to, at, words)
        memcpy(to + words, &last, 8 if words != size else 0)
    state = crc32c_by_table(state, at, words)
    return crc32c_by_table(state, <const uint8_t*>&last, 8 if words != size else 0)


cdef inline uint64_t crc32c_seven_words(const uint8_t* at) noexcept nogil:
    cdef uint64_t state = crc32c_word(0, load_word(at))
    state = crc32c_word(state, load_word(at + 8))
    state = crc32c_word(state, load_word(at + 16))
    state = crc32c_word(state, load_word(at + 24))
    state = crc32c_word(state, load_word(at + 32))
    state = crc32c_word(state, load_word(at + 40))
    return crc32c_word(state, load_word(at + 48))


cdef inline uint64_t crc32c_three_pieces(uint64_t state, const uint8_t* at) noexcept nogil:
    cdef uint64_t first = crc32c_word(crc32c_seven_words(at), load_word(at + 56))
    cdef uint64_t second = crc32c_word(crc32c_seven_words(at + 64), load_word(at + 120))
    cdef uint64_t last = load_word(at + 184)
    last ^= crc32c_behind(state, BEHIND_THREE_PIECES)
    last ^= crc32c_behind(first, BEHIND_TWO_PIECES)
    last ^= crc32c_behind(second, BEHIND_ONE_PIECE)
    return crc32c_word(crc32c_seven_words(at + 128), last)
