"""What a feed lost of late: the last 15 minutes, and not what was before."""

from udpfast.agents.feed.recent_losses import RECENT_NS, RecentLosses

SECOND = 1_000_000_000


def counted(lost: int, disagreements: int = 0) -> dict[str, dict[str, int]]:
    return {
        "incremental": {"lost": lost, "disagreements": disagreements},
        "snapshot": {"lost": 99, "disagreements": 1},
    }


def test_what_was_lost_of_late_is_told_apart_from_what_was_lost_before() -> None:
    recent = RecentLosses()
    assert recent.look(counted(5, 2), 100 * SECOND) == (5, 3)  # all since the start is of late
    for second in range(101, 900):
        assert recent.look(counted(7, 2), second * SECOND) == (7, 3)
    assert recent.look(counted(9, 2), 990 * SECOND) == (9, 3)
    assert recent.look(counted(9, 2), 1020 * SECOND)[0] == 2
    last_ns = 990 * SECOND + RECENT_NS
    for second in range(1030, last_ns // SECOND, 10):
        recent.look(counted(9, 2), second * SECOND)
    assert recent.look(counted(9, 2), last_ns + 20 * SECOND) == (0, 0)


def test_what_is_remembered_is_bounded() -> None:
    recent = RecentLosses()
    for second in range(10_000):
        recent.look(counted(second), second * SECOND)
    assert recent.look(counted(10_000), 10_000 * SECOND)[0] in range(895, 915)
