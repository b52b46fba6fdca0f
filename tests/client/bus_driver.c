/* What tests drive udpfast_bus.h by.
 *
 * send ADDRESS NAME SLOTS CAPACITY: each line of the input is how many bytes to send; the answer is
 *     the number, or the code and the problem. "fork": a child sends; "close": what follows is sent
 *     after udpfast_outbox_close; "alive": the answer is whether it is, and how many are not seen.
 * anew ADDRESS NAME SLOTS CAPACITY: as send, in an outbox that is not over.
 * read ADDRESS START: each line of the input asks for all that is new.
 */

#include "udpfast_bus.h"

#include <sys/wait.h>

static struct udpfast_outbox outbox;
static struct udpfast_store stream;
static char line[64];

static int refused(int code, const char *problem)
{
    printf("%d %s\n", code, problem);
    return 0;
}

static int send_lines(char **words)
{
    static uint8_t payload[4096];
    int result = (strcmp(words[1], "anew") == 0 ? udpfast_outbox_open_anew : udpfast_outbox_open)(
        &outbox, words[2], words[3], strtoull(words[4], NULL, 10), strtoull(words[5], NULL, 10));
    if (result < 0)
        return refused(result, outbox.problem);
    puts("open");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t size = strtoull(line, NULL, 10);
        pid_t child = strcmp(line, "fork\n") == 0 ? fork() : -1;
        int64_t number;
        if (strcmp(line, "close\n") == 0)
            udpfast_outbox_close(&outbox);
        if (strcmp(line, "alive\n") == 0) {
            printf("%d %" PRIu64 "\n", udpfast_outbox_alive(&outbox),
                   udpfast_outbox_unseen(&outbox));
            fflush(stdout);
            continue;
        }
        if (child > 0) {
            waitpid(child, NULL, 0);
            continue;
        }
        if (outbox.header != NULL)
            memset(payload, (int) (outbox.header->accepted + 1) & 0xFF, sizeof payload);
        number = udpfast_outbox_send(&outbox, payload, size, 7);
        printf("%" PRId64 "%s%s\n", number, number < 0 ? " " : "",
               number < 0 ? outbox.problem : "");
        fflush(stdout);
        if (child == 0)
            _exit(0);
    }
    udpfast_outbox_close(&outbox);
    return 0;
}

static int read_lines(char **words)
{
    const struct udpfast_record *record;
    int result = udpfast_store_open(&stream, words[2],
                                    strcmp(words[3], "oldest") == 0 ? UDPFAST_STORE_OLDEST
                                    : strcmp(words[3], "tail") == 0 ? UDPFAST_STORE_TAIL
                                                                    : strtoull(words[3], NULL, 10));
    if (result < 0)
        return refused(result, stream.problem);
    puts("open");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        while ((result = udpfast_store_next(&stream, &record)) > 0) {
            if (result == UDPFAST_STORE_ROLLBACK)
                printf("ROLLBACK %" PRIu64 "\n", stream.count);
            else if (result == UDPFAST_STORE_MISSED)
                printf("MISSED %" PRIu64 "\n", stream.count);
            else if (record->kind == UDPFAST_KIND_BUS)
                printf("%s %" PRIu64 " %u %.*s\n",
                       udpfast_store_sender(&stream, udpfast_message_sender(record)),
                       record->number, udpfast_message_type(record),
                       (int) udpfast_record_payload_size(record),
                       (const char *) udpfast_record_payload(record));
        }
        if (result < 0)
            refused(result, stream.problem);
        puts(".");
        fflush(stdout);
    }
    udpfast_store_close(&stream);
    return 0;
}

int main(int count, char **words)
{
    if (count == 6 && strcmp(words[1], "read") != 0)
        return send_lines(words);
    if (count == 4 && strcmp(words[1], "read") == 0)
        return read_lines(words);
    return 2;
}
