"""Stub network stacks to preload: they answer like the real ones, and count their datagrams.

The environment steers them: STUB_COUNT names a file that takes the number of datagrams received
through the stub when the process ends; STUB_FIRST_FAILS and STUB_ALWAYS_FAILS make socket() fail;
STUB_SILENT makes the stub deny that it is active; STUB_DEVICE is opened for as long as it runs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static long datagrams;
static int calls;

__attribute__((constructor)) static void begin(void) {
    const char* device = getenv("STUB_DEVICE");
    if (device) open(device, O_RDWR);
}

__attribute__((destructor)) static void end(void) {
    const char* path = getenv("STUB_COUNT");
    FILE* file = path ? fopen(path, "w") : NULL;
    if (file) { fprintf(file, "%ld", datagrams); fclose(file); }
}

int socket(int domain, int type, int protocol) {
    if (getenv("STUB_ALWAYS_FAILS")) { errno = EPERM; return -1; }
    if (getenv("STUB_FIRST_FAILS") && calls++ == 0) { errno = ENOSYS; return -1; }
    int (*next)(int, int, int) = dlsym(RTLD_NEXT, "socket");
    return next(domain, type, protocol);
}

ssize_t recv(int fd, void* buffer, size_t size, int flags) {
    ssize_t (*next)(int, void*, size_t, int) = dlsym(RTLD_NEXT, "recv");
    ssize_t count = next(fd, buffer, size, flags);
    datagrams += count >= 0;
    return count;
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    ssize_t (*next)(int, struct msghdr*, int) = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t count = next(fd, message, flags);
    datagrams += count >= 0;
    return count;
}

int recvmmsg(int fd, struct mmsghdr* messages, unsigned size, int flags, struct timespec* timeout) {
    int (*next)(int, struct mmsghdr*, unsigned, int, struct timespec*)
        = dlsym(RTLD_NEXT, "recvmmsg");
    int count = next(fd, messages, size, flags, timeout);
    datagrams += count > 0 ? count : 0;
    return count;
}
"""

#: How each stack shows that it is active.
ANSWERS = {
    "onload": r"int onload_is_present(void) { return !getenv("
    r'"STUB_SILENT"); }',
    "vma": r"""
int getsockopt(int fd, int level, int option, void* value, socklen_t* size) {
    if (fd == DESCRIPTOR && option == 2800 && !getenv("STUB_SILENT")) {
        *(void**)value = &datagrams;
        return 0;
    }
    int (*next)(int, int, int, void*, socklen_t*) = dlsym(RTLD_NEXT, "getsockopt");
    return next(fd, level, option, value, size);
}
""",
}
ANSWERS["xlio"] = ANSWERS["vma"].replace("DESCRIPTOR", "-2")
ANSWERS["vma"] = ANSWERS["vma"].replace("DESCRIPTOR", "-1")


def build_stub(stack: str, directory: Path) -> Path:
    """Compile the stub of a stack; skip the test where there is no compiler."""
    library = directory / f"lib{stack}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
    try:
        subprocess.run(command, input=SOURCE + ANSWERS[stack], text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler to build a stub library with")
    return library


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, with additional environment variables."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **environment},
    )
