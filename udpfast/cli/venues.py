"""`udpfast venues`: settings and layouts from the files that a venue publishes of its feed."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct

from udpfast.cli.verbs import SmallGroup
from udpfast.errors import ConfigError, shown
from udpfast.payload.sbe.constants import list_messages, write_constants
from udpfast.payload.sbe.document import Element, read_document
from udpfast.payload.sbe.parse import parse_schema

__all__ = ["venues"]

#: CME's kinds of feed -> the table of the settings; others (H: replay over TCP) are none of a feed.
_TABLES = {"I": "streams", "N": "definitions", "S": "recovery", "SMBO": "recovery"}


class _Line(Struct, frozen=True):
    table: str
    name: str
    address: str


@click.group(cls=SmallGroup)
def venues() -> None:
    """Make settings and layouts from the files that a venue publishes of its feed.

    \b
    Examples:
      udpfast venues config config.xml
      udpfast venues schema FixBinary.xml
    """


@venues.command(epilog="Example: udpfast venues config config.xml --channel 310 > cme310.toml")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--channel", help="Which one to print the settings of; without it, list all.")
@click.option(
    "--interface",
    "interfaces",
    default="",
    help="Interface of the lines; two with a comma between: those of A and of B.",
)
def config(file: Path, channel: str | None, interfaces: str) -> None:
    """Print the settings of a channel of CME, from CME's own config.xml.

    Lines A and B become those of the feed's streams; the loops of instrument definitions become its
    definitions lines, those of snapshots, by price and by order, its recovery lines.
    """
    channels = {one.attributes.get("id", ""): one for one in _find(read_document(file), "channel")}
    if not channels:
        raise ConfigError(f"{file}: expected elements <channel>, found none: it is no config.xml")
    if channel is None:
        for number, one in channels.items():
            click.echo(f"{number:>6}  {one.attributes.get('label', '')}")
        return
    if channel not in channels:
        raise ConfigError(
            f"{file}: expected one of its {len(channels)} channels, found {channel!r}"
        )
    lines = [_line(one) for one in _find(channels[channel], "connection")]
    found = [line for line in lines if line is not None]
    if not any(line.table == "streams" for line in found):
        raise ConfigError(f"{file}: channel {channel}: expected connections of type I, found none")
    names = [name.strip() for name in interfaces.split(",")]
    if len(names) > 2:
        raise click.UsageError(
            f"--interface takes one name, or one of A and one of B: {interfaces}"
        )
    click.echo(f'name = "cme{channel}"\n\n[wire]\nframing = "cme_mdp3"\npayload = "cme"')
    for line in sorted(found, key=lambda line: line.table != "streams"):
        interface = names[-1] if line.name.endswith("B") else names[0]
        click.echo(f'\n[[{line.table}.lines]]\nname = "{line.name}"\naddress = "{line.address}"')
        if interface:
            click.echo(f'interface = "{interface}"')


@venues.command(epilog="Example: udpfast venues schema FixBinary.xml NewOrder > layout.pxd")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("messages", nargs=-1)
def schema(file: Path, messages: tuple[str, ...]) -> None:
    """Print where the fields of an SBE schema's messages lie, as a decoder's layout.pxd.

    MESSAGES are names or template ids; without any, list them all.
    """
    model = parse_schema(file)
    if not messages:
        click.echo(f"{model.package}: schema {model.id}, version {model.version}")
        click.echo(f"{'template':>8} {'bytes':>6} {'since':>6}  message, groups")
        for template, size, since, name, groups in list_messages(model):
            click.echo(f"{template:>8} {size:>6} {since or '':>6}  {name}  {groups}".rstrip())
        return
    known = {key: one for one in model.messages for key in (one.name, str(one.id))}
    unknown = [name for name in messages if name not in known]
    if unknown:
        raise ConfigError(
            f"{file}: version {model.version} has no message {unknown[0]!r}; it has "
            + ", ".join(f"{one.name} ({one.id})" for one in model.messages)
        )
    for line in write_constants(model, [known[name] for name in messages]):
        click.echo(line)


def _find(element: Element, tag: str) -> list[Element]:
    # Itself and all below it, in order.
    below = [found for child in element.children for found in _find(child, tag)]
    return [element, *below] if element.tag == tag else below


def _line(connection: Element) -> _Line | None:
    # None: nothing that a feed receives.
    parts = {child.tag: child for child in connection.children}
    kind = parts["type"].attributes.get("feed-type", "") if "type" in parts else ""
    if kind not in _TABLES:
        return None
    words = {tag: parts[tag].text.strip() if tag in parts else "" for tag in ("ip", "port", "feed")}
    if not words["ip"] or not words["port"].isdecimal() or words["feed"] not in ("A", "B"):
        raise ConfigError(
            f"{connection}: expected <ip>, <port> and <feed> A or B, found {shown(words)}"
        )
    name = words["feed"] if kind in ("I", "N") else kind + words["feed"]
    return _Line(_TABLES[kind], name, f"{words['ip']}:{words['port']}")
