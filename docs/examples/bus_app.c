/* An app of a bus in C: sends messages, and reads the stream until all of them came back.
 *
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o bus_app bus_app.c
 * ./bus_app store:orders app-1 10000
 *
 * It may be killed at any moment, and continues when it is started again: accepted messages are in
 * its outbox, and it reads the stream again from the beginning. (An app that saves its state saves
 * `stream.position` with it, and begins there.)
 */

#include <sched.h>

#include "udpfast_bus.h"

static struct udpfast_outbox outbox;
static struct udpfast_store stream;

static int fail(const char *problem)
{
    fprintf(stderr, "bus_app: %s\n", problem);
    return 1;
}

int main(int count, char **words)
{
    const struct udpfast_record *record;
    uint64_t wanted, back = 0;
    if (count != 4)
        return fail("takes an address, a name, and how many messages to send");
    if (udpfast_outbox_open(&outbox, words[1], words[2], 0, 0) < 0)
        return fail(outbox.problem);
    if (udpfast_store_open(&stream, words[1], UDPFAST_STORE_OLDEST) < 0)
        return fail(stream.problem);
    wanted = strtoull(words[3], NULL, 10);
    printf("%" PRIu64 " were accepted before\n", outbox.header->accepted);
    fflush(stdout);
    while (back < wanted) {
        uint64_t number = outbox.header->accepted + 1;
        int found;
        if (number <= wanted) {
            char text[32];
            int size = snprintf(text, sizeof text, "message %" PRIu64, number);
            int64_t sent = udpfast_outbox_send(&outbox, text, (size_t) size, 7);
            /* Full: nothing is lost, and there is room again when some messages came back. */
            if (sent < 0 && sent != UDPFAST_UNSENT_FULL)
                return fail(outbox.problem);
        }
        found = udpfast_store_next(&stream, &record);
        if (found < 0)
            return fail(stream.problem);
        if (found == UDPFAST_STORE_NOTHING)
            sched_yield();
        else if (found == UDPFAST_STORE_ROLLBACK) /* messages of living senders come again */
            printf("%" PRIu64 " records were taken back\n", stream.count);
        else if (found == UDPFAST_STORE_MISSED)
            printf("%" PRIu64 " records are not kept any more\n", stream.count);
        else if (record->kind == UDPFAST_KIND_BUS
                 && strcmp(udpfast_store_sender(&stream, udpfast_message_sender(record)), words[2])
                        == 0)
            back = record->number;
    }
    printf("%" PRIu64 " came back, the last one at position %" PRIu64 "\n", back, stream.position);
    udpfast_store_close(&stream);
    udpfast_outbox_close(&outbox);
    return 0;
}
