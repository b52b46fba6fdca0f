enum {
    UDPFAST_LEVELS_MAX = 1 << 20,
    UDPFAST_UPDATE_SNAPSHOT = 1, /* UpdateHeader.update_type */
    UDPFAST_UPDATE_STALE = 3,
};

struct udpfast_price_level {
    double key;
    double quantity;
};

/* One side, sorted: the best level is the last one. */
struct udpfast_book_side {
    struct udpfast_price_level *levels;
    uint32_t count, room;
    double sign; /* key = price * sign: 1 bids, -1 asks */
};

/* The book of one instrument: its levels, or its single orders. Its address does not change until
 * udpfast_books_close. */
struct udpfast_order_book {
    struct udpfast_book_side bids, asks;
    struct udpfast_queues orders;
    int stale;                 /* its content may be wrong or out of date: do not trust it */
    int partial;               /* the event of its last update goes on in the next one */
    uint64_t removals_unknown; /* removals of levels that did not exist */
    uint64_t levels_refused;   /* NaN, a quantity below 0, or beyond UDPFAST_LEVELS_MAX */
    char exchange[UDPFAST_NAME_SIZE_MAX + 1];
    char symbol[UDPFAST_NAME_SIZE_MAX + 1];
};

/* --- one book --- */

/* Get a level by rank, 0 is the best one. Returns 1, or 0 if there is no such level (or side). */
static inline int udpfast_side_level(const struct udpfast_book_side *side, uint32_t rank,
                                     double *price, double *quantity)
{
    const struct udpfast_price_level *level;
    if (side == NULL || rank >= side->count || price == NULL || quantity == NULL)
        return 0;
    level = side->levels + (side->count - 1 - rank);
    *price = level->key * side->sign;
    *quantity = level->quantity;
    return 1;
}

struct udpfast_best {
    double bid_price; /* NaN: the side is empty */
    double bid_quantity;
    double ask_price;
    double ask_quantity;
};

/* Get the best prices of a book; of none (NULL) those of an empty one. */
static inline struct udpfast_best udpfast_order_book_best(const struct udpfast_order_book *book)
{
    struct udpfast_best best = {__builtin_nan(""), 0, __builtin_nan(""), 0};
    if (book == NULL)
        return best;
    udpfast_side_level(&book->bids, 0, &best.bid_price, &best.bid_quantity);
    udpfast_side_level(&book->asks, 0, &best.ask_price, &best.ask_quantity);
    return best;
}

static inline int udpfast_order_book_crossed(const struct udpfast_order_book *book)
{
    struct udpfast_best best = udpfast_order_book_best(book);
    return best.bid_price >= best.ask_price;
}

/* Make room for `more` levels. 0: no memory. */
static inline int udpfast_side_reserve(struct udpfast_book_side *side, uint32_t more)
{
    uint64_t wanted = (uint64_t) side->count + more;
    void *memory;
    if (wanted > UDPFAST_LEVELS_MAX)
        wanted = UDPFAST_LEVELS_MAX;
    if (wanted <= side->room)
        return 1;
    if (wanted < 2 * (uint64_t) side->room)
        wanted = 2 * (uint64_t) side->room;
    if (wanted < 64)
        wanted = 64;
    if (wanted > UDPFAST_LEVELS_MAX)
        wanted = UDPFAST_LEVELS_MAX;
    memory = realloc(side->levels, (size_t) wanted * sizeof *side->levels);
    if (memory == NULL)
        return 0;
    side->levels = (struct udpfast_price_level *) memory;
    side->room = (uint32_t) wanted;
    return 1;
}

/* Index of the first level that is not worse than `key`. Searches outwards from the best level,
 * because most updates are near it. */
static inline uint32_t udpfast_side_find(const struct udpfast_book_side *side, double key)
{
    uint32_t high = side->count, low = 0, step = 1;
    while (step <= high) {
        if (side->levels[high - step].key < key) {
            low = high - step + 1;
            break;
        }
        high -= step;
        step <<= 1;
    }
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (side->levels[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Set, insert or (quantity 0) remove one level. */
static inline void udpfast_side_set(struct udpfast_order_book *book, struct udpfast_book_side *side,
                                    double price, double quantity)
{
    double key = price * side->sign;
    uint32_t at;
    struct udpfast_price_level *level;
    if (price != price || !(quantity >= 0)) {
        book->levels_refused++;
        return;
    }
    at = udpfast_side_find(side, key);
    level = side->levels + at;
    if (at < side->count && level->key == key) {
        if (quantity != 0)
            level->quantity = quantity;
        else
            memmove(level, level + 1, (--side->count - at) * sizeof *level);
    } else if (quantity == 0) {
        book->removals_unknown++;
    } else if (side->count == side->room) {
        book->levels_refused++;
    } else {
        memmove(level + 1, level, (side->count++ - at) * sizeof *level);
        level->key = key;
        level->quantity = quantity;
    }
}

static inline void udpfast_side_apply(struct udpfast_order_book *book,
                                      struct udpfast_book_side *side,
                                      const struct udpfast_level *rows, uint32_t count,
                                      int snapshot)
{
    uint32_t i;
    if (snapshot)
        side->count = 0;
    /* A snapshot is sorted from best to worst: taken from its end, every level is appended. Rows
     * that are unsorted or too many must be taken in order: the last one of a price counts. */
    snapshot = snapshot && count <= side->room;
    for (i = 1; snapshot && i < count; i++)
        snapshot = rows[i].price * side->sign < rows[i - 1].price * side->sign;
    for (i = 0; i < count; i++) {
        const struct udpfast_level *row = rows + (snapshot ? count - 1 - i : i);
        udpfast_side_set(book, side, row->price, row->quantity);
    }
}

/* Apply a BOOK payload. A snapshot replaces both sides, even by an empty one; an update changes
 * only the levels that it has. A refused level makes the book stale. Returns 0, UDPFAST_FORMAT or
 * UDPFAST_NO_MEMORY. */
static inline int udpfast_order_book_apply(struct udpfast_order_book *book, const void *payload,
                                           uint32_t size, int snapshot)
{
    const struct udpfast_book *update = (const struct udpfast_book *) payload;
    const struct udpfast_level *rows = (const struct udpfast_level *) (const void *) (update + 1);
    uint64_t refused = book->levels_refused;
    book->stale = 1; /* it stays so if this returns an error */
    if (size < sizeof *update
        || size
               < sizeof *update + ((uint64_t) update->bid_count + update->ask_count) * sizeof *rows)
        return UDPFAST_FORMAT;
    if (!udpfast_side_reserve(&book->bids, update->bid_count)
        || !udpfast_side_reserve(&book->asks, update->ask_count))
        return UDPFAST_NO_MEMORY;
    book->partial = (update->header.present & UDPFAST_PRESENT_MORE) != 0;
    snapshot = snapshot || update->header.update_type == UDPFAST_UPDATE_SNAPSHOT;
    udpfast_side_apply(book, &book->bids, rows, update->bid_count, snapshot);
    udpfast_side_apply(book, &book->asks, rows + update->bid_count, update->ask_count, snapshot);
    book->stale =
        update->header.update_type == UDPFAST_UPDATE_STALE || book->levels_refused != refused;
    return 0;
}

static inline void udpfast_order_book_clear(struct udpfast_order_book *book)
{
    book->bids.count = book->asks.count = 0;
    udpfast_queues_clear(&book->orders);
    book->stale = 1;
    book->partial = 0;
}

/* --- all books of a ring --- */

/* The name of an instrument, and the objects that use it: the first of them has the book that the
 * name leads to, every other one a separate book. */
struct udpfast_book_name {
    int32_t home;     /* index of the name's book */
    int32_t object;   /* the last object that uses the name; -1: none */
    uint32_t objects; /* number of objects that use it */
    int held;         /* one of them has the name's book */
};

/* A book is stale from the moment its content may be wrong until it is known to be right, as in the
 * Python class `Books`: see udpfast_books_apply. */
struct udpfast_books {
    struct udpfast_objects objects;
    struct udpfast_order_book **all; /* the books of names, and the separate ones */
    int32_t *spare;                  /* indices in `all` that no name and no object uses */
    struct udpfast_book_name *names; /* in the order in which they were first seen */
    uint32_t *slots;                 /* hash table by exchange and symbol: index of a name + 1 */
    uint32_t all_count, all_room, spare_count, count, room, mask;
    uint64_t unnamed;   /* updates without a book: exchange or symbol is unknown */
    uint64_t contested; /* names that more than one object uses now */
    uint16_t kind;      /* kind of the updates: BOOK or ORDERS; 0: the books are not open */
    uint32_t orphaned;  /* connection scope of a writer that is dead, stuck or cut off; or 0 */
    uint64_t log[2];    /* of the reader whose records they have */
    int64_t opened_ns;  /* and when it was opened; -1: no records yet */
    char problem[UDPFAST_PROBLEM_SIZE];
};

static inline int udpfast_books_open_kind(struct udpfast_books *books, uint16_t kind)
{
    if (books == NULL)
        return UDPFAST_REFUSED;
    if (books->kind != 0)
        return udpfast_say_open(books->problem);
    memset(books, 0, sizeof *books);
    if (getrandom(&books->objects.key, sizeof books->objects.key, 0)
        != (ssize_t) sizeof books->objects.key)
        return udpfast_failed(books->problem, "draw a key for", "books");
    books->objects.key.factor |= 1;
    books->opened_ns = -1;
    books->kind = kind;
    return 0;
}

/* Say that books are not open. Returns UDPFAST_CLOSED. */
static inline int udpfast_books_say_closed(char *problem)
{
    return udpfast_say(problem, UDPFAST_CLOSED,
                       "the books are not open: call udpfast_books_open first");
}

/* Open an empty set of books of price levels. Returns 0. */
static inline int udpfast_books_open(struct udpfast_books *books)
{
    return udpfast_books_open_kind(books, UDPFAST_KIND_BOOK);
}

/* Open an empty set of books of single orders, which have `orders` and no levels. Levels and
 * orders are stale independently: a program that needs both opens two sets, and applies every
 * record to both. */
static inline int udpfast_books_open_orders(struct udpfast_books *books)
{
    return udpfast_books_open_kind(books, UDPFAST_KIND_ORDERS);
}

/* Find a resting order by its id as published; NULL: it does not rest. */
static inline const struct udpfast_order *udpfast_books_order(const struct udpfast_books *books,
                                                              const struct udpfast_order_book *book,
                                                              const char *id)
{
    uint32_t found;
    if (books == NULL || book == NULL || id == NULL || book->orders.count == 0)
        return NULL;
    found = book->orders.slots[udpfast_queues_slot(&book->orders, &books->objects.key, id)];
    return found == 0 ? NULL : book->orders.rows + (found - 1);
}

/* Find the place of an order in its queue. Returns 1, or 0 if it does not rest. Visits every order
 * of the book. */
static inline int udpfast_books_place(const struct udpfast_books *books,
                                      const struct udpfast_order_book *book, const char *id,
                                      struct udpfast_order_place *place)
{
    const struct udpfast_order *own = udpfast_books_order(books, book, id), *row, *end;
    if (place == NULL)
        return 0;
    memset(place, 0, sizeof *place);
    if (own == NULL)
        return 0;
    place->order = own;
    row = book->orders.rows;
    end = row + book->orders.count;
    for (; row < end; row++) {
        if (row->side != own->side || row->price != own->price || row->priority >= own->priority)
            continue;
        place->orders_before++;
        place->quantity_before += row->quantity;
    }
    return 1;
}

/* Free all books. Idempotent. */
static inline void udpfast_books_close(struct udpfast_books *books)
{
    uint32_t i;
    if (books == NULL)
        return;
    for (i = 0; i < books->all_count; i++) {
        free(books->all[i]->bids.levels);
        free(books->all[i]->asks.levels);
        udpfast_queues_free(&books->all[i]->orders);
        free(books->all[i]);
    }
    free(books->all);
    free(books->spare);
    free(books->names);
    free(books->slots);
    free(books->objects.all);
    free(books->objects.heard);
    free(books->objects.marks);
    free(books->objects.slots);
    memset(books, 0, sizeof *books);
}

/* The i-th book of the `count` that have a name, in the order in which they were first seen; NULL:
 * there are not so many. */
static inline struct udpfast_order_book *udpfast_books_at(const struct udpfast_books *books,
                                                          uint32_t i)
{
    return books != NULL && i < books->count ? books->all[books->names[i].home] : NULL;
}

static inline uint32_t udpfast_books_hash(const struct udpfast_books *books, const char *exchange,
                                          const char *symbol)
{
    uint64_t hash = 0;
    for (; *exchange != 0; exchange++)
        hash = udpfast_keyed_word(&books->objects.key, hash ^ (uint8_t) *exchange);
    hash = udpfast_keyed_word(&books->objects.key, hash ^ 0x100); /* separates the two names */
    for (; *symbol != 0; symbol++)
        hash = udpfast_keyed_word(&books->objects.key, hash ^ (uint8_t) *symbol);
    return (uint32_t) hash;
}

static inline int32_t udpfast_books_find_name(const struct udpfast_books *books,
                                              const char *exchange, const char *symbol)
{
    uint32_t place;
    if (books->slots == NULL)
        return -1;
    for (place = udpfast_books_hash(books, exchange, symbol);; place++) {
        uint32_t found = books->slots[place & books->mask];
        const struct udpfast_order_book *book;
        if (found == 0)
            return -1;
        book = udpfast_books_at(books, found - 1);
        if (strcmp(book->exchange, exchange) == 0 && strcmp(book->symbol, symbol) == 0)
            return (int32_t) found - 1;
    }
}

/* Find the book of an instrument; NULL: none was seen. */
static inline struct udpfast_order_book *
udpfast_books_find(const struct udpfast_books *books, const char *exchange, const char *symbol)
{
    int32_t name = books == NULL || exchange == NULL || symbol == NULL
                       ? -1
                       : udpfast_books_find_name(books, exchange, symbol);
    return name < 0 ? NULL : udpfast_books_at(books, (uint32_t) name);
}

/* Likewise of an ungated update. Trades and the like have numbers of their own beside the one that
 * STALE and RECOVERED of their instrument name. */
static inline int udpfast_books_in_doubt_ungated(const struct udpfast_books *books,
                                                 const struct udpfast_record *record)
{
    const struct udpfast_objects *objects = &books->objects;
    const struct udpfast_object *object = udpfast_objects_find(
        objects, udpfast_object_key(record) & ~UDPFAST_OBJECT_REFERENCE, udpfast_update_tag(record));
    const struct udpfast_marks *marks;
    if (udpfast_stream(record) >= objects->streams)
        return 0; /* no record of its stream was applied */
    marks = objects->marks + udpfast_stream(record);
    if (record->position < marks->lost || (object != NULL && object->doubted != 0))
        return 1;
    return record->position < marks->gap
           && (object == NULL || udpfast_object_in_doubt(objects, object));
}

/* Whether the feed is in doubt about the object of an update of any kind, as far as its records
 * were applied: it was when it published this one (UDPFAST_RECORD_DOUBT), or a gap, a lap or a STALE
 * has put the object in doubt since. So a copy of the last update may be asked about at any time.
 *
 * An ungated update (UDPFAST_RECORD_UNGATED) from before the last lap or session stays in doubt: the
 * next one of its kind takes its place. UDPFAST_REFUSED: an argument is NULL.
 */
static inline int udpfast_books_in_doubt(const struct udpfast_books *books,
                                         const struct udpfast_record *record)
{
    const struct udpfast_object *object;
    if (books == NULL || record == NULL)
        return UDPFAST_REFUSED;
    if (books->orphaned || (record->flags & UDPFAST_RECORD_DOUBT) != 0)
        return 1;
    if ((record->flags & UDPFAST_RECORD_UNGATED) != 0)
        return udpfast_books_in_doubt_ungated(books, record);
    object = udpfast_objects_find(&books->objects, udpfast_object_gated_key(record), 0);
    if (object != NULL)
        return udpfast_object_in_doubt(&books->objects, object);
    return !udpfast_record_is_sure(record); /* an object of which no record was applied */
}

static inline void udpfast_books_mark(struct udpfast_books *books,
                                      const struct udpfast_object *object)
{
    if (object->book >= 0)
        books->all[object->book]->stale = books->orphaned || object->missing || object->contested
                                          || udpfast_object_in_doubt(&books->objects, object);
}

static inline void udpfast_books_mark_all(struct udpfast_books *books)
{
    uint32_t i;
    for (i = 0; i < books->objects.count; i++)
        udpfast_books_mark(books, books->objects.all + i);
}

/* Get an empty, unused book. Returns its index; -1: no memory. */
static inline int32_t udpfast_books_take(struct udpfast_books *books)
{
    struct udpfast_order_book *book;
    if (books->spare_count != 0) {
        int32_t spare = books->spare[--books->spare_count];
        udpfast_order_book_clear(books->all[spare]);
        return spare;
    }
    if (books->all_count == books->all_room) {
        uint32_t room = books->all_room != 0 ? 2 * books->all_room : 64;
        void *all = realloc(books->all, room * sizeof *books->all);
        void *spare = NULL;
        if (all != NULL) {
            books->all = (struct udpfast_order_book **) all;
            spare = realloc(books->spare, room * sizeof *books->spare);
        }
        if (spare == NULL)
            return -1;
        books->spare = (int32_t *) spare;
        books->all_room = room;
    }
    book = (struct udpfast_order_book *) calloc(1, sizeof *book);
    if (book == NULL)
        return -1;
    book->bids.sign = 1;
    book->asks.sign = -1;
    books->all[books->all_count] = book;
    return (int32_t) books->all_count++;
}

/* Add the name of an instrument that no object uses yet. Returns its index; -1: no memory. */
static inline int32_t udpfast_books_add_name(struct udpfast_books *books, const char *exchange,
                                             const char *symbol)
{
    struct udpfast_order_book *book;
    uint32_t place;
    int32_t home;
    if (books->count == books->room) {
        uint32_t room = books->room != 0 ? 2 * books->room : 64, *slots, i;
        void *names = realloc(books->names, room * sizeof *books->names);
        if (names == NULL)
            return -1;
        books->names = (struct udpfast_book_name *) names;
        slots = (uint32_t *) calloc(2 * (size_t) room, sizeof *slots);
        if (slots == NULL)
            return -1;
        for (i = 0; i < books->count; i++) {
            book = udpfast_books_at(books, i);
            place = udpfast_books_hash(books, book->exchange, book->symbol);
            while (slots[place & (2 * room - 1)] != 0)
                place++;
            slots[place & (2 * room - 1)] = i + 1;
        }
        free(books->slots);
        books->slots = slots;
        books->room = room;
        books->mask = 2 * room - 1;
    }
    home = udpfast_books_take(books);
    if (home < 0)
        return -1;
    snprintf(books->all[home]->exchange, sizeof books->all[home]->exchange, "%s", exchange);
    snprintf(books->all[home]->symbol, sizeof books->all[home]->symbol, "%s", symbol);
    books->names[books->count].home = home;
    books->names[books->count].object = -1;
    books->names[books->count].objects = 0;
    books->names[books->count].held = 0;
    place = udpfast_books_hash(books, exchange, symbol);
    while (books->slots[place & books->mask] != 0)
        place++;
    books->slots[place & books->mask] = books->count + 1;
    return (int32_t) books->count++;
}

/* Give an object a name. If another object has the name's book, it gets a separate one. Returns 0
 * or UDPFAST_NO_MEMORY. */
static inline int udpfast_books_claim(struct udpfast_books *books, struct udpfast_object *object,
                                      const char *exchange, const char *symbol)
{
    int32_t at = udpfast_books_find_name(books, exchange, symbol), place, other;
    struct udpfast_book_name *name;
    if (at < 0)
        at = udpfast_books_add_name(books, exchange, symbol);
    if (at < 0)
        return UDPFAST_NO_MEMORY;
    name = books->names + at;
    place = name->held ? udpfast_books_take(books) : name->home;
    if (place < 0)
        return UDPFAST_NO_MEMORY;
    name->held = 1;
    books->all[place]->stale = 1;
    object->book = place;
    object->name = at;
    object->next = name->object;
    name->object = (int32_t) (object - books->objects.all);
    if (++name->objects == 2)
        books->contested++;
    for (other = name->object; name->objects > 1 && other >= 0;
         other = books->objects.all[other].next) {
        books->objects.all[other].contested = 1;
        udpfast_books_mark(books, books->objects.all + other);
    }
    return 0;
}

/* Take the name from an object. Its book is empty and stale: nobody says what it has. */
static inline void udpfast_books_unbind(struct udpfast_books *books, struct udpfast_object *object)
{
    struct udpfast_book_name *name;
    struct udpfast_object *other;
    int32_t *link, index = (int32_t) (object - books->objects.all);
    if (object->book >= 0)
        udpfast_order_book_clear(books->all[object->book]);
    object->missing = 1;
    udpfast_books_mark(books, object);
    if (object->name < 0)
        return;
    name = books->names + object->name;
    for (link = &name->object; *link != index; link = &books->objects.all[*link].next)
        continue;
    *link = object->next;
    name->objects--;
    if (object->book != name->home)
        books->spare[books->spare_count++] = object->book;
    else
        name->held = 0;
    object->book = object->name = object->next = -1;
    object->contested = 0;
    if (name->objects != 1)
        return;
    /* The object that is left gets the book that the name leads to. */
    books->contested--;
    other = books->objects.all + name->object;
    other->contested = 0;
    if (other->book != name->home) {
        struct udpfast_order_book *home = books->all[name->home], *apart = books->all[other->book];
        struct udpfast_order_book held = *home;
        *home = *apart;
        *apart = held;
        memcpy(home->exchange, held.exchange, sizeof held.exchange);
        memcpy(home->symbol, held.symbol, sizeof held.symbol);
        books->spare[books->spare_count++] = other->book;
        other->book = name->home;
        name->held = 1;
    }
    udpfast_books_mark(books, other);
}

/* Bind an object to the book that it names, for the first time or instead of another one. Returns
 * 1, or 0 if a name is unknown. */
static inline int udpfast_books_bind(struct udpfast_books *books, struct udpfast_reader *reader,
                                     struct udpfast_object *object, uint64_t tag)
{
    char exchange[UDPFAST_NAME_SIZE_MAX + 1], symbol[UDPFAST_NAME_SIZE_MAX + 1];
    uint32_t exchange_size = 0, symbol_size = 0;
    const char *exchange_bytes, *symbol_bytes;
    int result;
    udpfast_books_unbind(books, object);
    exchange_bytes = udpfast_reader_name_bytes(reader, (uint32_t) (tag >> 32), &exchange_size);
    symbol_bytes = udpfast_reader_name_bytes(reader, (uint32_t) tag, &symbol_size);
    if (exchange_bytes == NULL || symbol_bytes == NULL
        || memchr(exchange_bytes, 0, exchange_size) != NULL
        || memchr(symbol_bytes, 0, symbol_size)
               != NULL) /* a C string cannot contain a NUL */
        return 0;
    memcpy(exchange, exchange_bytes, exchange_size);
    memcpy(symbol, symbol_bytes, symbol_size);
    exchange[exchange_size] = symbol[symbol_size] = 0;
    result = udpfast_books_claim(books, object, exchange, symbol);
    if (result != 0)
        return result;
    object->tag = tag;
    return 1;
}

static inline struct udpfast_object *udpfast_books_object(struct udpfast_books *books, uint64_t key,
                                                          uint64_t tag)
{
    struct udpfast_object *object = udpfast_objects_find(&books->objects, key, tag);
    return object != NULL ? object : udpfast_objects_add(&books->objects, key, tag);
}

/* Note a message that updates no book here, or an ungated one: the gated object with the same
 * number was passed on. */
static inline void udpfast_books_pass_by(struct udpfast_books *books,
                                         const struct udpfast_record *record)
{
    struct udpfast_object *object =
        udpfast_objects_find(&books->objects, udpfast_object_gated_key(record), 0);
    if (object == NULL || udpfast_object_ahead(object, record))
        return;
    udpfast_object_heard(object, record);
    object->begun = 1;
    udpfast_books_mark(books, object);
}

/* Records were missed, perhaps with doubts of the feed among them: make every book stale. */
static inline void udpfast_books_missed(struct udpfast_books *books,
                                        const struct udpfast_record *record)
{
    uint32_t i;
    for (i = 0; i < books->objects.streams; i++) {
        books->objects.heard[i].complete = 0;
        books->objects.marks[i].lost = record->position;
    }
    for (i = 0; i < books->objects.count; i++) {
        struct udpfast_object *object = books->objects.all + i;
        if (udpfast_object_ahead(object, record))
            continue;
        udpfast_object_sure(&books->objects, object);
        object->doubted = udpfast_object_ungated(object->key) ? 0 : UDPFAST_DOUBT_UNHEARD;
        object->begun = 0;
        object->missing = 1;
    }
    udpfast_books_mark_all(books);
}

/* Empty every book. */
static inline void udpfast_books_begin_all(struct udpfast_books *books, int complete)
{
    uint32_t i;
    udpfast_objects_begin(&books->objects, complete);
    books->contested = 0;
    books->spare_count = 0;
    for (i = 0; i < books->all_count; i++) {
        udpfast_order_book_clear(books->all[i]);
        books->spare[books->spare_count++] = (int32_t) i;
    }
    for (i = 0; i < books->count; i++) { /* the books of names are not spare */
        books->spare[books->names[i].home] = -1;
        books->names[i].object = -1;
        books->names[i].objects = 0;
        books->names[i].held = 0;
    }
    for (books->spare_count = 0, i = 0; i < books->all_count; i++) {
        if (books->spare[i] >= 0)
            books->spare[books->spare_count++] = books->spare[i];
    }
}

/* Begin a session of a stream (its SESSION may have been missed) or, at RESTART, another writer.
 * Roq numbers its objects anew, and another writer may, so all books are emptied then; the objects
 * of other streams have the same names in all sessions. */
static inline void udpfast_books_begin(struct udpfast_books *books,
                                       const struct udpfast_record *record)
{
    uint32_t i, stream = udpfast_stream(record);
    int complete = record->kind == UDPFAST_KIND_SESSION;
    books->objects.marks[stream].lost = record->position;
    if (stream == 0) {
        for (i = 0; record->kind == UDPFAST_KIND_RESTART && i < books->objects.streams; i++)
            books->objects.marks[i].lost = record->position;
        udpfast_books_begin_all(books, complete);
        return;
    }
    udpfast_heard_begin(books->objects.heard + stream, complete);
    for (i = 0; i < books->objects.count; i++) {
        struct udpfast_object *object = books->objects.all + i;
        if (object->key >> 40 != stream || udpfast_object_ahead(object, record))
            continue;
        if (object->book >= 0)
            udpfast_order_book_clear(books->all[object->book]);
        udpfast_books_unbind(books, object);
        udpfast_object_begin(&books->objects, object);
    }
}

/* Enter the session of a record. A record of an object in another session of its stream begins that
 * session, because the SESSION record was missed. 0: no memory. */
static inline int udpfast_books_reach(struct udpfast_books *books,
                                      const struct udpfast_record *record)
{
    struct udpfast_heard *heard;
    if (!udpfast_objects_reach(&books->objects, udpfast_stream(record)))
        return 0;
    heard = books->objects.heard + udpfast_stream(record);
    if (record->session != heard->session && udpfast_record_is_of_object(record)) {
        if (heard->session >= 0)
            udpfast_books_begin(books, record);
        heard->session = record->session;
    }
    return 1;
}

/* Find the object of an update, and bind it to its book. Returns 1, or 0 if it has no book. */
static inline int udpfast_books_target(struct udpfast_books *books, struct udpfast_reader *reader,
                                       const struct udpfast_record *record,
                                       struct udpfast_object **object)
{
    const struct udpfast_update_header *update =
        (const struct udpfast_update_header *) udpfast_record_payload(record);
    uint64_t tag = (uint64_t) update->exchange_id << 32 | update->symbol_id;
    int result = 1;
    if ((record->flags & UDPFAST_RECORD_UNGATED) != 0)
        udpfast_books_pass_by(books, record);
    if (update->exchange_id == 0 || update->symbol_id == 0) {
        *object = udpfast_objects_find(&books->objects, udpfast_object_gated_key(record), 0);
        if (*object != NULL && (record->flags & UDPFAST_RECORD_UNGATED) == 0
            && !udpfast_object_ahead(*object, record))
            udpfast_books_unbind(books, *object); /* it no longer names its instrument */
        result = 0;
    } else {
        *object = udpfast_books_object(books, udpfast_object_key(record), tag);
        if (*object == NULL)
            return UDPFAST_NO_MEMORY;
        if (udpfast_object_ahead(*object, record))
            return 0;
        if ((*object)->tag != tag || (*object)->book < 0)
            result = udpfast_books_bind(books, reader, *object, tag);
    }
    books->unnamed += result == 0;
    if (result == 0 && tag != 0 && reader->table == NULL && reader->header != NULL
        && reader->header->names != 0)
        return UDPFAST_ABSENT; /* the ring has names, but nobody finds them */
    return result;
}

static inline int udpfast_books_update(struct udpfast_books *books, struct udpfast_reader *reader,
                                       const struct udpfast_record *record,
                                       struct udpfast_order_book **updated)
{
    const struct udpfast_update_header *update =
        (const struct udpfast_update_header *) udpfast_record_payload(record);
    struct udpfast_order_book *book;
    struct udpfast_object *object;
    uint32_t size = udpfast_record_payload_size(record);
    uint64_t refused;
    int snapshot, result;
    if (size < sizeof *update
        || (books->kind == UDPFAST_KIND_ORDERS && !udpfast_orders_whole(update, size))) {
        udpfast_books_missed(books, record); /* its book is unknown */
        return UDPFAST_FORMAT;
    }
    snapshot = (record->flags & UDPFAST_RECORD_SNAPSHOT) != 0
               || update->update_type == UDPFAST_UPDATE_SNAPSHOT;
    result = udpfast_books_target(books, reader, record, &object);
    if (result <= 0)
        return result;
    book = books->all[object->book];
    udpfast_object_heard(object, record);
    if (!snapshot && object->missing) {
        /* The very first update of an object is its complete state. */
        if ((record->flags & (UDPFAST_RECORD_FIRST | UDPFAST_RECORD_UNGATED))
                != UDPFAST_RECORD_FIRST
            || !books->objects.heard[udpfast_stream(record)].complete || object->begun)
            return 0;
        udpfast_order_book_clear(book);
    }
    object->missing = 1; /* the book stays stale if this returns an error */
    refused = book->levels_refused;
    result = books->kind == UDPFAST_KIND_BOOK
                 ? udpfast_order_book_apply(book, update, size, snapshot)
                 : udpfast_queues_apply(&book->orders, &books->objects.key, update, snapshot);
    if (result != 0)
        return result;
    /* The publisher's own book is in doubt, or this book refused some of its levels. */
    object->missing =
        update->update_type == UDPFAST_UPDATE_STALE || book->levels_refused != refused;
    object->begun = 1;
    if (snapshot && udpfast_object_ungated(object->key))
        udpfast_object_sure(&books->objects, object);
    udpfast_books_mark(books, object);
    *updated = book;
    return 0;
}

/* While the writer is dead, stuck or cut off, every book may be out of date. READY ends that, but
 * not for a dead writer: its successor's RESTART does, and empties all books. */
static inline void udpfast_books_note_writer(struct udpfast_books *books,
                                             const struct udpfast_record *record)
{
    const struct udpfast_connection *said =
        (const struct udpfast_connection *) udpfast_record_payload(record);
    if (udpfast_record_payload_size(record) < sizeof *said
        || said->scope == UDPFAST_CONNECTION_CHANNEL || said->scope == UDPFAST_CONNECTION_LINE)
        return;
    if (said->status == UDPFAST_CONNECTION_DISCONNECTED)
        books->orphaned = said->scope;
    else if (said->scope != UDPFAST_CONNECTION_WRITER)
        books->orphaned = 0;
    else if (books->orphaned)
        books->orphaned = UDPFAST_CONNECTION_WRITER;
    udpfast_books_mark_all(books);
}

/* Have the books take records of this reader from now on. */
static inline void udpfast_books_use(struct udpfast_books *books,
                                     const struct udpfast_reader *reader)
{
    memcpy(books->log, reader->log, sizeof books->log);
    books->opened_ns = reader->opened_ns;
}

/* Whether books have records of another ring than the reader's, or of another log. */
static inline int udpfast_books_are_strange(const struct udpfast_books *books,
                                            const struct udpfast_reader *reader)
{
    return books->opened_ns >= 0 && memcmp(books->log, reader->log, sizeof books->log) != 0;
}

/* Say so. Returns UDPFAST_REFUSED. */
static inline int udpfast_books_say_strange(const struct udpfast_reader *reader, char *problem)
{
    return udpfast_say(problem, UDPFAST_REFUSED,
                       "%.300s: the books are of another ring, or of an earlier log: open a "
                       "udpfast_books for each ring, and close it with its reader",
                       reader->directory);
}

/* Meet a reader that the books have no records of. If they are of an earlier reader of the same
 * log, it read neither what lies between nor perhaps the same names: they begin empty. Returns 0,
 * UDPFAST_CLOSED or UDPFAST_REFUSED. */
static inline int udpfast_books_meet(struct udpfast_books *books, struct udpfast_reader *reader)
{
    if (reader->opened_ns == 0)
        return udpfast_say(books->problem, UDPFAST_CLOSED,
                           "the reader is not open: call udpfast_reader_open first");
    if (udpfast_books_are_strange(books, reader))
        return udpfast_books_say_strange(reader, books->problem);
    if (books->opened_ns >= 0)
        udpfast_books_begin_all(books, 0);
    if (reader->header != NULL)
        books->orphaned = udpfast_reader_orphans(reader);
    udpfast_books_use(books, reader);
    return 0;
}

/* Apply a record of any kind to the books. Returns 0, UDPFAST_FORMAT, UDPFAST_NO_MEMORY,
 * UDPFAST_CLOSED: the books are not open, UDPFAST_REFUSED: they are of another ring, or
 * UDPFAST_ABSENT: the file of names was removed, so that nobody knows whose book an update is of.
 *
 * updated: the book that the record updated; NULL: none. (A GAP updates none, but may make many
 * stale.) Pass NULL if it does not matter.
 *
 * - GAP makes all books of its stream stale, each until the feed publishes its RECOVERED.
 * - STALE makes one book stale until its next snapshot.
 * - SESSION empties all books of its stream; RESTART (another writer) empties all books.
 * - After a lap or a late join, a book is stale until the next snapshot that the feed passes on,
 *   or, if the feed itself may be in doubt, until the book's RECOVERED or next update.
 * - An update with levels that the book refuses makes it stale until its next snapshot.
 * - Two objects of a session with the same names make both books stale, until one is left.
 *
 * A book that waits for a snapshot keeps its levels and takes no updates.
 */
static inline int udpfast_books_apply(struct udpfast_books *books, struct udpfast_reader *reader,
                                      const struct udpfast_record *record,
                                      struct udpfast_order_book **updated)
{
    struct udpfast_order_book *unasked;
    struct udpfast_object *object;
    int result = 0;
    if (updated == NULL)
        updated = &unasked;
    *updated = NULL;
    if (books == NULL)
        return UDPFAST_REFUSED;
    if (reader == NULL || record == NULL)
        return udpfast_say(books->problem, UDPFAST_REFUSED, "reader and record must not be NULL");
    if (books->kind == 0)
        return udpfast_books_say_closed(books->problem);
    if (books->opened_ns != reader->opened_ns && (result = udpfast_books_meet(books, reader)) != 0)
        return result;
    if (!udpfast_books_reach(books, record)) {
        result = UDPFAST_NO_MEMORY;
    } else if (record->kind == books->kind) {
        result = udpfast_books_update(books, reader, record, updated);
    } else if (record->kind >= UDPFAST_KIND_BOOK || record->kind == UDPFAST_KIND_MESSAGE) {
        udpfast_books_pass_by(books, record);
    } else if (record->kind == UDPFAST_KIND_STALE || record->kind == UDPFAST_KIND_RECOVERED) {
        const struct udpfast_object_state *said =
            (const struct udpfast_object_state *) udpfast_record_payload(record);
        uint64_t tag = udpfast_record_payload_size(record) < sizeof *said
                           ? 0
                           : (uint64_t) said->exchange_id << 32 | said->symbol_id;
        object = udpfast_books_object(books, udpfast_object_key(record), tag);
        if (object == NULL) {
            result = UDPFAST_NO_MEMORY;
        } else if (!udpfast_object_ahead(object, record)) {
            if (udpfast_object_said(&books->objects, object, record))
                object->missing = 1;
            udpfast_books_mark(books, object);
        }
    } else if (record->kind == UDPFAST_KIND_GAP) {
        if (udpfast_objects_gap(&books->objects, record))
            udpfast_books_mark_all(books);
    } else if (record->kind == UDPFAST_KIND_SESSION || record->kind == UDPFAST_KIND_RESTART) {
        /* A new writer ends the doubt; the RESTART of an image may be of the one that died. Behind
         * a lost way there may be more than one: READY tells that all of it was read. */
        if (record->kind == UDPFAST_KIND_RESTART && (record->flags & UDPFAST_RECORD_SNAPSHOT) == 0
            && books->orphaned != UDPFAST_CONNECTION_FANOUT)
            books->orphaned = 0;
        udpfast_books_begin(books, record);
    } else if (record->kind == UDPFAST_KIND_LAPPED) {
        /* The missed records may include a new writer's RESTART. But a loop that stood still is
         * still the writer: its records are late, also its snapshots. */
        if (books->orphaned == UDPFAST_CONNECTION_WRITER)
            books->orphaned = 0;
        udpfast_books_missed(books, record);
    } else if (record->kind == UDPFAST_KIND_CONNECTION) {
        udpfast_books_note_writer(books, record);
    }
    if (result == UDPFAST_FORMAT)
        udpfast_say(books->problem, result,
                    "record %" PRIu64 ": %s of %" PRIu32 " bytes is too short for its rows",
                    record->index, books->kind == UDPFAST_KIND_BOOK ? "BOOK" : "ORDERS",
                    udpfast_record_payload_size(record));
    else if (result == UDPFAST_ABSENT)
        udpfast_say(books->problem, result,
                    "%.300s/names: there is none: no update has a book; start the feed again",
                    reader->directory);
    else if (result < 0)
        udpfast_say(books->problem, result, "record %" PRIu64 ": no memory for its book",
                    record->index);
    return result;
}
