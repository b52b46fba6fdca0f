"""From the stamps that the loops have kept to a Result; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.net.line import LineAddress
from udpfast.probe.control import Clock, Report
from udpfast.probe.offset import Offset, Trips, find_offset
from udpfast.probe.result import LineResult, Result

__all__ = ["Kept", "arrived_only", "measured"]

Arrays = Mapping[str, npt.NDArray[Any]]
#: Name, address, samples, the last listener's report, what arrived by it, stamps, counts, probes
#: that were not sent by reason, the first probe that each listener can have had, and the reports of
#: those before.
Kept = tuple[
    str,
    LineAddress,
    Arrays,
    Report | None,
    npt.NDArray[np.bool_] | None,
    str,
    Mapping[str, int],
    Mapping[str, int],
    Sequence[int],
    Sequence[Report],
]

#: What a sender says of its time is its word alone.
TIME_MAX_NS = 1 << 62

#: What a listener counts, as a result calls it.
_REPORTED = {
    "duplicates": "out_duplicates",
    "reordered": "out_reordered",
    "unsent": "listener_unsent",
    "strangers": "listener_strangers",
    "malformed": "listener_malformed",
    "kernel_drops": "listener_kernel_drops",
}


def measured(
    lines: Sequence[Kept],
    *,
    due_ns: npt.NDArray[np.int64],
    start_ns: int,
    utc_offset_ns: int,
    rate_per_s: float,
    size_bytes: int,
    train: int,
    complete: bool,
    listener_starts: int,
    here: Clock,
    there: Clock,
) -> Result:
    """Return what a sender's run has found.

    Parameters
    ----------
    lines : sequence of Kept
        Arrays may be longer than `due_ns`: the rest was never due.
    due_ns : numpy.ndarray of int64
        Since `start_ns`, of the probes whose time has come.
    start_ns, utc_offset_ns : int
        Monotonic, and what UNIX time has more.
    rate_per_s, size_bytes, train, complete, listener_starts
        As in `Result`.
    here, there : Clock
    """
    count = len(due_ns)
    cut = [{name: values[:count] for name, values in line[2].items()} for line in lines]
    trips = [_trips(samples, utc_offset_ns) for samples in cut]
    offset = find_offset(
        [
            Trips(*(values[samples["returned_ns"] != 0] for values in each))
            for each, samples in zip(trips, cut, strict=True)
        ],
        here,
        there,
    )
    planned_ns = start_ns + due_ns
    results = {
        line[0]: _line(line, samples, stamps, planned_ns, utc_offset_ns, offset)
        for line, samples, stamps in zip(lines, cut, trips, strict=True)
    }
    return Result(
        results,
        planned_ns + utc_offset_ns,
        rate_per_s,
        size_bytes,
        train,
        offset,
        complete,
        listener_starts,
    )


def arrived_only(
    lines: Mapping[str, tuple[LineAddress, Arrays, str, Mapping[str, int], int]],
    *,
    rate_per_s: float,
    size_bytes: int,
    train: int,
    here: Clock,
    there: Clock,
) -> Result:
    """Return what a listener has found; it knows the way out alone.

    Parameters
    ----------
    lines : mapping
        By name: the address of the line's sender; its arrays `sent_ns` and `reached_ns`, an element
        per probe, 0 where none arrived; which stamps were asked for; what was counted; how many
        probes had left before it was heard.
    rate_per_s, size_bytes, train : float, int, int
        Probes a second, bytes of each, and how many leave in one go.
    here, there : Clock
        What the sender says of its clock, and what the listener says of its own.
    """
    heard = [np.flatnonzero(line[1]["reached_ns"]) for line in lines.values()]
    # Whether those before the first were lost or not listened for, nobody knows.
    firsts = [
        began and int(there[0] if len(there) else began)
        for there, (*_, began) in zip(heard, lines.values(), strict=True)
    ]
    first = min(firsts, default=0)
    end = max((int(there[-1]) + 1 for there in heard if len(there)), default=first)
    count, probes = end - first, max((len(line[1]["order"]) for line in lines.values()), default=0)
    offset = find_offset([], here, there)
    planned = np.zeros(count, dtype=np.int64)
    for _, arrays, *_ in lines.values():
        planned = np.maximum(planned, np.clip(arrays["sent_ns"][first:end], 0, TIME_MAX_NS))
    _fill(planned)
    results = {}
    for began, (name, (where, arrays, stamps, counts, _)) in zip(
        firsts, lines.items(), strict=True
    ):
        sent_ns, reached_ns = arrays["sent_ns"][first:end], arrays["reached_ns"][first:end]
        arrived = reached_ns != 0
        early = _early(np.where(arrived, sent_ns, planned), reached_ns, arrived)
        unknown = np.full(count, np.nan)
        results[name] = LineResult(
            name=name,
            address=where.address,
            interface=where.interface,
            sent=np.ones(count, dtype=np.bool_),
            arrived=arrived,
            returned=None,
            away=np.arange(first, end) < began,
            asked=~early if began else np.ones(count, dtype=np.bool_),
            reported=True,
            round_trip_ns=unknown,
            late_ns=unknown,
            queued_ns=unknown,
            out_ns=np.where(arrived, offset.remove(reached_ns - sent_ns, sent_ns), np.nan),
            back_ns=unknown,
            turn_ns=unknown,
            out_order=arrays["order"][first:end].astype(np.int64),
            back_order=None,
            counts={word: counts[name] for name, word in _REPORTED.items()},
            unsent_reasons={},
            stamps={"reached": _who_stamped(stamps, counts["nic_stamps"])},
        )
    return Result(
        *(results, planned, rate_per_s, size_bytes, train, offset),
        False if first else True if end == probes else None,
        None if first else 1,
        side="listener",
        first_probe=first,
    )


def _fill(times: npt.NDArray[np.int64]) -> None:
    # A probe that came by no line left between its neighbours.
    there = np.flatnonzero(times)
    if len(there):
        times[:] = np.interp(np.arange(len(times)), there, times[there] - times[there[0]]).astype(
            np.int64
        ) + int(times[there[0]])


def _who_stamped(asked: str, nic_stamps: int) -> str:
    return asked if asked == "none" else "NIC" if nic_stamps else "kernel"


def _trips(samples: Arrays, utc_offset_ns: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the four stamps of each probe, UNIX ns: the best that there are."""
    departed, sent = samples["departed_ns"], samples["sent_ns"]
    left = np.where(departed != 0, departed, sent + utc_offset_ns)
    return left, samples["reached_ns"], samples["turned_ns"], samples["back_ns"]


def _line(
    line: Kept,
    samples: Arrays,
    trips: tuple[npt.NDArray[np.int64], ...],
    planned_ns: npt.NDArray[np.int64],
    utc_offset_ns: int,
    offset: Offset,
) -> LineResult:
    name, where, _, report, arrived, stamps, counts, refusals, starts, before = line
    left, reached, turned, back = trips
    sent, returned = samples["sent_ns"] != 0, samples["returned_ns"] != 0
    reported = arrived is not None
    told_of = arrived[: len(sent)] if arrived is not None else np.zeros_like(returned)
    # A listener that was started anew does not know what the one before it echoed.
    came = returned | told_of
    began = report.began if report is not None else 0
    known = np.arange(len(sent)) >= max((began, *starts))
    if began:
        known &= ~_early(left, reached, returned & told_of)

    def where_returned(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.where(returned, values, np.nan)

    own = {
        "unsent": counts["unsent"],
        "back_duplicates": counts["back_duplicates"],
        "back_reordered": reordered(samples["back_order"].astype(np.int64)),
        "strangers": counts["strangers"],
        "malformed": counts["malformed"],
        "kernel_drops": counts["kernel_drops"],
    }
    reports = [*before, *([report] if report is not None else [])]
    whole = 0 < max(len(starts), counts["sessions"]) <= len(reports)
    told = {
        word: sum(getattr(each, name) for each in reports) if whole else None
        for name, word in _REPORTED.items()
    }
    departed = samples["departed_ns"] != 0
    return LineResult(
        name=name,
        address=where.address,
        interface=where.interface,
        sent=sent,
        arrived=came & sent,
        returned=returned,
        away=_away(came, starts, began) & sent,
        asked=reported & known,
        reported=reported,
        round_trip_ns=where_returned(samples["returned_ns"] - planned_ns),
        late_ns=np.where(sent, samples["sent_ns"] - planned_ns, np.nan),
        queued_ns=np.where(departed, left - utc_offset_ns - samples["sent_ns"], np.nan),
        out_ns=where_returned(offset.remove(reached - left, left)),
        back_ns=where_returned(offset.remove(back - turned, left, -1)),
        turn_ns=where_returned(turned - reached),
        out_order=samples["out_order"].astype(np.int64),
        back_order=samples["back_order"].astype(np.int64),
        counts=own | told,
        unsent_reasons=refusals,
        stamps={
            "sent": "kernel or NIC" if departed.any() else "none",
            "reached": (
                _who_stamped(report.stamps, report.nic_stamps) if report is not None else "unknown"
            ),
            "returned": _who_stamped(stamps, counts["nic_stamps"]),
        },
    )


def _away(came: npt.NDArray[np.bool_], starts: Sequence[int], began: int) -> npt.NDArray[np.bool_]:
    """Return which probes left while no listener is known to have been there."""
    away = np.zeros(len(came), dtype=np.bool_)
    there = np.flatnonzero(came)

    def until_heard(start: int, *, died: bool) -> None:
        place = int(np.searchsorted(there, start))
        # One that gave up on a silent line was there until then: what the line lost is lost.
        first = 0 if not place else int(there[place - 1]) + 1 if died else start
        away[first : there[place] if place < len(there) else max(start, began)] = True

    for start in filter(None, starts):
        until_heard(start, died=True)
    if began:
        until_heard(began, died=False)
    return away


def _early(
    left: npt.NDArray[np.int64], reached: npt.NDArray[np.int64], had: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which probes would have come before the first that a listener had, if on time."""
    if not had.any():
        return np.zeros(len(had), dtype=np.bool_)
    fastest_ns = (reached - left)[had].min()
    return np.asarray(left + fastest_ns < reached[had].min(), dtype=np.bool_)


def reordered(order: npt.NDArray[np.int64]) -> int:
    """Return how many came after one with a higher number (RFC 4737); 0 in `order`: never came."""
    there = np.flatnonzero(order)
    numbers = there[np.argsort(order[there], kind="stable")]
    return int((numbers < np.maximum.accumulate(numbers)).sum()) if len(numbers) else 0
