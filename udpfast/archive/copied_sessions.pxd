# Sessions of a composite's copy: each says which input it is of, and which session there.

from libc.stdint cimport int64_t, uint16_t

cdef enum:
    INPUTS_MAX = 16              # as bus.toml may list
    SESSIONS_MAX = 4094          # of an input; the next one is 1 again


cdef inline uint16_t session_of(uint16_t session, int64_t input) noexcept nogil:
    # Session 0 of the first input is 1, of the second one 2; session 1 of the first one 17.
    if session:
        session = (session - 1) % SESSIONS_MAX + 1
    return <uint16_t>(session * INPUTS_MAX + input + 1)


cdef inline int64_t input_of(uint16_t session) noexcept nogil:
    # Below 0: of none.
    return <int64_t>((session - 1) % INPUTS_MAX) if session else -1
