from collections.abc import Sequence

from typing_extensions import Buffer

__all__ = ["hmac_sha256", "sha256"]

def sha256(content: Buffer, pieces: Sequence[int] = (), *, arithmetic: bool = False) -> bytes: ...
def hmac_sha256(key: Buffer, content: Buffer) -> bytes: ...
