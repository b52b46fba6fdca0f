# Track: what a reader may believe of one object, from the records that it saw. Three doubts are
# kept apart, because different things end them:
#
#   doubted   by the feed: a gap, or STALE. Ends with RECOVERED, which comes before the update or
#             snapshot that it speaks of. Or UNHEARD: we joined late or were lapped, and do not know
#             the feed's word; that ends, too, with a message that only passes if the feed is sure.
#   missing   by this reader: what it holds is not the state that updates build on (it has none yet,
#             was lapped, or the feed replaced what it lost by a snapshot that is still to come).
#             Ends with a snapshot, or with the very first update of an object.
#
#   contested by both: two objects go by one name, and nobody knows which of them is meant. Ends
#             when all but one go by another.
#
# A snapshot alone does not end the feed's doubt: the feed may pass one on and still not know
# whether a lost update is newer (feed/objects).
#
# RECOVERED says whether what was published of the object goes on (`continues`): then what we hold
# is sound at once. Otherwise a snapshot follows, and until it comes our state is an old one.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely
from udpfast.core.keyed cimport Key, keyed_word
from udpfast.core.layout cimport (
    OBJECT_UNKNOWN, OBJECT_WAITING, ObjectState, RECORD_SIZE, Record)
from udpfast.market.chain cimport chain_sure

# What no feed watches over (RECORD_UNGATED) comes for many symbols under one number: each symbol of
# it is an object.

cdef enum:
    TRACK_SLOTS_MIN = 64

cdef enum:  # Track.doubted; 0: not in doubt
    TRACK_DOUBTED = 1
    TRACK_UNHEARD = 2

cdef struct Track:
    uint64_t tag                 # (exchange_id << 32) | symbol_id, of its book
    uint32_t object              # as in its records
    int32_t book                 # index of its book, -1: none yet
    uint8_t ungated              # the tag tells it from others of that number
    uint8_t begun                # a message of it was applied, or passed by
    uint8_t doubted
    uint8_t missing
    uint8_t contested            # another object says that it is the same instrument

cdef struct Tracks:
    Key key                      # of the slots; drawn by whom they belong to
    uint32_t* slots              # index of a track + 1, 0: empty; at most half full
    uint32_t slots_mask
    Track* tracks
    uint32_t count
    # The session was seen from its SESSION record on without a lap: then the feed's word on every
    # object is known, and an object of which it said nothing is in doubt.
    bint complete


cdef inline uint32_t track_place(
        const Tracks* tracks, uint32_t object, bint ungated, uint64_t tag) noexcept nogil:
    cdef uint64_t hash_ = keyed_word(&tracks.key, object)
    return <uint32_t> (keyed_word(&tracks.key, hash_ ^ tag) if ungated else hash_)


cdef inline bint track_is(
        const Track* track, uint32_t object, bint ungated, uint64_t tag) noexcept nogil:
    return track.object == object and track.ungated == ungated and (
        not ungated or track.tag == tag)


cdef inline bint track_sound(const Track* track) noexcept nogil:
    return not track.doubted and not track.missing and not track.contested


cdef inline Track* tracks_find(
        Tracks* tracks, uint32_t object, bint ungated, uint64_t tag) noexcept nogil:
    # NULL: no such object. Valid until the next tracks_add. `tag` counts for ungated ones alone.
    cdef uint32_t place = track_place(tracks, object, ungated, tag)
    cdef uint32_t index
    if tracks.slots == NULL:
        return NULL
    while True:
        place &= tracks.slots_mask
        index = tracks.slots[place]
        if index == 0:
            return NULL
        if likely(track_is(tracks.tracks + index - 1, object, ungated, tag)):
            return tracks.tracks + index - 1
        place += 1


cdef inline void tracks_place(Tracks* tracks, uint32_t index) noexcept nogil:
    cdef const Track* track = tracks.tracks + index
    cdef uint32_t place = track_place(tracks, track.object, track.ungated, track.tag)
    while tracks.slots[place & tracks.slots_mask]:
        place += 1
    tracks.slots[place & tracks.slots_mask] = index + 1


cdef inline bint tracks_grow(Tracks* tracks) noexcept nogil:
    cdef uint32_t slots = 2 * (tracks.slots_mask + 1) if tracks.slots != NULL else TRACK_SLOTS_MIN
    cdef Track* grown = <Track*> realloc(tracks.tracks, slots // 2 * sizeof(Track))
    cdef uint32_t* places = NULL
    cdef uint32_t index
    if grown == NULL:
        return False
    tracks.tracks = grown
    places = <uint32_t*> calloc(slots, sizeof(uint32_t))
    if places == NULL:
        return False
    free(tracks.slots)
    tracks.slots = places
    tracks.slots_mask = slots - 1
    for index in range(tracks.count):
        tracks_place(tracks, index)
    return True


cdef inline Track* tracks_add(
        Tracks* tracks, uint32_t object, bint ungated, uint64_t tag) noexcept nogil:
    # The object's track, new or known; NULL: out of memory.
    cdef Track* track = tracks_find(tracks, object, ungated, tag)
    if likely(track != NULL):
        return track
    if tracks.slots == NULL or 2 * tracks.count > tracks.slots_mask:
        if not tracks_grow(tracks):
            return NULL
    track = tracks.tracks + tracks.count
    memset(track, 0, sizeof(Track))
    track.object = object
    track.ungated = ungated
    track.tag = tag
    track.book = -1
    track.missing = True
    track.doubted = TRACK_DOUBTED if tracks.complete else TRACK_UNHEARD
    tracks_place(tracks, tracks.count)
    tracks.count += 1
    return track


cdef inline void tracks_clear(Tracks* tracks, bint complete) noexcept nogil:
    # A session begins: objects are numbered anew.
    if tracks.slots != NULL:
        memset(tracks.slots, 0, (tracks.slots_mask + 1) * sizeof(uint32_t))
    tracks.count = 0
    tracks.complete = complete


cdef inline void tracks_gap(Tracks* tracks) noexcept nogil:
    # A message was lost that may have been of any object.
    cdef uint32_t index
    for index in range(tracks.count):
        tracks.tracks[index].doubted = TRACK_DOUBTED


cdef inline void tracks_lapped(Tracks* tracks) noexcept nogil:
    # We missed records, the feed's words among them: a snapshot must come, and the feed be sure.
    cdef uint32_t index
    for index in range(tracks.count):
        tracks.tracks[index].missing = True
        tracks.tracks[index].doubted = TRACK_UNHEARD
        tracks.tracks[index].begun = False
    tracks.complete = False


cdef inline void track_stale(Track* track) noexcept nogil:
    # The feed holds back what comes, until a snapshot.
    track.doubted = TRACK_DOUBTED
    track.missing = True


cdef inline void track_joined(Track* track, int status) noexcept nogil:
    # The same out of an image: UNKNOWN, what we hold is all there is unless the feed finds
    # otherwise; WAITING, the feed is sure and we have nothing to build on; STALE, neither.
    track.doubted = 0 if status == OBJECT_WAITING else TRACK_UNHEARD
    track.missing = track.missing or status != OBJECT_UNKNOWN


cdef inline void track_recovered(
        Track* track, const Record* header, const uint8_t* payload) noexcept nogil:
    cdef ObjectState said
    said.continues = False
    if header.length >= <int64_t> (RECORD_SIZE + sizeof(said)):
        memcpy(&said, payload, sizeof(said))
    track.doubted = 0
    if not track.begun or not said.continues:
        track.missing = True


cdef inline void track_heard(Track* track, const Record* header) noexcept nogil:
    if track.doubted == TRACK_UNHEARD and chain_sure(header):
        track.doubted = 0
