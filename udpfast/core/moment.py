"""Moments: whatever a user may give as one, as UNIX ns; and UNIX ns as text."""

from __future__ import annotations

import datetime
import operator
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from udpfast.errors import ConfigError, shown

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Moment", "moment_text", "unix_ns"]

#: What a user may give as a moment; a pandas Timestamp is a datetime.
Moment: TypeAlias = "str | datetime.datetime | np.datetime64 | int"

# 2000 to 2100: other numbers are no ns, but seconds or ms.
_CENTURY_BEGIN_NS = 946_684_800_000_000_000
_CENTURY_END_NS = 4_102_444_800_000_000_000

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# `fromisoformat` drops what is smaller than a microsecond.
_BELOW_US = re.compile(r"[.,]\d{6}(\d{1,3})(?!\d)")


def unix_ns(when: Moment, what: str, expected: str = "a time") -> int:
    """Return a time as UNIX ns.

    Parameters
    ----------
    when : str, datetime, numpy.datetime64 or int
        ISO 8601 with a time zone, an aware datetime (also of pandas, with its nanoseconds), a
        `datetime64`, which is UTC, or UNIX ns, also as text.
    what, expected : str
        The name of the value and what it must be, for the error message.

    Raises
    ------
    ConfigError
        It is no time, does not say its zone, or is a number that cannot be UNIX ns of this
        century, or a float, which cannot hold them.
    """
    if isinstance(when, float):
        raise ConfigError(
            f"{what}: expected nanoseconds since 1970 as an int, for example "
            f"time.time_ns(); found {shown(when)}{_unit(when)}"
        )
    try:
        found = _since_epoch(when)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise ConfigError(
            f"{what} must be {expected} (2026-08-21T09:30Z, a datetime or UNIX ns), "
            f"was {shown(when)}"
        ) from None
    if found is None:
        raise ConfigError(f"{what} must have a time zone (2026-08-21T09:30Z), was {when!r}")
    if not _CENTURY_BEGIN_NS <= found < _CENTURY_END_NS:
        number = isinstance(when, int) or str(when).isdigit()
        raise ConfigError(
            f"{what} must be {'UNIX ns' if number else 'a time'} of this century, was "
            f"{shown(when)}{_unit(found) if number else ''}"
        )
    return found


def moment_text(time_ns: int) -> str:
    """Return UNIX ns as ISO 8601 in UTC, to the nanosecond, as `unix_ns` reads it."""
    try:
        when = _EPOCH + datetime.timedelta(seconds=time_ns // 10**9)
    except OverflowError:
        return f"{time_ns} ns"
    return f"{when:%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09}Z"


def _since_epoch(when: Any) -> int | None:
    # Return a time's UNIX ns, whatever they are; None: its zone is unknown.
    if getattr(getattr(when, "dtype", None), "kind", "") == "M":
        if str(when) == "NaT":
            raise ValueError("not a time")
        return int(when.astype("datetime64[ns]").astype("int64"))
    if isinstance(when, str) and when.isascii() and when.isdigit() and len(when) < 20:
        return int(when)
    if not isinstance(when, (str, datetime.datetime, bool)):
        return operator.index(when)
    below_ns = 0
    if isinstance(when, str):
        if found := _BELOW_US.search(when):
            below_ns = int(found[1].ljust(3, "0"))
        when = datetime.datetime.fromisoformat(when)
    if when.tzinfo is None:
        return None
    since = when - _EPOCH
    below_ns = getattr(since, "nanoseconds", below_ns)  # a Timedelta of pandas has them
    return int((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000 + below_ns)


def _unit(when: float) -> str:
    # What a number would be a time in, if it is none in ns.
    for unit, name, call in (
        (1_000_000_000, "seconds", "time.time()"), (1_000_000, "ms", ""), (1_000, "us", ""),
    ):  # fmt: skip
        if _CENTURY_BEGIN_NS <= when * unit < _CENTURY_END_NS:
            instead = f": time.time_ns() in place of {call}" if call else ""
            multiply = f"; multiply by {unit:_}{instead}" if isinstance(when, int) else ""
            return f", which looks like {name}{multiply}"
    return ""
