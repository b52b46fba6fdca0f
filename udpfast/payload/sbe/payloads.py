"""Batches of payloads, in all forms that callers have, as addresses and sizes for the walk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from udpfast.core.layout import FRAME, RECORD, Kind
from udpfast.errors import FormatError
from udpfast.payload.sbe.plan import bytes_places

__all__ = ["MESSAGE_KINDS", "Payloads", "payloads_in", "payloads_of"]

#: Streams 0 and 1 are Roq's channels; later ones belong to other framings, which have no frame.
STREAM_FIRST = 2
#: The kinds of records whose payload was written by a publisher or by an app of a bus.
MESSAGE_KINDS = (int(Kind.MESSAGE), int(Kind.BUS))


class Payloads(Struct, frozen=True):
    """Payloads in memory.

    Attributes
    ----------
    addresses, sizes : ndarray of uint64
        Address and size in bytes of each.
    index : ndarray of int64
        Index of each in the batch, where records that are not messages count as well.
    keep : object
        Owns the memory.
    """

    addresses: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    index: NDArray[np.int64]
    keep: object

    def payload(self, i: int) -> memoryview:
        """Return the bytes of a payload, valid while `keep` is alive."""
        import ctypes

        size = int(self.sizes[i])
        return memoryview((ctypes.c_ubyte * size).from_address(int(self.addresses[i]))).cast("B")


def payloads_of(batch: Any) -> Payloads:
    """Return the payloads of a batch.

    Parameters
    ----------
    batch : Batch, pyarrow array, or iterable of bytes-like
        A `udpfast.Batch` gives the payloads of its records that carry messages; they are read in
        place, so finish before the reader's next poll. A pyarrow array must be of type binary or
        large_binary; its nulls are left out.

    Raises
    ------
    FormatError
        The batch is none of these.
    """
    if hasattr(batch, "headers") and hasattr(batch, "payloads"):
        return payloads_in(batch.payloads, batch.offsets, batch.headers)
    if hasattr(batch, "combine_chunks"):
        batch = batch.combine_chunks()
    if hasattr(batch, "buffers") and hasattr(batch, "type"):
        return _arrow_payloads(batch)
    if isinstance(batch, bytes | bytearray | memoryview | str):
        raise FormatError("expected a batch (a list of bytes), found a single payload")
    if isinstance(batch, Iterable):
        return _places([bytes(memoryview(each)) for each in batch])
    raise FormatError(f"expected a batch of payloads, found {type(batch).__name__}")


def payloads_in(
    memory: NDArray[np.uint8],
    offsets: NDArray[np.uint64],
    headers: NDArray[Any],
) -> Payloads:
    """Return the payloads of those records in a memory that carry messages.

    Parameters
    ----------
    memory : ndarray of uint8
        Holds the payloads; they are not copied.
    offsets : ndarray of uint64
        Where each record's payload begins.
    headers : ndarray
        The records' `kind`, `length` and `stream`, as in dtype RECORD.

    Raises
    ------
    FormatError
        A record reaches beyond the memory.
    """
    kinds = headers["kind"]
    index = np.flatnonzero(np.isin(kinds, MESSAGE_KINDS))
    sizes = headers["length"][index].astype(np.int64) - RECORD.itemsize
    begins = offsets[index].astype(np.int64)
    if len(index) and (begins + sizes).max() > len(memory):
        raise FormatError("records reach beyond the end of their memory")
    # Payloads in Roq's framing begin with the frame.
    is_framed = (kinds == Kind.MESSAGE) & (headers["stream"] < STREAM_FIRST)
    framed = np.minimum(np.where(is_framed[index], FRAME.itemsize, 0), sizes)
    addresses = (begins + framed + memory.ctypes.data).astype(np.uint64)
    return Payloads(addresses, (sizes - framed).astype(np.uint64), index, memory)


def _places(payloads: list[bytes]) -> Payloads:
    addresses, sizes = bytes_places(payloads)
    return Payloads(addresses, sizes, np.arange(len(payloads)), payloads)


def _arrow_payloads(array: Any) -> Payloads:
    import pyarrow as pa

    kind = array.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise FormatError(f"expected an Arrow array of binary values, found one of {kind}")
    width = np.int32 if pa.types.is_binary(kind) else np.int64
    _, offsets, data = array.buffers()
    begin = array.offset
    if len(array) == 0:
        return _places([])
    ends = np.frombuffer(offsets, width)[begin : begin + len(array) + 1].astype(np.uint64)
    index = np.flatnonzero(~np.asarray(array.is_null()))
    base = np.uint64(0 if data is None else data.address)
    return Payloads((base + ends[:-1])[index], np.diff(ends)[index], index, array)
