enum {
    UDPFAST_SYSTEM = -16, /* a system call failed: see `errno` */
    UDPFAST_PROBLEM_SIZE = 512,
};

#define UDPFAST_LOAD_ACQUIRE(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)
#define UDPFAST_LOAD_RELAXED(pointer) __atomic_load_n((pointer), __ATOMIC_RELAXED)

/* Format an error message into `problem`, keep errno, and return `code`. */
__attribute__((format(printf, 3, 4))) static inline int udpfast_say(char *problem, int code,
                                                                    const char *format, ...)
{
    int error = errno;
    va_list words;
    va_start(words, format);
    vsnprintf(problem, UDPFAST_PROBLEM_SIZE, format, words);
    va_end(words);
    errno = error;
    return code;
}

/* Format the message of a system call that failed for a file, and return UDPFAST_SYSTEM. */
static inline int udpfast_failed(char *problem, const char *what, const char *path)
{
    return udpfast_say(problem, UDPFAST_SYSTEM, "%s %.400s: %s", what, path, strerror(errno));
}

static inline const void *udpfast_record_payload(const struct udpfast_record *record)
{
    return record + 1;
}

static inline uint32_t udpfast_record_payload_size(const struct udpfast_record *record)
{
    return (uint32_t) record->length - UDPFAST_RECORD_SIZE;
}

/* Time between two clock readings, of which one may be any number. */
static inline int64_t udpfast_ns_between(int64_t from_ns, int64_t to_ns)
{
    return (int64_t) ((uint64_t) to_ns - (uint64_t) from_ns);
}

static inline int64_t udpfast_clock_now(int clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* When a timeout is over, monotonic; below 0: never. */
static inline int64_t udpfast_deadline(int64_t timeout_ns)
{
    int64_t now_ns = udpfast_clock_now(CLOCK_MONOTONIC);
    return timeout_ns < 0 || timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + timeout_ns;
}
