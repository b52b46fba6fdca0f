# LinkSeal: proof that a link's bytes come from a host that has the bus's key, once and in order
# (bus/seal.py says how). A loop wraps and unwraps; a thread seals what it sends where that lies,
# and reads what it got by `seal_space` and `seal_read`.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.core.sha256 cimport Hmac

cdef enum:
    SEAL_SIZE = 20               # before each piece: its length, its tag
    # Bytes of a piece: more would keep the other end waiting for the tag to be right.
    PIECE_MAX = 1 << 16
    KEYS_MAX = 2

cdef class LinkSeal:
    cdef tuple _keys
    cdef int _count              # of them
    cdef bytes _nonce
    cdef bytes _other            # its nonce; None: not known yet
    cdef bint _began
    cdef bint _greeted
    cdef object _waiting         # what cannot be sealed yet
    cdef Hmac _own[KEYS_MAX]     # of each key: what this end seals by ...
    cdef Hmac _theirs[KEYS_MAX]  # ... and the other one
    cdef int _key                # which of them it is; -1: not known yet
    cdef uint64_t _sent, _taken  # pieces
    cdef uint8_t* _received      # from the socket: what is not taken yet lies from, to
    cdef uint64_t _at, _size
    cdef uint64_t _proven        # so many bytes of that
    cdef _derive(self)

# The seal of the next piece: all that lies in two places, at most PIECE_MAX.
cdef void seal_piece(
    LinkSeal seal, uint8_t* prefix, const uint8_t* first, uint64_t first_size,
    const uint8_t* second, uint64_t second_size) noexcept nogil
# Where bytes from the socket go, and how many; they are noted by adding them to `_size`.
cdef uint8_t* seal_space(LinkSeal seal, uint64_t* room) noexcept nogil
# Take what is proven, at most `room`: how many bytes; 0: no whole piece is there; -1: a piece is
# not what comes next from a host that has the key.
cdef int64_t seal_read(LinkSeal seal, uint8_t* into, uint64_t room) noexcept nogil
