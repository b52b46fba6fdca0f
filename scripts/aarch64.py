"""Compile udpfast for AArch64 on an x86-64 machine, and run it in an emulator.

    sudo apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross

The C code is what `make build` generated. CPython and its libraries are Debian's packages for
arm64, unpacked into build/aarch64 and not installed; numpy and the other packages are wheels from
PyPI.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "build" / "aarch64"
SYSTEM, PACKAGES, TREE = HERE / "system", HERE / "packages", HERE / "tree"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
DEBIAN = ("python3.11", "libpython3.11-dev", "libstdc++6")
WHEELS = (
    *("numpy", "flatbuffers", "pyzmq", "msgspec", "click", "pyarrow", "pytest", "pytest-timeout"),
    "hypothesis",
)
SUFFIX = ".cpython-311-aarch64-linux-gnu.so"


def missing(*programs: str) -> list[str]:
    """Return what is not installed of the programs to compile with, and of further ones."""
    return [each for each in (COMPILER, "dpkg", *programs) if shutil.which(each) is None]


def run(*command: str | Path) -> None:
    """Run a command; if it fails, raise an error."""
    subprocess.run([str(word) for word in command], check=True)


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
    if not sources:
        sys.exit(f"{made}: expected the C code that `make build` generates, found none")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, done in zip(sources, pool.map(compile_one, sources), strict=True):
            if not done:
                sys.exit(f"{source}: the compiler failed")


def module_flags(source: Path) -> list[str]:
    """Return the compiler's flags and macros of a module, as setup.py noted them."""
    name = source.relative_to(ROOT / "build/cython").with_suffix("").as_posix().replace("/", ".")
    name = re.sub(r"^(bench|lab)\.", r"udpfast_\1.", name)
    _, flags, _, macros = ast.literal_eval((ROOT / "build/flags" / name).read_text())
    return [*flags, *(f"-D{macro}={value}" for macro, value in macros)]


def compile_one(source: Path) -> bool:
    """Compile a module, unless it is newer than its C code; return whether that succeeded."""
    target = TREE / source.relative_to(ROOT / "build/cython").with_suffix(SUFFIX)
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    include = SYSTEM / "usr/include"
    command = [
        *(COMPILER, "-shared", "-fPIC", "-fwrapv", "-DNDEBUG", *module_flags(source), "-w"),
        *(f"-I{include}/python3.11", f"-I{include}"),
        *(str(source), "-o", str(target)),
    ]
    return subprocess.run(command, check=False).returncode == 0


def emulate(modules: Path, *words: str) -> int:
    """Run Python for AArch64 with a folder of packages in the emulator; return its exit code."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{modules}:{PACKAGES}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "QEMU_LD_PREFIX": str(SYSTEM),
    }
    command = [EMULATOR, "-L", str(SYSTEM), str(SYSTEM / "usr/bin/python3.11"), *words]
    return subprocess.run(command, cwd=modules, env=environment, check=False).returncode
