"""A module in Cython as a user writes one, compiled with the installed `.pxd` files."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import udpfast
from tests.shared import ROOT

SETUP = """\
from Cython.Build import cythonize
from setuptools import setup

setup(ext_modules=cythonize("{name}.pyx", include_path=[{root!r}], language_level=3))
"""


def compile_module(directory: Path, name: str, source: str, environment: Mapping[str, str]) -> None:
    """Compile a module in a directory, from which it can then be imported."""
    (directory / f"{name}.pyx").write_text(source)
    (directory / "setup.py").write_text(SETUP.format(name=name, root=str(ROOT)))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    flags = {"CFLAGS": f"-O0 -I{udpfast.get_include()}"}
    subprocess.run(
        command, cwd=directory, env={**environment, **flags}, check=True, stdout=subprocess.DEVNULL
    )
