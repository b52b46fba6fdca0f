"""What strangers send to a listener or a sender: bytes that are refused, and nothing else."""

import contextlib
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udpfast.errors import FormatError
from udpfast.probe.control import (
    CONTROL_BYTES,
    HEADER,
    Clock,
    Header,
    Hello,
    ProbeKind,
    Refused,
    Report,
    Welcome,
    cookie_of,
    decode_body,
    encode,
    parse_header,
)

HELLO = Hello("127.0.0.1", "fibre", 1000, 128, 1e3, 1, Clock("x", "chrony", True, 5, "text"))


def test_header_and_body_come_back() -> None:
    header = Header(ProbeKind.HELLO, 3, 1 << 63, 7, 9, 11)
    data = encode(header, HELLO, padded=True)
    assert len(data) == CONTROL_BYTES
    assert parse_header(data) == header
    assert decode_body(data, Hello) == HELLO


@given(st.binary(max_size=CONTROL_BYTES + 50))
def test_header_of_any_bytes_is_refused_or_parsed(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_header(data)


@given(st.binary(max_size=200))
def test_body_of_any_bytes_is_refused(body: bytes) -> None:
    data = encode(Header(ProbeKind.HELLO, 0, 1), body)
    for kind in (Hello, Welcome, Refused, Report):
        with pytest.raises(FormatError):
            decode_body(data, kind)


@pytest.mark.parametrize("seed", range(20))
def test_body_with_damage_is_refused_or_within_its_limits(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(encode(Header(ProbeKind.HELLO, 0, 1), HELLO))
    for _ in range(200):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(HEADER.size, len(data))] = chance.randrange(32, 127)
        try:
            found = decode_body(bytes(damaged), Hello)
        except FormatError:
            continue
        assert 1 <= found.probes <= 1 << 26
        assert 64 <= found.size <= 2048


def test_body_nested_deeply_is_refused() -> None:
    with pytest.raises(FormatError):
        decode_body(encode(Header(ProbeKind.HELLO, 0, 1), b"[" * 1000), Hello)


@pytest.mark.parametrize(
    "change", [{"probes": 0}, {"probes": 1 << 27}, {"size": 63}, {"size": 4096}, {"rate": 0.0}]
)
def test_hello_outside_its_limits_is_refused(change: dict[str, float]) -> None:
    text = msgspec.json.encode(msgspec.to_builtins(HELLO) | change)
    with pytest.raises(FormatError):
        decode_body(encode(Header(ProbeKind.HELLO, 0, 1), text), Hello)


def test_encode_too_long_is_refused() -> None:
    with pytest.raises(FormatError):
        encode(Header(ProbeKind.REFUSED, 0, 1), b"x" * CONTROL_BYTES)


def test_cookie_depends_on_all_of_it() -> None:
    cookie = cookie_of(b"secret", ("10.0.0.1", 5), 1, 0)
    others = {
        cookie_of(b"another", ("10.0.0.1", 5), 1, 0),
        cookie_of(b"secret", ("10.0.0.2", 5), 1, 0),
        cookie_of(b"secret", ("10.0.0.1", 6), 1, 0),
        cookie_of(b"secret", ("10.0.0.1", 5), 2, 0),
        cookie_of(b"secret", ("10.0.0.1", 5), 1, 1),
    }
    assert cookie
    assert cookie not in others
    assert cookie_of(b"secret", ("10.0.0.1", 5), 1, 0) == cookie
