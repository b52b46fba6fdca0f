"""Which ends of a feed's loop are worth another try."""

from errno import EBADF, ENODEV
from typing import Any

import pytest

from udpfast.agents.feed.feed_keeper import FeedKeeper
from udpfast.config import parse_feed
from udpfast.errors import ConfigError

S = 1_000_000_000


class EndedSubscriber:
    """A subscriber whose loop has ended, and whose lines cannot be opened at first."""

    name = "ended"

    def __init__(self, failure: Exception, *refusals: Exception) -> None:
        self.config = parse_feed(
            {
                "name": "ended",
                "incremental": {"lines": [{"name": "A", "address": "127.0.0.1:9001"}]},
            }
        )
        self.failure: Exception | None = failure
        self.refusals = list(refusals)
        self.passed_ns: list[int] = []

    @property
    def ended(self) -> bool:
        return self.failure is not None

    def note_failure(self, failure: BaseException, again: bool) -> None:
        pass

    def pass_time(self, now_ns: int) -> None:
        self.passed_ns.append(now_ns)

    def reopen(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.failure = None


def keep(subscriber: Any) -> BaseException | None:
    keeper = FeedKeeper(subscriber, print)
    for now_s in range(60):
        failure = keeper.look(now_s * S)
        if failure is not None or not subscriber.ended:
            return failure
    pytest.fail("the keeper neither gave up nor opened the lines")


def test_lines_whose_interface_is_not_there_yet_are_tried_again() -> None:
    # The settings were fine when the feed began: it is the interface that is missing.
    missing = ConfigError("interface 'eth7' is neither a name nor an address of this host")
    subscriber = EndedSubscriber(OSError(ENODEV, "no such device"), missing, missing)
    assert keep(subscriber) is None
    assert not subscriber.refusals


def test_another_error_than_the_networks_ends_it() -> None:
    failure = OSError(EBADF, "bad descriptor")
    assert keep(EndedSubscriber(failure)) is failure
    assert keep(EndedSubscriber(ConfigError("nonsense"))) is not None


def test_time_passes_for_the_feed_while_its_lines_are_closed() -> None:
    subscriber = EndedSubscriber(OSError(ENODEV, "no such device"))
    keeper = FeedKeeper(subscriber, print)  # type: ignore[arg-type]
    assert keeper.look(0) is None
    assert keeper.look(1) is None
    assert keeper.look(2) is None
    assert subscriber.passed_ns == [1, 2]
