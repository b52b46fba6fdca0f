# Sessions of a composite's copy. Each encodes an input and a session of that input.

from libc.stdint cimport int64_t, uint16_t

cdef enum:
    INPUTS_MAX = 16              # most inputs of a composite in bus.toml
    SESSIONS_MAX = 4094          # of one input; after the last one it starts at 1 again


cdef inline uint16_t session_of(uint16_t session, int64_t input) noexcept nogil:
    # For example, session 0 of the first input is 1, of the second one 2; session 1 of the first is
    # 17.
    if session:
        session = (session - 1) % SESSIONS_MAX + 1
    return <uint16_t>(session * INPUTS_MAX + input + 1)


cdef inline int64_t input_of(uint16_t session) noexcept nogil:
    # Return the index of the input; below 0: none.
    return <int64_t>((session - 1) % INPUTS_MAX) if session else -1
