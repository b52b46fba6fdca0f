"""Explain SIGBUS: a file that this process has mapped was truncated.

A mapped page without a file behind it cannot be read, and no check before the access can prevent
that: the kernel sends SIGBUS, which kills a process silently. The handler names the file and ends
the process with exit code 1, as for any other failure of a file.
"""

from libc.stdlib cimport strtoull
from libc.string cimport memchr, memmove, memset, strlen

__all__ = ["explain_bus_errors"]

cdef extern from "<signal.h>" nogil:
    ctypedef struct siginfo_t:
        void* si_addr
    struct sigaction_t "sigaction":
        void (*sa_sigaction)(int, siginfo_t*, void*) noexcept nogil
        int sa_flags
    int sigaction_set "sigaction"(int number, const sigaction_t* action, sigaction_t* before)
    int SIGBUS
    int SA_SIGINFO

cdef extern from "<fcntl.h>" nogil:
    int open_file "open"(const char* path, int flags)
    int O_RDONLY

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* content, size_t size)
    ssize_t write(int fd, const void* content, size_t size)
    void _exit(int code)

cdef enum:
    STDERR = 2
    LINE_MAX = 8192  # of a line of /proc/self/maps: addresses, and a path of up to 4096 bytes

cdef char[LINE_MAX] _lines
cdef bint _in_journal = False    # systemd's journal reads stderr, and takes a level before a line


cdef void _say(const char* text) noexcept nogil:
    write(STDERR, text, strlen(text))


cdef void _say_file(unsigned long long address) noexcept nogil:
    # Print the file that is mapped at an address. This must not take a lock: any thread may hold
    # it.
    cdef int fd = open_file(b"/proc/self/maps", O_RDONLY)
    cdef size_t size = 0
    cdef ssize_t got
    cdef char* end
    cdef char* path
    cdef char* rest
    cdef unsigned long long first, last
    while fd >= 0:
        got = read(fd, _lines + size, LINE_MAX - size)
        if got <= 0:
            break
        size += <size_t>got
        while True:
            end = <char*>memchr(_lines, b'\n', size)
            if end == NULL:
                break
            end[0] = 0
            first = strtoull(_lines, &rest, 16)
            last = strtoull(rest + 1, NULL, 16)
            path = <char*>memchr(_lines, b'/', <size_t>(end - _lines))
            if first <= address < last and path != NULL:
                _say(path)
                return
            size -= <size_t>(end + 1 - _lines)
            memmove(_lines, end + 1, size)
    _say(b"a mapped file")


cdef void _ended(int number, siginfo_t* info, void* context) noexcept nogil:
    _say(b"<3>udpfast: " if _in_journal else b"udpfast: ")
    _say_file(<unsigned long long>info.si_addr)
    _say(b": expected the file as it was when it was opened, found a part of it gone (it was cut "
         b"meanwhile, or its disk fails): this process cannot go on\n")
    _exit(1)


def explain_bus_errors(journal: bool = False) -> None:
    """Make SIGBUS end this process with an explanation and exit code 1.

    For programs, not for libraries: the handler applies to the whole process.

    Parameters
    ----------
    journal : bool
        systemd's journal reads stderr: the explanation begins with its level, an error.
    """
    global _in_journal
    cdef sigaction_t action
    _in_journal = journal
    memset(&action, 0, sizeof(action))
    action.sa_sigaction = _ended
    action.sa_flags = SA_SIGINFO
    sigaction_set(SIGBUS, &action, NULL)
