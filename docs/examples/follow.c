/* Follow a running instance from C: best prices, and everything that puts them in doubt.
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o follow follow.c
 * ./follow ring:NAME */
#include "udpfast.h"
#define AS(type) ((const struct udpfast_##type *) udpfast_record_payload(record))
static struct udpfast_reader reader;
static struct udpfast_books books;

static void handle(const struct udpfast_record *record)
{
    struct udpfast_order_book *book;
    if (udpfast_books_apply(&books, &reader, record, &book) < 0)
        fprintf(stderr, "%s\n", books.problem);
    if (book != NULL) {
        struct udpfast_best best = udpfast_order_book_best(book);
        printf("%s %g %g%s\n", book->symbol, best.bid_price, best.ask_price,
               book->stale ? " stale" : "");
    } else if (record->kind == UDPFAST_KIND_TOP_OF_BOOK)
        printf("%s %g %g%s\n", udpfast_reader_name(&reader, AS(top_of_book)->header.symbol_id),
               AS(top_of_book)->bid_price, AS(top_of_book)->ask_price,
               udpfast_books_in_doubt(&books, record) ? " stale" : "");
    else if (record->kind == UDPFAST_KIND_GAP)
        printf("lost %" PRIu64 " messages\n", AS(gap)->count);
    else if (record->kind == UDPFAST_KIND_LAPPED)
        printf("missed %" PRIu64 " records\n", AS(lapped)->missed);
    else if (record->kind == UDPFAST_KIND_CONNECTION && record->stream == UDPFAST_STREAM_NONE)
        puts(AS(connection)->status == UDPFAST_CONNECTION_READY ? "the feed is back"
             : AS(connection)->scope == UDPFAST_CONNECTION_LOOP ? "the feed stands still"
                                                                : "the feed is gone");
}

int main(int count, char **words)
{
    const struct udpfast_record *record;
    int64_t got = udpfast_books_open(&books);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (got == 0)
        got = udpfast_reader_open_wait(&reader, count == 2 ? words[1] : "", UDPFAST_START_OLDEST,
                                       INT64_C(30000000000));
    while (got >= 0 && (got = udpfast_reader_wait(&reader, &record, 1, UDPFAST_WAIT_SLEEP, -1)) > 0)
        handle(record);
    return fprintf(stderr, "%s%s\n", books.problem, reader.problem), got != UDPFAST_ENDED;
}
