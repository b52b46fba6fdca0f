"""Objects in their corners: seeded publishers that do all that the protocol lets them.

    udpfast lab object-corners --seeds 1000 --seed 1

A publisher here says last_seqno 0 wherever "none yet" is true, at any distance from a wrap; sends
messages with and without snapshots under one key; sends snapshots that lag or run ahead, of objects
that have never been updated too. The gate gets what is left of it, with holes, joined at any point,
and some of its outputs are refused. An object's state is the number of its gated messages, so that
each update says on which state alone it may be applied. Checked are:

- no update is ever applied on another state than the one it follows;
- with snapshots that come at once, what is LIVE is the publisher's state;
- once nothing is lost any more, every object is LIVE and equal within a few rounds of snapshots.

A seed that fails prints the one command that repeats it.
"""

import random
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from udpfast.core.layout import Channel, Kind, ObjectStatus, RecordFlag
from udpfast.market.gate import ObjectGate, ObjectOutput

from .follower import Wrong
from .program import by_seeds

__all__ = ["main", "run"]

_WRAP = 1 << 32
_GAP = struct.Struct("<QQQqII")
_SESSION = struct.Struct("<QQQQIIII")
_STATE = struct.Struct("<I")
_TYPE = 3
_MESSAGES = 400


@dataclass
class _Truth:
    """An object as its publisher has it."""

    count: int = 0  # gated messages so far: its state
    last_seqno: int = 0  # on the wire: 0, none yet
    seen: int | None = None  # the state that the gate's outputs add up to


@dataclass
class _Case:
    """What a seed decides, before anything is sent."""

    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        before_wrap = rng.choice((1, 7, 40, 200, 5_000, 1 << 20, (1 << 24) - 9, (1 << 24) + 9))
        self.start = rng.choice((0, 1, 2, 1_000, 1 << 31, _WRAP - before_wrap, _WRAP + before_wrap))
        self.join = rng.choice((0, 0, rng.randrange(1, 150)))
        # Publishers number from 1: who joins at 1 has seen all. Nothing on the wire can tell that
        # there was a number 0 before it.
        self.join += self.join > 0 and (self.start + self.join) % _WRAP == 1
        self.objects = rng.choice((1, 3, 8))
        self.late = rng.choice((0.0, 0.5, 1.0))  # objects that begin late: none yet, for long
        self.ungated = rng.choice((0.0, 0.0, 0.3, 0.9))
        self.other = rng.choice((0.0, 0.3))  # heartbeats and messages of type 0
        self.loss = rng.choice((0.0, 0.02, 0.1))
        self.refused = rng.choice((0.0, 0.0, 0.02))
        self.lag = rng.choice((0, 0, 3, 30, 100))
        # By how many messages snapshots run ahead of the incremental channel.
        self.ahead = rng.choice((0, 3, 30)) if self.lag == 0 else 0
        self.limits: dict[str, Any] = {
            "objects_max": 32,
            "collect_messages_max": rng.choice((2, 5, 50)),
            "collect_bytes": rng.choice((1 << 14, 1 << 20)),
        }


class _Run:
    def __init__(self, case: _Case) -> None:
        self.case = case
        self.gate = ObjectGate(**case.limits)
        self.truth = [_Truth() for _ in range(case.objects)]
        self.lost = 0  # messages of the hole that is not reported yet
        self.joined = False  # whoever joined gets what is sent from now on
        self.begun = False  # the session's beginning arrived
        #: Snapshots on their way: when they arrive, object, state, last_seqno.
        self.snapshots: deque[tuple[int, int, int, int]] = deque()
        #: What the incremental channel brings, and when: behind snapshots that run ahead of it.
        self.incremental: deque[tuple[int, dict[str, Any]]] = deque()

    def message(self, number: int, loss: float) -> None:
        """Publish the next incremental message; lose it, or send it on its way."""
        case, rng = self.case, self.case.rng
        seqno = (case.start + number) % _WRAP
        kind = rng.random()
        object_id = rng.randrange(case.objects)
        late = object_id < case.late * case.objects and number < _MESSAGES * 3 // 4
        ungated = kind < case.other + case.ungated
        snapshot = rng.random() < 0.02
        last, payload, key = 0, b"", (0, 0)
        if kind >= case.other and not late:
            truth = self.truth[object_id]
            key, last = (_TYPE, object_id), truth.last_seqno
            truth.count += not ungated
            truth.last_seqno = seqno
            payload = _STATE.pack(truth.count)
        if number < case.join:
            return
        if not self.joined:
            self._send(number, Kind.SESSION, _SESSION.pack(0, 7, seqno, 0, 1, 0, 0, 0))
            self.joined = True
        if rng.random() < loss:
            self.lost += 1
            return
        if self.lost:
            first = (seqno - self.lost) % _WRAP
            gap = _GAP.pack(first, (seqno - 1) % _WRAP, self.lost, 0, 2, 0)
            self._send(number, Kind.GAP, gap)
            self.lost = 0
        flags = RecordFlag.SNAPSHOT if snapshot and not ungated else RecordFlag(0)
        if not key[0]:
            flags = RecordFlag.HEARTBEAT
        self._send(
            number,
            Kind.MESSAGE,
            payload,
            object_type=key[0],
            object_id=key[1],
            seqno=seqno,
            last_seqno=last,
            flags=flags,
            gated=not ungated,
        )

    def arrive(self, number: int) -> None:
        """Hand on those incremental messages whose time has come."""
        while self.incremental and self.incremental[0][0] <= number:
            self._admit(**self.incremental.popleft()[1])
            self.begun = True

    def snapshot(self, number: int) -> None:
        """Take the snapshot that is due, and hand on those whose time has come."""
        object_id = number % self.case.objects
        truth = self.truth[object_id]
        self.snapshots.append((number + self.case.lag, object_id, truth.count, truth.last_seqno))
        if self.joined and not self.begun:
            return  # the feed keeps them until it knows their session
        while self.snapshots and self.snapshots[0][0] <= number:
            _, object_id, count, last = self.snapshots.popleft()
            if self.joined:
                self._admit(
                    kind=Kind.MESSAGE,
                    channel=Channel.SNAPSHOT,
                    object_type=_TYPE,
                    object_id=object_id,
                    seqno=number % _WRAP,
                    last_seqno=last,
                    flags=RecordFlag.SNAPSHOT,
                    payload=_STATE.pack(count),
                    gated=True,
                )

    def check_live(self) -> None:
        """Check what is LIVE, where nothing lags and no hole is unsaid."""
        if self.case.lag == 0 and self.lost == 0 and not self.incremental:
            for object_id, truth in enumerate(self.truth):
                view = self.gate.state(_TYPE, object_id)
                if view and view.status == ObjectStatus.LIVE and truth.seen != truth.count:
                    raise Wrong(f"{object_id} is LIVE at {truth.seen}, not {truth.count}: {view}")

    def check_all(self) -> None:
        """Check that everything is here."""
        for object_id, truth in enumerate(self.truth):
            view = self.gate.state(_TYPE, object_id)
            if view is None or view.status != ObjectStatus.LIVE or truth.seen != truth.count:
                raise Wrong(
                    f"{object_id} is at {truth.seen}, not {truth.count}, in the end: {view}"
                )

    def _send(self, number: int, kind: Kind, payload: bytes, **message: Any) -> None:
        message.update(kind=kind, channel=Channel.INCREMENTAL, payload=payload)
        self.incremental.append((number + self.case.ahead, message))

    def _admit(self, *, kind: Kind, gated: bool = False, **message: Any) -> None:
        refused = gated and self.case.rng.random() < self.case.refused
        for output in self.gate.admit(kind=kind, gated=gated, refused=refused, **message):
            if output.kind == Kind.MESSAGE and not output.flags & RecordFlag.UNGATED:
                self._apply(output)

    def _apply(self, output: ObjectOutput) -> None:
        truth = self.truth[output.object_id]
        (count,) = _STATE.unpack(output.payload)
        # The very first update of an object needs no state before it.
        first = truth.seen is None and count == 1
        if not output.flags & RecordFlag.SNAPSHOT and truth.seen != count - 1 and not first:
            raise Wrong(f"update to {count} is applied on {truth.seen}: {output}")
        truth.seen = count


def run(seed: int) -> None:
    """Run one seed; raise `Wrong` if the gate says what is not true."""
    case = _Case(seed)
    run = _Run(case)
    for number in range(_MESSAGES):
        run.message(number, case.loss)
        run.arrive(number)
        run.snapshot(number)
        run.check_live()
    case.refused = 0.0
    # Long enough for what lags, and for two rounds of snapshots behind it.
    quiet = _MESSAGES + case.lag + case.ahead + 12 * case.objects + 12
    for number in range(_MESSAGES, quiet):
        run.message(number, 0.0)
        run.arrive(number)
        run.snapshot(number)
    # Then nothing changes any more: the last snapshots are of now.
    for number in range(quiet, quiet + case.lag + case.ahead + 4 * case.objects):
        run.arrive(number)
        run.snapshot(number)
    run.check_all()


main = by_seeds(__name__, run, 1000)
