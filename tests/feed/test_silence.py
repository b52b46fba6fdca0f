"""Lines and channels that fall silent: said once, of each, and once when they speak again."""

import random

import pytest

from tests.feed.drive import Driver, datagram, fragments, read
from udpfast.core.layout import ConnectionScope, ConnectionStatus, Kind

SECOND = 1_000_000_000
READY, DISCONNECTED = ConnectionStatus.READY, ConnectionStatus.DISCONNECTED
CHANNEL, LINE = ConnectionScope.CHANNEL, ConnectionScope.LINE

Said = tuple[int, int, int, int, int]  # channel, scope, line, status, silent_ns


def said(driver: Driver) -> list[Said]:
    """Every CONNECTION so far, in order."""
    found = [(m, read(m)) for m in driver.out if m.kind is Kind.CONNECTION]
    return [
        (m.channel, int(c["scope"]), m.line, int(c["status"]), int(c["silent_ns"]))
        for m, c in found
    ]


def test_line_that_never_spoke_is_said_while_the_other_goes_on() -> None:
    driver = Driver(lines_snapshot=0)
    for second in range(15):
        driver.send(datagram(second), 0, at_ns=second * SECOND)
        driver.expire(second * SECOND)
    line = (0, LINE, 1, DISCONNECTED, 10 * SECOND)
    assert said(driver) == [(0, CHANNEL, 0, READY, 0), line]
    driver.send(datagram(14), 1, at_ns=14 * SECOND)
    driver.expire(14 * SECOND)
    assert said(driver)[2:] == [(0, LINE, 1, READY, 14 * SECOND)]
    assert (driver.line(1)["disconnected"], driver.line(1)["ready"]) == (1, 1)
    assert (driver.line(0)["disconnected"], driver.line(0)["ready"]) == (0, 0)
    driver.finish()


def test_silence_counts_from_when_the_feed_began_to_watch() -> None:
    driver = Driver(lines_incremental=1, lines_snapshot=0)
    for second in (100, 109):
        driver.expire(second * SECOND)
    assert said(driver) == []
    driver.expire(110 * SECOND)
    assert said(driver) == [(0, CHANNEL, 0, DISCONNECTED, 10 * SECOND)]


def test_line_that_brings_what_is_not_of_the_feed_is_silent() -> None:
    driver = Driver(lines_snapshot=0, window=16)
    for second in range(12):
        driver.send(datagram(100 + second), 0, at_ns=second * SECOND)
        driver.send(datagram(1)[:15], 1, at_ns=second * SECOND)
        driver.expire(second * SECOND)
    assert (0, LINE, 1, DISCONNECTED, 10 * SECOND) in said(driver)
    driver.finish()


@pytest.mark.parametrize("repeated", [1, 2])
def test_line_that_repeats_a_fragment_of_its_latest_message_is_silent(repeated: int) -> None:
    driver = Driver(lines_snapshot=0)
    message = fragments(1, 3)
    for data in message:
        for line in range(2):
            driver.send(data, line, at_ns=0)
    for second in range(1, 11):
        driver.send(datagram(1 + second), 0, at_ns=second * SECOND)
        driver.send(message[repeated], 1, at_ns=second * SECOND)
        driver.expire(second * SECOND)
    assert (0, LINE, 1, DISCONNECTED, 10 * SECOND) in said(driver)
    driver.finish()


def test_channel_of_one_line_says_it_for_its_line() -> None:
    driver = Driver(lines_incremental=1, lines_snapshot=1)
    driver.send(datagram(0), at_ns=0)
    driver.expire(0)
    driver.expire(10 * SECOND)
    driver.send(datagram(1), at_ns=12 * SECOND)
    driver.expire(12 * SECOND)
    assert said(driver) == [
        (0, CHANNEL, 0, READY, 0),
        (0, CHANNEL, 0, DISCONNECTED, 10 * SECOND),
        (1, CHANNEL, 0, DISCONNECTED, 10 * SECOND),
        (0, CHANNEL, 0, READY, 12 * SECOND),
    ]
    assert (driver.line(0)["disconnected"], driver.line(0)["ready"]) == (1, 1)
    driver.finish()


class Silences:
    """What is to be said, worked out slowly: every line, at every look."""

    def __init__(self, lines: tuple[int, int], limit_ns: int) -> None:
        self.limit_ns = limit_ns
        self.spoke = [[0] * count for count in lines]
        self.silent: list[list[int | None]] = [[None] * count for count in lines]
        self.connected: list[bool | None] = [None, None]
        self.said: list[Said] = []

    def hear(self, channel: int, line: int, at_ns: int) -> None:
        if not self.connected[channel]:
            silent_ns = at_ns - max(self.spoke[channel])
            self.said.append((channel, CHANNEL, 0, READY, silent_ns))
            self.connected[channel] = True
        self.spoke[channel][line] = at_ns

    def look(self, at_ns: int) -> None:
        for channel, spoke in enumerate(self.spoke):
            for line, before in enumerate(self.silent[channel]):
                since = before
                if since is not None and spoke[line] > since:
                    self._say(channel, line, READY, spoke[line] - since)
                    since = None
                if since is None and at_ns - spoke[line] >= self.limit_ns:
                    self._say(channel, line, DISCONNECTED, at_ns - spoke[line])
                    since = spoke[line]
                self.silent[channel][line] = since
            silent_ns = at_ns - max(spoke, default=at_ns)
            if spoke and self.connected[channel] is not False and silent_ns >= self.limit_ns:
                self.connected[channel] = False
                self.said.append((channel, CHANNEL, 0, DISCONNECTED, silent_ns))

    def _say(self, channel: int, line: int, status: int, silent_ns: int) -> None:
        if len(self.spoke[channel]) > 1:
            self.said.append((channel, LINE, line, status, silent_ns))


@pytest.mark.parametrize("seed", range(60))
def test_every_silence_and_its_end_are_said_once_whenever_somebody_looks(seed: int) -> None:
    rng = random.Random(seed)
    lines = rng.randint(1, 8), rng.choice((0, 1, rng.randint(1, 8)))
    limit_ns = rng.choice((1, 1_000_000, 10 * SECOND))
    driver = Driver(
        lines_incremental=lines[0],
        lines_snapshot=lines[1],
        inactivity_timeout_ns=limit_ns,
        lost_packet_wait_ns=1 << 60,
    )
    model = Silences(lines, limit_ns)
    driver.expire(0)
    model.look(0)
    now_ns, seqno = 0, [0, 0]
    speaks = [[line for line in range(count) if rng.random() < 0.6] for count in lines]
    for _ in range(300):
        now_ns += rng.choice((0, limit_ns // 7, limit_ns // 2, limit_ns, 2 * limit_ns))
        if rng.random() < 0.05:
            speaks = [[line for line in range(count) if rng.random() < 0.6] for count in lines]
        channel = rng.randrange(2)
        if rng.random() < 0.3:
            driver.expire(now_ns)
            model.look(now_ns)
        elif speaks[channel]:
            line = rng.choice(speaks[channel])
            driver.send(datagram(seqno[channel]), line, channel, at_ns=now_ns)
            seqno[channel] += 1
            model.hear(channel, line, now_ns)
    assert said(driver) == model.said, f"seed {seed}"
    for channel, silent in enumerate(model.silent):
        for line, since in enumerate(silent):
            scope = driver.line(line, channel)
            assert scope["disconnected"] - scope["ready"] == (since is not None), f"seed {seed}"
