"""What takes long to read, read rarely: so that who looks often costs no more for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from udpfast.core.clock import monotonic_ns

__all__ = ["Paced"]

T = TypeVar("T")

#: Of the time, at most one part of so many goes into one thing.
SHARE = 500
#: Things that are remembered; more of them are read anew. Each feed of a host has three.
KEPT_MAX = 1024


class _Kept(NamedTuple):
    value: object
    due_ns: int


class Paced:
    """Remembers what was read, until it is due again."""

    def __init__(self) -> None:
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
        began_ns = monotonic_ns()
        kept = self._kept.get(what)
        if kept is not None and began_ns < kept.due_ns:
            return cast(T, kept.value)
        value = read(None if kept is None else cast(T, kept.value))
        ended_ns = monotonic_ns()
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        rest_ns = max(int(least_s * 1e9), SHARE * (ended_ns - began_ns))
        self._kept[what] = _Kept(value, ended_ns + rest_ns)
        return value
