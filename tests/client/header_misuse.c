/* Calls udpfast.h as a program does that made a mistake: each line is what one call returned. */

#include "udpfast_bus.h"

static struct udpfast_reader reader, never_opened;
static struct udpfast_books books, never;
static struct udpfast_outbox outbox;
static struct udpfast_image image;
static struct udpfast_store store;

static void say(const char *what, int64_t result, const char *problem)
{
    printf("%s %" PRId64 " %s\n", what, result, result < 0 ? problem : "");
}

/* All that takes a reader, one that is not open. */
static void use_closed(void)
{
    const struct udpfast_record *record;
    say("poll", udpfast_reader_poll(&reader, &record, 1), reader.problem);
    say("next", udpfast_reader_next(&reader, &record), reader.problem);
    say("wait", udpfast_reader_wait(&reader, &record, 0, UDPFAST_WAIT_SPIN, -1), reader.problem);
    say("join", udpfast_reader_join(&reader, &books, NULL, 0), reader.problem);
    say("works", udpfast_reader_works(&reader), "");
    say("name", (int64_t) strlen(udpfast_reader_name(&reader, 1)), "");
    say("image", udpfast_image_open(&image, &reader), image.problem);
    say("object", udpfast_image_object(&image, 0), image.problem);
    say("value", udpfast_image_value(&image, NULL) != NULL, "");
}

/* All that takes books, with books that are not open. */
static void use_closed_books(struct udpfast_books *closed)
{
    struct udpfast_record record;
    struct udpfast_order_book *updated;
    memset(&record, 0, sizeof record);
    say("apply", udpfast_books_apply(closed, &reader, &record, &updated), closed->problem);
    say("join", udpfast_reader_join(&reader, closed, NULL, 0), reader.problem);
    say("join", udpfast_reader_join(&reader, NULL, closed, 0), reader.problem);
    say("doubt", udpfast_books_in_doubt(closed, &record), "");
    say("at", udpfast_books_at(closed, 0) != NULL, "");
    say("find", udpfast_books_find(closed, "deribit", "BTCUSDT") != NULL, "");
}

/* Opens what is open: it goes on as it was. */
static void open_again(const char *ring, const char *address)
{
    say("reader", udpfast_reader_open(&reader, ring, UDPFAST_START_TAIL), reader.problem);
    say("reader", udpfast_reader_open_wait(&reader, ring, UDPFAST_START_TAIL, -1), reader.problem);
    say("books", udpfast_books_open(&books), books.problem);
    say("books", udpfast_books_open_orders(&books), books.problem);
    say("image", udpfast_image_open(&image, &reader), image.problem);
    say("image", udpfast_image_open(&image, &reader), image.problem);
    say("outbox", udpfast_outbox_open(&outbox, address, "c", 0, 0), outbox.problem);
    say("outbox", udpfast_outbox_open(&outbox, address, "c", 0, 0), outbox.problem);
    say("outbox", udpfast_outbox_open_anew(&outbox, address, "c", 0, 0), outbox.problem);
    say("sent", udpfast_outbox_send(&outbox, "", 0, 1), outbox.problem);
    say("store", udpfast_store_open(&store, address, UDPFAST_STORE_OLDEST), store.problem);
    say("store", udpfast_store_open(&store, address, UDPFAST_STORE_OLDEST), store.problem);
    udpfast_image_close(&image);
    udpfast_outbox_close(&outbox);
    udpfast_store_close(&store);
}

static void pass_nothing(const char *address)
{
    say("null", udpfast_reader_open(&reader, NULL, UDPFAST_START_TAIL), reader.problem);
    say("null", udpfast_outbox_open(&outbox, NULL, "c", 0, 0), outbox.problem);
    say("null", udpfast_outbox_open(&outbox, address, NULL, 0, 0), outbox.problem);
    say("null", udpfast_store_open(&store, NULL, UDPFAST_STORE_OLDEST), store.problem);
}

/* Two rings in one set of books, and a later reader of the first. */
static void mix(const char *first, const char *second)
{
    static struct udpfast_reader other;
    static struct udpfast_books mixed;
    const struct udpfast_record *record;
    struct udpfast_order_book *updated;
    say("mix", udpfast_books_open(&mixed), mixed.problem);
    udpfast_reader_open(&other, first, UDPFAST_START_OLDEST);
    while (udpfast_reader_next(&other, &record) > 0)
        udpfast_books_apply(&mixed, &other, record, &updated);
    say("stale", udpfast_books_at(&mixed, 0)->stale, "");
    udpfast_reader_close(&other);
    udpfast_reader_open(&other, second, UDPFAST_START_OLDEST);
    if (udpfast_reader_next(&other, &record) > 0)
        say("mix", udpfast_books_apply(&mixed, &other, record, &updated), mixed.problem);
    say("stale", udpfast_books_at(&mixed, 0)->stale, "");
    udpfast_reader_close(&other);
    udpfast_reader_open(&other, first, UDPFAST_START_OLDEST);
    if (udpfast_reader_next(&other, &record) > 0)
        say("later", udpfast_books_apply(&mixed, &other, record, &updated), mixed.problem);
    say("stale", udpfast_books_at(&mixed, 0)->stale, "");
    udpfast_reader_close(&other);
    say("never", udpfast_books_apply(&mixed, &never_opened, record, &updated), mixed.problem);
    udpfast_books_close(&mixed);
}

int main(int count, char **words)
{
    const struct udpfast_record *record;
    static struct udpfast_record none;
    struct udpfast_order_book *updated;
    double price;
    if (count != 4 || udpfast_books_open(&books) != 0)
        return 2;
    use_closed(); /* never opened */
    pass_nothing(words[2]);
    say("start", udpfast_reader_open(&reader, words[1], 3), reader.problem);
    say("start", udpfast_reader_open_wait(&reader, words[1], -1, -1), reader.problem);
    say("open", udpfast_reader_open(&reader, words[1], UDPFAST_START_OLDEST), reader.problem);
    say("how", udpfast_reader_wait(&reader, &record, 1, 2, -1), reader.problem);
    say("how", udpfast_reader_wait(&reader, &record, 1, -1, -1), reader.problem);
    say("limit", udpfast_reader_poll(&reader, &record, 0), reader.problem);
    say("limit", udpfast_reader_wait(&reader, &record, -5, UDPFAST_WAIT_SPIN, -1), reader.problem);
    say("null", udpfast_reader_next(&reader, NULL), reader.problem);
    say("null", udpfast_books_apply(&books, &reader, NULL, &updated), books.problem);
    say("null", udpfast_books_apply(&books, NULL, &none, &updated), books.problem);
    say("null", udpfast_books_apply(NULL, &reader, &none, &updated), "");
    while (udpfast_reader_poll(&reader, &record, 1) > 0)
        udpfast_books_apply(&books, &reader, record, NULL);
    say("null", udpfast_side_level(NULL, 0, &price, &price), "");
    say("null", udpfast_order_book_crossed(NULL), "");
    say("null", udpfast_books_find(&books, NULL, "BTCUSDT") != NULL, "");
    say("soon", udpfast_reader_wait(&reader, &record, 1, UDPFAST_WAIT_SPIN, 0), reader.problem);
    use_closed_books(&never);
    open_again(words[1], words[2]);
    say("join", udpfast_reader_join(&reader, &books, &books, 0), reader.problem);
    say("at", udpfast_books_at(&books, 999) != NULL, "");
    say("at", udpfast_books_at(&books, books.count) != NULL, "");
    say("books", (int64_t) books.count, "");
    udpfast_books_close(&books);
    mix(words[1], words[3]);
    use_closed_books(&books);
    udpfast_reader_close(&reader);
    use_closed();
    say("store", udpfast_store_next(&store, &record), store.problem);
    say("sender", (int64_t) strlen(udpfast_store_sender(&store, 1)), "");
    return 0;
}
