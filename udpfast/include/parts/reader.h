enum {
    UDPFAST_ENDED = -1,    /* the writer closed the ring in good order, and all of it was read */
    UDPFAST_DAMAGED = -35, /* the ring has no valid record where one must be; or so the image */
    UDPFAST_REMOVED = -36, /* the ring was removed: open another reader */
};

enum {                           /* where a reader begins */
       UDPFAST_START_TAIL = 0,   /* with the next record to be written */
       UDPFAST_START_OLDEST = 1, /* with the oldest record that the ring still has */
       UDPFAST_START_BEGIN = 2,  /* with the first record of the file, which must still be there */
};

enum {                         /* how to wait for a record */
       UDPFAST_WAIT_SPIN = 0,  /* spin: needs a core of its own */
       UDPFAST_WAIT_SLEEP = 1, /* spin, then yield, then sleep for up to 1 ms */
};

/* Period of the check whether the writer is alive. */
#define UDPFAST_WRITER_LOOK_NS INT64_C(200000000)
/* Least time between two attempts to open missing names. */
#define UDPFAST_NAMES_LOOK_NS INT64_C(20000000)

enum {
    UDPFAST_SEEK_ATTEMPTS = 1000, /* attempts to find a record that is not overwritten meanwhile */
    UDPFAST_JUMP_ATTEMPTS = 16,   /* jumps to the newest record within one poll */
    UDPFAST_CHAIN = 64,           /* so many valid records in a row are no coincidence */
};

/* A reader of one ring. It writes nothing to shared memory; the writer does not know of it. */
struct udpfast_reader {
    struct udpfast_region ring, names;
    const struct udpfast_ring_header *header;
    const uint8_t *data;
    uint64_t capacity, chunk, record_max;
    uint64_t position;                        /* position of the next record */
    uint64_t index;                           /* its index, unless records were missed before it */
    uint64_t lapped;                          /* records missed so far */
    uint64_t log[2];                          /* where it was opened; it may follow into another */
    int64_t opened_ns; /* monotonic, tells it from other readers; 0: it was never open */
    const struct udpfast_names_header *table; /* NULL: no names yet */
    const struct udpfast_name_entry *entries;
    uint64_t table_room;
    uint8_t *copies; /* memory of the records that the last poll returned */
    struct {
        struct udpfast_record header;
        uint8_t payload[16];
    } made; /* a record that the reader itself makes */
    int64_t looked_ns, names_looked_ns;
    int gone;    /* scope of the DISCONNECTED that was returned; 0: the writer is connected */
    int lost;    /* it was returned because of this result, UDPFAST_DAMAGED or _REMOVED */
    int current; /* since then its loop has run again, and had written `current_index` records */
    uint64_t gone_epoch, current_index; /* gone_epoch: the writer's epoch at that time */
    int jumped;  /* the record at `position` may have a later index */
    int unknown; /* another log follows: the number of missing records is unknown */
    int pending; /* LAPPED was returned: the first of `copies` comes next */
    char said[4][UDPFAST_NAME_SIZE_MAX + 1]; /* the last names returned */
    unsigned int said_next;
    char directory[PATH_MAX];
    char problem[UDPFAST_PROBLEM_SIZE];
};

static inline uint64_t udpfast_aligned(uint64_t length)
{
    return (length + 7) & ~UINT64_C(7);
}

static inline uint64_t udpfast_ring_word(const struct udpfast_reader *reader, uint64_t position)
{
    /* Acquire: the record's bytes are read after its commit word, which is stored last. */
    return UDPFAST_LOAD_ACQUIRE(
        (const uint64_t *) (const void *) (reader->data + (position & (reader->capacity - 1))));
}

static inline int udpfast_ring_is_pad(uint64_t word)
{
    return (uint8_t) (word >> 32) == UDPFAST_KIND_PAD;
}

/* Whether a PAD may be at a position: it fills what is left of a lap that has records. */
static inline int udpfast_ring_pad_fits(const struct udpfast_reader *reader, uint64_t position,
                                        uint64_t word)
{
    uint64_t offset = position & (reader->capacity - 1);
    return offset != 0 && (uint32_t) word == reader->capacity - offset;
}

/* The record at a position whose commit word was read; NULL: invalid. Its bytes may change. */
static inline const struct udpfast_record *udpfast_ring_record(const struct udpfast_reader *reader,
                                                               uint64_t position, uint64_t word)
{
    uint64_t offset = position & (reader->capacity - 1), length = (uint32_t) word;
    const struct udpfast_record *record = (const struct udpfast_record *) (reader->data + offset);
    if (length < UDPFAST_RECORD_SIZE || udpfast_aligned(length) > reader->record_max
        || udpfast_aligned(length) > reader->capacity - offset || record->position != position)
        return NULL;
    return record;
}

/* Whether the bytes from a position on, read before this call, had not been overwritten. */
static inline int udpfast_ring_sound(const struct udpfast_reader *reader, uint64_t position)
{
    /* Orders the reads before the load of intent, which the writer stores before it overwrites. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return UDPFAST_LOAD_RELAXED(&reader->header->intent) <= position + reader->capacity;
}

/* Move behind the last record. 0: a record is invalid, or was overwritten meanwhile. */
static inline int udpfast_seek_tail(struct udpfast_reader *reader)
{
    uint64_t start = UDPFAST_LOAD_ACQUIRE(&reader->header->latest), position = start, word;
    uint64_t index = reader->header->first_index;
    while ((position & 7) == 0 && position - start < reader->capacity) {
        const struct udpfast_record *record;
        word = udpfast_ring_word(reader, position);
        if ((uint32_t) word == 0) {
            reader->position = position;
            reader->index = index;
            return udpfast_ring_sound(reader, start);
        }
        if (udpfast_ring_is_pad(word)) {
            if (!udpfast_ring_pad_fits(reader, position, word))
                return 0;
            position += (uint32_t) word;
            continue;
        }
        record = udpfast_ring_record(reader, position, word);
        if (record == NULL || (position != start && record->index != index))
            return 0;
        index = record->index + 1;
        position += udpfast_aligned((uint32_t) word);
    }
    return 0;
}

/* Whether a record is at a position, with valid ones behind it: a payload may look like one. */
static inline int udpfast_chain_at(const struct udpfast_reader *reader, uint64_t position,
                                   uint64_t tail)
{
    uint64_t index = 0;
    int count;
    for (count = 0; count < UDPFAST_CHAIN && position < tail;) {
        uint64_t word = udpfast_ring_word(reader, position);
        const struct udpfast_record *record;
        if (udpfast_ring_is_pad(word)) {
            if (count == 0 || !udpfast_ring_pad_fits(reader, position, word))
                return 0;
            position += (uint32_t) word;
            continue;
        }
        record = udpfast_ring_record(reader, position, word);
        if (record == NULL || (count > 0 && record->index != index))
            return 0;
        index = record->index + 1;
        position += udpfast_aligned((uint32_t) word);
        count++;
    }
    return position <= tail;
}

/* Move to the oldest record that is still there. 0: there is none. */
static inline int udpfast_seek_oldest(struct udpfast_reader *reader)
{
    uint64_t first = reader->header->first & ~UINT64_C(7), position, tail, attempt;
    for (attempt = 0; attempt < UDPFAST_SEEK_ATTEMPTS; attempt++) {
        position = UDPFAST_LOAD_ACQUIRE(&reader->header->intent) & ~UINT64_C(7);
        /* A working writer overwrites a chunk at a time: begin behind the next chunk. */
        position = position <= first + reader->capacity
                       ? first
                       : position - reader->capacity + attempt * reader->chunk;
        tail = UDPFAST_LOAD_ACQUIRE(&reader->header->tail);
        if (tail > position + reader->capacity)
            tail = position + reader->capacity;
        while (position < tail && !udpfast_chain_at(reader, position, tail))
            position += 8;
        if (position >= tail)
            return 0;
        reader->position = position;
        reader->index =
            ((const struct udpfast_record *) (reader->data + (position & (reader->capacity - 1))))
                ->index;
        if (udpfast_ring_sound(reader, position))
            return 1;
    }
    return 0;
}

/* Move to where the reader is to begin. Returns 0. */
static inline int udpfast_reader_seek(struct udpfast_reader *reader, int start)
{
    int attempt;
    if (start < UDPFAST_START_TAIL || start > UDPFAST_START_BEGIN)
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "start must be UDPFAST_START_TAIL, _OLDEST or _BEGIN (0 to 2), was %d",
                           start);
    if (start == UDPFAST_START_BEGIN) {
        if (udpfast_ring_sound(reader, reader->position))
            return 0;
        return udpfast_say(reader->problem, UDPFAST_DAMAGED,
                           "%.400s: its first record has been overwritten", reader->directory);
    }
    if (start == UDPFAST_START_OLDEST && udpfast_seek_oldest(reader))
        return 0;
    for (attempt = 0; attempt < UDPFAST_SEEK_ATTEMPTS; attempt++) {
        if (udpfast_seek_tail(reader))
            return 0;
    }
    return udpfast_say(reader->problem, UDPFAST_DAMAGED,
                       "%.300s: expected a valid record at position %" PRIu64 ", found none",
                       reader->directory, (uint64_t) reader->header->latest);
}

/* Map the instance's ring instead of the previous one, and move to its beginning. Returns 0. */
static inline int udpfast_reader_attach(struct udpfast_reader *reader)
{
    char path[PATH_MAX + 8];
    struct udpfast_region ring;
    uint64_t capacity, chunk, record_max;
    uint8_t *copies;
    int result;
    snprintf(path, sizeof path, "%s/ring", reader->directory);
    result = udpfast_region_map(&ring, path, UDPFAST_RING_KIND, UDPFAST_RING_LAYOUT, MAP_POPULATE,
                                reader->problem);
    if (result != 0)
        return result;
    capacity = ring.size - UDPFAST_RING_DATA;
    if (capacity < UDPFAST_RING_DATA || (capacity & (capacity - 1)) != 0) {
        udpfast_region_unmap(&ring);
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "%.300s: expected a capacity that is a power of two and at least %d, "
                           "found %" PRIu64,
                           path, UDPFAST_RING_DATA, capacity);
    }
    chunk = capacity / UDPFAST_RING_CHUNK_PART;
    if (chunk > UDPFAST_RING_CHUNK_MAX)
        chunk = UDPFAST_RING_CHUNK_MAX;
    record_max = capacity / UDPFAST_RING_RECORD_PART;
    if (record_max > UDPFAST_RING_RECORD_MAX)
        record_max = UDPFAST_RING_RECORD_MAX;
    copies = (uint8_t *) realloc(reader->copies, chunk + record_max);
    if (copies == NULL) {
        udpfast_region_unmap(&ring);
        return udpfast_failed(reader->problem, "find memory to read", path);
    }
    reader->copies = copies;
    udpfast_region_unmap(&reader->ring);
    reader->ring = ring;
    reader->header = (const struct udpfast_ring_header *) (const void *) ring.header;
    reader->data = (const uint8_t *) ring.header + UDPFAST_RING_DATA;
    reader->capacity = capacity;
    reader->chunk = chunk;
    reader->record_max = record_max;
    reader->position = reader->header->first & ~UINT64_C(7);
    reader->index = reader->header->first_index;
    return 0;
}

/* --- names --- */

/* Map the names that the current writer's records refer to. Returns 0. */
static inline int udpfast_reader_renew_names(struct udpfast_reader *reader)
{
    char path[PATH_MAX + 8];
    const struct udpfast_names_header *table;
    struct udpfast_region names;
    uint64_t capacity, slots = 16;
    int result;
    /* The precision tells a compiler that inlines much where the directory ends. */
    snprintf(path, sizeof path, "%.*s/names", PATH_MAX - 1, reader->directory);
    if (reader->table != NULL && !udpfast_region_replaced(&reader->names, path))
        return 0;
    result = udpfast_region_map(&names, path, UDPFAST_NAMES_KIND, UDPFAST_NAMES_LAYOUT,
                                MAP_POPULATE, reader->problem);
    if (result == UDPFAST_ABSENT || result == UDPFAST_NOT_READY)
        return 0; /* not created yet: tried again later */
    if (result != 0)
        return result;
    table = (const struct udpfast_names_header *) (const void *) ((const uint8_t *) names.header
                                                                  + UDPFAST_REGION_PAGE);
    capacity = names.size >= UDPFAST_REGION_PAGE + sizeof *table ? table->capacity : 0;
    while (slots < 2 * capacity && capacity <= UDPFAST_NAMES_CAPACITY_MAX)
        slots <<= 1;
    if (capacity == 0 || capacity > UDPFAST_NAMES_CAPACITY_MAX || table->slots != slots
        || table->magic != UDPFAST_NAMES_MAGIC
        || names.size - UDPFAST_REGION_PAGE
               < sizeof *table + 4 * slots + (capacity + 1) * sizeof(struct udpfast_name_entry)) {
        udpfast_region_unmap(&names);
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "%.400s: expected a table of names, found other bytes", path);
    }
    udpfast_region_unmap(&reader->names);
    reader->names = names;
    reader->table = table;
    reader->table_room = capacity;
    reader->entries =
        (const struct udpfast_name_entry *) (const void *) ((const uint8_t *) (table + 1)
                                                            + 4 * slots);
    return 0;
}

/* The bytes of the name with an id; NULL: there is none, perhaps not yet. */
static inline const char *udpfast_reader_name_bytes(struct udpfast_reader *reader, uint32_t id,
                                                    uint32_t *size)
{
    uint64_t count;
    if (reader->table == NULL) {
        int64_t now_ns = udpfast_clock_now(CLOCK_MONOTONIC);
        if (reader->header == NULL || now_ns - reader->names_looked_ns < UDPFAST_NAMES_LOOK_NS)
            return NULL;
        reader->names_looked_ns = now_ns;
        if (udpfast_reader_renew_names(reader) != 0 || reader->table == NULL)
            return NULL;
    }
    /* Acquire: an entry is complete before the count that contains it is stored. */
    count = UDPFAST_LOAD_ACQUIRE(&reader->table->count);
    if (id == 0 || id > count || id > reader->table_room)
        return NULL;
    *size = reader->entries[id].size;
    if (*size > UDPFAST_NAME_SIZE_MAX)
        *size = UDPFAST_NAME_SIZE_MAX;
    return (const char *) reader->entries[id].text;
}

/* The name with an id (exchange_id or symbol_id of an update); "" if there is none.
 *
 * Valid until the fourth call after this one.
 */
static inline const char *udpfast_reader_name(struct udpfast_reader *reader, uint32_t id)
{
    char *text;
    uint32_t size = 0;
    const char *bytes;
    if (reader == NULL)
        return "";
    text = reader->said[reader->said_next++ % 4];
    bytes = udpfast_reader_name_bytes(reader, id, &size);
    if (bytes != NULL)
        memcpy(text, bytes, size);
    text[size] = 0;
    return text;
}

/* --- opening --- */

/* Unmap the ring, and free the reader's memory. Idempotent. */
static inline void udpfast_reader_close(struct udpfast_reader *reader)
{
    if (reader == NULL)
        return;
    udpfast_region_unmap(&reader->ring);
    udpfast_region_unmap(&reader->names);
    free(reader->copies);
    reader->copies = NULL;
    reader->table = NULL;
    reader->header = NULL;
}

/* Say that a reader is not open. Returns UDPFAST_CLOSED. */
static inline int udpfast_reader_say_closed(struct udpfast_reader *reader)
{
    return udpfast_say(reader->problem, UDPFAST_CLOSED,
                       "the reader is not open: call udpfast_reader_open first");
}

/* Characters to insert, remove or replace until one name is the other; only the first 64 count. */
static inline unsigned int udpfast_name_distance(const char *one, const char *other)
{
    unsigned int row[65], i, j, size = (unsigned int) strnlen(other, 64);
    for (j = 0; j <= size; j++)
        row[j] = j;
    for (i = 0; i < 64 && one[i] != 0; i++) {
        unsigned int before = row[0]; /* of the row before, one column before */
        row[0] = i + 1;
        for (j = 1; j <= size; j++) {
            unsigned int least = before + (one[i] != other[j - 1]);
            before = row[j];
            if (least > row[j] + 1)
                least = row[j] + 1;
            if (least > row[j - 1] + 1)
                least = row[j - 1] + 1;
            row[j] = least;
        }
    }
    return row[size];
}

/* Say that there is no such instance, and which one may be meant. Returns UDPFAST_ABSENT. */
static inline int udpfast_reader_say_absent(struct udpfast_reader *reader, const char *name)
{
    char root[PATH_MAX], near[65] = "";
    size_t size = strlen(reader->directory) - strlen(name);
    unsigned int least = 2 + (unsigned int) strlen(name) / 4; /* so many are another name */
    struct dirent *entry;
    DIR *all;
    memcpy(root, reader->directory, size);
    root[size] = 0;
    all = strchr(name, '/') == NULL ? opendir(root) : NULL;
    while (all != NULL && (entry = readdir(all)) != NULL) {
        unsigned int distance = udpfast_name_distance(name, entry->d_name);
        if (entry->d_name[0] == '.' || distance >= least)
            continue;
        least = distance;
        snprintf(near, sizeof near, "%.64s", entry->d_name);
    }
    if (all != NULL)
        closedir(all);
    return near[0] == 0
               ? udpfast_say(reader->problem, UDPFAST_ABSENT,
                             "%.400s: no such instance; is its feed running (udpfast run)?",
                             reader->directory)
               : udpfast_say(reader->problem, UDPFAST_ABSENT,
                             "%.400s: no such instance; did you mean '%s'?", reader->directory,
                             near);
}

/* Find the directory of an instance, and check that only its owner may write there. Returns 0. */
static inline int udpfast_reader_directory(struct udpfast_reader *reader, const char *address)
{
    const char *name = strncmp(address, "ring:", 5) == 0 ? address + 5 : address;
    const char *root = getenv("UDPFAST_SHM");
    struct stat status;
    int size;
    /* No name has a colon: "zmq:..." and "store:..." are addresses of other readers. */
    if (*name == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0
        || name[strcspn(name, ":/")] == ':')
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "address must be 'ring:NAME' or 'ring:/path', was '%.200s'", address);
    if (strchr(name, '/') != NULL)
        size = snprintf(reader->directory, PATH_MAX, "%s", name);
    else if (root != NULL && *root != 0)
        size = snprintf(reader->directory, PATH_MAX, "%s/%s", root, name);
    else
        size = snprintf(reader->directory, PATH_MAX, "/dev/shm/udpfast-%ju/%s",
                        (uintmax_t) geteuid(), name);
    if (size >= PATH_MAX)
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "a path must have at most %d bytes, has %d", PATH_MAX - 1, size);
    if (lstat(reader->directory, &status) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? udpfast_reader_say_absent(reader, name)
                   : udpfast_failed(reader->problem, "look at", reader->directory);
    if ((status.st_mode & 0170000) != 0040000)
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "%.400s: expected a directory, found another kind of file",
                           reader->directory);
    return udpfast_check_owner(reader->directory, &status, reader->problem);
}

/* Open an instance's ring. Returns 0, or a number below 0: see `problem`.
 *
 * address: "ring:NAME" (in $UDPFAST_SHM or /dev/shm/udpfast-UID) or "ring:/path".
 * start: UDPFAST_START_*.
 */
static inline int udpfast_reader_open(struct udpfast_reader *reader, const char *address, int start)
{
    int result;
    if (reader == NULL)
        return UDPFAST_REFUSED;
    if (reader->header != NULL)
        return udpfast_say_open(reader->problem);
    memset(reader, 0, sizeof *reader);
    result = udpfast_reader_directory(reader, address != NULL ? address : "");
    if (result == 0)
        result = udpfast_reader_attach(reader);
    if (result == 0)
        result = udpfast_reader_seek(reader, start);
    if (result == 0)
        result = udpfast_reader_renew_names(reader);
    if (result != 0) {
        udpfast_reader_close(reader);
        return result;
    }
    memcpy(reader->log, reader->header->log, sizeof reader->log);
    reader->opened_ns = udpfast_clock_now(CLOCK_MONOTONIC);
    return 0;
}

/* Whether the writer lives, and has not ended; 0 of a reader that is not open. */
static inline int udpfast_reader_works(const struct udpfast_reader *reader)
{
    return reader != NULL && reader->header != NULL
           && UDPFAST_LOAD_ACQUIRE(&reader->header->state) == UDPFAST_RING_OPEN
           && udpfast_region_writer_alive(&reader->ring);
}

/* Open an instance's ring, and wait for its feed. Returns as udpfast_reader_open.
 *
 * At UDPFAST_START_TAIL it also waits for the next writer of a ring whose writer has ended, failed
 * or died (the last run's), and opens that ring as it is if none comes. timeout_ns: below 0: no
 * limit.
 */
static inline int udpfast_reader_open_wait(struct udpfast_reader *reader, const char *address,
                                           int start, int64_t timeout_ns)
{
    int64_t until_ns = udpfast_deadline(timeout_ns);
    const struct timespec pause = {0, 10000000};
    char path[PATH_MAX + 8];
    for (;;) {
        int result = udpfast_reader_open(reader, address, start);
        int ended = result == 0 && start == UDPFAST_START_TAIL && !udpfast_reader_works(reader);
        if (!ended && result != UDPFAST_ABSENT && result != UDPFAST_NOT_READY)
            return result;
        snprintf(path, sizeof path, "%.*s/ring", PATH_MAX - 1, reader->directory);
        do {
            if (udpfast_clock_now(CLOCK_MONOTONIC) >= until_ns)
                return result;
            nanosleep(&pause, NULL);
        } while (ended && !udpfast_region_replaced(&reader->ring, path)
                 && !udpfast_reader_works(reader));
        if (ended)
            udpfast_reader_close(reader);
    }
}

/* --- reading --- */

/* Return a record that is in no ring. Returns 1. */
static inline int udpfast_reader_make(struct udpfast_reader *reader, uint8_t kind,
                                      const void *payload, uint64_t index,
                                      const struct udpfast_record **records)
{
    struct udpfast_record *header = &reader->made.header;
    memset(header, 0, sizeof *header);
    memcpy(reader->made.payload, payload, sizeof reader->made.payload);
    header->length = (int32_t) sizeof reader->made;
    header->kind = kind;
    header->position = reader->position;
    header->index = index;
    header->flight_ns = INT32_MIN;
    header->stream = UDPFAST_STREAM_NONE;
    records[0] = header;
    return 1;
}

/* When the last record was published, as of the writer's last flush. */
static inline int64_t udpfast_reader_last_ns(const struct udpfast_reader *reader)
{
    uint64_t latest = UDPFAST_LOAD_ACQUIRE(&reader->header->latest) & ~UINT64_C(7);
    const struct udpfast_record *record =
        udpfast_ring_record(reader, latest, udpfast_ring_word(reader, latest));
    return record != NULL ? record->published_ns : reader->ring.header->created_ns;
}

/* Return a CONNECTION: the writer is dead or stuck (`scope`), or it or another one works (scope 0).
 * Returns 1. */
static inline int udpfast_reader_say_writer(struct udpfast_reader *reader, int scope,
                                            const struct udpfast_record **records)
{
    struct udpfast_connection said;
    int64_t now_ns = udpfast_clock_now(CLOCK_REALTIME);
    memset(&said, 0, sizeof said);
    said.status = scope ? UDPFAST_CONNECTION_DISCONNECTED : UDPFAST_CONNECTION_READY;
    said.scope = (uint32_t) (scope ? scope : reader->gone);
    if (scope)
        said.silent_ns = udpfast_ns_between(udpfast_reader_last_ns(reader), now_ns);
    reader->gone = scope;
    reader->gone_epoch = UDPFAST_LOAD_RELAXED(&reader->header->epoch);
    reader->current = reader->lost = 0;
    udpfast_reader_make(reader, UDPFAST_KIND_CONNECTION, &said, reader->index, records);
    reader->made.header.received_ns = reader->made.header.published_ns = now_ns;
    return 1;
}

/* The reader has lost its feed, as `code` says. Report that first, as of a writer that died: its
 * books get older. Returns 1 and a CONNECTION; `code` if that was reported. */
static inline int udpfast_reader_lose(struct udpfast_reader *reader, int code,
                                      const struct udpfast_record **records)
{
    if (reader->gone == UDPFAST_CONNECTION_WRITER)
        return code;
    udpfast_reader_say_writer(reader, UDPFAST_CONNECTION_WRITER, records);
    reader->lost = code == UDPFAST_DAMAGED || code == UDPFAST_REMOVED ? code : 0;
    return 1;
}

/* Return a LAPPED for the records missed before the copied one, which comes next. Returns 1. */
static inline int udpfast_reader_say_lapped(struct udpfast_reader *reader, uint64_t missed,
                                            const struct udpfast_record **records)
{
    const struct udpfast_record *next = (const struct udpfast_record *) reader->copies;
    struct udpfast_lapped said;
    memset(&said, 0, sizeof said);
    said.missed = missed;
    said.reason = UDPFAST_LAPPED_READER;
    if (reader->unknown) { /* an unknown number at the end of the previous log, perhaps 0 */
        said.missed++;
        said.reason = UDPFAST_LAPPED_UNKNOWN;
        reader->unknown = 0;
    }
    reader->lapped += said.missed;
    reader->pending = 1;
    udpfast_reader_make(reader, UDPFAST_KIND_LAPPED, &said, next->index - said.missed, records);
    reader->made.header.position = next->position;
    return 1;
}

/* Say that the ring was removed. Returns UDPFAST_REMOVED. */
static inline int udpfast_reader_say_removed(struct udpfast_reader *reader)
{
    return udpfast_say(reader->problem, UDPFAST_REMOVED,
                       "%.400s/ring was removed: open another reader", reader->directory);
}

/* Continue in the file that replaced this one. Returns 1; 0: there is none. */
static inline int udpfast_reader_follow(struct udpfast_reader *reader)
{
    char path[PATH_MAX + 8];
    uint64_t before[2], index = reader->index;
    int result;
    snprintf(path, sizeof path, "%s/ring", reader->directory);
    if (UDPFAST_LOAD_ACQUIRE(&reader->header->state) == UDPFAST_RING_CLOSED
        || !udpfast_region_replaced(&reader->ring, path)
        || (uint32_t) udpfast_ring_word(reader, reader->position) != 0)
        return 0;
    memcpy(before, reader->header->log, sizeof before);
    result = udpfast_reader_attach(reader);
    if (result == UDPFAST_ABSENT)
        return 0;
    if (result != 0)
        return result;
    if (memcmp(before, reader->header->log, sizeof before) != 0)
        reader->unknown = 1;
    else if (index <= reader->index)
        reader->index = index;
    reader->jumped = 1; /* take one record at first: a LAPPED may have to come before it */
    if (reader->gone)
        reader->gone = UDPFAST_CONNECTION_WRITER; /* another writer writes this file */
    return 1;
}

enum {                     /* why a run copied no record */
       UDPFAST_RUN_ON = 0, /* it passed the end of the ring's memory: call again */
       UDPFAST_RUN_EMPTY = 1,
       UDPFAST_RUN_LAPPED = 2,
       UDPFAST_RUN_DAMAGED = 3,
};

/* Copy the committed records from the position on, up to a chunk, then validate them once.
 *
 * Returns the number of records; 0: see `end`. missed: how many were missed before the first one,
 * which is then the only one.
 */
static inline int64_t udpfast_reader_run(struct udpfast_reader *reader,
                                         const struct udpfast_record **records, int64_t limit,
                                         uint64_t *missed, int *end)
{
    uint64_t start = reader->position, position = start, index = reader->index, used = 0;
    /* After a lap take one record at a time: a fast writer could overwrite every long run before it
     * is validated. */
    uint64_t run = reader->jumped ? 1 : reader->chunk;
    int64_t count = 0;
    *missed = 0;
    *end = UDPFAST_RUN_ON;
    while (count < limit && position - start < run) {
        uint64_t offset = position & (reader->capacity - 1);
        uint64_t word = udpfast_ring_word(reader, position),
                 size = udpfast_aligned((uint32_t) word);
        struct udpfast_record *copy = (struct udpfast_record *) (void *) (reader->copies + used);
        if ((uint32_t) word == 0) {
            *end = UDPFAST_RUN_EMPTY;
            break;
        }
        if (udpfast_ring_is_pad(word) && udpfast_ring_pad_fits(reader, position, word)) {
            position += (uint32_t) word;
            continue;
        }
        if (udpfast_ring_is_pad(word) || udpfast_ring_record(reader, position, word) == NULL) {
            *end = UDPFAST_RUN_DAMAGED;
            break;
        }
        if (count > 0 && (uint8_t) (word >> 32) == UDPFAST_KIND_RESTART)
            break; /* the records before a RESTART refer to the old names */
        memcpy(copy, reader->data + offset, size);
        memcpy(copy, &word, sizeof word); /* the word that was checked */
        if (copy->position != position || copy->index != index) {
            if (copy->position != position || copy->index < index || !reader->jumped || count > 0) {
                *end = UDPFAST_RUN_DAMAGED;
                break;
            }
            *missed = copy->index - index;
            index = copy->index;
        }
        records[count++] = copy;
        used += size;
        position += size;
        index++;
    }
    if (!udpfast_ring_sound(reader, start)) {
        /* The caller's load of `latest` must not be older than the load of intent. */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        *end = UDPFAST_RUN_LAPPED;
        return 0;
    }
    if (*end == UDPFAST_RUN_DAMAGED && position != start)
        *end = UDPFAST_RUN_ON; /* the records before the damage are sound; the next run meets it */
    if (count > 0)
        reader->jumped = 0;
    reader->position = position;
    reader->index = index;
    return count;
}

/* Whether the writer's loop has not run for a second. */
static inline int udpfast_reader_stuck(const struct udpfast_reader *reader)
{
    /* Acquire: the records that the loop had written by then are visible. */
    int64_t current_ns = UDPFAST_LOAD_ACQUIRE(&reader->header->current_ns);
    return current_ns != 0
           && udpfast_ns_between(current_ns, udpfast_clock_now(CLOCK_MONOTONIC))
                  >= UDPFAST_RING_STUCK_NS;
}

/* Whether to report READY: a new writer has written a record; or the loop that was stuck has run
 * again, and this reader has read all that it had written by then. */
static inline int udpfast_reader_is_back(struct udpfast_reader *reader)
{
    int stuck = udpfast_reader_stuck(reader);
    if (reader->lost) /* until it was lapped, and reads on behind the damage */
        return 0;
    if (UDPFAST_LOAD_RELAXED(&reader->header->epoch) != reader->gone_epoch)
        reader->gone = UDPFAST_CONNECTION_WRITER;
    if (reader->gone == UDPFAST_CONNECTION_WRITER) /* also before a lap, which may hide RESTART */
        return (uint32_t) udpfast_ring_word(reader, reader->position) != 0
               || !udpfast_ring_sound(reader, reader->position);
    if (!stuck && !reader->current) {
        reader->current = 1;
        reader->current_index = UDPFAST_LOAD_RELAXED(&reader->header->tail_index);
    }
    return reader->current && reader->index >= reader->current_index;
}

/* There is no record: check the writer. Returns 1 and a CONNECTION if its state has changed; 2: the
 * ring continues in another file; 0: nothing has changed. */
static inline int udpfast_reader_look(struct udpfast_reader *reader,
                                      const struct udpfast_record **records)
{
    char path[PATH_MAX + 8];
    int64_t now_ns = udpfast_clock_now(CLOCK_MONOTONIC);
    uint64_t state;
    int result, dead;
    if (now_ns - reader->looked_ns < UDPFAST_WRITER_LOOK_NS)
        return 0;
    reader->looked_ns = now_ns;
    snprintf(path, sizeof path, "%s/ring", reader->directory);
    if (udpfast_region_replaced(&reader->ring, path)) {
        result = udpfast_reader_follow(reader);
        if (result != 0)
            return result == 1 ? 2 : result;
        if ((uint32_t) udpfast_ring_word(reader, reader->position) != 0
            || UDPFAST_LOAD_ACQUIRE(&reader->header->state) == UDPFAST_RING_CLOSED)
            return 2; /* read the remaining records first */
        return udpfast_reader_say_removed(reader);
    }
    state = UDPFAST_LOAD_ACQUIRE(&reader->header->state);
    if ((uint32_t) udpfast_ring_word(reader, reader->position) != 0)
        return 0; /* read the records that a dead writer left first */
    dead = state != UDPFAST_RING_CLOSED
           && (state == UDPFAST_RING_FAILED || state == UDPFAST_RING_LEFT
               || !udpfast_region_writer_alive(&reader->ring));
    if (dead && reader->gone) {
        reader->gone = UDPFAST_CONNECTION_WRITER; /* a stuck writer has died */
        return 0;
    }
    if (dead)
        return udpfast_reader_say_writer(reader, UDPFAST_CONNECTION_WRITER, records);
    if (reader->gone == UDPFAST_CONNECTION_WRITER)
        return udpfast_reader_say_writer(reader, 0, records);
    if (!reader->gone && state == UDPFAST_RING_OPEN && udpfast_reader_stuck(reader))
        return udpfast_reader_say_writer(reader, UDPFAST_CONNECTION_LOOP, records);
    return 0;
}

/* The scope of the DISCONNECTED that holds for what is read now; 0: none does. */
static inline uint32_t udpfast_reader_orphans(const struct udpfast_reader *reader)
{
    return reader->gone != 0 && UDPFAST_LOAD_RELAXED(&reader->header->epoch) == reader->gone_epoch
               ? (uint32_t) reader->gone
               : 0;
}

/* The ring has ended, because its writer closed it or another file replaced it. Returns 1 if the
 * reader continues in that file. */
static inline int udpfast_reader_end(struct udpfast_reader *reader)
{
    int result = udpfast_reader_follow(reader);
    if (result != 0)
        return result;
    if (UDPFAST_LOAD_ACQUIRE(&reader->header->state) == UDPFAST_RING_CLOSED)
        return udpfast_say(reader->problem, UDPFAST_ENDED,
                           "%.300s: the writer closed it after %" PRIu64 " records",
                           reader->directory, reader->index);
    return udpfast_reader_say_removed(reader);
}

/* The ring was removed, perhaps while its writer works: what it writes there is not read. Returns 1
 * if the reader continues in a file that is there by now. */
static inline int udpfast_reader_stay_removed(struct udpfast_reader *reader)
{
    int result = udpfast_reader_follow(reader);
    reader->lost = result == 1 ? 0 : UDPFAST_REMOVED;
    return result != 0 ? result : udpfast_reader_say_removed(reader);
}

/* Say why a reader cannot be polled. Returns UDPFAST_CLOSED or UDPFAST_REFUSED. */
static inline int udpfast_reader_say_refused(struct udpfast_reader *reader,
                                             const struct udpfast_record **records, int64_t limit)
{
    if (reader == NULL)
        return UDPFAST_REFUSED;
    if (reader->header == NULL)
        return udpfast_reader_say_closed(reader);
    if (records == NULL)
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "records must be room for their addresses, was NULL");
    return udpfast_say(reader->problem, UDPFAST_REFUSED,
                       "limit must be at least 1 record, was %" PRId64, limit);
}

/* Copy new records; never wait.
 *
 * records: room for `limit` pointers. Each points to a record, with its payload behind it
 * (udpfast_record_payload); they are valid until the next call.
 *
 * Returns the number of records; 0: there is none; UDPFAST_ENDED; less: see `problem`.
 * UDPFAST_CLOSED: the reader is not open; UDPFAST_REFUSED: `records` is NULL, or `limit` below 1.
 *
 * A record of kind LAPPED states the exact number of records that were missed because the reader
 * was lapped. A CONNECTION of scope WRITER reports that the writer died or failed, and that it is
 * back; one of scope LOOP, that its loop is stuck, and that it has caught up. Each comes alone. One
 * of scope WRITER also precedes the first result below 0, whatever it is: books are stale then.
 */
static inline int64_t udpfast_reader_poll(struct udpfast_reader *reader,
                                          const struct udpfast_record **records, int64_t limit)
{
    int attempts = 0, ended = 0, end, result;
    uint64_t missed, latest, state;
    if (reader == NULL || reader->header == NULL || records == NULL || limit < 1)
        return udpfast_reader_say_refused(reader, records, limit);
    if (reader->pending) {
        reader->pending = 0;
        records[0] = (const struct udpfast_record *) reader->copies;
        return 1;
    }
    if (reader->lost == UDPFAST_REMOVED && (result = udpfast_reader_stay_removed(reader)) != 1)
        return result;
    if (reader->gone && udpfast_reader_is_back(reader))
        return udpfast_reader_say_writer(reader, 0, records);
    for (;;) {
        int64_t count = udpfast_reader_run(reader, records, limit, &missed, &end);
        if (count > 0) {
            if (records[0]->kind == UDPFAST_KIND_RESTART || missed != 0)
                udpfast_reader_renew_names(reader);
            reader->lost = 0;
            if (missed != 0 || reader->unknown)
                return udpfast_reader_say_lapped(reader, missed, records);
            return count;
        }
        if (end == UDPFAST_RUN_ON)
            continue;
        if (end == UDPFAST_RUN_LAPPED) {
            /* Acquire: the record at `latest` is complete. */
            latest = UDPFAST_LOAD_ACQUIRE(&reader->header->latest);
            if (++attempts > UDPFAST_JUMP_ATTEMPTS)
                return 0;
            if (latest > reader->position && (latest & 7) == 0) {
                reader->position = latest;
                reader->jumped = 1;
                continue;
            }
            end = UDPFAST_RUN_DAMAGED;
        }
        if (end == UDPFAST_RUN_DAMAGED) {
            result = udpfast_say(reader->problem, UDPFAST_DAMAGED,
                                 "%.300s: expected record %" PRIu64 " at position %" PRIu64
                                 ", found no valid record",
                                 reader->directory, reader->index, reader->position);
            return udpfast_reader_lose(reader, result, records);
        }
        if (ended) {
            result = udpfast_reader_end(reader);
            if (result != 1)
                return udpfast_reader_lose(reader, result, records);
            ended = 0;
            continue;
        }
        /* Acquire: a record committed before the end is seen by the run that follows. */
        state = UDPFAST_LOAD_ACQUIRE(&reader->header->state);
        ended = state == UDPFAST_RING_CLOSED || state == UDPFAST_RING_REPLACED;
        if (ended)
            continue;
        result = udpfast_reader_look(reader, records);
        if (result < 0)
            return udpfast_reader_lose(reader, result, records);
        if (result != 2)
            return result;
    }
}

/* Get the next record; never wait. Returns as udpfast_reader_poll. */
static inline int udpfast_reader_next(struct udpfast_reader *reader,
                                      const struct udpfast_record **record)
{
    return (int) udpfast_reader_poll(reader, record, 1);
}

/* Pause after `turns` polls without a record: the more turns, the longer. */
static inline void udpfast_reader_rest(uint64_t turns, int how)
{
    struct timespec pause = {0, 1000};
    if (how == UDPFAST_WAIT_SPIN || turns < 1000) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    } else if (turns < 1100) {
        sched_yield();
    } else {
        pause.tv_nsec = turns < 1110 ? 1000 << (turns - 1100) : 1000000;
        nanosleep(&pause, NULL);
    }
}

/* Wait for the next records. Returns as udpfast_reader_poll; 0: none came within the timeout.
 *
 * how: UDPFAST_WAIT_SPIN or UDPFAST_WAIT_SLEEP. timeout_ns: below 0: no limit.
 */
static inline int64_t udpfast_reader_wait(struct udpfast_reader *reader,
                                          const struct udpfast_record **records, int64_t limit,
                                          int how, int64_t timeout_ns)
{
    int64_t until_ns = udpfast_deadline(timeout_ns);
    uint64_t turns = 0;
    if (reader == NULL || reader->header == NULL || records == NULL || limit < 1)
        return udpfast_reader_say_refused(reader, records, limit);
    if (how != UDPFAST_WAIT_SPIN && how != UDPFAST_WAIT_SLEEP)
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "how must be UDPFAST_WAIT_SPIN or _SLEEP (0 or 1), was %d", how);
    for (;;) {
        /* The commit word alone shows neither laps nor the end: poll from time to time. */
        if (turns % 64 == 0 || turns >= 1000
            || (uint32_t) udpfast_ring_word(reader, reader->position) != 0) {
            int64_t count = udpfast_reader_poll(reader, records, limit);
            if (count != 0)
                return count;
            if (timeout_ns >= 0 && udpfast_clock_now(CLOCK_MONOTONIC) >= until_ns)
                return 0;
        }
        udpfast_reader_rest(turns++, how);
    }
}
