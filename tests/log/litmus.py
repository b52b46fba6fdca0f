"""The outcomes that a weakly ordered processor allows: litmus tests of shared-memory protocols.

A program is a few threads of operations on named words. Each thread may do its operations in any
order that its acquires, releases and fences allow, as on AArch64. All other threads see a store at
the same moment, as on AArch64. `outcomes` tries all orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Fence", "Load", "Store", "outcomes"]


@dataclass(frozen=True)
class Load:
    """Load a word into a register; `acquire`: before all later operations."""

    word: str
    register: str
    acquire: bool = False


@dataclass(frozen=True)
class Store:
    """Store into a word; `release`: after all earlier operations.

    With `when`, store only if a register has that value, which the same thread loaded before.
    """

    word: str
    value: int
    release: bool = False
    when: tuple[str, int] | None = None


@dataclass(frozen=True)
class Fence:
    """Order earlier operations before later ones.

    "acquire": earlier loads before all later operations; "release": all earlier operations before
    later stores; "full": all before all.
    """

    kind: str


Operation = Load | Store | Fence
Values = tuple[tuple[str, int], ...]


def _ordered(thread: Sequence[Operation], first: int, second: int) -> bool:
    # Whether `second` must wait for `first`, which comes before it in the program.
    a, b = thread[first], thread[second]
    if isinstance(a, Fence) or isinstance(b, Fence):
        return False  # a fence itself does nothing
    if a.word == b.word:
        return True
    if isinstance(a, Load) and (a.acquire or _depends(b, a)):
        return True
    if isinstance(b, Store) and b.release:
        return True
    for fence in thread[first + 1 : second]:
        if isinstance(fence, Fence) and (
            fence.kind == "full"
            or (fence.kind == "acquire" and isinstance(a, Load))
            or (fence.kind == "release" and isinstance(b, Store))
        ):
            return True
    return False


def _depends(operation: Operation, load: Load) -> bool:
    return (
        isinstance(operation, Store)
        and operation.when is not None
        and operation.when[0] == load.register
    )


def outcomes(*threads: Sequence[Operation], **memory: int) -> set[frozenset[tuple[str, int]]]:
    """Return the possible results: (name, value) of all registers and words at the end.

    Parameters
    ----------
    threads : sequences of Load, Store and Fence
    memory : int
        Initial values of words; 0 by default.
    """
    words = {each.word for thread in threads for each in thread if not isinstance(each, Fence)}
    waits = [
        [{i for i in range(j) if _ordered(thread, i, j)} for j in range(len(thread))]
        for thread in threads
    ]
    found: set[frozenset[tuple[str, int]]] = set()
    seen: set[tuple[tuple[frozenset[int], ...], Values]] = set()
    begin = tuple(sorted((word, memory.get(word, 0)) for word in words))
    stack = [(tuple(frozenset[int]() for _ in threads), begin)]
    while stack:
        done, values = state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        if all(len(each) == len(thread) for each, thread in zip(done, threads, strict=True)):
            found.add(frozenset(values))
        stack.extend(_steps(threads, waits, done, values))
    return found


def _steps(
    threads: Sequence[Sequence[Operation]],
    waits: Sequence[Sequence[set[int]]],
    done: tuple[frozenset[int], ...],
    values: Values,
) -> Iterator[tuple[tuple[frozenset[int], ...], Values]]:
    for number, thread in enumerate(threads):
        for i, operation in enumerate(thread):
            if i in done[number] or not waits[number][i] <= done[number]:
                continue
            now = dict(values)
            if isinstance(operation, Load):
                now[operation.register] = now[operation.word]
            elif isinstance(operation, Store) and (
                operation.when is None or now.get(operation.when[0]) == operation.when[1]
            ):
                now[operation.word] = operation.value
            yield (
                (*done[:number], done[number] | {i}, *done[number + 1 :]),
                tuple(sorted(now.items())),
            )
