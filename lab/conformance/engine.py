"""Captures of any venue through the engine: what it delivers, what it says is missing.

Each line, and each pair of lines, is a feed of its own. What comes out is compared with the
expectation's numbers: the first and the next one, what never came, restarts, and for a pair what
each line brought first. The receiver is a patient one, as the expectation is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import SESSION, Kind, Stream
from udpfast.feed.pipeline import FeedPipeline
from udpfast.net.pcap import CapturedDatagram, CaptureReader
from udpfast.wire.facts import Heartbeat, Numbers
from udpfast.wire.framing import Framing, MalformedError, ParsedUnit, UnitFlag

from ..numbering import Naive, Spans
from . import Report, difference, is_cut

__all__ = ["Numbering", "Replayed", "check_engine", "numbers_of", "power_of_two", "replay_lines"]

#: Longer than any capture, so that what comes late is waited for.
PATIENCE_NS = 3_600_000_000_000

#: A window that is not asked for is no larger: of one stream, of each of several.
WINDOW_MAX = 1 << 18
WINDOW_OF_STREAM = 1 << 12

#: Verdicts of units that brought something first.
_FIRST = ("delivered", "held")
_COPIES = ("duplicate", "late", "replay")

#: What of an expectation the feed is compared with; one that lacks some of it is not.
_OF_RUN = ("units", "first_seq", "next_expected", "gaps", "old_or_duplicate", "never_received")
_OF_HOLES = ("holes", "numbers", "first_holes")
_OF_PAIR = (
    *("unique", "first_copy_from_a", "first_copy_from_b", "second_copies"),
    *("gap_count_after_arbitration", "gaps_after_arbitration"),
)


class Record(Protocol):
    """What is looked at of a record."""

    @property
    def kind(self) -> Kind:
        """What it is."""

    @property
    def stream(self) -> int:
        """Which stream of the feed it is of."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def payload(self) -> bytes:
        """Of GAP and SESSION; of others it does not matter."""


@dataclass(slots=True)
class Numbering:
    """What the engine made of one session of one stream.

    Attributes
    ----------
    label : str
        As people name it.
    first, next : int
        The first number, and the one behind the last that was delivered or given up.
    numbers : int
        Records with a number.
    gaps : Spans
        Numbers that were given up.
    broken : str
        What was wrong with the order; empty: nothing.
    """

    label: str
    first: int
    next: int
    numbers: int = 0
    gaps: Spans = field(default_factory=Spans)
    broken: str = ""

    def take(self, message: Record) -> None:
        """Take a record of this numbering."""
        if message.kind == Kind.MESSAGE:
            first, last = message.number, message.number
            self.numbers += 1
        else:
            first = int.from_bytes(message.payload[0:8], "little")
            last = int.from_bytes(message.payload[8:16], "little")
            self.gaps.add(first, last + 1)
        if first != self.next and not self.broken:
            self.broken = f"{message.kind.name} [{first}, {last}] came where {self.next} was next"
        self.next = last + 1


@dataclass(slots=True)
class Replayed:
    """What came out of the lines of one feed.

    Attributes
    ----------
    numberings : list of Numbering
        In the order in which they began.
    unsequenced : int
        Records without a number.
    counters : dict
        Of the pipeline.
    datagrams : list of int
        Of each line.
    """

    numberings: list[Numbering]
    unsequenced: int
    counters: dict[str, dict[str, int]]
    datagrams: list[int]

    def verdicts(self, line: int, names: Iterable[str]) -> int:
        """Return how many units of a line got one of these verdicts."""
        return sum(self.counters[f"incremental.{line}"][name] for name in names)

    def ledger(self) -> str | None:
        """Return why the ledger does not add up, or None."""
        for line, datagrams in enumerate(self.datagrams):
            units = datagrams + self.counters[f"incremental.{line}"]["units_more"]
            verdicts = self.verdicts(line, (info.name for info in VERDICTS))
            if units != verdicts:
                return f"line {line}: {units} units, {verdicts} verdicts"
        return None


class Collector:
    """Sort what a feed hands out by numbering.

    Attributes
    ----------
    numberings : list of Numbering
        In the order in which they began.
    unsequenced : int
        Records without a number.
    """

    def __init__(self, framing: Framing) -> None:
        self.numberings: list[Numbering] = []
        self.unsequenced = 0
        self._framing = framing
        self._current: dict[int, Numbering] = {}

    def take(self, messages: Iterable[Record]) -> None:
        """Take what came out."""
        for message in messages:
            if message.kind == Kind.SESSION:
                self._begin(message)
            elif message.kind == Kind.GAP:
                if message.stream != Stream.NONE:  # else of streams for which there is no room
                    self._current[message.stream].take(message)
            elif message.kind == Kind.MESSAGE:
                if message.number or self._current.get(message.stream):
                    self._numbered(message)
                else:
                    self.unsequenced += 1

    def _numbered(self, message: Record) -> None:
        numbering = self._current[message.stream]
        if message.number == 0 and numbering.next != 0:
            self.unsequenced += 1
        else:
            numbering.take(message)

    def _begin(self, message: Record) -> None:
        session = np.frombuffer(message.payload, SESSION, 1)[0]
        first = int(session["first_number"])
        label = self._framing.facts.label(int(session["stream"]), int(session["new_id"]))
        numbering = Numbering(label or "None", first, first)
        self._current[message.stream] = numbering
        self.numberings.append(numbering)


def numbers_of(framing: Framing, datagrams: Iterable[CapturedDatagram]) -> int:
    """Return how many numbers datagrams take, copies included."""
    return sum(unit.count for unit in _units(framing, datagrams))


def power_of_two(value: int, low: int, high: int) -> int:
    """Return the power of two that is not below `value`, between `low` and `high`."""
    return int(min(high, max(low, 1 << (value - 1).bit_length())))


def replay_lines(
    framing: Framing, datagrams: Sequence[tuple[int, CapturedDatagram]], lines: int, **settings: Any
) -> Replayed:
    """Bring captured datagrams, each with the number of its line, into a feed.

    It waits for as many numbers as there are: a full window would end its patience.
    """
    numbers = numbers_of(framing, (datagram for _, datagram in datagrams))
    largest = WINDOW_OF_STREAM if framing.facts.stream else WINDOW_MAX
    pipeline = FeedPipeline(
        framing=framing.name,
        lines_incremental=lines,
        lines_snapshot=0,
        **{
            "lost_packet_wait_ns": PATIENCE_NS,
            "line_dead_ns": PATIENCE_NS,
            "inactivity_timeout_ns": 0,
            "streams": 40 if framing.facts.stream else 2,
            "window": power_of_two(numbers, 256, largest),
            **settings,
        },
    )
    collector = Collector(framing)
    counts = [0] * lines
    now_ns = 0
    for line, datagram in datagrams:
        now_ns = max(now_ns, datagram.timestamp_ns)
        pipeline.expire(now_ns)
        collector.take(pipeline.take())
        pipeline.accept(0, line, datagram.payload, datagram.timestamp_ns, now_ns)
        collector.take(pipeline.take())
        counts[line] += 1
    pipeline.finish(now_ns)
    collector.take(pipeline.take())
    return Replayed(collector.numberings, collector.unsequenced, pipeline.counters(), counts)


def check_engine(name: str, path: Path, expect: dict[str, Any], report: Report) -> None:
    """Replay one capture through the engine: each flow alone, then each pair of lines."""
    framing = Framing(expect["framing"])
    flows: dict[tuple[str, str], list[CapturedDatagram]] = {}
    with CaptureReader(path) as reader:
        for datagram in reader:
            key = (f"{_text(datagram.source)}", _text(datagram.destination))
            flows.setdefault(key, []).append(datagram)
    for flow in expect.get("flows", ()):
        key = (f"{flow['src']}:{flow['sport']}", f"{flow['dst']}:{flow['dport']}")
        runs = [run for label in flow.get("streams", {}) for _, run in _runs(label, flow)]
        lacking = {key for run in runs for key in _OF_RUN if key not in run}
        lacking |= {
            f"never_received.{key}"
            for run in runs
            for key in _OF_HOLES
            if key not in run.get("never_received", ())
        }
        if not runs:
            lacking.add("streams")
        label = f"{name} {key[1]} engine"
        if lacking:
            report.not_compared(label, [f"anything, for want of {', '.join(sorted(lacking))}"])
        else:
            report.case(label, _flow, framing, flow, flows.get(key, []))
    for pair in expect.get("a_b", ()):
        label = f"{name} {pair['a']} {pair['b']} engine"
        lacking = {key for key in _OF_PAIR if key not in pair}
        if lacking:
            report.not_compared(label, [f"anything, for want of {', '.join(sorted(lacking))}"])
        else:
            report.case(label, _pair, framing, pair, path)


def _text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _flow(framing: Framing, flow: dict[str, Any], datagrams: list[CapturedDatagram]) -> str | None:
    replayed = replay_lines(framing, [(0, one) for one in datagrams], 1)
    units = list(_units(framing, datagrams))
    unsequenced = [unit for unit in units if unit.flags & UnitFlag.UNSEQUENCED]
    problem = replayed.ledger() or _broken(replayed)
    if problem is not None:
        return problem
    runs = [run for label in flow["streams"] for run in _runs(label, flow)]
    if not unsequenced and framing.facts.heartbeat is not Heartbeat.LAST:
        told = sum(run["units"] for _, run in runs)
        problem = difference(told, _sound(replayed), "units")
    if unsequenced or framing.facts.heartbeat is Heartbeat.LAST or _repeats(framing, flow, units):
        runs = list(_oracle(framing, units))
    else:
        told = sum(run["old_or_duplicate"] for _, run in runs)
        copies = replayed.verdicts(0, _COPIES) + _fills(framing, units)
        problem = problem or difference(told, copies, "old_or_duplicate")
    expected = sorted(_said(label, run) for label, run in runs)
    found = sorted(
        (one.label, one.first, one.next, one.gaps.spans, one.numbers) for one in replayed.numberings
    )
    problem = problem or difference(
        _lists(one[:-1] for one in expected), _lists(_as_listed(expected, found)), "numberings"
    )
    if problem is None and framing.facts.numbers is Numbers.MESSAGES and framing.facts.delimited:
        taking = sum(unit.messages for unit in unsequenced if not _is_heartbeat(unit))
        problem = difference(taking, replayed.unsequenced, "unsequenced")
    return problem


def _begins(framing: Framing, unit: ParsedUnit) -> bool:
    # By its own word a sender begins anew: IEX's number 1 at offset 0.
    return framing.name == "iex_tp" and unit.number == 1 and unit.detail == 0


def _repeats(framing: Framing, flow: dict[str, Any], units: list[ParsedUnit]) -> bool:
    # Whether what the expectation takes for restarts are copies: a sender that begins anew sends
    # later than all before. (A capture may be put together of single datagrams.)
    told = sum(stream.get("restarts", 0) for stream in flow["streams"].values())
    found, latest_ns, brought = 0, 0, False
    for unit in units:
        if brought and unit.sent_ns > latest_ns and _begins(framing, unit):
            found, brought = found + 1, False
        latest_ns = max(unit.sent_ns, latest_ns)
        brought = brought or unit.count > 0
    return bool(found != told)


def _fills(framing: Framing, units: list[ParsedUnit]) -> int:
    # Units that came behind later ones and brought something all the same.
    runs: dict[str, tuple[Spans, int]] = {}
    count = 0
    for unit in units:
        label = framing.label(unit)
        if label not in runs or (_begins(framing, unit) and runs[label][0].spans):
            runs[label] = Spans(), unit.number
        received, expected = runs[label]
        if unit.count:
            fresh = received.add(unit.number, unit.number + unit.count)
            count += fresh and received.spans[0][0] < unit.number < expected
        runs[label] = received, max(expected, unit.number + unit.count)
    return count


def _is_heartbeat(unit: ParsedUnit) -> bool:
    return bool(unit.flags & UnitFlag.HEARTBEAT)


def _lists(value: Any) -> Any:
    return (
        [_lists(one) for one in value]
        if isinstance(value, Iterable) and not isinstance(value, str)
        else value
    )


def _broken(replayed: Replayed) -> str | None:
    return next((one.broken for one in replayed.numberings if one.broken), None)


def _sound(replayed: Replayed) -> int:
    line = replayed.counters["incremental.0"]
    names = ("delivered", "held", "duplicate", "late", "replay", "heartbeat", "session_pending")
    return sum(line[name] for name in names)


def _units(framing: Framing, datagrams: Iterable[CapturedDatagram]) -> Iterable[ParsedUnit]:
    for datagram in datagrams:
        try:
            yield from framing.units(datagram.payload)
        except MalformedError:
            continue


def _runs(label: str, flow: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    stream = flow["streams"][label]
    return [(label, run) for run in stream.get("segments", [stream])]


def _as_listed(expected: list[Any], found: list[Any]) -> Iterable[Any]:
    # Where the expectation cuts its list of gaps short, compare as many as it has.
    for number, one in enumerate(found):
        cut = number < len(expected) and expected[number][-1]
        spans = one[3][: len(expected[number][3])] if cut else one[3]
        yield (*one[:3], spans, one[4])


def _said(label: str, run: dict[str, Any]) -> tuple[str, int, int, list[list[int]], int, bool]:
    # What a patient receiver says of one run: what never came, and before the first that came what
    # a heartbeat had named.
    first, following = run["first_seq"], run["next_expected"]
    listed = run["never_received"]["first_holes"]
    holes = [[low, high + 1] for low, high in listed]
    cut = is_cut(listed, run["never_received"]["holes"])
    missing = run["never_received"]["numbers"]
    if run["gaps"] and run["gaps"][0][0] == first:
        holes.insert(0, [first, run["gaps"][0][1] + 1])
        missing += holes[0][1] - holes[0][0]
    return label, first, following, holes, following - first - missing, cut


def _oracle(framing: Framing, units: list[ParsedUnit]) -> Iterable[tuple[str, dict[str, Any]]]:
    # The same by what the units say, where some of them have no place in the order, or lie before
    # the one with which the feed began.
    runs: dict[str, Naive] = {}
    for unit in units:
        if not unit.flags & UnitFlag.UNSEQUENCED:
            naive = runs.setdefault(framing.label(unit) or "None", Naive())
            if naive.first is not None and unit.number + unit.count <= naive.first:
                continue
            naive.unit(
                "",
                unit.number,
                unit.count,
                unit.messages,
                names_next=framing.facts.heartbeat is not Heartbeat.NONE,
            )
    for label, naive in runs.items():
        yield label, naive.found()


def _pair(framing: Framing, pair: dict[str, Any], path: Path) -> str | None:
    lines = {pair["a"]: 0, pair["b"]: 1}
    with CaptureReader(path) as reader:
        sent = [
            (lines[_text(datagram.destination)], datagram)
            for datagram in reader
            if _text(datagram.destination) in lines
        ]
    replayed = replay_lines(framing, sent, 2)
    problem = replayed.ledger() or _broken(replayed)
    if problem is not None:
        return problem
    gaps = [span for one in replayed.numberings for span in one.gaps.spans]
    before = _before(framing, pair, path, replayed)
    first = [replayed.verdicts(line, _FIRST) for line in range(2)]
    copies = sum(replayed.verdicts(line, _COPIES) for line in range(2)) - sum(before)
    listed = pair["gaps_after_arbitration"]
    cut = is_cut(listed, pair["gap_count_after_arbitration"])
    return difference(
        {
            "unique": pair["unique"],
            "first_copy_from_a": pair["first_copy_from_a"],
            "first_copy_from_b": pair["first_copy_from_b"],
            "second_copies": pair["second_copies"],
            "gap_count_after_arbitration": pair["gap_count_after_arbitration"],
            "gaps_after_arbitration": listed,
        },
        {
            "unique": sum(first) + sum(before),
            "first_copy_from_a": first[0] + before[0],
            "first_copy_from_b": first[1] + before[1],
            "second_copies": copies,
            "gap_count_after_arbitration": len(gaps),
            "gaps_after_arbitration": [
                [low, high - 1] for low, high in (gaps[: len(listed)] if cut else gaps)
            ],
        },
    )


def _before(framing: Framing, pair: dict[str, Any], path: Path, replayed: Replayed) -> list[int]:
    # Units of each line from before the number with which the feed began: a receiver that has just
    # joined cannot deliver them behind that one.
    first = min(one.first for one in replayed.numberings)
    counts, seen = [0, 0], set()
    lines = {pair["a"]: 0, pair["b"]: 1}
    with CaptureReader(path) as reader:
        for datagram in reader:
            line = lines.get(_text(datagram.destination))
            if line is None:
                continue
            for unit in framing.units(datagram.payload):
                if unit.count and unit.number < first and unit.number not in seen:
                    seen.add(unit.number)
                    counts[line] += 1
    return counts
