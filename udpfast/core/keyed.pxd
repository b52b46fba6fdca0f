# Hashes of what comes from the network, under keys that are drawn at random: who chooses ids and
# names cannot choose where they lie in a table, so a run of collisions costs an attacker as much
# as it costs chance. Keys decide places alone, never an order that anybody sees.

from libc.stdint cimport uint64_t

from udpfast.core.check cimport invariant

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* buffer, size_t size, unsigned int flags) noexcept

cdef extern from *:
    """
    static inline uint64_t udpfast_keyed_fold(uint64_t a, uint64_t b)
    {
        unsigned __int128 product = (unsigned __int128) a * b;
        return (uint64_t) product ^ (uint64_t) (product >> 64);
    }
    """
    # Both halves of the product: what differs in its highest bits only does not reach the lower.
    uint64_t keyed_fold "udpfast_keyed_fold" (uint64_t a, uint64_t b) noexcept nogil

cdef struct Key:
    uint64_t mask                # hides a word, so that nobody can send the one that makes a 0
    uint64_t factor


cdef inline void keyed_draw(Key* key) noexcept nogil:
    # As many bytes come at once (getrandom(2): up to 256 are never cut short by a signal).
    invariant(getrandom(key, sizeof(Key), 0) == sizeof(Key))
    key.factor |= 1


cdef inline uint64_t keyed_word(const Key* key, uint64_t word) noexcept nogil:
    # The hash of one word. After one fold numbers in steps lie in steps: some factors pile them up.
    return keyed_fold(keyed_fold(word ^ key.mask, key.factor) ^ key.mask, key.factor)
