# Numbers in decimal.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy



cdef extern from *:
    int count_trailing_zeros "__builtin_ctzll" (unsigned long long value) noexcept nogil

cdef enum:
    EIGHT_DIGITS = 100_000_000   # what a number has to be below to have no more


cdef inline uint64_t eight_digits(uint32_t number) noexcept nogil:
    # The digits of a number below 10^8, the first in the lowest byte: it is divided by 10,000, both
    # parts at once by 100, and all four by 10. The products are exact for numbers that small.
    cdef uint64_t first = number // 10_000
    cdef uint64_t parts = first | (number - first * 10_000) << 32
    first = (parts * 10_486 >> 20) & <uint64_t>0x0000007F0000007F
    parts = first | (parts - first * 100) << 16
    first = (parts * 103 >> 10) & <uint64_t>0x000F000F000F000F
    return first | (parts - first * 10) << 8


cdef inline uint32_t first_text(char* text, uint32_t number) noexcept nogil:
    # In decimal, with zeros behind up to eight characters: how many it has.
    cdef uint64_t digits = eight_digits(number)
    cdef uint32_t zeros = count_trailing_zeros(digits | <uint64_t>1 << 56) & ~7  # of the last, none
    digits = digits + <uint64_t>0x3030303030303030 >> zeros
    memcpy(text, &digits, 8)
    return 8 - (zeros >> 3)


cdef inline void more_text(char* text, uint32_t number) noexcept nogil:
    # All of eight digits.
    cdef uint64_t digits = eight_digits(number) + <uint64_t>0x3030303030303030
    memcpy(text, &digits, 8)


cdef inline void number_text(char* text, uint64_t number) noexcept nogil:
    # In decimal, into at least 20 bytes: eight digits at a time, as orders have long numbers.
    cdef uint64_t above = number // EIGHT_DIGITS
    if above == 0:
        first_text(text, <uint32_t>number)
        return
    if above < EIGHT_DIGITS:
        text += first_text(text, <uint32_t>above)
    else:
        text += first_text(text, <uint32_t>(above // EIGHT_DIGITS))
        more_text(text, <uint32_t>(above % EIGHT_DIGITS))
        text += 8
    more_text(text, <uint32_t>(number % EIGHT_DIGITS))
