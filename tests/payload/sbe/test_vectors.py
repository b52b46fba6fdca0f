"""Schemas and messages that nobody here wrote."""

import json
from pathlib import Path

import pytest

from lab.conformance import Report, run
from tests.payload.sbe.deribit import deribit_schema
from tests.shared import shared
from udpfast.net.pcap import CaptureReader
from udpfast.payload.sbe.schema import Schema
from udpfast.wire.framing import Framing

CAR = {
    "serialNumber": 1234,
    "modelYear": 2013,
    "available": "T",
    "code": "A",
    "someNumbers": [1, 2, 3, 4],
    "vehicleCode": "abcdef",
    "extras": {"cruiseControl", "sportsPack"},
    "discountedModel": "C",
    "engine": {
        "capacity": 2000,
        "numCylinders": 4,
        "maxRpm": 9000,
        "manufacturerCode": "123",
        "fuel": "Petrol",
        "efficiency": 35,
        "boosterEnabled": "T",
        "booster": {"BoostType": "NITROUS", "horsePower": 200},
    },
    "fuelFigures": [
        {"speed": 30, "mpg": 35.9, "usageDescription": "Urban Cycle"},
        {"speed": 55, "mpg": 49.0, "usageDescription": "Combined Cycle"},
        {"speed": 75, "mpg": 40.0, "usageDescription": "Highway Cycle"},
    ],
    "performanceFigures": [
        {
            "octaneRating": octane,
            "acceleration": [
                {"mph": mph, "seconds": seconds}
                for mph, seconds in zip((30, 60, 100), times, strict=True)
            ],
        }
        for octane, times in ((95, (4.0, 7.5, 12.2)), (99, (3.8, 7.1, 11.8)))
    ],
    "manufacturer": "Honda",
    "model": "Civic VTi",
    "activationCode": "abcdef",
}


def test_all_shared_schemas_and_messages_pass() -> None:
    report = Report()
    run(shared("sbe"), report)
    assert [line for line in report.lines if line.startswith("FAILED")] == []
    assert report.passed >= 138


def test_golden_car_is_made_of_its_values_to_the_byte() -> None:
    schema = Schema(shared("sbe", "schemas", "car.xml"))
    raw = shared("sbe", "car_baseline.sbe").read_bytes()
    assert schema.encode("Car", CAR) == raw
    decoded = schema.decode(raw)
    assert [row["mpg"] for row in decoded["fuelFigures"]] == pytest.approx([35.9, 49.0, 40.0])
    assert decoded["fuelFigures"][0]["usageDescription"] == "Urban Cycle"
    for name in CAR.keys() - {"fuelFigures", "performanceFigures"}:
        assert decoded[name] == CAR[name]


@pytest.mark.parametrize(
    ("capture", "messages", "rows"),
    [("cme_mdp3_v1.6_ab.pcapng.gz", 20_546, 32_596), ("cme_mdp3_v1.9_ab.pcap", 194, 1_315)],
)
def test_captures_of_cme_are_walked_to_the_last_byte(
    capture: str, messages: int, rows: int
) -> None:
    schema = Schema(shared("sbe", "schemas", "FixBinary.xml"))
    with CaptureReader(shared("data", "pcap", capture)) as reader:
        payloads = [datagram.payload for datagram in reader]
    framing = Framing("cme_mdp3")
    single = [m.data[2:] for payload in payloads for m in framing.messages(payload)]
    units = [payload[framing.units(payload)[0].offset :] for payload in payloads]
    for found in (schema.rows(single), schema.rows(units, framing="cme_mdp3")):
        assert found.counts == {"sound": messages}
        assert sum(found.count(path) for path in found if "." in path) == rows
    for raw in single[:200]:
        decoded = schema.decode(raw)
        if decoded.version == schema.model.version:
            assert schema.encode(decoded.name, decoded) == raw


def test_capture_of_deribit_is_walked_to_the_last_byte(tmp_path: Path) -> None:
    schema = deribit_schema(tmp_path)
    with CaptureReader(shared("data", "pcap", "deribit_sbe_v1.6.pcapng.gz")) as reader:
        units = [datagram.payload[8:] for datagram in reader]
    rows = schema.rows(units, framing="deribit_sbe")
    assert set(rows.counts) == {"sound"}
    assert list(rows.damage()) == []
    document = json.loads(shared("venues", "expected.json").read_text())
    (truth,) = [case for case in document["files"] if case["framing"] == "deribit_sbe"]
    counts = {name: rows.count(name) for name in schema.messages}
    assert {name: count for name, count in counts.items() if count} == truth["messages"]
    assert rows.count("trades.rows") == truth["totals"]["trades"]
    assert schema.table(rows, "book.rows").num_rows == rows.count("book.rows") > 1_000
