"""Lines further behind than holes wait bring what was given up: that is no restart."""

import pytest

from lab.behind_rows import lines_behind
from tests.feed.drive import Driver, datagram

MS = 1_000_000


@pytest.mark.parametrize(
    ("framing", "seed"),
    [
        ("roq", 4), ("cme_mdp3", 5), ("moldudp64", 13), ("moldudp64", 17), ("iex_tp", 1),
        ("iex_tp", 17), ("nyse_xdp", 0), ("nyse_xdp", 16), ("nyse_xdp", 20), ("cboe_pitch", 7),
        ("cboe_pitch", 23), ("miax_mach", 3),
    ],
)  # fmt: skip
def test_line_behind_is_no_restart(framing: str, seed: int) -> None:
    assert lines_behind(seed, 4_000, framing)["trials"]


def brought(lost: range, pause_at: int, swapped: bool) -> list[tuple[int, int, int]]:
    """A sends 1-800, 0.1 ms apart, but for what it lost, and pauses; B is 30 ms behind, and whole.

    If it is `swapped`, B's datagrams overtake each other in pairs.
    """
    arrivals = []
    for number in range(1, 801):
        if number not in lost:
            at_ns = number * MS // 10 + (25 * MS if number >= pause_at else 0)
            arrivals.append((at_ns, 0, number))
        place = number ^ 1 if swapped else number
        arrivals.append((place * MS // 10 + 30 * MS, 1, number))
    return sorted(arrivals)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("window", "lost", "pause_at"),
    [
        (8_192, range(400, 600), 640),  # given up, and little followed
        (128, range(400, 402), 640),  # forgotten
    ],
)
def test_line_behind_goes_on_where_the_feed_was(
    window: int, lost: range, pause_at: int, swapped: bool
) -> None:
    driver = Driver(lost_packet_wait_ns=MS, window=window)
    for at_ns, line, number in brought(lost, pause_at, swapped):
        while driver.now_ns + MS // 2 < at_ns:
            driver.expire(driver.now_ns + MS // 2)
        driver.send(datagram(number), line, at_ns=at_ns)
    driver.finish()
    assert len(driver.sessions()) == 1
    assert driver.seqnos() == [number for number in range(1, 801) if number not in lost]


@pytest.mark.parametrize("line", [0, 1])
def test_restart_on_a_line_behind_is_believed_with_32_datagrams(line: int) -> None:
    driver = Driver(lost_packet_wait_ns=MS)
    for number in range(1_001, 1_801):
        driver.send(datagram(number), 0, at_ns=number * MS // 10)
        if number > 1_300:
            driver.send(datagram(number - 300), 1)
    driver.now_ns += 10 * MS
    for number in range(1, 32):
        driver.send(datagram(number, b"anew"), line)
    assert len(driver.sessions()) == 1
    driver.send(datagram(32, b"anew"), line)
    assert len(driver.sessions()) == 2
    assert driver.seqnos()[-32:] == list(range(1, 33))
