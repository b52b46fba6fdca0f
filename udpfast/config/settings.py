"""Settings as frozen structs: read from TOML, checked, and listed with a reason for each key.

A struct's field has the type, the limits, further conditions (`Check`) and, in its description, the
unit and the reason to set it.
"""

from __future__ import annotations

import codecs
import functools
import json
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from udpfast.core.endpoint import endpoint_hint
from udpfast.errors import ConfigError, shown, similar

__all__ = ["Check", "Setting", "Struct", "convert", "describe", "fields_of", "read_tables"]

#: Most bytes of a file: no settings are longer, and /dev/zero has no end.
_FILE_BYTES_MAX = 1 << 20
_TYPES = re.compile(r"`([a-z |]+)`")
_WORDS = {
    "bool": "true or false",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "object": "a table",
    "array": "an array",
}
_PLACE = re.compile(r"at line (\d+), column (\d+)")
_ANY_TEXT = "any text"
_PLAIN = {bool: _WORDS["bool"], int: _WORDS["int"], float: _WORDS["float"], str: _ANY_TEXT}
_CHOICE = re.compile(r"-?\d|one of ")
_LENGTH = re.compile(r"`(?:array|object)` of length ([<>])= (\d+)")
#: Places of a key that a hint names, at most.
_HINTS_MAX = 4
#: The most characters of a value that a hint repeats.
_TEXT_MAX = 60
#: A key whose value is text that lacks its quotes: a word, an address, a path.
_BARE = re.compile(
    r"\s*([\w.-]+)\s*=\s*([A-Za-z/.][\w./:@-]*|\d+\.\d+\.\d[\d.:/-]*|\d+[A-Za-z]\w*)\s*(?:#.*)?$"
)
_WORD = re.compile(r"\w+")


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The common settings of every table: immutable, named fields only, no unknown keys."""


class Check(NamedTuple):
    """A condition on a value beyond type and limits: `Meta(extra=check.extra)` of a field."""

    expected: str
    holds: Callable[[Any], bool]

    @property
    def extra(self) -> dict[str, Check]:
        """The check in the form that a field's `Meta` takes."""
        return {"check": self}


class Setting(NamedTuple):
    """One key of a resolved configuration; `takes` says in words what is not refused."""

    key: str
    value: Any
    is_default: bool
    meaning: str
    takes: str = ""

    @property
    def reason(self) -> str:
        """The meaning, with what the key takes if that is a range or a choice."""
        return f"{self.meaning} ({self.takes})" if _CHOICE.match(self.takes) else self.meaning


def describe(config: Struct) -> Iterator[Setting]:
    """List every key of a configuration with its value and the reason for it.

    Yields
    ------
    Setting
        In the order of the documentation. `is_default` is True if the value is the default.
    """
    yield from _describe(config, "")


def read_tables(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise `ConfigError` if it is missing or not TOML."""
    where = str(path) if str(path).isprintable() else shown(str(path))
    text = b""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) <= _FILE_BYTES_MAX:
            # Some editors write a byte-order mark.
            return tomllib.loads(text.removeprefix(codecs.BOM_UTF8).decode())
    except FileNotFoundError:
        raise ConfigError(f"{where}: expected a TOML file, found no such file") from None
    except OSError as error:
        raise ConfigError(f"{where}: expected a TOML file, found: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{where}: expected TOML, found brackets nested too deeply") from None
    except ValueError as error:  # of TOML, UTF-8, long integers, or a path with NULs
        raise ConfigError(
            f"{where}: expected TOML, found an error: {error}{_python_word(text, str(error))}"
        ) from None
    raise ConfigError(f"{where}: expected at most {_FILE_BYTES_MAX} bytes of TOML, found more")


def _python_word(text: bytes, error: str) -> str:
    # Hint for habits of other languages, for which TOML's message is just "Invalid value".
    if error.startswith("Illegal character '\\n'"):
        return "; a text must end with a quote on its own line"
    place = _PLACE.search(error)
    if place is None:
        return ""
    line, column = (int(number) for number in place.groups())
    rest = text.decode(errors="replace").splitlines()[line - 1 :][:1]
    word = _WORD.match(rest[0], column - 1) if rest else None
    found = word.group() if word else ""
    if found.lower() in ("true", "false"):
        return f"; write {found.lower()}, not {found}"
    if found == "None":
        return "; leave the key out instead of None"
    bare = _BARE.match(rest[0]) if rest else None
    if bare is None or len(bare[2]) > _TEXT_MAX:
        return ""
    return f"; write text in quotes: {bare[1]} = {json.dumps(bare[2], ensure_ascii=False)}"


def convert(tables: Mapping[str, Any], target: Any, where: str) -> Any:
    """Return a struct of type `target` from its tables.

    Parameters
    ----------
    tables : mapping
        Tables from TOML or from a program.
    target : type of Struct
        The struct to make.
    where : str
        Name of the tables in error messages, such as the file's.

    Raises
    ------
    ConfigError
        The message names `where`, the key, what was expected and what was found.
    """
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{where}: expected tables, found {shown(tables)}")
    try:
        config = msgspec.convert(dict(tables), target)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(str(error), tables, target)}") from None
    except UnicodeEncodeError:  # half of a surrogate pair, which no file can hold
        key, text = next(_not_unicode(tables, ""))
        raise ConfigError(f"{where}: {key}: expected Unicode text, found {shown(text)}") from None
    for key, value, check in _checks(target, config, ""):
        if not check.holds(value):
            hint = endpoint_hint(value) if "ip:port" in check.expected else ""
            raise ConfigError(
                f"{where}: {key}: expected {check.expected}, found {shown(value)}{hint}"
            )
    return config


@functools.cache
def fields_of(struct: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return a struct's fields with their descriptions, which are evaluated only once."""
    return msgspec.structs.fields(struct)


@functools.cache
def _checked_fields(struct: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    # Most have no check, nor has anything in them.
    return tuple(field for field in fields_of(struct) if _is_checked(field.type))


def _is_checked(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return bool(_checked_fields(annotation))
    metas = getattr(annotation, "__metadata__", ())
    if any(isinstance(meta, Meta) and meta.extra for meta in metas):
        return True
    within = (annotation.__origin__,) if metas else get_args(annotation)
    return any(_is_checked(inner) for inner in within)


def _checks(annotation: Any, value: Any, key: str) -> Iterator[tuple[str, Any, Check]]:
    # Yield every check of a struct's fields and of their contents, with the key and value it
    # applies to.
    if value is None:
        return
    if isinstance(value, Struct):
        for field in _checked_fields(type(value)):
            inner = getattr(value, field.name)
            yield from _checks(field.type, inner, _path(key, field.name))
    elif get_origin(annotation) is Annotated:
        for meta in annotation.__metadata__:
            if isinstance(meta, Meta) and meta.extra:
                yield key, value, meta.extra["check"]
        yield from _checks(annotation.__origin__, value, key)
    elif get_origin(annotation) is tuple:
        for index, item in enumerate(value):
            yield from _checks(get_args(annotation)[0], item, f"{key}[{index}]")
    elif get_origin(annotation) is dict:
        names, inner = get_args(annotation)
        for name, item in value.items():
            yield from _checks(names, name, key)
            yield from _checks(inner, item, _path(key, _quoted(name)))
    else:
        for inner in get_args(annotation) if isinstance(annotation, types.UnionType) else ():
            yield from _checks(inner, value, key)


def _describe(node: Struct, key: str) -> Iterator[Setting]:
    for field in fields_of(type(node)):
        value = getattr(node, field.name)
        path = _path(key, field.name)
        if isinstance(value, Struct):
            yield from _describe(value, path)
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            for index, item in enumerate(value):
                yield from _describe(item, f"{path}[{index}]")
        else:
            made = field.default_factory
            default = field.default if made is msgspec.NODEFAULT else made()
            yield Setting(path, value, value == default, _meaning(field.type), _takes(field.type))


def _path(table: str, key: str) -> str:
    # The name of a key in a table, such as "window.size". Keys outside of tables have no prefix.
    return f"{table}.{key}" if table else key


def _meaning(annotation: Any) -> str:
    # The outermost Meta carries the description; inner ones belong to reused types.
    for meta in reversed(getattr(annotation, "__metadata__", ())):
        if isinstance(meta, Meta) and meta.description:
            return meta.description
    return ""


def _takes(annotation: Any) -> str:
    # Say what a key takes, by the conditions that refuse everything else.
    metas = []
    while get_origin(annotation) is Annotated:
        metas += [each for each in annotation.__metadata__ if isinstance(each, Meta)]
        annotation = annotation.__origin__
    checks = [meta.extra["check"].expected for meta in metas if meta.extra]
    origin = get_origin(annotation)
    if origin in (tuple, dict):
        length = _between([(meta.min_length, meta.max_length) for meta in metas])
        length = length.replace("from", "at least") or "any number"
        if any(_structs(annotation)):
            return f"{length} tables"
        each = _takes(get_args(annotation)[0])
        return "; ".join([f"{length}, each {each}", *checks])
    if origin is Literal:
        return _either(get_args(annotation))
    if origin in (Union, types.UnionType):
        inner = [_takes(each) for each in get_args(annotation) if each is not types.NoneType]
        # First what is a range: a name alone stands behind it.
        return ", or ".join([*sorted(inner, key=lambda said: not said[:1].isdigit()), *checks])
    limits = [(meta.gt if meta.ge is None else meta.ge, meta.le) for meta in metas]
    above = any(meta.gt is not None for meta in metas)
    limits += [(None, meta.lt - 1) for meta in metas if meta.lt is not None]
    said = _between(limits, above)
    apart = "; " if any("," in check for check in checks) else ", "
    return apart.join([said] * bool(said) + checks) or _PLAIN.get(annotation, "a table")


def _between(limits: Iterable[tuple[float | None, float | None]], above: bool = False) -> str:
    pairs = list(limits)
    low = max((low for low, _ in pairs if low is not None), default=None)
    high = min((high for _, high in pairs if high is not None), default=None)
    if low is None:
        return "" if high is None else f"at most {high:,}"
    begin = f"more than {low:,}" if above else f"{low:,}"
    if high is None:
        return begin if above else f"from {low:,}"
    return f"{begin} to {high:,}"


def _either(names: Iterable[str]) -> str:
    listed = [str(name) for name in names]
    return listed[0] if len(listed) == 1 else f"one of {', '.join(listed)}"


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
    while "[...]" in key:
        named = _named(message, tables, target, key)
        if named == key:
            break
        key = named
    unknown = re.match(r"Object contains unknown field `(.*)`", text)
    if unknown:
        name = unknown.group(1)
        table = f"[{key}]" if key else "the file"
        hint = _near_key(name, key, target)
        return f"{_path(key, name)}: expected a key of {table}, found an unknown one{hint}"
    missing = re.match(r"Object missing required field `(.*)`", text)
    if missing:
        return f"{_path(key, missing.group(1))}: expected a value, found none"
    expected = text.partition(", got ")[0].removeprefix("Expected ")
    if text.startswith("Invalid enum value"):
        kind = _type_at(target, key)
        listed = key.endswith("]")  # an element, which has not all of what the list takes
        expected = f"one of {', '.join(_literals(kind))}" if listed else _takes(kind)
    expected = _expected(expected, target, key)
    found = _lookup(tables, key)
    if length := _LENGTH.search(text):
        if length[1] == "<":
            return f"{key}: expected at most {length[2]}, found {len(found)}"
        return f"{key}: expected at least {length[2]}, found {shown(found)}"
    quotes = ""
    if isinstance(found, str) and expected == "an array":
        short = len(found) <= _TEXT_MAX and found.isprintable()
        quotes = f"; write [{json.dumps(found, ensure_ascii=False)}]" if short else ""
    elif isinstance(found, str) and not expected.startswith(("text", "one of")):
        quotes = "; write it without quotes" if _is_bare(found) else ""
    elif not isinstance(found, str) and expected.startswith("text"):
        quotes = "; write it in quotes"
    return f"{key}: expected {expected}, found {shown(found)}{quotes}"


def _expected(text: str, target: Any, key: str) -> str:
    # Say in words which type msgspec expected.
    if text == "`array`" and any(_structs(_type_at(target, key))):
        return f"tables [[{key}]], each in double brackets"
    text = _TYPES.sub(lambda found: " or ".join(map(_in_words, found[1].split(" | "))), text)
    if text.endswith(" or text") and (names := [*_literals(_type_at(target, key))]):
        return f"{text.removesuffix('text')}{' or '.join(map(json.dumps, names))}"
    return text


def _near_key(name: str, table: str, target: Any) -> str:
    # Suggest a table that has the same key, or else a similar key: from the same table if there is
    # one, and otherwise from any.
    paths = list(_known_keys(target))
    same = [path for path in paths if path.rpartition(".")[2] == name]
    if same:
        return f"; did you mean {' or '.join(same[:_HINTS_MAX])}?"
    steps = [step for step in _steps(table) if not step.isdigit()]
    here = [path for path in paths if path.split(".")[:-1] == steps]
    for group in (here, paths):
        close = similar(name, [path.rpartition(".")[2] for path in group], 1)
        if close:
            return f"; did you mean {close[0]!r}?"
    return ""


def _in_words(name: str) -> str:
    # Name a type of Python or msgspec in plain words.
    return _WORDS.get(name, name)


def _is_bare(text: str) -> bool:
    # Return whether it is a value of TOML without its quotes.
    try:
        return not isinstance(tomllib.loads(f"value = {text}")["value"], str)
    except ValueError:
        return False


def _named(message: str, tables: Mapping[str, Any], target: Any, key: str) -> str:
    # msgspec writes "[...]" for the name of a table: find which of the tables has the error.
    above = key.partition("[...]")[0]
    names = _lookup(tables, above)
    for name in names if isinstance(names, Mapping) else ():
        alone = _with_only(tables, _steps(above), name)
        try:
            msgspec.convert(alone, target)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return key.replace("[...]", f".{_quoted(name)}", 1)
    return key


def _with_only(node: Mapping[str, Any], path: list[str], name: str) -> dict[str, Any]:
    # Return the tables with only one of the tables at a path.
    if not path:
        return {name: node[name]}
    return {**node, path[0]: _with_only(node[path[0]], path[1:], name)}


def _quoted(name: str) -> str:
    # As in TOML, so that a name with a dot is one step.
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _steps(key: str) -> list[str]:
    # Return the names and indices that lead to a key.
    found = re.findall(r'"(?:[^"\\]|\\.)*"|[^.\[\]]+', key)
    return [json.loads(step) if step.startswith('"') else step for step in found]


def _type_at(target: Any, key: str) -> Any:
    for step in _steps(key):
        while get_origin(target) is Annotated:
            target = target.__origin__
        if get_origin(target) is dict:  # tables by name
            target = get_args(target)[1]
        elif isinstance(target, type):  # not an index
            target = {field.name: field.type for field in fields_of(target)}[step]
    return target


def _known_keys(target: Any, table: str = "") -> Iterator[str]:
    for field in fields_of(target):
        path = _path(table, field.name)
        yield path
        named = ".NAME" if any(get_origin(each) is dict for each in _layers(field.type)) else ""
        for inner in _structs(field.type):
            yield from _known_keys(inner, path + named)


def _layers(annotation: Any) -> Iterator[Any]:
    # Yield a type, and then the type inside its annotations.
    yield annotation
    if get_origin(annotation) is Annotated:
        yield from _layers(annotation.__origin__)


def _structs(annotation: Any) -> Iterator[type[Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _structs(annotation.__origin__)
    else:
        for inner in get_args(annotation):
            yield from _structs(inner)


def _not_unicode(node: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str) and any("\ud800" <= character <= "\udfff" for character in node):
        yield key, node
    elif isinstance(node, Mapping):
        for name, inner in node.items():
            yield from _not_unicode(inner, _path(key, name))
    elif isinstance(node, list | tuple):
        for index, inner in enumerate(node):
            yield from _not_unicode(inner, f"{key}[{index}]")


def _lookup(tables: Any, key: str) -> Any:
    node = tables
    for step in _steps(key):
        try:
            node = node[int(step)] if isinstance(node, list | tuple) else node[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return node
