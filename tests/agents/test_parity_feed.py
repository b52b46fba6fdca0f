"""Parity at the far end of a relay's line: repaired, counted, and never believed against a copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.relaycheck import End, far_config
from udpfast.config import parse_feed
from udpfast.core.counter import VERDICTS
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError
from udpfast.feed.publication import Publication
from udpfast.feed.repair import ParitySender

NOW_NS = 1_000_000_000
A, B = (0, 0), (0, 1)


def published(count: int) -> list[bytes]:
    """Return the datagrams of a publisher: of one fragment and of several."""
    publication = Publication(7)
    for number in range(count):
        publication.publish(bytes([number]) * (20 + 700 * (number % 3 == 0)), 0, 0, now_ns=NOW_NS)
    return publication.take(0)


def with_parity(datagrams: list[bytes], members: int = 4, depth: int = 2) -> list[bytes]:
    sender = ParitySender(members, depth)
    found = []
    for each in datagrams:
        found.append(each)
        parity = sender.add(each)
        found += [] if parity is None else [parity]
    return found + sender.rest()


@pytest.fixture(params=[True, False], ids=["parity", "none"])
def end(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[End]:
    made = End(far_config(window={"parity": request.param}), tmp_path / "far")
    yield made
    for line, counts in made.replayer.counters().items():
        if "." in line:
            verdicts = sum(counts[info.name] for info in VERDICTS)
            assert verdicts == counts["datagrams"] + counts["units_more"], line
    made.close()


def of_line(end: End, name: str = "microwave") -> dict[str, int]:
    return end.replayer.counters()[f"incremental.{name}"]


def test_what_a_line_lost_is_repaired_and_counted(end: End) -> None:
    datagrams = published(24)
    lost = datagrams[9]
    found = []
    for each in with_parity(datagrams):
        if each != lost:
            found += end.send(each, A, NOW_NS)
    found += end.send(datagrams[0], A, NOW_NS + 20_000_000)  # a hole would be a gap by now
    counts = of_line(end)
    messages = end.replayer.counters()["incremental"]["messages"]
    parities = len(with_parity(datagrams)) - len(datagrams)
    if end.config.window.parity:
        assert (counts["repaired"], counts["parity"], counts["units_more"]) == (1, parities, 1)
        assert messages == 24
        assert Kind.GAP not in {record.kind for record in found}
    else:
        # Who knows nothing of parity counts it and passes it over.
        assert counts["encoding_refused"] + counts["too_long"] == parities
        assert counts["repaired"] == counts["parity"] == 0
        assert messages < 24


def test_copy_that_contradicts_what_was_repaired_is_a_disagreement(end: End) -> None:
    if not end.config.window.parity:
        pytest.skip("nothing is repaired")
    datagrams = published(9)
    lost = datagrams[-3]
    found = []
    for each in with_parity(datagrams):
        if each != lost:
            found += end.send(each, A, NOW_NS)
    assert of_line(end)["repaired"] == 1
    found += end.send(lost[:-1] + b"!", B, NOW_NS)
    assert of_line(end, "fibre")["disagreements"] == 1
    assert Kind.DISAGREEMENT in {record.kind for record in found}
    found = list(end.send(lost, B, NOW_NS))
    assert Kind.DISAGREEMENT not in {record.kind for record in found}


def test_parity_that_its_datagrams_contradict_is_refused_and_rebuilds_nothing(end: End) -> None:
    if not end.config.window.parity:
        pytest.skip("nothing is repaired")
    datagrams = published(9)
    sent = with_parity(datagrams)
    lost = datagrams[-3]
    for each in sent:
        forged = each[:16] + bytes([each[16] ^ 1]) + each[17:] if each[0] == 15 else each
        if each != lost:
            list(end.send(forged, A, NOW_NS))
    counts = of_line(end)
    assert counts["repaired"] == 0
    assert counts["parity_refused"] > 0
    assert counts["disagreements"] == 0


def test_parity_needs_what_a_relay_sends() -> None:
    lines = [{"name": "A", "address": "127.0.0.1:9001"}]
    table = {"name": "x", "incremental": {"lines": lines}, "window": {"parity": True}}
    with pytest.raises(ConfigError, match=r"window.parity: expected wire.framing"):
        parse_feed({**table, "wire": {"byteorder": "big"}})
