from collections.abc import Mapping, Sequence
from typing import Any

from udpfast.log.journal import Journal

__all__ = ["engine_cost_ns"]

def engine_cost_ns(
    datagrams: Sequence[bytes],
    *,
    batches: int = 20_000,
    cold: bool = True,
    settings: Mapping[str, Any] | None = None,
    journal: Journal | None = None,
) -> float: ...
