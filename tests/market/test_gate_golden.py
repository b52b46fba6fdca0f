"""Objects against `golden/sync.json`: seed 000's decisions, comparisons, and recovery."""

import json

import numpy as np
import pytest

from lab.conformance.sync import admit
from tests.shared import shared
from udpfast.core.layout import GAP, Channel, Kind, ObjectStatus
from udpfast.market.gate import ObjectGate, ObjectOutput, seqno_at_or_before

# Where market/gate decides otherwise than the pseudo-code: an accepted snapshot makes the object
# LIVE, so that the next rounds are not decoded again. And an older one is taken which the first of
# the collected updates names as the one before it: nothing lies between them. (scenario, step):
# included.
DEVIATIONS = {
    ("S3_repeats", 2): False,
    ("S3_repeats", 3): False,
    ("S4_then_S3", 1): True,
    ("S4_then_S3", 3): False,
}


def golden(part: str) -> list[dict]:
    return json.loads(shared("wire", "golden", "sync.json").read_text())[part]


def key_of(name: str) -> tuple[int, int]:
    object_type, object_id = name.split(":")
    return int(object_type), int(object_id)


def applied(outputs: list[ObjectOutput]) -> list[int]:
    return [
        output.seqno
        for output in outputs
        if output.kind == Kind.MESSAGE and output.channel == Channel.INCREMENTAL
    ]


def test_scenarios_include_the_same_snapshots() -> None:
    differences = {}
    compared = 0
    for scenario in golden("scenarios"):
        objects = ObjectGate()
        for number, step in enumerate(scenario["steps"]):
            outputs = admit(objects, step, (step["object_type"], step["object_id"]))
            expected = step["expect"]["include_snapshot"]
            if expected is None:
                continue
            compared += 1
            included = any(
                output.channel == Channel.SNAPSHOT and output.kind == Kind.MESSAGE
                for output in outputs
            )
            if included != expected:
                differences[scenario["name"], number] = included
    assert compared > 20
    assert differences == DEVIATIONS


def test_comparisons_are_those_of_the_circle() -> None:
    for case in golden("comparisons"):
        assert seqno_at_or_before(case["a"], case["b"]) is case["a_le_b"], case


@pytest.mark.parametrize("name", ["recover_by_matching_last_seqno"])
def test_recovery_by_matching_last_seqno(name: str) -> None:
    (case,) = [case for case in golden("recovery") if case["name"] == name]
    objects = ObjectGate()
    for key, before in case["before_drop"].items():
        admit(
            objects,
            {"snapshot": True, "seqno": before["last_applied"], "last_seqno": 0},
            key_of(key),
        )
    gap = case["gap"]
    objects.admit(
        kind=Kind.GAP,
        payload=np.array((gap["first"], gap["last"], gap["count"], 0, 2, 0), GAP).tobytes(),
    )
    for key in case["before_drop"]:
        view = objects.state(*key_of(key))
        assert view is not None
        assert view.status == ObjectStatus.UNKNOWN
    for step in case["steps"]:
        outputs = admit(objects, step, key_of(step["object"]))
        expected = step["expect"]
        assert any(output.kind == Kind.MESSAGE for output in outputs) is expected["apply"], step
        view = objects.state(*key_of(step["object"]))
        assert view is not None
        assert (view.status == ObjectStatus.LIVE) is (expected["status"] == "ready"), step
        if "last_applied" in expected:
            assert view.applied_seqno == expected["last_applied"], step


@pytest.mark.parametrize("name", ["book_from_snapshot_and_kept_updates", "broken_chain"])
def test_recovery_from_snapshot_and_kept_updates(name: str) -> None:
    (case,) = [case for case in golden("recovery") if case["name"] == name]
    key = key_of(case["object"])
    objects = ObjectGate()
    for step in case["kept_updates"]:
        assert admit(objects, step, key) == []
    outputs = admit(objects, {**case["snapshot"], "channel": "snapshot", "snapshot": True}, key)
    expected = case["expect"]
    assert applied(outputs) == expected["applied"]
    view = objects.state(*key)
    assert view is not None
    assert (view.status == ObjectStatus.LIVE) is (expected["status"] == "ready")
    if expected["status"] == "ready":
        assert view.applied_seqno == expected["last_applied"]
        assert objects.counters()["collect_dropped"] == len(expected["dropped"])


@pytest.mark.parametrize(
    "name", ["zero_last_seqno_means_first_update", "zero_last_seqno_but_joined_late"]
)
def test_recovery_by_last_seqno_zero(name: str) -> None:
    (case,) = [case for case in golden("recovery") if case["name"] == name]
    objects = ObjectGate()
    objects.saw_session_from_first = case["subscriber_saw_session_from_its_first_number"]
    for step in case["steps"]:
        outputs = admit(objects, step, key_of(step["object"]))
        assert bool(applied(outputs)) is step["expect"]["apply"]
        view = objects.state(*key_of(step["object"]))
        assert view is not None
        assert (view.status == ObjectStatus.LIVE) is (step["expect"]["status"] == "ready")
