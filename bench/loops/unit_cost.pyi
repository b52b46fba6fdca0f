__all__ = ["main", "unit_cost_ns"]

def unit_cost_ns(
    framing: str,
    messages: int,
    size: int,
    *,
    streams: int = 1,
    lines: int = 1,
    floor: bool = False,
    count: int = 640_000,
) -> float: ...
def main() -> None: ...
