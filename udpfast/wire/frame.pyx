"""Parse the header of a Roq datagram in Python: the reference result for other parsers."""

from typing import NamedTuple

from udpfast.core.counter import VERDICTS

__all__ = ["ParsedFrame", "frame_parse"]

_REVISIONS = {"current": REVISION_CURRENT, "legacy": REVISION_LEGACY}
_BYTEORDERS = {"little": False, "big": True}


class ParsedFrame(NamedTuple):
    """The header of one datagram (docs/protocol.md), with an error and warnings.

    `error` is None, or the label of the verdict that refuses the datagram. Fields are 0 if the
    datagram is shorter than a header. `warnings` do not refuse it: `unused_bits_set`,
    `encoding_not_decodable` (a payload that is neither native nor FlatBuffers),
    `empty_final_fragment`.
    """

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
    data: bytes, *, revision: str = "current", byteorder: str = "little",
) -> ParsedFrame:
    """Read the header of one datagram, whatever its encoding.

    Parameters
    ----------
    data : bytes
        The datagram as received: header and payload.
    revision : {"current", "legacy"}
        In the legacy revision the whole first byte is the encoding.
    byteorder : {"little", "big"}
        Byte order of the header.

    Raises
    ------
    KeyError
        `revision` or `byteorder` has another value.
    """
    cdef FrameReader reader
    cdef Frame frame
    cdef const uint8_t* bytes_ = data
    cdef int revision_ = _REVISIONS[revision]
    cdef int verdict
    memset(&frame, 0, sizeof(Frame))
    frame_reader_init(&reader, revision_, _BYTEORDERS[byteorder], <uint64_t>0)
    verdict = frame_read(&reader, bytes_, <uint32_t>len(data), 0, &frame)
    if verdict == VERDICT_ENCODING_REFUSED:      # depends on settings, not on the frame
        verdict = VERDICT_DELIVERED
    traits = reader.traits[frame.control]
    encoding = frame_encoding(frame.control, revision_)
    warnings = []
    if traits & FRAME_UNUSED_BITS:
        warnings.append("unused_bits_set")
    if encoding not in (ENCODING_NATIVE, ENCODING_FLATBUFFERS) and len(data) > FRAME_SIZE:
        warnings.append("encoding_not_decodable")
    if frame.fragment_max and frame.fragment == frame.fragment_max and len(data) == FRAME_SIZE:
        warnings.append("empty_final_fragment")
    return ParsedFrame(
        error=None if verdict == VERDICT_DELIVERED else VERDICTS[verdict].name,
        encoding=encoding,
        snapshot=bool(traits & FRAME_SNAPSHOT),
        unused_bits=frame.control >> 5 if revision_ == REVISION_CURRENT else 0,
        fragment=frame.fragment,
        fragment_max=frame.fragment_max,
        object_type=frame.object_type,
        object_id=frame.object_id,
        session_id=frame.session_id,
        seqno=frame.seqno,
        last_seqno=frame.last_seqno,
        payload_size=max(0, len(data) - FRAME_SIZE),
        warnings=tuple(warnings),
    )
