"""Types: mypy --strict over udpfast, bench and lab; stubtest of every .pyi against its module."""

import ast
import enum
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import udpfast
from tests.shared import ROOT
from tests.sources import modules

# What Cython gives every class and module, and no stub names.
CYTHON_NAMES = r"""
.*\.__pyx_capi__
.*\.__test__
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__pyx_vtable__
.*\.__reduce__
.*\.__setstate__
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this interpreter in the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_mypy_strict_finds_nothing() -> None:
    # Writing a cache takes a quarter of the time, and who changes a line has one of their own.
    result = run("mypy", "--strict", "--cache-dir", os.devnull, "udpfast", "bench", "lab")
    assert result.returncode == 0, result.stdout + result.stderr


def test_stubs_match_the_compiled_modules(tmp_path: Path) -> None:
    allowlist = tmp_path / "cython_names.txt"
    allowlist.write_text(CYTHON_NAMES)
    result = run(
        "mypy.stubtest",
        "--allowlist",
        str(allowlist),
        "--ignore-unused-allowlist",
        "--ignore-disjoint-bases",
        "--concise",
        *modules(".pyx"),
        *modules(".pyx", "bench/loops"),
        *modules(".pyx", "lab"),
    )
    assert result.returncode == 0, result.stdout + result.stderr


COMPILED = [
    name
    for name in udpfast.__all__
    if inspect.isclass(thing := getattr(udpfast, name))
    and not issubclass(thing, enum.Enum)
    and (ROOT / thing.__module__.replace(".", "/")).with_suffix(".pyi").exists()
]


def constructor(kind: type) -> str:
    """Return the parameters that a class's stub says, without their types."""
    stub = (ROOT / kind.__module__.replace(".", "/")).with_suffix(".pyi")
    (found,) = (
        node
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "__new__"):
            said = node.args
            del said.args[0]
            for argument in ast.walk(said):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
            return ast.unparse(said)
    return ""


@pytest.mark.parametrize("name", COMPILED)
def test_class_shows_the_parameters_of_its_stub(name: str) -> None:
    kind = getattr(udpfast, name)
    shown = inspect.signature(kind)
    # A default that a stub leaves open is one.
    said = inspect.signature(eval(f"lambda {constructor(kind)}: 0"))
    assert list(shown.parameters) == list(said.parameters)
    for parameter in said.parameters.values():
        same = shown.parameters[parameter.name]
        assert same.kind == parameter.kind
        assert (same.default is same.empty) == (parameter.default is parameter.empty)
        if parameter.default is not ...:
            assert same.default == parameter.default
    assert not (inspect.getdoc(kind) or "").startswith(name)
