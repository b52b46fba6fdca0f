# What `numbering` weighs of a unit, and what it says: where the unit lies, seen from the current
# numbering, what its bytes tell, and which run is proven with it.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from udpfast.feed.run cimport Evidence, Run

cdef enum:  # Weighed
    WEIGHED_CONTINUES = 0        # it is of the current numbering
    WEIGHED_ASIDE = 1            # it is not, for all that is proven: kept with a run, `verdict`
    WEIGHED_ADOPT = 2            # it is not, and its run is proven: `adoption`

cdef enum:  # Place: where a unit lies, seen from the current numbering
    PLACE_SESSION = 0            # in another session, or none has begun
    PLACE_NAMED = 1              # it takes no number, and names the next one
    PLACE_KNOWN = 2              # all of it came before, or was given up: it was compared
    PLACE_PACKED = 3             # it overlaps what is known, and cannot be cut
    PLACE_WITHIN = 4             # in the window
    PLACE_BEYOND = 5             # ahead of it
    PLACE_OLD = 6                # in the numbering before the current one

cdef struct Located:             # a unit, as the window sees it
    int64_t at                   # key of its first number
    int64_t last                 # ... and of its last one
    uint8_t place                # Place
    bint announced               # its sender says that this session begins anew
    bint left_over               # byte for byte what the numbering before delivered
    bint sent_after              # sent later than what its line brought from further on
    bint further                 # beyond all that was accepted
    bint forward                 # it carries the current numbering further
    int verdict                  # KNOWN: what it is; ASIDE: what it gets
    Evidence evidence

cdef struct Adoption:
    Run* run                     # that is proven; NULL: the very first session
    uint32_t reason              # SessionReason
    uint64_t first               # where it begins, for all that is known
    uint64_t unseen              # of the very first session: numbers before it
