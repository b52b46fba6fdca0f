"""Lines whose faults are known to the datagram: what a run says is what was done."""

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cases import nightly
from tests.probe.bad_line import BadLine, Faults
from tests.waiting import wait_until
from udpfast.probe import LineResult, Receiver, Result, Sender

BAD = Faults(loss=0.2, twice=0.1, late=0.05, control=0.3)
#: By name: the faults of the ways out and back.
ROWS = {
    "perfect": (Faults(), Faults()),
    "loss out": (Faults(loss=0.1), Faults()),
    "loss back": (Faults(), Faults(loss=0.1)),
    "twice out": (Faults(twice=0.2), Faults()),
    "twice back": (Faults(), Faults(twice=0.2)),
    "late out": (Faults(late=0.1), Faults()),
    "late back": (Faults(), Faults(late=0.1)),
    "all of it": (BAD, BAD),
    "control": (Faults(control=0.5), Faults(control=0.5)),
}


@contextlib.contextmanager
def lines(seed: int, **faults: tuple[Faults, Faults]) -> Iterator[dict[str, BadLine]]:
    """Listen behind a bad line for each name."""
    with Receiver(["127.0.0.1:0"], spin=False) as receiver, contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(BadLine(receiver.addresses[0], out, back, seed + 10 * number))
            for number, (name, (out, back)) in enumerate(faults.items())
        }


def measure(bad: dict[str, BadLine], **more: object) -> Result:
    wanted: dict[str, object] = {"rate_per_s": 1000, "seconds": 0.5, "spin": False, **more}
    addresses = {name: each.address for name, each in bad.items()}
    with Sender(addresses, **wanted) as sender:  # type: ignore[arg-type]
        sender.connect(60)
        return sender.run()


def assert_exact(found: LineResult, bad: BadLine) -> None:
    """What is said of a line is what was done on it, probe by probe."""
    held = {index for _, _, index in bad.out.held}  # at the end nothing pushed them out
    gone = bad.out.lost | held
    assert set(np.flatnonzero(found.lost).tolist()) == gone
    assert found.reported
    assert found.counts["out_duplicates"] == bad.out.duplicates
    assert found.counts["out_reordered"] == bad.out.reordered
    returned = set(bad.back.passed)
    assert set(np.flatnonzero(found.returned).tolist()) == returned
    # Each echo of a probe that came twice has a fate of its own.
    assert found.counts["back_reordered"] == bad.back.reordered
    runs, longest = found.runs, 0
    for index in sorted(gone):
        length = 1
        while index + length in gone:
            length += 1
        longest = max(longest, length)
    assert runs.max(initial=0) == longest
    assert runs.sum() == len(gone)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("seed", [1, *nightly(2)])
def test_what_is_said_of_a_line_is_what_was_done_to_it(row: str, seed: int) -> None:
    with lines(seed, line=ROWS[row]) as bad:
        found = measure(bad).lines["line"]
        assert_exact(found, bad["line"])
        if row == "twice back":
            assert found.counts["back_duplicates"] == bad["line"].back.duplicates


@pytest.mark.parametrize("seed", [3, *nightly(4)])
def test_two_lines_are_told_apart_and_what_both_lost_is_lost(seed: int) -> None:
    fibre = Faults(loss=0.05, delay_ns=10_000_000)
    with lines(seed, microwave=(BAD, BAD), fibre=(fibre, Faults())) as bad:
        result = measure(bad)
        for name, line in result.lines.items():
            assert_exact(line, bad[name])
        ways = [bad[name].out for name in bad]
        gone = [each.lost | {index for _, _, index in each.held} for each in ways]
        assert set(np.flatnonzero(result.lost_on_all).tolist()) == gone[0] & gone[1]
        race = result.races[0]
        assert race.only_first == len(gone[1] - gone[0])
        assert race.only_second == len(gone[0] - gone[1])
        assert race.neither == len(gone[0] & gone[1])
        # Each probe is in one of these, also where an echo was lost.
        won = race.to_dict()
        sums = [won[f"{who}_{which}"] for who in ("won", "only") for which in ("first", "second")]
        rest = won["tied"] + race.neither + race.unmeasured + race.away
        assert sum(sums) + rest == len(result.planned_ns)


def test_delay_that_was_added_is_in_every_time_of_its_way() -> None:
    out, back = Faults(delay_ns=20_000_000), Faults(delay_ns=5_000_000)
    with lines(5, line=(out, back), near=(Faults(), Faults())) as bad:
        result = measure(bad)
    line = result.lines["line"]
    # However busy the host: nothing arrives earlier than its delay.
    assert np.nanmin(line.out_ns) >= out.delay_ns
    assert np.nanmin(line.back_ns) >= back.delay_ns
    assert np.nanmin(line.round_trip_ns) >= out.delay_ns + back.delay_ns
    assert np.nanmin(line.turn_ns) < 20_000_000
    # On one host the clock is one, and the way out is told from the way back.
    assert result.offset.error_ns == 0


def test_line_that_is_nearly_dead_is_measured_by_the_other() -> None:
    dead = Faults(loss=0.97, control=0.9)
    with lines(6, good=(Faults(), Faults()), dead=(dead, dead)) as bad:
        result = measure(bad, rate_per_s=1000, seconds=3)
        assert_exact(result.lines["good"], bad["good"])
        line = result.lines["dead"]
        if line.reported:
            assert_exact(line, bad["dead"])


@pytest.mark.parametrize("seed", [7, *nightly(2)])
def test_listener_that_is_started_anew_behind_bad_lines_is_no_loss(seed: int) -> None:
    bad = Faults(loss=0.1, control=0.2)
    first = Receiver(["127.0.0.1:0"], spin=False)
    (address,) = first.addresses
    with (
        contextlib.closing(first),
        BadLine(address, bad, bad, seed) as line,
        Sender({"a": line.address}, rate_per_s=500, seconds=600, spin=False) as sender,
    ):
        sender.connect(60)
        results: list[Result] = []
        thread = threading.Thread(target=lambda: results.append(sender.run()))
        thread.start()
        wait_until(lambda: sender.live()["a"]["echoes"] > 200, "echoes")
        first.close()
        before = sender.live()["a"]["echoes"]
        with Receiver([address], spin=False) as second:
            wait_until(lambda: sender.live()["a"]["echoes"] > before + 200, "echoes of the second")
            sender.stop()
            thread.join()
            heard = second.wait(60)
    assert heard is not None
    (found,), (theirs,) = (result.lines.values() for result in (results[0], heard))
    gone = np.isin(np.arange(len(found.sent)), list(line.out.lost))
    back = np.isin(np.arange(len(found.sent)), list(line.back.lost))
    # Each probe has one verdict, and no probe that arrived is called lost where one could ask.
    verdicts = [found.returned, found.lost_back, found.lost, found.away]
    assert (np.sum(verdicts, axis=0) == found.sent).all()
    judged = found.asked & ~found.away
    np.testing.assert_array_equal(found.lost[judged], gone[judged])
    assert not (found.lost_either & ~gone & ~back).any()
    assert found.lost_either.any()
    assert not theirs.away.any()
    end = heard.first_probe + len(theirs.sent)
    np.testing.assert_array_equal(theirs.lost, gone[heard.first_probe : end])
