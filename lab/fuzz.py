"""Damaged input through the production code: it may refuse everything, and break nothing.

    udpfast lab fuzz datagrams --count 1000000 --seed 1
    udpfast lab fuzz payloads --count 1000000 --seed 1
    udpfast lab fuzz frames --count 1000000 --seed 1
    udpfast lab fuzz venues --count 1000000 --seed 1
    udpfast lab fuzz wire --count 20000000 --seed 1
    udpfast lab fuzz iex_tp --count 1000000 --seed 1
    udpfast lab fuzz feed --count 1000000 --seed 1

`datagrams` go through the pipeline and the object gate; every one must get one verdict, the
counters must be those verdicts (NL0), and what comes out must be in order, once, with every hole
reported (NL1). `payloads` go through the verifier and the decoder; what the verifier refuses must
not be decoded, and what is decoded must fit its bound. `frames` go through the walk of AF_XDP,
which must say what a slow one says, and read nothing behind them. `venues` are messages
for the decoders of all venues, which must read nothing behind them. `wire` go through all framings
in turn, a framing's name through that one: sound units or a reason, and nothing read behind them.
`feed` sends datagrams of all framings but Roq through the feed: each unit has one verdict, and each
stream is in order.

The run is cut into cases of 2,000 inputs with a seed each. A case that fails, crashes or hangs is
printed as the one command that repeats it. `make sanitize` runs this against a build that stops at
the first byte read out of bounds.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import Kind
from udpfast.errors import FormatError
from udpfast.feed.pipeline import FeedMessage, FeedPipeline
from udpfast.feed.publication import Publication
from udpfast.market.gate import ObjectGate
from udpfast.wire.framing import FRAMINGS

from .fuzz_feed import fuzz_feed
from .fuzz_frames import fuzz_frames
from .fuzz_venues import fuzz_venues
from .fuzz_wire import fuzz_wire
from .mutate import mutated
from .program import program, repeat
from .said import admitted, gap_of

__all__ = ["FuzzError", "fuzz_datagrams", "fuzz_payloads", "main"]

CASE_INPUTS = 2_000
CASE_SECONDS_MAX = 120  # a case takes 20 ms; a minute under a sanitizer would be a hang already
SEQNO_MODULUS = 1 << 32
# Mostly the next datagram; now and then the same again, a loss, a step back.
_STEPS = (1,) * 24 + (0, 2, 5, -3)
# Now and then longer than the 5 ms after which a hole is lost.
_PAUSES_NS = (1_000,) * 24 + (0, 50_000, 50_000, 7_000_000)


class FuzzError(Exception):
    """Damaged input broke a promise; says which one."""


def fuzz_datagrams(seed: int, count: int) -> dict[str, int]:
    """Send `count` datagrams, few or many of them damaged, through pipeline and object gate.

    Returns
    -------
    dict
        How many datagrams got each verdict.

    Raises
    ------
    FuzzError
        NL0 or NL1 does not hold.
    """
    rng = random.Random(seed)
    lines = rng.randint(1, 3)
    valid = _datagrams(rng)
    pipeline = _pipeline(rng, lines)
    objects = ObjectGate(objects_max=64, collect_messages_max=32, collect_bytes=1 << 20)
    order = [_Order(), _Order()]
    verdicts = [0] * len(VERDICTS)
    damage = rng.choice((0.02, 0.2, 0.6))
    now_ns = 1
    place = 0
    for _ in range(count):
        channel, data = valid[place % len(valid)]
        place += rng.choice(_STEPS)
        if rng.random() < damage:
            data = mutated(data, [valid[0][1], valid[-1][1]], rng)
        now_ns += rng.choice(_PAUSES_NS)
        line = rng.randrange(lines)
        verdicts[pipeline.accept(channel, line, data, 10**18 + now_ns, now_ns)] += 1
        _follow(pipeline, objects, order)
        if rng.random() < 0.05:
            pipeline.expire(now_ns)
            _follow(pipeline, objects, order)
    pipeline.finish(now_ns + 10**9)
    _follow(pipeline, objects, order)
    _check_accounting(pipeline, verdicts)
    return {info.name: number for info, number in zip(VERDICTS, verdicts, strict=True)}


def fuzz_payloads(seed: int, count: int) -> dict[str, int]:
    """Decode `count` event payloads, most of them damaged.

    Returns
    -------
    dict
        How many payloads had each outcome.

    Raises
    ------
    FuzzError
        Verifier and decoder disagree, or the decoder's two paths, or an update does not fit its
        bound.
    """
    from udpfast.market.names import NameTable
    from udpfast.market.updates import view_update
    from udpfast.payload.roq.decode import Outcome, decode, size_bound

    from .paths import DecodePaths

    rng = random.Random(seed)
    paths = DecodePaths(names_max=64)
    valid = [_event_payload(rng) for _ in range(32)]
    names = NameTable(capacity=64)
    outcomes: dict[str, int] = {}
    for _ in range(count):
        payload = rng.choice(valid)
        if rng.random() < 0.9:
            payload = mutated(payload, valid, rng)
        # A copy whose memory ends with it: a sanitizer sees the first byte beyond.
        memory = np.frombuffer(payload, np.uint8).copy().data
        decoded = decode(memory, names)
        refused = decoded.kind is Outcome.REFUSED
        if refused == _verifies(memory):
            raise FuzzError(f"verifier and decoder disagree about {payload.hex()}")
        try:
            paths.decode(memory)
        except AssertionError as error:
            raise FuzzError(str(error)) from None
        if isinstance(decoded.kind, Kind):
            if len(decoded.payload) > size_bound(len(payload)):
                raise FuzzError(f"an update beyond its bound from {payload.hex()}")
            view_update(decoded.kind, decoded.payload)
        outcomes[decoded.kind.name] = outcomes.get(decoded.kind.name, 0) + 1
    return outcomes


class _Order:
    # NL1 of one channel: within a session, messages and gaps follow each other without a hole.
    # Behind a restart with the same id the snapshot channel numbers anew without a SESSION of its
    # own (that was the incremental channel's), and only its counter says so.
    def __init__(self, restarts: int = 0) -> None:
        self.next_seqno: int | None = None
        self.restarts = restarts

    def see(self, message: FeedMessage, pipeline: FeedPipeline) -> None:
        if message.kind == Kind.GAP:
            first, last = gap_of(message)[:2]
        elif message.kind == Kind.MESSAGE:
            first = last = message.seqno
        else:
            return
        if self.next_seqno not in (None, first):
            restarts = _snapshot_restarts(pipeline)
            if message.channel == 0 or restarts == self.restarts:
                found = f"{message.kind.name} {first} of channel {message.channel}"
                raise FuzzError(f"expected seqno {self.next_seqno}, found {found}")
            self.restarts = restarts
        self.next_seqno = (last + 1) % SEQNO_MODULUS


def _snapshot_restarts(pipeline: FeedPipeline) -> int:
    return pipeline.counters()["snapshot"]["session_restarts"]


def _follow(pipeline: FeedPipeline, objects: ObjectGate, order: list[_Order]) -> None:
    for message in pipeline.take():
        if message.kind == Kind.SESSION:
            order[:] = [_Order(), _Order(_snapshot_restarts(pipeline))]
        order[message.channel].see(message, pipeline)
        admitted(objects, message, gated=message.object_type != 0)


def _check_accounting(pipeline: FeedPipeline, verdicts: list[int]) -> None:
    # NL0: what the calls returned is what the counters say, over all lines.
    counted = [0] * len(VERDICTS)
    for scope, values in pipeline.counters().items():
        if "." in scope:
            for index, info in enumerate(VERDICTS):
                counted[index] += values[info.name]
    if counted != verdicts:
        raise FuzzError(f"verdicts {verdicts}, counters {counted}")


def _pipeline(rng: random.Random, lines: int) -> FeedPipeline:
    window = rng.choice((16, 64, 1024))
    return FeedPipeline(
        revision=rng.choice(("current", "current", "legacy")),
        encodings=rng.choice(((1, 2), (2,))),
        lines_incremental=lines,
        lines_snapshot=lines,
        window=window,
        slab_cells=rng.choice((64, 256)),
        out_of_order_max_interval=rng.choice((1, 8, window, window)),
        on_gap=rng.choice(("keep_all", "latest_run")),
        session_adopt_datagrams=rng.choice((1, 2, 2, 4)),
        stale_session_grace_ns=rng.choice((0, 10_000_000, 10**12)),
        restart_datagrams=rng.choice((0, 4, 32)),
        inactivity_timeout_ns=rng.choice((0, 10_000_000)),
    )


def _datagrams(rng: random.Random) -> list[tuple[int, bytes]]:
    # What two sessions of a gateway publish: whole messages, fragments, heartbeats, snapshots.
    valid: list[tuple[int, bytes]] = []
    for session_id in (rng.randrange(65536), rng.randrange(65536)):
        publication = Publication(
            session_id,
            first_seqno=rng.choice((0, 1, 4096, SEQNO_MODULUS - 50)),
            first_snapshot_seqno=rng.choice((0, 1, SEQNO_MODULUS - 20)),
        )
        for now_ns in range(200):
            payload = rng.randbytes(rng.choice((1, 40, 511, 512, 513, 1024, 3000)))
            kind, number = rng.randint(0, 3), rng.randint(0, 5)
            if rng.random() < 0.3:
                publication.publish_snapshot(payload, kind, number, now_ns=now_ns)
            else:
                publication.publish(payload, kind, number, now_ns=now_ns)
            if rng.random() < 0.1:
                publication.heartbeat(now_ns)
            for channel in (0, 1):
                valid += [(channel, data) for data in publication.take(channel)]
    return valid


def _verifies(payload: memoryview) -> bool:
    from udpfast.payload.roq.flatbuffer import verify

    try:
        verify(payload)
    except FormatError:
        return False
    return True


def _event_payload(rng: random.Random) -> bytes:
    from udpfast.payload.roq.event import MESSAGE_NAMES, encode_event
    from udpfast.payload.roq.schema import MESSAGES

    # Mostly of the types that are decoded.
    name = rng.choice(list(MESSAGE_NAMES.values()) if rng.random() < 0.75 else MESSAGES[1:])
    source = _table(rng, "SourceInfo", 1) if rng.random() < 0.5 else None
    return encode_event({"source_info": source, "value_name": name, "value": _table(rng, name, 0)})


def _table(rng: random.Random, name: str, depth: int) -> dict[str, Any]:
    # About two of three fields are present.
    from udpfast.payload.roq.schema import TABLES

    return {
        field.name: _value(rng, field.type, depth)
        for field in TABLES[name]
        if rng.random() < 0.7 and field.type != "Message"
    }


def _value(rng: random.Random, type_: str, depth: int) -> Any:
    from udpfast.payload.roq.schema import ENUMS, TABLES

    if type_.startswith("["):
        count = rng.choice((0, 1, 2, 7)) if depth < 3 else 0
        return [_value(rng, type_[1:-1], depth + 1) for _ in range(count)]
    if type_ in TABLES:
        return _table(rng, type_, depth + 1)
    if type_ in ENUMS:
        return rng.choice(list(ENUMS[type_]))
    if type_ == "string":
        return "x" * rng.choice((0, 1, 7, 24, 64, 300))
    if type_ == "bool":
        return rng.random() < 0.5
    if type_ == "float64":
        return rng.choice((0.0, 1.5, -1e300, float("nan"), float("inf")))
    return rng.choice((0, 1, 100, 127, 200))


KINDS: dict[str, Callable[[int, int], dict[str, int]]] = {
    "datagrams": fuzz_datagrams,
    "payloads": fuzz_payloads,
    "frames": fuzz_frames,
    "venues": fuzz_venues,
    "wire": fuzz_wire,
    "feed": fuzz_feed,
    **{name: partial(fuzz_wire, name=name) for name in FRAMINGS},
}


@program
@click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")
@click.option("--count", type=click.IntRange(1), default=100_000, help="Inputs, default 100000.")
@click.option("--seed", type=int, default=1, help="Of the first case, default 1.")
def main(kind: str, count: int, seed: int) -> bool:
    """Run cases until `count` inputs are through; return whether one failed."""
    began = time.monotonic()
    # The child says in shared memory which case it is at: it may die without another word.
    progress = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        os._exit(_run(kind, count, seed, progress))
    _, status = os.waitpid(child, 0)
    if status == 0:
        click.echo(f"{kind}: {time.monotonic() - began:.1f} s, nothing found")
        return False
    (seed,) = struct.unpack("<q", progress[:8])
    end = os.waitstatus_to_exitcode(status)
    how = f"ended by {signal.Signals(-end).name}" if end < 0 else f"ended with exit code {end}"
    click.echo(f"{kind}: case {seed} {how}")
    click.echo(repeat(__name__, kind, count=min(CASE_INPUTS, count), seed=seed))
    return True


def _run(kind: str, count: int, seed: int, progress: mmap.mmap) -> int:
    total: dict[str, int] = {}
    try:
        while count > 0:
            progress[:8] = struct.pack("<q", seed)
            signal.alarm(CASE_SECONDS_MAX)  # its default action ends the process
            for name, number in KINDS[kind](seed, min(count, CASE_INPUTS)).items():
                total[name] = total.get(name, 0) + number
            count -= CASE_INPUTS
            seed += 1
    except Exception:
        traceback.print_exc()
        return 1
    print(f"{kind}: {sum(total.values())} inputs:")
    for name in sorted(total, key=lambda name: -total[name]):
        print(f"  {name:24s} {total[name]:10d}")
    sys.stdout.flush()
    return 0
