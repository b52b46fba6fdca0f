"""Lines by their role: streams of any framing, which lines are received, how long holes wait."""

from typing import Any

import pytest

from udpfast.config import framing_name, parse_feed
from udpfast.errors import ConfigError
from udpfast.wire.framing import FRAMINGS


def line(name: str, port: int) -> dict[str, Any]:
    return {"name": name, "address": f"239.1.1.1:{port}"}


LINES = [line("A", 9001), line("B", 9002)]


def feed(**tables: Any) -> Any:
    return parse_feed({"name": "x", **tables})


@pytest.mark.parametrize("framing", [name for name in FRAMINGS if not name.startswith("roq")])
def test_streams_of_another_framing_are_the_lines_of_the_feed(framing: str) -> None:
    config = feed(wire={"framing": framing}, streams={"lines": LINES, "lost_packet_wait_us": 77})
    assert [one.name for one in config.incremental.lines] == ["A", "B"]
    assert config.incremental.lost_packet_wait_us == 77
    assert framing_name(config.wire) == framing


def test_roq_has_its_two_channels_and_no_streams() -> None:
    with pytest.raises(ConfigError, match=r"streams.lines: .*wire.framing"):
        feed(streams={"lines": LINES})
    config = feed(incremental={"lines": LINES}, wire={"byteorder": "big", "revision": "legacy"})
    assert framing_name(config.wire) == "roq_legacy_big"


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"wire": {"framing": "iex"}}, "wire.framing: expected one of roq, cme_mdp3, moldudp64"),
        ({"wire": {"framing": "roq_big"}}, "wire.framing: expected one of roq"),
        ({"wire": {"framing": "iex_tp"}}, "streams.lines: expected at least one line, found none"),
        ({}, "incremental.lines: expected at least one line, found none"),
        (
            {"wire": {"framing": "iex_tp"}, "streams": {"lines": LINES}, "incremental": {}}
            | {"incremental": {"lines": LINES}},
            "incremental.lines: expected no lines there",
        ),
        (
            {"incremental": {"lines": LINES, "use": ["C"]}},
            r"incremental.use: expected names of its lines \(A, B\), found 'C'",
        ),
        (
            {"incremental": {"lines": LINES, "out_of_order_max_interval": 1 << 14}},
            r"incremental.out_of_order_max_interval: expected at most window.size \(8192\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tables: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        feed(**tables)
    assert "\n" not in str(caught.value)


def test_only_the_lines_in_use_are_received() -> None:
    config = feed(incremental={"lines": LINES, "use": ["B"]})
    assert [one.name for one in config.incremental.lines] == ["B"]


def test_without_arbitration_the_first_line_of_each_role_is_received_alone() -> None:
    tables = {"incremental": {"lines": LINES}, "snapshot": {"lines": [line("A", 9003)]}}
    config = feed(**tables, window={"arbitration": False})
    assert [len(role.lines) for role in (config.incremental, config.snapshot)] == [1, 1]
    assert config.incremental.lines[0].name == "A"
