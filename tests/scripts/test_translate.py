"""Cython reads only the functions of headers that a module calls; the module works as before."""

import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.shared import ROOT
from tests.sources import files

translate = runpy.run_path(str(ROOT / "scripts/translate.py"))

BASE = """from udpfast.deep cimport within as alias, other

cdef inline int called(
    int value,
    int more=3,
) noexcept nogil:
    # Not unused().
    return alias(value) + more + 111111


# A comment between functions.
cdef inline int unused(int value) noexcept nogil:
    cdef int twice = 2 * value

    return other(twice) + 333333


cdef inline int by_own_header(int value) noexcept nogil:
    return value + 444444
"""
DEEP = """
cdef inline int within(int value) noexcept nogil:
    return value + 222222


cdef inline int other(int value) noexcept nogil:
    return value
"""
OWN = """from udpfast.base cimport by_own_header

cdef inline int own(int value) noexcept nogil:
    return by_own_header(value) + 555555
"""
MODULE = """from udpfast.base cimport called

def run(value: int) -> int:
    return called(value)
"""
BUILD = """
import runpy, sys
from Cython.Build import cythonize
hasten = runpy.run_path(sys.argv[1])["hasten"]
hasten()
if sys.argv[2:]:
    hasten.__globals__["reached"] = lambda module: set(sys.argv[2:])
cythonize("udpfast/module.pyx", build_dir="build/cython", language_level=3)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project of one module, its header and two more."""
    (tmp_path / "udpfast").mkdir()
    texts = {"__init__.py": "", "base.pxd": BASE, "deep.pxd": DEEP, "module.pxd": OWN}
    for name, text in {**texts, "module.pyx": MODULE}.items():
        (tmp_path / "udpfast" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_function_in_headers_is_read_if_called_through_others(project: Path) -> None:
    reached = translate["reached"](Path("udpfast/module.pyx"))
    assert reached >= {"called", "within", "own", "by_own_header"}
    assert not reached & {"unused", "other"}


def test_narrowed_header_has_each_line_where_it_was() -> None:
    narrowed = translate["narrowed"](BASE, {"called"})
    before, after = BASE.splitlines(), narrowed.splitlines()
    changed = [(one, other) for one, other in zip(before, after, strict=False) if one != other]
    assert {other.strip() for _, other in changed} == {"udpfast_function_not_read()", ""}
    assert "333333" not in narrowed
    assert "444444" not in narrowed


def test_cython_of_now_reads_headers_so(project: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(ROOT / "scripts/translate.py")]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    made = (project / "build/cython/udpfast/module.c").read_text()
    found = [
        number for number in range(1, 6) if re.search(rf"\b0x{111111 * number:x}\b", made, re.I)
    ]
    assert found == [1, 2, 4, 5]


@pytest.mark.parametrize("overlooked", [False, True])
def test_module_that_needs_what_was_not_read_is_not_loaded(project: Path, overlooked: bool) -> None:
    """Should a call be overlooked one day: better no module than one that does something else."""
    wanted = ["called", "by_own_header"] if overlooked else []
    script = str(ROOT / "scripts/translate.py")
    subprocess.run([sys.executable, "-c", BUILD, script, *wanted], cwd=project, check=True)
    compiler = sysconfig.get_config_var("CC").split()
    made = ("build/cython/udpfast/module.c", "-o", "udpfast/module.so")
    flags = ("-shared", "-fPIC", "-w", f"-I{sysconfig.get_path('include')}")
    subprocess.run([*compiler, *flags, *made], cwd=project, check=True)
    code = "from udpfast.module import run; print(run(1))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False
    )
    if overlooked:
        assert "undefined symbol: udpfast_function_not_read" in found.stderr
    else:
        assert found.stdout == f"{1 + 3 + 333333}\n"


def test_every_function_of_the_headers_is_seen_as_one() -> None:
    begun = seen = 0
    for path in files("udpfast", ".pxd"):
        text = path.read_text()
        begun += len(re.findall(r"^cdef inline ", text, re.MULTILINE))
        seen += len(translate["FUNCTION"].findall(text))
    assert seen == begun > 900
