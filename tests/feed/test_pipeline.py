"""Inactivity, settings, hostile bytes, and the contract of accept and take."""

import ctypes
import random
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import nightly
from tests.feed.drive import SESSION_ID, VERDICT_NAMES, Driver, datagram, fragments
from udpfast.core.layout import CONNECTION, ConnectionScope, Kind, RecordFlag
from udpfast.errors import ConfigError
from udpfast.feed.pipeline import FeedPipeline

SECOND = 1_000_000_000
READY, DISCONNECTED = 5, 1


def connections(driver: Driver, channel: int = 0) -> list[tuple[int, int]]:
    """(status, silent ns) of a channel, in order."""
    return [
        (int(c["status"]), int(c["silent_ns"]))
        for c in (
            np.frombuffer(m.payload, CONNECTION)[0]
            for m in driver.out
            if m.kind is Kind.CONNECTION and m.channel == channel
        )
        if c["scope"] == ConnectionScope.CHANNEL
    ]


def test_pipeline_with_silence_says_disconnected_and_ready_once() -> None:
    driver = Driver()
    driver.send(datagram(0), at_ns=0)
    assert [m.kind for m in driver.out] == [Kind.SESSION, Kind.CONNECTION, Kind.MESSAGE]
    driver.expire(9_900_000_000)
    assert connections(driver) == [(READY, 0)]
    for t in range(10, 20):
        driver.expire(t * SECOND)
    assert connections(driver) == [(READY, 0), (DISCONNECTED, 10 * SECOND)]
    driver.send(datagram(1, b""), at_ns=30 * SECOND)
    driver.send(datagram(2, b""), at_ns=39 * SECOND)
    driver.expire(48 * SECOND)
    assert connections(driver)[2:] == [(READY, 30 * SECOND)]
    assert connections(driver, 1) == [(DISCONNECTED, 10 * SECOND)], "it never spoke"
    driver.finish()


@pytest.mark.parametrize("what", ["refused sender", "invalid", "retired", "replay"])
def test_pipeline_with_only_refused_datagrams_is_silent(what: str) -> None:
    driver = Driver(window=16)
    for i in range(100):
        driver.send(datagram(i, session_id=9), at_ns=i)
    for i in range(100):
        driver.send(datagram(i), at_ns=100 + i)
    for t in range(1, 15):
        data, flags = datagram(10), 0
        if what == "refused sender":
            flags = 2
        elif what == "invalid":
            data = data[:15]
        elif what == "retired":
            data = datagram(5, session_id=9)
        at_ns = 199 + t * SECOND
        driver.pipeline.accept(0, 0, data, at_ns, at_ns, flags=flags)
        driver.accepted += 1
        driver.out += driver.pipeline.take()
        driver.expire(at_ns)
    assert connections(driver) == [(READY, 0), (DISCONNECTED, 10 * SECOND)]
    driver.finish()


def test_pipeline_marks_snapshots_heartbeats_and_missing_timestamps() -> None:
    driver = Driver(lines_incremental=1)
    driver.send(datagram(0, control=0x12))
    driver.send(datagram(1, b""))
    driver.pipeline.accept(0, 0, datagram(2), 5, driver.now_ns, flags=4)
    driver.out += driver.pipeline.take()
    driver.accepted += 1
    driver.send(datagram(4, control=0x12))
    driver.send(datagram(3, b""))
    assert [m.flags for m in driver.messages()] == [
        RecordFlag.SNAPSHOT,
        RecordFlag.HEARTBEAT,
        RecordFlag.NO_TIMESTAMP,
        RecordFlag.HEARTBEAT,
        RecordFlag.SNAPSHOT,
    ]
    driver.finish()


def test_pipeline_of_legacy_revision_reads_the_whole_byte_as_encoding() -> None:
    driver = Driver(revision="legacy", encodings=[2, 18])
    driver.send(datagram(0, control=0x12))
    assert driver.messages()[0].flags == 0
    assert driver.send(datagram(1, control=0x22)) == "encoding_refused"
    driver.finish()


def test_pipeline_of_truncated_datagram_says_too_long() -> None:
    driver = Driver()
    verdict = driver.pipeline.accept(0, 0, datagram(0), 0, 0, flags=1)
    assert VERDICT_NAMES[verdict] == "too_long"


def test_pipeline_without_take_in_between_refuses() -> None:
    pipeline = FeedPipeline()
    pipeline.accept(0, 0, datagram(0), 0, 0)
    with pytest.raises(RuntimeError, match="take"):
        pipeline.accept(0, 0, datagram(1), 0, 0)
    with pytest.raises(ValueError, match="no line 3 of channel 0"):
        pipeline.accept(0, 3, datagram(1), 0, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 1000}, "window must be a power of two, was 1000"),
        ({"window": 8}, "window must be an integer from 16 to 1048576, was 8"),
        ({"on_gap": "drop"}, "on_gap must be 'keep_all' or 'latest_run', was 'drop'"),
        ({"revision": 1}, "revision must be 'current' or 'legacy', was 1"),
        ({"encodings": [2, 64]}, "encodings must be an integer from 0 to 63, was 64"),
        ({"lines_incremental": 0}, "lines_incremental must be an integer from 1 to 8, was 0"),
        ({"lost_packet_wait_ns": 0.5}, "lost_packet_wait_ns must be an integer from 0"),
        ({"window": 64, "out_of_order_max_interval": 65}, "must be an integer from 1 to 64"),
    ],
)
def test_pipeline_with_wrong_setting_says_expected_and_found(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        FeedPipeline(**settings)


def garble(rng: random.Random, data: bytes) -> bytes:
    """Flip a few bytes, cut, or splice."""
    way = rng.randrange(3)
    if way == 0:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 9)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    if way == 1:
        return data[: rng.randrange(len(data))]
    return data[: rng.randrange(len(data))] + rng.randbytes(rng.randrange(600))


@pytest.mark.parametrize("seed", [0, 1, 2, *nightly(*range(3, 8))])
def test_pipeline_with_hostile_datagrams_keeps_its_accounts(seed: int) -> None:
    rng = random.Random(seed)
    settings = {
        "window": rng.choice([16, 256]),
        "slab_cells": rng.choice([64, 256]),
        "on_gap": rng.choice(["keep_all", "latest_run"]),
        "lines_incremental": rng.choice([1, 3]),
        "session_adopt_datagrams": rng.choice([1, 2]),
        "lines_snapshot": 2,
        "restart_datagrams": rng.choice([0, 2, 32]),
        "encodings": range(16),
        "out_of_order_max_interval": 16,
        "lost_packet_wait_ns": 100_000,
    }
    driver = Driver(**settings)
    seqno = (1 << 32) - 300
    for step in range(12_000):
        if rng.random() < 0.7:
            seqno += 1
        near = (seqno + rng.choice([0, 0, 0, 1, -1, 5, -40, 300])) % (1 << 32)
        way = rng.randrange(10)
        session_id = SESSION_ID if rng.random() < 0.99 else rng.randrange(3)
        if way < 5:
            data = datagram(near, session_id=session_id)
        elif way < 8:
            data = rng.choice(fragments(near, rng.choice([2, 3, 40]), session_id=session_id))
        elif way == 8:
            data = garble(rng, datagram(near))
        else:
            data = rng.randbytes(rng.randrange(600))
        channel = rng.randrange(2)
        line = rng.randrange(settings["lines_incremental"] if channel == 0 else 2)
        driver.send(data, line, channel, at_ns=driver.now_ns + rng.randrange(20_000))
        if step % 50 == 0:
            driver.expire(driver.now_ns)
    driver.finish()
    assert len(driver.messages()) > 20


def test_pipelines_one_after_the_other_take_the_memory_of_one() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    FeedPipeline()
    before = resident()
    between = []
    for _ in range(20):
        engine = FeedPipeline()  # 14 MB
        between += [library.malloc(size) for size in range(16, 200, 16)]
        del engine
    assert resident() - before < 14 << 20
    for place in between:
        library.free(place)
