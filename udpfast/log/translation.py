"""Translate records between the layouts of two versions, field by field and by name.

A field that only the target has gets the value for "not stated": 0, NaN for floating-point numbers,
or what `DEFAULTS` says. A field that only the source has is dropped. A value that does not fit is
an error, never another value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.core.layouts import ROW_COUNT, Layouts
from udpfast.errors import FormatError

__all__ = ["DEFAULTS", "Translation"]

#: Header fields whose value for "not stated" is not 0.
DEFAULTS = {"flight_ns": -(1 << 31)}  # FLIGHT_UNKNOWN

Values = npt.NDArray[Any]
Dtype = np.dtype[Any]


class Translation:
    """Translation of records from the layouts of one version to those of another.

    Parameters
    ----------
    source, target : Layouts
        Layouts of the records given, and of the records made.

    Raises
    ------
    FormatError
        A field is text in one of them and a number in the other, or integer and floating-point.
    """

    def __init__(self, source: Layouts, target: Layouts) -> None:
        self.source = source
        self._header = _Struct("the header", source.header, target.header, DEFAULTS)
        self._payloads = _structs("payloads", source.payloads, target.payloads)
        self._rows = _structs("rows", source.rows, target.rows)

    def run(
        self,
        headers: Values,
        offsets: Values,
        payloads: Values,
        into: tuple[Values, Values, Values],
    ) -> int:
        """Translate records; return how many fit `into`.

        Parameters
        ----------
        headers : numpy.ndarray
            Array with the source's header dtype.
        offsets, payloads : numpy.ndarray
            Array of uint64 with the offset of each payload in `payloads`, an array of uint8.
        into : tuple of numpy.ndarray
            The same three arrays for the target, which are overwritten.

        Raises
        ------
        FormatError
            A value does not fit its field in the target.
        """
        count, kinds = len(headers), headers["kind"]
        begins = offsets[:count].astype(np.int64)
        sizes = headers["length"].astype(np.int64) - self.source.header.itemsize
        known = np.zeros(count, np.int64)  # bytes of each source payload that the layouts describe
        fixed = np.zeros(count, np.int64)  # bytes that they become
        parts = []
        for kind in np.unique(kinds).tolist():
            struct, rows = self._payloads.get(kind), self._rows.get(kind)
            if struct is None:
                continue
            row_size = self.source.rows[kind].itemsize if kind in self.source.rows else 0
            which = np.flatnonzero((kinds == kind) & (sizes >= struct.source.itemsize))
            found = _gather(payloads, begins[which], struct.source)
            counts = np.zeros(len(which), np.int64)
            if row_size:
                counts[:] = found[ROW_COUNT]
            takes = struct.source.itemsize + counts * row_size
            whole = takes <= sizes[which]  # else the payload has another layout: copy it unchanged
            which, counts = which[whole], counts[whole]
            known[which] = takes[whole]
            fixed[which] = struct.target.itemsize
            if rows is not None:
                fixed[which] += counts * rows.target.itemsize
            made = struct.copy(found[whole], headers["index"][which])
            if row_size and rows is None and ROW_COUNT in (made.dtype.names or ()):
                made[ROW_COUNT] = 0
            parts.append((which, struct, made, rows, counts))
        rest = sizes - known
        ends = np.cumsum(fixed + rest + 7 & ~7)
        fitting = int(np.searchsorted(ends, len(into[2]), "right"))
        if fitting < count:
            return self.run(headers[:fitting], offsets, payloads, into) if fitting else 0
        starts = ends - (fixed + rest + 7 & ~7)
        target = into[2]
        target[: int(ends[-1])] = 0
        for which, struct, made, rows, counts in parts:
            _scatter(target, starts[which], made)
            if rows is not None:
                found = _gather(
                    payloads,
                    _spread(begins[which] + struct.source.itemsize, counts, rows.source.itemsize),
                    rows.source,
                )
                indices = np.repeat(headers["index"][which], counts)
                _scatter(
                    target,
                    _spread(starts[which] + struct.target.itemsize, counts, rows.target.itemsize),
                    rows.copy(found, indices),
                )
        target[_spread(starts + fixed, rest, 1)] = payloads[_spread(begins + known, rest, 1)]
        into[0][:count] = self._header.copy(headers, headers["index"])
        into[0]["length"][:count] = into[0].dtype.itemsize + fixed + rest
        into[1][:count] = starts
        return count


class _Struct:
    # Translation of one struct.

    def __init__(
        self, what: str, source: Dtype, target: Dtype, defaults: Mapping[str, int] | None = None
    ) -> None:
        self.source, self.target = source, target
        self._what = what
        self._empty = np.zeros(1, target)
        self._fields: list[tuple[str, bool]] = []
        theirs: Any = source.fields or {}
        ours: Any = target.fields or {}
        for name in ours:
            wanted = ours[name][0]
            if wanted.kind == "f":
                self._empty[name] = np.nan
            if defaults and name in defaults:
                self._empty[name] = defaults[name]
            if name not in theirs or wanted.kind == "V" or name.startswith("reserved"):
                continue
            found = theirs[name][0]
            if _class(found) != _class(wanted):
                raise FormatError(f"{what}: expected {name} as {wanted.str}, found {found.str}")
            self._fields.append((name, np.can_cast(found, wanted, "safe")))

    def copy(self, source: Values, indices: Values) -> Values:
        # indices: indices of the records, for error messages.
        target = np.repeat(self._empty, len(source))
        for name, fits in self._fields:
            values = source[name]
            target[name] = values
            if fits:
                continue
            wrong = target[name] != values
            if values.dtype.kind == "f":
                wrong &= ~np.isnan(values)
            if wrong.any():
                at = int(wrong.argmax())
                raise FormatError(
                    f"record {int(indices[at])}: {self._what} has {name} {values[at]!r}, which "
                    f"does not fit this version's {self.target[name].str}"
                )
        return target


def _structs(
    what: str, source: Mapping[int, Dtype], target: Mapping[int, Dtype]
) -> dict[int, _Struct]:
    return {
        kind: _Struct(f"{what} of kind {kind}", each, target[kind])
        for kind, each in source.items()
        if kind in target
    }


def _class(dtype: Dtype) -> str:
    return "i" if dtype.kind == "u" else dtype.kind


def _gather(memory: Values, starts: Values, dtype: Dtype) -> Values:
    places = starts[:, None] + np.arange(dtype.itemsize)
    found: Values = memory[places].view(dtype).reshape(len(starts))
    return found


def _scatter(memory: Values, starts: Values, items: Values) -> None:
    size = items.dtype.itemsize
    memory[starts[:, None] + np.arange(size)] = items.view(np.uint8).reshape(len(items), size)


def _spread(starts: Values, counts: Values, step: int) -> Values:
    # Return starts[0], starts[0] + step, ... (counts[0] values), then the same for starts[1], and
    # so on.
    before = np.repeat(np.cumsum(counts) - counts, counts)
    places: Values = np.repeat(starts, counts) + (np.arange(len(before)) - before) * step
    return places
