enum {
    UDPFAST_FORMAT = -48,    /* an update is malformed: its book is stale now */
    UDPFAST_NO_MEMORY = -49, /* there is no memory for an update: its book is stale now */
    UDPFAST_SIDE_BUY = 1,    /* values of Order.side and Order.action, as in the schema */
    UDPFAST_SIDE_SELL = 2,
    UDPFAST_ACTION_DELETE = 3,
};

/* The resting orders of one instrument. Queues are sorted when they are requested. */
struct udpfast_queues {
    struct udpfast_order *rows; /* unsorted */
    uint32_t *slots;            /* hash table by id: index of a row + 1; at most half full */
    const struct udpfast_order **sorted;
    uint32_t count, room, mask;
};

/* The place of an order in the queue of its price. */
struct udpfast_order_place {
    const struct udpfast_order *order;
    uint32_t orders_before; /* orders that are filled before it */
    double quantity_before; /* sum of their quantities */
};

/* The sum of the orders of one price. */
struct udpfast_order_level {
    double price;
    double quantity;
    uint32_t orders;
};

static inline int udpfast_order_id_is(const struct udpfast_order *order, const char *id)
{
    return strncmp(order->order_id, id, sizeof order->order_id) == 0;
}

static inline uint32_t udpfast_order_id_hash(const struct udpfast_key *key, const char *id)
{
    uint64_t words[(UDPFAST_SIZE_ORDER_ID + 7) / 8] = {0}, hash = 0;
    size_t size = strnlen(id, UDPFAST_SIZE_ORDER_ID), i;
    memcpy(words, id, size);
    for (i = 0; i < (size + 7) / 8; i++)
        hash = udpfast_keyed_word(key, hash ^ words[i]);
    return (uint32_t) hash;
}

/* The slot of an order, or the empty slot where it would go. */
static inline uint32_t udpfast_queues_slot(const struct udpfast_queues *queues,
                                           const struct udpfast_key *key, const char *id)
{
    uint32_t slot = udpfast_order_id_hash(key, id) & queues->mask;
    while (queues->slots[slot] != 0
           && !udpfast_order_id_is(queues->rows + queues->slots[slot] - 1, id))
        slot = (slot + 1) & queues->mask;
    return slot;
}

/* Make room for `more` orders. 0: no memory. */
static inline int udpfast_queues_reserve(struct udpfast_queues *queues,
                                         const struct udpfast_key *key, uint32_t more)
{
    uint64_t wanted = (uint64_t) queues->count + more, room = 64;
    void *rows, *sorted;
    uint32_t *slots, i;
    if (wanted <= queues->room)
        return 1;
    while (room < wanted)
        room *= 2;
    if (room > UINT32_MAX / 4)
        return 0;
    rows = realloc(queues->rows, (size_t) room * sizeof *queues->rows);
    if (rows == NULL)
        return 0;
    queues->rows = (struct udpfast_order *) rows;
    sorted = realloc(queues->sorted, (size_t) room * sizeof *queues->sorted);
    if (sorted == NULL)
        return 0;
    queues->sorted = (const struct udpfast_order **) sorted;
    slots = (uint32_t *) calloc(2 * (size_t) room, sizeof *slots);
    if (slots == NULL)
        return 0;
    free(queues->slots);
    queues->slots = slots;
    queues->room = (uint32_t) room;
    queues->mask = 2 * queues->room - 1;
    for (i = 0; i < queues->count; i++)
        slots[udpfast_queues_slot(queues, key, queues->rows[i].order_id)] = i + 1;
    return 1;
}

static inline void udpfast_queues_clear(struct udpfast_queues *queues)
{
    queues->count = 0;
    if (queues->slots != NULL)
        memset(queues->slots, 0, ((size_t) queues->mask + 1) * sizeof *queues->slots);
}

static inline void udpfast_queues_free(struct udpfast_queues *queues)
{
    free(queues->rows);
    free(queues->slots);
    free((void *) queues->sorted);
    memset(queues, 0, sizeof *queues);
}

/* Remove an order: move up the slots behind its own, and the last row into its row. */
static inline void udpfast_queues_drop(struct udpfast_queues *queues, const struct udpfast_key *key,
                                       const char *id)
{
    uint32_t hole = udpfast_queues_slot(queues, key, id), index = queues->slots[hole];
    uint32_t slot = hole, home, last;
    if (index == 0)
        return;
    for (;;) {
        slot = (slot + 1) & queues->mask;
        if (queues->slots[slot] == 0)
            break;
        home = udpfast_order_id_hash(key, queues->rows[queues->slots[slot] - 1].order_id);
        if (((slot - home) & queues->mask) >= ((slot - hole) & queues->mask)) {
            queues->slots[hole] = queues->slots[slot];
            hole = slot;
        }
    }
    queues->slots[hole] = 0;
    last = queues->count--;
    if (index == last)
        return;
    slot = udpfast_queues_slot(queues, key, queues->rows[last - 1].order_id);
    queues->rows[index - 1] = queues->rows[last - 1];
    queues->slots[slot] = index;
}

/* Whether an ORDERS payload is long enough for its row_count. */
static inline int udpfast_orders_whole(const void *payload, uint32_t size)
{
    const struct udpfast_orders *update = (const struct udpfast_orders *) payload;
    return size >= sizeof *update
           && size - sizeof *update
                  >= (uint64_t) update->header.row_count * sizeof(struct udpfast_order);
}

/* Apply an ORDERS payload; a snapshot replaces all orders. Returns 0 or UDPFAST_NO_MEMORY. */
static inline int udpfast_queues_apply(struct udpfast_queues *queues, const struct udpfast_key *key,
                                       const void *payload, int snapshot)
{
    const struct udpfast_orders *update = (const struct udpfast_orders *) payload;
    const struct udpfast_order *rows = (const struct udpfast_order *) (const void *) (update + 1);
    uint32_t i, slot;
    if (snapshot)
        udpfast_queues_clear(queues);
    if (!udpfast_queues_reserve(queues, key, update->header.row_count))
        return UDPFAST_NO_MEMORY;
    for (i = 0; i < update->header.row_count; i++) {
        if (rows[i].action == UDPFAST_ACTION_DELETE || !(rows[i].quantity > 0)) {
            udpfast_queues_drop(queues, key, rows[i].order_id);
            continue;
        }
        slot = udpfast_queues_slot(queues, key, rows[i].order_id);
        if (queues->slots[slot] == 0)
            queues->slots[slot] = ++queues->count;
        queues->rows[queues->slots[slot] - 1] = rows[i];
    }
    return 0;
}

static inline int udpfast_order_compare(const void *one, const void *two)
{
    const struct udpfast_order *a = *(const struct udpfast_order *const *) one;
    const struct udpfast_order *b = *(const struct udpfast_order *const *) two;
    if (a->price != b->price)
        return (a->price < b->price) == (a->side == UDPFAST_SIDE_SELL) ? -1 : 1;
    return (a->priority > b->priority) - (a->priority < b->priority);
}

/* Sort the orders of one side (UDPFAST_SIDE_*): the best price first, within a price by priority.
 * Returns how many; `*rows` is valid until the next record is applied, or the next call. */
static inline uint32_t udpfast_queues_side(const struct udpfast_queues *queues, int side,
                                           const struct udpfast_order *const **rows)
{
    uint32_t i, count = 0;
    if (rows == NULL)
        return 0;
    *rows = NULL;
    if (queues == NULL)
        return 0;
    for (i = 0; i < queues->count; i++)
        if (queues->rows[i].side == side)
            queues->sorted[count++] = queues->rows + i;
    if (count > 1)
        qsort((void *) queues->sorted, count, sizeof *queues->sorted, udpfast_order_compare);
    *rows = queues->sorted;
    return count;
}

/* Sum up the orders of one side by price, the best price first, into at most `room` levels.
 * Returns the number of levels. */
static inline uint32_t udpfast_queues_levels(const struct udpfast_queues *queues, int side,
                                             struct udpfast_order_level *into, uint32_t room)
{
    const struct udpfast_order *const *rows;
    uint32_t i, count = udpfast_queues_side(queues, side, &rows), levels = 0;
    for (i = 0; i < count; i++) {
        if (levels == 0 || into[levels - 1].price != rows[i]->price) {
            if (levels == room || into == NULL)
                break;
            into[levels].price = rows[i]->price;
            into[levels].quantity = 0;
            into[levels++].orders = 0;
        }
        into[levels - 1].quantity += rows[i]->quantity;
        into[levels - 1].orders++;
    }
    return levels;
}
