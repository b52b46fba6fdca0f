/* Follow several feeds as one, in the order in which their records were published, through each
 * stop, death and start of any of them.
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o two_feeds two_feeds.c
 * ./two_feeds ring:ONE ring:OTHER   both feeds' files have [image] enabled = true */
#include "udpfast.h"
enum { FEEDS = 16, RUN = 64 };
#define LOOK_NS INT64_C(10000000)   /* between attempts to open a feed, or to join from its image */
#define JOIN_NS INT64_C(5000000000) /* so long; then each book waits for its next snapshot */

struct feed {
    const char *address;
    struct udpfast_reader reader;
    struct udpfast_books books; /* of this feed alone: numbers and names are its own */
    const struct udpfast_record *records[RUN];
    int64_t count, next;               /* polled, and handled */
    int64_t again_ns, join_until_ns;   /* join_until_ns 0: there is no need to join */
};
static struct feed feeds[FEEDS];

/* Open a feed that works. Do not wait for one that does not: the others go on. */
static void begin(struct feed *feed, int64_t now_ns)
{
    if (udpfast_books_open(&feed->books) < 0)
        return;
    if (udpfast_reader_open(&feed->reader, feed->address, UDPFAST_START_TAIL) == 0
        && udpfast_reader_works(&feed->reader)) {
        feed->join_until_ns = now_ns + JOIN_NS;
        return;
    }
    udpfast_reader_close(&feed->reader);
    udpfast_books_close(&feed->books);
}

/* Take all books from the image. Until there is one, records are read, and books are stale. */
static void join(struct feed *feed, int64_t now_ns)
{
    int got = udpfast_reader_join(&feed->reader, &feed->books, NULL, 0);
    if (got < 0 && now_ns < feed->join_until_ns)
        return;
    feed->join_until_ns = 0;
    printf("%s %s\n", feed->address, got < 0 ? feed->reader.problem : "joined");
}

/* Whether there is a record of this feed to handle. */
static int look(struct feed *feed)
{
    if (feed->next < feed->count)
        return 1;
    feed->next = feed->count = 0;
    if (feed->reader.header == NULL || feed->join_until_ns != 0) {
        int64_t now_ns = udpfast_clock_now(CLOCK_MONOTONIC);
        int due = now_ns >= feed->again_ns;
        if (due)
            feed->again_ns = now_ns + LOOK_NS;
        if (due && feed->reader.header == NULL)
            begin(feed, now_ns);
        if (due && feed->join_until_ns != 0)
            join(feed, now_ns);
        if (feed->reader.header == NULL)
            return 0;
    }
    feed->count = udpfast_reader_poll(&feed->reader, feed->records, RUN);
    if (feed->count >= 0)
        return feed->count > 0;
    printf("%s lost: %s\n", feed->address, feed->reader.problem);
    udpfast_reader_close(&feed->reader); /* its next writer needs another one, and other books */
    udpfast_books_close(&feed->books);
    feed->count = feed->join_until_ns = 0;
    return 0;
}

static void handle(struct feed *feed, const struct udpfast_record *record)
{
    const struct udpfast_connection *said =
        (const struct udpfast_connection *) udpfast_record_payload(record);
    struct udpfast_order_book *book;
    if (udpfast_books_apply(&feed->books, &feed->reader, record, &book) < 0)
        fprintf(stderr, "%s\n", feed->books.problem);
    if (book != NULL) {
        struct udpfast_best best = udpfast_order_book_best(book);
        printf("%s %s %g %g%s\n", feed->address, book->symbol, best.bid_price, best.ask_price,
               book->stale ? " stale" : "");
    }
    if (record->kind == UDPFAST_KIND_LAPPED)
        feed->join_until_ns = udpfast_clock_now(CLOCK_MONOTONIC) + JOIN_NS;
    if (record->kind == UDPFAST_KIND_CONNECTION && record->stream == UDPFAST_STREAM_NONE)
        printf("%s is %s\n", feed->address,
               said->status == UDPFAST_CONNECTION_READY ? "back" : "gone");
}

int main(int count, char **words)
{
    const struct timespec pause = {0, 50000};
    int i;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 2 || count > FEEDS + 1)
        return fprintf(stderr, "two_feeds ring:ONE ring:OTHER ...\n"), 2;
    for (i = 1; i < count; i++)
        feeds[i - 1].address = words[i];
    for (;;) {
        struct feed *first = NULL;
        for (i = 0; i < count - 1; i++) /* one that has nothing new holds no other one back */
            if (look(feeds + i)
                && (first == NULL
                    || feeds[i].records[feeds[i].next]->published_ns
                           < first->records[first->next]->published_ns))
                first = feeds + i;
        if (first != NULL)
            handle(first, first->records[first->next++]);
        else
            nanosleep(&pause, NULL);
    }
}
