"""CME's changes and loops, as they come to a feed: never sound and wrong, and sound in the end."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from lab.conformance.books import Followed, Line, follow
from tests.agents.cme_books import ALL, Truth, check, config_of, truth_of
from udpfast.agents.market.cme_market import CmeMarket
from udpfast.agents.market.venue_market import SYMBOLS
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram

DEFINITIONS = 1


class Played:
    """A market through two lossy lines and its lossy loops; what was true after each datagram."""

    def __init__(
        self, seed: int, loss: float, first: int = 1, defined_from_ns: int = 0, seconds: float = 0.6
    ) -> None:
        self.market = CmeMarket(seed, rate_per_s=500, seconds=seconds)
        self.truths: dict[int, Truth] = {}
        self._pick = random.Random(seed)
        self._loss, self._first, self._defined_from_ns = loss, first, defined_from_ns

    def __iter__(self) -> Iterator[tuple[Line, CapturedDatagram]]:
        for at_ns, line, data in self.market:
            number = int.from_bytes(data[:4], "little")
            if line == 0:
                self.truths[number] = truth_of(self.market)
                joined = number >= self._first
            if not joined or (line == DEFINITIONS and at_ns < self._defined_from_ns):
                continue
            for place in range(2) if line == 0 else (line - 1,):
                if self._pick.random() >= self._loss:
                    yield (int(line != 0), place), CapturedDatagram(at_ns, ("", 0), ("", 0), data)


def play(played: Played) -> tuple[Followed, list[tuple[int, set[tuple[str, str]]]]]:
    """Follow it to its end; return what is known then, and which books were sound after what."""
    sound = []
    for followed, record in follow(config_of(2), played):
        if record is not None and record.kind == Kind.MESSAGE and record.number:
            sound.append((record.number, check(followed, played.truths[record.number])))
    return followed, sound


@pytest.mark.parametrize(
    ("seed", "loss", "first"), [(1, 0.0, 1), (2, 0.0, 90), (3, 0.2, 1), (4, 0.2, 120), (5, 0.4, 60)]
)
def test_books_are_never_sound_and_wrong_and_sound_in_the_end(
    seed: int, loss: float, first: int
) -> None:
    played = Played(seed, loss, first)
    followed, sound = play(played)
    assert check(followed, played.truths[max(played.truths)]) == ALL
    assert (followed.gaps > 0) == (loss > 0)
    assert sum(len(books) for _, books in sound) > 100
    if loss == 0.0 and first == 1:  # nothing is ever in doubt once it was told
        assert all(before <= after for (_, before), (_, after) in pairwise(sound))


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("first", [1, 40])
def test_instrument_that_is_defined_late_has_no_levels_until_then(loss: float, first: int) -> None:
    defined_ns = 300_000_000
    played = Played(7, loss, first, defined_ns)
    followed, sound = play(played)
    before = [books for _, books in sound[: len(sound) // 4]]
    assert not any(("levels", symbol) in books for books in before for symbol in SYMBOLS)
    assert check(followed, played.truths[max(played.truths)]) == ALL
