"""The quick gate of the fuzzer, and the fuzzer itself: a broken promise is seen and repeatable.

`make sanitize` runs a million of each against a build with sanitizers.
"""

import random
import re
import subprocess
import sys

import pytest

from lab import fuzz
from lab.mutate import mutated
from tests.shared import ROOT


@pytest.mark.parametrize("seed", range(1, 11))
def test_fuzz_datagrams_gives_each_one_verdict(seed: int) -> None:
    verdicts = fuzz.fuzz_datagrams(seed, 2_000)
    assert sum(verdicts.values()) == 2_000


@pytest.mark.parametrize("seed", range(1, 11))
def test_fuzz_payloads_gives_each_one_outcome(seed: int) -> None:
    outcomes = fuzz.fuzz_payloads(seed, 2_000)
    assert sum(outcomes.values()) == 2_000
    assert 0 < outcomes["REFUSED"] < 2_000


def test_fuzz_same_seed_repeats_exactly() -> None:
    assert fuzz.fuzz_datagrams(7, 500) == fuzz.fuzz_datagrams(7, 500)
    assert fuzz.fuzz_payloads(7, 500) == fuzz.fuzz_payloads(7, 500)


def test_fuzz_reaches_most_verdicts() -> None:
    reached: set[str] = set()
    for seed in range(1, 21):
        reached |= {name for name, count in fuzz.fuzz_datagrams(seed, 1_000).items() if count}
    assert reached >= {
        "delivered",
        "held",
        "duplicate",
        "late",
        "replay",
        "too_short",
        "too_long",
        "fragment_beyond_max",
        "short_fragment",
        "encoding_refused",
        "session_pending",
        "session_retired",
        "session_foreign",
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise fuzz.FuzzError('broken')", "ended with exit code 1"),
        ("import os; os.abort()", "ended by SIGABRT"),
    ],
)
def test_main_failing_case_prints_the_command_that_repeats_it(body: str, expected: str) -> None:
    program = (
        "from lab import fuzz\n"
        "def case(seed, count):\n"
        "    if seed == 3:\n"
        f"        {body}\n"
        "    return {'fine': count}\n"
        "fuzz.KINDS['payloads'] = case\n"
        "fuzz.main(['payloads', '--count', '10000', '--seed', '2'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"payloads: case 3 {expected}" in result.stdout
    assert "udpfast lab fuzz payloads --count 2000 --seed 3" in result.stdout


def test_mutated_same_seed_same_damage() -> None:
    data, others = bytes(range(64)), [b"other" * 9]
    first = [mutated(data, others, random.Random(seed)) for seed in range(200)]
    assert first == [mutated(data, others, random.Random(seed)) for seed in range(200)]
    assert sum(changed != data for changed in first) > 150


@pytest.mark.parametrize("seed", range(50))
def test_mutated_nothing_is_survived(seed: int) -> None:
    assert isinstance(mutated(b"", [b""], random.Random(seed)), bytes)


def test_fuzz_kinds_that_make_sanitize_runs_exist() -> None:
    found = re.search(r"for kind in ([a-z ]+);", (ROOT / "Makefile").read_text())
    assert found is not None and set(found[1].split()) <= set(fuzz.KINDS)


def test_fuzz_of_a_feed_knows_streams_for_which_there_is_no_room() -> None:
    assert fuzz.KINDS["feed"](20261131, 1_000)
