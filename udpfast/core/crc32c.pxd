# CRC32C (Castagnoli; RFC 3720, B.4), as journals carry it: by the processor's instruction where it
# has one (SSE 4.2; ARMv8.1 where the build may assume it), by tables otherwise. Both give the same.
#
# A state begins as CRC32C_BEGIN, takes bytes piece by piece, and ends as ~state.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    CRC32C_BEGIN = 0xFFFFFFFF

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__)
    static inline int udpfast_crc32c_fast(void) { return __builtin_cpu_supports("sse4.2"); }
    /* In assembly: an intrinsic would need the whole module compiled for SSE 4.2. */
    static inline uint32_t udpfast_crc32c_word(uint32_t state, uint64_t word) {
        uint64_t wide = state;
        __asm__("crc32q %1, %0" : "+r"(wide) : "rm"(word));
        return (uint32_t)wide;
    }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static inline int udpfast_crc32c_fast(void) { return 1; }
    static inline uint32_t udpfast_crc32c_word(uint32_t state, uint64_t word) {
        return __crc32cd(state, word);
    }
    #else
    static inline int udpfast_crc32c_fast(void) { return 0; }
    static inline uint32_t udpfast_crc32c_word(uint32_t state, uint64_t word) { return state; }
    #endif
    static inline uint64_t udpfast_load_word(const uint8_t *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }
    """
    bint crc32c_fast "udpfast_crc32c_fast" () noexcept nogil
    uint32_t crc32c_word "udpfast_crc32c_word" (uint32_t state, uint64_t word) noexcept nogil
    uint64_t load_word "udpfast_load_word" (const uint8_t* p) noexcept nogil

# By tables: 8 bytes at a step. Any size.
cdef uint32_t crc32c_by_table(uint32_t state, const uint8_t* at, uint64_t size) noexcept nogil


cdef inline uint32_t crc32c_words(uint32_t state, const uint8_t* at, uint64_t size) noexcept nogil:
    # Of a multiple of 8 bytes. Calls for different records do not wait for each other: the
    # processor works on two or three of them at once, which hides the instruction's 3 cycles.
    cdef const uint8_t* end = at + size
    if not crc32c_fast():
        return crc32c_by_table(state, at, size)
    while at != end:
        state = crc32c_word(state, load_word(at))
        at += 8
    return state
