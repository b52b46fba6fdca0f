"""The contents of a batch of messages: the rows of each level as numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from udpfast.errors import FormatError
from udpfast.payload.sbe.payloads import Payloads
from udpfast.payload.sbe.plan import Verdict, Walk

if TYPE_CHECKING:
    from udpfast.payload.sbe.schema import Schema

__all__ = ["Rows"]


class Rows:
    """The rows of a batch, by level: `rows["Car"]`, `rows["Car.fuelFigures"]`.

    Blocks are copied out of the batch when they are asked for: leave the batch unchanged until
    then.

    Attributes
    ----------
    schema : Schema
        The schema of the messages.
    payloads : Payloads
        The payloads of the batch.
    walk : Walk
        Where the rows are.
    joined : bool
        True if the messages of a payload follow one another without their sizes.
    """

    def __init__(self, schema: Schema, payloads: Payloads, walk: Walk, joined: bool) -> None:
        self.schema = schema
        self.payloads = payloads
        self.walk = walk
        self.joined = joined

    @property
    def counts(self) -> dict[str, int]:
        """How many messages had each verdict: `sound`, `unknown`, ..."""
        return {verdict.name.lower(): count for verdict, count in self.walk.counts.items()}

    def __iter__(self) -> Iterator[str]:
        """Yield the levels that have rows."""
        for path, layout in self.schema.layouts.items():
            if self.walk.count(layout.index):
                yield path

    def count(self, path: str) -> int:
        """Return how many rows a level has."""
        return self.walk.count(self.schema.layout(path).index)

    def __getitem__(self, path: str) -> NDArray[Any]:
        """Return the blocks of a level, dtype `schema.dtype(path)`; a copy.

        A field that a row's writer did not have yet is null, or zero if its type has no null;
        `places` tells which version wrote the row.
        """
        layout = self.schema.layout(path)
        block = layout.block
        if not block.size:
            return np.empty(self.walk.count(layout.index), block.dtype)
        leaves, since = block.leaves
        return self.walk.gather(layout.index, block.absent, leaves, since).view(block.dtype)

    def places(self, path: str) -> NDArray[Any]:
        """Return where each row of a level is, dtype `plan.ROW`; a copy.

        `payload` is the index in the batch, of payloads or records; `parent` is the row in the
        level above, -1 for messages; `offset` and `size` are those of the block in its payload.
        """
        places = self.walk.rows(self.schema.layout(path).index)
        places["payload"] = self.payloads.index[places["payload"]]
        return places

    def texts(
        self, path: str, name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.bool_]]:
        """Return one variable data of all rows of a level.

        Returns
        -------
        tuple
            Offsets, one for each row and the end of the last; the bytes; and, for each row, True
            if it lacks the data, because its writer did not know it.

        Raises
        ------
        FormatError
            The level has no such data.
        """
        layout = self.schema.layout(path)
        names = [data.name for data in layout.level.datas]
        if name not in names:
            raise FormatError(f"{path} has no data {name!r}; it has {', '.join(names) or 'none'}")
        return self.walk.texts(layout.index, names.index(name))

    def damage(self) -> Iterator[tuple[int, str]]:
        """Yield the index of each damaged payload, and the reason.

        If messages follow one another without their sizes, an unknown message is damage: nobody
        knows where it ends.
        """
        bound = Verdict.FOREIGN if self.joined else Verdict.HEADER_SHORT
        for damage in self.walk.damage():
            if damage["verdict"] >= bound:
                yield int(self.payloads.index[damage["payload"]]), self.schema.reason(damage)

    def check(self) -> None:
        """Raise FormatError if a payload is damaged."""
        for index, reason in self.damage():
            raise FormatError(f"payload {index} of the batch: {reason}")
