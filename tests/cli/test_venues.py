"""`udpfast venues`: a channel of CME's own file becomes settings that a feed takes."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from udpfast.cli.venues import venues
from udpfast.config import parse_feed
from udpfast.errors import ConfigError


def connection(kind: str, feed: str, address: str) -> str:
    ip, _, port = address.partition(":")
    return (
        f'<connection id="310{kind}{feed}"><type feed-type="{kind}">x</type>'
        f"<protocol>UDP/IP</protocol><ip>{ip}</ip><host-ip>10.0.0.1</host-ip>"
        f"<port>{port}</port><feed>{feed}</feed></connection>"
    )


CONNECTIONS = (
    '<connection id="310H1A"><type feed-type="H">Historical</type><protocol>TCP/IP</protocol>'
    "<host-ip>10.0.0.2</host-ip><port>10000</port><feed>A</feed></connection>",
    connection("I", "A", "224.0.31.1:14310"),
    connection("I", "B", "224.0.32.1:15310"),
    connection("N", "A", "224.0.31.43:14311"),
    connection("S", "A", "224.0.31.22:14312"),
    connection("SMBO", "B", "224.0.32.24:15313"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of two channels."""
    path = tmp_path / "config.xml"
    path.write_text(
        '<configuration environment="Test"><channel id="310" label="Equity futures">'
        f"<products/><connections>{''.join(CONNECTIONS)}</connections></channel>"
        '<channel id="311" label="Equity options"><connections/></channel></configuration>'
    )
    return path


def said(*arguments: object) -> str:
    result = CliRunner().invoke(venues, ["config", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_channel_becomes_the_settings_of_a_feed(file: Path) -> None:
    tables = tomllib.loads(said(file, "--channel", 310, "--interface", "eth1,eth2"))
    config = parse_feed(tables)
    assert (config.name, config.wire.framing, config.wire.payload) == ("cme310", "cme_mdp3", "cme")
    assert [(line["name"], line["address"]) for line in tables["streams"]["lines"]] == [
        ("A", "224.0.31.1:14310"),
        ("B", "224.0.32.1:15310"),
    ]
    assert [(line["name"], line["interface"]) for line in tables["recovery"]["lines"]] == [
        ("SA", "eth1"),
        ("SMBOB", "eth2"),
    ]
    assert [(line["name"], line["interface"]) for line in tables["definitions"]["lines"]] == [
        ("A", "eth1"),
    ]
    assert [line.name for line in config.snapshot.lines] == [
        "definitions.A",
        "recovery.SA",
        "recovery.SMBOB",
    ]
    assert config.has_definitions


def test_channels_are_listed(file: Path) -> None:
    assert said(file).split("\n")[:2] == ["   310  Equity futures", "   311  Equity options"]


@pytest.mark.parametrize(
    ("text", "channel", "words"),
    [
        (None, "312", "expected one of its 2 channels, found '312'"),
        (None, "311", "expected connections of type I, found none"),
        ("<other/>", "310", "it is no config.xml"),
        (
            '<channel id="310"><connection><type feed-type="I"/></connection></channel>',
            "310",
            "expected <ip>, <port> and <feed>",
        ),
    ],
)
def test_what_is_not_there_is_said(file: Path, text: str | None, channel: str, words: str) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        said(file, "--channel", channel)
