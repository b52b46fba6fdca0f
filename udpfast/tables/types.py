"""Types that more than one table has."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

__all__ = ["Core", "Idle", "Name", "PowerOfTwo"]

Core = Annotated[int, Meta(ge=0)]
Idle = Literal["spin", "yield", "backoff", "sleep"]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,32}$")]
PowerOfTwo = Annotated[int, Meta(ge=16, le=1 << 40)]
