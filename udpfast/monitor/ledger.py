"""The ledger: at each stage each unit and message has one verdict, and the sums are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from udpfast.core.counter import VERDICTS
from udpfast.log.readers import ReaderInfo

__all__ = ["FRAMES", "OBJECTS", "PUBLISH", "Ledger", "LedgerSum", "LineLedger", "ledger_of"]

Counters = Mapping[str, Mapping[str, int]]

#: Frames of AF_XDP that hold no datagram for a line.
FRAMES = ("frames_fragment", "frames_checksum", "frames_malformed", "frames_foreign")
#: Messages that the gate of Roq's objects kept back.
OBJECTS = (
    "objects_full",
    "updates_contained",
    "snapshots_skipped",
    "snapshots_too_old",
    "snapshots_broken",
)
#: Payloads of Roq of which no record was made.
PUBLISH = ("decode_refused", "types_none", "stream_status", "records_too_large")
#: Each message of a venue that is decoded is counted by exactly one of these.
_OUTCOMES = (
    "told",
    "withheld",
    "nothing_new",
    "types_opaque",
    "types_unknown",
    "decode_refused",
)
_ROQ, _VENUE = 1, 2  # core/counter, Decoder


class LineLedger(Struct, frozen=True):
    """Datagrams of one line, their units beyond the first, and the sum of the verdicts."""

    datagrams: int
    units_more: int
    verdicts: int


class LedgerSum(Struct, frozen=True):
    """Two counts that tie two stages together, and should be equal."""

    what: str
    left: int
    right: int
    equal: bool


class Ledger(Struct, frozen=True):
    """Units by verdict and by line, and all sums: whoever asks whether they are equal asks here."""

    datagrams: int
    units_more: int
    verdicts: int
    adds_up: bool
    difference: int
    by_verdict: dict[str, int]
    lines: dict[str, LineLedger]
    sums: tuple[LedgerSum, ...]


def ledger_of(counters: Counters, readers: Sequence[ReaderInfo] = (), records: int = 0) -> Ledger:
    """Compare what each stage took with what became of it.

    Parameters
    ----------
    counters : dict
        As `udpfast.counters(name)` returns them; lines are the scopes with a dot.
    readers : sequence of ReaderInfo
        Of its ring.
    records : int
        That the ring carried.
    """
    names = [info.name for info in VERDICTS]
    lines = {}
    for scope, values in counters.items():
        if "." in scope:
            verdicts = sum(values[name] for name in names)
            lines[scope] = LineLedger(values["datagrams"], values["units_more"], verdicts)
    totals = {name: sum(counters[scope][name] for scope in lines) for name in names}
    sums = tuple(
        LedgerSum(what, left, right, left == right)
        for stage in (
            _line_sums(counters, lines),
            _feed_sums(counters) if "feed" in counters else (),
            _reader_sums(readers, records),
        )
        for what, left, right in stage
    )
    return Ledger(
        datagrams=sum(line.datagrams for line in lines.values()),
        units_more=sum(line.units_more for line in lines.values()),
        verdicts=sum(totals.values()),
        adds_up=all(one.equal for one in sums),
        difference=sum(abs(one.left - one.right) for one in sums),
        by_verdict=totals,
        lines=lines,
        sums=sums,
    )


def _line_sums(
    counters: Counters, lines: Mapping[str, LineLedger]
) -> Iterator[tuple[str, int, int]]:
    for scope, line in lines.items():
        if frames := counters[scope].get("frames", 0):  # AF_XDP
            refused = sum(counters[scope][name] for name in FRAMES)
            yield f"{scope}: frames, datagrams + refused", frames, line.datagrams + refused
        yield f"{scope}: units, verdicts", line.datagrams + line.units_more, line.verdicts


def _feed_sums(counters: Counters) -> Iterator[tuple[str, int, int]]:
    feed = counters["feed"]
    messages = sum(
        counters[scope]["messages"] - counters[scope]["heartbeats"]
        for scope in ("incremental", "snapshot")
    )
    passed_on = feed["ungated"]
    if feed["decoder"] == _ROQ:
        passed_on += feed["applied"]
        yield (
            "messages, passed on + collected + kept back by objects",
            messages,
            passed_on + feed["collected"] + sum(feed[name] for name in OBJECTS),
        )
        passed_on += feed["released"]
    else:
        yield "messages, passed on", messages, passed_on
    if feed["decoder"] == _VENUE:
        outcomes = sum(feed[name] for name in _OUTCOMES)
        yield "messages passed on, told + withheld + nothing new + refused", passed_on, outcomes
    else:
        once = feed["records_raw"] + feed["records_too_large"]
        # With `ring.carry = "both"` a decoded payload is two records, but one message.
        if once < passed_on:
            once = feed["records_raw"] + feed["updates"] + sum(feed[name] for name in PUBLISH)
        yield "messages passed on, published + refused", passed_on, once
    yield (
        "records, updates + raw + control",
        feed["records"],
        feed["updates"] + feed["records_raw"] + feed["records_control"],
    )


def _reader_sums(readers: Sequence[ReaderInfo], records: int) -> Iterator[tuple[str, int, int]]:
    for reader in readers:
        known = reader.began_index + reader.read + reader.lapped
        yield (
            f"{reader.name}-{reader.pid}: records, before it + read + missed + lag",
            records,
            known + records - reader.index,
        )
