"""What people have as a batch of payloads, as addresses and sizes for the walk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udpfast.core.layout import FRAME, RECORD, Kind
from udpfast.errors import FormatError
from udpfast.payload.sbe.plan import bytes_places

__all__ = ["MESSAGE_KINDS", "Payloads", "payloads_in", "payloads_of"]

#: Streams 0 and 1 are Roq's channels; from here on they are other framings', without a frame.
STREAM_FIRST = 2
#: Kinds of records whose payload a publisher, or an app of a bus, wrote.
MESSAGE_KINDS = (int(Kind.MESSAGE), int(Kind.BUS))


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads in memory.

    Attributes
    ----------
    addresses, sizes : ndarray of uint64
    index : ndarray of int64
        Which of the batch each is: records that are no messages have none.
    keep : object
        What owns the memory.
    """

    addresses: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    index: NDArray[np.int64]
    keep: object

    def payload(self, i: int) -> memoryview:
        """Return the bytes of one of them; look while `keep` is held."""
        import ctypes

        size = int(self.sizes[i])
        return memoryview((ctypes.c_ubyte * size).from_address(int(self.addresses[i]))).cast("B")


def payloads_of(batch: Any) -> Payloads:
    """Return the payloads of a batch.

    Parameters
    ----------
    batch : Batch, pyarrow array, or iterable of bytes-like
        Of a `udpfast.Batch`, the payloads of its records that carry messages; they are looked at
        in place, so be done before the reader's next poll. Of pyarrow, an array of binary or
        large_binary; what is null in it is left out.
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
    """Return the payloads of the records in a memory that carry messages.

    Parameters
    ----------
    memory : ndarray of uint8
    offsets : ndarray of uint64
        Of each record's payload.
    headers : ndarray
        Of each record: `kind`, `length` and `stream` of dtype RECORD.
    """
    kinds = headers["kind"]
    index = np.flatnonzero(np.isin(kinds, MESSAGE_KINDS))
    sizes = headers["length"][index].astype(np.int64) - RECORD.itemsize
    begins = offsets[index].astype(np.int64)
    if len(index) and (begins + sizes).max() > len(memory):
        raise FormatError("records reach beyond the end of their memory")
    # What has Roq's framing begins with its frame.
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
