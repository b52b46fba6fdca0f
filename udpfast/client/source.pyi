from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PolledSource", "Source", "open_source"]

class Source:
    @property
    def origin(self) -> str: ...
    @property
    def directory(self) -> Path | None: ...
    @property
    def headers_array(self) -> NDArray[Any]: ...
    @property
    def offsets_array(self) -> NDArray[np.uint64]: ...
    @property
    def payloads_array(self) -> NDArray[np.uint8]: ...

class PolledSource(Source): ...

def open_source(
    address: str | list[str] | tuple[str, ...],
    *,
    start: str | datetime | int | tuple[str, int] | None,
    batch: int,
    buffer_bytes: int | None,
    timeout: float | None,
    name: str,
    image: bool = False,
    end: str | datetime | int | tuple[str, int] | None = None,
) -> Source: ...
