"""Random schemas of SBE and random messages, against a slow and naive encoder.

    udpfast lab sbecheck --seeds 20 --seed 7

Each seed is a schema: byte order, headers and dimensions of any form, types of all kinds at
offsets, groups in groups, data, fields of several versions. Of its messages the bytes, the values,
the dtypes and the tables must be those of `sbe_schemas.Oracle`; messages of older and newer
versions must read as this schema sees them; every prefix must be refused, and of damaged ones those
that do not fit. Of damaged ones, `decode`, the tables and an export's must read the same
(`sbe_agree`).
A seed that fails is printed as the command that repeats it.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from udpfast.errors import FormatError
from udpfast.payload.sbe.schema import Schema

from .program import by_seeds
from .sbe_agree import check_agreement
from .sbe_schemas import NEWEST, Made, Oracle, OracleLevel
from .sbe_values import is_read

__all__ = ["check_seed", "main"]

MESSAGES = 6
DAMAGED = 60
#: Tables of each message that are compared, made in two ways.
MUTANTS = 8
#: Prefixes of a message that are tried; of a longer one so many by chance.
PREFIXES = 400


def check_seed(seed: int) -> dict[str, int]:
    """Run one seed; return how many messages it had, and damaged ones."""
    oracle = Oracle(seed)
    try:
        with tempfile.TemporaryDirectory(prefix="udpfast-sbe-") as directory:
            path = Path(directory, "schema.xml")
            path.write_text(oracle.xml, encoding="utf-8")
            schema = Schema(path)
            for level in oracle.messages:
                _check_message(oracle, schema, level)
            agreed = check_agreement(schema, _any_bytes(oracle))
    except (AssertionError, FormatError) as error:
        raise AssertionError(f"{error}\n{oracle.xml}") from error
    messages = len(oracle.messages)
    return {"messages": 2 * MESSAGES * messages, "damaged ones": DAMAGED * messages} | {
        f"tables of {name} ones": count for name, count in agreed.items()
    }


def _any_bytes(oracle: Oracle) -> Iterator[bytes]:
    # Sound messages of all versions, and what becomes of each by flipped bits, a wrong stretch, and
    # an early end.
    rng = oracle.rng
    for level in oracle.messages:
        for i in range(MESSAGES):
            raw = oracle.message(level, rng.randint(0, NEWEST + 2), short=i % 3 == 0).raw
            yield raw
            for _ in range(MUTANTS):
                yield _damage(rng, raw)
                yield _overwrite(rng, raw)


def _overwrite(rng: random.Random, raw: bytes) -> bytes:
    at, size = rng.randint(0, len(raw)), rng.randint(1, 12)
    stretch = rng.choice([rng.randbytes(size), bytes(size), b"\xff" * size])
    return (raw[:at] + stretch + raw[at + len(stretch) :])[: len(raw)]


def _check_message(oracle: Oracle, schema: Schema, level: OracleLevel) -> None:
    for each in level.levels:
        _expect(f"itemsize of {each.path}", each.length, schema.dtype(each.path).itemsize)
    batch: list[Made] = []
    for i in range(MESSAGES):
        made = oracle.message(level)
        _expect("encode", made.raw, schema.encode(level.name, made.given))
        decoded = schema.decode(made.raw)
        _expect("decode", made.expected, decoded)
        _expect("encode what was decoded", made.raw, schema.encode(level.name, decoded))
        other = oracle.message(level, oracle.rng.randint(0, NEWEST + 2), short=i % 3 == 0)
        _expect("decode another version", other.expected, schema.decode(other.raw))
        batch += [made, other]
        if i == 0:
            _check_damaged(oracle, schema, made.raw)
    _check_tables(schema, level, batch)


def _check_tables(schema: Schema, level: OracleLevel, batch: list[Made]) -> None:
    rows = schema.rows([made.raw for made in batch])
    _expect("counts", {"sound": len(batch)}, rows.counts)
    for each in level.levels:
        expected = [row for made in batch for row in made.columns[each.path]]
        table = schema.table(rows, each.path)
        names = [name for name in table.column_names if not name.startswith("_")]
        found = table.select(names).to_pylist() if names else [{}] * table.num_rows
        _expect(f"rows of {each.path}", len(expected), table.num_rows)
        for i, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
            _expect(f"table {each.path} row {i}", ours, theirs)


def _check_damaged(oracle: Oracle, schema: Schema, raw: bytes) -> None:
    sizes = list(range(len(raw)))
    if len(raw) > PREFIXES:
        sizes = oracle.rng.sample(sizes, PREFIXES)
    for size in sizes:
        _expect(f"the first {size} of {len(raw)} bytes", False, is_read(schema, raw[:size]))
    damaged = [_damage(oracle.rng, raw) for _ in range(DAMAGED)]
    fitting = [oracle.fits(each) for each in damaged]
    for each, fits in zip(damaged, fitting, strict=True):
        _expect(f"damaged {each.hex()} read", fits, is_read(schema, each))
    rows = schema.rows(damaged)
    _expect("damaged ones of a batch", sum(fitting), rows.counts.get("sound", 0))


def _damage(rng: random.Random, raw: bytes) -> bytes:
    found = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 5])):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found[: rng.randint(0, len(found))] if rng.random() < 0.2 else found)


def _expect(what: str, expected: Any, found: Any) -> None:
    if not _is_same(expected, found):
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


def _is_same(expected: Any, found: Any) -> bool:
    # A decimal number is its mantissa, whatever its exponent; a float equals itself.
    if isinstance(found, Decimal) and isinstance(expected, int):
        return int(found.scaleb(-int(found.as_tuple().exponent))) == expected
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            _is_same(value, found[name]) for name, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_is_same, expected, found))
    if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected):
        return math.isnan(found)
    return bool(expected == found) and (expected is None or isinstance(found, type(expected)))


main = by_seeds(__name__, check_seed, 100)
