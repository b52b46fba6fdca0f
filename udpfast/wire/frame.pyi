from typing import NamedTuple

__all__ = ["ParsedFrame", "frame_parse"]

class ParsedFrame(NamedTuple):
    error: str | None
    encoding: int
    snapshot: bool
    unused_bits: int
    fragment: int
    fragment_max: int
    object_type: int
    object_id: int
    session_id: int
    seqno: int
    last_seqno: int
    payload_size: int
    warnings: tuple[str, ...]

def frame_parse(
    data: bytes, *, revision: str = "current", byteorder: str = "little"
) -> ParsedFrame: ...
