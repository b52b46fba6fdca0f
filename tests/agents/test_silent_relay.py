"""A relay that stops without a word: what the far end believes then, and afterwards."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.relaycheck import End, far_config
from tests.agents.test_relay import World
from udpfast.cli.relay import far_settings
from udpfast.config import FeedConfig, parse_feed, parse_relay
from udpfast.config.settings import read_tables
from udpfast.core.layout import Kind

SILENT_MS = 200


class FarWorld(World):
    """The same with a far end whose silence is doubt."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        self.far.close()
        self.far = End(self.config(), directory / "far-too")

    @staticmethod
    def config() -> FeedConfig:
        return far_config(
            session={"inactivity_timeout_ms": SILENT_MS, "doubt_when_silent": True},
            ring={"capacity_bytes": 1 << 22},
        )

    def silence(self, ms: int) -> list[Any]:
        """Let time pass in which the incremental channel brings nothing."""
        self.now_ns += 1_000_000 * ms
        # One of a session that is over: what it says is nothing, but time goes on.
        return list(self.far.send(b"\2\0\0\0\0\0\0\0" + bytes(8), (1, 0), self.now_ns))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FarWorld]:
    made = FarWorld(tmp_path)
    yield made
    made.close()


def kinds(records: list[Any]) -> list[Kind]:
    return [record.kind for record in records]


def test_book_is_in_doubt_while_its_relay_is_silent(world: FarWorld) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    assert world.bids == {100.0: 1.0}
    assert Kind.GAP not in kinds(world.silence(SILENT_MS // 2))
    assert world.bids == {100.0: 1.0}
    found = world.silence(SILENT_MS)
    assert {Kind.CONNECTION, Kind.GAP} <= set(kinds(found))
    assert kinds(found).count(Kind.GAP) == 1
    assert world.bids is None
    assert kinds(world.silence(10 * SILENT_MS)).count(Kind.GAP) == 0  # said once
    assert world.far.replayer.counters()["incremental"]["lost"] == 0


def test_book_of_which_nothing_was_lost_is_sound_again_when_it_is_heard_of(
    world: FarWorld,
) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.silence(2 * SILENT_MS)
    assert world.bids is None
    world.book((99.0, 1.0))
    assert Kind.RECOVERED in kinds(world.turn())
    assert world.bids == {100.0: 1.0, 99.0: 1.0}


def test_quiet_book_is_sound_again_with_the_next_round(world: FarWorld) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.silence(2 * SILENT_MS)
    assert world.bids is None
    world.quiet()
    assert world.bids == {100.0: 1.0}


def test_what_was_lost_in_the_silence_is_never_believed(world: FarWorld) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.book((100.0, 0.0), (99.0, 1.0))
    world.turn(lost=True)
    world.silence(2 * SILENT_MS)
    seen = []
    for _ in range(70):
        world.turn()
        seen.append(world.bids)
    assert {100.0: 1.0} not in seen
    assert seen[-1] == {99.0: 1.0}


def test_settings_of_the_far_end_ask_for_it(tmp_path: Path) -> None:
    lines = [{"name": "a", "incremental": "127.0.0.1:7", "parity": 8}]
    path = tmp_path / "far.toml"
    path.write_text(far_settings("x", parse_relay({"lines": lines, "parity_wait_ms": 20})))
    config = parse_feed(read_tables(path))
    assert config.session.doubt_when_silent
    assert config.window.parity
    assert config.window.lost_packet_wait_us > 20_000
