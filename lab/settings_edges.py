"""Every key of every settings file with values that it may not have, and with those at its edges.

    udpfast lab settings-edges --seeds 10000 --seed 1

The keys, their types and their limits are those that the files' own descriptions say, so a new key
is covered by itself. Of each value one of two must be true: the settings hold exactly what was
asked for, and no limit forbids it; or `ConfigError` names the file, the key, what was expected and
what was found, on one line that a terminal can hold.
"""

from __future__ import annotations

import copy
import datetime
import functools
import math
import random
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from msgspec import Meta

from udpfast.config import FeedConfig, PublishConfig, parse_feed, parse_publish
from udpfast.config.settings import Struct, fields_of
from udpfast.errors import ConfigError

from .program import by_seeds

__all__ = [
    "FILES",
    "VALUES",
    "Key",
    "broken",
    "edges_of",
    "keys_of",
    "main",
    "tables_with",
    "trial",
]

WHERE = "edges.toml"
LONGEST_ERROR = 600

LINE = {"name": "A", "address": "239.1.1.1:9001"}
#: Each kind of file: what reads it, what it becomes, and the least that it may hold.
FILES: dict[str, tuple[Callable[..., Any], type[Struct], dict[str, Any]]] = {
    "feed": (
        parse_feed,
        FeedConfig,
        {"name": "x", "incremental": {"lines": [LINE]}, "snapshot": {"lines": [LINE]}},
    ),
    "publish": (
        parse_publish,
        PublishConfig,
        {
            "incremental": [{"address": "239.1.1.1:9001"}],
            "snapshot": [{"address": "239.1.1.1:9002"}],
        },
    ),
}
FILES["feed"][2]["snapshot"]["lines"] = [LINE | {"address": "239.1.1.1:9002"}]

HUGE = 10**5000
ADDRESSES = [
    f"{host}:{port}"
    for host in ("127.0.0.1", "239.1.1.1", "[::1]", "[fe80::1%eth0]", "[fe80::1%\0]", "::1", "*")
    for port in ("0", "1", "65535", "65536", "99999", "9" * 5000, "-1", "+1", " 1", "\u0661", "")
]
TEXTS = [
    "", " ", ".", "..", "...", "-x", "a/b", "/", "a" * 32, "a" * 33, "a" * 10_000, "a\n", "a\0b",
    "\0", "\x1b[31m", "\u0661\u0662", "\u202e", "\ud800", "\U0001f600", "none", "NONE", "1", "1e3",
    "ipc", "ipc://", "ipc:///x", f"ipc://{'a' * 108}", "tcp://", "tcp://:1", "http://x:1",
    "127.0.0.1", "127.0.0.256", "0127.0.0.1", "239.1.1.1", "::1", "fe80::1%", "localhost:1",
    "4294967295", "4294967294", "9" * 5000,
    *ADDRESSES, *(f"tcp://{address}" for address in ADDRESSES), "tcp://*:*",
]  # fmt: skip
#: Values of every type, whatever a key wants: TOML's, and those of programs.
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, HUGE, -HUGE,
    0.0, -0.0, 0.5, 1.0, 1e300, math.nan, math.inf, -math.inf, b"x",
    datetime.datetime(2026, 1, 1), datetime.date(2026, 1, 1), datetime.time(1),
    [], [[]], [None], [0], [HUGE], [""], ["\0"], ["x", "x"], [0, 0], [{}], {}, {"x": 1}, {1: 1},
    [LINE] * 2, [LINE] * 9, [{"name": str(i), "address": f"10.0.0.{i}:1"} for i in range(9)],
    *TEXTS,
]  # fmt: skip


class Key(NamedTuple):
    """One key of a file: where it is, and what its description says of it."""

    path: tuple[str | int, ...]
    annotation: Any

    def __str__(self) -> str:
        """Return it as errors name it."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}"
        return text.lstrip(".")


@functools.cache
def keys_of(target: type[Struct], path: tuple[str | int, ...] = ()) -> tuple[Key, ...]:
    """Return every key of a struct, of the structs in it and in its lists, every list's item."""
    return tuple(
        key for field in fields_of(target) for key in _keys_in(field.type, (*path, field.name))
    )


def _keys_in(annotation: Any, path: tuple[str | int, ...]) -> Iterator[Key]:
    yield Key(path, annotation)
    plain = _plain(annotation)
    if get_origin(plain) is tuple:
        yield from _keys_in(get_args(plain)[0], (*path, 0))
    elif isinstance(plain, type) and issubclass(plain, Struct):
        yield from keys_of(plain, path)


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    return annotation


def _metas(annotation: Any) -> Iterator[Meta]:
    if get_origin(annotation) is Annotated:
        yield from (meta for meta in annotation.__metadata__ if isinstance(meta, Meta))
    elif isinstance(annotation, types.UnionType):
        for inner in get_args(annotation):
            yield from _metas(inner)


def edges_of(key: Key) -> list[Any]:
    """Return the values at a key's own edges: its limits, its choices, its lengths."""
    found: list[Any] = []
    for meta in _metas(key.annotation):
        for limit in (meta.ge, meta.le, meta.lt, meta.gt):
            if limit is not None:
                found += [limit - 1, limit, limit + 1, float(limit), str(limit)]
        for length in (meta.min_length, meta.max_length):
            if length is not None:
                found += [["x"] * max(0, length + step) for step in (-1, 0, 1)]
    plain = _plain(key.annotation)
    if get_origin(plain) is Literal:
        for choice in get_args(plain):
            found += [choice, choice.upper(), f"{choice} ", choice[:-1]]
    return found


def tables_with(kind: str, changes: list[tuple[Key, Any]]) -> dict[str, Any]:
    """Return the least tables of a kind of file, with some keys set."""
    tables = copy.deepcopy(FILES[kind][2])
    for key, given in changes:
        node: Any = tables
        # A later change may be within it.
        value = copy.deepcopy(given) if len(changes) > 1 else given
        *way, last = key.path
        for step, following in zip(way, key.path[1:], strict=True):
            if isinstance(node, list) != isinstance(step, int):
                return tables  # an earlier change put something else there
            if isinstance(node, list):
                while len(node) <= int(step):
                    node.append([] if isinstance(following, int) else {})
                node = node[int(step)]
            else:
                node = node.setdefault(step, [] if isinstance(following, int) else {})
            if not isinstance(node, dict | list):
                return tables
        if isinstance(node, list) and isinstance(last, int):
            node[last : last + 1] = [value]
        elif isinstance(node, dict):
            node[last] = value
    return tables


def broken(kind: str, tables: dict[str, Any], changed: list[Key]) -> str:
    """Return what is wrong with how these tables are read; "": nothing.

    Parameters
    ----------
    kind : str
        Of `FILES`.
    tables : dict
    changed : list of Key
        Those that may be at fault: an error has to name one of them, or what it is in.
    """
    parse, target, _ = FILES[kind]
    try:
        config = parse(tables, where=WHERE)
    except ConfigError as error:
        return _wrong_words(str(error), changed)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    for key in keys_of(target):
        wrong = _wrong_value(key, tables, config)
        if wrong:
            return f"{key}: {wrong}"
    return ""


def _wrong_words(message: str, changed: list[Key]) -> str:
    tops = {str(step) for key in changed for step in key.path if isinstance(step, str)}
    if not message.startswith(f"{WHERE}: "):
        return f"no file in {message[:200]!r}"
    if not any(name in message for name in tops):
        return f"no key of {sorted(tops)} in {message[:200]!r}"
    if "expected" not in message or "found" not in message:
        return f"not what was expected and what was found: {message[:200]!r}"
    if len(message) > LONGEST_ERROR or not message.isprintable():
        return f"not one short line: {message[:200]!r}"
    return ""


def _wrong_value(key: Key, tables: Any, config: Any) -> str:
    asked, got = tables, config
    for step in key.path:
        if isinstance(step, int):
            if step >= len(got):
                return ""
            asked, got = (None if asked is None else asked[step]), got[step]
        else:
            asked = None if asked is None else asked.get(step)
            got = getattr(got, step)
    if asked is None or isinstance(got, Struct):
        return ""
    if isinstance(got, tuple):
        return "" if len(got) == len(asked) else f"{len(got)} items of {len(asked)}"
    plain = _plain(key.annotation)
    sort = type(got) if isinstance(plain, types.UnionType) or get_origin(plain) else plain
    allowed = (int, float) if sort is float else (sort,)
    if type(asked) not in allowed or asked != got:
        return f"{got!r} where {asked!r} was asked for"
    for meta in _metas(key.annotation):
        if isinstance(got, int | float) and not (
            (meta.ge is None or got >= meta.ge) and (meta.le is None or got <= meta.le)
        ):
            return f"{got!r} beyond its limits"
    return ""


def trial(seed: int) -> None:
    """Set one to three keys of a file to values that the seed draws; raise if it is wrong."""
    chance = random.Random(seed)
    kind = chance.choice(sorted(FILES))
    keys = keys_of(FILES[kind][1])
    chosen = chance.sample(keys, chance.choice((1, 1, 2, 3)))
    changes = [(key, chance.choice([*VALUES, *edges_of(key) * 3])) for key in chosen]
    wrong = broken(kind, tables_with(kind, changes), chosen)
    assert not wrong, f"{kind}: {', '.join(str(key) for key in chosen)}: {wrong}"


main = by_seeds(__name__, trial, 10000)
