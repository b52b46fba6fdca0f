# Doubt: what may be believed of one object, from the records that were read. The one machine for
# all who read them: a strategy's books (client/books), and what is kept for those who come late
# (market/state: an image, the last values of a fan-out).
#
# Two doubts are kept apart, because different things end them:
#
#   doubted   by the feed: a gap (gaps are counted, so that one costs nothing per object here; who
#             shows the doubt beside each value goes over those of its stream), or STALE. Ends with
#             RECOVERED, which comes before the update or snapshot that it speaks of. Or UNHEARD:
#             records were missed, or came before we did, and the feed's word may be among them;
#             that ends, too, with a message that only passes if the feed is sure.
#   missing   by who reads: what is held is not what updates build on (there is nothing yet, records
#             were missed, or the feed replaced what it lost by a snapshot that is still to come).
#             Ends with a snapshot, or with the very first update of an object. Of each value that
#             is held of an object, so whoever holds values keeps it; `doubt_*` say when it changes.
#
# A snapshot alone does not end the feed's doubt: the feed may pass one on and still not know
# whether a lost update is newer (market/gate).
#
# RECOVERED says whether what was published of the object goes on (`continues`): then what is held
# is sound at once. Otherwise a snapshot follows, and until it comes our state is an old one.
#
# What no feed watches over (RECORD_UNGATED) comes for many symbols under one number: each symbol of
# it is an object. Of these only gaps are known, and only what is complete helps.
#
# An object is of one stream, which all its records name, its snapshots too. A GAP of that stream
# puts it in doubt, a SESSION of that stream begins it anew; other streams do not concern it. Roq's
# two streams are one here, as its snapshots repeat what the other one says: one Heard for both.

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

cdef enum:  # Doubt.doubted; 0: the feed was sure when it had `sure` gaps
    DOUBT_SAID = 1
    DOUBT_UNHEARD = 2

cdef struct Doubt:
    uint64_t key                 # doubt_key
    uint64_t tag                 # (exchange_id << 32) | symbol_id; ungated: a part of the key
    uint32_t sure                # gaps counted when the feed was last sure of it
    uint8_t doubted
    uint8_t begun                # a message of it was applied, or passed by
    uint8_t reserved[2]

cdef packed struct Heard:        # of one stream; 16 bytes, a part of an image
    uint32_t gaps                # that may have been of any of its objects
    uint32_t before              # of them when its session began
    int32_t session              # ordinal; SESSION_UNSEEN: none seen yet
    # The session was seen from its SESSION record on without a lap: then the feed's word on every
    # object is known, and an object of which it said nothing is in doubt.
    uint8_t complete
    uint8_t reserved[3]

cdef struct Doubts:              # the objects of a feed
    Heard* heard                 # by `doubt_stream`
    uint32_t streams             # of which there is one
    uint32_t count               # objects
    Key key                      # of the slots
    uint32_t* slots              # where an object lies, in words of 8 bytes, + 1; 0: empty
    uint32_t slots_mask          # at most half of them are full
    uint32_t stride              # words of an object: its Doubt, then what its owner knows of it
    uint64_t* objects
    uint32_t gated               # how many of them have a gate


cdef inline uint64_t doubt_tag(uint32_t exchange_id, uint32_t symbol_id) noexcept nogil:
    return (<uint64_t> exchange_id << 32) | symbol_id


cdef inline uint64_t doubt_key(const Record* record) noexcept nogil:
    return (<uint64_t> doubt_stream(record.stream) << 40
            | <uint64_t> (record.flags & RECORD_UNGATED != 0) << 32 | record.object)


cdef inline bint doubt_ungated(uint64_t key) noexcept nogil:
    return key >> 32 & 1


cdef inline uint32_t doubt_stream(uint16_t stream) noexcept nogil:
    # Index of the Heard of a record's stream. What is about no stream has that of Roq's.
    return 0 if stream < STREAM_FIRST or stream == STREAM_NONE else stream - STREAM_FIRST + 1


cdef inline uint32_t doubt_key_stream(uint64_t key) noexcept nogil:
    return <uint32_t> (key >> 40)


# --- the objects --------------------------------------------------------------------------------

cdef inline void doubts_init(Doubts* doubts, uint64_t size) noexcept nogil:
    # `size`: bytes of an object, a multiple of 8.
    memset(doubts, 0, sizeof(Doubts))
    keyed_draw(&doubts.key)
    doubts.stride = <uint32_t> size // 8


cdef inline void doubts_free(Doubts* doubts) noexcept nogil:
    free(doubts.heard)
    free(doubts.slots)
    free(doubts.objects)
    doubts_init(doubts, 8 * <uint64_t> doubts.stride)


cdef inline bint doubts_reach(Doubts* doubts, uint32_t stream) noexcept nogil:
    # Have a Heard of each stream up to this one; all else here takes it for granted. False: out of
    # memory.
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
    # Gaps go on counting: some objects of an image may have heard of more of them.
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
    # NULL: no such object. Valid until the next doubts_add. `tag` counts for ungated ones alone.
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
    # The object with a gate that has the record's number.
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
    # An object that is not there yet, all else of it zeros; NULL: out of memory.
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
    # Nothing was heard of it. What has no gate is in doubt if there was a gap since its stream's
    # session began.
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
    # Whether with a SESSION, or RESTART, every object is gone: Roq numbers them anew, and another
    # writer may. Other streams name their objects alike in all sessions, so theirs begin anew.
    return doubt_stream(record.stream) == 0


cdef inline void doubts_begin(Doubts* doubts, bint complete) noexcept nogil:
    # Objects are numbered anew: a session begins, or (not complete) its beginning was missed.
    cdef uint32_t stream
    if doubts.slots != NULL:
        memset(doubts.slots, 0, (<uint64_t> doubts.slots_mask + 1) * sizeof(uint32_t))
    doubts.gated = 0
    doubts.count = 0
    for stream in range(doubts.streams):
        heard_begin(&doubts.heard[stream], complete and stream == 0)


cdef inline void doubts_incomplete(Doubts* doubts) noexcept nogil:
    # Records were missed: an object that comes later is in doubt as well.
    cdef uint32_t stream
    for stream in range(doubts.streams):
        doubts.heard[stream].complete = False


cdef inline bint record_is_of_object(const Record* record) noexcept nogil:
    # A message, decoded or not, or the feed's word on an object.
    return (KIND_UPDATES <= record.kind < KIND_BUS or record.kind == KIND_MESSAGE
            or record.kind == KIND_STALE or record.kind == KIND_RECOVERED)


cdef inline bint doubts_elsewhere(const Doubts* doubts, const Record* record) noexcept nogil:
    # Whether a record of an object is of another session of its stream than those before: if one
    # was seen, that session begins here, and its SESSION record was among those missed.
    return (record.session != doubts_heard(doubts, record).session
            and record_is_of_object(record))


cdef inline bint doubts_gap(
        Doubts* doubts, const Record* record, const uint8_t* payload) noexcept nogil:
    # GAP: whether every object of its stream is in doubt. A message was lost that may have been of
    # any of them; or snapshots were, all along, somebody else's.
    cdef Gap gap
    if record.stream == STREAM_NONE:     # of streams that have no object here
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
    # Whether the feed, as far as we heard it, is in doubt of the object.
    return doubt.doubted or doubt.sure != doubts.heard[doubt_key_stream(doubt.key)].gaps


cdef inline void doubt_end(const Doubts* doubts, Doubt* doubt) noexcept nogil:
    doubt.doubted = 0
    doubt.sure = doubts.heard[doubt_key_stream(doubt.key)].gaps


cdef inline bint doubt_said(
        const Doubts* doubts, Doubt* doubt, const Record* record,
        const uint8_t* payload) noexcept nogil:
    # STALE or RECOVERED. Whether what is held of the object is missing from now on.
    cdef ObjectState said
    cdef bint whole = record.length >= <int64_t> (RECORD_SIZE + sizeof(said))
    if whole:
        memcpy(&said, payload, sizeof(said))
    if record.kind == KIND_RECOVERED:
        doubt_end(doubts, doubt)
        return not (whole and said.continues and doubt.begun)
    if whole and record.flags & RECORD_SNAPSHOT:
        # What an image says tells whose doubt it is. UNKNOWN: what we hold is all there is unless
        # the feed finds otherwise; WAITING: the feed is sure, and we have nothing to build on;
        # STALE: neither.
        doubt_end(doubts, doubt)
        doubt.doubted = 0 if said.status == OBJECT_WAITING else DOUBT_UNHEARD
        return said.status != OBJECT_UNKNOWN
    doubt.doubted = DOUBT_SAID   # the feed holds back what comes, until a snapshot
    return True


cdef inline void doubt_lapped(const Doubts* doubts, Doubt* doubt) noexcept nogil:
    # Records were missed, the feed's words among them. What is held of the object is missing, too.
    doubt_end(doubts, doubt)
    doubt.doubted = 0 if doubt_ungated(doubt.key) else DOUBT_UNHEARD
    doubt.begun = False


cdef inline uint64_t doubt_said_tag(const Record* record, const uint8_t* payload) noexcept nogil:
    # The name of the object that STALE or RECOVERED speaks of; 0: it has none.
    cdef ObjectState said
    if record.length < <int64_t> (RECORD_SIZE + sizeof(said)):
        return 0
    memcpy(&said, payload, sizeof(said))
    return doubt_tag(said.exchange_id, said.symbol_id)


cdef inline bint doubt_heard(Doubt* doubt, const Record* record) noexcept nogil:
    # A message of the object was passed on. The feed passes one of the incremental channel while it
    # is sure of its object, and says RECOVERED first if it was not. Not so what it had collected,
    # nor what it does not watch over. Whether that ended a doubt.
    if likely(doubt.doubted != DOUBT_UNHEARD) or record.stream == CHANNEL_SNAPSHOT or (
            record.flags & (RECORD_RELEASED | RECORD_UNGATED)):
        return False
    if record.stream != CHANNEL_INCREMENTAL and record.flags & RECORD_SNAPSHOT:
        return False             # of a channel for recovery, perhaps
    doubt.doubted = 0
    return True


cdef inline bint doubt_begins(
        const Doubts* doubts, const Doubt* doubt, const Record* record) noexcept nogil:
    # Whether an update is the very first of its object, and so all there is of it.
    return (record.flags & (RECORD_FIRST | RECORD_UNGATED) == RECORD_FIRST
            and doubts_heard(doubts, record).complete and not doubt.begun)


cdef inline void doubt_applied(
        const Doubts* doubts, Doubt* doubt, bint complete) noexcept nogil:
    # An update of the object was applied; complete: what is held says no more than it.
    doubt.begun = True
    if complete and doubt_ungated(doubt.key):
        doubt_end(doubts, doubt)


cdef inline void doubt_passed(Doubt* doubt, const Record* record) noexcept nogil:
    # A message that brings none of what is held. An object may carry more than that, with a gate or
    # without: its chain goes through all its messages.
    doubt_heard(doubt, record)
    doubt.begun = True
