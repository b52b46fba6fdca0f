"""The roles of lines: streams of all framings, received lines, and waiting times of holes."""

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


@pytest.mark.parametrize("role", ["streams", "recovery", "definitions"])
def test_roq_has_its_two_channels_and_no_others(role: str) -> None:
    with pytest.raises(ConfigError, match=rf"{role}.lines: .*wire.framing"):
        feed(incremental={"lines": LINES}, **{role: {"lines": [line("C", 9003)]}})


@pytest.mark.parametrize(
    ("framing", "own", "other"),
    [
        ("roq", "incremental", "streams"),
        ("cme_mdp3", "incremental", "streams"),
        ("cme_mdp3", "streams", "incremental"),
        ("cme_mdp3", "streams", "snapshot"),
    ],
)
def test_key_of_a_role_without_lines_is_refused(framing: str, own: str, other: str) -> None:
    for key, value in {"lost_packet_wait_us": "auto", "use": ["A"]}.items():
        with pytest.raises(ConfigError, match=rf"{other}.{key}: expected n"):
            feed(wire={"framing": framing}, **{own: {"lines": LINES}, other: {key: value}})


def test_roq_forms_are_told_by_order_and_revision() -> None:
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


def several(name: str, *addresses: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "addresses": list(addresses), **keys}


def test_ranges_of_addresses_are_written_out_in_their_order() -> None:
    config = feed(
        wire={"framing": "cboe_pitch"},
        streams={
            "lines": [several("A", "239.1.1.9-11:5000", "239.2.0.1:6000", "10.0.0.1:7000-7001")]
        },
    )
    assert config.incremental.lines[0].every_address == (
        "239.1.1.9:5000",
        "239.1.1.10:5000",
        "239.1.1.11:5000",
        "239.2.0.1:6000",
        "10.0.0.1:7000",
        "10.0.0.1:7001",
    )


@pytest.mark.parametrize(
    ("framing", "lines", "text"),
    [
        ("cboe_pitch", [{"name": "A"}], r"`address` or `addresses`, found neither"),
        (
            "cboe_pitch",
            [several("A", "239.1.1.1:1", address="239.1.1.2:1")],
            r"`address` or `addresses`, found both",
        ),
        ("cboe_pitch", [several("A", "239.1.1.8-1:5000")], r"addresses\[0\]: expected ip:port"),
        ("cboe_pitch", [several("A", "239.1.1.1-256:5000")], r"addresses\[0\]: expected ip:port"),
        ("cboe_pitch", [several("A", "239.1.1.1:5000-4999")], r"addresses\[0\]: expected ip:port"),
        (
            "cboe_pitch",
            [several("A", "239.1.1.0-128:5000")],
            r"at most 128 addresses of one line, found 129",
        ),
        (
            "cboe_pitch",
            [several("A", *[f"239.1.1.{n}:5000" for n in range(1, 130)])],
            r"addresses",
        ),
        (
            "cboe_pitch",
            [several(name, f"239.1.{n}.1-128:5000") for n, name in enumerate("ABCDE")],
            r"at most 512 addresses of all lines together, found 640",
        ),
        (
            "cboe_pitch",
            [several("A", "239.1.1.1-8:5000", "239.1.1.4:5000")],
            r"streams.A: expected an address of its own, found 239.1.1.4:5000, which it has",
        ),
        (
            "cboe_pitch",
            [several("A", "239.1.1.1-8:5000"), several("B", "239.1.1.8-9:5000")],
            r"streams.B: .*found 239.1.1.8:5000, which streams.A has",
        ),
        (
            "moldudp64",
            [several("A", "239.1.1.1-8:5000"), several("B", "239.1.2.1-7:5000")],
            r"streams.B: expected 8 addresses, as A has, .*same place.*found 7",
        ),
        (
            "moldudp64",
            [several("A", "239.1.1.1-8:5000"), line("B", 5001)],
            r"streams.B: expected 8 addresses, .*found 1",
        ),
        (
            "moldudp64",
            [several("A", "239.1.1.1:1", "10.0.0.1:2", source="10.0.0.9")],
            r"streams.A: source: expected a multicast group .*found '10.0.0.1:2'",
        ),
    ],
)
def test_lists_of_addresses_that_cannot_be_are_refused_in_one_line(
    framing: str, lines: list[dict[str, Any]], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        feed(wire={"framing": framing}, streams={"lines": lines})
    assert "\n" not in str(caught.value)


def test_roq_has_one_address_for_each_line() -> None:
    with pytest.raises(ConfigError, match=r"addresses: expected `address` with wire.framing"):
        feed(incremental={"lines": [several("A", "239.1.1.1-2:5000")]})


def test_server_is_asked_over_tcp_where_it_can_be() -> None:
    asked = {"server": "10.0.0.9:1", "tcp": True}
    iex = {"framing": "iex_tp", "payload": "iex_deep"}
    assert feed(wire=iex, streams={"lines": LINES}, retransmission=asked).retransmission.tcp
    with pytest.raises(ConfigError, match=r'retransmission.tcp: expected wire.framing = "iex_tp"'):
        feed(wire={"framing": "moldudp64"}, streams={"lines": LINES}, retransmission=asked)


def test_server_is_asked_for_one_stream_alone() -> None:
    with pytest.raises(ConfigError, match=r"retransmission.server: expected lines of one address"):
        feed(
            wire={"framing": "moldudp64"},
            streams={"lines": [several("A", "239.1.1.1-2:5000")]},
            retransmission={"server": "10.0.0.9:26410"},
        )


def test_lists_of_different_lengths_are_right_where_the_bytes_tell_the_stream() -> None:
    lines = [several("A", "239.1.1.1-8:5000"), line("B", 5001)]
    config = feed(wire={"framing": "cboe_pitch"}, streams={"lines": lines})
    assert [len(one.every_address) for one in config.incremental.lines] == [8, 1]


def test_loops_of_a_venue_are_lines_of_their_role() -> None:
    config = feed(
        wire={"framing": "cme_mdp3"},
        streams={"lines": LINES},
        recovery={"lines": [line("SA", 9003), line("SB", 9004)], "use": ["SB"]},
        definitions={"lines": [line("A", 9005)]},
        window={"arbitration": False},
    )
    assert [one.name for one in config.incremental.lines] == ["A"]
    # Without arbitration all of them are received, because each may have a loop of its own.
    assert [one.name for one in config.snapshot.lines] == ["definitions.A", "recovery.SB"]
    assert config.has_definitions
    bare = feed(wire={"framing": "cme_mdp3"}, streams={"lines": LINES})
    assert not bare.has_definitions


CME = {"wire": {"framing": "cme_mdp3"}, "streams": {"lines": LINES}}


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (
            CME | {"snapshot": {"lines": [line("S", 9003)]}},
            r"snapshot.lines: expected none with .*recovery.lines .* and definitions.lines, found",
        ),
        (
            CME | {"recovery": {"lines": [line("A", 9003), line("A", 9004)]}},
            r"recovery.lines: expected distinct names, found 'A' twice",
        ),
        (
            CME | {"recovery": {"lines": [line("A", 9001)]}},
            r": recovery.A: expected an address of its own.*streams.A has",
        ),
        (
            CME | {"streams": {"lines": [line("A", 9001), line("A", 9002)]}},
            r": streams.lines: expected distinct names, found 'A' twice",
        ),
        (
            CME | {"streams": {"lines": LINES, "use": ["C"]}},
            r": streams.use: expected names of its lines \(A, B\), found 'C'",
        ),
        (
            CME | {"streams": {"lines": LINES, "out_of_order_max_interval": 1 << 14}},
            r": streams.out_of_order_max_interval: expected at most window.size \(8192\)",
        ),
        (
            {"wire": CME["wire"], "incremental": {"lines": [line("A", 9001), line("A", 9002)]}},
            r": incremental.lines: expected distinct names, found 'A' twice",
        ),
        (
            CME | {"relay": {"lines": [{"name": "far", "incremental": "239.1.1.1:9001"}]}},
            r"found 239.1.1.1:9001, which streams.A has",
        ),
        (
            CME | {"recovery": {"lines": [line("A", 9003)], "use": ["B"]}},
            r"recovery.use: expected names of its lines \(A\), found 'B'",
        ),
        (
            CME
            | {"recovery": {"lines": [line(f"R{n}", 9010 + n) for n in range(5)]}}
            | {"definitions": {"lines": [line(f"D{n}", 9020 + n) for n in range(4)]}},
            r"at most 8 lines of definitions and recovery together.*found 9",
        ),
        (
            CME | {"recovery": {"lines": [several("A", "239.1.1.1-2:9003")]}},
            r": recovery.A: expected 1 addresses, as A has",
        ),
        (
            CME | {"recovery": {"lines": [line("A", 9003)], "lost_packet_wait_us": 7}},
            r"recovery.lost_packet_wait_us: expected a key of \[recovery\]",
        ),
    ],
)
def test_loops_that_cannot_be_are_refused_in_one_line(tables: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        feed(**tables)
    assert "\n" not in str(caught.value)


def test_definitions_are_of_no_stream_and_may_have_any_number_of_addresses() -> None:
    config = feed(**CME, definitions={"lines": [several("A", "239.1.1.1-2:9003")]})
    assert len(config.snapshot.lines[0].every_address) == 2
