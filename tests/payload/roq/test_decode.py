"""Decoding: every field of every golden payload, and what is counted instead of delivered."""

import json
import random

import numpy as np
import pytest

from tests.payload.roq import golden
from tests.payload.roq.guard import Guarded
from udpfast.core.layout import Kind, RecordFlag
from udpfast.market.names import NameTable
from udpfast.market.updates import view_update
from udpfast.payload.roq.decode import Decoder, Outcome, decode, size_bound
from udpfast.payload.roq.event import MESSAGE_NAMES, encode_event, event_to_dict, update_to_dict

ALL = (1 << 64) - 1
KINDS = {name: kind for kind, name in MESSAGE_NAMES.items()}
WIDTHS = {
    "account": 32,
    "order_id": 36,
    "trade_id": 40,
    "taker_order_id": 36,
    "maker_order_id": 36,
    "label": 32,
    "user": 16,
    "name": 32,
    "description": 128,
    "underlying": 64,
    "time_zone": 32,
    "cfi_code": 16,
}


def cut(value, name=""):
    """Cut the texts of an expectation to their fixed widths."""
    if isinstance(value, dict):
        return {key: cut(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [cut(item) for item in value]
    if isinstance(value, str) and (name in WIDTHS or name.endswith("_currency")):
        return value.encode()[: WIDTHS.get(name, 32)].decode("utf-8", "ignore")
    return value


def test_decode_every_field_of_every_golden_payload():
    names = NameTable()
    seen = set()
    for case in golden.payloads() + golden.random_payloads():
        expect = case["expect"]
        payload = bytes.fromhex(case["hex"])
        result = decode(payload, names, support_mask=ALL)
        kind = KINDS.get(expect["value_name"])
        if kind is None:
            streams = expect["value_name"] == "StreamStatus"
            assert result.kind == (Outcome.STREAM_STATUS if streams else Outcome.OPAQUE)
            continue
        seen.add(kind)
        found = update_to_dict(result.kind, result.payload, names)
        assert found["value"] == cut(expect["value"])
        assert found["source_info"] == expect.get("source_info")
        assert (found["value_type"], found["value_name"]) == (
            expect["value_type"],
            expect["value_name"],
        )
        assert bool(result.truncated) == (cut(expect["value"]) != expect["value"])
        assert (result.flags == RecordFlag.TRUNCATED) == bool(result.truncated)
        assert len(result.payload) <= size_bound(len(payload))
    assert seen == set(MESSAGE_NAMES)


def test_generic_reader_and_encoder_round_trip_every_golden_payload():
    for case in golden.payloads() + golden.random_payloads():
        event = event_to_dict(bytes.fromhex(case["hex"]))
        assert event["value"] == case["expect"]["value"]
        assert event["source_info"] == case["expect"].get("source_info")
        assert event_to_dict(encode_event(event)) == event
        json.dumps(event, allow_nan=False)


def test_decode_at_any_alignment_and_flush_with_its_memory():
    guarded = Guarded(1)
    names = NameTable()
    for case in golden.payloads():
        payload = bytes.fromhex(case["hex"])
        expected = decode(payload, names)
        assert decode(guarded.at_end(payload), names) == expected
        for shift in range(1, 8):
            moved = np.zeros(len(payload) + shift, np.uint8)
            moved[shift:] = np.frombuffer(payload, np.uint8)
            assert decode(moved[shift:], names) == expected


def event(name: str, **value) -> bytes:
    return encode_event({"value_name": name, "value": value})


def test_decode_masks_what_the_gateway_supports():
    payload = event("GatewayStatus", supported=ALL, available=3)
    result = decode(payload, NameTable())
    header = view_update(result.kind, result.payload).header
    assert header["supported"] == 0xFF
    assert header["supported_by_origin"] == ALL
    masked = view_update(
        Kind.GATEWAY_STATUS, decode(payload, NameTable(), support_mask=0x67).payload
    )
    assert masked.header["supported"] == 0x67


def test_decode_event_without_value_is_none():
    payload = bytearray(event("TopOfBook", stream_id=1))
    payload[payload.index(bytes([15]))] = 0
    assert decode(bytes(payload), NameTable()).kind is Outcome.NONE


def test_decode_needs_exactly_its_size_of_room():
    payload = event("MarketByPriceUpdate", bids=[{"price": 1.0}] * 3, asks=[])
    exact = 96 + 3 * 32
    assert decode(payload, NameTable(), room=exact - 1).kind is Outcome.ROOM
    result = decode(payload, NameTable(), room=exact)
    assert (result.kind, len(result.payload)) == (Kind.BOOK, exact)


def test_decode_into_writes_what_decode_returns_and_nothing_beyond_the_room():
    decoder, names = Decoder(NameTable()), NameTable()
    for case in golden.payloads():
        payload = bytes.fromhex(case["hex"])
        expected = decode(payload, names)
        into = np.full(size_bound(len(payload)), 0xAA, np.uint8)
        assert decoder.decode_into(payload, into) == expected.kind
        assert into[: len(expected.payload)].tobytes() == expected.payload
    payload = event("MarketByPriceUpdate", bids=[{"price": 1.0}] * 3, asks=[])
    into = np.full(96 + 3 * 32, 0xAA, np.uint8)
    assert decoder.decode_into(payload, into[:-1]) == Outcome.ROOM
    assert into[-1] == 0xAA
    assert decoder.decode_into(payload, into) == Kind.BOOK
    assert into[-1] == 0
    with pytest.raises(ValueError, match="131072"):
        decoder.decode_into(bytes(131073), into)
    with pytest.raises(BufferError):
        decoder.decode_into(payload, bytes(into))


def test_decode_leaves_absent_sides_apart_from_empty_ones():
    names = NameTable()
    for bids, asks in ((None, []), ([], None), (None, None), ([], [])):
        result = decode(event("MarketByPriceUpdate", bids=bids, asks=asks), names)
        value = update_to_dict(result.kind, result.payload, names)["value"]
        assert (value["bids"], value["asks"]) == (bids, asks)


def test_decode_cuts_texts_at_a_character():
    names = NameTable()
    result = decode(event("CustomMetricsUpdate", user="é" * 9, label="x" * 32), names)
    value = update_to_dict(result.kind, result.payload, names)["value"]
    assert value["user"] == "é" * 8
    assert value["label"] == "x" * 32
    assert (result.truncated, result.flags) == (1, RecordFlag.TRUNCATED)
    odd = decode(event("CustomMetricsUpdate", user="a" + "é" * 9), names)
    assert update_to_dict(odd.kind, odd.payload, names)["value"]["user"] == "a" + "é" * 7


def test_decode_with_a_full_name_table_counts_and_goes_on():
    names = NameTable(capacity=1)
    result = decode(event("MarketStatus", exchange="e", symbol="s", stream_id=7), names)
    assert (result.exchange_id, result.symbol_id, result.names_full) == (1, 0, 1)
    assert view_update(result.kind, result.payload).header["stream_id"] == 7


def test_decode_says_its_object_names():
    names = NameTable()
    result = decode(event("TopOfBook", exchange="e", symbol="s"), names)
    assert (names[result.exchange_id], names[result.symbol_id]) == ("e", "s")
    assert result.message_type == 15
    again = decode(event("TopOfBook", exchange="e", symbol="s"), names)
    assert again == result


@pytest.mark.parametrize("type_code", [52, 200, 255])
def test_decode_type_beyond_the_schema_is_unknown(type_code):
    payload = bytearray(event("TopOfBook", stream_id=1))
    payload[payload.index(bytes([15]))] = type_code
    result = decode(bytes(payload), NameTable())
    assert (result.kind, result.message_type) == (Outcome.UNKNOWN, type_code)


def test_decode_payload_larger_than_a_message_is_refused():
    with pytest.raises(ValueError, match="131072"):
        decode(bytes(131073), NameTable())


@pytest.mark.parametrize("seed", range(2))
def test_decoder_that_remembers_vtables_agrees_with_one_that_does_not(seed):
    """Mutations hit vtables too: what was learned from one payload must not excuse the next."""
    chance = random.Random(seed)
    guarded = Guarded(1)
    names = NameTable(capacity=1000)
    remembering = Decoder(names)
    cases = [bytes.fromhex(case["hex"]) for case in golden.payloads() + golden.random_payloads()]
    cases = [case for case in cases if len(case) <= guarded.size]
    decoded = 0
    for _ in range(6000):
        payload = bytearray(chance.choice(cases))
        for _ in range(chance.randint(0, 3)):
            payload[chance.randrange(min(len(payload), 200))] = chance.choice((0, 4, 6, 8, 255))
        place = guarded.at_end(payload)
        result = remembering.decode(place)
        assert result == decode(place, names)
        decoded += result.kind > 0
    assert decoded > 400


def test_decode_levels_of_many_vtables_keeps_each_apart():
    """More kinds of levels than the decoder remembers, in turns."""
    fields = ("price", "quantity", "implied_quantity", "price_level", "number_of_orders")
    levels = [
        {
            name: float(i + 1) if bit < 3 else i + 1
            for bit, name in enumerate(fields)
            if i >> bit & 1
        }
        for i in range(32)
    ]
    chance = random.Random(3)
    names = NameTable()
    decoder = Decoder(names)
    for _ in range(20):
        chosen = [chance.choice(levels) for _ in range(60)]
        payload = event("MarketByPriceUpdate", bids=chosen[:40], asks=chosen[40:])
        result = decoder.decode(payload)
        found = update_to_dict(result.kind, result.payload, names)
        assert found["value"] == event_to_dict(payload)["value"]
        assert [level["price"] for level in found["value"]["bids"]] == [
            level.get("price", "nan") for level in chosen[:40]
        ]


def test_decode_of_a_name_too_long_for_the_table_names_nothing():
    names = NameTable()
    result = decode(event("MarketStatus", exchange="e", symbol="s" * 121, stream_id=7), names)
    assert (result.exchange_id, result.symbol_id) == (1, 0)
    assert (result.names_long, result.names_full) == (1, 0)
    assert result.flags is RecordFlag.TRUNCATED
    assert len(names) == 1


def test_decode_keeps_measurements_apart_that_share_a_beginning():
    rows = [{"name": "latency_in", "value": 1.0}, {"name": "latency_out", "value": 2.0}]
    names = NameTable()
    result = decode(event("CustomMetricsUpdate", measurements=rows), names)
    value = update_to_dict(result.kind, result.payload, names)["value"]
    assert value["measurements"] == rows
    assert result.truncated == 0


def test_decode_of_a_type_without_its_value_is_refused():
    payload = bytearray(event("MarketByPriceUpdate", exchange="e", symbol="s"))
    root = int.from_bytes(payload[:4], "little")
    vtable = root - int.from_bytes(payload[root : root + 4], "little", signed=True)
    payload[vtable + 8 : vtable + 10] = bytes(2)  # the third field of Event
    assert decode(bytes(payload), NameTable()).kind is Outcome.REFUSED
