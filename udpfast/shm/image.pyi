import os
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from udpfast.shm.region import Region

__all__ = ["IMAGE_KIND", "Image", "ImageView", "image_path"]

IMAGE_KIND: str

class Image:
    @property
    def region(self) -> Region: ...
    @staticmethod
    def create(
        path: str | os.PathLike[str], slots: int, size_bytes: int, entry_hash: int
    ) -> Image: ...
    def put(self, slot: int, entry: Buffer) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class ImageView:
    @property
    def region(self) -> Region: ...
    @staticmethod
    def attach(path: str | os.PathLike[str], entry_hash: int) -> ImageView: ...
    @property
    def slots(self) -> int: ...
    def entry(self, slot: int) -> bytes | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def image_path(path: str | os.PathLike[str]) -> Path: ...
