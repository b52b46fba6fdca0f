/* Join a running feed late: all books as they are now, from its image, then the ring from there.
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o late late.c
 * ./late ring:NAME [RECORDS]   the feed's file has [image] enabled = true */
#include "udpfast.h"
static struct udpfast_reader reader;
static struct udpfast_books books;

static void print_books(const char *what)
{
    uint32_t i;
    printf("%s record %" PRIu64 "\n", what, reader.index); /* the next one */
    for (i = 0; i < books.count; i++) {
        const struct udpfast_order_book *book = udpfast_books_at(&books, i);
        struct udpfast_best best = udpfast_order_book_best(book);
        printf("%s %g %g%s\n", book->symbol, best.bid_price, best.ask_price,
               book->stale ? " stale" : "");
    }
}

static void handle(const struct udpfast_record *record)
{
    const void *payload = udpfast_record_payload(record);
    const struct udpfast_connection *said = (const struct udpfast_connection *) payload;
    struct udpfast_order_book *book;
    if (udpfast_books_apply(&books, &reader, record, &book) < 0)
        fprintf(stderr, "%s\n", books.problem);
    if (record->kind == UDPFAST_KIND_GAP) /* its stream's books are stale */
        printf("lost %" PRIu64 " messages\n", ((const struct udpfast_gap *) payload)->count);
    if (record->kind == UDPFAST_KIND_LAPPED) { /* all books are stale: take them anew */
        printf("missed %" PRIu64 " records\n", ((const struct udpfast_lapped *) payload)->missed);
        if (udpfast_reader_join(&reader, &books, NULL, INT64_C(5000000000)) < 0)
            puts(reader.problem); /* each book is stale until its next snapshot */
        else
            print_books("joined before");
    }
    if (record->kind == UDPFAST_KIND_CONNECTION) {
        const char *now = said->status == UDPFAST_CONNECTION_READY ? "is back" : "is gone";
        if (said->scope == UDPFAST_CONNECTION_LINE) /* one of several: no book is stale */
            printf("line %d %s\n", record->line, now);
        else if (said->scope == UDPFAST_CONNECTION_CHANNEL) /* no book is stale */
            printf("channel %d %s\n", record->stream, now);
        else if (said->scope == UDPFAST_CONNECTION_LOOP) /* all books are stale */
            printf("the feed's loop %s\n", now);
        else if (said->scope == UDPFAST_CONNECTION_WRITER) /* all books are stale, too */
            printf("the feed %s\n", now);
    }
}

int main(int count, char **words)
{
    const struct udpfast_record *record;
    int64_t left = count == 3 ? atoll(words[2]) : -1, got = udpfast_books_open(&books);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (got == 0)
        got = udpfast_reader_open_wait(&reader, count > 1 ? words[1] : "", UDPFAST_START_TAIL,
                                       INT64_C(5000000000));
    if (got == 0)
        got = udpfast_reader_join(&reader, &books, NULL, INT64_C(5000000000));
    if (got == 0)
        print_books("joined before");
    while (got >= 0 && left-- != 0
           && (got = udpfast_reader_wait(&reader, &record, 1, UDPFAST_WAIT_SLEEP, -1)) > 0)
        handle(record);
    if (got >= 0 || got == UDPFAST_ENDED)
        print_books("stopped before");
    if (got < 0)
        fprintf(stderr, "%s%s\n", books.problem, reader.problem);
    return got < 0 && got != UDPFAST_ENDED;
}
