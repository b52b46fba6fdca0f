"""Outboxes wait for the disk of the writer, and for standbys that are not away."""

from typing import Any

import pytest

from tests.bus.drive import IDENTITY, MS, lead, store
from tests.bus.test_outbox import deliver, outbox, registered
from udpfast.bus.release import Release

BOTH = ("one", "two")


def after(release: Release, ms: int, end: int, **kept: int) -> list[str]:
    """Look once per ms, for this long."""
    said = []
    for _ in range(ms):
        after.now_ns += MS
        said += release.look(after.now_ns, end, acks(kept), BOTH)
    return said


def acks(kept: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return acknowledgements of standbys from which nobody copies."""
    return {host: (position, position) for host, position in kept.items()}


after.now_ns = 0


def test_standby_that_lacks_records_is_away_after_its_time_and_not_before() -> None:
    release = Release(away_ns=100 * MS)
    assert after(release, 300, 0) == []
    assert after(release, 95, 10, one=10) == []
    assert release.position(acks({"one": 10}), BOTH, 10) == 0
    [said] = after(release, 25, 10, one=10)
    assert said.startswith("two has lacked records for 0.1 s")
    assert release.away == ("two",)
    assert release.position(acks({"one": 10}), BOTH, 10) == 10


def test_standby_that_is_away_is_back_when_it_has_caught_up() -> None:
    release = Release(away_ns=100 * MS)
    after(release, 200, 10, one=10)
    after(release, 200, 1000, one=1000)
    assert after(release, 20, 1000, one=1000, two=500) == []
    [said] = after(release, 20, 1000, one=1000, two=1000)
    assert said.startswith("two has caught up")
    assert release.away == ()
    # Standbys that are slightly behind are not away.
    for end in range(1010, 2000, 10):
        assert after(release, 5, end, one=end, two=end - 10) == []


def test_standby_is_waited_for_although_a_host_that_copies_from_it_is_away() -> None:
    release = Release(away_ns=100 * MS)
    said = []
    for ms in range(1, 130):
        said += release.look(ms * MS, ms, {"one": (ms, 1)}, ("one",))
    assert [line.split(" has lacked")[0] for line in said] == ["a host that copies from one"]
    assert (release.away, release.above) == ((), ("one",))
    assert release.position({"one": (125, 1)}, ("one",), 129) == 125
    assert release.holding({"one": (125, 1)}, ("one",), 129) == ["one"]
    for ms in range(130, 260):
        said += release.look(ms * MS, ms, {"one": (125, 1)}, ("one",))
    assert (release.away, release.above) == (("one",), ())
    assert release.position({"one": (125, 1)}, ("one",), 259) == 259
    said += release.look(260 * MS, 260, {"one": (260, 1)}, ("one",))
    assert (release.away, release.above) == ((), ("one",))
    said += release.look(261 * MS, 260, {"one": (260, 260)}, ("one",))
    assert (release.away, release.above) == ((), ())
    assert said[-1].startswith("one has caught up")


def test_standby_that_lacks_nothing_is_not_away_however_long_it_is_silent() -> None:
    release = Release(away_ns=100 * MS)
    assert after(release, 1000, 10, one=10, two=10) == []
    assert after(release, 50, 20, one=20, two=10) == []
    assert release.away == ()


def test_writer_that_was_stopped_gives_its_standbys_their_time() -> None:
    release = Release(away_ns=100 * MS)
    after(release, 200, 10, one=10, two=10)
    after(release, 5, 20, one=10, two=10)
    after.now_ns += 5000 * MS  # without any acknowledgement
    assert after(release, 50, 20, one=10, two=10) == []
    assert after(release, 10, 20, one=20, two=20) == []


@pytest.mark.parametrize(
    ("options", "kept", "position", "holding"),
    [
        ({}, {"one": 30, "two": 10}, 10, ["one", "two"]),
        ({"copies": 1}, {"one": 30, "two": 10}, 30, ["one", "two"]),
        ({"copies": 2}, {"one": 30, "two": 10}, 10, ["one", "two"]),
        ({"copies": 1}, {"one": 40, "two": 10}, 40, []),
        ({"counted": ["one"]}, {"one": 30}, 30, ["one"]),
        ({"counted": []}, {"one": 30}, 20, []),
        ({"away_ns": MS}, {"one": 30, "two": 40}, 20, ["one"]),
    ],
)
def test_outboxes_wait_for_whom_the_settings_name(
    options: dict[str, Any], kept: dict[str, int], position: int, holding: list[str]
) -> None:
    release = Release(**options)
    assert release.position(acks(kept), BOTH, 20) == position
    assert release.holding(acks(kept), BOTH, 40) == holding


def test_standby_that_is_away_holds_no_outbox_and_what_it_lacks_is_unprotected() -> None:
    kept = store("S", 1 << 18, IDENTITY, standbys=BOTH, release=Release(away_ns=100 * MS))
    seq, box = lead(kept), outbox()
    carried, watch = registered(seq, box)
    box.send(b"1")
    deliver(seq, carried.work(MS, True))
    watch.work()
    kept.acks["one"] = kept.end, kept.end
    kept.log.sync()
    for ms in range(1, 130):
        kept.look_at_standbys(ms * MS)
        carried.work(ms * MS, True)
        if ms < 100:
            assert box.counts()["freed"] == 0
    assert box.counts()["freed"] == 1
    assert (kept.let_go, kept.kept, kept.unprotected_bytes) == (kept.end, 0, kept.end)
    assert kept.said[-1].startswith("two has lacked records")
    kept.acks["two"] = kept.end, kept.end
    assert kept.unprotected_bytes == 0


def test_messages_that_readers_may_not_see_yet_are_not_let_go() -> None:
    kept = store(
        "S", 1 << 18, IDENTITY, standbys=BOTH, gate=1, release=Release(away_ns=100 * MS)
    )  # fmt: skip
    lead(kept)
    kept.log.sync()
    for ms in range(1, 130):
        kept.look_at_standbys(ms * MS)
    assert kept.release.away == BOTH
    assert kept.let_go == 0
    kept.acks["one"] = kept.end, kept.end
    assert kept.let_go == kept.end
