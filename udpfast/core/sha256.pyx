"""SHA-256 and HMAC-SHA256 without the GIL.

hashlib has no C interface and needs the interpreter for each tag, and OpenSSL would need its
headers at build time. Tested with the published vectors and against hashlib.
"""

import math

import cython

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

__all__ = ["hmac_sha256", "sha256"]

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__)
    #include <cpuid.h>
    #include <immintrin.h>
    static int udpfast_sha256_supported(void) {
        unsigned int a, b, c, d;
        return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d)
               && (b >> 29 & 1);
    }
    /* The instructions keep the words of a state as (a b e f) and (c d g h), highest first, do two
       rounds at a time, and compute four words of the schedule from the 16 before them. */
    __attribute__((target("sha,sse4.1")))
    static void udpfast_sha256_fast(uint32_t *state, const uint32_t *constants,
                                    const uint8_t *at, uint64_t blocks) {
        const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
        __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
        __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
        __m128i abef = _mm_alignr_epi8(low, high, 8);
        __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
        for (; blocks; blocks--, at += 64) {
            const __m128i abef_before = abef, cdgh_before = cdgh;
            __m128i words[4];
            for (int i = 0; i < 4; i++)
                words[i] = _mm_shuffle_epi8(
                    _mm_loadu_si128((const __m128i *)(at + 16 * i)), order);
            for (int i = 0; i < 16; i++) {
                __m128i sum = _mm_add_epi32(
                    words[0], _mm_loadu_si128((const __m128i *)(constants + 4 * i)));
                __m128i next = _mm_sha256msg2_epu32(
                    _mm_add_epi32(_mm_sha256msg1_epu32(words[0], words[1]),
                                  _mm_alignr_epi8(words[3], words[2], 4)), words[3]);
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
                words[0] = words[1];
                words[1] = words[2];
                words[2] = words[3];
                words[3] = next;
            }
            abef = _mm_add_epi32(abef, abef_before);
            cdgh = _mm_add_epi32(cdgh, cdgh_before);
        }
        low = _mm_shuffle_epi32(abef, 0x1b);
        high = _mm_shuffle_epi32(cdgh, 0xb1);
        _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
        _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
    }
    #else
    static int udpfast_sha256_supported(void) { return 0; }
    static void udpfast_sha256_fast(uint32_t *state, const uint32_t *constants,
                                    const uint8_t *at, uint64_t blocks) {}
    #endif
    """
    bint sha256_supported "udpfast_sha256_supported" () noexcept nogil
    void sha256_fast "udpfast_sha256_fast" (
        uint32_t* state, const uint32_t* constants, const uint8_t* at,
        uint64_t blocks) noexcept nogil

# Filled once, below: the first 32 fractional bits of square roots, and of cube roots.
cdef uint32_t BEGIN[8]
cdef uint32_t CONSTANTS[64]
cdef bint FAST = sha256_supported()


cdef inline uint32_t turned(uint32_t word, int by) noexcept nogil:
    return word >> by | word << (32 - by)


cdef void blocks_by_arithmetic(uint32_t* state, const uint8_t* at, uint64_t blocks) noexcept nogil:
    cdef uint32_t words[64]
    cdef uint32_t v[8]
    cdef uint32_t first, second, word
    cdef int i
    for _ in range(blocks):
        for i in range(16):
            words[i] = (<uint32_t>at[4 * i] << 24 | <uint32_t>at[4 * i + 1] << 16
                        | <uint32_t>at[4 * i + 2] << 8 | at[4 * i + 3])
        for i in range(16, 64):
            word = words[i - 15]
            first = turned(word, 7) ^ turned(word, 18) ^ word >> 3
            word = words[i - 2]
            second = turned(word, 17) ^ turned(word, 19) ^ word >> 10
            words[i] = words[i - 16] + first + words[i - 7] + second
        memcpy(v, state, sizeof(v))
        for i in range(64):
            first = (v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25))
                     + (v[4] & v[5] ^ ~v[4] & v[6]) + CONSTANTS[i] + words[i])
            second = ((turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22))
                      + (v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2]))
            v[7], v[6], v[5], v[4] = v[6], v[5], v[4], v[3] + first
            v[3], v[2], v[1], v[0] = v[2], v[1], v[0], first + second
        for i in range(8):
            state[i] += v[i]
        at += SHA256_BLOCK


cdef void add_blocks(uint32_t* state, const uint8_t* at, uint64_t blocks) noexcept nogil:
    if FAST:
        sha256_fast(state, CONSTANTS, at, blocks)
    else:
        blocks_by_arithmetic(state, at, blocks)


cdef void sha256_begin(Sha256* hash) noexcept nogil:
    memcpy(hash.state, BEGIN, sizeof(BEGIN))
    hash.size = 0


cdef void sha256_add(Sha256* hash, const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint64_t held = hash.size % SHA256_BLOCK
    cdef uint64_t taken
    if size == 0:
        return  # there may be no address either
    hash.size += size
    if held:
        taken = min(size, SHA256_BLOCK - held)
        memcpy(&hash.block[held], at, taken)
        at += taken
        size -= taken
        if held + taken < SHA256_BLOCK:
            return
        add_blocks(hash.state, hash.block, 1)
    add_blocks(hash.state, at, size // SHA256_BLOCK)
    memcpy(hash.block, at + size // SHA256_BLOCK * SHA256_BLOCK, size % SHA256_BLOCK)


cdef void sha256_end(Sha256* hash, uint8_t* digest) noexcept nogil:
    # After the message: a 1 bit, zeros, and the message's size in bits.
    cdef uint64_t held = hash.size % SHA256_BLOCK
    cdef uint64_t bits = hash.size * 8
    cdef int i
    hash.block[held] = 0x80
    memset(&hash.block[held + 1], 0, SHA256_BLOCK - 1 - held)
    if held >= SHA256_BLOCK - 8:
        add_blocks(hash.state, hash.block, 1)
        memset(hash.block, 0, SHA256_BLOCK)
    for i in range(8):
        hash.block[SHA256_BLOCK - 1 - i] = <uint8_t>(bits >> 8 * i)
    add_blocks(hash.state, hash.block, 1)
    for i in range(SHA256_SIZE):
        digest[i] = <uint8_t>(hash.state[i // 4] >> (24 - i % 4 * 8))


cdef void hmac_begin(Hmac* key, const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint8_t padded[SHA256_BLOCK]
    cdef int i
    memset(padded, 0, sizeof(padded))
    if size <= SHA256_BLOCK:
        memcpy(padded, at, size)
    else:
        sha256_begin(&key.inner)
        sha256_add(&key.inner, at, size)
        sha256_end(&key.inner, padded)
    for i in range(SHA256_BLOCK):
        padded[i] ^= 0x36
    sha256_begin(&key.inner)
    sha256_add(&key.inner, padded, SHA256_BLOCK)
    for i in range(SHA256_BLOCK):
        padded[i] ^= 0x36 ^ 0x5C
    sha256_begin(&key.outer)
    sha256_add(&key.outer, padded, SHA256_BLOCK)


cdef void hmac_end(const Hmac* key, Sha256* hash, uint8_t* digest) noexcept nogil:
    cdef uint8_t inner[SHA256_SIZE]
    sha256_end(hash, inner)
    hash[0] = key.outer
    sha256_add(hash, inner, SHA256_SIZE)
    sha256_end(hash, digest)


@cython.boundscheck(False)
def sha256(
        const uint8_t[::1] content, pieces: Sequence[int] = (), *, bint arithmetic=False) -> bytes:
    """Return the SHA-256 of some bytes.

    Parameters
    ----------
    content : bytes-like
        The bytes.
    pieces : sequence of int
        Sizes of the pieces in which they are added; the rest is added at the end.
    arithmetic : bool
        Use arithmetic even if the processor has instructions for it.
    """
    global FAST
    cdef Sha256 hash
    cdef uint8_t digest[SHA256_SIZE]
    cdef uint64_t at = 0
    cdef uint64_t size = content.shape[0]
    known = FAST
    FAST = FAST and not arithmetic  # other threads get the same results
    sha256_begin(&hash)
    for piece in (*pieces, size):
        piece = min(piece, size - at)
        sha256_add(&hash, &content[0] + at, piece)
        at += piece
    sha256_end(&hash, digest)
    FAST = known
    return (<const char*>digest)[:SHA256_SIZE]


@cython.boundscheck(False)
def hmac_sha256(const uint8_t[::1] key, const uint8_t[::1] content) -> bytes:
    """Return the HMAC-SHA256 of some bytes.

    Parameters
    ----------
    key, content : bytes-like
    """
    cdef Hmac by
    cdef Sha256 hash
    cdef uint8_t digest[SHA256_SIZE]
    hmac_begin(&by, &key[0], key.shape[0])
    hash = by.inner
    sha256_add(&hash, &content[0], content.shape[0])
    hmac_end(&by, &hash, digest)
    return (<const char*>digest)[:SHA256_SIZE]


def fill_constants():
    primes = [n for n in range(2, 312) if all(n % m for m in range(2, n))]
    for at, prime in enumerate(primes[:8]):
        BEGIN[at] = math.isqrt(prime << 64) & 0xFFFFFFFF
    for at, prime in enumerate(primes):
        root = 0
        for bit in range(34, -1, -1):  # 32 fractional bits; the root of 311 has 3 integer bits
            if (root | 1 << bit) ** 3 <= prime << 96:
                root |= 1 << bit
        CONSTANTS[at] = root & 0xFFFFFFFF


fill_constants()
