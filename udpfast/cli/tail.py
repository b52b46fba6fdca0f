"""`udpfast tail`: the records of a running instance, as text or JSON lines."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from udpfast.client.reader import Reader
from udpfast.core.layout import CONTROL_DTYPES, Kind
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.cursor import RingCursor

__all__ = ["tail"]


@click.command(epilog="Example: udpfast tail deribit --kind book --count 10")
@click.argument("name")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.name.lower() for kind in Kind]),
    help="Only records of this kind; may be given several times.",
)
@click.option("--symbol", "symbols", multiple=True, help="Only records of this symbol.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many records.")
@click.option("--begin", is_flag=True, help="Begin with the oldest record there is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def tail(
    name: str,
    kinds: tuple[str, ...],
    symbols: tuple[str, ...],
    count: int | None,
    begin: bool,
    as_json: bool,
) -> None:
    """Print the records of instance NAME as they come, until SIGINT or the ring is closed.

    NAME is a name, or a path with a slash. The instance may be dead: then what it left is printed
    (with --begin), and that is all.
    """
    wanted = {Kind[kind.upper()] for kind in kinds} or set(Kind)
    shown = 0
    with (
        contextlib.suppress(KeyboardInterrupt),  # the ordinary end
        Reader(f"ring:{name}", start="oldest" if begin else "tail", name="tail") as reader,
    ):
        for record in _records(reader):
            if record.kind not in wanted or (symbols and record.symbol not in symbols):
                continue
            fields = describe_record(record)
            click.echo(json.dumps(fields) if as_json else _line(fields))
            shown += 1
            if shown == count:
                return


def _records(reader: Reader) -> Iterator[Any]:
    # A writer that takes the ring over may come, or not: what a dead one left is not waited behind.
    directory = reader.directory
    assert directory is not None  # of a ring there is one
    with RingCursor.attach(directory, limit=1, payload_hash=PAYLOAD_HASH) as cursor:
        alive, pid = cursor.region.writer_alive(), cursor.region.writer_pid
    if alive:
        yield from reader
        return
    left = reader.lag
    click.echo(f"udpfast: writer {pid} is dead; {left:,} records to show", err=True)
    yield from itertools.islice(reader, left)


def describe_record(record: Any) -> dict[str, Any]:
    """Return a record's header and payload as plain values."""
    fields: dict[str, Any] = {
        "kind": record.kind.name,
        "index": record.index,
        "seqno": record.seqno,
        "session_id": record.session_id,
        "channel": record.channel,
        "line": record.line,
        "received_ns": record.received_ns,
        "published_ns": record.published_ns,
    }
    if record.kind is Kind.LAPPED:
        return {"kind": "LAPPED", "missed": record.lapped}
    if record.kind in CONTROL_DTYPES:
        values = np.frombuffer(record.payload, CONTROL_DTYPES[record.kind], count=1)[0]
        return fields | {
            field: values[field].item() for field in values.dtype.names if field != "reserved"
        }
    fields |= {"exchange": record.exchange, "symbol": record.symbol}
    if record.kind is Kind.MESSAGE:
        return fields | {"message_type": record.message_type, "size": len(record.payload)}
    return fields | {"rows": len(record.rows)}


def _line(fields: dict[str, Any]) -> str:
    kind = fields.pop("kind")
    return f"{kind:<17} " + " ".join(
        f"{key}={value}" for key, value in fields.items() if value is not None
    )
