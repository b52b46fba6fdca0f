/* Follow a running instance from C: best prices, and everything that puts them in doubt.
 *
 * cc -O2 -I"$(python -c 'import udpfast; print(udpfast.get_include())')" -o follow follow.c
 * ./follow "$(python -c 'from udpfast.shm.instance import *; print(instance_directory("NAME"))')"
 *
 * A reader writes nothing. It waits on the commit word of the record that it wants, copies that
 * record, and then looks whether the writer may have come round meanwhile ("intent").
 */

#define _GNU_SOURCE /* O_NOFOLLOW */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "udpfast.h"

#define LOAD_ACQUIRE(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)

struct names {
    const struct udpfast_names_header *header;
    const struct udpfast_name_entry *entries;
};

struct ring {
    const struct udpfast_ring_header *header;
    const uint8_t *data;
    uint64_t capacity;
    uint64_t cursor; /* position of the record that is wanted */
    uint64_t index;  /* its index, unless records were missed before it */
};

static void die(const char *file, const char *why)
{
    fprintf(stderr, "%s: %s\n", file, why);
    exit(1);
}

/* Map one of the instance's files, and believe nothing of it before it has said what it is. */
static const void *map(const char *directory, const char *name, const char *kind, uint64_t layout)
{
    char path[4096];
    struct stat status;
    const struct udpfast_region_header *header;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &status) != 0)
        die(path, strerror(errno));
    if (status.st_size < UDPFAST_REGION_PAGE)
        die(path, "is too small");
    header = mmap(NULL, (size_t) status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (header == MAP_FAILED)
        die(path, "cannot be mapped");
    if (LOAD_ACQUIRE(&header->ready) != 1 || header->size != (uint64_t) status.st_size
        || memcmp(header->magic, UDPFAST_REGION_MAGIC, 8) != 0
        || header->version != UDPFAST_REGION_VERSION || memcmp(header->kind, kind, 4) != 0)
        die(path, "is not ready, or not what its name says");
    if (header->layout_hash != layout)
        die(path, "is of another version of udpfast");
    return header;
}

/* Copy the record at the cursor. 1: there it is; 0: not yet; -1: it was overwritten; -2: the end. */
static int take(struct ring *ring, uint8_t *copy)
{
    for (;;) {
        uint64_t offset = ring->cursor & (ring->capacity - 1);
        int ended = LOAD_ACQUIRE(&ring->header->state) != UDPFAST_RING_OPEN;
        /* Acquire: the record's bytes are read after its commit word, which is stored last. */
        uint64_t word = LOAD_ACQUIRE((const uint64_t *) (ring->data + offset));
        uint32_t length = (uint32_t) word;
        if (length != 0 && length <= ring->capacity - offset)
            memcpy(copy, ring->data + offset, length);
        /* Orders the copy before the look at intent: below it, bytes may have been overwritten. */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&ring->header->intent, __ATOMIC_RELAXED)
            > ring->cursor + ring->capacity)
            return -1;
        if (length == 0)
            return ended ? -2 : 0;
        if (length > ring->capacity - offset)
            die("ring", "has no valid record where one must be");
        if ((uint16_t) (word >> 32) != UDPFAST_KIND_PAD) {
            ring->cursor += (length + 7u) & ~7u;
            return 1;
        }
        ring->cursor += length; /* the rest of this lap is filled up */
    }
}

/* Whether the process is gone that writes this ring (one of another pid namespace is not in sight). */
static int is_orphan(const struct udpfast_ring_header *header)
{
    const struct udpfast_region_header *region = (const void *) header;
    return kill((pid_t) region->writer_pid, 0) != 0 && errno == ESRCH;
}

static void print_name(const struct names *names, uint32_t id)
{
    if (id == 0 || id > LOAD_ACQUIRE(&names->header->count))
        printf("?");
    else
        printf("%.*s", (int) names->entries[id].size, (const char *) names->entries[id].text);
}

static void handle(const struct udpfast_record *record, const struct names *names)
{
    const uint8_t *payload = (const uint8_t *) (record + 1);
    if (record->kind == UDPFAST_KIND_TOP_OF_BOOK) {
        const struct udpfast_top_of_book *top = (const struct udpfast_top_of_book *) payload;
        print_name(names, top->header.symbol_id);
        printf(" %g %g\n", top->bid_price, top->ask_price);
    } else if (record->kind == UDPFAST_KIND_GAP) {
        const struct udpfast_gap *gap = (const struct udpfast_gap *) payload;
        printf("lost %" PRIu64 " messages\n", gap->count);
    }
}

int main(int count, char **words)
{
    struct ring ring = {0};
    struct names names;
    uint8_t *copy;
    int state, orphan = 0;
    if (count != 2)
        die(words[0], "takes the directory of an instance, as /dev/shm/udpfast-0/NAME");
    ring.header = map(words[1], "ring", UDPFAST_RING_KIND, UDPFAST_RING_LAYOUT);
    ring.data = (const uint8_t *) ring.header + UDPFAST_RING_DATA;
    ring.capacity = ((const struct udpfast_region_header *) ring.header)->size - UDPFAST_RING_DATA;
    ring.cursor = ring.header->first; /* the file may go on with the log of one before it */
    ring.index = ring.header->first_index;
    names.header = (const void *) ((const uint8_t *) map(words[1], "names", UDPFAST_NAMES_KIND,
                                                         UDPFAST_NAMES_LAYOUT)
                                   + UDPFAST_REGION_PAGE);
    names.entries = (const void *) ((const uint8_t *) (names.header + 1)
                                    + sizeof(uint32_t) * names.header->slots);
    copy = malloc(ring.capacity);
    if (copy == NULL)
        die(words[0], "has no memory");
    while ((state = take(&ring, copy)) != -2) {
        const struct udpfast_record *record = (const struct udpfast_record *) copy;
        if (state == 0) {
            if (orphan != is_orphan(ring.header)) {
                orphan = !orphan;
                puts(orphan ? "the writer is dead: what is known is old" : "there is a writer again");
            }
            fflush(stdout);
            sched_yield();
        } else if (state == -1) {
            ring.cursor = LOAD_ACQUIRE(&ring.header->latest); /* begin again with a recent one */
        } else {
            if (record->index != ring.index)
                printf("missed %" PRIu64 " records\n", record->index - ring.index);
            ring.index = record->index + 1;
            handle(record, &names);
        }
    }
    return 0;
}
