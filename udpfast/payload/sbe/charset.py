"""Texts of any `characterEncoding`: bytes to characters and back, whatever the bytes are.

Python's own `surrogateescape` is for encodings that contain ASCII: it has no character for an
invalid byte below 0x80 (the odd byte at the end of UTF-16), and UTF-16 does not encode what it has.
"""

from __future__ import annotations

import codecs
import re

from udpfast.errors import FormatError, shown

__all__ = ["decoded", "encoded", "has_texts", "legible", "trimmed"]

#: An invalid byte is this code point plus the byte: a low surrogate, which no text has.
_ESCAPE = 0xDC00
_ESCAPES = re.compile("([\udc00-\udcff]+)")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Python lists these among the encodings of texts, but they are notations of its own or of DNS.
_NOTATIONS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
_ERRORS = "udpfast.escape"


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(chr(_ESCAPE + byte) for byte in wrong), error.end


codecs.register_error(_ERRORS, _escape)


def has_texts(codec: codecs.CodecInfo) -> bool:
    """Whether a codec is an encoding of characters, which any bytes can be read with."""
    is_text = getattr(codec, "_is_text_encoding", True)
    return bool(is_text) and codec.name.replace("-", "_") not in _NOTATIONS


def decoded(raw: bytes, codec: str) -> str:
    """Return characters; bytes that are invalid in the encoding become U+DC00 plus the byte."""
    return raw.decode(codec, _ERRORS)


def trimmed(raw: bytes, codec: str) -> str:
    """Return the characters of a fixed room, without the zero bytes that fill it up."""
    # Where the room is no multiple of a character's size, the last zeros are invalid bytes.
    return decoded(raw, codec).rstrip("\0\udc00")


def legible(text: str) -> str:
    """Return Unicode, as Arrow wants it: an invalid byte is shown as U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def encoded(text: str, codec: str, where: str) -> bytes:
    """Return the bytes of a text; the invalid ones of `decoded` as they were.

    Raises
    ------
    FormatError
        A character is not in the encoding.
    """
    try:
        if not _ESCAPES.search(text):
            return text.encode(codec)
        # One encoder for all pieces: a byte order mark comes once.
        encoder = codecs.getincrementalencoder(codec)()
        raw = b"".join(
            bytes(ord(each) - _ESCAPE for each in piece) if i % 2 else encoder.encode(piece, True)
            for i, piece in enumerate(_ESCAPES.split(text))
        )
    except UnicodeError as error:
        raise _wrong(where, codec, str(error)) from None
    if decoded(raw, codec) != text:
        raise _wrong(where, codec, shown(text))
    return raw


def _wrong(where: str, codec: str, found: str) -> FormatError:
    return FormatError(f"{where}: expected characters of {codec}, found {found}")
