/* Follow a running instance from C: best prices, and everything that puts them in doubt.
 *
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o follow follow.c
 * ./follow ring:NAME
 */
#include "udpfast.h"

static struct udpfast_reader reader;
static struct udpfast_books books;

static void handle(const struct udpfast_record *record)
{
    const void *payload = udpfast_record_payload(record);
    struct udpfast_order_book *book;
    if (udpfast_books_apply(&books, &reader, record, &book) < 0)
        fprintf(stderr, "%s\n", books.problem);
    if (book != NULL) {
        struct udpfast_best best = udpfast_order_book_best(book);
        printf("%s %g %g%s\n", book->symbol, best.bid_price, best.ask_price,
               book->stale ? " stale" : "");
    } else if (record->kind == UDPFAST_KIND_TOP_OF_BOOK) {
        const struct udpfast_top_of_book *top = (const struct udpfast_top_of_book *) payload;
        printf("%s %g %g%s\n", udpfast_reader_name(&reader, top->header.symbol_id), top->bid_price,
               top->ask_price, udpfast_books_in_doubt(&books, record) ? " stale" : "");
    } else if (record->kind == UDPFAST_KIND_GAP) {
        printf("lost %" PRIu64 " messages\n", ((const struct udpfast_gap *) payload)->count);
    } else if (record->kind == UDPFAST_KIND_LAPPED) {
        printf("missed %" PRIu64 " records\n", ((const struct udpfast_lapped *) payload)->missed);
    } else if (record->kind == UDPFAST_KIND_CONNECTION && record->stream == UDPFAST_STREAM_NONE) {
        const struct udpfast_connection *said = (const struct udpfast_connection *) payload;
        puts(said->status == UDPFAST_CONNECTION_READY ? "there is a writer again"
                                                      : "the writer is dead: what is known is old");
    }
}

int main(int count, char **words)
{
    const struct udpfast_record *record;
    int64_t found = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 2 && udpfast_books_open(&books) == 0
        && udpfast_reader_open(&reader, words[1], UDPFAST_START_OLDEST) == 0) {
        while ((found = udpfast_reader_wait(&reader, &record, 1, UDPFAST_WAIT_SLEEP, -1)) > 0)
            handle(record);
    }
    fprintf(stderr, "%s\n", count == 2 ? reader.problem : "takes an instance, as ring:NAME");
    return found != UDPFAST_ENDED;
}
