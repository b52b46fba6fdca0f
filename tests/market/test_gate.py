"""Objects one rule at a time: what is passed on, what is kept, and what is said about it."""

import random
from collections.abc import Iterable

import numpy as np
import pytest

from udpfast.core.layout import (
    CONNECTION,
    GAP,
    OBJECT_STATE,
    SESSION,
    Channel,
    ConnectionScope,
    ConnectionStatus,
    GapReason,
    Kind,
    ObjectStatus,
    ObjectWait,
    RecordFlag,
    SessionReason,
)
from udpfast.market.gate import ObjectGate, ObjectOutput

KEY = (3, 7)
WRAP = 1 << 32


class Feed:
    """A `ObjectGate` with short verbs; seqnos may be written beyond the wrap."""

    def __init__(self, **limits: int) -> None:
        self.objects = ObjectGate(**limits)

    def update(
        self,
        seqno: int,
        last: int,
        key: tuple[int, int] = KEY,
        snapshot: bool = False,
        payload: bytes = b"u",
    ) -> list[str]:
        return said(
            self.objects.admit(
                object_type=key[0],
                object_id=key[1],
                seqno=seqno % WRAP,
                last_seqno=last % WRAP,
                flags=RecordFlag.SNAPSHOT if snapshot else 0,
                payload=payload,
            )
        )

    def snapshot(self, last: int, key: tuple[int, int] = KEY, seqno: int = 1) -> list[str]:
        return said(
            self.objects.admit(
                channel=Channel.SNAPSHOT,
                object_type=key[0],
                object_id=key[1],
                seqno=seqno,
                last_seqno=last % WRAP,
                flags=RecordFlag.SNAPSHOT,
                payload=b"s",
            )
        )

    def gap(self, first: int, last: int, channel: int = Channel.INCREMENTAL) -> list[str]:
        return said(
            self.objects.admit(kind=Kind.GAP, channel=channel, payload=gap_bytes(first, last))
        )

    def disagree(
        self, seqno: int, key: tuple[int, int] = KEY, channel: int = Channel.INCREMENTAL
    ) -> list[str]:
        return said(
            self.objects.admit(
                kind=Kind.DISAGREEMENT,
                channel=channel,
                object_type=key[0],
                object_id=key[1],
                seqno=seqno % WRAP,
                payload=bytes(16),
            )
        )

    def snapshots(self, status: ConnectionStatus, scope: int = ConnectionScope.CHANNEL) -> None:
        payload = np.array((status, scope, 0), CONNECTION).tobytes()
        outputs = self.objects.admit(
            kind=Kind.CONNECTION, channel=Channel.SNAPSHOT, payload=payload
        )
        assert said(outputs) == ["CONNECTION"]

    def snapshots_anew(self) -> list[str]:
        payload = gap_bytes(100, 50, GapReason.ANEW)
        return said(self.objects.admit(kind=Kind.GAP, channel=Channel.SNAPSHOT, payload=payload))

    def session(self, first_seqno: int, reason: int = 1, unseen: int = 0) -> list[str]:
        payload = session_bytes(first_seqno, reason, unseen)
        return said(self.objects.admit(kind=Kind.SESSION, payload=payload))

    def status(self, key: tuple[int, int] = KEY) -> ObjectStatus | None:
        view = self.objects.state(*key)
        return None if view is None else view.status

    def applied(self, key: tuple[int, int] = KEY) -> int | None:
        view = self.objects.state(*key)
        assert view is not None
        return view.applied_seqno

    def waiting(self, numbers: Iterable[int]) -> int:
        """Return how many objects wait for a snapshot."""
        waits = (ObjectStatus.WAITING, ObjectStatus.STALE)
        return [self.status((3, number)) in waits for number in numbers].count(True)

    def count(self, name: str) -> int:
        return self.objects.counters()[name]


def session_bytes(first_seqno: int, reason: int = 1, unseen: int = 0) -> bytes:
    return np.array((0, 1, first_seqno, unseen, reason, 0, 0, 0), SESSION).tobytes()


def gap_bytes(first: int, last: int, reason: int = 2) -> bytes:
    first, last = first % WRAP, last % WRAP
    return np.array((first, last, (last - first + 1) % WRAP, 0, reason, 0), GAP).tobytes()


def said(outputs: list[ObjectOutput]) -> list[str]:
    """Outputs as short words: u/s and seqno, `released`, or the kind and applied seqno."""
    words = []
    for output in outputs:
        if output.kind in (Kind.STALE, Kind.RECOVERED):
            state = np.frombuffer(output.payload, OBJECT_STATE)[0]
            assert state["object"] == output.object_type << 16 | output.object_id
            words.append(f"{Kind(output.kind).name} {state['applied'] % WRAP}")
        elif output.kind != Kind.MESSAGE:
            words.append(Kind(output.kind).name)
        elif output.flags & RecordFlag.RELEASED:
            words.append(f"released {output.seqno}")
        elif output.channel == Channel.SNAPSHOT:
            words.append(f"snapshot {output.last_seqno}")
        else:
            words.append(f"update {output.seqno}")
    return words


@pytest.fixture
def feed() -> Feed:
    return Feed()


def live(feed: Feed, seqno: int = 200, key: tuple[int, int] = KEY) -> None:
    assert feed.update(seqno, 0, key, snapshot=True)[-1] == f"update {seqno}"


def test_object_type_zero_always_passes_ungated(feed: Feed) -> None:
    outputs = feed.objects.admit(object_type=0, object_id=7, seqno=5, last_seqno=4)
    assert [output.flags for output in outputs] == [RecordFlag.UNGATED]
    assert feed.status((0, 7)) is None
    assert feed.count("ungated") == 1


def test_type_without_snapshots_passes_ungated(feed: Feed) -> None:
    (output,) = feed.objects.admit(object_type=3, object_id=7, seqno=5, gated=False)
    assert output.flags == RecordFlag.UNGATED
    assert feed.status() is None


def test_heartbeat_is_swallowed(feed: Feed) -> None:
    assert feed.objects.admit(flags=RecordFlag.HEARTBEAT, seqno=5, payload=b"") == []


def test_live_object_applies_updates(feed: Feed) -> None:
    live(feed, 100)
    assert feed.update(105, 100) == ["update 105"]
    assert feed.applied() == 105


def test_incremental_snapshot_discards_what_was_collected(feed: Feed) -> None:
    assert feed.update(100, 97) == []
    assert feed.update(102, 100) == []
    assert feed.update(104, 102, snapshot=True) == ["RECOVERED 104", "update 104"]
    assert feed.count("collect_dropped") == 2
    assert feed.objects.state(*KEY).collected == 0


def test_snapshot_of_live_object_is_skipped(feed: Feed) -> None:
    live(feed, 100)
    assert feed.snapshot(110) == []
    assert feed.count("snapshots_skipped") == 1


def test_snapshot_releases_newer_collected_updates(feed: Feed) -> None:
    for seqno, last in [(210, 204), (213, 210), (217, 213), (218, 217)]:
        assert feed.update(seqno, last) == []
    assert feed.snapshot(213) == ["RECOVERED 218", "snapshot 213", "released 217", "released 218"]
    assert feed.applied() == 218
    assert feed.update(220, 218) == ["update 220"]
    assert (feed.count("released"), feed.count("collect_dropped")) == (2, 2)


def test_snapshot_older_than_the_first_collected_is_refused(feed: Feed) -> None:
    feed.update(100, 97)
    assert feed.snapshot(99) == []
    assert feed.count("snapshots_too_old") == 1


def test_snapshot_that_the_first_collected_continues_exactly_is_taken(feed: Feed) -> None:
    feed.update(100, 97)
    feed.update(102, 100)
    assert feed.snapshot(96) == feed.snapshot(98) == []
    assert feed.snapshot(97) == ["RECOVERED 102", "snapshot 97", "released 100", "released 102"]
    assert feed.update(103, 102) == ["update 103"]


def test_snapshot_of_no_update_is_not_what_an_update_of_none_continues(feed: Feed) -> None:
    # Whether the number 0 is meant, or none yet, is not known to who joined late.
    feed.update(100, 0)
    assert feed.snapshot(0) == []
    assert feed.count("snapshots_too_old") == 1


def test_snapshot_continued_by_what_was_collected_behind_a_lost_one_is_taken(feed: Feed) -> None:
    live(feed, 90)
    feed.gap(91, 92)
    assert feed.update(93, 91) == ["STALE 90"]
    assert feed.snapshot(90) == []
    assert feed.snapshot(91) == ["RECOVERED 93", "snapshot 91", "released 93"]


def test_broken_chain_applies_nothing_and_keeps_waiting(feed: Feed) -> None:
    feed.update(210, 204)
    feed.gap(211, 216)
    feed.update(217, 215)
    assert feed.snapshot(213) == []
    assert feed.count("snapshots_broken") == 1
    assert feed.snapshot(215) == ["RECOVERED 217", "snapshot 215", "released 217"]


def test_gap_object_that_was_not_hit_recovers_by_its_next_update(feed: Feed) -> None:
    live(feed, 200)
    assert feed.gap(203, 205) == ["GAP"]
    assert feed.status() == ObjectStatus.UNKNOWN
    assert feed.update(206, 200) == ["RECOVERED 206", "update 206"]
    assert feed.count("recovered_chain") == 1


def test_gap_object_that_was_hit_turns_stale_and_waits(feed: Feed) -> None:
    live(feed, 201)
    feed.gap(203, 205)
    assert feed.update(207, 204) == ["STALE 201"]
    assert feed.update(208, 207) == []
    assert feed.status() == ObjectStatus.STALE
    assert feed.snapshot(203) == []
    assert feed.snapshot(207) == ["RECOVERED 208", "snapshot 207", "released 208"]


def test_gap_of_snapshot_channel_leaves_objects_alone(feed: Feed) -> None:
    live(feed, 200)
    assert feed.gap(203, 205, channel=Channel.SNAPSHOT) == ["GAP"]
    assert feed.status() == ObjectStatus.LIVE


def test_snapshots_numbered_anew_put_what_they_began_in_doubt(feed: Feed) -> None:
    feed.session(150)
    feed.update(200, 150)
    assert feed.snapshot(200) == ["RECOVERED 200", "snapshot 200"]
    assert feed.update(201, 200) == ["update 201"]
    assert feed.snapshots_anew() == ["GAP"]
    assert feed.status() == ObjectStatus.STALE
    assert feed.update(202, 201) == ["STALE 0"]
    assert feed.snapshot(200) == []
    assert feed.snapshot(202)[-2:] == ["RECOVERED 202", "snapshot 202"]
    assert feed.update(203, 202) == ["update 203"]


def test_snapshots_numbered_anew_leave_a_chain_that_never_needed_one(feed: Feed) -> None:
    feed.session(1)
    feed.update(1, 0)
    feed.snapshots_anew()
    assert feed.update(2, 1) == ["RECOVERED 2", "update 2"]


@pytest.mark.parametrize(("reason", "unseen"), [(SessionReason.RESUMED, 0), (1, 3)])
def test_session_that_was_not_seen_from_its_first_number_waits_for_a_snapshot(
    feed: Feed, reason: int, unseen: int
) -> None:
    feed.session(1, reason, unseen)
    assert feed.update(1, 0) == []
    assert feed.status() == ObjectStatus.WAITING


def test_unknown_object_takes_a_snapshot_from_behind_the_gap(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(203, 205)
    assert feed.snapshot(205) == ["RECOVERED 205", "snapshot 205"]
    assert feed.status() == ObjectStatus.LIVE


def test_unknown_object_takes_a_snapshot_from_inside_the_gap_but_stays_unknown(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(203, 205)
    assert feed.snapshot(203) == ["snapshot 203"]
    assert feed.status() == ObjectStatus.UNKNOWN
    assert feed.update(206, 205) == ["STALE 203"]


def test_unknown_object_stays_so_when_a_snapshot_may_be_older_than_the_gap(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(203, 205)
    assert feed.snapshot(200) == []
    assert feed.status() == ObjectStatus.UNKNOWN


def test_unknown_object_recovers_when_another_snapshot_proves_the_time(feed: Feed) -> None:
    live(feed, 200)
    live(feed, 201, (3, 8))
    feed.gap(203, 205)
    feed.update(206, 201, (3, 8))
    feed.snapshot(206, (3, 8))
    assert feed.snapshot(200) == ["RECOVERED 200"]
    assert feed.status() == ObjectStatus.LIVE


def test_unknown_object_recovers_by_its_second_equal_snapshot(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(203, 205)
    assert feed.snapshot(200) == []
    assert feed.snapshot(200) == ["RECOVERED 200"]
    assert feed.status() == ObjectStatus.LIVE
    assert feed.snapshot(200) == []
    assert feed.update(210, 204) == ["STALE 200"], "trust ends with the first contradiction"


def test_first_snapshot_of_a_quiet_object_is_believed_until_contradicted(feed: Feed) -> None:
    feed.update(1000, 999, (3, 8))
    assert feed.snapshot(590) == ["RECOVERED 590", "snapshot 590"]
    assert feed.status() == ObjectStatus.LIVE
    assert feed.snapshot(700) == ["snapshot 700"], "newer than what was believed"
    assert feed.update(1001, 990) == ["STALE 700"]


def test_first_snapshot_is_confirmed_by_the_next_update(feed: Feed) -> None:
    feed.update(1000, 999, (3, 8))
    feed.snapshot(590)
    assert feed.update(1001, 590) == ["update 1001"]
    assert feed.snapshot(1002) == [], "LIVE, and proven: not decoded"


def test_snapshot_ahead_of_the_incremental_channel_contains_later_updates(feed: Feed) -> None:
    feed.update(100, 97)
    assert feed.snapshot(104)[-1] == "snapshot 104"
    assert feed.update(102, 100) == []
    assert feed.update(104, 102) == []
    assert feed.update(105, 104) == ["update 105"]
    assert feed.count("updates_contained") == 2


def test_incremental_snapshot_older_than_the_state_is_not_applied(feed: Feed) -> None:
    feed.update(100, 97)
    feed.snapshot(104)
    assert feed.update(103, 102, snapshot=True) == []
    assert feed.applied() == 104


def test_last_seqno_zero_is_believed_by_who_saw_the_session_from_its_first(feed: Feed) -> None:
    feed.session(1)
    feed.objects.admit(object_type=0, seqno=1)
    assert feed.update(12, 0) == ["RECOVERED 12", "update 12"]


@pytest.mark.parametrize("event", ["joined_late", "gap", "wrap"])
def test_last_seqno_zero_proves_nothing_otherwise(feed: Feed, event: str) -> None:
    feed.session(11 if event == "joined_late" else 1)
    feed.objects.admit(object_type=0, seqno=11)
    if event == "gap":
        feed.gap(11, 11)
    if event == "wrap":
        for seqno in (2**31 - 5, WRAP - 10, 3):
            feed.objects.admit(object_type=0, seqno=seqno)
    assert feed.update(12, 0) == []
    assert feed.status() == ObjectStatus.WAITING


def test_session_forgets_all_objects(feed: Feed) -> None:
    live(feed, 200)
    feed.update(201, 5, (3, 8))
    assert feed.count("objects_waiting") == 1
    assert feed.session(77) == ["SESSION"]
    assert feed.status() is None
    assert (feed.count("objects"), feed.count("collect_dropped")) == (0, 1)
    assert feed.count("objects_waiting") == 0
    assert feed.update(77, 200) == []


def test_tag_is_carried_by_later_outputs(feed: Feed) -> None:
    live(feed, 200)
    feed.objects.tag(*KEY, (9 << 32) | 4)
    feed.gap(201, 201)
    outputs = feed.objects.admit(object_type=3, object_id=7, seqno=202, last_seqno=200)
    assert [output.tag for output in outputs] == [(9 << 32) | 4] * 2


def test_collecting_beyond_the_limit_begins_anew() -> None:
    feed = Feed(collect_messages_max=3)
    for seqno in range(100, 104):
        feed.update(seqno, seqno - 1)
    view = feed.objects.state(*KEY)
    assert (view.collected, view.first_collected) == (1, 103)
    assert feed.count("collect_full") == 3
    assert feed.snapshot(101) == []
    assert feed.snapshot(103)[-1] == "snapshot 103"


def test_update_that_fits_nowhere_must_be_in_the_snapshot() -> None:
    feed = Feed(collect_bytes=1024)
    assert feed.update(100, 99, payload=bytes(4000)) == []
    assert feed.update(101, 100) == []
    assert feed.snapshot(99) == []
    assert feed.snapshot(100) == ["RECOVERED 101", "snapshot 100", "released 101"]
    assert feed.count("collect_full") == 1


def test_objects_beyond_the_table_are_counted_and_not_passed() -> None:
    feed = Feed(objects_max=2)
    for number in range(3):
        feed.update(100 + number, 0, (3, number), snapshot=True)
    assert feed.status((3, 1)) == ObjectStatus.LIVE
    assert feed.status((3, 2)) is None
    assert (feed.count("objects"), feed.count("objects_full")) == (2, 1)


@pytest.mark.parametrize("size", [0, 1, 447, 448, 449, 951, 952, 953, 4096, 131072])
def test_released_payload_is_what_was_collected(feed: Feed, size: int) -> None:
    payload = random.Random(size).randbytes(size)
    feed.update(99, 98)
    feed.objects.admit(object_type=3, object_id=7, seqno=100, last_seqno=99, payload=payload)
    outputs = feed.objects.admit(
        channel=1, object_type=3, object_id=7, seqno=1, last_seqno=99, payload=b"s"
    )
    assert outputs[-1].payload == payload


@pytest.mark.parametrize("start", [100, WRAP - 100, WRAP - 1, 2**31 - 2])
def test_object_waiting_across_the_wrap_recovers(feed: Feed, start: int) -> None:
    feed.update(start, start - 3)
    feed.update(start + 60, start)
    feed.update(start + 120, start + 60)
    assert feed.snapshot(start - 1) == []
    assert feed.snapshot(start + 60)[-1] == f"released {(start + 120) % WRAP}"
    assert feed.applied() == (start + 120) % WRAP


def test_quiet_object_told_of_before_the_first_update_is_not_taken_for_newer(feed: Feed) -> None:
    feed.session(3_000_000_000)
    feed.snapshot(5)
    feed.update(3_000_000_000, 2_999_999_999, (3, 9))
    assert feed.update(3_000_000_001, 5) == ["update 3000000001"]
    assert feed.count("updates_contained") == 0


def test_quiet_object_survives_half_a_circle_of_other_traffic(feed: Feed) -> None:
    live(feed, 10)
    for seqno in (2**30, 2**31 + 5, 3 * 2**30):
        feed.objects.admit(object_type=0, seqno=seqno)
    assert feed.update(3 * 2**30 + 1, 10) == [f"update {3 * 2**30 + 1}"]
    feed.gap(3 * 2**30 + 2, 3 * 2**30 + 2)
    for seqno in (WRAP - 1, WRAP + 2**30):
        feed.objects.admit(object_type=0, seqno=seqno % WRAP)
    assert feed.update(WRAP + 2**30 + 1, 3 * 2**30 + 1)[-1] == f"update {2**30 + 1}"


@pytest.mark.parametrize("seed", range(20))
def test_every_message_has_one_outcome_and_who_waits_is_counted(seed: int) -> None:
    rng = random.Random(seed)
    feed = Feed(
        collect_messages_max=5, collect_bytes=512 * 40, objects_max=12, snapshots=seed % 2 == 0
    )
    messages = 0
    last = dict.fromkeys(range(16), 0)
    for seqno in range(1, 1500):
        event = rng.random()
        number = rng.randrange(16)
        if event < 0.02:
            feed.gap(seqno, seqno)
            continue
        messages += 1
        if event < 0.3:
            feed.snapshot(last[number], (3, number))
        else:
            feed.update(seqno, last[number], (3, number), event < 0.32, bytes(rng.randrange(900)))
            last[number] = seqno
        waiting, stranded = feed.count("objects_waiting"), feed.count("objects_stranded")
        assert (stranded, waiting)[seed % 2] == 0
        assert waiting + stranded == feed.waiting(range(16))
    counted = feed.objects.counters()
    outcomes = (
        "applied",
        "ungated",
        "collected",
        "snapshots_skipped",
        "snapshots_too_old",
        "snapshots_broken",
        "updates_contained",
        "objects_full",
    )
    assert sum(counted[name] for name in outcomes) == messages
    kept = sum(
        view.collected
        for number in range(16)
        if (view := feed.objects.state(3, number)) is not None
    )
    assert counted["collected"] == (
        counted["released"] + counted["collect_dropped"] + counted["collect_full"] + kept
    )


# --- last_seqno 0: none yet ---------------------------------------------------------------------


@pytest.mark.parametrize("before", [1, 1_000, 10_000_000, 20_000_000, 2**31])
def test_object_without_updates_has_its_first_one_at_any_distance_before_a_wrap(
    feed: Feed, before: int
) -> None:
    start = WRAP - before
    feed.session(start)
    feed.update(start, start - 1, (3, 1))
    assert feed.snapshot(0)[-1] == "snapshot 0"
    assert feed.status() == ObjectStatus.LIVE
    first = feed.update(start + 5, 0)
    if 5 < before < 1 << 24:  # the snapshot may have been from behind number 0, and contain it
        assert first == ["STALE 0"]
        first = feed.snapshot(start + 5)
        assert first == [f"RECOVERED {start + 5}", f"snapshot {start + 5}"]
    else:
        assert first == [f"update {(start + 5) % WRAP}"]
    assert feed.update(start + 6, start + 5) == [f"update {(start + 6) % WRAP}"]
    assert feed.count("updates_contained") == 0


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("first", [WRAP - 20, WRAP])
def test_update_that_a_snapshot_as_of_number_zero_contains_is_not_applied_to_it(
    feed: Feed, first: int, gated: bool, gap: bool
) -> None:
    ahead_of_number_zero(feed)
    assert feed.snapshot(0)[-1] == "snapshot 0", "as of number 0: it ran ahead"
    if gap:
        feed.gap(WRAP - 40, WRAP - 39)
    outputs = feed.update(first, 0) if gated else ungated(feed, first % WRAP, 0)
    assert outputs == (["STALE 0"] if gated else ["STALE 0", f"update {first % WRAP}"])
    assert feed.snapshot(0) == [], "may be from before the update"
    feed.snapshot(WRAP + 3, (3, 1))
    assert feed.snapshot(0) == ["RECOVERED 0", "snapshot 0"]
    assert feed.update(WRAP + 4, 0) == ["update 4"]


def test_update_behind_number_zero_continues_a_snapshot_from_either_side_of_it(feed: Feed) -> None:
    ahead_of_number_zero(feed)
    assert feed.snapshot(0)[-1] == "snapshot 0"
    feed.update(WRAP, WRAP - 50, (3, 1))
    assert feed.update(WRAP + 1, 0) == ["update 1"]
    assert feed.status() == ObjectStatus.LIVE


def test_snapshot_as_of_number_zero_is_not_taken_for_one_without_updates(feed: Feed) -> None:
    ahead_of_number_zero(feed)
    feed.snapshot(0)  # none yet
    feed.gap(WRAP - 40, WRAP - 39)  # its first update was lost
    assert feed.snapshot(0)[-1] == "snapshot 0", "its state may be another one by now"


def test_update_collected_before_number_zero_does_not_continue_a_snapshot_as_of_it(
    feed: Feed,
) -> None:
    ahead_of_number_zero(feed)
    key = {"object_type": KEY[0], "object_id": KEY[1]}
    feed.objects.admit(channel=Channel.SNAPSHOT, **key, refused=True)
    assert feed.update(WRAP - 20, 0) == []
    assert feed.snapshot(0) == []
    assert feed.status() == ObjectStatus.STALE


def ahead_of_number_zero(feed: Feed) -> None:
    # Snapshots may be from behind number 0, and name only numbers before it.
    feed.session(WRAP - 50)
    feed.update(WRAP - 50, WRAP - 60, (3, 1))
    feed.snapshot(WRAP - 50, (3, 1))


def test_snapshot_without_updates_behind_a_wrap_proves_no_other_object(feed: Feed) -> None:
    start = WRAP - 200
    feed.session(start)
    feed.update(start, start - 1, (3, 1))
    live(feed, start + 40)
    feed.gap(start + 41, start + 120)  # in which the object was updated
    feed.update(start + 260, start, (3, 1))
    feed.snapshot(0, (3, 5))
    assert feed.snapshot(start + 40) == []  # taken before the gap
    assert feed.status() == ObjectStatus.UNKNOWN
    assert feed.update(start + 300, start + 100)[0].startswith("STALE")


def test_lost_number_zero_is_not_taken_for_none_yet(feed: Feed) -> None:
    start = WRAP - 3
    feed.session(start)
    feed.update(start, start - 1, (3, 1))
    feed.snapshot(start, (3, 1))
    feed.snapshot(0)
    feed.gap(WRAP - 2, WRAP)  # number 0 was the object's first update
    assert feed.update(WRAP + 1, 0)[0].startswith("STALE")
    assert feed.snapshot(WRAP + 1, seqno=9)[-1] == f"snapshot {1}"


def test_snapshot_as_of_number_zero_recovers_an_object_that_collected_it(feed: Feed) -> None:
    start = WRAP - 3
    feed.update(start, start - 1, (3, 1))
    assert feed.update(WRAP, 0) == []  # the object's first update has number 0
    assert feed.snapshot(0) == [], "may be from before it"
    feed.update(WRAP + 1, start, (3, 1))
    feed.snapshot(WRAP + 1, (3, 1))
    assert feed.snapshot(0)[-1] == "snapshot 0", "a later one is from behind it"
    assert feed.status() == ObjectStatus.LIVE


def test_refused_snapshot_without_updates_is_not_skipped_the_next_time(feed: Feed) -> None:
    feed.session(1)
    feed.update(1, 0, (3, 1))
    key = {"object_type": KEY[0], "object_id": KEY[1]}
    refused = feed.objects.admit(channel=Channel.SNAPSHOT, **key, refused=True)
    assert [output.kind for output in refused] == [Kind.RECOVERED, Kind.STALE]
    assert feed.snapshot(0) == ["RECOVERED 0", "snapshot 0"]


# --- messages without a gate, of objects that have one ------------------------------------------


def ungated(feed: Feed, seqno: int, last: int) -> list[str]:
    return said(
        feed.objects.admit(
            object_type=KEY[0], object_id=KEY[1], seqno=seqno, last_seqno=last, gated=False
        )
    )


def test_ungated_message_extends_the_chain_of_its_object(feed: Feed) -> None:
    live(feed, 200)
    assert ungated(feed, 201, 200) == ["update 201"]
    feed.gap(202, 202)
    assert feed.update(203, 201) == ["RECOVERED 203", "update 203"]


def test_ungated_message_decides_about_an_unknown_object(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(201, 201)
    assert ungated(feed, 202, 200) == ["RECOVERED 202", "update 202"]
    feed.gap(203, 203)
    assert ungated(feed, 204, 203) == ["STALE 202", "update 204"]
    assert feed.snapshot(203) == []
    assert feed.snapshot(204) == ["RECOVERED 204", "snapshot 204"]


def test_object_of_gated_and_ungated_messages_recovers_while_snapshots_lag(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(201, 201)
    last = 201
    for seqno in range(202, 240, 2):
        feed.update(seqno, last)
        ungated(feed, seqno + 1, seqno)
        last = seqno + 1
        if seqno > 210:
            feed.snapshot(last - 4)
    assert feed.status() == ObjectStatus.LIVE
    assert feed.applied() == last


def test_snapshot_taken_at_an_ungated_message_continues_with_what_follows(feed: Feed) -> None:
    feed.update(100, 97)
    ungated(feed, 101, 100)
    ungated(feed, 102, 101)
    feed.update(103, 102)
    ungated(feed, 104, 103)
    assert feed.snapshot(101) == ["RECOVERED 104", "snapshot 101", "released 103"]
    assert feed.applied() == 104


def test_ungated_message_behind_a_hole_makes_older_snapshots_useless(feed: Feed) -> None:
    feed.update(100, 97)
    feed.gap(101, 101)
    ungated(feed, 102, 101)
    feed.update(103, 102)
    assert feed.snapshot(100) == []
    assert feed.snapshot(102) == ["RECOVERED 103", "snapshot 102", "released 103"]


# --- cost -----------------------------------------------------------------------------------------


def test_objects_whose_ids_were_chosen_to_collide_are_found_as_fast_as_others() -> None:
    """These ids share 64 of 131,072 slots under the multiplication that such tables often use."""
    keys = np.arange(1 << 16, 1 << 24, dtype=np.uint32)
    chosen = keys[((keys * np.uint32(2654435769)) >> np.uint32(7)) % 131072 < 64]
    objects = ObjectGate(objects_max=65536, collect_messages_max=1, collect_bytes=1 << 20)
    for key in chosen.tolist():
        objects.admit(object_type=key >> 16, object_id=key & 0xFFFF, seqno=5, last_seqno=4)
    probes = [objects.probes(key >> 16, key & 0xFFFF) for key in chosen.tolist()]
    assert len(chosen) > 5_000
    assert sum(probes) < 3 * len(probes)


@pytest.mark.parametrize("since", [0, 1, 3])
def test_object_of_a_disagreement_waits_for_a_snapshot_from_behind_it(since: int) -> None:
    feed = Feed()
    feed.session(1)
    other = (3, 8)
    feed.update(1, 0)
    feed.update(2, 0, other)
    feed.update(3, 1, payload=b"forged")
    for seqno in range(4, 4 + since):
        feed.update(seqno, seqno - 1)
    last = 3 + since
    assert feed.disagree(3)[0].startswith("STALE")
    assert feed.status() == ObjectStatus.STALE
    assert feed.status(other) == ObjectStatus.LIVE
    feed.snapshot(1)
    assert feed.status() != ObjectStatus.LIVE, "it may have been taken before number 3"
    feed.update(last + 1, 2, other)
    feed.snapshot(last + 1, other)
    feed.snapshot(1)
    assert feed.status() == ObjectStatus.LIVE, "number 3 was not of this object"


def test_object_of_a_snapshot_that_was_believed_is_doubted() -> None:
    feed = Feed()
    feed.update(10, 5)
    feed.snapshot(10, seqno=20)
    assert feed.status() == ObjectStatus.LIVE
    assert feed.disagree(19, channel=Channel.SNAPSHOT)[0] != "STALE 0"
    assert feed.status() == ObjectStatus.LIVE, "another snapshot was believed"
    assert feed.disagree(20, channel=Channel.SNAPSHOT)[0].startswith("STALE")
    feed.snapshot(10, seqno=21)
    assert feed.status() == ObjectStatus.LIVE


def waits(outputs: list[ObjectOutput]) -> list[tuple[ObjectStatus, ObjectWait]]:
    """What the object states among outputs say."""
    states = [
        np.frombuffer(one.payload, OBJECT_STATE)[0]
        for one in outputs
        if one.kind in (Kind.STALE, Kind.RECOVERED)
    ]
    return [(ObjectStatus(one["status"]), ObjectWait(one["waits"])) for one in states]


def update(objects: ObjectGate, seqno: int, last: int) -> list[ObjectOutput]:
    return objects.admit(object_type=3, object_id=7, seqno=seqno, last_seqno=last)


def test_object_that_waits_says_once_that_its_snapshot_channel_is_silent(feed: Feed) -> None:
    assert feed.update(100, 99) == []
    feed.snapshots(ConnectionStatus.DISCONNECTED, ConnectionScope.LINE)  # another one speaks
    assert feed.update(101, 100) == []
    feed.snapshots(ConnectionStatus.DISCONNECTED)
    assert waits(update(feed.objects, 102, 101)) == [
        (ObjectStatus.WAITING, ObjectWait.SNAPSHOT_SILENT)
    ]
    assert feed.update(103, 102) == []
    assert feed.count("waits_in_vain") == 1
    feed.snapshots(ConnectionStatus.READY)
    assert feed.update(104, 103) == []
    feed.snapshots(ConnectionStatus.DISCONNECTED)
    assert feed.update(105, 104) == ["STALE 0"]
    assert feed.snapshot(105) == ["RECOVERED 105", "snapshot 105"]
    assert feed.count("waits_in_vain") == 2
    assert feed.count("stale") == 0


def test_object_without_any_snapshot_line_says_so() -> None:
    objects = ObjectGate(snapshots=False)
    assert waits(update(objects, 100, 99)) == [(ObjectStatus.WAITING, ObjectWait.SNAPSHOT_ABSENT)]
    assert update(objects, 101, 100) == []


def test_stale_object_says_what_it_waits_for(feed: Feed) -> None:
    live(feed)
    feed.gap(201, 201)
    assert waits(update(feed.objects, 203, 202)) == [(ObjectStatus.STALE, ObjectWait.SNAPSHOT)]
    feed.snapshots(ConnectionStatus.DISCONNECTED)
    assert waits(update(feed.objects, 204, 203)) == [
        (ObjectStatus.STALE, ObjectWait.SNAPSHOT_SILENT)
    ]
    found = feed.objects.admit(
        object_type=3, object_id=7, seqno=205, last_seqno=204, flags=RecordFlag.SNAPSHOT
    )
    assert waits(found) == [(ObjectStatus.LIVE, ObjectWait.NONE)]


def test_disagreement_forgets_what_was_collected_for_somebody_may_have_invented_it(
    feed: Feed,
) -> None:
    feed.session(1)
    feed.update(1, 0)
    feed.gap(2, 98)
    assert feed.update(100, 99) == ["STALE 1"]
    feed.disagree(100)
    assert feed.count("collect_dropped") == 1
    feed.update(101, 100)
    assert feed.snapshot(99) == []
    assert feed.snapshot(100) == ["RECOVERED 101", "snapshot 100", "released 101"]


def test_disagreement_about_an_object_that_nobody_knows_makes_none(feed: Feed) -> None:
    feed.session(1)
    assert feed.disagree(1) == ["DISAGREEMENT"]
    assert feed.status() is None


def test_session_that_began_with_a_later_number_has_no_first_update(feed: Feed) -> None:
    feed.session(2)
    assert feed.update(2, 0) == []
    feed.session(1)
    assert feed.update(2, 0) == ["RECOVERED 2", "update 2"]


def test_silence_of_the_incremental_channel_is_none_of_the_snapshots(feed: Feed) -> None:
    feed.session(1)
    feed.update(1, 0)
    payload = np.array((ConnectionStatus.DISCONNECTED, ConnectionScope.CHANNEL, 0), CONNECTION)
    feed.objects.admit(kind=Kind.CONNECTION, payload=payload.tobytes())
    feed.gap(2, 98)
    assert waits(update(feed.objects, 100, 99)) == [(ObjectStatus.STALE, ObjectWait.SNAPSHOT)]


def test_object_collects_anew_each_time_that_it_is_in_doubt(feed: Feed) -> None:
    feed.session(1)
    feed.update(1, 0)
    for first in (100, 200):
        feed.gap(first - 50, first - 2)
        feed.update(first, first - 1)
        feed.update(first + 1, first)
        assert feed.snapshot(first - 1)[-2:] == [f"released {first}", f"released {first + 1}"]
    assert feed.count("collect_dropped") == 0
    feed.session(1)
    assert feed.count("collect_dropped") == 0  # nothing was left
