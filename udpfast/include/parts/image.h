enum {
    UDPFAST_OUTDATED = -37, /* the image does not fit the ring: of another writer, or too old */
};

struct udpfast_image_bytes {
    uint8_t *bytes;
    uint64_t size, room;
};

/* An image, with copies of its first entry and of one object. The copies are only read. */
struct udpfast_image {
    struct udpfast_region region;
    const struct udpfast_image_slot *slots;
    uint64_t slots_count;
    struct udpfast_image_bytes first, copied;
    const struct udpfast_state_head *head;     /* head->objects; head->mark: see udpfast_image_open */
    const struct udpfast_state_stream *streams; /* head->streams of them */
    const struct udpfast_state_entry *object;  /* see udpfast_image_object */
    int status;                                /* UDPFAST_OBJECT_* of `object` */
    char problem[UDPFAST_PROBLEM_SIZE];
};

/* --- one object --- */

/* Copy an entry while its keeper may be writing. Returns 1; 0: it was never written. */
static inline int udpfast_image_copy(struct udpfast_image *image, uint64_t slot,
                                     struct udpfast_image_bytes *into)
{
    const struct udpfast_image_slot *from = image->slots + slot;
    int attempt;
    for (attempt = 0; attempt < UDPFAST_IMAGE_ATTEMPTS; attempt++) {
        /* Acquire: the buffer is read after its version, which is stored last. */
        uint64_t version = UDPFAST_LOAD_ACQUIRE(&from->done);
        uint64_t offset = UDPFAST_LOAD_RELAXED(&from->offset[version & 1]);
        uint64_t size = UDPFAST_LOAD_RELAXED(&from->size[version & 1]);
        int inside = size <= image->region.size && offset <= image->region.size - size;
        if (version == 0)
            return 0;
        if (inside && size > into->room) {
            void *bytes = realloc(into->bytes, (size_t) size);
            if (bytes == NULL)
                return udpfast_say(image->problem, UDPFAST_NO_MEMORY,
                                   "no memory for an entry of %" PRIu64 " bytes", size);
            into->bytes = (uint8_t *) bytes;
            into->room = size;
        }
        if (inside && size != 0)
            memcpy(into->bytes, (const uint8_t *) image->region.header + offset, (size_t) size);
        /* Orders the copy before the load of `begun`, which is stored before a buffer is written. */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (UDPFAST_LOAD_RELAXED(&from->begun) > version + 1)
            continue;
        into->size = size;
        if (inside && (offset & 7) == 0)
            return 1;
        return udpfast_say(image->problem, UDPFAST_DAMAGED,
                           "image: expected entry %" PRIu64 " inside its %" PRIu64
                           " bytes, found %" PRIu64 " bytes at %" PRIu64,
                           slot, image->region.size, size, offset);
    }
    return udpfast_say(image->problem, UDPFAST_NOT_READY,
                       "image: entry %" PRIu64 " was replaced at each of %d attempts to copy it",
                       slot, UDPFAST_IMAGE_ATTEMPTS);
}

/* Unmap the image, and free the copies. Idempotent. */
static inline void udpfast_image_close(struct udpfast_image *image)
{
    if (image == NULL)
        return;
    udpfast_region_unmap(&image->region);
    free(image->first.bytes);
    free(image->copied.bytes);
    image->first.bytes = image->copied.bytes = NULL;
    image->first.room = image->copied.room = 0;
    image->head = NULL;
    image->object = NULL;
}

/* Copy the first entry, and check it against the image and the ring. Returns 0. */
static inline int udpfast_image_read_head(struct udpfast_image *image,
                                          const struct udpfast_reader *reader)
{
    const struct udpfast_state_head *head;
    int result = udpfast_image_copy(image, 0, &image->first);
    if (result < 0)
        return result;
    if (result == 0)
        return udpfast_say(image->problem, UDPFAST_NOT_READY,
                           "image: its keeper has not written it yet");
    head = (const struct udpfast_state_head *) (const void *) image->first.bytes;
    if (image->first.size < sizeof *head || head->objects >= image->slots_count
        || head->mark.position % 8 != 0
        || image->first.size != sizeof *head + head->streams * sizeof *image->streams)
        return udpfast_say(image->problem, UDPFAST_DAMAGED,
                           "image: expected a first entry that fits %" PRIu64 " entries, found one "
                           "of %" PRIu64 " bytes",
                           image->slots_count, image->first.size);
    if (head->mark.ring_born_ns != (uint64_t) reader->header->born_ns
        || head->mark.ring_created_ns != reader->ring.header->created_ns)
        return udpfast_say(image->problem, UDPFAST_OUTDATED,
                           "image: expected that of this ring, found that of an earlier one");
    image->head = head;
    image->streams = (const struct udpfast_state_stream *) (const void *) (head + 1);
    return 0;
}

/* Open the image of a reader's feed. Returns 0.
 *
 * Then `head` is a copy of what it says of all objects: `mark.position` and `mark.index` are where
 * in the ring it stands, which means that every object contains all its records below them.
 */
static inline int udpfast_image_open(struct udpfast_image *image,
                                     const struct udpfast_reader *reader)
{
    char path[PATH_MAX + 8];
    const struct udpfast_image_header *header;
    int result;
    if (image == NULL)
        return UDPFAST_REFUSED;
    if (image->head != NULL)
        return udpfast_say_open(image->problem);
    memset(image, 0, sizeof *image);
    if (reader == NULL)
        return udpfast_say(image->problem, UDPFAST_REFUSED, "reader must not be NULL");
    if (reader->header == NULL)
        return udpfast_say(image->problem, UDPFAST_CLOSED,
                           "its reader is not open: call udpfast_reader_open first");
    snprintf(path, sizeof path, "%.*s/image", PATH_MAX - 1, reader->directory);
    result = udpfast_region_map(&image->region, path, UDPFAST_IMAGE_KIND, UDPFAST_IMAGE_LAYOUT, 0,
                                image->problem);
    if (result == UDPFAST_ABSENT && access(reader->directory, F_OK) != 0)
        return udpfast_say(image->problem, UDPFAST_REMOVED,
                           "%.400s: the instance was removed: open another reader",
                           reader->directory);
    if (result == UDPFAST_ABSENT)
        return udpfast_say(image->problem, result,
                           "%.400s: there is none; set [image] enabled = true in the feed's file",
                           path);
    if (result != 0)
        return result;
    header = (const struct udpfast_image_header *) (const void *) image->region.header;
    image->slots = (const struct udpfast_image_slot *) (const void *) ((const uint8_t *) header
                                                                       + UDPFAST_IMAGE_SLOTS);
    image->slots_count = header->slots;
    if (image->slots_count == 0
        || image->slots_count
               > (image->region.size - UDPFAST_IMAGE_SLOTS) / sizeof *image->slots)
        result = udpfast_say(image->problem, UDPFAST_REFUSED,
                             "%.300s: expected slots that fit %" PRIu64 " bytes, found %" PRIu64,
                             path, image->region.size, image->slots_count);
    else
        result = udpfast_image_read_head(image, reader);
    if (result != 0)
        udpfast_image_close(image);
    return result;
}

/* The record of a value, as it would be in the ring: its payload is behind it. */
static inline const struct udpfast_record *
udpfast_value_record(const struct udpfast_state_entry_value *value)
{
    return (const struct udpfast_record *) (const void *) ((const uint8_t *) (value + 1)
                                                           - UDPFAST_RECORD_SIZE);
}

/* The value of the copied object behind `value`, NULL: its first one. Returns NULL behind the last,
 * or if no object is copied.
 * The records of values are flagged SNAPSHOT, and TRUNCATED if image.depth cut a book. */
static inline const struct udpfast_state_entry_value *
udpfast_image_value(const struct udpfast_image *image,
                    const struct udpfast_state_entry_value *value)
{
    const uint8_t *next;
    if (image == NULL || image->object == NULL)
        return NULL;
    next = value == NULL ? (const uint8_t *) (image->object + 1)
                         : (const uint8_t *) (value + 1) + udpfast_aligned(value->size);
    return next == image->copied.bytes + image->copied.size
               ? NULL
               : (const struct udpfast_state_entry_value *) (const void *) next;
}

/* Check that the values of the copied object fill its entry, and make their records say what the
 * values are: a whole state. Returns 1, or 0 if they do not. */
static inline int udpfast_image_check_values(struct udpfast_image *image)
{
    uint64_t at = sizeof *image->object, left;
    uint32_t i;
    for (i = 0; i < image->object->values; i++) {
        struct udpfast_state_entry_value *value =
            (struct udpfast_state_entry_value *) (void *) (image->copied.bytes + at);
        struct udpfast_record record;
        left = image->copied.size - at;
        if (left < sizeof *value || left - sizeof *value < udpfast_aligned(value->size))
            return 0;
        record = value->record;
        record.length = (int32_t) (UDPFAST_RECORD_SIZE + value->size);
        record.flags = (uint8_t) ((record.flags & ~UDPFAST_RECORD_RELEASED)
                                  | UDPFAST_RECORD_SNAPSHOT
                                  | (value->cut ? UDPFAST_RECORD_TRUNCATED : 0));
        record.checksum = 0;
        record.line = 0;
        record.number = 0;
        if (record.stream < UDPFAST_STREAM_FIRST)
            record.stream = UDPFAST_CHANNEL_SNAPSHOT;
        value->record = record;
        at += sizeof *value + udpfast_aligned(value->size);
    }
    return at == image->copied.size;
}

/* UDPFAST_OBJECT_* of the copied object, as a late reader in Python gets it. */
static inline int udpfast_image_judge(const struct udpfast_image *image)
{
    const struct udpfast_state_entry *object = image->object;
    const struct udpfast_state_entry_value *value = udpfast_image_value(image, NULL);
    uint64_t stream = object->doubt.key >> 40;
    uint32_t gaps = stream < image->head->streams ? image->streams[stream].heard.gaps : 0;
    int doubted = object->doubt.doubted != 0 || object->doubt.sure != gaps;
    int book = 0, missing = value == NULL;
    for (; value != NULL; value = udpfast_image_value(image, value)) {
        if (value->record.kind == UDPFAST_KIND_BOOK && !book) {
            book = 1; /* other values do not build on each other */
            missing = value->missing;
        } else if (value->record.kind == UDPFAST_KIND_BOOK || !book) {
            missing = missing || value->missing;
        }
    }
    missing = missing || object->unkept;
    if (!doubted)
        return missing ? UDPFAST_OBJECT_WAITING : UDPFAST_OBJECT_LIVE;
    return missing ? UDPFAST_OBJECT_STALE : UDPFAST_OBJECT_UNKNOWN;
}

/* Copy an object with all its values. Returns 1; 0: there is none at this place now.
 *
 * i: from 0, below head->objects. Until the next call, `object` is its state (`until`: it contains
 * all its records below this position of the ring, of which `index` is the last one's; `applied`:
 * the last number that it contains), udpfast_image_value returns its values, and `status` says how
 * far to trust them: only an object that is UDPFAST_OBJECT_LIVE is not in doubt.
 */
static inline int udpfast_image_object(struct udpfast_image *image, uint32_t i)
{
    const struct udpfast_state_entry *object;
    int result;
    if (image == NULL)
        return UDPFAST_REFUSED;
    image->object = NULL;
    if (image->head == NULL)
        return udpfast_say(image->problem, UDPFAST_CLOSED,
                           "the image is not open: call udpfast_image_open first");
    result = i < image->head->objects ? udpfast_image_copy(image, 1 + (uint64_t) i, &image->copied)
                                      : 0;
    if (result <= 0)
        return result;
    object = (const struct udpfast_state_entry *) (const void *) image->copied.bytes;
    if (image->copied.size >= sizeof *object
        && object->generation != image->head->mark.generation)
        return (int32_t) (object->generation - image->head->mark.generation) < 0
                   ? 0 /* of an earlier session */
                   : udpfast_say(image->problem, UDPFAST_NOT_READY,
                                 "image: a session began while it was copied");
    image->object = object;
    if (image->copied.size < sizeof *object || object->doubt.key >> 40 > UDPFAST_STREAM_NONE
        || !udpfast_image_check_values(image)) {
        image->object = NULL;
        return udpfast_say(image->problem, UDPFAST_DAMAGED,
                           "image: expected an object in entry %" PRIu64
                           ", found other %" PRIu64 " bytes",
                           1 + (uint64_t) i, image->copied.size);
    }
    image->status = udpfast_image_judge(image);
    return 1;
}

/* --- all books --- */

/* Empty the books, and take from the image what it heard of all streams. 0: no memory. */
static inline int udpfast_books_take_head(struct udpfast_books *books,
                                          const struct udpfast_reader *reader,
                                          const struct udpfast_image *image)
{
    uint32_t i;
    for (i = 0; i < books->objects.streams; i++)
        books->objects.heard[i].gaps = 0;
    udpfast_books_begin_all(books, 0);
    if (image->head->streams != 0
        && !udpfast_objects_reach(&books->objects, image->head->streams - 1))
        return 0;
    for (i = 0; i < image->head->streams; i++)
        books->objects.heard[i] = image->streams[i].heard;
    books->orphaned = udpfast_reader_orphans(reader);
    return 1;
}

/* Take a book from the image. Returns 1; 0: it is as it was last known, and stays stale. */
static inline int udpfast_books_take_value(struct udpfast_books *books,
                                           struct udpfast_reader *reader,
                                           struct udpfast_object *object,
                                           const struct udpfast_state_entry_value *value)
{
    const void *payload = udpfast_record_payload(udpfast_value_record(value));
    struct udpfast_order_book *book;
    uint64_t refused;
    int result;
    if (value->size == 0)
        return 0; /* nothing yet */
    result = udpfast_books_bind(books, reader, object, value->tag);
    if (result <= 0)
        return result;
    book = books->all[object->book];
    refused = book->levels_refused;
    if (books->kind == UDPFAST_KIND_BOOK)
        result = udpfast_order_book_apply(book, payload, value->size, 1);
    else if (!udpfast_orders_whole(payload, value->size))
        result = UDPFAST_FORMAT;
    else
        result = udpfast_queues_apply(&book->orders, &books->objects.key, payload, 1);
    if (result == UDPFAST_FORMAT)
        return UDPFAST_DAMAGED;
    return result < 0 ? result : !value->missing && book->levels_refused == refused;
}

/* Take the copied object from the image. Returns 0. */
static inline int udpfast_books_take_object(struct udpfast_books *books,
                                            struct udpfast_reader *reader,
                                            const struct udpfast_image *image)
{
    const struct udpfast_state_entry *from = image->object;
    const struct udpfast_state_entry_value *value = NULL;
    struct udpfast_object *object;
    int whole = 0;
    if (udpfast_objects_find(&books->objects, from->doubt.key, from->doubt.tag) != NULL)
        return UDPFAST_DAMAGED;
    object = udpfast_objects_reach(&books->objects, (uint32_t) (from->doubt.key >> 40))
                 ? udpfast_objects_add(&books->objects, from->doubt.key, from->doubt.tag)
                 : NULL;
    if (object == NULL)
        return UDPFAST_NO_MEMORY;
    object->until = from->until;
    while (whole >= 0 && (value = udpfast_image_value(image, value)) != NULL)
        if (value->record.kind == books->kind)
            whole = udpfast_books_take_value(books, reader, object, value);
    object->sure = from->doubt.sure;
    object->doubted = from->doubt.doubted;
    object->begun = from->doubt.begun;
    object->missing = whole <= 0 || image->status == UDPFAST_OBJECT_STALE
                      || image->status == UDPFAST_OBJECT_WAITING;
    udpfast_books_mark(books, object);
    return whole < 0 ? whole : 0;
}

/* What takes part in one attempt to join. Either of the books may be NULL. */
struct udpfast_join {
    struct udpfast_books *books[2];
    struct udpfast_reader *reader;
    uint64_t epoch;  /* of the writer, as of the records that were applied */
    uint64_t newest; /* an object contains records up to here */
};

/* Take all objects from the image. Returns 0. */
static inline int udpfast_join_take(struct udpfast_join *join, struct udpfast_image *image)
{
    uint32_t i, set;
    join->epoch = image->head->mark.epoch;
    join->newest = image->head->mark.position;
    for (set = 0; set < 2; set++)
        if (join->books[set] != NULL
            && !udpfast_books_take_head(join->books[set], join->reader, image))
            return udpfast_say(image->problem, UDPFAST_NO_MEMORY, "no memory for an image");
    for (i = 0; i < image->head->objects; i++) {
        int result = udpfast_image_object(image, i);
        if (result < 0)
            return result;
        if (result == 0)
            continue;
        if (image->object->until > join->newest)
            join->newest = image->object->until;
        for (set = 0; set < 2; set++) {
            result = join->books[set] == NULL
                         ? 0
                         : udpfast_books_take_object(join->books[set], join->reader, image);
            if (result != 0)
                return udpfast_say(image->problem, result,
                                   result == UDPFAST_DAMAGED
                                       ? "image: expected an object in entry %" PRIu64
                                         ", found one that cannot be"
                                       : "no memory for the object in entry %" PRIu64,
                                   1 + (uint64_t) i);
        }
    }
    return 0;
}

/* Apply a record to the books that join. A malformed update has made its book stale. Returns 0. */
static inline int udpfast_join_apply(struct udpfast_join *join, const struct udpfast_record *record)
{
    const struct udpfast_restart *restart =
        (const struct udpfast_restart *) udpfast_record_payload(record);
    struct udpfast_order_book *updated;
    uint32_t set;
    if (record == &join->reader->made.header && record->kind == UDPFAST_KIND_LAPPED)
        return udpfast_say(join->reader->problem, UDPFAST_OUTDATED,
                           "%.300s/image: the ring has already overwritten the records behind it",
                           join->reader->directory);
    if (record->kind == UDPFAST_KIND_RESTART
        && udpfast_record_payload_size(record) >= sizeof *restart)
        join->epoch = restart->epoch;
    for (set = 0; set < 2; set++)
        if (join->books[set] != NULL
            && udpfast_books_apply(join->books[set], join->reader, record, &updated)
                   == UDPFAST_NO_MEMORY)
            return udpfast_say(join->reader->problem, UDPFAST_NO_MEMORY, "%.500s",
                               join->books[set]->problem);
    return 0;
}

/* Read the ring from the image's mark to its end, or to the newest object if that is later. If the
 * writer does not work, read on until the reader has said so. Returns 0. */
static inline int udpfast_join_follow(struct udpfast_join *join, uint64_t end)
{
    const struct udpfast_record *records[64];
    struct udpfast_reader *reader = join->reader;
    int64_t count, i;
    int result = 0;
    int works = udpfast_reader_works(reader) && !udpfast_reader_stuck(reader);
    if (end < join->newest)
        end = join->newest;
    reader->looked_ns = 0;
    do {
        count = udpfast_reader_poll(reader, records, 64);
        for (i = 0; i < count && result == 0; i++)
            result = udpfast_join_apply(join, records[i]);
    } while (result == 0 && count > 0 && (reader->position < end || !works));
    if (result != 0 || (count < 0 && count != UDPFAST_ENDED))
        return result != 0 ? result : (int) count;
    for (i = 0; i < 2 && count == UDPFAST_ENDED; i++)
        if (join->books[i] != NULL)
            join->books[i]->orphaned = UDPFAST_CONNECTION_WRITER;
    if (reader->position < join->newest)
        return udpfast_say(reader->problem, UDPFAST_OUTDATED,
                           "%.300s/image: expected objects no later than the ring's end %" PRIu64
                           ", found one at %" PRIu64,
                           reader->directory, reader->position, join->newest);
    if (join->epoch != UDPFAST_LOAD_RELAXED(&reader->header->epoch))
        return udpfast_say(reader->problem, UDPFAST_NOT_READY,
                           "%.300s: its writer has not yet reported that it took over",
                           reader->directory);
    return 0;
}

/* Make one attempt to join. Returns 0. */
static inline int udpfast_join_try(struct udpfast_join *join)
{
    struct udpfast_reader *reader = join->reader;
    struct udpfast_image image;
    uint64_t end = UDPFAST_LOAD_ACQUIRE(&reader->header->tail), position = 0, index = 0;
    int result = udpfast_reader_renew_names(reader);
    if (result != 0)
        return result;
    image.head = NULL; /* it is not open yet */
    result = udpfast_image_open(&image, reader);
    if (result == 0) {
        position = image.head->mark.position;
        index = image.head->mark.index;
        result = udpfast_join_take(join, &image);
        udpfast_image_close(&image);
    }
    if (result == 0 && position > UDPFAST_LOAD_ACQUIRE(&reader->header->tail))
        result = udpfast_say(image.problem, UDPFAST_OUTDATED,
                             "image: expected a position no later than the ring's end, found "
                             "%" PRIu64,
                             position);
    if (result != 0)
        return udpfast_say(reader->problem, result, "%.500s", image.problem);
    reader->position = position;
    reader->index = index;
    reader->jumped = reader->unknown = reader->pending = 0;
    return udpfast_join_follow(join, end);
}

/* Take all books from the feed's image, and read the ring until they are true at one position: the
 * reader's. From there it goes on. Returns 0.
 *
 * books, orders: opened by udpfast_books_open and udpfast_books_open_orders; either may be NULL.
 * What they held is gone. timeout_ns: how long to try again while the keeper is behind, or has just
 * begun.
 *
 * A book is stale if it is for the feed, or if the image does not have all of it. All are stale if
 * the writer is dead, stuck or has ended. Below 0, the reader is at the ring's end and the books are
 * empty: it may go on without the image, or try again. See `reader->problem`. UDPFAST_ABSENT: the
 * feed keeps no image, which is said at once; UDPFAST_REFUSED: of another version, or not trusted;
 * UDPFAST_NOT_READY: it is being written; UDPFAST_OUTDATED: of another ring, or the ring has
 * overwritten what follows it; UDPFAST_DAMAGED. UDPFAST_CLOSED: the reader or a set is not open, or
 * UDPFAST_REFUSED: both sets are the same one, or one is of another ring: nothing was changed.
 */
static inline int udpfast_reader_join(struct udpfast_reader *reader, struct udpfast_books *books,
                                      struct udpfast_books *orders, int64_t timeout_ns)
{
    int64_t until_ns = udpfast_deadline(timeout_ns < 0 ? 0 : timeout_ns);
    const struct timespec pause = {0, 1000000};
    struct udpfast_join join = {{books, orders}, reader, 0, 0};
    uint32_t set, i;
    /* A feed says before its readers find it whether it keeps an image: of a working one, an image
     * that is absent stays absent. */
    int result, found, works = udpfast_reader_works(reader);
    char problem[UDPFAST_PROBLEM_SIZE];
    if (reader == NULL)
        return UDPFAST_REFUSED;
    if (reader->header == NULL)
        return udpfast_reader_say_closed(reader);
    if ((books != NULL && books->kind == 0) || (orders != NULL && orders->kind == 0))
        return udpfast_books_say_closed(reader->problem);
    if (books != NULL && books == orders)
        return udpfast_say(reader->problem, UDPFAST_REFUSED,
                           "books and orders must be two sets, or one of them NULL: were the same "
                           "set");
    for (set = 0; set < 2; set++)
        if (join.books[set] != NULL && udpfast_books_are_strange(join.books[set], reader))
            return udpfast_books_say_strange(reader, reader->problem);
    if (reader->lost == UDPFAST_DAMAGED) /* it goes on elsewhere, and the writer may work */
        reader->gone = reader->lost = 0;
    for (set = 0; set < 2; set++)
        if (join.books[set] != NULL)
            udpfast_books_use(join.books[set], reader);
    while ((result = udpfast_join_try(&join)) != 0 && result != UDPFAST_NO_MEMORY
           && result != UDPFAST_REFUSED && !(result == UDPFAST_ABSENT && works)
           && udpfast_clock_now(CLOCK_MONOTONIC) < until_ns) {
        nanosleep(&pause, NULL);
        works = udpfast_reader_works(reader);
    }
    for (set = 0; set < 2; set++) {
        if (join.books[set] == NULL)
            continue;
        if (result != 0) {
            udpfast_books_begin_all(join.books[set], 0);
            join.books[set]->orphaned = udpfast_reader_orphans(reader);
        }
        for (i = 0; i < join.books[set]->objects.count; i++)
            join.books[set]->objects.all[i].until = 0;
        udpfast_books_mark_all(join.books[set]);
    }
    if (result == 0) {
        reader->problem[0] = 0; /* of an attempt before this one */
        return 0;
    }
    memcpy(problem, reader->problem, sizeof problem);
    reader->jumped = reader->unknown = reader->pending = 0;
    found = udpfast_reader_seek(reader, UDPFAST_START_TAIL);
    if (found != 0)
        return found;
    memcpy(reader->problem, problem, sizeof problem);
    return result;
}
