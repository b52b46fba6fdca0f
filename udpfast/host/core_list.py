"""Sets of cores as the kernel writes them: a list "0-2,5", or a mask in words of 32 bits."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["compress", "cores_mask", "expand", "mask_cores"]


def expand(text: str) -> set[int]:
    """Return the cores of a list: "0-2,5"."""
    cores: set[int] = set()
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def compress(cores: Iterable[int]) -> str:
    """Write cores as a list; the reverse of `expand`."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and runs[-1][1] == core - 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def mask_cores(mask: str) -> set[int]:
    """Return the cores of a mask: "3,ffffffff", the highest word first."""
    bits = int(mask.replace(",", "") or "0", 16)
    return {core for core in range(bits.bit_length()) if bits >> core & 1}


def cores_mask(cores: Iterable[int]) -> str:
    """Write cores as a mask; the reverse of `mask_cores`."""
    bits = sum(1 << core for core in set(cores))
    words = range((max(bits.bit_length(), 1) - 1) // 32, -1, -1)
    return ",".join(f"{bits >> 32 * word & 0xFFFFFFFF:08x}" for word in words)
