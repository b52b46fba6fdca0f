"""Time by a seed: the clocks of this process go on each time that somebody looks, and by sleeping.

What a program does "by the clock" is then the same each time that a seed is run. It needs a C
compiler: a library that is loaded before all others stands in for the C library's clocks. Without
one, time is what it is.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["seeded_time", "with_seeded_time"]

#: Names the folder of the library, in the process that has it.
_FOLDER = "UDPFAST_LAB_CLOCK"
#: What the clocks say when a seed begins: long after all that it publishes.
_MONOTONIC_NS, _REALTIME_NS = 1_000_000_000_000, 2_000_000_000_000_000_000

_SOURCE = f"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns, step_ns;  /* no step: the kernel's time */

void seeded_clock(int64_t step)
{{
    now_ns = {_MONOTONIC_NS};
    step_ns = step;
}}

static int64_t look(int64_t by)
{{
    return __atomic_add_fetch(&now_ns, by, __ATOMIC_SEQ_CST);
}}

int clock_gettime(clockid_t clock, struct timespec *time)
{{
    int64_t ns;
    if (step_ns == 0 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return (int) syscall(SYS_clock_gettime, clock, time);
    ns = look(step_ns);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        ns += {_REALTIME_NS}LL - {_MONOTONIC_NS};
    time->tv_sec = ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
    return 0;
}}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{{
    int64_t ns = time->tv_sec * 1000000000LL + time->tv_nsec;
    if (step_ns == 0)
        return syscall(SYS_clock_nanosleep, clock, flags, time, left) == 0 ? 0 : errno;
    if (flags & TIMER_ABSTIME)
        ns -= look(0) + (clock == CLOCK_REALTIME ? {_REALTIME_NS}LL - {_MONOTONIC_NS} : 0);
    if (ns > 0)
        look(ns);
    return 0;
}}

int nanosleep(const struct timespec *time, struct timespec *left)
{{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    return errno == 0 ? 0 : -1;
}}
"""


def with_seeded_time() -> None:
    """Have the library: begin this program anew, once, if there is a compiler."""
    folder = os.environ.pop(_FOLDER, "")
    if folder:
        os.environ.pop("LD_PRELOAD", None)
        shutil.rmtree(folder, ignore_errors=True)
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or "LD_PRELOAD" in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="udpfast-clock-")
    library = Path(folder) / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=_SOURCE, text=True, check=True)
    environment = {_FOLDER: folder, "LD_PRELOAD": str(library), "PYTHONHASHSEED": "0"}
    os.execve(sys.executable, sys.orig_argv, os.environ | environment)


@contextmanager
def seeded_time(step_ns: int) -> Iterator[None]:
    """Let each look at a clock take so long, if this process has the library."""
    try:
        begin = ctypes.CDLL(None).seeded_clock
    except AttributeError:
        yield
        return
    begin.argtypes = [ctypes.c_int64]
    begin(step_ns)
    try:
        yield
    finally:
        begin(0)
