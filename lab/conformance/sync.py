"""Golden synchronisation: which snapshots are used, and how objects recover from a gap."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from udpfast.core.layout import GAP, Channel, GapReason, Kind, ObjectStatus, RecordFlag
from udpfast.market.gate import ObjectGate, ObjectOutput, seqno_at_or_before

from ..pseudocode import PseudocodeObjects
from . import Report, difference

__all__ = ["DEVIATIONS", "admit", "check"]

#: Scenarios of the pseudo-code in which market/gate decides otherwise, and why.
DEVIATIONS = {
    "S3_repeats": "an accepted snapshot makes the object LIVE, so that the next rounds are skipped "
    "instead of being decoded again and overwriting newer state",
    "S4_then_S3": "a snapshot from before the first collected update is taken if that update names "
    "it as the state that it continues: nothing lies between them",
}


def check(path: Path, report: Report) -> None:
    """Run one `roq-udp-golden-sync` document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for scenario in document["scenarios"]:
        name = f"{path.name} {scenario['name']}"
        report.case(f"{name} pseudo-code", _compare_pseudocode, scenario)
        deviation = DEVIATIONS.get(scenario["name"])
        if deviation is None:
            report.case(f"{name} objects", _compare_objects, scenario)
        else:
            report.note(f"deviation {name}: {deviation}")
            report.case(f"{name} deviates", _confirm_deviation, scenario)
    for case in document["comparisons"]:
        report.case(
            f"{path.name} {case['a']} <= {case['b']}",
            difference,
            case["a_le_b"],
            seqno_at_or_before(case["a"], case["b"]),
        )
    for case in document["recovery"]:
        report.case(f"{path.name} {case['name']}", _recovery(case), case)


def _compare_pseudocode(scenario: dict[str, Any]) -> str | None:
    objects = PseudocodeObjects()
    for number, step in enumerate(scenario["steps"]):
        decision = objects.admit(
            step["channel"],
            step["object_type"],
            step["object_id"],
            step["snapshot"],
            step["seqno"],
            step["last_seqno"],
        )
        expect = step["expect"]
        problem = difference(
            {
                "branch": expect["branch"].split()[0],
                "include_snapshot": expect["include_snapshot"],
                "state": expect["state"],
            },
            {
                "branch": decision.branch,
                "include_snapshot": decision.include,
                "state": {"ready": decision.ready, "last_seqno": decision.last_seqno},
            },
        )
        if problem is not None:
            return f"step {number}: {problem}"
    return None


def _compare_objects(scenario: dict[str, Any]) -> str | None:
    objects = ObjectGate()
    for number, step in enumerate(scenario["steps"]):
        outputs = admit(objects, step, (step["object_type"], step["object_id"]))
        expected = step["expect"]["include_snapshot"]
        included = any(
            output.kind == Kind.MESSAGE and output.channel == Channel.SNAPSHOT for output in outputs
        )
        if expected is not None and included != expected:
            return f"step {number}: include_snapshot: expected {expected}, found {included}"
    return None


def _confirm_deviation(scenario: dict[str, Any]) -> str | None:
    if _compare_objects(scenario) is None:
        return "listed as a deviation, but there is none"
    return None


def admit(objects: ObjectGate, step: dict[str, Any], key: tuple[int, int]) -> list[ObjectOutput]:
    """Give a gate the message of a step, for an object."""
    return objects.admit(
        channel=Channel[step.get("channel", "incremental").upper()],
        object_type=key[0],
        object_id=key[1],
        seqno=step["seqno"],
        last_seqno=step["last_seqno"],
        flags=RecordFlag.SNAPSHOT if step.get("snapshot") else 0,
    )


def _recovery(case: dict[str, Any]) -> Callable[[dict[str, Any]], str | None]:
    if "before_drop" in case:
        return _recover_from_gap
    return _recover_by_snapshot if "kept_updates" in case else _recover_by_steps


def _recover_from_gap(case: dict[str, Any]) -> str | None:
    objects = ObjectGate()
    for name, before in case["before_drop"].items():
        if before["ready"]:
            admit(
                objects,
                {"snapshot": True, "seqno": before["last_applied"], "last_seqno": 0},
                _key(name),
            )
    gap = case["gap"]
    objects.admit(
        kind=Kind.GAP,
        payload=np.array(
            (gap["first"], gap["last"], gap["count"], 0, GapReason.TIME, 0), GAP
        ).tobytes(),
    )
    for name in case["before_drop"]:
        view = objects.state(*_key(name))
        if view is None or view.status.name.lower() != case["after_gap_all"]:
            return f"{name} after the gap: expected {case['after_gap_all']}, found {view}"
    return _follow(objects, case["steps"])


def _recover_by_snapshot(case: dict[str, Any]) -> str | None:
    objects, key, expect = ObjectGate(), _key(case["object"]), case["expect"]
    for step in case["kept_updates"]:
        if admit(objects, step, key):
            return f"update {step['seqno']}: expected to be kept, was passed on"
    outputs = admit(objects, {**case["snapshot"], "channel": "snapshot", "snapshot": True}, key)
    view = objects.state(*key)
    ready = view is not None and view.status is ObjectStatus.LIVE
    found: dict[str, Any] = {
        "applied": [
            output.seqno
            for output in outputs
            if output.kind == Kind.MESSAGE and output.channel == Channel.INCREMENTAL
        ],
        "status": "ready" if ready else "unknown",
    }
    if "last_applied" in expect:
        found["last_applied"] = view.applied_seqno if view else None
    if "dropped" in expect:
        passed = {output.seqno for output in outputs}
        found["dropped"] = [
            step["seqno"] for step in case["kept_updates"] if step["seqno"] not in passed
        ]
    return difference(expect, found)


def _recover_by_steps(case: dict[str, Any]) -> str | None:
    objects = ObjectGate()
    objects.saw_session_from_first = case["subscriber_saw_session_from_its_first_number"]
    return _follow(objects, case["steps"])


def _follow(objects: ObjectGate, steps: list[dict[str, Any]]) -> str | None:
    for number, step in enumerate(steps):
        outputs = admit(objects, step, _key(step["object"]))
        view = objects.state(*_key(step["object"]))
        live = view is not None and view.status is ObjectStatus.LIVE
        found = {
            "apply": any(output.kind == Kind.MESSAGE for output in outputs),
            "status": "ready" if live else "unknown",
            "last_applied": view.applied_seqno if view else None,
        }
        expect = {name: value for name, value in step["expect"].items() if name in found}
        problem = difference(expect, {name: found[name] for name in expect})
        if problem is not None:
            return f"step {number}: {problem}"
    return None


def _key(name: str) -> tuple[int, int]:
    object_type, _, object_id = name.partition(":")
    return int(object_type), int(object_id)
