# Linux calls for threads that must not be disturbed, and that Python's `os` lacks.

from libc.errno cimport errno

cdef extern from "<errno.h>" nogil:
    int ECANCELED

cdef extern from "<sys/mman.h>" nogil:
    int MCL_CURRENT
    int MCL_FUTURE
    int mlockall(int flags)

cdef extern from "<sys/prctl.h>" nogil:
    int PR_SET_NAME
    int PR_SET_PDEATHSIG
    int PR_SET_TIMERSLACK
    int prctl(int option, unsigned long argument, ...)


cdef inline int memory_lock() noexcept nogil:
    # Lock all present and future pages of this process into memory: 0 or -errno. mlockall(2).
    return -errno if mlockall(MCL_CURRENT | MCL_FUTURE) != 0 else 0


cdef inline int process_end_with_parent(int number) noexcept nogil:
    # Set the signal that this process gets when the thread that forked it ends. prctl(2).
    return -errno if prctl(PR_SET_PDEATHSIG, <unsigned long>number) != 0 else 0


cdef inline int thread_name(const char* name) noexcept nogil:
    # Set the name of this thread for `top -H` and `perf`; the kernel keeps 15 bytes. prctl(2).
    return -errno if prctl(PR_SET_NAME, <unsigned long>name) != 0 else 0


cdef inline int thread_timer_slack(unsigned long slack_ns) noexcept nogil:
    # Set how late the kernel may end this thread's sleeps; by default 50 us. prctl(2).
    return -errno if prctl(PR_SET_TIMERSLACK, slack_ns) != 0 else 0
