"""The files that a build removes, and those that change under it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.shared import ROOT

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

REMOVE = """
import os, runpy, setuptools, sys
setuptools.setup = lambda **settings: None
remove = runpy.run_path("setup.py")["remove_without_source"]
os.chdir(sys.argv[1])
remove()
"""


def test_compiled_modules_whose_source_is_gone_are_removed(tmp_path: Path) -> None:
    """Python would import such a module in place of the `.py` that has replaced its source."""
    kept = [f"udpfast/_cython{SUFFIX}", f"udpfast/log/ring{SUFFIX}", "udpfast/log/ring.pyx"]
    kept += ["udpfast/log/gone.py", "bench/library.so"]
    gone = [f"udpfast/log/gone{SUFFIX}", f"lab/gone{SUFFIX}", f"bench/loops/gone{SUFFIX}"]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run([sys.executable, "-c", REMOVE, tmp_path], cwd=ROOT, check=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)


CHANGED = """
import os, pathlib, runpy, setuptools, sys
setuptools.setup = lambda **settings: None
build = runpy.run_path("setup.py")
os.chdir(sys.argv[1])
build["date_back"](pathlib.Path("ring.c"), 2_000)
print(*build["changed_since"](2_000))
"""


def test_source_that_changed_during_a_build_is_newer_than_what_was_made(tmp_path: Path) -> None:
    """Else the next build would take a module made of the old source for one of the new one."""
    dates = {"ring.c": 4_000, "udpfast/old.pxd": 1_000, "udpfast/new.pxd": 3_000}
    dates |= {"udpfast/log/new.pyx": 3_000, "udpfast/log/new.py": 3_000}
    for name, date_ns in dates.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(date_ns, date_ns))
    found = subprocess.run(
        [sys.executable, "-c", CHANGED, tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == ["udpfast/log/new.pyx", "udpfast/new.pxd"]
    assert (tmp_path / "ring.c").stat().st_mtime_ns == 2_000


FLAGS = """
import os, pathlib, runpy, setuptools, sys
setuptools.setup = lambda **settings: None
build = runpy.run_path("setup.py")
os.chdir(sys.argv[1])
command = build["BuildExt"](setuptools.Distribution({"name": "udpfast"}))
command.build_lib = "built"
extension = setuptools.Extension("udpfast.ring", ["udpfast/ring.pyx"])
made = [build["c_source"](extension), command.built(extension)]
for change in sys.argv[2:]:
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    setattr(extension, change, [("MACRO", "1")] if change == "define_macros" else ["-Og"])
    command.forget_other_flags(extension)
    print(*[path.exists() for path in made])
"""


def test_module_built_with_other_flags_or_macros_is_forgotten(tmp_path: Path) -> None:
    changes = ("extra_compile_args", "extra_compile_args", "define_macros", "define_macros")
    found = subprocess.run(
        [sys.executable, "-c", FLAGS, tmp_path, *changes, "extra_link_args"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    kept, forgotten = "True True", "False False"
    assert found.stdout.splitlines() == [kept, kept, forgotten, kept, forgotten]


HEADERS = """
import pathlib, runpy, setuptools, sys
from distutils.ccompiler import new_compiler
from distutils.sysconfig import customize_compiler
setuptools.setup = lambda **settings: None
build = runpy.run_path("setup.py")
command = build["BuildExt"](setuptools.Distribution({"name": "udpfast"}))
command.finalize_options()
command.compiler = new_compiler()
customize_compiler(command.compiler)
command.compiler.set_include_dirs(command.include_dirs)
folder = pathlib.Path(sys.argv[1])
levels = "-Og", "-O3"
for level in levels:
    extension = setuptools.Extension("udpfast.ring", [], extra_compile_args=["-w", level])
    command.extensions.append(extension)
before = [extension.extra_compile_args for extension in command.extensions]
command.compile_headers(folder)
after = [extension.extra_compile_args for extension in command.extensions]
for name, flags in (("before", before), ("after", after)):
    for level, each in zip(levels, flags):
        place = str(folder / name / level)
        command.compiler.compile([sys.argv[2]], place, extra_postargs=["-H", *each])
"""
#: A module whose machine code is another one at each level, also that of what headers define.
MODULE = """
#define PY_SSIZE_T_CLEAN
#include "Python.h"
PyObject *last(PyObject *items) {
    PyObject *found = PyList_GET_ITEM(items, PyList_GET_SIZE(items) - 1);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(items); at++) {
        Py_INCREF(found);
        Py_DECREF(PyList_GET_ITEM(items, at));
    }
    return found;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_module_is_the_same_with_compiled_headers_of_its_flags(tmp_path: Path) -> None:
    source = tmp_path / "module.c"
    source.write_text(MODULE)
    found = subprocess.run(
        [sys.executable, "-c", HEADERS, tmp_path, source],
        cwd=ROOT,
        env={**os.environ, "CC": "gcc"},
        check=True,
        capture_output=True,
        text=True,
    )
    # GCC says with -H which headers it read.
    read = [line for line in found.stderr.splitlines() if line.startswith("! ")]
    assert read == [f"! {tmp_path}/-w{level}.h.gch" for level in ("-Og", "-O3")]
    made = {}
    for name in ("before", "after"):
        objects = sorted((tmp_path / name).rglob("*.o"))
        made[name] = [path.read_bytes() for path in objects]
    assert made["before"] == made["after"]
    assert len(set(made["after"])) == 2


@pytest.mark.parametrize(
    ("program", "is_gcc"),
    [("x86_64-linux-gnu-gcc-12", True), ("ccache", False), ("clang-14", False)],
)
def test_headers_are_compiled_only_for_gcc_itself(
    tmp_path: Path, program: str, is_gcc: bool
) -> None:
    """A compiler may have GCC's name and be another program."""
    (tmp_path / program).touch(mode=0o755)
    (tmp_path / "gcc").symlink_to(program)
    code = "import runpy, setuptools; setuptools.setup = lambda **settings: None; "
    code += "print(runpy.run_path('setup.py')['is_gcc']())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "CC": "gcc", "PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout == f"{is_gcc}\n"
