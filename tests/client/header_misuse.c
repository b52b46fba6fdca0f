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
    say("null", udpfast_outbox_send(&outbox, NULL, 5, 1), outbox.problem);
    say("sent", udpfast_outbox_send(&outbox, NULL, 0, 1), outbox.problem);
    say("store", udpfast_store_open(&store, address, UDPFAST_STORE_OLDEST), store.problem);
    say("store", udpfast_store_open(&store, address, UDPFAST_STORE_OLDEST), store.problem);
    say("null", udpfast_store_next(&store, NULL), store.problem);
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

/* Every struct and room as NULL: prints the place of a call whose result is not what it must be. */
static void pass_null(const char *address)
{
    static struct udpfast_order_book book;
    const struct udpfast_record *record = NULL;
    const struct udpfast_order *const *rows;
    struct udpfast_order_place place;
    struct udpfast_order_level level;
    const struct udpfast_queues *queues = &book.orders;
    double value;
    size_t i;
    const int64_t refused[] = {
        udpfast_reader_open(NULL, address, UDPFAST_START_TAIL),
        udpfast_reader_open_wait(NULL, address, UDPFAST_START_TAIL, 0),
        udpfast_reader_poll(NULL, &record, 1),
        udpfast_reader_next(NULL, &record),
        udpfast_reader_wait(NULL, &record, 1, UDPFAST_WAIT_SPIN, 0),
        udpfast_reader_join(NULL, &books, NULL, 0),
        udpfast_books_open(NULL),
        udpfast_books_open_orders(NULL),
        udpfast_books_in_doubt(NULL, record),
        udpfast_books_in_doubt(&books, NULL),
        udpfast_image_open(NULL, &reader),
        udpfast_image_open(&image, NULL),
        udpfast_image_object(NULL, 0),
        udpfast_outbox_open(NULL, address, "c", 0, 0),
        udpfast_outbox_open_anew(NULL, address, "c", 0, 0),
        udpfast_outbox_send(NULL, "", 0, 1),
        udpfast_store_open(NULL, address, UDPFAST_STORE_OLDEST),
        udpfast_store_next(NULL, &record),
        udpfast_store_next(&store, NULL),
    };
    const int64_t nothing[] = {
        udpfast_reader_works(NULL),
        (int64_t) strlen(udpfast_reader_name(NULL, 1)),
        udpfast_books_find(NULL, "deribit", "BTC") != NULL,
        udpfast_books_find(&books, "deribit", NULL) != NULL,
        udpfast_books_at(NULL, 0) != NULL,
        udpfast_books_order(NULL, &book, "1") != NULL,
        udpfast_books_order(&books, NULL, "1") != NULL,
        udpfast_books_order(&books, &book, NULL) != NULL,
        udpfast_books_place(NULL, &book, "1", &place),
        udpfast_books_place(&books, NULL, "1", &place),
        udpfast_books_place(&books, &book, NULL, &place),
        udpfast_books_place(&books, &book, "1", NULL),
        udpfast_queues_side(NULL, UDPFAST_SIDE_BUY, &rows),
        udpfast_queues_side(queues, UDPFAST_SIDE_BUY, NULL),
        udpfast_queues_levels(NULL, UDPFAST_SIDE_BUY, &level, 1),
        udpfast_queues_levels(queues, UDPFAST_SIDE_BUY, NULL, 1),
        udpfast_side_level(&book.bids, 0, NULL, &value),
        udpfast_side_level(&book.bids, 0, &value, NULL),
        udpfast_image_value(NULL, NULL) != NULL,
        udpfast_outbox_alive(NULL),
        (int64_t) udpfast_outbox_unseen(NULL),
        (int64_t) strlen(udpfast_store_sender(NULL, 1)),
    };
    udpfast_reader_close(NULL);
    udpfast_books_close(NULL);
    udpfast_image_close(NULL);
    udpfast_outbox_close(NULL);
    udpfast_store_close(NULL);
    for (i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i] != UDPFAST_REFUSED)
            printf("refused %zu: %" PRId64 "\n", i, refused[i]);
    for (i = 0; i < sizeof nothing / sizeof *nothing; i++)
        if (nothing[i] != 0)
            printf("nothing %zu: %" PRId64 "\n", i, nothing[i]);
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
    say("mix", udpfast_reader_join(&other, &mixed, NULL, 0), other.problem);
    say("mix", udpfast_reader_join(&other, NULL, &mixed, 0), other.problem);
    say("stale", udpfast_books_at(&mixed, 0)->stale, "");
    udpfast_reader_close(&other);
    udpfast_reader_open(&other, first, UDPFAST_START_OLDEST);
    if (udpfast_reader_next(&other, &record) > 0)
        say("later", udpfast_books_apply(&mixed, &other, record, &updated), mixed.problem);
    say("stale", udpfast_books_at(&mixed, 0)->stale, "");
    udpfast_reader_close(&other);
    say("never", udpfast_books_apply(&mixed, &never_opened, record, &updated), mixed.problem);
    udpfast_books_close(&mixed);
    udpfast_books_open(&mixed);
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
    pass_null(words[1]);
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
