"""A feed whose wall clock is set back and forward under it, by a library loaded before all others.

    CLOCK_OFFSET=FILE LD_PRELOAD=LIBRARY python -m tests.system.wall_clock PORT PORT SEED

Prints what reached each who follows the feed, as JSON.
"""

import json
import mmap
import os
import random
import socket
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.client.reader import Reader
from udpfast.core.clock import realtime_ns
from udpfast.core.layout import Kind
from udpfast.shm.roster import read_roster

#: The time is what the kernel says, and so many ns more as the file says that CLOCK_OFFSET names.
SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t* offset;

__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    if (fd >= 0) offset = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && offset && clock == CLOCK_REALTIME) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + *offset;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return failed;
}
"""

SECOND_NS = 1_000_000_000
JUMPS_S = (0.001, 1, 30, 3600, 86_400)
ROUNDS = 12


class Follower:
    """What a reader found so far: seqnos of messages, and how many of every other kind."""

    def __init__(self, address: str, **options: Any) -> None:
        self.reader = Reader(address, **options)
        self.seqnos: list[int] = []
        self.others: Counter[str] = Counter()

    def read(self) -> int:
        """Take what is there; return the number of messages by now."""
        while len(batch := self.reader.poll(timeout=0)):
            is_message = batch.headers["kind"] == Kind.MESSAGE
            self.seqnos += batch.headers["number"][is_message].tolist()
            self.others.update(Kind(kind).name for kind in batch.headers["kind"][~is_message])
        return len(self.seqnos)


def follow(ports: list[int], chance: random.Random, directory: Path) -> dict[str, Any]:
    """Send messages on two lines, set the clock in between; return what was found."""
    offset = mmap.mmap(os.open(os.environ["CLOCK_OFFSET"], os.O_RDWR), 8)
    before_ns = realtime_ns()
    offset[:] = struct.pack("<q", -3600 * SECOND_NS)
    assert realtime_ns() < before_ns, "the library is not loaded"
    tables = {
        "name": "jumps",
        "ring": {"capacity_bytes": 1 << 22},
        "objects": {"collect_bytes": 1 << 20},
        "receive": {"timestamps": chance.choice(["none", "kernel"])},
        "incremental": {
            "lines": [
                {"name": name, "address": f"127.0.0.1:{port}"}
                for name, port in zip("AB", ports, strict=True)
            ]
        },
        "record": {"enabled": True, "directory": str(directory), "segment_bytes": 1 << 20},
        "zmq": {"enabled": True},
        "image": {"enabled": True},
    }
    sent = 0
    with Subscriber(tables) as subscriber, socket.socket(type=socket.SOCK_DGRAM) as sock:
        followers = {
            "ring": Follower("ring:jumps", start="begin"),
            "zmq": Follower("zmq:jumps", timeout=PATIENCE_S),
        }
        for _ in range(ROUNDS):
            for _ in range(chance.randrange(1, 100)):
                sent += 1
                for port in ports:
                    message = struct.pack("<BBBBHHIIQ", 1, 0, 0, 0, 0, 7, sent, 0, sent)
                    sock.sendto(message, ("127.0.0.1", port))
            jump_s = chance.choice((-1, 1)) * chance.choice(JUMPS_S)
            offset[:] = struct.pack("<q", int(jump_s * SECOND_NS))
            wait_until(lambda least=sent: all(each.read() >= least for each in followers.values()))
        restarts = sum(agent.restarts for agent in read_roster(subscriber.directory))
    with Reader(f"journal:{directory}") as reader:
        recorded = [record.number for record in reader if record.kind == Kind.MESSAGE]
    return {
        "sent": sent,
        "seqnos": {name: each.seqnos for name, each in followers.items()} | {"journal": recorded},
        "others": {name: each.others for name, each in followers.items()},
        "restarts": restarts,
    }


if __name__ == "__main__":
    *numbers, seed = map(int, sys.argv[1:])
    print(json.dumps(follow(numbers, random.Random(seed), Path.cwd() / "journal")))
