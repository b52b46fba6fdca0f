"""CRC32C by tables, and of arbitrary bytes."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

__all__ = ["crc32c", "crc32c_in_hardware"]

cdef enum:
    POLYNOMIAL = 0x82F63B78      # reflected

# Filled once, below, and constant afterwards: TABLES[n][b] is the effect of byte b after n more
# bytes.
cdef uint32_t TABLES[8][256]


cdef uint64_t crc32c_by_table(uint64_t state, const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint64_t word
    while size >= 8:
        word = load_word(at) ^ state
        state = (
            TABLES[7][word & 0xFF] ^ TABLES[6][(word >> 8) & 0xFF]
            ^ TABLES[5][(word >> 16) & 0xFF] ^ TABLES[4][(word >> 24) & 0xFF]
            ^ TABLES[3][(word >> 32) & 0xFF] ^ TABLES[2][(word >> 40) & 0xFF]
            ^ TABLES[1][(word >> 48) & 0xFF] ^ TABLES[0][word >> 56])
        at += 8
        size -= 8
    while size:
        state = TABLES[0][(state ^ at[0]) & 0xFF] ^ (state >> 8)
        at += 1
        size -= 1
    return state


def crc32c(const uint8_t[::1] content, *, bint tables=False) -> int:
    """Return the CRC32C of some bytes.

    Parameters
    ----------
    content : bytes-like
        The bytes.
    tables : bool
        Use the tables even if the processor has an instruction for it.
    """
    cdef uint64_t size = content.shape[0]
    cdef uint64_t words = 0 if tables else size & ~<uint64_t>7
    cdef uint64_t state = CRC32C_BEGIN
    cdef const uint8_t* at
    if size:
        at = &content[0]
        state = crc32c_words(state, at, words)
        state = crc32c_by_table(state, at + words, size - words)
    return <uint32_t>~state


def crc32c_in_hardware() -> bool:
    """Return whether this processor (and build) has instructions for CRC32C."""
    return crc32c_fast()


cdef void fill_tables() noexcept:
    cdef uint32_t byte, state
    cdef int n, _bit
    for byte in range(256):
        state = byte
        for _bit in range(8):
            state = (state >> 1) ^ (<uint32_t>POLYNOMIAL if state & 1 else 0)
        TABLES[0][byte] = state
    for byte in range(256):
        for n in range(1, 8):
            TABLES[n][byte] = (TABLES[n - 1][byte] >> 8) ^ TABLES[0][TABLES[n - 1][byte] & 0xFF]


fill_tables()
