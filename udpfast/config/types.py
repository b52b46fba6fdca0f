"""Types that more than one table has."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import HOST_ADDRESS, HOST_NAME, NAME, PATH

__all__ = ["CORE_MAX", "Core", "FilePath", "HostAddress", "HostName", "Idle", "Name"]

#: Linux has 8192 processors at most.
CORE_MAX = 8191
Core = Annotated[int, Meta(ge=0, le=CORE_MAX)]
FilePath = Annotated[str, Meta(extra=PATH.extra)]
HostAddress = Annotated[str, Meta(extra=HOST_ADDRESS.extra)]
HostName = Annotated[str, Meta(extra=HOST_NAME.extra)]
Idle = Literal["spin", "yield", "backoff", "sleep"]
Name = Annotated[str, Meta(extra=NAME.extra)]
