"""Where the feed's rules about numberings change from one answer to the other.

The rows are in the words of the examples of docs/protocol.md. Beside those: `us` waits, `C` is a
third line, and lines in small letters are those of the snapshot channel. Windows hold 512 messages.
"""

import pytest

from tests.feed.drive import Driver
from tests.feed.test_protocol_page import bring, told

SLOW = {"lost_packet_wait_ns": 10**9}
COUNTED = {**SLOW, "out_of_order_max_interval": 16}
NO_RESTART = {"restart_datagrams": 0}
FIRST = "SESSION 1 FIRST"
ANEW = "SESSION 1 SAME_ID"

PROOFS = [
    # A line that proves a run with others brings a quarter of the 32.
    ("A 101-200, B 101-200, 20 ms, A 1-31, B 32-38", f"{FIRST}, 101-200"),
    ("A 101-200, B 101-200, 20 ms, A 1-31, B 32-39", f"{FIRST}, 101-200, {ANEW}, 1-39"),
    # A line that brings what is new proves it, though another one of its run repeats more.
    (
        "A 1-1000, B 1-1000, 20 ms, B 30-64, A 73-104 anew",
        f"{FIRST}, 1-1000, SESSION 1 RESUMED, 30-64",
    ),
    # An ended session goes on once the current one has been quiet for longer than line_dead.
    ("A 1-3, A s2 1-2, 99200 us, A 4-11", f"{FIRST}, 1-3, SESSION 2 NEW_ID, 1-2"),
    (
        "A 1-3, A s2 1-2, 99201 us, A 4-11",
        f"{FIRST}, 1-3, SESSION 2 NEW_ID, 1-2, SESSION 1 RESUMED, 4-11",
    ),
    # It goes on up to a window behind where it was left.
    (
        "A 1-3, A s2 1-2, 200 ms, A 509-516, 6 ms",
        f"{FIRST}, 1-3, SESSION 2 NEW_ID, 1-2, SESSION 1 RESUMED, 505 unseen, 509-516",
    ),
    ("A 1-3, A s2 1-2, 200 ms, A 510-517, 6 ms", f"{FIRST}, 1-3, SESSION 2 NEW_ID, 1-2"),
    # Elsewhere it begins anew once the current one has been quiet for a second.
    ("A 1001-1100, A s2 1-2, 996799 us, A 1-32", f"{FIRST}, 1001-1100, SESSION 2 NEW_ID, 1-2"),
    (
        "A 1001-1100, A s2 1-2, 996800 us, A 1-32",
        f"{FIRST}, 1001-1100, SESSION 2 NEW_ID, 1-2, SESSION 1 NEW_ID, 1-32",
    ),
    # Heartbeats that are new to their line prove nothing before line_dead is over.
    ("A heartbeats 1-200, 20 ms, A heartbeats 1-64", f"{FIRST}, 1-200, {ANEW}, 1-64"),
    ("A heartbeats 1-200, 93600 us, B heartbeats 1-64", f"{FIRST}, 1-200"),
    ("A heartbeats 1-200, 93601 us, B heartbeats 1-64", f"{FIRST}, 1-200, {ANEW}, 1-64"),
    # Late ones of a line that had been silent may have begun anew.
    (
        "A 1-79, B 1, A 120-300, 1100 ms, B 80-111",
        f"{FIRST}, 1-79, GAP 80-119, 120-300, {ANEW}, 80-111",
    ),
    # A line that was silent for a second and comes with other bytes does not go on.
    (
        "A 1-3, B 1-3, 900 ms, A 4-200, B 5-68 anew",
        f"{FIRST}, 1-200, DISAGREEMENT 5-68",
    ),
    (
        "A 1-3, B 1-3, 980100 us, A 4-200, B 5-68 anew",
        f"{FIRST}, 1-200, DISAGREEMENT 5-68",
    ),
    (
        "A 1-3, B 1-3, 980200 us, A 4-200, B 5-68 anew",
        f"{FIRST}, 1-200, DISAGREEMENT 5-68, {ANEW}, 5-68",
    ),
    (
        "A 1-3, B 1-3, 1001 ms, A 4-200, B 5-68 anew",
        f"{FIRST}, 1-200, DISAGREEMENT 5-68, {ANEW}, 5-68",
    ),
    # Numbers that fall back to a gap go on if 63 messages followed it.
    (
        "A 1-100, A 200-262, 1100 ms, A 101-132",
        f"{FIRST}, 1-100, GAP 101-199, 200-262, SESSION 1 RESUMED, 101-132",
    ),
    (
        "A 1-100, A 200-263, 1100 ms, A 101-132",
        f"{FIRST}, 1-100, GAP 101-199, 200-263, {ANEW}, 101-132",
    ),
    # Where no pace was measured, 8 datagrams are taken to last 50 ms.
    ("A 1000, 46799 us, A 1-32 anew", f"{FIRST}, 1000"),
    ("A 1000, 46800 us, A 1-32 anew", f"{FIRST}, 1000, {ANEW}, 1-32"),
    # A replay on one line that was refuted refutes no run of another line.
    (
        "A 1-50, B 1-50, A heartbeats 51-200, 20 ms, B 30-50, A 201, 200 ms, A heartbeats 51-114",
        f"{FIRST}, 1-201, {ANEW}, 51-114",
    ),
    # The old numbering came back if 8 datagrams, and over four fifths, are known.
    (
        "A 1-9, A 100-150, 1001 ms, A 1-8, A 9 anew, A 10-40",
        f"{FIRST}, 1-9, GAP 10-99, 100-150, DISAGREEMENT 9, SESSION 1 RESUMED, 1-9, "
        "DISAGREEMENT 9, 10-40",
    ),
    (
        "A 1-10, A 100-150, 1001 ms, A 1-8, A 9-10 anew, A 11-41",
        f"{FIRST}, 1-10, GAP 11-99, 100-150, DISAGREEMENT 9-10, {ANEW}, 1-41",
    ),
]

PAUSES = ", ".join(f"60 ms, A {number}" for number in range(5, 12))

JUMPS = [
    # Up to 16 behind the furthest is no jump, though it is beyond the window.
    ("A 1-3, A 515, A 531", f"{FIRST}, 1-3, GAP 4-514, 515, GAP 516-530, 531"),
    ("A 1-3, A 515, A 532", f"{FIRST}, 1-3"),
    # 2^30 is too far for a jump.
    (
        "A 1-3, A 1073741827-1073741828",
        f"{FIRST}, 1-3, GAP 4-1073741826, 1073741827-1073741828",
    ),
    ("A 1-3, A 1073741828-1073741829", f"{FIRST}, 1-3"),
    # What begins below 64, at least 8192 further on, begins anew behind the wrap.
    ("A 4294959005-4294959104, A 1-2", f"{FIRST}, 4294959005-4294959104"),
    (
        "A 4294959006-4294959105, A 1-2",
        f"{FIRST}, 4294959006-4294959105, GAP 4294959106-0, 1-2",
    ),
    ("A 4294950001-4294950100, A 63-64", f"{FIRST}, 4294950001-4294950100"),
    (
        "A 4294950001-4294950100, A 64-65",
        f"{FIRST}, 4294950001-4294950100, GAP 4294950101-63, 64-65",
    ),
]

BEGINNINGS = [
    ("A 63-65", f"{FIRST}, 62 unseen, 63-65"),
    ("A 64-65", f"{FIRST}, 64-65"),
    # Other lines are waited for as long as for a hole, unless the session begins with number 1.
    ("A 1, B s2 1-2", f"{FIRST}, 1, SESSION 2 NEW_ID, 1-2"),
    ("A 1-3, B 1-3, A s2 2-3", f"{FIRST}, 1-3"),
    ("A 1-3, B 1-3, A s2 2-3, 4799 us, A s2 4", f"{FIRST}, 1-3"),
    (
        "A 1-3, B 1-3, A s2 2-3, 4800 us, A s2 4",
        f"{FIRST}, 1-3, SESSION 2 NEW_ID, 1 unseen, 2-4",
    ),
    # Late ones that tell nothing were not the beginning of another line's run.
    (
        "A 1-90, B 1-90, A 100-200, B 100-200, 6 ms, B 97-99, 20 ms, A 100-131 anew",
        f"{FIRST}, 1-90, GAP 91-99, 100-200, DISAGREEMENT 100-131, {ANEW}, 100-131",
    ),
    # What waited in the session before fills no hole of this one.
    (
        "A 1-3, A 5, A s2 1-4, A s2 6, 6 ms",
        f"{FIRST}, 1-3, SESSION 2 NEW_ID, 1-4, GAP 5-5, 6",
    ),
    # Snapshots are of the numbering that their window follows: nobody disputes them.
    (
        "A 1, a 132-133, a 1-16 anew, A 2, a 17-48 anew",
        f"{FIRST}, 1, 132-133, 2, GAP 134-0, 1-48",
    ),
]

RUNS = [
    # Three strays leave a run of four as it is; the fourth begins another one.
    (
        "A 20001-20002, A 19948-19951, A heartbeats 400-434",
        f"{FIRST}, 20001-20002, {ANEW}, 403-434",
    ),
    # The first datagram of a run counts, though another run broke it off.
    ("A 9008-9009 anew, A 27, A 60-91", f"{FIRST}, 9008-9009, {ANEW}, 33 unseen, 60-91"),
    # So does one that comes late, on any line.
    (
        "A 172-173, B 167-172 anew, B 113 anew, A 125-150 anew",
        f"{FIRST}, 172-173, DISAGREEMENT 172, {ANEW}, 113",
    ),
    # Late datagrams prove nothing.
    (
        "A 1, A s2 115-116, A 400-479 anew, A 417-448 anew",
        f"{FIRST}, 1, SESSION 2 NEW_ID, 115-116",
    ),
    # A run begins at once where its line brought a replay.
    ("A 212-213, A 209-212, A 121-152 anew", f"{FIRST}, 212-213, {ANEW}, 121-152"),
    # Other bytes than are kept begin another run.
    (
        "A 118, A 110-182, A 110-141 anew",
        f"{FIRST}, 118-182, DISAGREEMENT 118-141, {ANEW}, 110-141",
    ),
    # A copy of what its line brought of the current numbering refutes no run that is being proven.
    ("A 140-142, B 111-142, B 140 anew", f"{FIRST}, 140-142, {ANEW}, 111-140"),
    # Nor is a copy of the furthest that its line brought evidence of a run.
    ("B 105, A 124-151 anew, B 102-151", f"{FIRST}, 105-151, DISAGREEMENT 124-151"),
    # A run of fewer than 64 datagrams does not end the numbering whose end it has reached.
    (
        "A 1063-1064, A 1063-1103 anew, A 1071-1104 anew",
        f"{FIRST}, 1063-1064, DISAGREEMENT 1063-1064, 1065-1104",
    ),
    # The snapshot window follows no run that began since the incremental channel last went on.
    ("A 1, b 132-133, b 101-132 anew", f"{FIRST}, 1, 132-133, DISAGREEMENT 132"),
    # What is next is delivered, though the numbering before the restart had the same bytes.
    (
        "A 82-83, A 50-81 anew, A 81-82",
        f"{FIRST}, 82-83, {ANEW}, 50-81, DISAGREEMENT 81, 82",
    ),
    # What is not next is a straggler of that numbering.
    ("A 214-215, A 121-152 anew, A 214-264", f"{FIRST}, 214-215, {ANEW}, 121-152"),
]

SETTINGS = [
    # A run that contradicted four times fills no hole.
    (
        "A 1-109, A 111-300, A 106-109 anew, A 110 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 106-109",
    ),
    (
        "A 1-109, A 111-300, A 107-109 anew, A 110 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 107-109, 110-300",
    ),
    # What it is denied is no evidence for it.
    (
        "A 1-109, A 142-300, A 106-109 anew, A 110-141 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 106-109",
    ),
    # Nor is anything denied where the line brought fewer than 64 of its last 128 from further on:
    # as many may be forged.
    (
        "A 1-109, A 120-182, A 247, A 106-109 anew, A 110 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 106-109",
    ),
    (
        "A 1-109, A 120-181, A 247, A 106-109 anew, A 110 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 106-109, 110",
    ),
    (
        "A 1-109, A 120-182, A 248, A 106-109 anew, A 110 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 106-109, 110",
    ),
    (
        "A 1-109, B 120-182, A 247, A 106-109 anew, A 110 anew",
        SLOW,
        f"{FIRST}, 1-109, DISAGREEMENT 106-109, 110",
    ),
    (
        "A 1-109, A 113-116 anew, A 300 anew, A 110-299",
        SLOW,
        f"{FIRST}, 1-116, DISAGREEMENT 113-116, 117-300",
    ),
    # A run that mostly fills holes is the old numbering, which came back.
    (
        "A 1-100, A 200-400, A 120-199, A 200-211, A 212-231 anew",
        SLOW,
        f"{FIRST}, 1-100, SESSION 1 RESUMED, 120-231",
    ),
    # A hole is lost once 16 more than the last accepted came, on all lines that live.
    ("A 1-3, A 5-19", COUNTED, f"{FIRST}, 1-3"),
    ("A 1-3, A 5-20", COUNTED, f"{FIRST}, 1-3, GAP 4-4, 5-20"),
    # One that is silent for line_dead does not; of a pause of all lines an eighth of that counts.
    (f"A 1-3, B 1-3, {PAUSES}, 11900 us, A 12, 0 us, A 13-20", COUNTED, f"{FIRST}, 1-3"),
    (
        f"A 1-3, B 1-3, {PAUSES}, 11901 us, A 12, 0 us, A 13-20",
        COUNTED,
        f"{FIRST}, 1-3, GAP 4-4, 5-20",
    ),
    # What is next shows that the current numbering is alive, though its line was led astray; what
    # only fills a hole then does not.
    (
        "A 101-200, A 300 anew, 20 ms, B 1-31, A 201, B 32",
        SLOW,
        f"{FIRST}, 101-201",
    ),
    (
        "A 101-200, A 300 anew, 20 ms, B 1-31, A 202, B 32",
        SLOW,
        f"{FIRST}, 101-200, {ANEW}, 1-32",
    ),
    # What fills a second hole on the line of a run, from near its furthest, leaves the run alone.
    (
        "A 101-149, A 151-189, A 191-230, 20 ms, A 1-3 anew, A 190, A 4-32 anew",
        SLOW,
        f"{FIRST}, 101-149, {ANEW}, 1-32",
    ),
    # What a line brought of a run that is believed, it has come to.
    (
        "A 101-200, B 101-200, 20 ms, B 1-20, A 1-32, A 34-60",
        COUNTED,
        f"{FIRST}, 101-200, {ANEW}, 1-32",
    ),
    ("A 1-2, A 4, 4999 us", {}, f"{FIRST}, 1-2"),
    ("A 1-2, A 4, 5 ms", {}, f"{FIRST}, 1-2, GAP 3-3, 4"),
    # Without restarts, few other bytes are no restart either.
    ("A 101-200, A 41-48 anew, 20 ms", NO_RESTART, f"{FIRST}, 101-200"),
]


def outcome(comes: str, settings: dict[str, int]) -> str:
    lines = 1 + max("ABC".index(what[0]) for what in comes.upper().split(", ") if what[0] in "ABC")
    driver = Driver(
        lines_incremental=lines, lines_snapshot=lines, window=512, slab_cells=512, **settings
    )
    for what in comes.split(", "):
        bring(driver, what)
    return told(driver)


@pytest.mark.parametrize(("comes", "out"), [*PROOFS, *JUMPS, *BEGINNINGS, *RUNS])
def test_rule_changes_its_answer_here(comes: str, out: str) -> None:
    assert outcome(comes, {}) == out


@pytest.mark.parametrize(("comes", "settings", "out"), SETTINGS)
def test_rule_of_a_setting_changes_its_answer_here(
    comes: str, settings: dict[str, int], out: str
) -> None:
    assert outcome(comes, settings) == out


def test_numbers_that_fall_back_to_the_latest_64_that_came_go_on() -> None:
    # What came counts, not how far ahead it lies: 59 messages, and what waits behind a hole.
    brought = "A 1-200, {}, A 141-172 anew"
    assert "SESSION 1 RESUMED" in outcome(brought.format("A 300-303"), SLOW)
    assert ANEW in outcome(brought.format("A 300-304"), SLOW)


def test_numbers_that_fall_back_to_a_gap_go_on_from_what_is_new_in_them() -> None:
    brought = "A 1-100, A 200-230, 1100 ms"
    assert "SESSION 1 RESUMED" in outcome(f"{brought}, A 34-36, A 37-65 anew", {})
    assert ANEW in outcome(f"{brought}, A 34-35, A 36-65 anew", {})


def test_run_of_64_that_reached_the_end_is_believed_with_what_follows() -> None:
    brought = "A 1-136, A heartbeats 137, A 138-192, 60 ms, A 193-200, A heartbeats 137"
    out = f"{FIRST}, 1-200, DISAGREEMENT 138-200"
    assert outcome(f"{brought}, A 138-200 anew", {}) == out
    assert outcome(f"{brought}, A 138-201 anew", NO_RESTART) == f"{out}, 201"
    followed = outcome(f"{brought}, A 138-201 anew", {})
    assert followed.startswith(f"{out}, SESSION 1 RESUMED, 137-138, ")
    assert followed.endswith(", 201")
