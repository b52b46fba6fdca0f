"""A lost host is reported once, with the time when it was last heard, and so is its return."""

from udpfast.bus.absence import GONE_NS, Absence, News

UNIX = 1_700_000_000 * 10**9


def test_host_that_is_gone_is_said_once_and_so_is_its_return() -> None:
    absence = Absence(0, UNIX)
    assert absence.look(True, 1, UNIX + 1) is News.NONE
    assert absence.look(False, GONE_NS, UNIX + GONE_NS) is News.NONE
    assert absence.look(False, GONE_NS + 1, UNIX + GONE_NS + 1) is News.GONE
    assert absence.since_ns == UNIX + 1
    assert absence.look(False, 2 * GONE_NS, UNIX) is News.NONE
    assert absence.look(True, 3 * GONE_NS, UNIX) is News.BACK
    assert (absence.since_ns, absence.away_ns) == (None, 3 * GONE_NS - 1)
    assert absence.look(True, 3 * GONE_NS + 1, UNIX) is News.NONE


def test_host_that_is_back_soon_is_not_said() -> None:
    absence = Absence(0, UNIX)
    for turn in range(5):
        now_ns = turn * GONE_NS
        assert absence.look(False, now_ns + GONE_NS // 2, UNIX) is News.NONE
        assert absence.look(True, now_ns + GONE_NS - 1, UNIX) is News.NONE
