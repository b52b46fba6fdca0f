"""The verifier: accepts every sound event, and never reads outside, whatever it is given."""

import random
import struct

import pytest

from tests.payload.roq import golden
from tests.payload.roq.guard import Guarded
from udpfast.core.layout import Channel
from udpfast.errors import FormatError
from udpfast.payload.roq.event import encode_event, event_to_dict
from udpfast.payload.roq.flatbuffer import is_expected, is_gated, message_type, verify
from udpfast.payload.roq.schema import MESSAGES

GATED = {
    "MarketByPriceUpdate",
    "MarketByOrderUpdate",
    "ReferenceData",
    "MarketStatus",
    "StatisticsUpdate",
    "CustomMetricsUpdate",
}
INCREMENTAL_ONLY = {"TopOfBook", "TradeSummary", "ExternalLatency"}


def test_verify_accepts_every_golden_payload():
    for case in golden.payloads() + golden.random_payloads():
        payload = bytes.fromhex(case["hex"])
        assert verify(payload) == (case["expect"]["value_type"], 0)
        assert message_type(payload) == case["expect"]["value_type"]


def test_verify_damaged_payloads_as_the_golden_file_says():
    guarded = Guarded(1)
    for case in golden.damaged():
        for place in (guarded.at_end, guarded.at_start):
            payload = place(bytes.fromhex(case["hex"]))
            if case["outcome"] == "reject":
                with pytest.raises(FormatError, match="valid FlatBuffer"):
                    verify(payload)
            elif case["outcome"] == "no_message":
                assert verify(payload)[0] == 0
            elif case["outcome"] == "skip_unknown_type":
                assert verify(payload)[0] == message_type(payload) == 200
            else:
                outcome(payload)


def outcome(payload) -> int:
    """Return the type, or -1 if the verifier refused."""
    try:
        return verify(payload)[0]
    except FormatError:
        return -1


def test_verify_every_truncation_of_golden_payloads_stays_inside():
    guarded = Guarded(1)
    for case in golden.payloads():
        payload = bytes.fromhex(case["hex"])[:1024]
        for size in range(len(payload)):
            outcome(guarded.at_end(payload[:size]))


@pytest.mark.parametrize("seed", range(4))
def test_verify_mutated_payloads_stays_inside_and_agrees_with_the_reader(seed):
    """Reading what was accepted must not fail either: `event_to_dict` follows every offset."""
    chance = random.Random(seed)
    guarded = Guarded(1)
    cases = [bytes.fromhex(case["hex"]) for case in golden.payloads() + golden.random_payloads()]
    cases = [case for case in cases if len(case) <= guarded.size]
    accepted = 0
    for turn in range(4000):
        payload = bytearray(chance.choice(cases))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(payload))
            width = chance.choice((1, 1, 2, 4))
            value = chance.choice((0, 1, 0x7F, 0xFF, chance.getrandbits(8 * width), len(payload)))
            payload[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
        place = guarded.at_end(payload) if turn & 1 else guarded.at_start(payload[: guarded.size])
        type_ = outcome(place)
        peeked = message_type(place)
        if type_ > 0:
            accepted += 1
            assert peeked == type_
            event_to_dict(bytes(place))
    assert accepted > 400


@pytest.mark.parametrize("size", range(9))
def test_verify_short_and_empty_buffers_are_refused(size):
    assert outcome(bytes(size)) == -1
    assert message_type(bytes(size)) == -1


def test_fields_beyond_the_schema_are_counted_and_skipped():
    payload = widened(encode_event({"value_name": "BatchBegin", "value": {}}), extra=3)
    assert verify(payload) == (4, 2)
    assert event_to_dict(payload)["value_name"] == "BatchBegin"


def widened(payload: bytes, extra: int) -> bytes:
    """Append a copy of the Event table whose vtable has more fields, all but one present."""
    root = struct.unpack_from("<I", payload)[0]
    vtable = root - struct.unpack_from("<i", payload, root)[0]
    vtable_size, table_size = struct.unpack_from("<HH", payload, vtable)
    offsets = list(struct.unpack_from(f"<{(vtable_size - 4) // 2}H", payload, vtable + 4))
    offsets += [0] * (3 - len(offsets)) + [4] * (extra - 1) + [0]
    at = len(payload)
    head = struct.pack(f"<HH{len(offsets)}H", 4 + 2 * len(offsets), table_size, *offsets)
    table = bytearray(payload[root : root + table_size])
    table[:4] = struct.pack("<i", len(head))
    moved = at + len(head) - root
    value = offsets[2]  # references count from where they stand, and lead forward only
    target = root + value + struct.unpack_from("<I", payload, root + value)[0]
    inner_vtable = target - struct.unpack_from("<i", payload, target)[0]
    inner = payload[inner_vtable:target] + payload[target : target + 4]
    table[value : value + 4] = struct.pack("<I", len(table) - value + (target - inner_vtable))
    out = payload + head + bytes(table) + inner
    assert moved > 0
    return struct.pack("<I", at + len(head)) + out[4:]


def test_tables_referred_to_twice_are_refused():
    """Sharing would let 4 bytes of payload grow into a row each: no encoder shares tables."""
    levels = [{"price": float(i)} for i in range(64)]
    payload = bytearray(
        encode_event({"value_name": "MarketByPriceUpdate", "value": {"bids": levels}})
    )
    assert verify(payload)[0] == 16
    first = struct.pack("<I", 64)
    at = payload.index(first)
    target = at + 4 + 4 * 63 + struct.unpack_from("<I", payload, at + 4 + 4 * 63)[0]
    grown = payload[:at] + struct.pack("<I", 2000) + bytes(4 * 2000) + payload[at + 4 :]
    for i in range(2000):
        place = at + 4 + 4 * i
        struct.pack_into("<I", grown, place, target + 4 * 2000 - place)
    assert outcome(bytes(grown)) == -1


def test_gated_and_expected_follow_the_table_of_messages():
    for code, name in enumerate(MESSAGES):
        assert is_gated(code) == (name in GATED)
        assert is_expected(code, Channel.INCREMENTAL)
        assert is_expected(code, Channel.SNAPSHOT) == (name not in INCREMENTAL_ONLY)


@pytest.mark.parametrize("end", [0, 1, -1], ids=["behind", "further", "before"])
def test_level_whose_vtable_lies_outside_is_refused(end):
    """A vtable at the very end of the buffer must not pass for one that was seen before."""
    levels = [{"price": float(i)} for i in range(3)]
    sound = encode_event({"value_name": "MarketByPriceUpdate", "value": {"bids": levels}})
    vector = sound.index(struct.pack("<I", 3))
    for i in range(3):
        assert verify(sound)[0] == 16
        place = vector + 4 + 4 * i
        table = place + struct.unpack_from("<I", sound, place)[0]
        payload = bytearray(sound)
        vtable = len(sound) + end if end >= 0 else -1
        struct.pack_into("<i", payload, table, table - vtable)
        assert outcome(Guarded(1).at_end(bytes(payload))) == -1
