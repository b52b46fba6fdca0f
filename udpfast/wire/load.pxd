# Load numbers of either byte order from any address. The compiler turns each function into one
# load, and a byte swap if the order is not the processor's.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t le16(const uint8_t* at) noexcept nogil:
    return <uint16_t>(at[0] | (at[1] << 8))


cdef inline uint32_t le32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] | (<uint32_t>at[1] << 8)
            | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24))


cdef inline uint64_t le64(const uint8_t* at) noexcept nogil:
    return (<uint64_t>at[0] | (<uint64_t>at[1] << 8)
            | (<uint64_t>at[2] << 16) | (<uint64_t>at[3] << 24)
            | (<uint64_t>at[4] << 32) | (<uint64_t>at[5] << 40)
            | (<uint64_t>at[6] << 48) | (<uint64_t>at[7] << 56))


cdef inline uint16_t be16(const uint8_t* at) noexcept nogil:
    return <uint16_t>((at[0] << 8) | at[1])


cdef inline uint32_t be32(const uint8_t* at) noexcept nogil:
    return ((<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16)
            | (<uint32_t>at[2] << 8) | <uint32_t>at[3])


cdef inline uint64_t be64(const uint8_t* at) noexcept nogil:
    return ((<uint64_t>at[0] << 56) | (<uint64_t>at[1] << 48)
            | (<uint64_t>at[2] << 40) | (<uint64_t>at[3] << 32)
            | (<uint64_t>at[4] << 24) | (<uint64_t>at[5] << 16)
            | (<uint64_t>at[6] << 8) | <uint64_t>at[7])
