/* Calls udpfast.h as a program does that made a mistake: each line is what one call returned. */

#include "udpfast_bus.h"

static struct udpfast_reader reader;
static struct udpfast_books books;
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
    say("wait", udpfast_reader_wait(&reader, &record, 1, UDPFAST_WAIT_SPIN, -1), reader.problem);
    say("join", udpfast_reader_join(&reader, &books, NULL, 0), reader.problem);
    say("works", udpfast_reader_works(&reader), "");
    say("name", (int64_t) strlen(udpfast_reader_name(&reader, 1)), "");
    say("image", udpfast_image_open(&image, &reader), image.problem);
    say("object", udpfast_image_object(&image, 0), image.problem);
    say("value", udpfast_image_value(&image, NULL) != NULL, "");
}

int main(int count, char **words)
{
    const struct udpfast_record *record;
    struct udpfast_order_book *updated;
    if (count != 2 || udpfast_books_open(&books) != 0)
        return 2;
    use_closed(); /* never opened */
    say("start", udpfast_reader_open(&reader, words[1], 3), reader.problem);
    say("start", udpfast_reader_open_wait(&reader, words[1], -1, -1), reader.problem);
    say("open", udpfast_reader_open(&reader, words[1], UDPFAST_START_OLDEST), reader.problem);
    say("how", udpfast_reader_wait(&reader, &record, 1, 2, -1), reader.problem);
    say("how", udpfast_reader_wait(&reader, &record, 1, -1, -1), reader.problem);
    while (udpfast_reader_poll(&reader, &record, 1) > 0)
        udpfast_books_apply(&books, &reader, record, &updated);
    say("at", udpfast_books_at(&books, 999) != NULL, "");
    say("at", udpfast_books_at(&books, books.count) != NULL, "");
    say("books", (int64_t) books.count, "");
    udpfast_books_close(&books);
    say("at", udpfast_books_at(&books, 0) != NULL, "");
    say("find", udpfast_books_find(&books, "deribit", "BTCUSDT") != NULL, "");
    udpfast_reader_close(&reader);
    use_closed();
    say("store", udpfast_store_next(&store, &record), store.problem);
    say("sender", (int64_t) strlen(udpfast_store_sender(&store, 1)), "");
    return 0;
}
