"""SHA-256 and HMAC by instruction and in plain C: the published vectors, and those of hashlib."""

import hashlib
import hmac
import random

import pytest

from udpfast.core.sha256 import hmac_sha256, sha256

#: FIPS 180-2, B.1 to B.3, and the empty message.
VECTORS = [
    (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (
        b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ),
    (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
]

#: RFC 4231, 4.2 to 4.8, without the truncated one: keys shorter and longer than a block.
HMAC_VECTORS = [
    (
        b"\x0b" * 20,
        b"Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    (
        b"Jefe",
        b"what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    (
        b"\xaa" * 20,
        b"\xdd" * 50,
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
    ),
    (
        bytes(range(1, 26)),
        b"\xcd" * 50,
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
    ),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. "
        b"The key needs to be hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    ),
]

BOTH_WAYS = pytest.mark.parametrize("arithmetic", [False, True])


@BOTH_WAYS
@pytest.mark.parametrize(("content", "expected"), VECTORS)
def test_sha256_of_published_vectors(content: bytes, expected: str, arithmetic: bool) -> None:
    assert sha256(content, arithmetic=arithmetic).hex() == expected


@BOTH_WAYS
def test_sha256_of_any_size_in_any_pieces_is_that_of_hashlib(arithmetic: bool) -> None:
    rng = random.Random(1)
    for size in range(520):
        content = rng.randbytes(size)
        pieces = [rng.randrange(140) for _ in range(rng.randrange(5))]
        found = sha256(content, pieces, arithmetic=arithmetic)
        assert found == hashlib.sha256(content).digest(), (size, pieces)


@pytest.mark.parametrize(("key", "content", "expected"), HMAC_VECTORS)
def test_hmac_of_published_vectors(key: bytes, content: bytes, expected: str) -> None:
    assert hmac_sha256(key, content).hex() == expected


def test_hmac_by_keys_of_any_size_is_that_of_hashlib() -> None:
    rng = random.Random(2)
    for size in range(1, 200):
        key, content = rng.randbytes(size), rng.randbytes(rng.randrange(300))
        assert hmac_sha256(key, content) == hmac.digest(key, content, "sha256"), size
