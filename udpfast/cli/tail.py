"""`udpfast tail`: the records of a running instance, as text or JSON lines."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from udpfast.cli.options import InstanceName, IntRange
from udpfast.client.kinds import kinds_of
from udpfast.client.reader import Reader
from udpfast.client.record_words import describe_record, record_line
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH

__all__ = ["tail"]


_KINDS = [kind.name.lower() for kind in Kind if kind is not Kind.PAD]
#: Addresses of which a daemon of this host says whether it lives, not a ring's writer.
_STORES = ("store:", "composite:")
_JOURNAL = "journal:"
#: What reports its own end to its readers.
_TOLD = (_JOURNAL, "group:", "zmq:")
#: Long enough for a daemon that is being restarted, or whose disk stalls, to report again.
_PATIENCE_S = 2.0


def _kinds(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> set[Kind]:
    # As a Reader takes them: by name in any case, or by the name of a table.
    try:
        return set(kinds_of(words))
    except ConfigError as error:
        known = ", ".join(_KINDS)
        raise click.BadParameter(f"{error}; kinds are {known}", context, option) from None


def _complete_kind(
    context: click.Context, option: click.Parameter, begun: str
) -> list[CompletionItem | str]:
    return [name for name in _KINDS if name.startswith(begun.lower())]


@click.command(epilog="Example: udpfast tail tutorial --kind book --count 10")
@click.argument("name", type=InstanceName())
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    callback=_kinds,
    shell_complete=_complete_kind,
    metavar="KIND",
    help="Print only records of this kind (book, trades, gap, ...), or of this table of an export "
    "(levels, tops, gaps, ...); may be given several times.",
)
@click.option("--symbol", "symbols", multiple=True, help="Print only records of this symbol.")
@click.option("--count", type=IntRange(min=1), help="Stop after this many records.")
@click.option("--begin", is_flag=True, help="Begin with the oldest record available.")
@click.option(
    "--follow",
    is_flag=True,
    help="Of journal:NAME: when its recorder has ended, wait for the next one, as that of the "
    "feed's next run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def tail(
    name: str,
    kinds: set[Kind],
    symbols: tuple[str, ...],
    count: int | None,
    begin: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the records of instance NAME as they come, until SIGINT or until the ring is closed.

    NAME is an instance's name, or its path (with a slash), or the address of a Reader: store:NAME
    or composite:NAME of a bus, group:NAME, zmq:..., or journal:NAME, which ends with its recorder
    (--begin shows what it has, --follow goes on with the next one). If the instance, or this
    host's daemon of the store, has ended or is dead, the command prints the records that it left
    (with --begin) and ends.
    """
    address = name if name.startswith(("ring:", *_TOLD, *_STORES)) else f"ring:{name}"
    if follow and not address.startswith(_JOURNAL):
        raise click.UsageError(f"--follow is of journal:NAME, was given {address}")
    shown = 0
    start = "oldest" if begin else "tail"
    with (
        contextlib.suppress(KeyboardInterrupt),  # the ordinary end
        _open(address, start, "never" if follow else None) as reader,
    ):
        _note_unknown(address, symbols)
        if not begin and address.startswith(_JOURNAL):
            then = "waits for the next record"
            if not reader.alive:
                then = "waits for a writer" if follow else "has no writer and gets no more"
            click.echo(
                f"udpfast: {address} {then}; --begin shows what it has ({reader.index:,} records)",
                err=True,
            )
        for record in _records(reader):
            # No kind given: all, also those of later versions.
            if (kinds and record.kind not in kinds) or (symbols and record.symbol not in symbols):
                continue
            click.echo(json.dumps(describe_record(record)) if as_json else record_line(record))
            shown += 1
            if shown == count:
                return


def _open(address: str, start: str, end: str | None) -> Reader:
    # That the writer is dead is said in a line of its own, by `_records`.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return Reader(address, start=start, end=end, name="tail")


def _note_unknown(address: str, symbols: tuple[str, ...]) -> None:
    # A symbol that is misspelt would be waited for in silence.
    if symbols:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.simplefilter("always", UserWarning)
            Reader(address, symbols=symbols, name="tail").close()
        for each in said:
            if each.category is UserWarning:
                click.echo(f"udpfast: {each.message}", err=True)


def _records(reader: Reader) -> Iterator[Any]:
    # Another writer may take over a dead one's ring, or never come: print what the dead one left.
    if reader.address.startswith(_TOLD):
        yield from reader
        return
    if reader.address.startswith(_STORES):
        yield from _stored(reader)
        return
    directory = reader.directory
    assert directory is not None  # of a ring there is one
    with RingCursor.attach(directory, limit=1, payload_hash=PAYLOAD_HASH) as cursor:
        alive, pid = cursor.region.writer_alive(), cursor.region.writer_pid
    if alive:
        yield from reader
        return
    left = reader.lag
    how = {"ended": "has ended", "failed": "has failed"}.get(reader.state, "is dead")
    then = "" if left or not reader.index else "; --begin shows those that it left"
    click.echo(
        f"udpfast: the writer (pid {pid}) {how}; {left:,} records are left to show{then}", err=True
    )
    yield from itertools.islice(reader, left)


def _stored(reader: Reader) -> Iterator[Any]:
    # A dead daemon looks alive for a second after its last report: wait longer than that.
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline or not reader.alive:
        if reader.wait(0.1):
            yield next(reader)
        elif time.monotonic() >= deadline and not reader.alive:
            said = "its daemon on this host is dead; no more records will come"
            click.echo(f"udpfast: {reader.address}: {said}", err=True)
            return
    yield from reader
