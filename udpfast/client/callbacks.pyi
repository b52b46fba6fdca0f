from typing import final

from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind

__all__ = ["CALLBACK_NAMES", "Callbacks"]

CALLBACK_NAMES: dict[Kind, str]

@final
class Callbacks:
    @property
    def reader(self) -> Reader: ...
    @property
    def books(self) -> Books | None: ...
    def __init__(self, reader: Reader, strategy: object, *, books: Books | None = None) -> None: ...
    def run(self) -> int: ...
    def poll(self, timeout: float | None = None) -> int: ...
    def stop(self) -> None: ...
