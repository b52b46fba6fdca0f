# SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104) for threads without the GIL: by the processor's
# instructions where it has them (SHA extensions of x86-64), otherwise by arithmetic. Both give the
# same result.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    SHA256_SIZE = 32             # bytes of a digest
    SHA256_BLOCK = 64

cdef struct Sha256:
    uint32_t state[8]
    uint64_t size                # number of bytes added
    uint8_t block[SHA256_BLOCK]  # bytes that are not yet part of the state

cdef struct Hmac:                # a key: both hashes after the key and before the message
    Sha256 inner
    Sha256 outer

cdef void sha256_begin(Sha256* hash) noexcept nogil
cdef void sha256_add(Sha256* hash, const uint8_t* at, uint64_t size) noexcept nogil
cdef void sha256_end(Sha256* hash, uint8_t* digest) noexcept nogil

cdef void hmac_begin(Hmac* key, const uint8_t* at, uint64_t size) noexcept nogil
# The tag of the message that was added to a copy of `key.inner`.
cdef void hmac_end(const Hmac* key, Sha256* hash, uint8_t* digest) noexcept nogil
