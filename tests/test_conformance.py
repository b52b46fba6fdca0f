"""The golden files and captures pass, and a wrong expectation is found and explained."""

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.conformance import Report, difference, join_gaps, main, run
from tests.shared import shared
from tests.waiting import PATIENCE_S


def test_everything_shared_passes() -> None:
    report = Report()
    run(shared("wire"), report)
    failures = [line for line in report.lines if line.startswith("FAILED")]
    assert failures == []
    assert report.passed > 700
    assert sum(line.startswith("deviation") for line in report.lines) == 2


@pytest.mark.system
def test_command_prints_the_sum_and_exits_with_0() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "udpfast", "lab", "conformance", str(shared("wire", "golden"))],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=Path(__file__).resolve().parent.parent,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(" passed, 0 failed")


def venues(name: str, *left_out: str) -> dict[str, Any]:
    # The expectation of captures of any venue, with absolute names.
    folder = shared("data", "pcap")
    document: dict[str, Any] = json.loads((folder / name).read_text())
    document["files"] = [
        {**case, "file": str(folder / case["file"])}
        for case in document["files"]
        if not case["file"].startswith(left_out or ("*",))
    ]
    return document


def test_single_datagrams_of_every_framing_pass(tmp_path: Path) -> None:
    report = edited(tmp_path, venues("expected_singles.json"), engine=True)
    assert [line for line in report.lines if line.startswith("FAILED")] == []
    assert report.passed == 2 * 167 + 169  # and each flow through the feed
    assert not any(line.startswith("not run") for line in report.lines)


def test_captures_of_venues_pass(tmp_path: Path) -> None:
    # The two that take seconds: their kind of case is among the others and the single ones.
    document = venues("expected.json", "iex_tp_deep", "moldudp64_derived", "miax", "cme_mdp3_v1.6")
    report = edited(tmp_path, document)
    assert [line for line in report.lines if line.startswith("FAILED")] == []
    assert report.passed == 2 * 6


def test_single_datagrams_of_venues_decode_to_their_lines(tmp_path: Path) -> None:
    document = json.loads((shared("venues") / "expected.json").read_text())
    document["files"] = []
    folder = shared("data", "pcap")
    lines = document["lines_of_singles"]["instruments"]
    document["lines_of_singles"]["instruments"] = {
        str(folder / name): expect for name, expect in lines.items()
    }
    report = edited(tmp_path, document)
    assert (report.passed, report.failed) == (14, 0), report.lines


def test_trades_of_pitch_are_those_of_its_rows(tmp_path: Path) -> None:
    expectation = shared("venues", "books", "captures") / "cboe_pitch_bats_realtime.json"
    captures = shared("data", "pcap")
    for change, failed in (("", 0), ("9", 1)):
        document = expectation.read_text().replace(
            "trade,A,100,20.01", f"trade,A,100,20.01{change}"
        )
        (tmp_path / expectation.name).write_text(document)
        report = Report(captures=captures)
        run(tmp_path, report)
        assert (report.passed, report.failed) == (1 - failed, failed), report.lines


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda flow: flow.update(datagrams=0), "datagrams: expected 0, found"),
        (lambda flow: flow["streams"]["None"].update(messages=1), "messages: expected 1, found"),
        (
            lambda flow: flow["streams"]["None"].update(gaps=[[1, 2]]),
            "gaps[0][0]: expected 1, found",
        ),
        (lambda flow: flow["streams"]["None"]["kinds"].update(data=1), "kinds.data: expected 1"),
        (lambda flow: flow["streams"].update(other={}), "streams.other: not found"),
    ],
)
def test_wrong_number_of_a_venues_capture_fails(tmp_path: Path, edit: Any, text: str) -> None:
    document = venues("expected.json")
    document["files"] = [case for case in document["files"] if "cme_mdp3_v1.9" in case["file"]]
    edit(document["files"][0]["flows"][2])
    assert text in failure(tmp_path, document)


def test_wrong_arbitration_of_a_venues_capture_fails(tmp_path: Path) -> None:
    document = venues("expected.json")
    document["files"] = [case for case in document["files"] if "cme_mdp3_v1.9" in case["file"]]
    document["files"][0]["a_b"][3]["only_on_b"] = []
    assert "a_b[3].only_on_b: expected 0 entries, found 1" in failure(tmp_path, document)


def leaves(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    # The places of all values that are compared.
    if isinstance(value, dict | list) and value:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, *path, key)
    elif path[-1] != "link_type":
        yield path


def with_another(value: Any, path: tuple[Any, ...]) -> Any:
    """Make a copy in which one value is another one."""
    if not path:
        return [1] if value in ([], {}) else value + 1 if isinstance(value, int) else f"{value}x"
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_another(value[path[0]], path[1:])
    return copy


def test_any_wrong_value_of_a_venues_capture_fails(tmp_path: Path) -> None:
    rng = random.Random(1)
    for case in rng.sample(venues("expected_singles.json")["files"], 30):
        place = rng.choice([one for one in leaves(case) if one != ("file",)])
        document = {"format": "pcap-expected/1", "files": [with_another(case, place)]}
        assert edited(tmp_path, document, engine=False).failed, (case["file"], place)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda run: run.update(next_expected=1), "numberings"),
        (lambda run: run.update(units=1), "units: expected 1, found"),
        (lambda run: run.update(old_or_duplicate=1), "old_or_duplicate: expected 1, found 0"),
        (lambda run: run["never_received"].update(first_holes=[[5, 6]]), "numberings"),
    ],
)
def test_wrong_number_fails_in_the_feed_too(tmp_path: Path, edit: Any, text: str) -> None:
    document = venues("expected.json")
    document["files"] = [case for case in document["files"] if "cme_mdp3_v1.9" in case["file"]]
    edit(document["files"][0]["flows"][2]["streams"]["None"])
    failed = [line for line in edited(tmp_path, document, engine=True).lines if "FAILED" in line]
    assert len(failed) == 2
    assert " engine: " in failed[1]
    assert text in failed[1]


def golden(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(shared("wire", "golden", name).read_text())
    return document


def edited(tmp_path: Path, document: dict[str, Any], *, engine: bool = False) -> Report:
    (tmp_path / "edited.json").write_text(json.dumps(document))
    report = Report(engine=engine)
    run(tmp_path, report)
    return report


def failure(tmp_path: Path, document: dict[str, Any]) -> str:
    report = edited(tmp_path, document)
    found = [line for line in report.lines if line.startswith("FAILED")]
    assert report.failed == len(found) == 1, found
    return found[0]


def test_wrong_header_field_fails_by_name(tmp_path: Path) -> None:
    document = golden("headers_current.json")
    document["datagrams"][0]["expect"]["header"]["object_id"] += 1
    assert "header.object_id: expected" in failure(tmp_path, document)


def test_missing_refusal_fails(tmp_path: Path) -> None:
    document = golden("headers_current.json")
    case = next(case for case in document["datagrams"] if not case["expect"]["ok"])
    case["expect"]["error"] = "something_else"
    assert "error: expected 'something_else'" in failure(tmp_path, document)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda expect: expect.pop(), "entries, found"),
        (lambda expect: expect[0]["message"].update(crc32="00000000"), "message.crc32: expected"),
        (lambda expect: expect.append({"drop": "too_long"}), "drop too_long: expected 1, found 0"),
        (
            lambda expect: expect.append({"drop": "on_a_whim"}),
            "drop reason 'on_a_whim' is not one of",
        ),
    ],
)
def test_wrong_sequence_fails_under_both_policies(tmp_path: Path, edit, text: str) -> None:
    document = golden("sequences.json")
    scenario = next(
        one
        for one in document["scenarios"]
        if all("message" in said for said in one.get("expect", [{}]))
    )
    document["scenarios"] = [scenario]
    edit(scenario["expect"])
    report = edited(tmp_path, document)
    assert report.failed == 2
    assert all(text in line for line in report.lines)


def test_wrong_synchronisation_fails(tmp_path: Path) -> None:
    document = golden("sync.json")
    document["comparisons"][0]["a_le_b"] = not document["comparisons"][0]["a_le_b"]
    assert "expected False, found True" in failure(tmp_path, document)


def test_deviation_that_is_none_fails(tmp_path: Path) -> None:
    document = golden("sync.json")
    plain = document["scenarios"][0]
    deviating = next(one for one in document["scenarios"] if one["name"] == "S3_repeats")
    deviating["steps"] = plain["steps"]
    assert "but there is none" in failure(tmp_path, document)


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (("source_info", "seqno"), 99, "source_info.seqno: expected 99"),
        (("value_type",), 7, "value_type: expected 7"),
        (("value", "mbp_max_depth"), 21, "value.mbp_max_depth: expected 21"),
    ],
)
def test_wrong_payload_field_fails(
    tmp_path: Path, place: tuple[str, ...], value: int, text: str
) -> None:
    document = golden("payloads.json")
    case = document["payloads"][0]
    document["payloads"] = [case]
    document["fragmented"] = []
    target = case["expect"]
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = value
    assert text in failure(tmp_path, document)


def test_damage_that_is_accepted_fails(tmp_path: Path) -> None:
    document = golden("payloads.json")
    document["damaged"][0]["hex"] = document["payloads"][0]["hex"]
    assert "expected REFUSED, found GATEWAY_SETTINGS" in failure(tmp_path, document)


def test_fragment_that_is_missing_fails(tmp_path: Path) -> None:
    document = golden("payloads.json")
    document["fragmented"][0]["datagrams"].pop()
    assert "in order: expected 1 message, found 0" in failure(tmp_path, document)


def test_payload_lines_are_run_plain_and_compressed(tmp_path: Path) -> None:
    line = (
        json.dumps(
            {
                "hex": golden("payloads.json")["payloads"][0]["hex"],
                "expect": golden("payloads.json")["payloads"][0]["expect"],
            }
        )
        + "\n"
    )
    (tmp_path / "a.jsonl").write_text(line * 2)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    report = Report()
    run(tmp_path, report)
    assert (report.passed, report.failed) == (3, 0)


def test_wrong_capture_expectations_fail_one_by_one(tmp_path: Path) -> None:
    folder = shared("wire", "capture")
    document = json.loads((folder / "expected.json").read_text())
    (tmp_path / "roq_udp_clean.pcap.gz").symlink_to(folder / "roq_udp_clean.pcap.gz")
    lines = gzip.decompress((folder / "messages.jsonl.gz").read_bytes()).decode().splitlines()
    for channel in ("incremental", "snapshot"):
        index = [number for number, line in enumerate(lines) if f'"channel": "{channel}"' in line][
            100
        ]
        lines[index] = lines[index].replace('"length": ', '"length": 1')
    (tmp_path / "messages.jsonl").write_text("\n".join(lines) + "\n")
    del document["rough"]
    document["clean"]["datagrams"] = 1
    document["clean"]["gaps"].append({})
    document["sessions"].reverse()
    document["clean"]["payload_crc32_in_order"]["snapshot"] = "0"
    next(iter(document["final_books"].values()))["bids"].pop(0)
    report = edited(tmp_path, document)
    for text in (
        "accounting: datagrams: expected 1, found",
        "incremental messages: message ",
        "snapshot messages: message ",
        "gaps: gaps: expected 1 entries, found 0",
        "sessions[0]: expected",
        "payloads of snapshot in order: crc32: expected '0'",
        "final books: books.",
    ):
        assert sum(text in line for line in report.lines) == 1, text
    assert (report.passed, report.failed) == (1, 7)


def test_unknown_formats_are_named_and_not_counted(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"format": "poetry/1"}')
    result = CliRunner().invoke(main, [str(tmp_path)])
    assert result.exit_code == 2
    assert "format 'poetry/1' says nothing to compare" in result.output
    assert "nothing below" in result.output


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["no_such_folder"]])
def test_usage_exits_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Usage: conformance [OPTIONS] FOLDER" in result.output


def test_case_that_raises_fails_with_the_reason() -> None:
    report = Report()
    report.case("one", lambda: json.loads("{"))
    report.case("two", lambda: None)
    assert (report.passed, report.failed) == (1, 1)
    assert report.lines[0].startswith("FAILED one: JSONDecodeError: ")


@pytest.mark.parametrize(
    ("expected", "found", "text"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 1.0}, None),
        ({"a": 1}, {"a": True}, "a: expected 1, found True"),
        ({"a": 1}, {}, "a: not found"),
        ({}, {"a": 1}, "a: not expected"),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": 0}]}, "a[1].b: expected None, found 0"),
        ([1, 2], [1], "list: expected 2 entries, found 1"),
        ("nan", "nan", None),
        (0.1, 0.1, None),
        (0.1, 0.10000000000000002, "expected 0.1, found 0.10000000000000002"),
    ],
)
def test_difference_names_the_first_place(expected: Any, found: Any, text: str | None) -> None:
    assert difference(expected, found) == text


def test_gaps_that_follow_each_other_are_one_run_of_lost_seqnos() -> None:
    def gap(first: int, last: int) -> dict[str, Any]:
        return {"gap": {"first": first, "last": last, "count": (last - first) % (1 << 32) + 1}}

    message = {"message": {"seqno": 5}}
    assert join_gaps([gap(1, 2), gap(3, 4), message, gap(6, 6)]) == [gap(1, 4), message, gap(6, 6)]
    assert join_gaps([gap(0xFFFFFFFF, 0xFFFFFFFF), gap(0, 3)]) == [gap(0xFFFFFFFF, 3)]
    for other in ([gap(1, 2), gap(2, 4)], [gap(1, 2), gap(4, 4)], [gap(1, 2), message, gap(3, 4)]):
        assert join_gaps(other) == other
