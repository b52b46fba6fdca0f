"""The SHA-256 of records depends on their contents, not on their positions."""

import hashlib

import numpy as np
import pytest

from udpfast.core.layout import RECORD, Kind
from udpfast.log.record_hash import RecordHash


def records_of(payloads):
    """Return headers, offsets and payloads of some records, padded to 8 bytes each."""
    headers = np.zeros(len(payloads), RECORD)
    headers["length"] = [64 + len(payload) for payload in payloads]
    headers["kind"] = 1
    headers["published_ns"] = np.arange(len(payloads))
    padded = [payload + b"#" * (-len(payload) % 8) for payload in payloads]
    offsets = np.cumsum([0] + [len(each) for each in padded[:-1]]).astype(np.uint64)
    return headers, offsets, np.frombuffer(b"".join(padded), np.uint8)


def hash_of(headers, offsets, payloads):
    """Return the hash of records added at once."""
    content = RecordHash()
    content.add(headers, offsets, payloads)
    assert content.records == len(headers)
    return content.hexdigest()


def test_record_hash_is_the_sha256_of_header_and_payload():
    headers, offsets, payloads = records_of([b"one", b"", b"three"])
    plain = b"".join(
        header.tobytes() + payload
        for header, payload in zip(headers, (b"one", b"", b"three"), strict=True)
    )
    assert hash_of(headers, offsets, payloads) == hashlib.sha256(plain).hexdigest()


def test_record_hash_does_not_depend_on_place_or_batches():
    headers, offsets, payloads = records_of([b"one", b"two", b"three"])
    expected = hash_of(headers, offsets, payloads)
    moved = headers.copy()
    moved["position"], moved["index"], moved["checksum"] = 7, [4, 5, 6], 9
    assert hash_of(moved, offsets, payloads) == expected
    content = RecordHash()
    for i in range(3):
        content.add(headers[i : i + 1], offsets[i : i + 1], payloads)
    assert content.hexdigest() == expected


@pytest.mark.parametrize("field", ["kind", "flags", "received_ns", "published_ns", "line"])
def test_record_hash_depends_on_everything_else(field):
    headers, offsets, payloads = records_of([b"one", b"two"])
    expected = hash_of(headers, offsets, payloads)
    headers[field][1] += 1
    assert hash_of(headers, offsets, payloads) != expected


def test_record_hash_refuses_records_outside_the_payloads():
    headers, offsets, payloads = records_of([b"one"])
    headers["length"] = 1000
    with pytest.raises(ValueError, match="does not lie within"):
        hash_of(headers, offsets, payloads)


def test_record_hash_leaves_out_restarts():
    headers, offsets, payloads = records_of([b"one", b"restart!", b"three"])
    headers["kind"][1] = Kind.RESTART
    content = RecordHash()
    content.add(headers, offsets, payloads)
    content.add(headers[1:2], offsets[1:2], payloads)
    assert content.records == 2
    kept = [0, 2]
    assert content.hexdigest() == hash_of(headers[kept], offsets[kept], payloads)
