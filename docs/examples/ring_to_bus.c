/* A complete strategy in C: it reads the books of a feed's ring, and sends orders into a store.
 *
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o ring_to_bus
 * ring_to_bus.c
 * ./ring_to_bus ring:deribit store:orders imbalance-1 3
 *
 * It sends an order when one side of the touch has so many times the quantity of the other, and
 * sends none on the same side of that book again until the other side had one. It never trades on
 * a book in doubt, and sends nothing while the bus would deliver it late.
 */
#include "udpfast_bus.h"

enum { BUY = 1, SELL = 2, BOOKS_MAX = 4096, ORDER = 1 /* the message's type */ };

struct order {
    char symbol[64];
    double price;
    int64_t received_ns; /* of the update that caused it */
    uint32_t side, reserved;
};

static struct udpfast_reader reader;
static struct udpfast_books books;
static struct udpfast_outbox outbox;
static const struct udpfast_order_book *known[BOOKS_MAX];
static uint32_t sides[BOOKS_MAX], count;

/* The side of the last order for a book. */
static uint32_t *last_side(const struct udpfast_order_book *book)
{
    uint32_t i = 0;
    while (i < count && known[i] != book)
        i++;
    if (i == BOOKS_MAX)
        return NULL;
    if (i == count)
        known[count++] = book;
    return &sides[i];
}

/* Whether the bus takes orders now. */
static int taken(void)
{
    static int away;
    int gone = !udpfast_outbox_alive(&outbox);
    if (gone && !away)
        fprintf(stderr,
                "ring_to_bus: the bus takes no orders: %" PRIu64
                " sent before are not in its stream yet\n",
                udpfast_outbox_unseen(&outbox));
    if (away && !gone)
        fprintf(stderr, "ring_to_bus: the bus takes orders again\n");
    away = gone;
    return !gone;
}

/* Returns 0, or a negative number if the outbox takes no more. */
static int64_t trade(const struct udpfast_order_book *book, double ratio, int64_t received_ns)
{
    struct udpfast_best best = udpfast_order_book_best(book);
    uint32_t *last = last_side(book), side = 0;
    struct order order;
    int64_t number;
    if (best.bid_quantity > ratio * best.ask_quantity && best.ask_quantity > 0)
        side = BUY;
    else if (best.ask_quantity > ratio * best.bid_quantity && best.bid_quantity > 0)
        side = SELL;
    if (side == 0 || last == NULL || *last == side || !taken())
        return 0;
    memset(&order, 0, sizeof order);
    snprintf(order.symbol, sizeof order.symbol, "%.63s", book->symbol);
    order.price = side == BUY ? best.ask_price : best.bid_price;
    order.received_ns = received_ns;
    order.side = side;
    number = udpfast_outbox_send(&outbox, &order, sizeof order, ORDER);
    if (number == UDPFAST_UNSENT_FULL)
        return 0; /* too much is on its way: nothing was sent, the next update decides again */
    if (number < 0)
        return number;
    *last = side;
    printf("order %" PRId64 ": %s %s at %g\n", number, side == BUY ? "buy" : "sell", order.symbol,
           order.price);
    return 0;
}

/* Take all books from the feed's image. */
static void join(void)
{
    if (udpfast_reader_join(&reader, &books, NULL, INT64_C(5000000000)) < 0)
        fprintf(stderr, "ring_to_bus: %s\n", reader.problem); /* books come with snapshots */
}

/* Apply a record to the books, and trade on the one that it updated. Returns as trade. */
static int64_t handle(const struct udpfast_record *record, double ratio)
{
    struct udpfast_order_book *book;
    if (udpfast_books_apply(&books, &reader, record, &book) < 0)
        fprintf(stderr, "ring_to_bus: %s\n", books.problem); /* that book is stale now */
    if (record->kind == UDPFAST_KIND_LAPPED) { /* all books are stale */
        fprintf(stderr,
                "ring_to_bus: missed %" PRIu64 " records: taking all books from the image\n",
                ((const struct udpfast_lapped *) udpfast_record_payload(record))->missed);
        join();
        return 0;
    }
    return book == NULL || book->stale ? 0 : trade(book, ratio, record->received_ns);
}

static int fail(const char *problem)
{
    fprintf(stderr, "ring_to_bus: %s\n", problem);
    return 1;
}

int main(int words_count, char **words)
{
    const struct udpfast_record *record;
    int64_t found;
    if (words_count != 5)
        return fail("takes a ring, a store, a name, and a ratio of quantities");
    if (udpfast_books_open(&books) < 0)
        return fail(books.problem);
    if (udpfast_outbox_open(&outbox, words[2], words[3], 0, 0) < 0)
        return fail(outbox.problem);
    if (udpfast_reader_open_wait(&reader, words[1], UDPFAST_START_TAIL, INT64_C(30000000000)) < 0)
        return fail(reader.problem);
    join();
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while ((found = udpfast_reader_wait(&reader, &record, 1, UDPFAST_WAIT_SPIN, -1)) > 0)
        if (handle(record, atof(words[4])) < 0)
            return fail(outbox.problem);
    udpfast_reader_close(&reader);
    udpfast_outbox_close(&outbox);
    udpfast_books_close(&books);
    return found == UDPFAST_ENDED ? 0 : fail(reader.problem);
}
