from dataclasses import dataclass
from types import TracebackType
from typing import Self

__all__ = ["COMPILER", "FLAGS", "Gaps", "core_to_core_ns", "pinned", "spin"]

COMPILER: str
FLAGS: str

@dataclass(frozen=True, slots=True)
class Gaps:
    core: int
    elapsed_ns: int
    over_10us: int
    over_1ms: int
    longest_ns: int
    lost_ns: int

class pinned:  # noqa: N801
    core: int
    before: set[int]
    def __init__(self, core: int) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def spin(core: int, duration_ns: int) -> Gaps: ...
def core_to_core_ns(
    first: int, second: int, round_trips: int = 1_000, timeout_ns: int = 500_000_000
) -> float: ...
