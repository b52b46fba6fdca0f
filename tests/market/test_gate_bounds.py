"""Where the gate's rules change from one answer to the other, and what each of them resets."""

import pytest

from tests.market.test_gate import KEY, Feed, live, ungated
from udpfast.core.layout import Channel, ConnectionStatus, Kind, ObjectStatus

OTHER = (3, 8)


@pytest.fixture
def feed() -> Feed:
    return Feed()


def proven(feed: Feed) -> None:
    """The object LIVE as of 200, and snapshots known to be of later than all that was lost."""
    live(feed, 200)
    feed.snapshot(200, OTHER)
    assert feed.snapshot(150, (3, 9)) == ["RECOVERED 150", "snapshot 150"]


def test_snapshot_from_before_a_gap_ends_no_doubt_though_earlier_ones_were_recent(
    feed: Feed,
) -> None:
    proven(feed)
    feed.gap(201, 205)
    assert feed.snapshot(200) == []
    assert feed.status() == ObjectStatus.UNKNOWN


@pytest.mark.parametrize(("named", "said"), [(204, []), (205, ["RECOVERED 200"])])
def test_snapshots_are_recent_from_the_last_lost_number_on(
    feed: Feed, named: int, said: list[str]
) -> None:
    live(feed, 200)
    live(feed, 201, OTHER)
    feed.gap(203, 205)
    feed.snapshot(named, OTHER)
    assert feed.snapshot(200) == said


def test_gap_from_number_1_on_does_not_lose_number_0(feed: Feed) -> None:
    feed.session(1)
    assert feed.snapshot(0) == ["RECOVERED 0", "snapshot 0"]
    feed.gap(1, 3)
    assert feed.update(4, 0) == ["RECOVERED 4", "update 4"]


def test_snapshots_numbered_anew_may_lag_again(feed: Feed) -> None:
    proven(feed)
    feed.snapshots_anew()
    assert feed.snapshot(150, (3, 9)) == ["STALE 150", "snapshot 150"]
    assert feed.status((3, 9)) == ObjectStatus.UNKNOWN


def test_snapshots_numbered_anew_are_recent_from_the_newest_number_on(feed: Feed) -> None:
    feed.session(150)
    feed.update(200, 150, OTHER)
    feed.snapshot(190)
    feed.update(300, 200, OTHER)
    feed.snapshots_anew()
    assert feed.snapshot(200)[-1] == "snapshot 200"
    assert feed.status() == ObjectStatus.UNKNOWN, "what came up to 300 may be missing in it"


def test_object_that_waits_does_not_say_so_while_snapshots_come_again(feed: Feed) -> None:
    feed.snapshots(ConnectionStatus.DISCONNECTED)
    feed.snapshots(ConnectionStatus.READY)
    assert feed.update(100, 99) == []


def test_object_of_a_disagreement_needs_two_old_snapshots_like_any_in_doubt(feed: Feed) -> None:
    feed.update(1000, 999, OTHER)
    assert feed.snapshot(590) == ["RECOVERED 590", "snapshot 590"]
    feed.update(1001, 590)
    feed.disagree(1001)
    assert feed.snapshot(590) == ["snapshot 590"]
    assert feed.status() == ObjectStatus.UNKNOWN
    assert feed.snapshot(590) == ["RECOVERED 590"]


def test_snapshots_numbered_anew_twice_leave_what_was_collected_between(feed: Feed) -> None:
    feed.session(150)
    feed.update(200, 150)
    feed.snapshot(200)
    feed.snapshots_anew()
    assert feed.update(201, 200) == ["STALE 0"]
    feed.snapshots_anew()
    feed.update(202, 201)
    assert feed.snapshot(200)[-3:] == ["snapshot 200", "released 201", "released 202"]


def test_snapshots_numbered_anew_leave_what_began_with_one_of_the_stream(feed: Feed) -> None:
    feed.session(150)
    feed.update(200, 150)
    feed.snapshot(200)
    assert feed.update(201, 200, snapshot=True) == ["update 201"]
    feed.snapshots_anew()
    assert feed.status() == ObjectStatus.UNKNOWN
    assert feed.update(202, 201) == ["RECOVERED 202", "update 202"]


def test_first_update_of_an_object_names_none_before(feed: Feed) -> None:
    feed.session(1)
    feed.update(1, 0, OTHER)
    assert feed.update(2, 1) == []
    assert feed.status() == ObjectStatus.WAITING
    assert feed.update(3, 0) == [], "nor is it the first one behind what was collected"


def test_object_of_a_disagreement_does_not_begin_with_an_update_that_names_none(
    feed: Feed,
) -> None:
    feed.session(1)
    assert feed.update(1, 0) == ["RECOVERED 1", "update 1"]
    feed.disagree(1)
    assert feed.update(2, 0) == []
    assert feed.status() == ObjectStatus.STALE


def test_what_no_snapshot_can_continue_is_collected_no_longer(feed: Feed) -> None:
    feed.update(100, 97)
    feed.gap(101, 101)
    ungated(feed, 102, 101)
    view = feed.objects.state(*KEY)
    assert view is not None
    assert view.collected == 0


def test_trusted_object_takes_no_older_snapshot(feed: Feed) -> None:
    feed.update(1000, 999, OTHER)
    feed.snapshot(590)
    assert feed.snapshot(580) == []
    assert feed.applied() == 590
    assert feed.count("snapshots_too_old") == 1


def test_object_that_collected_before_a_gap_needs_two_snapshots_from_before_it(feed: Feed) -> None:
    feed.update(210, 204)
    feed.gap(211, 216)
    assert feed.snapshot(210) == ["snapshot 210"]
    assert feed.status() == ObjectStatus.UNKNOWN
    assert feed.snapshot(210) == ["RECOVERED 210"]
    assert feed.status() == ObjectStatus.LIVE


def test_object_whose_collected_updates_reach_the_newest_number_lacks_nothing(feed: Feed) -> None:
    feed.update(99, 0, OTHER, snapshot=True)
    feed.update(100, 97)
    feed.update(101, 100)
    feed.disagree(99, OTHER)
    assert feed.snapshot(100) == ["RECOVERED 101", "snapshot 100", "released 101"]
    assert feed.status() == ObjectStatus.LIVE


def test_update_behind_an_ungated_message_does_not_continue_a_snapshot_from_before_that(
    feed: Feed,
) -> None:
    feed.update(100, 97)
    feed.gap(101, 101)
    ungated(feed, 102, 101)
    feed.update(103, 97)
    assert feed.snapshot(97) == []


def test_update_for_which_there_was_no_room_is_needed_though_nothing_was_collected() -> None:
    feed = Feed(collect_bytes=1024)
    assert feed.update(100, 99, payload=bytes(4000)) == []
    assert feed.snapshot(99) == []


def test_another_gap_asks_for_two_snapshots_again(feed: Feed) -> None:
    live(feed, 200)
    feed.gap(203, 205)
    assert feed.snapshot(200) == []
    assert feed.snapshot(200) == ["RECOVERED 200"]
    feed.gap(206, 207)
    assert feed.snapshot(200) == []
    assert feed.status() == ObjectStatus.UNKNOWN


@pytest.mark.parametrize(("named", "proven"), [(998, False), (999, True)])
def test_snapshots_are_recent_from_the_number_before_the_first_on(
    feed: Feed, named: int, proven: bool
) -> None:
    feed.update(1000, 999, OTHER)
    feed.snapshot(named, (3, 9))
    assert feed.snapshot(590)[-1] == "snapshot 590"
    assert feed.snapshot(700) == ([] if proven else ["snapshot 700"])


@pytest.mark.parametrize(("start", "missed"), [(2**24, True), (2**24 + 1, False)])
def test_number_0_may_have_been_missed_within_so_many_messages(
    feed: Feed, start: int, missed: bool
) -> None:
    feed.session(start)
    feed.update(start, start - 1, (3, 1))
    feed.snapshot(0)
    said = feed.update(start + 5, 0)
    assert said == (["STALE 0"] if missed else [f"update {start + 5}"])


@pytest.mark.parametrize(("ahead", "proven"), [(2**24 - 1, True), (2**24, False)])
def test_snapshot_names_a_number_ahead_up_to_so_many_messages(
    feed: Feed, ahead: int, proven: bool
) -> None:
    feed.update(100, 99, OTHER)
    feed.snapshot(100 + ahead)
    assert feed.snapshot(101) == ([] if proven else ["snapshot 101"])


def test_nothing_is_released_behind_a_snapshot_that_cannot_be_used(feed: Feed) -> None:
    feed.update(100, 97)
    feed.update(101, 100)
    outputs = feed.objects.admit(
        channel=Channel.SNAPSHOT, object_type=KEY[0], object_id=KEY[1], last_seqno=97, refused=True
    )
    assert [output.kind for output in outputs] == [Kind.RECOVERED, Kind.STALE]
    assert feed.count("collect_dropped") == 2


# --- a session resets all of it -------------------------------------------------------------------


def test_number_that_a_snapshot_named_is_forgotten_with_its_session(feed: Feed) -> None:
    feed.session(2**32 - 3)
    feed.update(2**32 - 3, 2**32 - 4, OTHER)
    feed.update(2**32 + 5, 2**32 - 3, OTHER)
    feed.snapshot(2**32 + 5, OTHER)
    feed.session(1)
    feed.snapshot(0)
    assert feed.update(1, 0)[-1] == "update 1"


def test_lost_number_0_is_forgotten_with_its_session(feed: Feed) -> None:
    feed.session(2**32 - 3)
    feed.gap(2**32 - 3, 2**32 + 5)
    start = 2**24 + 5
    feed.session(start)
    feed.update(start, start - 1, OTHER)
    feed.snapshot(0)
    assert feed.update(start + 1, 0) == [f"update {start + 1}"]


def test_snapshots_of_another_session_may_lag_until_one_names_its_first_number(
    feed: Feed,
) -> None:
    proven(feed)
    feed.session(1000)
    assert feed.snapshot(590) == ["RECOVERED 590", "snapshot 590"]
    assert feed.snapshot(600) == ["snapshot 600"], "newer than what was believed"
    feed.update(1000, 999, OTHER)
    feed.snapshot(999, (3, 9))
    assert feed.snapshot(600) == []
    assert feed.snapshot(700) == [], "LIVE, and proven: not decoded"
