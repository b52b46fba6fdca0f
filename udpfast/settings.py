"""Settings as frozen structs: read from TOML, checked, and each key listed with its reason.

Which keys there are is in `tables`. A struct's field says its type, its limits and, in
the description, its unit and why one would set it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from udpfast.errors import ConfigError

__all__ = ["Setting", "Struct", "convert", "describe", "read_tables"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The common settings of every table: immutable, named fields only, no unknown keys."""


class Setting(NamedTuple):
    """One key of a resolved configuration."""

    key: str
    value: Any
    is_default: bool
    reason: str


def describe(config: Struct) -> Iterator[Setting]:
    """List every key of a configuration with its value and the reason for it.

    Yields
    ------
    Setting
        In the order of the documentation; `is_default` tells whether the value is the default.
    """
    yield from _describe(config, "")


def read_tables(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise `ConfigError` if it is missing or none."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: expected a TOML file, found none") from None
    except OSError as error:
        raise ConfigError(f"{path}: expected a TOML file, found: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected TOML, found an error: {error}") from None


def convert(tables: Mapping[str, Any], target: Any, where: str) -> Any:
    """Return a struct of type `target` from its tables.

    Raises
    ------
    ConfigError
        Names `where`, the key, what was expected and what was found.
    """
    try:
        return msgspec.convert(dict(tables), target)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(str(error), tables, target)}") from None


def _describe(node: Struct, prefix: str) -> Iterator[Setting]:
    for field in msgspec.structs.fields(node):
        value = getattr(node, field.name)
        key = f"{prefix}{field.name}"
        if isinstance(value, Struct):
            yield from _describe(value, f"{key}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            for index, item in enumerate(value):
                yield from _describe(item, f"{key}[{index}].")
        else:
            yield Setting(key, value, value == field.default, _reason(field.type))


def _reason(annotation: Any) -> str:
    # The outermost Meta carries the description; inner ones belong to reused types.
    for meta in reversed(getattr(annotation, "__metadata__", ())):
        if isinstance(meta, Meta) and meta.description:
            return meta.description + _choices(annotation)
    return ""


def _choices(annotation: Any) -> str:
    names = list(_literals(annotation))
    return f" (one of {', '.join(names)})" if names else ""


def _literals(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) is Annotated:
        yield from _literals(annotation.__origin__)
    else:
        for inner in get_args(annotation):
            yield from _literals(inner)


def _explain(message: str, tables: Mapping[str, Any], target: Any) -> str:
    text, _, location = message.partition(" - at `$")
    key = location.rstrip("`").lstrip(".")
    unknown = re.match(r"Object contains unknown field `(.*)`", text)
    if unknown:
        name = unknown.group(1)
        close = difflib.get_close_matches(name, _known_keys(target), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        table = f"[{key}]" if key else "the file"
        place = f"{key}.{name}" if key else name
        return f"{place}: expected a key of {table}, found an unknown one{hint}"
    missing = re.match(r"Object missing required field `(.*)`", text)
    if missing:
        return f"{f'{key}.' if key else ''}{missing.group(1)}: expected a value, found none"
    expected = text.partition(", got ")[0].removeprefix("Expected ")
    if text.startswith("Invalid enum value"):
        expected = f"one of {', '.join(_literals(_type_at(target, key)))}"
    return f"{key}: expected {expected}, found {_lookup(tables, key)!r}"


def _type_at(target: Any, key: str) -> Any:
    for step in re.findall(r"[A-Za-z_]+", key):
        fields = {field.name: field.type for field in msgspec.structs.fields(target)}
        target = fields[step]
    return target


def _known_keys(target: Any) -> list[str]:
    keys = []
    for field in msgspec.structs.fields(target):
        keys.append(field.name)
        for inner in _structs(field.type):
            keys += _known_keys(inner)
    return keys


def _structs(annotation: Any) -> Iterator[type[Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _structs(annotation.__origin__)
    else:
        for inner in get_args(annotation):
            yield from _structs(inner)


def _lookup(tables: Any, key: str) -> Any:
    node = tables
    for step in re.findall(r"[^.\[\]]+", key):
        try:
            node = node[int(step)] if isinstance(node, list | tuple) else node[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return node
