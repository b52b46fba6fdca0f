"""A parser of published datagrams that shares no code with the publisher."""

import struct
from typing import NamedTuple


class Parsed(NamedTuple):
    encoding: int
    snapshot: bool
    fragment: int
    fragment_max: int
    object_type: int
    object_id: int
    session_id: int
    seqno: int
    last_seqno: int
    payload: bytes


def parse(datagram: bytes, order: str = "<", legacy: bool = False) -> Parsed:
    fields = struct.unpack(order + "BBBBHHII", datagram[:16])
    control = fields[0]
    encoding, snapshot = (control, False) if legacy else (control & 15, bool(control & 16))
    assert legacy or control < 32, f"unused bits are set: {control:#x}"
    return Parsed(encoding, snapshot, *fields[1:], datagram[16:])


def messages(datagrams: list[bytes], **options: object) -> list[Parsed]:
    """Put fragments together that arrive complete and in order."""
    whole, parts = [], []
    for datagram in datagrams:
        parsed = parse(datagram, **options)
        assert parsed.fragment == len(parts)
        assert parsed.fragment == parsed.fragment_max or len(parsed.payload) == 512
        assert not parts or parts[0][1:2] + parts[0][3:9] == parsed[1:2] + parsed[3:9]
        parts.append(parsed)
        if parsed.fragment == parsed.fragment_max:
            whole.append(parsed._replace(payload=b"".join(part.payload for part in parts)))
            parts = []
    assert not parts, "the last message is incomplete"
    return whole
