/* udpfast_bus.h: an app of a bus in C or C++: send messages into a store, read its stream.
 *
 * It does the same as `udpfast.App` (docs/bus.md) with the same files: the host's daemon, `udpfast
 * bus run`, cannot tell them apart. docs/examples/bus_app.c uses both halves.
 *
 * Functions return the result that they document, or a number below 0: UDPFAST_UNSENT_* of a send,
 * otherwise UDPFAST_BUS_*. Then `problem` in their first argument states what was expected and what
 * was found. NULL where something is needed is UDPFAST_REFUSED; what returns a count or whether
 * something is so then returns 0. One thread at a time may use a struct; its memory is zero before
 * the first use, and an open one is not opened again (UDPFAST_OPEN). No function waits, but opening
 * an outbox may take 50 ms.
 */

#ifndef UDPFAST_BUS_H
#define UDPFAST_BUS_H

#include "udpfast.h"

#if defined(__cplusplus) /* C has no other casts */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

enum {
    UDPFAST_BUS_SYSTEM = UDPFAST_SYSTEM, /* a system call failed: see `errno` */
    UDPFAST_BUS_ADDRESS = -17,     /* not the address of a store, or not a sender's name */
    UDPFAST_BUS_NOT_READY = -18,   /* no bus daemon has run there yet: try again */
    UDPFAST_BUS_BY_FEED = -19,     /* a feed writes that store, so no app can */
    UDPFAST_BUS_NAME_IN_USE = -20, /* another app on this host sends under this name */
    UDPFAST_BUS_FORMAT = -21,      /* a file is damaged, or of another version */
    UDPFAST_BUS_PLACE = -22,       /* no record begins there: it was removed, or is yet to come */
};

/* --- for sending and reading ------------------------------------------------------------------- */

/* Find the directory of "store:NAME" (in $UDPFAST_JOURNALS) or "store:/path". Returns 0. */
static inline int udpfast_bus_directory(const char *address, char directory[PATH_MAX],
                                        char *problem)
{
    const char *name, *root = getenv("UDPFAST_JOURNALS"), *home = "/var/lib";
    const char *below = "/udpfast/";
    int size;
    address = address != NULL ? address : "";
    name = strncmp(address, "store:", 6) == 0 ? address + 6 : "";
    if (*name == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return udpfast_say(problem, UDPFAST_BUS_ADDRESS,
                           "address must be 'store:NAME' or 'store:/path', was '%.200s'",
                           address);
    if (strchr(name, '/') != NULL) {
        home = below = "";
    } else if (root != NULL && *root != 0) {
        home = root;
        below = "/";
    } else if (geteuid() != 0) {
        home = getenv("HOME") != NULL ? getenv("HOME") : "";
        below = "/.local/share/udpfast/";
    }
    size = snprintf(directory, PATH_MAX, "%s%s%s", home, below, name);
    if (size >= PATH_MAX)
        return udpfast_say(problem, UDPFAST_BUS_ADDRESS,
                           "a path must have at most %d bytes, has %d", PATH_MAX - 1, size);
    return 0;
}

/* Map the file in which the daemon states how far a store is. Returns 0. */
static inline int udpfast_bus_map_live(const char *directory, const struct udpfast_bus_live **live,
                                       char *problem)
{
    char path[PATH_MAX + 16];
    struct stat status;
    void *memory;
    int file;
    snprintf(path, sizeof path, "%s/bus.live", directory);
    file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT)
        return udpfast_say(problem, UDPFAST_BUS_NOT_READY,
                           "%.400s: no bus daemon has run here: start `udpfast bus run`",
                           directory);
    if (file < 0)
        return udpfast_failed(problem, "open", path);
    if (fstat(file, &status) != 0 || status.st_size < (off_t) sizeof(struct udpfast_bus_live)) {
        close(file);
        return udpfast_say(problem, UDPFAST_BUS_FORMAT, "%.400s: expected %zu bytes, found %jd",
                           path, sizeof(struct udpfast_bus_live), (intmax_t) status.st_size);
    }
    memory = mmap(NULL, sizeof(struct udpfast_bus_live), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return udpfast_failed(problem, "map", path);
    *live = (const struct udpfast_bus_live *) memory;
    if ((*live)->magic == UDPFAST_LIVE_MAGIC)
        return 0;
    munmap(memory, sizeof(struct udpfast_bus_live));
    return udpfast_say(problem, UDPFAST_BUS_NOT_READY,
                       "%.400s: its daemon has not written it yet: try again", path);
}

/* Whether the store's daemon has given a sign of life within the last second. */
static inline int udpfast_bus_alive(const struct udpfast_bus_live *live)
{
    int64_t silent_ns = udpfast_clock_now(CLOCK_MONOTONIC) - UDPFAST_LOAD_RELAXED(&live->alive_ns);
    return silent_ns >= 0 && silent_ns < INT64_C(1000000000); /* below 0: before this boot */
}

/* --- sending ----------------------------------------------------------------------------------- */

/* An app's messages that are not safely in the stream yet. They survive kill -9 of the app and of
 * the daemon. */
struct udpfast_outbox {
    struct udpfast_outbox_header *header; /* `accepted`, `seen` and `freed` count messages */
    struct udpfast_outbox_entry *entries;
    uint8_t *payloads;
    uint64_t slots, capacity; /* the checked values: the header's may change */
    const struct udpfast_bus_live *live; /* what the daemon says; NULL: the outbox is closed */
    size_t mapped;
    int file; /* holds the lock that shows that the app is alive */
    int bell; /* FIFO that wakes a sleeping daemon; -1: there is none */
    uint8_t *ours; /* 1; in a forked child 0; NULL: the outbox is closed */
    char path[PATH_MAX + 48];
    char problem[UDPFAST_PROBLEM_SIZE];
};

/* Create the outbox's file; an existing one is left as it is. Returns 0. */
static inline int udpfast_outbox_make(struct udpfast_outbox *outbox, const char *path,
                                      const char *name, const char *host, uint64_t slots,
                                      uint64_t capacity)
{
    char made[PATH_MAX + 64];
    struct udpfast_outbox_header header;
    int file, error;
    snprintf(made, sizeof made, "%s.XXXXXX", path);
    memset(&header, 0, sizeof header);
    memcpy(header.name, name, strlen(name));
    memcpy(header.host, host, strnlen(host, sizeof header.host - 1));
    header.slots = slots;
    header.capacity = capacity;
    if (getrandom(&header.nonce, sizeof header.nonce, 0) != (ssize_t) sizeof header.nonce)
        return udpfast_failed(outbox->problem, "draw a number for", path);
    header.nonce |= 1; /* 0 is none */
    file = mkstemp(made);
    if (file < 0)
        return udpfast_failed(outbox->problem, "make", made);
    error = posix_fallocate(
        file, 0,
        (off_t) (UDPFAST_OUTBOX_PAGE + sizeof(struct udpfast_outbox_entry) * slots + capacity));
    if (error == 0 && pwrite(file, &header, sizeof header, 0) != (ssize_t) sizeof header)
        error = errno;
    /* link() instead of rename(): another process may have made and locked one meanwhile. */
    if (error == 0 && link(made, path) != 0 && errno != EEXIST)
        error = errno;
    unlink(made);
    close(file);
    errno = error;
    return error == 0 ? 0 : udpfast_failed(outbox->problem, "make", path);
}

/* Take the lock that shows that this app is alive. Returns 0. */
static inline int udpfast_outbox_lock(struct udpfast_outbox *outbox, const char *path)
{
    struct timespec pause = {0, 1000000};
    int tries;
    for (tries = 0; flock(outbox->file, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK)
            return udpfast_failed(outbox->problem, "lock", path);
        /* The daemon takes the lock for a moment whenever it checks whether an app holds it. */
        if (tries == 50)
            return udpfast_say(outbox->problem, UDPFAST_BUS_NAME_IN_USE,
                               "%.400s: another app, of this process or another, sends under this "
                               "name",
                               path);
        nanosleep(&pause, NULL);
    }
    return 0;
}

static inline int udpfast_outbox_map(struct udpfast_outbox *outbox, const char *path)
{
    struct stat status;
    struct udpfast_outbox_header *header;
    uint64_t slots, capacity;
    void *memory;
    if (fstat(outbox->file, &status) != 0)
        return udpfast_failed(outbox->problem, "look at", path);
    if (status.st_size < UDPFAST_OUTBOX_PAGE)
        return udpfast_say(outbox->problem, UDPFAST_BUS_FORMAT, "%.400s: %jd bytes are no outbox",
                           path, (intmax_t) status.st_size);
    memory = mmap(NULL, (size_t) status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, outbox->file, 0);
    if (memory == MAP_FAILED)
        return udpfast_failed(outbox->problem, "map", path);
    header = (struct udpfast_outbox_header *) memory;
    slots = header->slots;
    capacity = header->capacity;
    if (slots < 2 || (slots & (slots - 1)) != 0 || slots > UINT32_MAX
        || (uint64_t) status.st_size - UDPFAST_OUTBOX_PAGE
               != sizeof(struct udpfast_outbox_entry) * slots + capacity) {
        munmap(memory, (size_t) status.st_size);
        return udpfast_say(outbox->problem, UDPFAST_BUS_FORMAT, "%.400s: %jd bytes are no outbox",
                           path, (intmax_t) status.st_size);
    }
    outbox->header = header;
    outbox->entries =
        (struct udpfast_outbox_entry *) (void *) ((uint8_t *) memory + UDPFAST_OUTBOX_PAGE);
    outbox->payloads = (uint8_t *) (outbox->entries + slots);
    outbox->slots = slots;
    outbox->capacity = capacity;
    outbox->mapped = (size_t) status.st_size;
    return 0;
}

/* Let a forked child know that the outbox is not its own: the kernel clears this page there. */
static inline int udpfast_outbox_own(struct udpfast_outbox *outbox)
{
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return udpfast_failed(outbox->problem, "own", outbox->path);
    outbox->ours = (uint8_t *) page;
    *outbox->ours = 1;
    if (madvise(page, 1, MADV_WIPEONFORK) != 0) /* from Linux 4.14 on */
        return udpfast_failed(outbox->problem, "mark as of one process", outbox->path);
    return 0;
}

/* Create a directory and its parents. */
static inline void udpfast_bus_make_directory(const char *directory)
{
    char path[sizeof(((struct udpfast_bus_live *) 0)->shared) + 1];
    char *at;
    snprintf(path, sizeof path, "%s", directory);
    for (at = path + 1; *at != 0; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    mkdir(path, 0700);
}

/* Close the outbox; the daemon still delivers its messages. Idempotent. */
static inline void udpfast_outbox_close(struct udpfast_outbox *outbox)
{
    if (outbox == NULL)
        return;
    if (outbox->header != NULL)
        munmap(outbox->header, outbox->mapped);
    if (outbox->live != NULL)
        munmap((void *) outbox->live, sizeof *outbox->live);
    if (outbox->ours != NULL) {
        if (*outbox->ours) /* a forked child may hold it, too */
            flock(outbox->file, LOCK_UN);
        munmap(outbox->ours, 1);
    }
    if (outbox->file >= 0)
        close(outbox->file);
    outbox->ours = NULL;
    if (outbox->bell >= 0)
        close(outbox->bell);
    outbox->header = NULL;
    outbox->live = NULL;
    outbox->file = outbox->bell = -1;
}

/* Open an app's outbox; create it if there is none. Returns 0.
 *
 * address: "store:NAME" or "store:/path": the copy of the store on this host. Its daemon must have
 * run once; while it does not run, messages are accepted and wait.
 * name: the sender's name, 1 to 31 printable bytes without '/'; one app at a time can use it.
 * slots, capacity: for a new outbox, the most messages (a power of two), and the most bytes of
 * messages, that it holds; 0: 65,536 and 64 MiB. An existing outbox continues: `header->accepted`
 * messages were accepted before.
 */
static inline int udpfast_outbox_open(struct udpfast_outbox *outbox, const char *address,
                                      const char *name, uint64_t slots, uint64_t capacity)
{
    char directory[PATH_MAX], bell[PATH_MAX + 48], *path;
    const struct udpfast_bus_live *live;
    struct stat status;
    size_t i, size;
    int result, fits;
    if (outbox == NULL)
        return UDPFAST_REFUSED;
    if (outbox->header != NULL)
        return udpfast_say_open(outbox->problem);
    path = outbox->path;
    name = name != NULL ? name : "";
    size = strlen(name);
    fits = size != 0 && size <= 31;
    memset(outbox, 0, sizeof *outbox);
    outbox->file = outbox->bell = -1;
    slots = slots != 0 ? slots : 65536;
    capacity = capacity != 0 ? capacity : 64 << 20;
    for (i = 0; fits && i < size; i++) /* it is part of a file name, and printed on one line */
        fits = (uint8_t) name[i] >= ' ' && name[i] != 0x7F && name[i] != '/';
    if (!fits)
        return udpfast_say(outbox->problem, UDPFAST_BUS_ADDRESS,
                           "name must be 1 to 31 printable bytes of UTF-8 without '/', was "
                           "'%.100s'", name);
    if (slots < 2 || (slots & (slots - 1)) != 0 || slots > UINT32_MAX
        || capacity < 2 * UDPFAST_SENT_SIZE_MAX)
        return udpfast_say(outbox->problem, UDPFAST_BUS_ADDRESS,
                           "slots must be a power of two, capacity at least %d, were %" PRIu64
                           " and %" PRIu64,
                           2 * UDPFAST_SENT_SIZE_MAX, slots, capacity);
    result = udpfast_bus_directory(address, directory, outbox->problem);
    if (result == 0)
        result = udpfast_bus_map_live(directory, &outbox->live, outbox->problem);
    if (result != 0)
        return result;
    live = outbox->live;
    errno = stat(directory, &status) != 0 ? errno : status.st_uid != geteuid() ? EPERM : 0;
    if (errno != 0) /* the daemon maps the outbox: a user who may write it could crash the daemon */
        result = udpfast_failed(outbox->problem, "send as another user than the daemon's into",
                                directory);
    else if (live->host[0] == 0)
        result = udpfast_say(outbox->problem, UDPFAST_BUS_NOT_READY,
                             "%.400s: its daemon runs an earlier version of udpfast: restart it",
                             directory);
    else if (live->by_feed)
        result = udpfast_say(outbox->problem, UDPFAST_BUS_BY_FEED,
                             "%.400s: a feed writes this store, so apps cannot", directory);
    snprintf(path, sizeof outbox->path, "%.*s/%s.outbox", (int) sizeof live->shared - 1, live->shared, name);
    if (result == 0 && access(path, F_OK) != 0) {
        udpfast_bus_make_directory(live->shared);
        result = udpfast_outbox_make(outbox, path, name, live->host, slots, capacity);
    }
    snprintf(bell, sizeof bell, "%.*s/bell", (int) sizeof live->shared - 1, live->shared);
    if (result == 0)
        outbox->file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (result == 0 && outbox->file < 0)
        result = udpfast_failed(outbox->problem, "open", path);
    if (result == 0)
        result = udpfast_outbox_lock(outbox, path);
    if (result == 0)
        result = udpfast_outbox_map(outbox, path);
    if (result == 0)
        result = udpfast_outbox_own(outbox);
    if (result != 0)
        udpfast_outbox_close(outbox);
    else /* for reading, too: without any reader, a write into a FIFO would fail */
        outbox->bell = open(bell, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    return result;
}

/* As udpfast_outbox_open, but set aside an outbox that can no longer deliver messages
 * (UDPFAST_UNSENT_LOST, UDPFAST_UNSENT_SUPERSEDED), and begin a new one with number 1. */
static inline int udpfast_outbox_open_anew(struct udpfast_outbox *outbox, const char *address,
                                           const char *name, uint64_t slots, uint64_t capacity)
{
    char aside[sizeof outbox->path + 32];
    int count, result = udpfast_outbox_open(outbox, address, name, slots, capacity);
    if (result != 0 || outbox->header->state < UDPFAST_OUTBOX_SUPERSEDED)
        return result;
    for (count = 1; count == 1 || access(aside, F_OK) == 0; count++)
        snprintf(aside, sizeof aside, "%s.aside-%d", outbox->path, count);
    if (rename(outbox->path, aside) != 0)
        result = udpfast_failed(outbox->problem, "set aside", outbox->path);
    udpfast_outbox_close(outbox);
    return result != 0 ? result : udpfast_outbox_open(outbox, address, name, slots, capacity);
}

/* Whether the daemon takes what the outbox holds: it works, and reaches the host that writes the
 * store. 0 as soon as it has given no sign of life for a second, and of a closed outbox. Messages
 * are accepted all the same, and delivered when the daemon is back, however late that is. */
static inline int udpfast_outbox_alive(const struct udpfast_outbox *outbox)
{
    return outbox != NULL && outbox->live != NULL && udpfast_bus_alive(outbox->live)
           && UDPFAST_LOAD_RELAXED(&outbox->live->following) != 0;
}

/* How many accepted messages the daemon has not seen in the stream yet. */
static inline uint64_t udpfast_outbox_unseen(const struct udpfast_outbox *outbox)
{
    return outbox == NULL || outbox->header == NULL
               ? 0
               : outbox->header->accepted - UDPFAST_LOAD_RELAXED(&outbox->header->seen);
}

/* Format why a message was not accepted; return `code`. */
static inline int udpfast_outbox_refuse(struct udpfast_outbox *outbox, int code, size_t size)
{
    const struct udpfast_outbox_header *header = outbox->header;
    uint64_t accepted;
    if (code == UDPFAST_UNSENT_CLOSED)
        return udpfast_say(outbox->problem, code, "%.400s: %s", outbox->path,
                           header == NULL ? "it is closed"
                                          : "a forked child cannot send, only the process that "
                                            "opened the outbox can");
    accepted = header->accepted;
    if (code == UDPFAST_UNSENT_TOO_LARGE)
        return udpfast_say(outbox->problem, code, "a message must have at most %d bytes, has %zu",
                           UDPFAST_SENT_SIZE_MAX, size);
    if (code == UDPFAST_UNSENT_SUPERSEDED)
        return udpfast_say(outbox->problem, code,
                           "another process has taken over the name %.31s: %" PRIu64
                           " accepted messages are not in the stream",
                           header->name, accepted - header->seen);
    if (code == UDPFAST_UNSENT_LOST)
        return udpfast_say(outbox->problem, code,
                           "not all of the %" PRIu64 " messages of %.31s that were in the "
                           "stream are still there: the hosts that had the others lost them",
                           header->freed, header->name);
    return udpfast_say(outbox->problem, code,
                       "the outbox is full: %" PRIu64 " messages, %" PRIu64 " bytes, are on "
                       "their way (at most %" PRIu64 " and %" PRIu64 ")",
                       accepted - header->freed, header->filled - header->emptied,
                       outbox->slots, outbox->capacity);
}

/* Put a message into the outbox. Returns its number, which counts from 1, or UDPFAST_UNSENT_*.
 *
 * The message appears in the stream as (name, number). If the outbox is full, no message is
 * dropped: send this one again later.
 */
static inline int64_t udpfast_outbox_send(struct udpfast_outbox *outbox, const void *payload,
                                          size_t size, uint16_t type)
{
    struct udpfast_outbox_header *header;
    uint64_t number, offset;
    uint32_t state;
    struct udpfast_outbox_entry entry;
    if (outbox == NULL)
        return UDPFAST_REFUSED;
    if (outbox->ours == NULL || *outbox->ours == 0)
        return udpfast_outbox_refuse(outbox, UDPFAST_UNSENT_CLOSED, size);
    if (payload == NULL && size != 0)
        return udpfast_say(outbox->problem, UDPFAST_REFUSED,
                           "payload must not be NULL, as size is %zu", size);
    header = outbox->header;
    number = header->accepted + 1;
    offset = header->filled;
    state = __atomic_load_n(&header->state, __ATOMIC_RELAXED);
    if (size > UDPFAST_SENT_SIZE_MAX)
        return udpfast_outbox_refuse(outbox, UDPFAST_UNSENT_TOO_LARGE, size);
    if (state >= UDPFAST_OUTBOX_SUPERSEDED)
        return udpfast_outbox_refuse(
            outbox,
            state == UDPFAST_OUTBOX_LOST ? UDPFAST_UNSENT_LOST : UDPFAST_UNSENT_SUPERSEDED, size);
    if (offset % outbox->capacity + size > outbox->capacity) /* a payload must be contiguous */
        offset += outbox->capacity - offset % outbox->capacity;
    /* Acquire: the daemon (OutboxSender) stores these once it no longer reads what it freed. */
    if (number - UDPFAST_LOAD_ACQUIRE(&header->freed) > outbox->slots
        || offset + size - UDPFAST_LOAD_ACQUIRE(&header->emptied) > outbox->capacity)
        return udpfast_outbox_refuse(outbox, UDPFAST_UNSENT_FULL, size);
    if (size != 0)
        memcpy(outbox->payloads + offset % outbox->capacity, payload, size);
    memset(&entry, 0, sizeof entry);
    entry.offset = offset;
    entry.size = (uint32_t) size;
    entry.type = type;
    entry.emptied = offset + size;
    outbox->entries[number & (outbox->slots - 1)] = entry;
    header->filled = offset + size;
    /* Orders payload and entry before the number; read by the daemon. */
    __atomic_store_n(&header->accepted, number, __ATOMIC_RELEASE);
    /* The daemon sets `asleep` before it last reads `accepted`: one of the two sees the other. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&header->asleep, __ATOMIC_RELAXED) != 0 && outbox->bell >= 0) {
        ssize_t rung = write(outbox->bell, "", 1); /* a full FIFO wakes the daemon anyway */
        (void) rung;
    }
    return (int64_t) number;
}

/* --- reading ----------------------------------------------------------------------------------- */

#define UDPFAST_STORE_OLDEST UINT64_MAX       /* start with the oldest record that is kept */
#define UDPFAST_STORE_TAIL (UINT64_MAX - 1)   /* start with the next record that arrives */

enum { /* StoreFound: what udpfast_store_next returns */
    UDPFAST_STORE_NOTHING = 0,  /* there is no further record yet */
    UDPFAST_STORE_RECORD = 1,
    UDPFAST_STORE_ROLLBACK = 2, /* the last `count` records read are no longer in the stream */
    UDPFAST_STORE_MISSED = 3,   /* `count` records were removed before they were read */
};

/* Most records whose rollback a reader can count. */
enum { UDPFAST_STORE_BACK = 1 << 16 };

/* What a reader remembers of the stream. */
struct udpfast_store_memory {
    char senders[UDPFAST_SENDERS_MAX + 1][32];    /* names, by number */
    uint64_t positions[UDPFAST_STORE_BACK];       /* of the last records read, a circular buffer */
    uint32_t checksums[UDPFAST_STORE_BACK];       /* of the same records */
};

/* A mapped segment file. */
struct udpfast_store_segment {
    const struct udpfast_segment_header *header; /* NULL: none */
    const uint8_t *records;
    uint64_t limit; /* bytes of room for records */
    size_t mapped;
};

/* A cursor in this host's copy of a store. */
struct udpfast_store {
    const struct udpfast_bus_live *live; /* how far the copy is, as its daemon states */
    uint64_t position;                   /* of the next record; pass it to continue from here */
    uint64_t index;                      /* of the next record */
    uint64_t count; /* number of records: see StoreFound */
    uint64_t noted; /* records ever read, less those taken back */
    uint64_t cuts;  /* live->cuts when last seen: it grows when records are set aside */
    struct udpfast_store_segment segment;
    struct udpfast_store_memory *memory;
    char directory[PATH_MAX];
    char problem[UDPFAST_PROBLEM_SIZE];
};

/* The number of a message's sender in this store, and its type; for records of kind BUS only. */
static inline uint16_t udpfast_message_sender(const struct udpfast_record *record)
{
    return (uint16_t) record->object;
}

static inline uint16_t udpfast_message_type(const struct udpfast_record *record)
{
    return (uint16_t) (record->object >> 16);
}

/* The name of a sender; empty if its registration has not been read. */
static inline const char *udpfast_store_sender(const struct udpfast_store *store, uint16_t number)
{
    return store == NULL || store->memory == NULL
               ? ""
               : store->memory->senders[number <= UDPFAST_SENDERS_MAX ? number : 0];
}

static inline void udpfast_segment_unmap(struct udpfast_store_segment *segment)
{
    if (segment->header != NULL)
        munmap((void *) segment->header, segment->mapped);
    segment->header = NULL;
}

/* Map a segment. Returns 1; 0: there is no such file. */
static inline int udpfast_segment_map(struct udpfast_store *store, uint64_t number,
                                      struct udpfast_store_segment *segment)
{
    char path[PATH_MAX + 32];
    struct stat status;
    const struct udpfast_segment_header *header;
    void *memory;
    int file;
    snprintf(path, sizeof path, "%s/%08" PRIu64 ".segment", store->directory, number);
    file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return errno == ENOENT ? 0 : udpfast_failed(store->problem, "open", path);
    if (fstat(file, &status) != 0 || status.st_size < UDPFAST_SEGMENT_PAGE) {
        close(file);
        return udpfast_say(store->problem, UDPFAST_BUS_FORMAT, "%.400s: cut short", path);
    }
    memory = mmap(NULL, (size_t) status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return udpfast_failed(store->problem, "map", path);
    header = (const struct udpfast_segment_header *) memory;
    if (memcmp(header->magic, "UDPFSEG", 8) != 0 || header->version != UDPFAST_SEGMENT_VERSION
        || header->layout_hash != UDPFAST_SEGMENT_LAYOUT || header->number != number
        || (uint64_t) status.st_size < header->first_byte) {
        munmap(memory, (size_t) status.st_size);
        return udpfast_say(store->problem, UDPFAST_BUS_FORMAT,
                           "%.400s: expected this segment in this version's format, found other bytes",
                           path);
    }
    segment->header = header;
    segment->records = (const uint8_t *) memory + header->first_byte;
    segment->limit = (uint64_t) status.st_size - header->first_byte;
    segment->limit = segment->limit < header->capacity ? segment->limit : header->capacity;
    segment->mapped = (size_t) status.st_size;
    return 1;
}

/* The number in the name of a segment's file; 0: it is another file. */
static inline uint64_t udpfast_segment_number(const char *name)
{
    char *end;
    uint64_t number = strtoull(name, &end, 10);
    return end - name >= 8 && strcmp(end, ".segment") == 0 ? number : 0;
}

/* The lowest segment number that is at least `least`; 0: there is none. */
static inline uint64_t udpfast_segment_next(const char *directory, uint64_t least)
{
    DIR *folder = opendir(directory);
    struct dirent *entry;
    uint64_t found = 0;
    if (folder == NULL)
        return 0;
    while ((entry = readdir(folder)) != NULL) {
        uint64_t number = udpfast_segment_number(entry->d_name);
        if (number >= least && number != 0 && (found == 0 || number < found))
            found = number;
    }
    closedir(folder);
    return found;
}

/* The record at a position of a segment; NULL: none is there yet, or the segment ends there. */
static inline const struct udpfast_record *
udpfast_segment_record(const struct udpfast_store_segment *segment, uint64_t position, int *ended)
{
    uint64_t offset = position - segment->header->position, word = 0;
    *ended = offset + UDPFAST_SEGMENT_END_SIZE > segment->limit;
    if (!*ended) /* acquire: the record's bytes are read after its commit word */
        word = UDPFAST_LOAD_ACQUIRE((const uint64_t *) (const void *) (segment->records + offset));
    if (word == (UDPFAST_SEGMENT_END_SIZE | (uint64_t) UDPFAST_KIND_PAD << 32))
        *ended = 1;
    if (*ended || word == 0 || (uint32_t) word < UDPFAST_RECORD_SIZE
        || (uint32_t) word > segment->limit - offset)
        return NULL;
    return (const struct udpfast_record *) (segment->records + offset);
}

/* Map the last segment that begins at or before a position. Returns 1; 0: there is none. */
static inline int udpfast_segment_find(struct udpfast_store *store, uint64_t position,
                                       struct udpfast_store_segment *segment)
{
    DIR *folder = opendir(store->directory);
    struct dirent *entry;
    int result = 0;
    segment->header = NULL;
    if (folder == NULL)
        return udpfast_failed(store->problem, "list", store->directory);
    while (result >= 0 && (entry = readdir(folder)) != NULL) {
        struct udpfast_store_segment other;
        uint64_t number = udpfast_segment_number(entry->d_name);
        result = number != 0 ? udpfast_segment_map(store, number, &other) : 0;
        if (result <= 0)
            continue; /* another file, or one that has just been removed */
        if (other.header->position > position
            || (segment->header != NULL && other.header->number < segment->header->number)) {
            udpfast_segment_unmap(&other);
            continue;
        }
        udpfast_segment_unmap(segment);
        *segment = other;
    }
    closedir(folder);
    if (result >= 0)
        return segment->header != NULL;
    udpfast_segment_unmap(segment);
    return result;
}

/* Remember the senders that a record registers. */
static inline void udpfast_store_note(struct udpfast_store *store,
                                      const struct udpfast_record *record)
{
    const struct udpfast_sender_entry *entries =
        (const struct udpfast_sender_entry *) udpfast_record_payload(record);
    uint32_t i, count = udpfast_record_payload_size(record) / (uint32_t) sizeof *entries;
    if (record->kind != UDPFAST_KIND_SENDER && record->kind != UDPFAST_KIND_SENDERS)
        return;
    for (i = 0; i < count; i++) {
        if (entries[i].sender <= UDPFAST_SENDERS_MAX)
            memcpy(store->memory->senders[entries[i].sender], entries[i].name, 31);
    }
}

/* Move to a position. Learns the senders registered before it in its segment. Returns 0. */
static inline int udpfast_store_stand(struct udpfast_store *store, uint64_t position)
{
    const struct udpfast_record *record;
    uint64_t oldest = udpfast_segment_next(store->directory, 1);
    int ended, result;
    udpfast_segment_unmap(&store->segment);
    store->position = position;
    store->index = 0;
    if (position == UDPFAST_STORE_TAIL)
        position = UDPFAST_LOAD_ACQUIRE(&store->live->end);
    if (oldest == 0 && (position == 0 || store->position >= UDPFAST_STORE_TAIL)) {
        /* The copy has no record yet. */
        store->position = store->position == 0 ? 0 : UDPFAST_STORE_OLDEST;
        return 0;
    }
    if (position == UDPFAST_STORE_OLDEST) {
        result = udpfast_segment_map(store, oldest, &store->segment);
        position = result > 0 ? store->segment.header->position : 0;
    } else
        result = udpfast_segment_find(store, position, &store->segment);
    if (result < 0)
        return result;
    if (result == 0) {
        uint64_t kept = 0;
        if (udpfast_segment_map(store, oldest, &store->segment) > 0)
            kept = store->segment.header->position;
        return udpfast_say(store->problem, UDPFAST_BUS_PLACE,
                           "start must be position %" PRIu64
                           " or later, the oldest that is kept, was %" PRIu64, kept, position);
    }
    store->index = store->segment.header->index;
    store->position = store->segment.header->position;
    while (store->position < position) {
        record = udpfast_segment_record(&store->segment, store->position, &ended);
        if (record == NULL)
            break;
        udpfast_store_note(store, record);
        store->position += ((uint64_t) record->length + 7) & ~(uint64_t) 7;
        store->index++;
    }
    if (store->position == position)
        return 0;
    return udpfast_say(store->problem, UDPFAST_BUS_PLACE,
                       "no record begins at %" PRIu64 ": the next one is at %" PRIu64, position,
                       store->position);
}

/* Unmap the store, and free the reader's memory. Idempotent. */
static inline void udpfast_store_close(struct udpfast_store *store)
{
    if (store == NULL)
        return;
    udpfast_segment_unmap(&store->segment);
    if (store->live != NULL)
        munmap((void *) store->live, sizeof *store->live);
    free(store->memory);
    store->live = NULL;
    store->memory = NULL;
}

/* Open this host's copy of a store. Returns 0.
 *
 * start: the `position` at which an earlier reader ended, UDPFAST_STORE_OLDEST or
 * UDPFAST_STORE_TAIL.
 */
static inline int udpfast_store_open(struct udpfast_store *store, const char *address,
                                     uint64_t start)
{
    int result;
    if (store == NULL)
        return UDPFAST_REFUSED;
    if (store->live != NULL)
        return udpfast_say_open(store->problem);
    memset(store, 0, sizeof *store);
    result = udpfast_bus_directory(address, store->directory, store->problem);
    if (result == 0)
        result = udpfast_bus_map_live(store->directory, &store->live, store->problem);
    if (result != 0)
        return result;
    store->cuts = UDPFAST_LOAD_ACQUIRE(&store->live->cuts);
    store->memory = (struct udpfast_store_memory *) calloc(1, sizeof *store->memory);
    if (store->memory == NULL)
        result = udpfast_failed(store->problem, "remember", store->directory);
    if (result == 0)
        result = udpfast_store_stand(store, start);
    if (result != 0)
        udpfast_store_close(store);
    return result;
}

/* Records may have been set aside: continue behind the last one that is still there. */
static inline int udpfast_store_find_back(struct udpfast_store *store, uint64_t cuts)
{
    struct udpfast_store_memory *memory = store->memory;
    struct udpfast_store_segment segment = {NULL, NULL, 0, 0};
    uint64_t most = UDPFAST_STORE_BACK, known = store->noted < most ? store->noted : most;
    uint64_t gone, position = store->position, at;
    int ended, result;
    for (gone = 0; gone < known; gone++) {
        const struct udpfast_record *record;
        at = (store->noted - gone - 1) % UDPFAST_STORE_BACK;
        if (segment.header == NULL || segment.header->position > memory->positions[at]) {
            udpfast_segment_unmap(&segment);
            result = udpfast_segment_find(store, memory->positions[at], &segment);
            if (result < 0)
                return result;
            if (result == 0)
                break; /* removed with its segment: records that are set aside are not that old */
        }
        record = udpfast_segment_record(&segment, memory->positions[at], &ended);
        if (record != NULL && record->position == memory->positions[at]
            && record->checksum == memory->checksums[at])
            break;
        position = memory->positions[at];
    }
    udpfast_segment_unmap(&segment);
    if (gone == known && store->noted > known)
        return udpfast_say(store->problem, UDPFAST_BUS_PLACE,
                           "more than %d records that had been read were taken back",
                           UDPFAST_STORE_BACK);
    store->cuts = cuts;
    store->noted -= gone;
    store->count = gone;
    if (gone != 0) /* senders may have other numbers now */
        memset(memory->senders, 0, sizeof memory->senders);
    at = store->index - gone;
    result = udpfast_store_stand(store, position);
    if (result == UDPFAST_BUS_PLACE && gone == 0) { /* its segment has been removed meanwhile */
        udpfast_segment_unmap(&store->segment);
        store->position = position;
        store->index = at;
        result = 0;
    }
    return result != 0 ? result : gone != 0 ? UDPFAST_STORE_ROLLBACK : UDPFAST_STORE_NOTHING;
}

/* Continue in the next segment. Returns 1 or UDPFAST_STORE_MISSED; 0: there is none yet. */
static inline int udpfast_store_enter(struct udpfast_store *store)
{
    struct udpfast_store_segment next;
    uint64_t number = store->segment.header != NULL ? store->segment.header->number + 1 : 1;
    int result = udpfast_segment_map(store, number, &next);
    while (result == 0) {
        number = udpfast_segment_next(store->directory, number);
        if (number == 0)
            return 0;
        result = udpfast_segment_map(store, number, &next);
        if (result > 0 && next.header->position + next.limit <= store->position) {
            udpfast_segment_unmap(&next); /* all of it has been read already */
            number++;
            result = 0;
        }
    }
    if (result < 0)
        return result;
    if (store->position == UDPFAST_STORE_OLDEST)
        store->index = next.header->index;
    if (next.header->index < store->index) {
        udpfast_segment_unmap(&next);
        return udpfast_say(store->problem, UDPFAST_BUS_FORMAT,
                           "%.200s: segment %" PRIu64 " begins with record %" PRIu64
                           ", expected %" PRIu64,
                           store->directory, number, (uint64_t) next.header->index,
                           store->index);
    }
    udpfast_segment_unmap(&store->segment);
    store->segment = next;
    store->count = next.header->index - store->index;
    store->position = next.header->position;
    store->index = next.header->index;
    return store->count != 0 ? UDPFAST_STORE_MISSED : 1;
}

/* Get the next record. Returns StoreFound, or a number below 0: see `problem`.
 *
 * record: points into the store's mapped segment; valid until the next call.
 */
static inline int udpfast_store_next(struct udpfast_store *store,
                                     const struct udpfast_record **record)
{
    uint64_t cuts;
    int ended, result;
    if (store == NULL)
        return UDPFAST_REFUSED;
    if (record == NULL)
        return udpfast_say(store->problem, UDPFAST_REFUSED, "record must not be NULL");
    *record = NULL;
    if (store->live == NULL)
        return udpfast_say(store->problem, UDPFAST_CLOSED,
                           "the store is not open: call udpfast_store_open first");
    cuts = UDPFAST_LOAD_ACQUIRE(&store->live->cuts);
    if (cuts != store->cuts) {
        result = udpfast_store_find_back(store, cuts);
        if (result != 0)
            return result;
    }
    for (;;) {
        ended = store->segment.header == NULL;
        if (!ended)
            *record = udpfast_segment_record(&store->segment, store->position, &ended);
        if (!ended)
            break;
        result = udpfast_store_enter(store);
        if (result != 1)
            return result;
    }
    if (*record == NULL)
        return UDPFAST_STORE_NOTHING;
    /* Records that too few copies have are not shown yet. Acquire: what the daemon stated about
     * copies before holds for these records. */
    if (UDPFAST_LOAD_ACQUIRE(&store->live->gate) != 0
        && store->position >= UDPFAST_LOAD_ACQUIRE(&store->live->released))
        return UDPFAST_STORE_NOTHING;
    if ((*record)->position != store->position || (*record)->index != store->index)
        return udpfast_say(store->problem, UDPFAST_BUS_FORMAT,
                           "%.200s: expected record %" PRIu64 " at %" PRIu64
                           ", found other bytes",
                           store->directory, store->index, store->position);
    udpfast_store_note(store, *record);
    store->memory->positions[store->noted % UDPFAST_STORE_BACK] = store->position;
    store->memory->checksums[store->noted % UDPFAST_STORE_BACK] = (*record)->checksum;
    store->noted++;
    store->position += ((uint64_t) (*record)->length + 7) & ~(uint64_t) 7;
    store->index++;
    return UDPFAST_STORE_RECORD;
}

#if defined(__cplusplus)
#pragma GCC diagnostic pop
#endif

#endif
