"""`udpfast.sbe.Schema`: a schema as people use it."""

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

#: How the messages of one datagram stand in a record's payload, by framing: bytes in front of
#: each, the first two of which are its size with them; 0: nothing is in front.
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
        Of the message in the schema.
    version : int
        Of the schema that wrote it.
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
        Its XML. It may include (XInclude) files beside it; nothing else is read.

    Attributes
    ----------
    model : SchemaModel
        What it says.
    layouts : dict
        Path of each level (`Car`, `Car.fuelFigures`, ...) -> LevelLayout.

    Raises
    ------
    SchemaError
        It is not sound: all that is wrong, each with file, line, element, what was expected and
        what was found.
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
        """Read it again where it is wanted: a task of Spark has the file too."""
        return type(self), (self.model.file,)

    @property
    def messages(self) -> tuple[str, ...]:
        """Names of the messages, by their ids."""
        return tuple(layout.level.name for layout in self._roots)

    def layout(self, path: str) -> LevelLayout:
        """Return a level by its path.

        Raises
        ------
        ConfigError
            There is none.
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
            Of the message, or its template id.
        values : mapping
            Field -> value. Optional fields may be left out, or None; constants too. A composite is
            a mapping (one of mantissa and constant exponent may be a number), an array a sequence,
            an enumeration a name or its number, a set an iterable of names or numbers of bits,
            characters str or bytes, a group a sequence of such mappings, data str or bytes.
        header : mapping, optional
            What the header has beyond the numbers that follow from the schema; else null or zero.

        Raises
        ------
        FormatError, RangeError
            Both ValueError: a value is missing, of another kind, or does not fit.
        """
        layout = self._by_id.get(name) if isinstance(name, int) else None
        root = layout or self.layout(str(name))
        if root.parent is not None:
            raise ConfigError(f"{name} is a group: expected one of {', '.join(self.messages)}")
        encoded = self._encoder.message(root.level.name, values, header or {})
        # What the walk would refuse, nobody shall send.
        self._read(encoded)
        return encoded

    def decode(self, payload: Buffer) -> Message:
        """Return the values of one message.

        What its writer's version did not have is None, a group of that kind empty. An enumeration
        is its name, or its number where the schema has no name for it; a set a set of names, and
        of numbers of bits that have none; an array a list; null is None.

        Parameters
        ----------
        payload : bytes-like
            One message, header included. Behind it may be what a newer version added.

        Raises
        ------
        FormatError
            It is none of this schema's, or is damaged; says which element wants how many bytes.
        TypeError
            It is no bytes at all.
        """
        raw = bytes(memoryview(payload))  # of a number, `bytes` alone makes so many zeros
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
        """Return the header of a message, all that it has."""
        data = memoryview(payload).cast("B")
        if len(data) < self._header.size:
            raise FormatError(f"a header has {self._header.size} bytes, found {len(data)}")
        return self._header.read(data, 0, self._header.size, self.model.version)

    def name(self, payload: Buffer) -> str | None:
        """Return the name of a message by its header; None if it is none of this schema's."""
        place = self._plan.template(payload)
        return None if place is None or place < 0 else self._roots[place].level.name

    # --- batches --------------------------------------------------------------------------------

    def rows(self, batch: Any, *, framing: str = "", only: str = "") -> Rows:
        """Walk over a batch of messages and return what is in it.

        Parameters
        ----------
        batch : Batch, pyarrow array, or iterable of bytes-like
            See `payloads_of`.
        framing : str
            Of the feed whose records these are, if a payload is all that one datagram carries: one
            of `FRAMINGS`. Empty: a payload is one message.
        only : str
            A message's name: the only one that is looked at.
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
        """Return the block of a message or group as numpy reads it in place.

        Its itemsize is the block's length. Constants are not in it; characters are bytes, an
        enumeration or a set is its number.
        """
        return self.layout(name).block.dtype

    def table(
        self, batch: Any, name: str, *, framing: str = "", skip_damage: bool = False
    ) -> pa.Table:
        """Return the rows of a message or group as a pyarrow Table.

        Messages of another template or schema are passed over; `rows(batch).counts` counts them.

        Parameters
        ----------
        batch : Rows, or what `rows` takes
        name : str
            `Car`, `Car.fuelFigures`, ...
        framing : str
            As for `rows`.
        skip_damage : bool
            Leave damaged payloads out; `rows(batch).counts` says how many there are.

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
        """Return what a walk says of damage as a sentence."""
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
