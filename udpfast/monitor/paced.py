"""Read rarely what takes long to read, so that frequent looks cost no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from udpfast.core.clock import monotonic_ns

__all__ = ["Paced"]

T = TypeVar("T")

#: At most one part of a core in so many goes into one thing.
SHARE = 2000
#: Things that are remembered; more of them are read anew. Each feed of a host has three.
KEPT_MAX = 1024


class _Kept(NamedTuple):
    value: object
    due_ns: int


class Paced:
    """Remembers what was read, until it is due again.

    Parameters
    ----------
    share : int
        One part of so many of a core is what each thing may take; 0: all is read at each look.
    """

    def __init__(self, share: int = SHARE) -> None:
        self._share = share
        self._kept: dict[object, _Kept] = {}

    def get(self, what: object, read: Callable[[T | None], T], least_s: float = 0.0) -> T:
        """Return what `read` returned last; call it if that is `least_s` ago, and longer if slow.

        Parameters
        ----------
        what : hashable
            Which thing it is.
        read : callable
            Is given what it returned before; None: nothing yet.
        least_s : float
            At least so long what was read is good enough.
        """
        kept = self._kept.get(what)
        if kept is not None and monotonic_ns() < kept.due_ns:
            return cast(T, kept.value)
        cpu_ns = time.thread_time_ns()
        value = read(None if kept is None else cast(T, kept.value))
        cpu_ns = time.thread_time_ns() - cpu_ns
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        rest_ns = max(int(least_s * 1e9), self._share * cpu_ns)
        self._kept[what] = _Kept(value, monotonic_ns() + rest_ns)
        return value
