# Hashes of values from the network, under random keys. Whoever chooses ids and names cannot choose
# their places in a table, so collisions are no likelier than by chance. Keys decide only places in
# a table, never an order that anybody sees.

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
    # Combine both halves of the product: a difference in the highest bits of a factor does not
    # reach the lower half.
    uint64_t keyed_fold "udpfast_keyed_fold" (uint64_t a, uint64_t b) noexcept nogil

cdef struct Key:
    uint64_t mask                # hides a word, so that nobody can choose one that gives 0
    uint64_t factor


cdef inline void keyed_draw(Key* key) noexcept nogil:
    # The bytes come in one call (getrandom(2): signals never cut short up to 256 bytes).
    invariant(getrandom(key, sizeof(Key), 0) == sizeof(Key))
    key.factor |= 1


cdef inline uint64_t keyed_word(const Key* key, uint64_t word) noexcept nogil:
    # Hash one word. One fold would keep numbers in steps in steps, and some factors pile them up.
    return keyed_fold(keyed_fold(word ^ key.mask, key.factor) ^ key.mask, key.factor)
