# LinkSeal: proves that a link's bytes come from a host that has the bus's key, once and in order
# (bus/seal.py describes the protocol). A loop calls wrap and unwrap; a thread seals what it sends
# in place, and reads what it received with `seal_space` and `seal_read`.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.core.sha256 cimport Hmac

cdef enum:
    SEAL_SIZE = 20               # in front of each piece: its length and its tag
    # Bytes of a piece. Larger ones would make the receiver wait longer for the tag.
    PIECE_MAX = 1 << 16
    KEYS_MAX = 2

cdef class LinkSeal:
    cdef tuple _keys
    cdef int _count              # number of keys
    cdef bytes _nonce
    cdef bytes _other            # nonce of the other end; None: not known yet
    cdef bint _began
    cdef bint _greeted
    cdef object _waiting         # bytes that cannot be sealed yet
    cdef Hmac _own[KEYS_MAX]     # for each key: what this end seals with ...
    cdef Hmac _theirs[KEYS_MAX]  # ... and what the other end does
    cdef int _key                # index of the key in use; -1: not known yet
    cdef uint64_t _sent, _taken  # number of pieces
    cdef uint8_t* _received      # bytes from the socket; those between _at and _size are unread
    cdef uint64_t _at, _size
    cdef uint64_t _proven        # how many of the unread bytes are proven authentic
    cdef _derive(self)

# Seal the next piece, which is the concatenation of two buffers, at most PIECE_MAX bytes.
cdef void seal_piece(
    LinkSeal seal, uint8_t* prefix, const uint8_t* first, uint64_t first_size,
    const uint8_t* second, uint64_t second_size) noexcept nogil
# Return where to put bytes from the socket; *room: how many fit. The caller adds the number to
# _size.
cdef uint8_t* seal_space(LinkSeal seal, uint64_t* room) noexcept nogil
# Copy at most `room` authentic bytes. Returns how many; 0: no complete piece is there; -1: a piece
# is not the next one of a host that has the key.
cdef int64_t seal_read(LinkSeal seal, uint8_t* into, uint64_t room) noexcept nogil
