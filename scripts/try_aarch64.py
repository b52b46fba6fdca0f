"""Run the tests of pure code as AArch64 code in an emulator, qemu-user, on an x86-64 machine.

    sudo apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    make aarch64                                  # download, compile, test: 15 minutes
    python scripts/try_aarch64.py tests/wire      # run only these tests

scripts/aarch64.py compiles the modules, with the flags that users get. The emulator reveals wrong
sizes, a wrong sign of `char`, wrong alignment and wrong instructions. It cannot reveal a missing
memory barrier, because it keeps loads and stores in the order of x86-64.
"""

import argparse
import sys

from aarch64 import EMULATOR, TREE, compile_all, emulate, fetch, missing

#: Tests that start another interpreter. The kernel refuses it ("Exec format error"), because the
#: emulator runs only the program that it was started with.
WITHOUT = (
    "tests/core/test_agent.py::test_priority_and_memory_are_granted_or_have_a_reason",
    "tests/core/test_fault.py",
    "tests/core/test_log.py::test_what_is_less_bad_than_asked_for_is_not_said",
    "tests/core/test_stop.py::test_signals_that_come_at_once_raise_once_and_nothing_is_said_of"
    "_the_others",
    "tests/market/test_book.py::test_cython_makes_room_for_an_update_without_the_gil",
    "tests/feed/test_runs.py::test_forged_sessions_cost_the_same_whatever_the_settings",
)
#: Folders of tests that work on bytes and integers, without sockets or processes.
PURE = ("bus", "config", "core", "feed", "host", "market", "payload", "wire")


def test(paths: list[str]) -> int:
    """Run tests under the emulator; return pytest's exit code."""
    words = ["-m", "pytest", "-q", "-m", "not slow and not nightly and not system"]
    words += ["-p", "no:cacheprovider", *paths]
    words += [word for name in WITHOUT for word in ("--deselect", name)]
    return emulate(TREE, *words)


def main() -> int:
    """Download, compile and test."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="tests to run, by default those of pure code")
    chosen = parser.parse_args().paths or [f"tests/{room}" for room in PURE]
    for program in missing(EMULATOR):
        sys.exit(f"{program}: not found; the first lines of this script say how to install it")
    fetch()
    compile_all()
    return test(chosen)


if __name__ == "__main__":
    sys.exit(main())
