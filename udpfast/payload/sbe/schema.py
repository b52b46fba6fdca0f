"""`udpfast.sbe.Schema`: the public face of a schema."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from udpfast.core.optional import load_optional
from udpfast.errors import ConfigError, FormatError
from udpfast.payload.sbe.charset import decoded
from udpfast.payload.sbe.encode import Encoder
from udpfast.payload.sbe.layout import LevelLayout, make_plan, prefix_block
from udpfast.payload.sbe.model import SchemaModel
from udpfast.payload.sbe.parse import parse_schema
from udpfast.payload.sbe.payloads import Payloads, payloads_of
from udpfast.payload.sbe.plan import Verdict
from udpfast.payload.sbe.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

__all__ = ["FRAMINGS", "Message", "Schema"]

#: How the messages of one datagram lie in a record's payload, by framing: bytes in front of each
#: message, the first two of which are the size of both; 0: nothing is in front.
FRAMINGS = {"b3_umdf": 4, "cme_mdp3": 2, "deribit_sbe": 0}

_WHY = {
    Verdict.HEADER_SHORT: "{what} needs {wanted} bytes of header at {at}, found {found}",
    Verdict.BLOCK_BEYOND: "{what} needs a block of {wanted} bytes at {at}, found {found}",
    Verdict.GROUP_BEYOND: "{what} needs {wanted} bytes at {at}, found {found}",
    Verdict.DATA_BEYOND: "{what} needs {wanted} bytes at {at}, found {found}",
    Verdict.COUNT_BEYOND: "{what} may have at most {wanted} rows, found {found} before {at}",
    Verdict.ROWS_MANY: "{what} has {wanted} rows before {at}: expected at most one for each "
    "byte of the message and 65,535 more",
    Verdict.BYTES_LEFT: "{what} ends at {at}: expected no bytes after it, found {found}",
    Verdict.FOREIGN: "expected schema {wanted}, found schema {found} at {at}",
    Verdict.UNKNOWN: "expected a message of this schema, found template {found} at {at}",
}


class Message(dict[str, Any]):
    """A decoded message: a dict of its fields, groups (lists of dicts) and data.

    Attributes
    ----------
    name : str
        The message's name in the schema.
    version : int
        The version of the schema that wrote it.
    """

    def __init__(self, values: Mapping[str, Any], name: str, version: int) -> None:
        super().__init__(values)
        self.name = name
        self.version = version


class Schema:
    """A schema of Simple Binary Encoding 1.0.

    Parameters
    ----------
    path : path-like
        Its XML file. It may include (XInclude) files beside it; nothing else is read.

    Attributes
    ----------
    model : SchemaModel
        The contents of the schema.
    layouts : dict of str to LevelLayout
        The levels by their paths (`Car`, `Car.fuelFigures`, ...).

    Raises
    ------
    SchemaError
        The schema is invalid. The error lists all problems, each with file, line, element, what
        was expected and what was found.
    OSError
        The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.model: SchemaModel = parse_schema(path)
        model = self.model
        self._plan, self.layouts, self._names = make_plan(model)
        self._roots = [layout for layout in self.layouts.values() if layout.parent is None]
        self._by_id = {layout.level.id: layout for layout in self._roots}
        self._header = prefix_block(model.header, model.order)
        self._encoder = Encoder(self.layouts, model.header, model.order, model.id, model.version)

    def __repr__(self) -> str:
        return (
            f"<Schema {self.model.package!r} id {self.model.id} version {self.model.version}, "
            f"{len(self._roots)} messages>"
        )

    def __reduce__(self) -> tuple[type[Schema], tuple[str]]:
        """Read the file again when unpickled: a Spark task has it, too."""
        return type(self), (self.model.file,)

    @property
    def messages(self) -> tuple[str, ...]:
        """Names of the messages, in the order of their ids."""
        return tuple(layout.level.name for layout in self._roots)

    def layout(self, path: str) -> LevelLayout:
        """Return a level by its path.

        Raises
        ------
        ConfigError
            The schema has no such level.
        """
        found = self.layouts.get(path)
        if found is None:
            raise ConfigError(
                f"{self.model.file} has no {path!r}; it has {', '.join(self.layouts)}"
            )
        return found

    # --- one message ----------------------------------------------------------------------------

    def encode(
        self,
        name: str | int,
        values: Mapping[str, Any],
        *,
        header: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the bytes of a message, header included.

        Parameters
        ----------
        name : str or int
            The message's name, or its template id.
        values : mapping
            The value of each field. Optional fields may be left out, or None; constants too. A
            composite is a mapping (one of mantissa and constant exponent may be a number), an array
            a sequence, an enumeration a name or its number, a set an iterable of names or numbers
            of bits, characters str or bytes, a group a sequence of such mappings, data str or
            bytes.
        header : mapping, optional
            Members of the header that do not follow from the schema; default: null or zero.

        Raises
        ------
        FormatError, RangeError
            Both are ValueErrors: a value is missing, of another kind, or does not fit.
        ConfigError
            The schema has no such message.
        """
        layout = self._by_id.get(name) if isinstance(name, int) else None
        root = layout or self.layout(str(name))
        if root.parent is not None:
            raise ConfigError(f"{name} is a group: expected one of {', '.join(self.messages)}")
        encoded = self._encoder.message(root.level.name, values, header or {})
        # Never return what the walk would refuse.
        self._read(encoded)
        return encoded

    def decode(self, payload: Buffer) -> Message:
        """Return the values of one message.

        A field that the writer's version did not have is None, a group empty. An enumeration is its
        name, or its number if it has no name; a set is a set of names, and of numbers of bits
        without names; an array is a list; null is None.

        Parameters
        ----------
        payload : bytes-like
            One message, header included. A newer version may have added bytes behind it.

        Raises
        ------
        FormatError
            The message is not in this schema, or is damaged; says which element needs how many
            bytes.
        TypeError
            The payload is not bytes-like.
        """
        raw = bytes(memoryview(payload))  # of a number, `bytes` alone would make that many zeros
        place, levels = self._read(raw)
        data = memoryview(raw)
        root = self._roots[place]
        version = 0
        made: dict[str, list[dict[str, Any]]] = {}
        for level, rows in zip(root.level.levels, levels, strict=True):
            layout = self.layouts[level.path]
            read = layout.block.read
            made[level.path] = found = []
            above = [] if layout.parent is None else made[layout.parent.level.path]
            for parent, offset, version, size, spans in rows:
                values = read(data, offset, size, version)
                for group in level.groups:
                    values[group.name] = []
                for text, span in zip(level.datas, spans, strict=True):
                    values[text.name] = _text(raw, span, text.codec)
                found.append(values)
                if above:
                    above[parent][level.name].append(values)
        return Message(made[root.level.path][0], root.level.name, version)

    def header(self, payload: Buffer) -> dict[str, Any]:
        """Return all members of a message's header.

        Raises
        ------
        FormatError
            The payload is shorter than a header.
        """
        data = memoryview(payload).cast("B")
        if len(data) < self._header.size:
            raise FormatError(f"a header has {self._header.size} bytes, found {len(data)}")
        return self._header.read(data, 0, self._header.size, self.model.version)

    def name(self, payload: Buffer) -> str | None:
        """Return the name of a message by its header, or None if it is not in this schema."""
        place = self._plan.template(payload)
        return None if place is None or place < 0 else self._roots[place].level.name

    # --- batches --------------------------------------------------------------------------------

    def rows(self, batch: Any, *, framing: str = "", only: str = "") -> Rows:
        """Walk over a batch of messages and return its contents.

        Parameters
        ----------
        batch : Batch, pyarrow array, or iterable of bytes-like
            See `payloads_of`.
        framing : str
            If a payload is all that one datagram carries, the framing of the feed that recorded it:
            one of `FRAMINGS`. Empty: a payload is one message.
        only : str
            Name of the only message to read.

        Raises
        ------
        ConfigError
            The framing or the message is unknown.
        """
        payloads = batch if isinstance(batch, Payloads) else payloads_of(batch)
        if framing and framing not in FRAMINGS:
            raise ConfigError(f"framing must be one of {', '.join(FRAMINGS)}, was {framing!r}")
        prefix = FRAMINGS[framing] if framing else -1
        wanted = -1
        if only:
            wanted = self.messages.index(self.layout(only).level.name)
        walk = self._plan.walk(
            payloads.addresses, payloads.sizes, payloads.keep, wanted=wanted, prefix=prefix
        )
        return Rows(self, payloads, walk, prefix == 0)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the dtype by which numpy reads the block of a message or group in place.

        Its itemsize is the block's length. It has no constants; characters are bytes, and an
        enumeration or a set is its number.
        """
        return self.layout(name).block.dtype

    def table(
        self, batch: Any, name: str, *, framing: str = "", skip_damage: bool = False
    ) -> pa.Table:
        """Return the rows of a message or group as a pyarrow Table.

        Messages of other templates or schemas are skipped; `rows(batch).counts` counts them.

        Parameters
        ----------
        batch : Rows, or what `rows` takes
        name : str
            `Car`, `Car.fuelFigures`, ...
        framing : str
            As for `rows`.
        skip_damage : bool
            Leave damaged payloads out; `rows(batch).counts` counts them.

        Raises
        ------
        FormatError
            A payload is damaged.
        """
        load_optional("pyarrow", "export")
        from udpfast.payload.sbe.arrow import level_table

        root = self.layout(name).level.path.partition(".")[0]
        rows = batch if isinstance(batch, Rows) else self.rows(batch, framing=framing, only=root)
        if not skip_damage:
            rows.check()
        return level_table(rows, self.layout(name))

    def reason(self, damage: Any) -> str:
        """Return a sentence about damage that a walk found."""
        op = int(damage["op"])
        what = self._names[op] if op >= 0 else "the message"
        kind = Verdict(int(damage["verdict"]))
        said = _WHY.get(kind, kind.name).format(
            what=what, **{key: int(damage[key]) for key in ("at", "wanted", "found")}
        )
        if kind is Verdict.UNKNOWN:
            said += f"; it has {', '.join(f'{r.level.id} {r.level.name}' for r in self._roots)}"
        return said

    def _read(self, raw: bytes) -> tuple[int, list[Any]]:
        place, found = self._plan.read(raw)
        if isinstance(found, dict):
            raise FormatError(self.reason(found))
        assert place is not None
        return place, found

    def __iter__(self) -> Iterator[str]:
        """Yield the path of every message and group."""
        return iter(self.layouts)


def _text(raw: bytes, span: tuple[int, int] | None, codec: str) -> Any:
    if span is None:
        return None
    data = raw[span[0] : span[0] + span[1]]
    return decoded(data, codec) if codec else data
