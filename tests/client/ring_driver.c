/* What tests drive udpfast.h by: ADDRESS START LIMIT [WAIT_NS], which waits for the feed.
 *
 * Each line of the input asks for all that is new, in polls of LIMIT records. The answer has a line
 * for each record and each book, and ends with what the last poll returned. The line `orders` asks
 * for the single orders, as of now; `join` takes all books from the image first, and tries for 0 s
 * or for so many (`join 9`), and `doubts` says which of the last tops and trades are in doubt.
 */

#include "udpfast.h"

static struct udpfast_reader reader;
static struct udpfast_books books, orders;

/* A damaged table may have anything in it, but an answer is made of lines. */
static void print_name(const char *name)
{
    printf(" name ");
    for (; *name != 0; name++)
        putchar((unsigned char) *name < ' ' ? '?' : *name);
}

static void print_record(const struct udpfast_record *record)
{
    const struct udpfast_lapped *lapped =
        (const struct udpfast_lapped *) udpfast_record_payload(record);
    const struct udpfast_connection *said =
        (const struct udpfast_connection *) udpfast_record_payload(record);
    printf("record %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d", record->kind, record->index,
           record->position, record->number, record->stream, record->flight_ns);
    if (record->kind == UDPFAST_KIND_LAPPED)
        printf(" missed %" PRIu64 " %" PRIu32, lapped->missed, lapped->reason);
    if (record->kind == UDPFAST_KIND_CONNECTION)
        printf(" status %" PRIu32 " %" PRIu32, said->status, said->scope);
    if (record->kind >= UDPFAST_KIND_BOOK
        && udpfast_record_payload_size(record) >= sizeof(struct udpfast_update_header)) {
        const struct udpfast_update_header *update =
            (const struct udpfast_update_header *) udpfast_record_payload(record);
        print_name(udpfast_reader_name(&reader, update->symbol_id));
    }
    putchar('\n');
}

static void print_side(const struct udpfast_book_side *side)
{
    double price, quantity;
    uint32_t rank;
    for (rank = 0; udpfast_side_level(side, rank, &price, &quantity); rank++)
        printf(" %.17g %.17g", price, quantity);
}

static void print_books(void)
{
    uint32_t i;
    for (i = 0; i < books.count; i++) {
        const struct udpfast_order_book *book = udpfast_books_at(&books, i);
        printf("book");
        print_name(book->exchange);
        print_name(book->symbol);
        printf(" %d %" PRIu64 " %" PRIu64 " :", book->stale, book->removals_unknown,
               book->levels_refused);
        print_side(&book->bids);
        printf(" :");
        print_side(&book->asks);
        puts(book->partial ? " partial" : "");
        if (udpfast_books_find(&books, book->exchange, book->symbol) != book)
            puts("another book is found by this name");
    }
    printf("books %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", books.count, books.unnamed,
           books.contested);
}

static void print_queue(const struct udpfast_order_book *book, int side)
{
    static struct udpfast_order_level levels[4096];
    const struct udpfast_order *const *rows;
    struct udpfast_order_place place;
    uint32_t i, count = udpfast_queues_side(&book->orders, side, &rows);
    for (i = 0; i < count; i++) {
        char id[UDPFAST_SIZE_ORDER_ID + 1] = {0};
        memcpy(id, rows[i]->order_id, UDPFAST_SIZE_ORDER_ID);
        if (!udpfast_books_place(&orders, book, id, &place) || place.order != rows[i])
            puts("another order is found by this id");
        printf(" %s %.17g %.17g %" PRIu32 " %.17g", id, rows[i]->price, rows[i]->quantity,
               place.orders_before, place.quantity_before);
    }
    count = udpfast_queues_levels(&book->orders, side, levels, 4096);
    for (i = 0; i < count; i++)
        printf(" (%.17g %.17g %" PRIu32 ")", levels[i].price, levels[i].quantity, levels[i].orders);
}

static void print_orders(void)
{
    uint32_t i;
    for (i = 0; i < orders.count; i++) {
        const struct udpfast_order_book *book = udpfast_books_at(&orders, i);
        printf("orders");
        print_name(book->exchange);
        print_name(book->symbol);
        printf(" %d :", book->stale);
        print_queue(book, UDPFAST_SIDE_BUY);
        printf(" :");
        print_queue(book, UDPFAST_SIDE_SELL);
        putchar('\n');
    }
}

/* The last tops and trades, as a strategy may keep them. */
static struct udpfast_kept {
    struct udpfast_record record;
    char payload[256];
} kept[64];
static int kept_count;

static void keep(const struct udpfast_record *record)
{
    int i;
    if ((record->kind != UDPFAST_KIND_TOP_OF_BOOK && record->kind != UDPFAST_KIND_TRADES)
        || (size_t) record->length > sizeof *kept)
        return;
    for (i = 0; i < kept_count; i++)
        if (kept[i].record.kind == record->kind && kept[i].record.object == record->object)
            break;
    if (i == 64)
        return;
    kept_count += i == kept_count;
    memcpy(kept + i, record, (size_t) record->length);
}

static void print_doubts(void)
{
    int i;
    for (i = 0; i < kept_count; i++) {
        printf("doubt %d", kept[i].record.kind);
        print_name(udpfast_reader_name(&reader, (uint32_t) udpfast_update_tag(&kept[i].record)));
        printf(" %d\n", udpfast_books_in_doubt(&books, &kept[i].record));
    }
}

static int64_t read_all(const struct udpfast_record **records, int64_t limit)
{
    struct udpfast_order_book *updated;
    int64_t i, count, applied = 0;
    while ((count = udpfast_reader_poll(&reader, records, limit)) > 0) {
        for (i = 0; i < count; i++) {
            print_record(records[i]);
            keep(records[i]);
            if (udpfast_books_apply(&books, &reader, records[i], &updated) != 0)
                puts("failed");
            applied += updated != NULL;
            if (udpfast_books_apply(&orders, &reader, records[i], &updated) != 0)
                puts("orders failed");
        }
    }
    print_books();
    printf("applied %" PRId64 "\n", applied);
    return count;
}

int main(int count, char **words)
{
    static const struct udpfast_record *records[4096];
    char line[16];
    int64_t result = 0;
    int opened;
    if (count < 4 || count > 5 || udpfast_books_open(&books) != 0
        || udpfast_books_open_orders(&orders) != 0)
        return 2;
    result = count == 4 ? udpfast_reader_open(&reader, words[1], atoi(words[2]))
                        : udpfast_reader_open_wait(&reader, words[1], atoi(words[2]),
                                                   strtoll(words[4], NULL, 10));
    printf("%" PRId64 " %s\n", result, result < 0 ? reader.problem : "open");
    fflush(stdout);
    opened = result == 0;
    while (opened && fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "orders\n") == 0) {
            print_orders();
            puts("0");
            fflush(stdout);
            continue;
        }
        if (strcmp(line, "doubts\n") == 0) {
            print_doubts();
            puts("0");
            fflush(stdout);
            continue;
        }
        if (strncmp(line, "join", 4) == 0) {
            int64_t timeout_ns = atoll(line + 4) * INT64_C(1000000000);
            int joined = udpfast_reader_join(&reader, &books, &orders, timeout_ns);
            print_books();
            printf("%d %" PRIu64 " %s\n", joined, reader.index, joined < 0 ? reader.problem : "");
            fflush(stdout);
            continue;
        }
        result =
            strcmp(line, "wait\n") == 0
                ? udpfast_reader_wait(&reader, records, 1, UDPFAST_WAIT_SLEEP, INT64_C(20000000000))
                : read_all(records, atoll(words[3]));
        if (result == 1) {
            print_record(records[0]);
            result = 0;
        }
        printf("%" PRId64 " %s\n", result, result < 0 ? reader.problem : "");
        fflush(stdout);
    }
    udpfast_books_close(&orders);
    udpfast_books_close(&books);
    udpfast_reader_close(&reader);
    return 0;
}
