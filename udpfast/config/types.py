"""Types that several tables use."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from udpfast.config.checks import HOST_ADDRESS, HOST_NAME, NAME, PAGES, PATH

__all__ = [
    "CORE_MAX",
    "Core",
    "FilePath",
    "HostAddress",
    "HostName",
    "Idle",
    "Name",
    "RestartFirst",
    "RestartLongest",
    "RestartSteady",
    "SegmentBytes",
    "SnapshotInterval",
    "SnapshotRate",
    "SyncInterval",
]

#: Linux supports at most 8192 processors.
CORE_MAX = 8191
Core = Annotated[int, Meta(ge=0, le=CORE_MAX)]
FilePath = Annotated[str, Meta(extra=PATH.extra)]
HostAddress = Annotated[str, Meta(extra=HOST_ADDRESS.extra)]
HostName = Annotated[str, Meta(extra=HOST_NAME.extra)]
Idle = Literal["spin", "yield", "backoff", "sleep"]
Name = Annotated[str, Meta(extra=NAME.extra)]
RestartFirst = Annotated[
    int,
    Meta(
        ge=1,
        le=60_000,
        description="ms until what failed is started again; doubles with each further failure",
    ),
]
RestartLongest = Annotated[
    int, Meta(ge=1, le=3_600_000, description="longest wait before a restart, ms")
]
RestartSteady = Annotated[
    int,
    Meta(
        ge=1,
        le=86_400_000,
        description="ms without a failure after which the wait is restart_first_ms again",
    ),
]
SegmentBytes = Annotated[
    int,
    Meta(
        ge=1 << 18,
        le=1 << 30,
        description="bytes of records in one file, a multiple of 4096; the disk space is "
        "allocated in advance",
        extra=PAGES.extra,
    ),
]
SnapshotInterval = Annotated[
    int, Meta(ge=1, le=3_600_000, description="ms between the starts of two snapshot rounds")
]
SnapshotRate = Annotated[
    int,
    Meta(
        ge=1,
        le=1_000_000_000,
        description="limit of the rate of snapshot rounds, datagrams per second",
    ),
]
SyncInterval = Annotated[
    int, Meta(ge=1, le=3_600_000, description="ms between two syncs to the disk")
]
