"""The sealing of one end of a link; `udpfast.bus.seal` describes the protocol."""

import hmac

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from udpfast.core.sha256 cimport (
    SHA256_SIZE, Sha256, hmac_begin, hmac_end, sha256_add)

from udpfast.bus.seal import NONCE_SIZE, UnauthenticError

__all__ = ["LinkSeal"]

cdef enum:
    TAG_SIZE = 16
    LENGTH_SIZE = 4
    # The receive buffer has room for a complete piece, wherever it begins.
    RECEIVED_MAX = 2 * (SEAL_SIZE + PIECE_MAX)


cdef class LinkSeal:
    """The seal of one end of a link.

    Parameters
    ----------
    keys : sequence of bytes
        Keys of the bus, one or two.
    nonce : bytes
        `NONCE_SIZE` random bytes, drawn for this link.
    began : bool
        This end began the link. It chooses the key; the other end follows.
    """

    def __cinit__(self):
        self._received = <uint8_t*>malloc(RECEIVED_MAX)
        if self._received == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._received)

    def __init__(self, keys: Sequence[bytes], bytes nonce, *, bint began):
        if not 0 < len(keys) <= KEYS_MAX:
            raise ValueError(f"expected 1 to {KEYS_MAX} keys, found {len(keys)}")
        self._keys = tuple(keys)
        self._count = len(keys)
        self._nonce = nonce
        self._began = began
        self._key = 0 if began else -1
        self._waiting = bytearray()

    @property
    def ready(self) -> bool:
        """Whether both ends use the same key and no bytes wait for that."""
        return self._other is not None and self._key >= 0 and not self._waiting

    def wrap(self, bytes data) -> bytes:
        """Return the bytes to send to transfer `data`; some are held back until `ready`."""
        cdef uint8_t prefix[SEAL_SIZE]
        cdef bytes piece
        self._waiting += data
        pieces = [] if self._greeted else [self._nonce]
        self._greeted = True
        if self._key >= 0 and self._other is not None:
            for at in range(0, len(self._waiting), PIECE_MAX):
                piece = bytes(self._waiting[at:at + PIECE_MAX])
                seal_piece(self, prefix, <const uint8_t*><const char*>piece, len(piece), NULL, 0)
                pieces += [(<const char*>prefix)[:SEAL_SIZE], piece]
            self._waiting.clear()
        return b"".join(pieces)

    def unwrap(self, bytes data) -> bytes:
        """Return the bytes that the other end sent, as far as they are complete and authentic.

        Raises
        ------
        UnauthenticError
            They are not from a host that has the key, or are not the next ones.
        """
        cdef uint8_t[4096] some
        cdef uint64_t room, taken
        cdef uint64_t at = 0
        cdef int64_t got
        found = []
        while True:
            if self._other is not None:
                got = seal_read(self, some, sizeof(some))
                if got < 0:
                    raise UnauthenticError(
                        "a piece of its data was not sealed with a key of this host, for this "
                        "place")
                if got:
                    found.append((<const char*>some)[:got])
                    continue
            if at == <uint64_t>len(data):
                return b"".join(found)
            place = seal_space(self, &room)
            taken = min(room, <uint64_t>len(data) - at)
            memcpy(place, <const uint8_t*><const char*>data + at, taken)
            at += taken
            self._size += taken
            if self._other is None and self._size >= <uint64_t>NONCE_SIZE:
                self._other = (<const char*>self._received)[:NONCE_SIZE]
                self._at = NONCE_SIZE
                self._derive()

    cdef _derive(self):
        cdef bytes made
        first, second = (self._nonce, self._other) if self._began else (self._other, self._nonce)
        for number, key in enumerate(self._keys):
            for by_who_began in (False, True):
                made = hmac.digest(key, b"udpfast bus link" + bytes([by_who_began]) + first
                                   + second, "sha256")
                hmac_begin(&self._own[number] if by_who_began == self._began
                           else &self._theirs[number],
                           <const uint8_t*><const char*>made, SHA256_SIZE)


cdef void _tag(
        const Hmac* key, uint64_t number, const uint8_t* first, uint64_t first_size,
        const uint8_t* second, uint64_t second_size, uint8_t* digest) noexcept nogil:
    cdef Sha256 hash = key.inner
    sha256_add(&hash, <const uint8_t*>&number, sizeof(number))
    sha256_add(&hash, first, first_size)
    sha256_add(&hash, second, second_size)
    hmac_end(key, &hash, digest)


cdef void seal_piece(
        LinkSeal seal, uint8_t* prefix, const uint8_t* first, uint64_t first_size,
        const uint8_t* second, uint64_t second_size) noexcept nogil:
    cdef uint8_t digest[SHA256_SIZE]
    cdef uint32_t size = <uint32_t>(first_size + second_size)
    _tag(&seal._own[seal._key], seal._sent, first, first_size, second, second_size, digest)
    seal._sent += 1
    memcpy(prefix, &size, LENGTH_SIZE)
    memcpy(prefix + LENGTH_SIZE, digest, TAG_SIZE)


cdef uint8_t* seal_space(LinkSeal seal, uint64_t* room) noexcept nogil:
    if seal._at == seal._size:
        seal._at = seal._size = 0
    elif seal._at and RECEIVED_MAX - seal._size < SEAL_SIZE + PIECE_MAX:
        memmove(seal._received, seal._received + seal._at, seal._size - seal._at)
        seal._size -= seal._at
        seal._at = 0
    room[0] = RECEIVED_MAX - seal._size
    return seal._received + seal._size


cdef bint _prove(LinkSeal seal, const uint8_t* piece, uint32_t size) noexcept nogil:
    cdef uint8_t digest[SHA256_SIZE]
    cdef uint8_t differs
    cdef int key, at
    for key in range(seal._count):
        if seal._key not in (-1, key):
            continue
        _tag(&seal._theirs[key], seal._taken, piece + SEAL_SIZE, size, NULL, 0, digest)
        differs = 0
        for at in range(TAG_SIZE):  # compare all bytes, so that the duration tells nothing
            differs |= digest[at] ^ piece[LENGTH_SIZE + at]
        if not differs:
            seal._key = key
            seal._taken += 1
            return True
    return False


cdef int64_t seal_read(LinkSeal seal, uint8_t* into, uint64_t room) noexcept nogil:
    cdef uint8_t* piece = seal._received + seal._at
    cdef uint64_t held = seal._size - seal._at
    cdef uint32_t size
    if seal._proven == 0:
        if held < SEAL_SIZE:
            return 0
        memcpy(&size, piece, LENGTH_SIZE)
        if not 0 < size <= PIECE_MAX:
            return -1
        if held < SEAL_SIZE + size:
            return 0
        if not _prove(seal, piece, size):
            return -1
        seal._at += SEAL_SIZE
        seal._proven = size
    room = min(room, seal._proven)
    memcpy(into, seal._received + seal._at, room)
    seal._at += room
    seal._proven -= room
    return <int64_t>room
