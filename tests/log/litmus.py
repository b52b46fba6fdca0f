"""Which outcomes a weakly ordered processor allows: litmus tests of the protocols in shared memory.

A program is a few threads of operations on named words. Each thread may do its operations in any
order that its acquires, releases and fences allow, as AArch64 does; memory is one (a store is seen
by all others at once, as there). `outcomes` tries all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Fence", "Load", "Store", "outcomes"]


@dataclass(frozen=True)
class Load:
    """Load a word into a register; `acquire`: before everything behind it."""

    word: str
    register: str
    acquire: bool = False


@dataclass(frozen=True)
class Store:
    """Store into a word; `release`: behind everything before it.

    With `when`, only if a register (loaded before it, by the same thread) has that value.
    """

    word: str
    value: int
    release: bool = False
    when: tuple[str, int] | None = None


@dataclass(frozen=True)
class Fence:
    """Order what is before it with what is behind it.

    "acquire": loads before everything; "release": everything before stores; "full": everything.
    """

    kind: str


Operation = Load | Store | Fence
Values = tuple[tuple[str, int], ...]


def _ordered(thread: Sequence[Operation], first: int, second: int) -> bool:
    # Whether `second` must wait for `first`, which comes before it in the program.
    a, b = thread[first], thread[second]
    if isinstance(a, Fence) or isinstance(b, Fence):
        return False  # they do nothing themselves
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
    """Return what registers and memory may hold in the end: (name, value) of each.

    Parameters
    ----------
    threads : sequences of Load, Store and Fence
    memory : int
        What words hold at first; 0 without it.
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
