"""The decoder's short path for books, tops of book and trades says what the general one says."""

import random

import numpy as np
import pytest

from lab.mutate import mutated
from lab.paths import DecodePaths
from tests.payload.roq import golden
from udpfast.core.layout import Kind
from udpfast.payload.roq.decode import Outcome
from udpfast.payload.roq.encode import encode_book, encode_top_of_book, encode_trades
from udpfast.payload.roq.event import encode_event

NAN = float("nan")
HOT = {Kind.BOOK, Kind.TOP_OF_BOOK, Kind.TRADES}


def levels(rng: random.Random) -> list[dict] | None:
    if rng.random() < 0.2:
        return None
    rich = rng.random() < 0.3
    rows = []
    for _ in range(rng.choice((0, 1, 2, 5, 30))):
        row = {"price": rng.choice((NAN, 0.0, rng.random(), rng.random(), rng.random()))}
        row["quantity"] = rng.choice((0.0, rng.random()))
        if rich:
            row["implied_quantity"] = rng.choice((0.0, rng.random()))
            row["price_level"] = rng.choice((0, 7))
            row["number_of_orders"] = rng.choice((0, 0xFFFF))
            row["update_action"] = rng.choice((0, 3))
        rows.append({key: value for key, value in row.items() if rng.random() < 0.95})
    return rows


def event(rng: random.Random) -> bytes:
    """Return a random event of a hot type: any field may be absent."""
    name = rng.choice(("MarketByPriceUpdate", "MarketByPriceUpdate", "TopOfBook", "TradeSummary"))
    value = {
        "stream_id": rng.randrange(1 << 16),
        "exchange": "x" * rng.choice((0, 1, 4, 7, 8, 9, 16, 17, 121)),
        "symbol": f"{rng.randrange(50)}" * rng.randrange(8),
        "exchange_time_utc": rng.randrange(-(1 << 63), 1 << 63),
        "exchange_sequence": rng.randrange(1 << 64),
        "sending_time_utc": rng.randrange(1 << 60),
        "price_precision": rng.randrange(16),
        "quantity_precision": rng.randrange(16),
    }
    if name == "MarketByPriceUpdate":
        value |= {"bids": levels(rng), "asks": levels(rng), "max_depth": rng.randrange(100)}
        value["update_type"] = rng.randrange(4)
    elif name == "TopOfBook":
        value["update_type"] = rng.randrange(4)
        prices = ("bid_price", "bid_quantity", "ask_price", "ask_quantity")
        value["layer"] = {key: rng.random() for key in prices if rng.random() < 0.8}
    else:
        value["trades"] = [
            {
                "side": rng.randrange(3),
                "price": rng.random(),
                "quantity": rng.random(),
                "trade_id": "1" * rng.choice((0, 5, 40, 41)),
                "taker_order_id": "é" * rng.choice((0, 5, 18, 19)),
                "maker_order_id": rng.choice((None, "m")),
            }
            for _ in range(rng.randrange(4))
        ]
    value = {key: item for key, item in value.items() if item is not None and rng.random() < 0.95}
    document = {"value_name": name, "value": value}
    if rng.random() < 0.8:
        names = ("seqno", "send_time_utc", "create_time_utc", "send_time", "create_time")
        document["source_info"] = {
            name: rng.randrange(1, 1 << 64) for name in names if rng.random() < 0.95
        }
    return encode_event(document)


def at_its_end(payload: bytes) -> memoryview:
    """Return a copy whose memory ends with it: a sanitizer sees the first byte beyond."""
    return np.frombuffer(payload, np.uint8).copy().data


def test_paths_agree_on_every_golden_payload_and_every_room():
    paths = DecodePaths()
    for _ in range(2):  # again, with what the first time taught
        for case in golden.payloads() + golden.random_payloads() + golden.damaged():
            paths.decode(bytes.fromhex(case["hex"]))
    payload = bytes.fromhex(golden.named("mbp_incremental")["hex"])
    results = {paths.decode(payload, room=room) for room in range(0, 400, 8)}
    assert results == {Outcome.ROOM, Kind.BOOK}


@pytest.mark.parametrize("seed", range(4))
def test_paths_agree_on_random_events(seed):
    rng = random.Random(seed)
    paths = DecodePaths(names_max=40)
    kinds = {paths.decode(at_its_end(event(rng))) for _ in range(1500)}
    assert kinds == HOT, f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_paths_agree_on_damaged_events(seed):
    rng = random.Random(seed)
    paths = DecodePaths()
    valid = [event(rng) for _ in range(40)]
    for bids in ([(1.0, 2.0)] * 5, [(1.0, 0.0), (NAN, 1.0)], None):
        valid.append(bytes(encode_book("e", "symbol", bids=bids, asks=[(3.0, 1.0), (4.0, 0.0)])))
    valid.append(bytes(encode_top_of_book("exchange", "s", bid_price=1.0, ask_quantity=2.0)))
    valid.append(bytes(encode_trades("e", "s", [(1, 2.0, 3.0, "id"), (2, 3.0, 4.0)])))
    results = []
    for _ in range(6000):
        payload = rng.choice(valid)
        if rng.random() < 0.9:
            payload = mutated(payload, valid, rng)
        results.append(paths.decode(at_its_end(payload)))
    assert set(results) >= HOT | {Outcome.REFUSED}, f"seed {seed}"


@pytest.mark.parametrize("seed", range(2))
def test_paths_agree_on_every_single_byte_changed(seed):
    rng = random.Random(seed)
    paths = DecodePaths()
    book = encode_book("venue", "SYMBOL", bids=[(1.0, 2.0), (0.5, 0.0)], asks=[(3.0, 1.0)])
    for payload in (bytes(book), event(rng)):
        for place in range(len(payload)):
            for byte in (0, 1, 4, 0x7F, 0x80, 0xFF, payload[place] ^ 1 << rng.randrange(8)):
                paths.decode(at_its_end(payload[:place] + bytes([byte]) + payload[place + 1 :]))
        for size in range(len(payload)):
            paths.decode(at_its_end(payload[:size]))


def test_paths_refuse_a_vtable_of_zeros_whatever_is_known():
    """Nothing is remembered yet, or only one kind of levels: memory of zeros fits no vtable."""
    full = bytes(encode_book("e", "s", bids=[(1.0, 2.0)], asks=[(3.0, 4.0)]))
    removal = bytes(encode_book("e", "s", bids=[(1.0, 0.0)], asks=[(3.0, 0.0)]))
    vtable = full.index(b"\x08\0\x14\0")
    damaged = full[:vtable] + bytes(8) + full[vtable + 8 :]
    for known in ([], [removal], [full], [full, removal]):
        paths = DecodePaths()
        assert {paths.decode(at_its_end(payload)) for payload in known} <= {Kind.BOOK}
        assert paths.decode(at_its_end(damaged)) == Outcome.REFUSED


@pytest.mark.parametrize("seed", range(2))
def test_paths_agree_on_levels_laid_out_in_any_way(seed):
    """Offsets that no encoder chose: what is remembered of levels pushes each other out."""
    rng = random.Random(seed)
    paths = DecodePaths()
    sides = {
        "bids": [(1.0, 2.0), (2.0, 0.0), (3.0, 4.0), (4.0, 0.0)] * 3,
        "asks": [(5.0, 6.0)] * 20,
    }
    payload = bytearray(encode_book("venue", "SYMBOL", **sides))
    tables = {}
    for vtable in (b"\x08\0", b"\x06\0"):
        found = [
            at
            for at in range(88, len(payload) - 8, 2)
            if payload[at : at + 2] == vtable and payload[at + 3] == 0 and payload[at + 4] == 4
        ]
        tables[vtable] = found[0]
    results = []
    for _ in range(1500):
        for vtable, at in tables.items():
            for field in range(len(vtable) // 2 + (vtable[0] == 8)):
                payload[at + 4 + 2 * field] = rng.choice((0, *range(4, 13)))
        results.append(paths.decode(at_its_end(bytes(payload))))
    assert results.count(Kind.BOOK) > 1000, f"seed {seed}"
