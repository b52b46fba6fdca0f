from dataclasses import dataclass

__all__ = ["Recovery"]

@dataclass(frozen=True, slots=True)
class Recovery:
    position: int
    index: int
    segments: int
    cut_bytes: int
    missing: int
    set_aside: int
    notes: tuple[str, ...]
