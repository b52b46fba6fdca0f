from typing import Self

__all__ = ["WindowLoop", "feed_cost_ns", "main", "main_units", "unit_cost_ns"]

def feed_cost_ns(mode: str, size: int, *, lines: int = 1, count: int = 1_280_000) -> float: ...
def main() -> None: ...
def unit_cost_ns(
    framing: str,
    messages: int,
    size: int,
    *,
    streams: int = 1,
    lines: int = 1,
    copies: int = 1,
    floor: bool = False,
    count: int = 640_000,
) -> float: ...
def main_units() -> None: ...

class WindowLoop:
    def __new__(cls, datagram: bytes) -> Self: ...
    def run(self, count: int) -> int: ...
