/* The floor: what the bare kernel and bare shared memory cost, without any of our work.
 *
 * Built by the benchmarks alone, as a shared library that they load (floor.py): so the floor runs
 * in the same process, on the same pinned threads and sockets, between the trials of the product,
 * warmed up as it is. Every function takes what it needs and keeps nothing.
 *
 * A datagram here: 16 bytes of frame (its seqno at 8), then 8 bytes of CLOCK_MONOTONIC, the time
 * at which it was to be sent. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { BATCH = 64, SLOT = 2048, TRAIN = 65536, CONTROL = 128, SEQNO_AT = 8, TIME_AT = 16 };
enum mode { RECVMMSG = 0, RECV = 1, STAMPS = 2, GRO = 3, RECORDS = 4, PROMISED = 5 };

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void rest(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline uint32_t seqno_at(const uint8_t *datagram) {
    uint32_t seqno;
    memcpy(&seqno, datagram + SEQNO_AT, sizeof seqno);
    return seqno;
}

/* --- receive only ---------------------------------------------------------------------------- */

struct batch {
    struct mmsghdr headers[BATCH];
    struct iovec vectors[BATCH];
    _Alignas(64) uint8_t controls[BATCH][CONTROL];
};
static struct batch batch;               /* zeroed, and touched by batch_init */
static _Alignas(4096) uint8_t slots[BATCH * SLOT];
static _Alignas(4096) uint8_t trains[BATCH][TRAIN];

static void batch_init(enum mode mode) {
    for (int i = 0; i < BATCH; i++) {
        struct msghdr *h = &batch.headers[i].msg_hdr;
        memset(h, 0, sizeof *h);
        batch.vectors[i].iov_base = mode == GRO ? trains[i] : slots + i * SLOT;
        batch.vectors[i].iov_len = mode == GRO ? TRAIN : SLOT;
        h->msg_iov = &batch.vectors[i];
        h->msg_iovlen = 1;
        if (mode == STAMPS || mode == GRO) {
            h->msg_control = batch.controls[i];
            h->msg_controllen = CONTROL;
        }
    }
}

/* The size of the datagrams of a train: a control message, if there is more than one. */
static uint32_t train_datagram_size(struct msghdr *h, uint32_t length) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            return (uint32_t)size;
        }
    return length;
}

static int64_t take_bare(int fd, uint64_t *sum) {
    int64_t total = 0;
    for (;;) {
        int count = recvmmsg(fd, batch.headers, BATCH, MSG_DONTWAIT, NULL);
        if (count <= 0)
            return total;
        for (int i = 0; i < count; i++)
            *sum += seqno_at(slots + i * SLOT);
        total += count;
    }
}

static int64_t take_single(int fd, uint64_t *sum) {
    int64_t total = 0;
    while (recv(fd, slots, SLOT, MSG_DONTWAIT) >= 0) {
        *sum += seqno_at(slots);
        total++;
    }
    return total;
}

/* Stamps are looked at: a receiver that asks for them wants them. */
static int64_t take_stamped(int fd, uint64_t *sum, int64_t *stamped) {
    int64_t total = 0;
    for (;;) {
        int count = recvmmsg(fd, batch.headers, BATCH, MSG_DONTWAIT, NULL);
        if (count <= 0)
            return total;
        for (int i = 0; i < count; i++) {
            struct cmsghdr *c = CMSG_FIRSTHDR(&batch.headers[i].msg_hdr);
            struct timespec t = {0, 0};
            if (c)
                memcpy(&t, CMSG_DATA(c), sizeof t);
            *stamped += t.tv_sec != 0;
            *sum += seqno_at(slots + i * SLOT);
            batch.headers[i].msg_hdr.msg_controllen = CONTROL;
        }
        total += count;
    }
}

static int64_t take_trains(int fd, uint64_t *sum) {
    int64_t total = 0;
    for (;;) {
        int count = recvmmsg(fd, batch.headers, BATCH, MSG_DONTWAIT, NULL);
        if (count <= 0)
            return total;
        for (int i = 0; i < count; i++) {
            uint32_t length = batch.headers[i].msg_len;
            uint32_t size = train_datagram_size(&batch.headers[i].msg_hdr, length);
            for (uint32_t at = 0; at < length; at += size) {
                *sum += seqno_at(trains[i] + at);
                total++;
            }
            batch.headers[i].msg_hdr.msg_controllen = CONTROL;
        }
    }
}

/* MoldUDP64: each message is copied behind a head of its own into a ring of the product's size, as a
 * reader in another process could take it. Neither order nor session is looked at. */
enum { HEADER = 20, RECORD_HEAD = 64, RING = 1 << 26, LONGEST = 2 * SLOT };
struct record_head { _Atomic uint32_t length; uint32_t stream; uint64_t number; int64_t received_ns; };
static _Alignas(4096) uint8_t records[RING + LONGEST];

static inline uint32_t big_endian_16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static int64_t take_records(int fd, uint64_t *sum, int64_t *messages) {
    static uint64_t at = 0, number = 0;
    int64_t total = 0;
    for (;;) {
        int count = recvmmsg(fd, batch.headers, BATCH, MSG_DONTWAIT, NULL);
        int64_t received_ns = now_ns();
        if (count <= 0)
            return total;
        for (int i = 0; i < count; i++) {
            const uint8_t *datagram = slots + i * SLOT, *message = datagram + HEADER;
            const uint8_t *end = datagram + batch.headers[i].msg_len;
            while (end - message > 2) {
                uint32_t length = big_endian_16(message);
                if (length > end - message - 2)
                    break;
                struct record_head *head = (void *)(records + at);
                memcpy((uint8_t *)head + RECORD_HEAD, message + 2, length);
                head->stream = 0;
                head->number = ++number;
                head->received_ns = received_ns;
                atomic_store_explicit(&head->length, length, memory_order_release);
                at = (at + RECORD_HEAD + length + 63) / 64 * 64 % RING;
                message += 2 + length;
                ++*messages;
            }
            *sum += seqno_at(datagram);
        }
        total += count;
    }
}

/* The same, with what a reader of the product is promised: a datagram is sound to its last byte before
 * any of it is used, of this session and next in order, or nothing of it is taken. Each message is a
 * record with the product's header; a word of 0 lies behind the last one. Tools find the end, which is
 * said once for each datagram. What is missing: holes, what comes early, copies, other lines and
 * streams, counters, and any reader who might be lapped. */
struct record_header {
    _Atomic uint64_t commit;             /* length, kind, line, flags: stored last */
    uint64_t position, index;
    int64_t received_ns, published_ns;
    uint64_t number;
    uint32_t object;
    int32_t flight_ns;
    uint16_t stream, session;
    uint32_t checksum;
};

static int whole(const uint8_t *datagram, uint32_t size) {
    uint32_t count, at = HEADER;
    if (size < HEADER)
        return 0;
    count = big_endian_16(datagram + HEADER - 2);
    while (count--) {
        if (size - at < 2)
            return 0;
        at += 2 + big_endian_16(datagram + at);
        if (at > size)
            return 0;
    }
    return at == size;
}

static int64_t take_promised(int fd, uint64_t *sum, int64_t *messages) {
    static uint64_t position = 0, index = 0;
    static _Atomic uint64_t tail;
    uint64_t expected = 0, session = 0; /* each burst begins a numbering, as a trial may */
    int64_t total = 0;
    for (;;) {
        int count = recvmmsg(fd, batch.headers, BATCH, MSG_DONTWAIT, NULL);
        int64_t received_ns = now_ns();
        if (count <= 0)
            return total;
        for (int i = 0; i < count; i++) {
            const uint8_t *datagram = slots + i * SLOT, *message = datagram + HEADER;
            uint64_t number, of;
            memcpy(&of, datagram, sizeof of);
            memcpy(&number, datagram + 10, sizeof number);
            number = __builtin_bswap64(number);
            *sum += seqno_at(datagram);
            if (!whole(datagram, batch.headers[i].msg_len))
                continue;
            if (expected == 0)
                expected = number, session = of;
            if (number != expected || of != session)
                continue;
            expected += big_endian_16(datagram + HEADER - 2);
            for (; number < expected; number++) {
                uint32_t length = big_endian_16(message);
                uint64_t size = (RECORD_HEAD + length + 7) / 8 * 8;
                if (position % RING + size > RING)
                    position += RING - position % RING;
                struct record_header *record = (void *)(records + position % RING);
                memcpy((uint8_t *)record + size - 8, &(uint64_t){0}, 8);
                memcpy((uint8_t *)record + RECORD_HEAD, message + 2, length);
                record->position = position;
                record->index = index++;
                record->received_ns = record->published_ns = received_ns;
                record->number = number;
                record->object = 0;
                record->flight_ns = INT32_MIN;
                record->stream = 0;
                record->session = 1;
                record->checksum = 0;
                memset(records + (position + size) % RING, 0, 8);
                atomic_store_explicit(&record->commit, (RECORD_HEAD + length) | 2ull << 32,
                                      memory_order_release);
                position += size;
                message += 2 + length;
                ++*messages;
            }
            atomic_store_explicit(&tail, position, memory_order_release);
        }
        total += count;
    }
}

/* Takes everything that waits. Returns the nanoseconds; *count datagrams, *sum of their seqnos,
 * *found: of STAMPS, how many had a time stamp; of RECORDS and PROMISED, the messages. */
int64_t floor_drain(int fd, int mode, int64_t *count, uint64_t *sum, int64_t *found) {
    batch_init((enum mode)mode);
    if (mode >= RECORDS && records[0] == 0)
        memset(records, 1, sizeof records); /* touched, as the product's ring is */
    *sum = 0;
    *found = 0;
    int64_t started_ns = now_ns();
    switch (mode) {
    case RECV: *count = take_single(fd, sum); break;
    case STAMPS: *count = take_stamped(fd, sum, found); break;
    case RECORDS: *count = take_records(fd, sum, found); break;
    case PROMISED: *count = take_promised(fd, sum, found); break;
    case GRO: *count = take_trains(fd, sum); break;
    default: *count = take_bare(fd, sum);
    }
    return now_ns() - started_ns;
}

/* --- one way over a socket ------------------------------------------------------------------- */

/* Sends `count` datagrams, the i-th when start + i / rate has come; one that is late leaves at
 * once and still carries the time at which it was due. Returns how many left. */
int64_t floor_send(int fd, uint32_t size, double rate, int64_t count, int64_t start_ns) {
    uint8_t datagram[SLOT] = {2};
    int64_t sent = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t due_ns = start_ns + (int64_t)((double)i * 1e9 / rate);
        uint32_t seqno = (uint32_t)(i + 1);
        memcpy(datagram + SEQNO_AT, &seqno, sizeof seqno);
        memcpy(datagram + TIME_AT, &due_ns, sizeof due_ns);
        while (now_ns() < due_ns)
            rest();
        sent += send(fd, datagram, size, 0) == (ssize_t)size;
    }
    return sent;
}

/* Spins on recv until `count` datagrams came, or none for idle_ns. latency_ns[] gets, in the order
 * of arrival, clock after the receive call minus the time due. Returns how many came; *misordered
 * how many of them not next in order. */
int64_t floor_receive(int fd, int64_t count, int64_t idle_ns, int64_t *latency_ns,
                      int64_t *misordered) {
    int64_t total = 0, last_ns = now_ns();
    uint32_t expected = 1;
    *misordered = 0;
    while (total < count) {
        ssize_t size = recv(fd, slots, SLOT, MSG_DONTWAIT);
        if (size < TIME_AT + 8) {
            if (now_ns() - last_ns > idle_ns)
                break;
            continue;
        }
        int64_t due_ns;
        last_ns = now_ns();
        memcpy(&due_ns, slots + TIME_AT, sizeof due_ns);
        latency_ns[total++] = last_ns - due_ns;
        *misordered += seqno_at(slots) != expected;
        expected = seqno_at(slots) + 1;
    }
    return total;
}

/* --- a broadcast ring of fixed slots ----------------------------------------------------------- */

/* One writer, one reader. Slot: its sequence word, then the message. The reader waits on the word
 * of the very slot that it needs; the writer waits only when the reader is a whole ring behind
 * (its cursor, written every RING_STEP messages), so that nothing is lost. */
enum { RING_STEP = 64 };

struct ring {
    _Alignas(128) _Atomic uint64_t cursor;
    _Alignas(128) _Atomic uint64_t readers;
    _Alignas(128) uint8_t slots[];
};

uint64_t floor_ring_bytes(uint32_t size, uint64_t capacity) {
    return sizeof(struct ring) + capacity * size;
}

static inline uint8_t *ring_slot(struct ring *ring, uint64_t at, uint32_t size, uint64_t capacity) {
    return ring->slots + (at & (capacity - 1)) * size;
}

/* Writes `count` messages of `size` bytes, the sequence word included (capacity: a power of two).
 * rate 0: as fast as it goes; otherwise open loop as in floor_send. A message begins with the time
 * at which it was due. Waits for the reader first. Returns the nanoseconds from there. */
int64_t floor_ring_write(struct ring *ring, uint32_t size, uint64_t capacity, uint64_t count,
                         double rate) {
    uint8_t message[1024] = {1};
    uint64_t behind = 0;
    while (atomic_load_explicit(&ring->readers, memory_order_acquire) == 0)
        rest();
    int64_t started_ns = now_ns();
    for (uint64_t i = 0; i < count; i++) {
        if (rate > 0) {
            int64_t due_ns = started_ns + (int64_t)((double)i * 1e9 / rate);
            while (now_ns() < due_ns)
                rest();
            memcpy(message, &due_ns, sizeof due_ns);
        }
        while (i - behind >= capacity)
            behind = atomic_load_explicit(&ring->cursor, memory_order_acquire);
        uint8_t *slot = ring_slot(ring, i, size, capacity);
        memcpy(slot + 8, message, size - 8);
        atomic_store_explicit((_Atomic uint64_t *)slot, i + 1, memory_order_release);
    }
    return now_ns() - started_ns;
}

/* Reads and copies out `count` messages. latency_ns: NULL, or one entry per message. Returns the
 * nanoseconds from the first message to the last; *wrong counts sequence words beyond the next. */
int64_t floor_ring_read(struct ring *ring, uint32_t size, uint64_t capacity, uint64_t count,
                        int64_t *latency_ns, int64_t *wrong) {
    uint8_t message[1024];
    int64_t started_ns = 0;
    *wrong = 0;
    atomic_store_explicit(&ring->readers, 1, memory_order_release);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *slot = ring_slot(ring, i, size, capacity);
        _Atomic uint64_t *sequence = (_Atomic uint64_t *)slot;
        uint64_t seen;
        while ((seen = atomic_load_explicit(sequence, memory_order_acquire)) < i + 1)
            ;
        *wrong += seen != i + 1;
        memcpy(message, slot + 8, size - 8);
        __asm__ volatile("" ::"r"(message) : "memory"); /* the whole copy is made */
        if (i == 0)
            started_ns = now_ns();
        if (latency_ns) {
            int64_t due_ns;
            memcpy(&due_ns, message, sizeof due_ns);
            latency_ns[i] = now_ns() - due_ns;
        }
        if ((i + 1) % RING_STEP == 0)
            atomic_store_explicit(&ring->cursor, i + 1, memory_order_release);
    }
    return now_ns() - started_ns;
}
