"""What a batch of messages holds: the rows of each level as numpy arrays."""

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

    A block is copied out of the batch when it is asked for: keep the batch as it is until then.

    Attributes
    ----------
    schema : Schema
    payloads : Payloads
    walk : Walk
    joined : bool
        Whether the messages of a payload stand behind each other without their sizes.
    """

    def __init__(self, schema: Schema, payloads: Payloads, walk: Walk, joined: bool) -> None:
        self.schema = schema
        self.payloads = payloads
        self.walk = walk
        self.joined = joined

    @property
    def counts(self) -> dict[str, int]:
        """How many messages there were, by what became of them: `sound`, `unknown`, ..."""
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
        """Return the blocks of a level, dtype `schema.dtype(path)`: a copy.

        What a row's writer did not have yet is null's value, or zero where there is none; `places`
        tells which version wrote it.
        """
        layout = self.schema.layout(path)
        block = layout.block
        if not block.size:
            return np.empty(self.walk.count(layout.index), block.dtype)
        leaves, since = block.leaves
        return self.walk.gather(layout.index, block.absent, leaves, since).view(block.dtype)

    def places(self, path: str) -> NDArray[Any]:
        """Return where each row of a level is, dtype `plan.ROW`: a copy.

        `payload` counts the batch's payloads or records, `parent` is the row in the level above,
        -1 for messages; `offset` and `size` are those of the block in its payload.
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
            Where each begins, and behind them all where the last ends; their bytes; which rows do
            not have it, since their writer did not know it.
        """
        layout = self.schema.layout(path)
        names = [data.name for data in layout.level.datas]
        if name not in names:
            raise FormatError(f"{path} has no data {name!r}; it has {', '.join(names) or 'none'}")
        return self.walk.texts(layout.index, names.index(name))

    def damage(self) -> Iterator[tuple[int, str]]:
        """Yield which payloads are damaged, and why.

        Of messages that stand behind each other an unknown one is damage: where it ends nobody
        knows.
        """
        bound = Verdict.FOREIGN if self.joined else Verdict.HEADER_SHORT
        for damage in self.walk.damage():
            if damage["verdict"] >= bound:
                yield int(self.payloads.index[damage["payload"]]), self.schema.reason(damage)

    def check(self) -> None:
        """Raise FormatError if a payload is damaged."""
        for index, reason in self.damage():
            raise FormatError(f"payload {index} of the batch: {reason}")
