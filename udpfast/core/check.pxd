# invariant(cond): what must be true. If it is not, the process aborts with file and line, in every
# build, because continuing would publish wrong prices. Not for input: bad input gets a verdict.

cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>
    #define udpfast_invariant(cond) do { if (__builtin_expect(!(cond), 0)) { \\
        fprintf(stderr, "udpfast: invariant broken: %s (%s:%d)\\n", #cond, __FILE__, __LINE__); \\
        abort(); } } while (0)
    #define udpfast_likely(cond) __builtin_expect(!!(cond), 1)
    #define udpfast_unlikely(cond) __builtin_expect(!!(cond), 0)
    """
    void invariant "udpfast_invariant" (bint cond) noexcept nogil
    bint likely "udpfast_likely" (bint cond) noexcept nogil
    bint unlikely "udpfast_unlikely" (bint cond) noexcept nogil
