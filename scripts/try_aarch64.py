"""Run the tests of pure code as AArch64 code in an emulator, qemu-user, on an x86-64 machine.

    sudo apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    make aarch64                                  # download, compile, test: 15 minutes
    python scripts/try_aarch64.py tests/wire      # run only these tests

The script compiles the C code that `make build` generated for each module. CPython and its
libraries are Debian's packages for arm64, unpacked into build/aarch64 and not installed; numpy and
the other packages are wheels from PyPI. The emulator reveals wrong sizes, a wrong sign of `char`,
wrong alignment and wrong instructions. It cannot reveal a missing memory barrier, because it keeps
loads and stores in the order of x86-64.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "build" / "aarch64"
SYSTEM, PACKAGES, TREE = HERE / "system", HERE / "packages", HERE / "tree"
COMPILER = "aarch64-linux-gnu-gcc"
DEBIAN = ("python3.11", "libpython3.11-dev", "libstdc++6")
WHEELS = (
    *("numpy", "flatbuffers", "pyzmq", "msgspec", "click", "pyarrow", "pytest", "pytest-timeout"),
    "hypothesis",
)
SUFFIX = ".cpython-311-aarch64-linux-gnu.so"
#: Tests that start another interpreter. The kernel refuses it ("Exec format error"), because the
#: emulator runs only the program that it was started with.
WITHOUT = (
    "tests/core/test_agent.py::test_priority_and_memory_are_granted_or_have_a_reason",
    "tests/core/test_fault.py",
    "tests/core/test_log.py::test_what_is_less_bad_than_asked_for_is_not_said",
    "tests/core/test_stop.py::test_signals_that_come_at_once_raise_once_and_nothing_is_said_of"
    "_the_others",
    "tests/feed/test_runs.py::test_forged_sessions_cost_the_same_whatever_the_settings",
)
#: Folders of tests that work on bytes and integers, without sockets or processes.
PURE = ("bus", "config", "core", "feed", "host", "market", "payload", "wire")


def run(*command: str | Path, **options: object) -> int:
    """Run a command; if it fails, raise an error."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, **options).returncode  # type: ignore[call-overload]


def fetch() -> None:
    """Download and unpack Debian's CPython for arm64, and the wheels."""
    if not (SYSTEM / "usr/bin/python3.11").exists():
        state = HERE / "apt"
        for folder in ("lists/partial", "archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        apt = ["apt-get", "-qq"]
        for option in (
            *("APT::Architecture=arm64", "APT::Architectures=arm64", f"Dir::State={state}"),
            *(f"Dir::State::status={state}/status", f"Dir::Cache={state}"),
        ):
            apt += ["-o", option]
        run(*apt, "update")
        run(*apt, "install", "-y", "--no-install-recommends", "--download-only", *DEBIAN)
        for archive in (state / "archives").glob("*.deb"):
            run("dpkg", "-x", archive, SYSTEM)
        shutil.rmtree(state)
    if not (PACKAGES / "pyarrow").exists():
        run(
            *(sys.executable, "-m", "pip", "install", "-q", "--target", PACKAGES),
            *("--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"),
            *("--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64"),
            *("--platform", "manylinux_2_17_aarch64", "-c", ROOT / "constraints.txt", *WHEELS),
        )


def compile_all() -> None:
    """Copy the checkout, and compile the C code that Cython generated for its modules."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in listed.split("\0")[:-1]:
        target = TREE / name
        if name.startswith(("udpfast", "lab", "bench", "tests", "docs", "scripts", "pyproject")):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    for generated in (ROOT / "udpfast/payload/roq").rglob("*.py"):
        shutil.copy2(generated, TREE / generated.relative_to(ROOT))
    for folder in ("lab", "bench"):
        beside = TREE / f"udpfast_{folder}"
        if not beside.is_symlink():
            beside.symlink_to(folder)
    made = ROOT / "build/cython"
    sources = [
        source
        for source in sorted(made.rglob("*.c"))
        # Not what is left of modules that were removed. Cython's own module has no source.
        if source.stem == "_cython"
        or (ROOT / source.relative_to(made)).with_suffix(".pyx").exists()
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, done in zip(sources, pool.map(compile_one, sources), strict=True):
            if not done:
                sys.exit(f"{source}: the compiler failed")


def compile_one(source: Path) -> bool:
    """Compile a module, unless it is newer than its C code; return whether that succeeded."""
    target = TREE / source.relative_to(ROOT / "build/cython").with_suffix(SUFFIX)
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    include = SYSTEM / "usr/include"
    command = [
        *(COMPILER, "-O1", "-g0", "-w", "-shared", "-fPIC", "-fwrapv", "-DNDEBUG"),
        *("-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION", '-DUDPFAST_BUILD_FLAGS="-O1"'),
        *(f"-I{include}/python3.11", f"-I{include}", f"-I{PACKAGES}/numpy/_core/include"),
        *(str(source), "-o", str(target)),
    ]
    return subprocess.run(command, check=False).returncode == 0


def test(paths: list[str]) -> int:
    """Run tests under the emulator; return pytest's exit code."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TREE}:{PACKAGES}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "QEMU_LD_PREFIX": str(SYSTEM),
    }
    command = [
        *("qemu-aarch64", "-L", SYSTEM, SYSTEM / "usr/bin/python3.11", "-m", "pytest", "-q"),
        *("-m", "not slow and not nightly and not system", "-p", "no:cacheprovider", *paths),
        *(word for name in WITHOUT for word in ("--deselect", name)),
    ]
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=TREE, env=environment, check=False).returncode


def main() -> int:
    """Download, compile and test."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="tests to run, by default those of pure code")
    chosen = parser.parse_args().paths or [f"tests/{room}" for room in PURE]
    for program in (COMPILER, "qemu-aarch64", "dpkg"):
        if shutil.which(program) is None:
            sys.exit(f"{program}: not found; the first lines of this script say how to install it")
    fetch()
    compile_all()
    return test(chosen)


if __name__ == "__main__":
    sys.exit(main())
