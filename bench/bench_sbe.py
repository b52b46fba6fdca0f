"""What does reading SBE messages cost, in batches and one at a time?

    one core, payloads in memory --> walk: every length and count checked, each row located
                                 --> blocks: the rows of each level as one numpy array
                                 --> tables of Arrow; dicts, a message at a time

The messages are like a venue's book updates: a root block, one group of 1 to 3 rows of 32 bytes, a
second group that is mostly empty. "numpy views" is what a program of its own does for each message:
`numpy.frombuffer` for header, root, dimensions and rows, without looking at bounds.

Run it with `udpfast bench run sbe`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.payload.sbe.payloads import Payloads, payloads_of
from udpfast.payload.sbe.schema import Schema

from .loops.hostprobe import pinned
from .result import Row
from .trials import Benchmark, Settings, interleave

__all__ = ["BENCHMARK"]

MESSAGES = 4_096
VIEWS = "numpy views"
GOALS = {"walk, blocks": "P28: <= 100 ns"}

SCHEMA = """<messageSchema id="1" version="1"><types>
<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>
<composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
<type name="numInGroup" primitiveType="uint8"/></composite>
<composite name="Price"><type name="mantissa" primitiveType="int64"/>
<type name="exponent" primitiveType="int8" presence="constant">-7</type></composite>
<enum name="Side" encodingType="char"><validValue name="Bid">0</validValue>
<validValue name="Offer">1</validValue></enum>
<set name="Event" encodingType="uint8"><choice name="End">7</choice></set></types>
<message name="Book" id="32" blockLength="11"><field name="time" id="1" type="uint64"/>
<field name="event" id="2" type="Event"/>
<group name="levels" id="3" blockLength="32"><field name="price" id="4" type="Price"/>
<field name="size" id="5" type="int32"/><field name="instrument" id="6" type="int32"/>
<field name="number" id="7" type="uint32"/><field name="orders" id="8" type="int32"/>
<field name="level" id="9" type="uint8"/><field name="action" id="10" type="uint8"/>
<field name="side" id="11" type="Side"/></group>
<group name="orders" id="12"><field name="order" id="13" type="uint64"/></group></message>
</messageSchema>"""


def messages(schema: Schema) -> list[bytes]:
    """Return a batch: 1.6 levels each."""
    found = []
    for i in range(MESSAGES):
        level: dict[str, Any] = {"price": i, "size": 5, "instrument": i % 99, "number": i}
        level |= {"orders": 2, "level": 1, "action": 0, "side": "Bid"}
        rows = [level] * (1, 1, 1, 2, 3)[i % 5]
        orders = [{"order": i}] * (i % 9 == 0)
        values = {"time": i, "event": ["End"], "levels": rows, "orders": orders}
        found.append(schema.encode("Book", values))
    return found


def blocks(schema: Schema, payloads: Payloads) -> dict[str, Any]:
    """Return the rows of each level."""
    rows = schema.rows(payloads)
    return {path: rows[path] for path in rows}


def tables(schema: Schema, payloads: Payloads) -> dict[str, Any]:
    """Return a table for each level."""
    rows = schema.rows(payloads)
    return {path: schema.table(rows, path) for path in rows}


def views(schema: Schema, batch: list[bytes]) -> list[Any]:
    """Return what numpy makes of each message, trusting its lengths."""
    names = ("block", "template", "schema", "version")
    header = np.dtype([(name, "<u2") for name in names])
    size = np.dtype([("block", "<u2"), ("count", "u1")])
    root, level = schema.dtype("Book"), schema.dtype("Book.levels")
    found = []
    for payload in batch:
        block = int(np.frombuffer(payload, header, 1)[0]["block"])
        first = np.frombuffer(payload, root, 1, 8)
        count = int(np.frombuffer(payload, size, 1, 8 + block)[0]["count"])
        found.append((first, np.frombuffer(payload, level, count, 11 + block)))
    return found


def _per_message(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(repeats):
        call()
    return (time.perf_counter_ns() - start) / (repeats * MESSAGES)


def verify(schema: Schema, batch: list[bytes], payloads: Payloads) -> None:
    """Check that all ways read the same."""
    rows = blocks(schema, payloads)
    joined = np.concatenate([levels for _, levels in views(schema, batch)])
    assert (rows["Book.levels"] == joined).all()
    decoded = [row["size"] for each in batch for row in schema.decode(each)["levels"]]
    assert decoded == rows["Book.levels"]["size"].tolist()
    assert tables(schema, payloads)["Book.levels"]["size"].to_pylist() == decoded


def run(settings: Settings) -> Iterator[Row]:
    """Let the ways to read take turns."""
    repeats = 2 if settings.quick else 50
    with pinned(settings.cores[1]):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "book.xml")
            path.write_text(SCHEMA)
            schema = Schema(path)
        batch = messages(schema)
        payloads = payloads_of(batch)
        verify(schema, batch, payloads)
        few = max(1, repeats // 25)
        variants: dict[str, Callable[[], float]] = {
            "walk": partial(_per_message, partial(schema.rows, payloads), repeats),
            "walk, blocks": partial(_per_message, partial(blocks, schema, payloads), repeats),
            "tables": partial(_per_message, partial(tables, schema, payloads), few),
            VIEWS: partial(_per_message, partial(views, schema, batch), few),
            "dicts": partial(_per_message, lambda: [schema.decode(each) for each in batch], few),
        }
        trials = interleave(variants, settings, label="sbe", two_cores=False)
        yield from trials.rows(
            "sbe",
            "ns/message",
            {"messages": MESSAGES},
            base=VIEWS,
            goals=GOALS,
            verified="all ways read the same values",
        )


BENCHMARK = Benchmark(
    name="sbe",
    question="What does reading SBE messages cost, in batches and one at a time?",
    topology="""
one core, nothing sent: payloads --> walk --> rows as numpy, tables of Arrow, dicts
""",
    run=run,
    seconds=20.0,
)
