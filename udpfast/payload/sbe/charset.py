"""Text in any `characterEncoding`: bytes to characters and back, whatever the bytes are.

Python's own `surrogateescape` is for encodings that contain ASCII: it has no character for an
invalid byte below 0x80 (the odd byte at the end of UTF-16), and UTF-16 does not encode the
characters that it has.
"""

from __future__ import annotations

import codecs
import re

from udpfast.errors import FormatError, shown

__all__ = ["decoded", "encoded", "has_texts", "legible", "trimmed"]

#: An invalid byte becomes this code point plus the byte: a low surrogate, which no text contains.
_ESCAPE = 0xDC00
_ESCAPES = re.compile("([\udc00-\udcff]+)")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Python lists these among its text encodings, but they are notations of Python or DNS.
_NOTATIONS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")
_ERRORS = "udpfast.escape"


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(chr(_ESCAPE + byte) for byte in wrong), error.end


codecs.register_error(_ERRORS, _escape)


def has_texts(codec: codecs.CodecInfo) -> bool:
    """Return whether a codec is an encoding of characters, with which any bytes can be read."""
    is_text = getattr(codec, "_is_text_encoding", True)
    return bool(is_text) and codec.name.replace("-", "_") not in _NOTATIONS


def decoded(raw: bytes, codec: str) -> str:
    """Return characters. Bytes that are invalid in the encoding become U+DC00 plus the byte."""
    return raw.decode(codec, _ERRORS)


def trimmed(raw: bytes, codec: str) -> str:
    """Return the characters of a fixed field, without the zero bytes that pad it."""
    # If the field's size is not a multiple of a character's, the last zeros are invalid bytes.
    return decoded(raw, codec).rstrip("\0\udc00")


def legible(text: str) -> str:
    """Return valid Unicode, which Arrow requires: an invalid byte becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def encoded(text: str, codec: str, where: str) -> bytes:
    """Return the bytes of a text, with invalid bytes as `decoded` found them.

    Raises
    ------
    FormatError
        A character is not in the encoding.
    """
    try:
        if not _ESCAPES.search(text):
            return text.encode(codec)
        # One encoder for all pieces, so that a byte order mark is written only once.
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
