"""No decoder of a venue reads behind its message: each ends right before a forbidden page."""

import random
import struct
from itertools import product

import pytest

from lab.guarded_frame import GuardedPayload
from udpfast.config.lines import PAYLOADS

CHANGES_MAX = 4160
#: Where a message has the byte that tells its type.
TYPES_AT = {
    "itch": 0,
    "pitch": 1,
    "csm": 2,
    "ice": 0,
    "miax": 0,
    "iex_tops": 0,
    "iex_deep": 0,
    "iex_deep_plus": 0,
    "memx": 2,
    "nyse_integrated": 2,
    "nyse_imbalances": 2,
}
#: Their types have two bytes.
WIDE = ("nyse_integrated", "nyse_imbalances")
#: Templates of those whose messages are SBE: known ones, and some that are not.
TEMPLATES = {
    "cme": (4, 12, 27, 30, 32, 33, 34, 35, 37, 38, *range(41, 71), 999),
    "deribit": (*range(999, 1012),),
    "coinbase": (*range(20, 35), *range(110, 125)),
    "eobi": (*range(13_098, 13_110), 13_602),
    "b3": (*range(8, 13), *range(49, 58)),
}


def test_every_venue_is_here() -> None:
    assert {*TYPES_AT, *TEMPLATES} == {*PAYLOADS} - {"none", "roq"}


@pytest.mark.parametrize("payload", TYPES_AT)
def test_message_of_any_type_and_size_is_read_within_its_end(payload: str) -> None:
    decoder, chance = GuardedPayload(PAYLOADS.index(payload)), random.Random(payload)
    for kind, size in product(range(256), range(80)):
        data = bytearray(chance.randbytes(size))
        if size > TYPES_AT[payload]:
            data[TYPES_AT[payload]] = kind
        if payload in WIDE and size > TYPES_AT[payload] + 1:
            data[TYPES_AT[payload] + 1] = 0
        assert decoder.decode(bytes(data)) <= CHANGES_MAX


def cme(template: int, block: int, rest: bytes) -> bytes:
    return struct.pack("<HHHHH", 10 + len(rest), block, template, 1, 9) + rest


def deribit(template: int, block: int, rest: bytes) -> bytes:
    return struct.pack("<HHHHHH", block, template, 1, 1, 1, 1) + rest


def coinbase(template: int, block: int, rest: bytes) -> bytes:
    return struct.pack("<HHHHH", 10 + len(rest), block, template, 1201, 2) + rest


def eobi(template: int, block: int, rest: bytes) -> bytes:
    return struct.pack("<HHI", 8 + len(rest), template, 1) + rest


def b3(template: int, block: int, rest: bytes) -> bytes:
    return struct.pack("<HHHHHH", 12 + len(rest), 0xEB50, block, template, 2, 9) + rest


@pytest.mark.parametrize("payload", TEMPLATES)
def test_message_of_any_template_and_block_is_read_within_its_end(payload: str) -> None:
    decoder, chance = GuardedPayload(PAYLOADS.index(payload)), random.Random(payload)
    make = {"cme": cme, "deribit": deribit, "coinbase": coinbase, "eobi": eobi, "b3": b3}[payload]
    header = "<HHHH" if payload == "deribit" else "<HB"
    some = 0
    for template, block in product(TEMPLATES[payload], range(90)):
        root = chance.randbytes(block)
        for _ in range(4):
            entry, count = chance.randrange(64), chance.randrange(4)
            fields = (entry, count, 0, 0) if payload == "deribit" else (entry, count)
            whole = root + struct.pack(header, *fields) + chance.randbytes(entry * count) + b"\0"
            for rest in (whole, whole[:-1], whole[: chance.randrange(len(whole))], root):
                changes = decoder.decode(make(template, block, rest))
                assert changes <= CHANGES_MAX
                some += changes > 0
    assert some > 100
