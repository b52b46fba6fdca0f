# Doubt: decides, from the records read, how far an object can be trusted. All who read records use
# it: a strategy's books (client/books), and the keepers of last values for late joiners
# (market/state: an image, the last values of a fan-out).
#
# There are two kinds of doubt, because different records end them:
#
#   doubted   The feed doubts the object: a gap, or STALE. Gaps are only counted, so that they cost
#             nothing per object; whoever shows the doubt beside each value visits the objects of
#             the stream. RECOVERED ends it, and precedes the update or snapshot that it announces.
#             Or UNHEARD: records were missed, or came before we joined, and what the feed said may
#             be among them. A message that passes only if the feed is sure ends that, too.
#   missing   The reader lacks what updates build on: nothing is held yet, records were missed, or
#             the feed replaced what it lost by a snapshot that has not come yet. A snapshot ends
#             it, or the very first update of an object. Each held value of an object can be missing
#             separately, so its holder keeps that flag; `doubt_*` return when it changes.
# A snapshot alone does not end the feed's doubt: the feed may publish one while it does not know
# whether a lost update is newer (market/gate).
#
# RECOVERED says whether the published updates of the object continue (`continues`): then what is
# held is sound at once. Otherwise a snapshot follows, and until it comes the held state is old.
#
# Ungated records (RECORD_UNGATED) of many symbols come under one number: each symbol is an object.
# Only gaps put these in doubt, and only complete updates end the doubt, each that of its own kind:
# orders say nothing about a book, nor does a top of book.
#
# An object belongs to one stream, which all its records name, snapshots included. A GAP of that
# stream puts it in doubt, a SESSION of that stream resets it; other streams do not concern it.
# Roq's two streams count as one here, because the snapshot stream repeats the incremental one: both
# have one Heard.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from udpfast.core.check cimport likely
from udpfast.core.keyed cimport Key, keyed_draw, keyed_word
from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, GAP_ANEW, Gap, KIND_BUS, KIND_MESSAGE, KIND_RECOVERED,
    KIND_STALE, KIND_UPDATES, OBJECT_UNKNOWN, OBJECT_WAITING, ObjectState, RECORD_FIRST,
    RECORD_RELEASED, RECORD_SIZE, RECORD_SNAPSHOT, RECORD_UNGATED, Record, STREAM_FIRST,
    STREAM_NONE)

cdef enum:
    DOUBT_SLOTS_MIN = 64
    SESSION_UNSEEN = -1          # Heard.session

cdef enum:  # Doubt.doubted; 0: the feed was sure when the stream had `sure` gaps
    DOUBT_SAID = 1
    DOUBT_UNHEARD = 2

cdef struct Doubt:
    uint64_t key                 # doubt_key
    uint64_t tag                 # (exchange_id << 32) | symbol_id; ungated: a part of the key
    uint32_t sure                # the stream's gaps when the feed was last sure of the object
    uint8_t doubted
    uint8_t begun                # a message of it was applied or skipped
    uint8_t reserved[2]

cdef packed struct Heard:        # what was heard of one stream; 16 bytes, a part of an image
    uint32_t gaps                # gaps that may concern any of its objects
    uint32_t before              # how many of them came before its session
    int32_t session              # ordinal; SESSION_UNSEEN: none was seen yet
    # The session was followed from its SESSION record on without a lap. So everything that the feed
    # said is known, and an object that it never mentioned is in doubt.
    uint8_t complete
    uint8_t reserved[3]

cdef struct Doubts:              # all objects of a feed
    Heard* heard                 # indexed by doubt_stream
    uint32_t streams             # how many of them there are
    uint32_t count               # objects
    Key key                      # for the hash of the slots
    uint32_t* slots              # offset of an object in words of 8 bytes, + 1; 0: empty
    uint32_t slots_mask          # at most half of the slots are full
    uint32_t stride              # words per object: its Doubt, then its owner's fields
    uint64_t* objects
    uint32_t gated               # how many objects have a gate


cdef inline uint64_t doubt_tag(uint32_t exchange_id, uint32_t symbol_id) noexcept nogil:
    return (<uint64_t> exchange_id << 32) | symbol_id


cdef inline uint64_t doubt_key(const Record* record) noexcept nogil:
    return (<uint64_t> doubt_stream(record.stream) << 40
            | <uint64_t> (record.flags & RECORD_UNGATED != 0) << 32 | record.object)


cdef inline bint doubt_ungated(uint64_t key) noexcept nogil:
    return key >> 32 & 1


cdef inline uint32_t doubt_stream(uint16_t stream) noexcept nogil:
    # Return the index of the stream's Heard. Records that concern no stream use that of Roq.
    return 0 if stream < STREAM_FIRST or stream == STREAM_NONE else stream - STREAM_FIRST + 1


cdef inline uint32_t doubt_key_stream(uint64_t key) noexcept nogil:
    return <uint32_t> (key >> 40)


# --- the objects --------------------------------------------------------------------------------

cdef inline void doubts_init(Doubts* doubts, uint64_t size) noexcept nogil:
    # `size`: bytes per object, a multiple of 8.
    memset(doubts, 0, sizeof(Doubts))
    keyed_draw(&doubts.key)
    doubts.stride = <uint32_t> size // 8


cdef inline void doubts_free(Doubts* doubts) noexcept nogil:
    free(doubts.heard)
    free(doubts.slots)
    free(doubts.objects)
    doubts_init(doubts, 8 * <uint64_t> doubts.stride)


cdef inline bint doubts_reach(Doubts* doubts, uint32_t stream) noexcept nogil:
    # Make sure that there is a Heard for each stream up to this one, which all other functions here
    # rely on. Return False if there is no memory.
    cdef uint32_t streams = max(stream + 1, 2 * doubts.streams)
    cdef Heard* heard
    if likely(stream < doubts.streams):
        return True
    heard = <Heard*> realloc(doubts.heard, streams * sizeof(Heard))
    if heard == NULL:
        return False
    doubts.heard = heard
    while doubts.streams < streams:
        heard[doubts.streams].gaps = 0
        heard_begin(&heard[doubts.streams], False)
        doubts.streams += 1
    return True


cdef inline void heard_begin(Heard* heard, bint complete) noexcept nogil:
    # `gaps` goes on counting, because some objects of an image may know of more gaps.
    heard.before = heard.gaps
    heard.session = SESSION_UNSEEN
    heard.complete = complete
    memset(heard.reserved, 0, sizeof(heard.reserved))


cdef inline Heard* doubts_heard(const Doubts* doubts, const Record* record) noexcept nogil:
    return &doubts.heard[doubt_stream(record.stream)]


cdef inline Doubt* doubts_at(const Doubts* doubts, uint32_t index) noexcept nogil:
    return <Doubt*> (doubts.objects + <uint64_t> index * doubts.stride)


cdef inline uint32_t doubts_hash(const Doubts* doubts, uint64_t key, uint64_t tag) noexcept nogil:
    cdef uint64_t hash_ = keyed_word(&doubts.key, key)
    return <uint32_t> (keyed_word(&doubts.key, hash_ ^ tag) if doubt_ungated(key) else hash_)


cdef inline Doubt* doubts_find(const Doubts* doubts, uint64_t key, uint64_t tag) noexcept nogil:
    # Return NULL if there is no such object. The result is valid until the next doubts_add. `tag`
    # matters for ungated objects only.
    cdef uint32_t place
    cdef Doubt* doubt
    if doubts.slots == NULL:
        return NULL
    place = doubts_hash(doubts, key, tag)
    while True:
        place &= doubts.slots_mask
        if doubts.slots[place] == 0:
            return NULL
        doubt = <Doubt*> (doubts.objects + doubts.slots[place] - 1)
        if likely(doubt.key == key and (not doubt_ungated(key) or doubt.tag == tag)):
            return doubt
        place += 1


cdef inline Doubt* doubts_find_gated(const Doubts* doubts, const Record* record) noexcept nogil:
    # Return the gated object of the record's number, or NULL.
    return doubts_find(
        doubts, doubt_key(record) & ~(<uint64_t> 1 << 32), 0) if doubts.gated else NULL


cdef inline void doubts_enter(Doubts* doubts, uint32_t index) noexcept nogil:
    cdef const Doubt* doubt = doubts_at(doubts, index)
    cdef uint32_t place = doubts_hash(doubts, doubt.key, doubt.tag)
    while doubts.slots[place & doubts.slots_mask]:
        place += 1
    doubts.slots[place & doubts.slots_mask] = index * doubts.stride + 1


cdef inline bint doubts_grow(Doubts* doubts) noexcept nogil:
    cdef uint32_t slots = 2 * (doubts.slots_mask + 1) if doubts.slots != NULL else DOUBT_SLOTS_MIN
    cdef uint64_t* objects = <uint64_t*> realloc(
        doubts.objects, <uint64_t> (slots // 2) * 8 * doubts.stride)
    cdef uint32_t* places = NULL
    cdef uint32_t index
    if objects == NULL:
        return False
    doubts.objects = objects
    places = <uint32_t*> calloc(slots, sizeof(uint32_t))
    if places == NULL:
        return False
    free(doubts.slots)
    doubts.slots = places
    doubts.slots_mask = slots - 1
    for index in range(doubts.count):
        doubts_enter(doubts, index)
    return True


cdef inline Doubt* doubts_add(Doubts* doubts, uint64_t key, uint64_t tag) noexcept nogil:
    # Add an object that is not there yet; its other fields are zero. Return NULL if there is no
    # memory.
    cdef Doubt* doubt
    if doubts.slots == NULL or 2 * doubts.count > doubts.slots_mask:
        if not doubts_grow(doubts):
            return NULL
    doubt = doubts_at(doubts, doubts.count)
    memset(doubt, 0, 8 * <uint64_t> doubts.stride)
    doubt.key = key
    doubt.tag = tag
    doubts.gated += not doubt_ungated(key)
    doubt_begin(doubts, doubt)
    doubts_enter(doubts, doubts.count)
    doubts.count += 1
    return doubt


cdef inline void doubt_begin(const Doubts* doubts, Doubt* doubt) noexcept nogil:
    # Reset an object of which nothing was heard. An ungated one is in doubt if there was a gap
    # since the session of its stream began.
    cdef const Heard* heard = &doubts.heard[doubt_key_stream(doubt.key)]
    doubt.begun = False
    doubt.doubted = 0
    if doubt_ungated(doubt.key):
        doubt.sure = heard.before
        return
    doubt.sure = heard.gaps
    doubt.doubted = DOUBT_SAID if heard.complete else DOUBT_UNHEARD


# --- what holds for all of them -----------------------------------------------------------------

cdef inline bint doubts_begin_all(const Record* record) noexcept nogil:
    # Return True if a SESSION or RESTART removes all objects: Roq gives them new numbers, and so
    # may another writer. Other streams name their objects alike in all sessions, so theirs are only
    # reset.
    return doubt_stream(record.stream) == 0


cdef inline void doubts_begin(Doubts* doubts, bint complete) noexcept nogil:
    # Remove all objects, because numbers mean other objects now: a session begins, or (not
    # `complete`) its beginning was missed.
    cdef uint32_t stream
    if doubts.slots != NULL:
        memset(doubts.slots, 0, (<uint64_t> doubts.slots_mask + 1) * sizeof(uint32_t))
    doubts.gated = 0
    doubts.count = 0
    for stream in range(doubts.streams):
        heard_begin(&doubts.heard[stream], complete and stream == 0)


cdef inline void doubts_incomplete(Doubts* doubts) noexcept nogil:
    # Records were missed: objects that appear later are in doubt as well.
    cdef uint32_t stream
    for stream in range(doubts.streams):
        doubts.heard[stream].complete = False


cdef inline bint record_is_of_object(const Record* record) noexcept nogil:
    # Return True for messages, decoded or not, and for what the feed says of an object.
    return (KIND_UPDATES <= record.kind < KIND_BUS or record.kind == KIND_MESSAGE
            or record.kind == KIND_STALE or record.kind == KIND_RECOVERED)


cdef inline bint doubts_elsewhere(const Doubts* doubts, const Record* record) noexcept nogil:
    # Return True if a record of an object belongs to another session of its stream than the records
    # before. If one was seen before, the new session begins here, and its SESSION record was
    # missed.
    return (record.session != doubts_heard(doubts, record).session
            and record_is_of_object(record))


cdef inline bint doubts_gap(
        Doubts* doubts, const Record* record, const uint8_t* payload) noexcept nogil:
    # Take a GAP. Return True if it puts every object of its stream in doubt: a lost message may
    # have concerned any of them, or the snapshots so far were another publisher's.
    cdef Gap gap
    if record.stream == STREAM_NONE:     # concerns streams that have no object here
        return False
    if record.stream == CHANNEL_SNAPSHOT:
        if record.length < <int64_t> (RECORD_SIZE + sizeof(Gap)):
            return False
        memcpy(&gap, payload, sizeof(Gap))
        if gap.reason != GAP_ANEW:
            return False
    doubts_heard(doubts, record).gaps += 1
    return True


# --- one object ---------------------------------------------------------------------------------

cdef inline bint doubt_stands(const Doubts* doubts, const Doubt* doubt) noexcept nogil:
    # Return True if the feed, as far as we heard, doubts the object.
    return doubt.doubted or doubt.sure != doubts.heard[doubt_key_stream(doubt.key)].gaps


cdef inline void doubt_end(const Doubts* doubts, Doubt* doubt) noexcept nogil:
    doubt.doubted = 0
    doubt.sure = doubts.heard[doubt_key_stream(doubt.key)].gaps


cdef inline bint doubt_said(
        const Doubts* doubts, Doubt* doubt, const Record* record,
        const uint8_t* payload) noexcept nogil:
    # Take a STALE or RECOVERED. Return True if what is held of the object is missing from now on.
    cdef ObjectState said
    cdef bint whole = record.length >= <int64_t> (RECORD_SIZE + sizeof(said))
    if whole:
        memcpy(&said, payload, sizeof(said))
        if record.flags & RECORD_SNAPSHOT:    # from an image
            doubt.begun |= said.continues
    if record.kind == KIND_RECOVERED:
        doubt_end(doubts, doubt)
        return not (whole and said.continues and doubt.begun)
    if whole and record.flags & RECORD_SNAPSHOT:
        # A STALE from an image says whose doubt it is. UNKNOWN: what is held is complete unless the
        # feed finds otherwise. WAITING: the feed is sure, but there is nothing to build on. STALE:
        # both are in doubt.
        doubt_end(doubts, doubt)
        doubt.doubted = 0 if said.status == OBJECT_WAITING else DOUBT_UNHEARD
        return said.status != OBJECT_UNKNOWN
    doubt.doubted = DOUBT_SAID   # the feed holds back updates until a snapshot
    return True


cdef inline void doubt_lapped(const Doubts* doubts, Doubt* doubt) noexcept nogil:
    # Records were missed, perhaps also what the feed said. The caller marks what it holds as
    # missing.
    doubt_end(doubts, doubt)
    doubt.doubted = 0 if doubt_ungated(doubt.key) else DOUBT_UNHEARD
    doubt.begun = False


cdef inline uint64_t doubt_said_tag(const Record* record, const uint8_t* payload) noexcept nogil:
    # Return the name of the object that a STALE or RECOVERED concerns; 0: it has none.
    cdef ObjectState said
    if record.length < <int64_t> (RECORD_SIZE + sizeof(said)):
        return 0
    memcpy(&said, payload, sizeof(said))
    return doubt_tag(said.exchange_id, said.symbol_id)


cdef inline bint doubt_heard(Doubt* doubt, const Record* record) noexcept nogil:
    # A message of the object was published. The feed publishes messages of the incremental channel
    # only while it is sure of their object, and RECOVERED before them if it was not. That does not
    # hold for collected or ungated messages. Return True if this ended a doubt.
    if likely(doubt.doubted != DOUBT_UNHEARD) or record.stream == CHANNEL_SNAPSHOT or (
            record.flags & (RECORD_RELEASED | RECORD_UNGATED)):
        return False
    if record.stream != CHANNEL_INCREMENTAL and record.flags & RECORD_SNAPSHOT:
        return False             # it may come from a recovery channel
    doubt.doubted = 0
    return True


cdef inline bint doubt_begins(
        const Doubts* doubts, const Doubt* doubt, const Record* record) noexcept nogil:
    # Return True if an update is the very first of its object, and so is complete.
    return (record.flags & (RECORD_FIRST | RECORD_UNGATED) == RECORD_FIRST
            and doubts_heard(doubts, record).complete and not doubt.begun)


cdef inline void doubt_applied(
        const Doubts* doubts, Doubt* doubt, bint complete) noexcept nogil:
    # An update of the object was applied; `complete`: it replaced all that is held.
    doubt.begun = True
    if complete and doubt_ungated(doubt.key):
        doubt_end(doubts, doubt)


cdef inline void doubt_passed(Doubt* doubt, const Record* record) noexcept nogil:
    # A message changed nothing that is held. It still counts for an object with or without a gate:
    # the object's chain passes through all its messages.
    doubt_heard(doubt, record)
    doubt.begun = True
