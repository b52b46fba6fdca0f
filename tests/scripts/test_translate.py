"""Cython reads only the definitions of headers that a module uses; the module works as before."""

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
from udpfast.gone cimport (
    nothing,
)

cdef enum:  # unused() is not one of them
    FIRST = 3
    SECOND = FIRST + 1

cdef enum:
    THIRD = 9

cdef struct Pair:
    int one
    Half* behind

cdef struct Half:
    int one

cdef packed struct Unused:
    Pair pair

ctypedef int (*compare)(
    const Pair* one, const Pair* behind
) noexcept nogil

cdef int elsewhere(
    Unused* unused,
) except -1

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
#: A module that reaches structs and numbers through others.
USER = """from udpfast.base cimport Pair, SECOND
"""
BUILD = """
import runpy, sys
from pathlib import Path
from Cython.Build import cythonize
translate = runpy.run_path(sys.argv[1])
translate["hasten"]()
if sys.argv[2:]:
    translate["hasten"].__globals__["reached"] = lambda module: set(sys.argv[2:])
cythonize("udpfast/module.pyx", build_dir="build/cython", language_level=3)
translate["translated"](Path("build/cython/udpfast/module.c"))
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


def test_definitions_are_read_if_reached_through_others(project: Path) -> None:
    (project / "udpfast/user.pyx").write_text(USER)
    reached = translate["reached"](Path("udpfast/user.pyx"))
    narrowed = translate["narrowed"](BASE, reached)
    kept = {"SECOND", "FIRST", "struct Pair", "struct Half"}
    dropped = {"THIRD", "Unused", "compare", "elsewhere", "cimport", "called", "value"}
    assert {name for name in kept | dropped if name in narrowed} == kept


def test_narrowed_header_has_each_line_where_it_was() -> None:
    narrowed = translate["narrowed"](BASE, {"called", "alias"})
    before, after = BASE.splitlines(), narrowed.splitlines()
    assert len(before) == len(after)
    changed = {other for one, other in zip(before, after, strict=True) if one != other}
    assert changed == {"", "from udpfast.deep cimport within as alias"}
    assert "111111" in narrowed
    assert "333333" not in narrowed
    assert "444444" not in narrowed


@pytest.mark.nightly  # Cython is started; a build that fails says the same
def test_cython_of_now_reads_headers_so(project: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(ROOT / "scripts/translate.py")]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    made = (project / "build/cython/udpfast/module.c").read_text()
    found = [
        number for number in range(1, 6) if re.search(rf"\b0x{111111 * number:x}\b", made, re.I)
    ]
    assert found == [1, 2, 4, 5]
    # Python's headers are read before (HEADERS in setup.py), so that nothing else may come first.
    before = made.partition('#include "Python.h"')[0]
    assert re.findall(r"^ *#define (.*)", before, re.M) == [
        "PY_SSIZE_T_CLEAN",
        "CYTHON_LIMITED_API 1",  # for who asks for it
    ]
    # The module's own code is compiled as its flags say, what Cython adds is not; and what begins
    # the module runs once.
    own, types, once, objects = re.split('#pragma GCC optimize \\("O[g0]"\\)', made)
    levels = re.findall('#pragma GCC optimize \\("(O.)"\\)', made)
    assert levels == ["Og", "O0", "Og"]
    assert "0x1b207" in own.lower()
    assert "void __Pyx_AddTraceback" not in own.partition("module_code ###")[2]
    assert "PyMethodDef" in types
    assert "__pyx_pymod_exec_module" in once
    assert "void __Pyx_AddTraceback" in objects


@pytest.mark.nightly  # Cython is started; a build that fails says the same
@pytest.mark.parametrize("overlooked", [False, True])
def test_module_that_needs_what_was_not_read_is_not_made(project: Path, overlooked: bool) -> None:
    """Should a use be overlooked one day: better no module than one that does something else."""
    wanted = ["called", "by_own_header"] if overlooked else []
    script = str(ROOT / "scripts/translate.py")
    result = subprocess.run(
        [sys.executable, "-c", BUILD, script, *wanted],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    if overlooked:
        assert "undeclared name not builtin: alias" in result.stderr
        assert result.stderr.endswith("udpfast: there is no C for module\n")
        assert result.returncode != 0
        return
    assert result.returncode == 0, result.stderr
    compiler = sysconfig.get_config_var("CC").split()
    made = ("build/cython/udpfast/module.c", "-o", "udpfast/module.so")
    flags = ("-shared", "-fPIC", "-w", f"-I{sysconfig.get_path('include')}")
    subprocess.run([*compiler, *flags, *made], cwd=project, check=True)
    code = "from udpfast.module import run; print(run(1))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False
    )
    assert found.stdout == f"{1 + 3 + 333333}\n", found.stderr


def test_every_definition_of_the_headers_is_seen_as_one() -> None:
    begun = seen = 0
    for path in files("udpfast", ".pxd"):
        text = path.read_text()
        begun += len(re.findall(r"^c(?:p?def(?! extern)|typedef) ", text, re.MULTILINE))
        definitions = translate["DEFINITION"].findall(text)
        seen += len(definitions)
        for definition in definitions:
            assert min(map(len, translate["defined"](definition))) > 1, (path, definition)
        left = translate["CIMPORT"].sub("", translate["DEFINITION"].sub("", text))
        # No part of one is left: it would not be where it belongs, or be read for nothing.
        assert "cdef extern" in left or not re.search("^ ", left, re.MULTILINE), path
    assert seen == begun > 1500
