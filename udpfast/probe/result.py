"""What a run has found: an element per probe in numpy arrays, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from udpfast.page.words import counted, duration
from udpfast.probe.offset import Offset
from udpfast.shm.files import replacing

__all__ = ["LISTENER_OUT", "PERCENTS", "LineResult", "Race", "Result", "percentiles_of", "runs_of"]

Values = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Percentiles of every table.
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "p99_99": 99.99}

#: What a listener has instead of the way out: it does not know when a probe departed, and counts
#: from when it was handed to the sender's kernel.
LISTENER_OUT = "send to arrival"

_NAN = float("nan")


def percentiles_of(values: Values) -> dict[str, float]:
    """Return count, smallest, percentiles and largest of the values that are there; nan if none.

    A percentile is a measured value: the smallest that so many percent do not exceed.
    """
    there = values[~np.isnan(values)]
    if not len(there):
        return {"count": 0, "min": _NAN, **dict.fromkeys(PERCENTS, _NAN), "max": _NAN}
    found = np.percentile(there, list(PERCENTS.values()), method="inverted_cdf")
    return {
        "count": len(there),
        "min": float(there.min()),
        **dict(zip(PERCENTS, map(float, found), strict=True)),
        "max": float(there.max()),
    }


def runs_of(lost: Flags) -> Times:
    """Return the lengths of the runs of True, in order, int64."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], lost.view(np.int8), [0]))))
    return (edges[1::2] - edges[::2]).astype(np.int64)


class LineResult(Struct, frozen=True, eq=False, dict=True):
    """One line. Arrays have one element per probe; nan where there is none.

    Attributes
    ----------
    name, address, interface : str
        As the sender was given them; `interface` "" is the route's.
    sent : numpy.ndarray of bool
        The kernel took the probe. Those that it refused are `unsent` of `counts`.
    arrived : numpy.ndarray of bool
        The listener has it, by its own report; where `reported` is False, if its echo came back.
    returned : numpy.ndarray of bool, or None
        Its echo came back. None: a listener made this, who cannot know.
    away : numpy.ndarray of bool
        It left while no listener is known to have been there: behind the last probe that one is
        known to have had, before the first of the next. The line may have lost some of them.
    asked : numpy.ndarray of bool
        A listener could be asked whether it arrived. If not, loss is that of the whole round trip.
        One that began in the middle has no word on probes that may have come before it was ready,
        though it had an earlier one, which was delayed, after that.
    reported : bool
        The listener said at the end what arrived.
    round_trip_ns : numpy.ndarray of float64
        From the planned time until the sender's loop had the echo; so what a late sender costs is
        in it.
    late_ns : numpy.ndarray of float64
        From the planned time until the probe was handed to the kernel.
    queued_ns : numpy.ndarray of float64
        From then until the stamp of its departure, by kernel or NIC: queues of the sender's host,
        which are in no one-way time. nan without such stamps.
    out_ns, back_ns : numpy.ndarray of float64
        One way, from the best stamps that there are, corrected by `Result.offset`. An echo carries
        the listener's: nan, at a sender, also for a probe that arrived and did not come back.
    turn_ns : numpy.ndarray of float64
        From the listener's stamp of the probe until the echo was handed to its kernel.
    out_order, back_order : numpy.ndarray of int64
        Place among all arrivals at the listener and at the sender, from 1; 0: none. At the next
        listener of the run, places go on behind the last that the sender knows of. A listener has
        None for `back_order`.
    counts : dict of str to int or None
        What was counted besides: duplicates, reordered, strangers, ... None: of what listeners
        count, if not every one of the run has told it.
    unsent_reasons : dict of str to int
        Those of `unsent` of `counts` by the kernel's reason, as "Network is unreachable".
    stamps : dict of str to str
        Who made the stamps: "sent", "reached", "returned".
    """

    name: str
    address: str
    interface: str
    sent: Flags
    arrived: Flags
    returned: Flags | None
    away: Flags
    asked: Flags
    reported: bool
    round_trip_ns: Values
    late_ns: Values
    queued_ns: Values
    out_ns: Values
    back_ns: Values
    turn_ns: Values
    out_order: Times
    back_order: Times | None
    counts: Mapping[str, int | None]
    unsent_reasons: Mapping[str, int]
    stamps: Mapping[str, str]

    def __repr__(self) -> str:
        what, word = (
            ("out", LISTENER_OUT) if self.returned is None else ("round_trip", "round trip")
        )
        trip, text = self.percentiles(what), f"<LineResult {self.name}: "
        if trip["count"]:
            text += f"{word} {duration(trip['p50'])} at p50, {duration(trip['p99'])} at p99; "
        text += f"of {self.sent.sum():,} sent {self.lost_text} lost on the way out"
        text += "" if self.lost_back is None else f", {self.lost_back.sum():,} on the way back"
        return text + (f", listener away {self.away.sum():,}>" if self.away.any() else ">")

    @cached_property
    def lost(self) -> Flags:
        """Probes that were sent to a listener and did not arrive, as bool."""
        return self.sent & ~self.arrived & ~self.away

    @cached_property
    def lost_either(self) -> Flags:
        """Those of `lost` that may have arrived, as no listener could be asked, as bool."""
        return self.lost & ~self.asked

    @property
    def lost_text(self) -> str:
        """How many of `lost` there are as text, with a question mark if there are `lost_either`."""
        return f"{int(self.lost.sum()):,}" + (" ?" if self.lost_either.any() else "")

    @cached_property
    def lost_back(self) -> Flags | None:
        """Probes that arrived, and whose echo did not come back, as bool; None at a listener."""
        return None if self.returned is None else self.arrived & ~self.returned

    @property
    def loss(self) -> float:
        """The share of probes sent to a listener that did not arrive, 0 to 1.

        It is this at most, and `loss_least` at least: they differ by `lost_either`.
        """
        return float(self.lost.sum() / max((self.sent & ~self.away).sum(), 1))

    @property
    def loss_least(self) -> float:
        """The share of those that are known not to have arrived, 0 to 1."""
        known = self.lost & ~self.lost_either
        return float(known.sum() / max((self.sent & ~self.away).sum(), 1))

    def loss_text(self, digits: int) -> str:
        """Return the share of loss in percent as text, from the least to the most it can be."""
        most = f"{self.loss:.{digits}%}"
        return f"{self.loss_least:.{digits}%} to {most}" if self.lost_either.any() else most

    @property
    def loss_back(self) -> float | None:
        """The share of echoes that did not come back, 0 to 1; None at a listener."""
        lost = self.lost_back
        return None if lost is None else float(lost.sum() / max(self.arrived.sum(), 1))

    @cached_property
    def runs(self) -> Times:
        """Lengths of the runs of lost probes on the way out, int64: of those that were sent."""
        return runs_of(self.lost[self.sent])

    def percentiles(self, what: str = "round_trip") -> dict[str, float]:
        """Return percentiles in ns of "round_trip", "out", "back", "turn", "queued" or "late"."""
        values: Values = getattr(self, f"{what}_ns")
        return percentiles_of(values)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the arrays, as JSON has it."""
        runs, sent = self.runs, int(self.sent.sum())
        lengths, times = np.unique(runs, return_counts=True)
        return {
            "address": self.address,
            "interface": self.interface,
            "sent": sent,
            "arrived": int(self.arrived.sum()),
            "returned": _count(self.returned),
            "listener_reported": self.reported,
            "lost_out": int(self.lost.sum()),
            "lost_either": int(self.lost_either.sum()),
            "away": int(self.away.sum()),
            "lost_back": _count(self.lost_back),
            "loss_out": self.loss,
            "loss_out_least": self.loss_least,
            "loss_back": self.loss_back,
            "loss_runs": {
                "count": len(runs),
                "longest": int(runs.max(initial=0)),
                "by_length": {str(n): int(k) for n, k in zip(lengths, times, strict=True)},
            },
            **self.counts,
            "unsent_reasons": dict(self.unsent_reasons),
            "stamps": dict(self.stamps),
            **{
                f"{what}_ns": _numbers(self.percentiles(what))
                for what in ("round_trip", "out", "back", "turn", "queued", "late")
            },
        }


class Race(Struct, frozen=True, eq=False):
    """Two lines, probe by probe: who was first, and by how much.

    Both departures have one clock, and both arrivals: how far the hosts' clocks are apart does not
    matter. Nor does it that the sender hands a probe to one line after the other.

    Attributes
    ----------
    first, second : str
        Names of the lines.
    way : str
        "out" or "back".
    lead_ns : numpy.ndarray of float64
        How much faster `first` was, per probe; negative: slower; nan: not on both,
        or not known.
    only_first, only_second, neither : int
        Probes that came by one line alone, or by none.
    unmeasured : int
        Probes that came by both, and of which one time is not known: an echo carries the stamp of
        the listener, and was lost. On the way out also those that are `lost_either` on one line or
        both: nobody knows whether they came. A line that brought no probe at all lost them.
    away : int
        Probes that were `away` on one line or both: they are not compared.
    """

    first: str
    second: str
    way: str
    lead_ns: Values
    only_first: int
    only_second: int
    neither: int
    unmeasured: int
    away: int

    def __repr__(self) -> str:
        won = [int((sign * self.lead_ns > 0).sum()) for sign in (1, -1)]
        lines = f"{self.first} won {won[0]:,}, {self.second} won {won[1]:,}"
        return f"<Race on the way {self.way}: {lines}>"

    def to_dict(self) -> dict[str, Any]:
        """Return wins and leads, as JSON has it."""
        lead = self.lead_ns[~np.isnan(self.lead_ns)]
        return {
            "first": self.first,
            "second": self.second,
            "way": self.way,
            "won_first": int((lead > 0).sum()),
            "won_second": int((lead < 0).sum()),
            "tied": int((lead == 0).sum()),
            "only_first": self.only_first,
            "only_second": self.only_second,
            "neither": self.neither,
            "unmeasured": self.unmeasured,
            "away": self.away,
            "lead_ns": _numbers(percentiles_of(lead)),
            "lead_first_ns": _numbers(percentiles_of(lead[lead > 0])),
            "lead_second_ns": _numbers(percentiles_of(-lead[lead < 0])),
        }


class Result(Struct, frozen=True, eq=False, dict=True):
    """What a run has found, of all lines.

    Attributes
    ----------
    lines : dict of str to LineResult
    planned_ns : numpy.ndarray of int64
        When each probe was to leave, UNIX time.
    rate_per_s : float
    size_bytes, train : int
    offset : Offset
        Of the listener's clock from the sender's, with its error.
    complete : bool, or None
        Whether the run had all probes that it was to have, however many were lost. False: it was
        interrupted, or the listener that made this began in the middle. None: a listener cannot
        tell an interrupted run from one whose last probes were lost.
    listener_starts : int, or None
        Listeners that answered: above 1, it was started anew meanwhile. What one of them did not
        echo before its end counts as lost, see `LineResult.lost_either`; the time without one is
        `LineResult.away`. None: a listener that began in the middle does not know.
    side : str
        "sender", or "listener": who made this. A listener knows nothing of round trips, ways back
        and lateness: those times are nan, `returned` and `lost_back` None. It takes all up to the
        last probe that arrived as sent.
    first_probe : int
        The number, in the run, of the first probe here: above 0, a listener that began in the
        middle made this, and counts from the first that it had.
    greetings_strange : int or None
        Datagrams to the listener's port, since it began, that were no greetings; None at a sender.
    """

    lines: Mapping[str, LineResult]
    planned_ns: Times
    rate_per_s: float
    size_bytes: int
    train: int
    offset: Offset
    complete: bool | None
    listener_starts: int | None
    side: str = "sender"
    first_probe: int = 0
    greetings_strange: int | None = None

    def __repr__(self) -> str:
        probes = counted(len(self.planned_ns), "probe")
        head = f"<Result of the {self.side}: {probes} on each line"
        return "\n".join([head, *map(repr, self.lines.values())]) + ">"

    @cached_property
    def races(self) -> tuple[Race, ...]:
        """Each pair of lines, on both ways; at a listener on the way out."""
        return tuple(
            _race(first, second, way)
            for first, second in combinations(self.lines.values(), 2)
            for way in (("out", "back") if self.side == "sender" else ("out",))
        )

    @cached_property
    def first_out_ns(self) -> Values:
        """One way out by whichever line was first, per probe, float64: what a feed over all has.

        nan if no line is known to have brought it, or if it is `unmeasured` or `away`.
        """
        ways = np.vstack([line.out_ns for line in self.lines.values()])
        first = np.where(self.unmeasured | self.away, np.nan, np.fmin.reduce(ways, axis=0))
        return np.asarray(first, dtype=np.float64)

    @cached_property
    def unmeasured(self) -> Flags:
        """Probes that arrived, by some line nobody knows when, or whether; not `away`; as bool."""
        unknown = [
            _may_have_come(line) | (line.arrived & np.isnan(line.out_ns))
            for line in self.lines.values()
        ]
        found = self._any("arrived") & ~self.away & np.logical_or.reduce(unknown)
        return np.asarray(found, dtype=np.bool_)

    @cached_property
    def lost_on_all(self) -> Flags:
        """Probes that all lines lost, as bool: the gaps of a feed over all of them."""
        return self._any("sent") & ~self._any("arrived") & ~self.away

    @cached_property
    def away(self) -> Flags:
        """Probes that were `LineResult.away` on some line, as bool: lines are not compared."""
        return self._any("away")

    @property
    def lost_either(self) -> Flags:
        """Those of `lost_on_all` that may have arrived, as no listener could be asked, as bool."""
        return self.lost_on_all & self._any("lost_either")

    def _any(self, what: str) -> Flags:
        flags = [getattr(line, what) for line in self.lines.values()]
        return np.asarray(np.logical_or.reduce(flags), dtype=np.bool_)

    def over_time(self, periods: int = 120) -> dict[str, dict[str, Values]]:
        """Return what changed over the run, by line.

        Parameters
        ----------
        periods : int
            Equal parts of the run.

        Returns
        -------
        dict of str to dict of str to numpy.ndarray
            By line: `time_ns` (UNIX, middle), `sent`, `loss` (0 to 1; nan where
            no listener was there), and in ns `round_trip_p50`,
            `round_trip_p99`, `round_trip_max`, `out_p50`; nan where nothing came back.
        """
        count = len(self.planned_ns)
        edges = np.unique(np.linspace(0, count, min(periods, count) + 1).astype(np.int64))
        return {name: _over_time(line, self.planned_ns, edges) for name, line in self.lines.items()}

    def caveats(self) -> list[str]:
        """Return what has to be known of the run, a sentence each; usually none."""
        found = [
            f"not sent: {counted(sum(line.unsent_reasons.values()), 'probe')} of {name}, which the "
            f"sender's own kernel refused ({_reasons(line.unsent_reasons)}); not in its loss"
            for name, line in self.lines.items()
            if line.unsent_reasons
        ]
        if self.listener_starts is not None and self.listener_starts > 1:
            times = counted(self.listener_starts - 1, "time")
            found.append(f"the listener was started anew {times} meanwhile")
        if self.first_probe:
            first = self.first_probe
            many = "probe is" if first == 1 else f"{first:,} probes are"
            found.append(
                f"the listener began in the middle of the run: its first {many} not counted here"
            )
        if away := self._counted("away"):
            figures = "the loss" if len(self.lines) == 1 else "the loss, races and first of all"
            found.append(
                f"listener away: {away}, from behind the last that one is known to have had until "
                f"the first of the next; not in {figures}, though the line may have lost some of "
                "them"
            )
        if either := self._counted("lost_either"):
            found.append(
                f"marked ?: {either} lost on the way out or back; no listener could be asked"
                if self.side == "sender"
                else f"marked ?: {either} that may have arrived before the listener was ready"
            )
        if after := self._silent_after():
            many = "probe" if after == 1 else f"{after:,} probes"
            found.append(
                f"nothing was heard from the listener after the first {many}: it may have been away"
            )
        dead = [
            name
            for name, line in self.lines.items()
            if line.lost_either.any() and not line.arrived.any()
        ]
        if dead and len(dead) < len(self.lines):
            names, whose = ", ".join(dead), "its" if len(dead) == 1 else "their"
            found.append(
                f"nothing came by {names}: races and first of all count {whose} probes as lost"
            )
        return found

    def _silent_after(self) -> int:
        """Return after how many probes nothing was heard of a listener any more; 0: it was."""
        heard = np.flatnonzero(self._any("arrived"))
        if not len(heard) or any(line.reported for line in self.lines.values()):
            return 0
        after = int(heard[-1]) + 1
        return after if self._any("sent")[after:].any() else 0

    def _counted(self, what: str) -> str:
        counts = {name: int(getattr(line, what).sum()) for name, line in self.lines.items()}
        return ", ".join(
            f"{name} {counted(count, 'probe')}" for name, count in counts.items() if count
        )

    def left_out(self) -> str:
        """Return in words how many probes `first_out_ns` leaves out, and why; "": none."""
        counts = {"unmeasured": int(self.unmeasured.sum()), "listener away": int(self.away.sum())}
        said = ", ".join(f"{word} {count:,}" for word, count in counts.items() if count)
        return f"first of all leaves out: {said}" if said and len(self.lines) > 1 else ""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it but the arrays, as JSON has it: times in ns, unknown ones None."""
        offset = self.offset
        return {
            "side": self.side,
            "first_probe": self.first_probe,
            "began_ns": int(self.planned_ns[0]) if len(self.planned_ns) else 0,
            "probes": len(self.planned_ns),
            "rate_per_s": self.rate_per_s,
            "size_bytes": self.size_bytes,
            "train": self.train,
            "complete": self.complete,
            "listener_starts": self.listener_starts,
            "caveats": self.caveats(),
            "greetings_strange": self.greetings_strange,
            "clocks": {
                "method": offset.method,
                "text": offset.sentence(),
                **_numbers(
                    {
                        "offset_ns": offset.offset_ns,
                        "drift_ppm": offset.drift_ppm,
                        "error_ns": offset.error_ns,
                    }
                ),
                "refuted": offset.refuted,
                "sender": offset.here.text,
                "listener": offset.there.text,
            },
            "lines": {name: line.to_dict() for name, line in self.lines.items()},
            "all_lines": {
                "lost_out": int(self.lost_on_all.sum()),
                "lost_either": int(self.lost_either.sum()),
                "away": int(self.away.sum()),
                "unmeasured": int(self.unmeasured.sum()),
                "longest_run": int(runs_of(self.lost_on_all).max(initial=0)),
                "out_ns": _numbers(percentiles_of(self.first_out_ns)),
            },
            "races": [race.to_dict() for race in self.races],
        }

    def text(self) -> str:
        """Return tables of delays, loss and races as `udpfast wire` prints them, without an end."""
        from udpfast.probe.text import result_text

        return result_text(self)

    def write_page(self, path: str | Path) -> None:
        """Write a page with tables and charts: one HTML file that fetches nothing.

        If that fails, what was there stays; so with the arrays.

        Raises
        ------
        ExtraError
            bokeh is not installed.
        """
        from udpfast.probe.page import page_of

        page = page_of(self).encode()
        with replacing(Path(path)) as file:
            file.write(page)

    def write_arrays(self, path: str | Path) -> None:
        """Write the arrays of all lines to an .npz: `planned_ns`, and `LINE.round_trip_ns`, ..."""
        arrays: dict[str, npt.NDArray[Any]] = {"planned_ns": self.planned_ns}
        for name, line in self.lines.items():
            for what, value in (asdict(line) | vars(line)).items():
                if isinstance(value, np.ndarray):
                    arrays[f"{name}.{what}"] = value
        with replacing(Path(path)) as file:  # numpy itself appends .npz to a name without it
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items())


def _count(flags: Flags | None) -> int | None:
    return None if flags is None else int(flags.sum())


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no nan; a time in ns has no fraction worth reading."""
    return {
        name: None if np.isnan(value) else round(value) if name != "drift_ppm" else round(value, 6)
        for name, value in values.items()
    }


def _came(line: LineResult, way: str) -> Flags:
    came = line.arrived if way == "out" else line.returned
    assert came is not None
    return came


def _may_have_come(line: LineResult) -> Flags:
    # A line without a listener leaves no doubt about what the others brought.
    return line.lost_either & line.arrived.any()


def _race(first: LineResult, second: LineResult, way: str) -> Race:
    ours: Values = getattr(first, f"{way}_ns")
    theirs: Values = getattr(second, f"{way}_ns")
    sent, away = first.sent | second.sent, first.away | second.away
    heard = sent & ~away
    came = _came(first, way), _came(second, way)
    lead_ns = theirs - ours
    unmeasured = came[0] & came[1] & np.isnan(lead_ns)
    if way == "out":
        either = heard & (_may_have_come(first) | _may_have_come(second))
        unmeasured, heard = unmeasured | either, heard & ~either
    return Race(
        first.name,
        second.name,
        way,
        lead_ns,
        int((heard & came[0] & ~came[1]).sum()),
        int((heard & came[1] & ~came[0]).sum()),
        int((heard & ~came[0] & ~came[1]).sum()),
        int(unmeasured.sum()),
        int((sent & away).sum()),
    )


def _over_time(line: LineResult, planned_ns: Times, edges: Times) -> dict[str, Values]:
    rows = []
    for begin, end in pairwise(edges):
        part = slice(int(begin), int(end))
        trip, out = percentiles_of(line.round_trip_ns[part]), percentiles_of(line.out_ns[part])
        sent = float(line.sent[part].sum())
        middle = (int(planned_ns[begin]) + int(planned_ns[end - 1])) / 2
        heard = float((line.sent[part] & ~line.away[part]).sum())
        loss = float(line.lost[part].sum()) / heard if heard else _NAN if sent else 0.0
        rows.append((middle, sent, loss, trip["p50"], trip["p99"], trip["max"], out["p50"]))
    names = ("time_ns", "sent", "loss", "round_trip_p50", "round_trip_p99", "round_trip_max")
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names) + 1)
    return dict(zip((*names, "out_p50"), table.T, strict=True))
