/* How far one object can be trusted, from the records that were read. Two doubts are separate:
 *
 *   doubted   The feed is in doubt: it published a GAP (gaps are counted, so that one costs nothing
 *             per object) or STALE. Ends with RECOVERED. Or UNHEARD: the reader missed records, or
 *             joined late, and a doubt of the feed may be among them. That ends also with an update
 *             that the feed passes on.
 *   missing   The reader lacks the state that updates apply to. Ends with a snapshot.
 *
 * Ungated records (UDPFAST_RECORD_UNGATED) of many symbols have one object number: then each symbol
 * is an object.
 *
 * An object belongs to one stream, which all its records name. A GAP of that stream puts it in
 * doubt, and a SESSION of that stream resets it. Roq's two streams count as one here.
 */
struct udpfast_object {
    uint64_t key;    /* Record.object | ungated << 32 | udpfast_stream(record) << 40 */
    uint64_t tag;    /* (exchange_id << 32) | symbol_id; part of the key if ungated */
    uint64_t until;  /* while a reader joins: its records below this position were applied */
    uint32_t sure;   /* gaps of its stream when the feed was last sure of it */
    int32_t book;    /* index of its book; -1: none */
    int32_t name;    /* index of its name; -1: none */
    int32_t next;    /* next object of that name; -1: none */
    uint8_t doubted; /* UDPFAST_DOUBT_*; 0: in doubt only if there was a gap since `sure` */
    uint8_t begun;   /* a message of it has been applied or passed over */
    uint8_t missing; /* its state is missing until a snapshot */
    uint8_t contested; /* another object uses the same names */
    uint8_t reserved[4];
};

/* Positions behind which a record is not in doubt for what came before it. 0: nothing came. */
struct udpfast_marks {
    uint64_t gap;  /* the stream's last GAP */
    uint64_t lost; /* its last SESSION, RESTART or LAPPED: what was known by then is out of date */
};

struct udpfast_objects {
    struct udpfast_object *all;
    uint32_t *slots; /* hash table: index of an object + 1; 0: empty; at most half full */
    uint32_t mask, count, room;
    struct udpfast_heard *heard; /* by udpfast_stream */
    struct udpfast_marks *marks; /* likewise */
    uint32_t streams;
    struct udpfast_key key;
};

__extension__ typedef unsigned __int128 udpfast_u128;

static inline uint64_t udpfast_keyed_fold(uint64_t a, uint64_t b)
{
    udpfast_u128 product = (udpfast_u128) a * b;
    return (uint64_t) product ^ (uint64_t) (product >> 64);
}

/* Hash a word under a secret key: whoever chooses numbers and names cannot cause collisions. */
static inline uint64_t udpfast_keyed_word(const struct udpfast_key *key, uint64_t word)
{
    return udpfast_keyed_fold(udpfast_keyed_fold(word ^ key->mask, key->factor) ^ key->mask,
                              key->factor);
}

/* The index in `heard` of a record's stream. Records of no stream use that of Roq's streams. */
static inline uint32_t udpfast_stream(const struct udpfast_record *record)
{
    return record->stream < UDPFAST_STREAM_FIRST || record->stream == UDPFAST_STREAM_NONE
               ? 0
               : (uint32_t) record->stream - UDPFAST_STREAM_FIRST + 1;
}

/* Whether a record is a message, decoded or not, or a STALE or RECOVERED of an object. */
static inline int udpfast_record_is_of_object(const struct udpfast_record *record)
{
    return (record->kind >= UDPFAST_KIND_UPDATES && record->kind < UDPFAST_KIND_BUS)
           || record->kind == UDPFAST_KIND_MESSAGE || record->kind == UDPFAST_KIND_STALE
           || record->kind == UDPFAST_KIND_RECOVERED;
}

static inline uint64_t udpfast_object_key(const struct udpfast_record *record)
{
    return (uint64_t) udpfast_stream(record) << 40
           | (uint64_t) ((record->flags & UDPFAST_RECORD_UNGATED) != 0) << 32 | record->object;
}

/* The (exchange_id << 32) | symbol_id of an update; 0: it is too short to have one. */
static inline uint64_t udpfast_update_tag(const struct udpfast_record *record)
{
    const struct udpfast_update_header *update =
        (const struct udpfast_update_header *) udpfast_record_payload(record);
    return udpfast_record_payload_size(record) < sizeof *update
               ? 0
               : (uint64_t) update->exchange_id << 32 | update->symbol_id;
}

/* The key of the gated object with the record's object number. */
static inline uint64_t udpfast_object_gated_key(const struct udpfast_record *record)
{
    return udpfast_object_key(record) & ~((uint64_t) 1 << 32);
}

static inline int udpfast_object_ungated(uint64_t key)
{
    return (key >> 32 & 1) != 0;
}

static inline void udpfast_heard_begin(struct udpfast_heard *heard, int complete)
{
    heard->before = heard->gaps;
    heard->session = -1;
    heard->complete = (uint8_t) complete;
}

/* Make room for a stream in `heard`, which all other functions require. 0: no memory. */
static inline int udpfast_objects_reach(struct udpfast_objects *objects, uint32_t stream)
{
    uint32_t streams = 2 * objects->streams;
    void *heard, *marks;
    if (stream < objects->streams)
        return 1;
    if (streams <= stream)
        streams = stream + 1;
    heard = realloc(objects->heard, streams * sizeof *objects->heard);
    if (heard == NULL)
        return 0;
    objects->heard = (struct udpfast_heard *) heard;
    marks = realloc(objects->marks, streams * sizeof *objects->marks);
    if (marks == NULL)
        return 0;
    objects->marks = (struct udpfast_marks *) marks;
    for (; objects->streams < streams; objects->streams++) {
        memset(objects->marks + objects->streams, 0, sizeof *objects->marks);
        objects->heard[objects->streams].gaps = 0;
        udpfast_heard_begin(objects->heard + objects->streams, 0);
    }
    return 1;
}

/* Whether an object contains a record already: the image that it was taken from was ahead. */
static inline int udpfast_object_ahead(const struct udpfast_object *object,
                                       const struct udpfast_record *record)
{
    return record->position < object->until;
}

static inline struct udpfast_heard *udpfast_object_heard_of(const struct udpfast_objects *objects,
                                                            const struct udpfast_object *object)
{
    return objects->heard + (object->key >> 40);
}

static inline uint32_t udpfast_objects_hash(const struct udpfast_objects *objects, uint64_t key,
                                            uint64_t tag)
{
    uint64_t hash = udpfast_keyed_word(&objects->key, key);
    return (uint32_t) (udpfast_object_ungated(key) ? udpfast_keyed_word(&objects->key, hash ^ tag)
                                                   : hash);
}

/* Find an object; NULL: there is none. The pointer is valid until another object is added. */
static inline struct udpfast_object *udpfast_objects_find(const struct udpfast_objects *objects,
                                                          uint64_t key, uint64_t tag)
{
    uint32_t place;
    if (objects->slots == NULL)
        return NULL;
    for (place = udpfast_objects_hash(objects, key, tag);; place++) {
        uint32_t found = objects->slots[place & objects->mask];
        struct udpfast_object *object;
        if (found == 0)
            return NULL;
        object = objects->all + (found - 1);
        if (object->key == key && (!udpfast_object_ungated(key) || object->tag == tag))
            return object;
    }
}

static inline void udpfast_objects_enter(struct udpfast_objects *objects, uint32_t index)
{
    const struct udpfast_object *object = objects->all + index;
    uint32_t place = udpfast_objects_hash(objects, object->key, object->tag);
    while (objects->slots[place & objects->mask] != 0)
        place++;
    objects->slots[place & objects->mask] = index + 1;
}

/* Reset an object: nothing of it was read. An ungated object is in doubt if there was a gap since
 * its stream's session began. */
static inline void udpfast_object_begin(const struct udpfast_objects *objects,
                                        struct udpfast_object *object)
{
    const struct udpfast_heard *heard = udpfast_object_heard_of(objects, object);
    object->missing = 1;
    object->begun = object->doubted = 0;
    object->sure = heard->before;
    if (!udpfast_object_ungated(object->key)) {
        object->sure = heard->gaps;
        object->doubted = heard->complete ? UDPFAST_DOUBT_SAID : UDPFAST_DOUBT_UNHEARD;
    }
}

/* Add an object that does not exist yet; NULL: no memory. */
static inline struct udpfast_object *udpfast_objects_add(struct udpfast_objects *objects,
                                                         uint64_t key, uint64_t tag)
{
    struct udpfast_object *object;
    uint32_t index;
    if (objects->count == objects->room) {
        uint32_t room = objects->room != 0 ? 2 * objects->room : 64, *slots;
        void *all = realloc(objects->all, room * sizeof *objects->all);
        if (all == NULL)
            return NULL;
        objects->all = (struct udpfast_object *) all;
        slots = (uint32_t *) calloc(2 * (size_t) room, sizeof *slots);
        if (slots == NULL)
            return NULL;
        free(objects->slots);
        objects->slots = slots;
        objects->mask = 2 * room - 1;
        objects->room = room;
        for (index = 0; index < objects->count; index++)
            udpfast_objects_enter(objects, index);
    }
    object = objects->all + objects->count;
    memset(object, 0, sizeof *object);
    object->key = key;
    object->tag = tag;
    object->book = object->name = object->next = -1;
    udpfast_object_begin(objects, object);
    udpfast_objects_enter(objects, objects->count++);
    return object;
}

/* Forget all objects, whose numbers have another meaning now: a session begins. `complete`: its
 * SESSION record was read. */
static inline void udpfast_objects_begin(struct udpfast_objects *objects, int complete)
{
    uint32_t stream;
    if (objects->slots != NULL)
        memset(objects->slots, 0, ((size_t) objects->mask + 1) * sizeof *objects->slots);
    objects->count = 0;
    for (stream = 0; stream < objects->streams; stream++)
        udpfast_heard_begin(objects->heard + stream, complete && stream == 0);
}

/* Note a GAP; return whether it puts every object of its stream in doubt. A lost snapshot does not,
 * unless the snapshot channel turns out to be of another numbering (ANEW). */
static inline int udpfast_objects_gap(struct udpfast_objects *objects,
                                      const struct udpfast_record *record)
{
    const struct udpfast_gap *gap = (const struct udpfast_gap *) udpfast_record_payload(record);
    if (record->stream == UDPFAST_STREAM_NONE)
        return 0; /* streams beyond `wire.streams_max`, of which there are no objects */
    if (record->stream == UDPFAST_CHANNEL_SNAPSHOT
        && (udpfast_record_payload_size(record) < sizeof *gap || gap->reason != UDPFAST_GAP_ANEW))
        return 0;
    objects->heard[udpfast_stream(record)].gaps++;
    objects->marks[udpfast_stream(record)].gap = record->position;
    return 1;
}

/* Whether the feed is in doubt about an object, as far as its records were read. */
static inline int udpfast_object_in_doubt(const struct udpfast_objects *objects,
                                          const struct udpfast_object *object)
{
    return object->doubted != 0
           || object->sure != udpfast_object_heard_of(objects, object)->gaps;
}

static inline void udpfast_object_sure(const struct udpfast_objects *objects,
                                       struct udpfast_object *object)
{
    object->doubted = 0;
    object->sure = udpfast_object_heard_of(objects, object)->gaps;
}

/* Note a STALE or RECOVERED; return whether the object's state is missing from now on. */
static inline int udpfast_object_said(const struct udpfast_objects *objects,
                                      struct udpfast_object *object,
                                      const struct udpfast_record *record)
{
    const struct udpfast_object_state *said =
        (const struct udpfast_object_state *) udpfast_record_payload(record);
    int whole = udpfast_record_payload_size(record) >= sizeof *said;
    int of_image = whole && (record->flags & UDPFAST_RECORD_SNAPSHOT) != 0;
    if (of_image && said->continues)
        object->begun = 1;
    if (record->kind == UDPFAST_KIND_RECOVERED) {
        udpfast_object_sure(objects, object);
        return !(whole && said->continues && object->begun);
    }
    if (of_image) {
        udpfast_object_sure(objects, object);
        object->doubted = said->status == UDPFAST_OBJECT_WAITING ? 0 : UDPFAST_DOUBT_UNHEARD;
        return said->status != UDPFAST_OBJECT_UNKNOWN;
    }
    object->doubted = UDPFAST_DOUBT_SAID;
    return 1;
}

/* Whether the feed passes such a message on only while it is sure of its object. That holds for the
 * incremental channel, but not for collected messages (RELEASED), ungated ones, or, with framings
 * other than Roq's, snapshots, which may be of a recovery channel. */
static inline int udpfast_record_is_sure(const struct udpfast_record *record)
{
    return record->stream != UDPFAST_CHANNEL_SNAPSHOT
           && (record->flags & (UDPFAST_RECORD_RELEASED | UDPFAST_RECORD_UNGATED)) == 0
           && (record->stream == UDPFAST_CHANNEL_INCREMENTAL
               || (record->flags & UDPFAST_RECORD_SNAPSHOT) == 0);
}

/* Note a message of the object that the feed passed on. */
static inline void udpfast_object_heard(struct udpfast_object *object,
                                        const struct udpfast_record *record)
{
    if (object->doubted == UDPFAST_DOUBT_UNHEARD && udpfast_record_is_sure(record))
        object->doubted = 0;
}
