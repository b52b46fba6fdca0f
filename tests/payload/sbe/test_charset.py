"""Texts of every encoding that Python has: any bytes become characters, and the same bytes."""

import codecs
import encodings
import pkgutil
import random

import pytest

from udpfast.errors import FormatError
from udpfast.payload.sbe.charset import decoded, encoded, has_texts, legible, trimmed

#: Each of their characters has one form in bytes, whatever stands around it.
EXACT = ["ascii", "cp1252", "utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


def names_of_codecs() -> list[str]:
    """Return all encodings of texts that this Python brings."""
    found = []
    for module in pkgutil.iter_modules(encodings.__path__):
        try:
            codec = codecs.lookup(module.name)
        except LookupError:  # a module that is none, or one of another system
            continue
        if has_texts(codec):
            found.append(codec.name)
    return found


def bytes_of_all_sorts(seed: int, count: int) -> list[bytes]:
    """Return random bytes, and those of random texts of UTF-16 and UTF-8 cut anywhere."""
    rng = random.Random(seed)
    found = [rng.randbytes(rng.randint(0, 24)) for _ in range(count)]
    for codec in ("utf-8", "utf-16-le", "utf-32-be", "gb18030"):
        text = "".join(rng.choice("aZ09 äß€中\U0001f600\0") for _ in range(20))
        raw = text.encode(codec)
        found += [raw[rng.randint(0, 9) : rng.randint(0, len(raw))] for _ in range(count)]
    return found


def test_any_bytes_are_read_in_every_encoding() -> None:
    names = names_of_codecs()
    assert len(names) > 80
    for name in names:
        for raw in bytes_of_all_sorts(1, 20):
            text = decoded(raw, name)
            legible(text).encode("utf-8")
            trimmed(raw, name)


@pytest.mark.parametrize("name", EXACT)
def test_any_bytes_come_back(name: str) -> None:
    for raw in bytes_of_all_sorts(2, 200):
        text = decoded(raw, name)
        assert encoded(text, name, "f") == raw
        try:
            assert raw.decode(name) == text
        except UnicodeDecodeError:
            assert "\ufffd" in legible(text)


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("utf-16-le", b"a\0b", "a\udc62"),
        ("utf-16-be", b"\0a\xd8\0", "a\udcd8\udc00"),
        ("utf-32-le", b"a\0\0\0\xff\xff\xff\xff", "a" + "\udcff" * 4),
        ("gb18030", b"a\x81\x30", "a\udc81\udc30"),
        ("ascii", b"\xc3\xa4", "\udcc3\udca4"),
    ],
)
def test_each_invalid_byte_is_a_character_of_its_own(name: str, raw: bytes, text: str) -> None:
    assert decoded(raw, name) == text
    assert encoded(text, name, "f") == raw


@pytest.mark.parametrize("size", range(7, 13))
@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_zeros_that_fill_a_room_are_no_characters(name: str, size: int) -> None:
    raw = "é".encode(name)
    assert trimmed(raw.ljust(size, b"\0"), name) == "é"


def test_byte_order_mark_comes_once() -> None:
    text = "a\udc00\udcd8b"  # half of a pair between two characters
    raw = encoded(text, "utf-16", "f")
    assert raw.count(codecs.BOM_UTF16) == 1
    assert decoded(raw, "utf-16") == text


@pytest.mark.parametrize(
    ("name", "text"), [("ascii", "ä"), ("utf-8", "\udc41"), ("utf-16-le", "\ud800")]
)
def test_text_that_would_come_back_as_another_is_refused(name: str, text: str) -> None:
    with pytest.raises(FormatError, match=f"M.f: expected characters of {name}, found "):
        encoded(text, name, "M.f")


@pytest.mark.parametrize("name", ["unicode_escape", "idna", "punycode", "undefined", "hex"])
def test_notation_is_no_encoding(name: str) -> None:
    assert not has_texts(codecs.lookup(name))
