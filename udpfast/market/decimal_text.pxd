# Writes integers in decimal, eight digits at a time, because venues' ids of orders are long.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    int count_trailing_zeros "__builtin_ctzll" (unsigned long long value) noexcept nogil

cdef enum:
    EIGHT_DIGITS = 100_000_000   # the first number with more than eight digits


cdef inline uint64_t eight_digits(uint32_t number) noexcept nogil:
    # Return the digits of a number below 10^8, the first in the lowest byte. The number is divided
    # by 10,000, both halves at once by 100, and all four quarters by 10. For numbers this small the
    # multiplications by a reciprocal are exact.
    cdef uint64_t first = number // 10_000
    cdef uint64_t parts = first | (number - first * 10_000) << 32
    first = (parts * 10_486 >> 20) & <uint64_t>0x0000007F0000007F
    parts = first | (parts - first * 100) << 16
    first = (parts * 103 >> 10) & <uint64_t>0x000F000F000F000F
    return first | (parts - first * 10) << 8


cdef inline uint32_t first_text(char* text, uint32_t number) noexcept nogil:
    # Write a number below 10^8, padded with zero bytes to eight characters. Return its length.
    cdef uint64_t digits = eight_digits(number)
    # A bit in the last byte keeps the digit of number 0.
    cdef uint32_t zeros = count_trailing_zeros(digits | <uint64_t>1 << 56) & ~7
    digits = digits + <uint64_t>0x3030303030303030 >> zeros
    memcpy(text, &digits, 8)
    return 8 - (zeros >> 3)


cdef inline void more_text(char* text, uint32_t number) noexcept nogil:
    # Write a number below 10^8 with all eight digits.
    cdef uint64_t digits = eight_digits(number) + <uint64_t>0x3030303030303030
    memcpy(text, &digits, 8)


cdef inline void number_text(char* text, uint64_t number) noexcept nogil:
    # Write a number; `text` has at least 20 bytes.
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
