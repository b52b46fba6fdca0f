"""Count the instructions of each operation with callgrind: the same number on a noisy machine.

    python -m bench.micro.instructions [--json] [OPERATION...]

Every operation runs twice in one process under valgrind, 1,000 and 3,000 times; half of the
difference is what 1,000 cost, without what a call costs once. The figure moves with compiler and
flags, not with the clock, the neighbours or the placement of cores.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..decode_ways import Operation

__all__ = ["count_instructions", "main"]

COUNTS = (1_000, 3_000)
#: The C functions of `bench.loops`; only what they and their callees do is counted.
PREFIX = "__pyx_f_13udpfast_bench_5loops_"
CLASSES = {
    "5micro": ("VerifyLoop", "DecodeLoop", "RingLoop", "BookLoop", "EncodeLoop"),
    "9feed_cost": ("WindowLoop",),
}
LOOPS = f"{PREFIX}*Loop_loop"  # one pattern: of several callgrind counts nothing
FUNCTIONS = [
    f"{PREFIX}{module}_{len(name)}{name}_loop" for module in CLASSES for name in CLASSES[module]
]
TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
TREE = Path(__file__).resolve().parents[2]


def run_operations(chosen: Sequence[str] = ()) -> list[str]:
    """Run some operations, or all, each with both counts; return their names in order."""
    from ..decode_ways import decode_loops, kind_loops, other_loops

    with tempfile.TemporaryDirectory() as folder:
        loops: dict[str, Operation] = {}
        for make in (decode_loops, kind_loops, partial(other_loops, Path(folder))):
            if not chosen or not loops.keys() >= set(chosen):  # slow under valgrind
                loops |= make()
        if unknown := set(chosen) - set(loops):
            raise SystemExit(f"expected some of {list(loops)}; found {sorted(unknown)}")
        loops = {name: loop for name, loop in loops.items() if not chosen or name in chosen}
        for loop in loops.values():
            loop.run(100)  # what is learned once
            for count in COUNTS:
                loop.run(count)
    return list(loops)


def count_instructions(chosen: Sequence[str] = ()) -> dict[str, float]:
    """Return instructions per operation, of some or of all.

    Raises
    ------
    RuntimeError
        valgrind failed, or did not see every run.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command += [f"--toggle-collect={LOOPS}"]
        command += [f"--dump-after={function}" for function in FUNCTIONS]
        command += [sys.executable, "-m", __spec__.name, "--run", *chosen]
        done = subprocess.run(command, capture_output=True, text=True, cwd=TREE, check=False)
        names = done.stdout.splitlines()
        found = [_total(Path(f"{out}.{i + 1}")) for i in range(3 * len(names))]
    totals = [total for total in found if total is not None]
    if done.returncode or not names or len(totals) < len(found):
        raise RuntimeError(f"valgrind did not count every operation: {done.stderr[-500:]}")
    counted = {}
    for i, name in enumerate(names):
        few, many = totals[3 * i + 1 : 3 * i + 3]
        counted[name] = (many - few) / (COUNTS[1] - COUNTS[0])
    return counted


def _total(path: Path) -> int | None:
    found = TOTALS.search(path.read_text()) if path.exists() else None
    return int(found[1]) if found else None


def main() -> None:
    """Print a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help="as named in the table")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print("\n".join(run_operations(options.operations)))
        return
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed (apt-get install valgrind)")
        return
    counts = count_instructions(options.operations)
    if options.json:
        print(json.dumps(counts))
        return
    for name, count in counts.items():
        print(f"{name:32} {count:10,.0f} instructions")


if __name__ == "__main__":
    main()
