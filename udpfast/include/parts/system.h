/* With -std=c11 the C library hides the functions of POSIX and Linux unless _GNU_SOURCE is defined
 * before the first include. This header defines it. If another header was included before, the
 * functions needed below are declared here, exactly as the library declares them.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__USE_GNU)
extern int clock_gettime(__clockid_t, struct timespec *);
extern ssize_t getrandom(void *, size_t, unsigned int);
extern int lstat(const char *, struct stat *);
extern int madvise(void *, size_t, int);
extern int mkstemp(char *);
extern int nanosleep(const struct timespec *, struct timespec *);
extern int posix_fallocate(int, off_t, off_t);
extern ssize_t pwrite(int, const void *, size_t, off_t);
extern size_t strnlen(const char *, size_t);
#if !defined(CLOCK_MONOTONIC)
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#endif
#if !defined(MADV_WIPEONFORK)
#define MADV_WIPEONFORK 18
#endif
#if !defined(MAP_ANONYMOUS)
#define MAP_ANONYMOUS 0x20
#endif
#if !defined(MAP_POPULATE)
#define MAP_POPULATE 0x8000
#endif
#if !defined(O_CLOEXEC)
#define O_CLOEXEC __O_CLOEXEC
#endif
#if !defined(O_NOFOLLOW)
#define O_NOFOLLOW __O_NOFOLLOW
#endif
#if !defined(PATH_MAX)
#define PATH_MAX 4096
#endif
#if !defined(S_ISREG)
#define S_ISREG(mode) (((mode) & 0170000) == 0100000)
#endif
#endif

#if !defined(F_OFD_GETLK)
#define F_OFD_GETLK 36
#endif
