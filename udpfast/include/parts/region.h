enum {
    UDPFAST_ABSENT = -32,    /* there is no such instance, perhaps not yet: try again */
    UDPFAST_NOT_READY = -33, /* its writer is creating it: try again */
    UDPFAST_REFUSED = -34,   /* not a file of this version, of an owner who is not trusted, or an
                                argument that is none of those listed */
    UDPFAST_CLOSED = -38,    /* what was asked is not open: never opened, or closed */
    UDPFAST_OPEN = -39,      /* what was to be opened is open already */
};

/* Say that a struct is open already. Returns UDPFAST_OPEN. */
static inline int udpfast_say_open(char *problem)
{
    return udpfast_say(problem, UDPFAST_OPEN,
                       "it is open already, or its memory was not zero at first: close it first");
}

/* A mapped file that another process writes. Its header was checked when it was mapped. */
struct udpfast_region {
    const struct udpfast_region_header *header; /* NULL: nothing is mapped */
    uint64_t size;
    uint64_t device, inode;
    int file; /* descriptor, kept open to test whether the writer holds its lock */
};

/* Whether the files of a user are trusted: those of this user, of root, and of the users in
 * $UDPFAST_TRUST. Below 0: that variable names an unknown user. */
static inline int udpfast_trusted(uint64_t owner, char *problem)
{
    const char *words = getenv("UDPFAST_TRUST");
    if (owner == geteuid() || owner == 0)
        return 1;
    while (words != NULL && *words != 0) {
        size_t size = strcspn(words, ", \t\n");
        char name[64], *end;
        struct passwd *user;
        uint64_t number;
        if (size >= sizeof name)
            return udpfast_say(problem, UDPFAST_REFUSED,
                               "UDPFAST_TRUST: expected users, found '%.*s'", (int) sizeof name,
                               words);
        memcpy(name, words, size);
        name[size] = 0;
        words += size + (words[size] != 0);
        if (size == 0)
            continue;
        number = strtoull(name, &end, 10);
        if (*end != 0 || name[0] < '0' || name[0] > '9' || size > 10) {
            user = getpwnam(name);
            if (user == NULL)
                return udpfast_say(problem, UDPFAST_REFUSED,
                                   "UDPFAST_TRUST: expected users, found '%s'", name);
            number = user->pw_uid;
        }
        if (number == owner)
            return 1;
    }
    return 0;
}

/* Check that only a trusted owner may write a file. Returns 0 if so. */
static inline int udpfast_check_owner(const char *path, const struct stat *status, char *problem)
{
    int trusted = udpfast_trusted(status->st_uid, problem);
    if (trusted < 0)
        return trusted;
    if (!trusted)
        return udpfast_say(problem, UDPFAST_REFUSED,
                           "%.300s: expected owner %ju (or root), found %ju; UDPFAST_TRUST names "
                           "further users to trust",
                           path, (uintmax_t) geteuid(), (uintmax_t) status->st_uid);
    if ((status->st_mode & 022) != 0)
        return udpfast_say(problem, UDPFAST_REFUSED,
                           "%.400s: expected that only its owner may write, found mode %04o", path,
                           (unsigned int) status->st_mode & 07777);
    return 0;
}

static inline void udpfast_region_unmap(struct udpfast_region *region)
{
    if (region->header != NULL) {
        munmap((void *) region->header, (size_t) region->size);
        close(region->file);
    }
    region->header = NULL;
}

/* Check the header of a mapped region. Returns 0 if it is as expected. */
static inline int udpfast_region_check(const struct udpfast_region *region, const char *path,
                                       const char *kind, uint64_t layout, char *problem)
{
    const struct udpfast_region_header *header = region->header;
    uint64_t ready = UDPFAST_LOAD_ACQUIRE(&header->ready);
    int code = ready != 0 ? UDPFAST_REFUSED : UDPFAST_NOT_READY;
    if (memcmp(header->magic, UDPFAST_REGION_MAGIC, sizeof header->magic) != 0)
        return udpfast_say(problem, code, "%.400s: expected a file of udpfast, found other bytes",
                           path);
    if (header->version != UDPFAST_REGION_VERSION)
        return udpfast_say(problem, code,
                           "%.400s: expected version %d, found %" PRIu32
                           ": it is of another version of udpfast",
                           path, UDPFAST_REGION_VERSION, header->version);
    if (memcmp(header->kind, kind, sizeof header->kind) != 0)
        return udpfast_say(problem, code, "%.400s: expected kind %.4s, found '%.4s'", path, kind,
                           header->kind);
    if (header->size != region->size)
        return udpfast_say(problem, code, "%.400s: expected size %" PRIu64 ", found %" PRIu64, path,
                           header->size, region->size);
    if (header->layout_hash != layout)
        return udpfast_say(problem, code,
                           "%.300s: expected layout hash %016" PRIx64 ", found %016" PRIx64
                           ": it is of another version of udpfast",
                           path, layout, header->layout_hash);
    if (ready != 1)
        return udpfast_say(problem, code, "%.400s: expected ready 1, found %" PRIu64, path, ready);
    return 0;
}

/* Map one of an instance's files, and check it before any of it is used. Returns 0.
 *
 * populate: MAP_POPULATE, to read all of it at once, or 0.
 */
static inline int udpfast_region_map(struct udpfast_region *region, const char *path,
                                     const char *kind, uint64_t layout, int populate, char *problem)
{
    struct stat status;
    void *memory;
    int result, file;
    memset(region, 0, sizeof *region);
    /* O_NONBLOCK: opening a FIFO at this path must not block; regular files ignore the flag. */
    file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT)
        return udpfast_say(problem, UDPFAST_ABSENT,
                           "%.400s: no such file: is its feed running (udpfast run)?", path);
    if (file < 0 && errno == ELOOP)
        return udpfast_say(problem, UDPFAST_REFUSED,
                           "%.400s: expected a regular file, found a symbolic link", path);
    if (file < 0)
        return udpfast_failed(problem, "open", path);
    if (fstat(file, &status) != 0)
        result = udpfast_failed(problem, "look at", path);
    else if (!S_ISREG(status.st_mode))
        result = udpfast_say(problem, UDPFAST_REFUSED,
                             "%.400s: expected a regular file, found mode %06o", path,
                             (unsigned int) status.st_mode);
    else
        result = udpfast_check_owner(path, &status, problem);
    if (result == 0 && status.st_size < UDPFAST_REGION_PAGE)
        result =
            udpfast_say(problem, UDPFAST_NOT_READY, "%.400s: expected at least %d bytes, found %jd",
                        path, UDPFAST_REGION_PAGE, (intmax_t) status.st_size);
    if (result != 0) {
        close(file);
        return result;
    }
    memory = mmap(NULL, (size_t) status.st_size, PROT_READ, MAP_SHARED | populate, file, 0);
    if (memory == MAP_FAILED) {
        result = udpfast_failed(problem, "map", path);
        close(file);
        return result;
    }
    region->header = (const struct udpfast_region_header *) memory;
    region->size = (uint64_t) status.st_size;
    region->device = status.st_dev;
    region->inode = status.st_ino;
    region->file = file;
    result = udpfast_region_check(region, path, kind, layout, problem);
    if (result != 0)
        udpfast_region_unmap(region);
    return result;
}

/* Whether another file, or none, is now at the path of a mapped region. */
static inline int udpfast_region_replaced(const struct udpfast_region *region, const char *path)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT;
    return status.st_dev != region->device || status.st_ino != region->inode;
}

/* Start time of a process in clock ticks after boot; 0: it does not exist, or is a zombie. */
static inline uint64_t udpfast_process_start(uint64_t pid)
{
    char path[48], text[1024], *at;
    ssize_t size;
    int field, file;
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    at = strrchr(text, ')'); /* the process's name may contain spaces and parentheses */
    if (at == NULL || at[1] == 0 || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (field = 2; field < 22 && at != NULL; field++) /* proc(5): field 22 */
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

/* The pid namespace of this process; 0: /proc does not show its processes. */
static inline uint64_t udpfast_process_namespace(void)
{
    struct stat status;
    if (stat("/proc/1/stat", &status) != 0 || stat("/proc/self/ns/pid", &status) != 0)
        return 0;
    return status.st_ino;
}

/* Whether the process that writes a region is alive, in any container. */
static inline int udpfast_region_writer_alive(const struct udpfast_region *region)
{
    const struct udpfast_region_header *header = region->header;
    uint64_t proof, start = header->writer_start;
    struct flock asked;
    int held;
    memset(&asked, 0, sizeof asked);
    asked.l_type = F_RDLCK; /* conflicts with a write lock, which only the writer can hold */
    asked.l_whence = SEEK_SET;
    asked.l_len = 1;
    held = fcntl(region->file, F_OFD_GETLK, &asked) == 0 && asked.l_type == F_WRLCK;
    if (header->writer_namespace == 0 || header->writer_namespace != udpfast_process_namespace())
        return held;
    memcpy(&proof, header->reserved, sizeof proof); /* not 0: the writer takes that lock */
    return start != 0 && udpfast_process_start(header->writer_pid) == start && (proof == 0 || held);
}
