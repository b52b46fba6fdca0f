"""What users import exists and is documented."""

import ast
import enum
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import udpfast
import udpfast.errors
from tests.shared import ROOT
from tests.sources import modules

#: Modules of extras that no test's environment has, and the package that each needs.
APART = {
    "udpfast.client.nautilus": "nautilus_trader",
    "udpfast.client.nautilus_values": "nautilus_trader",
}


def imported(name: str) -> ModuleType:
    """Import a module; skip the test if it needs a package that is not there."""
    if name in APART:
        pytest.importorskip(APART[name], reason="not installed: an extra of its own")
    return importlib.import_module(name)


def names() -> list[str]:
    """Return every importable module of udpfast; a `__main__` runs when it is imported."""
    found = set(modules(".py")) | set(modules(".pyx"))
    importable = {name for name in found if not name.endswith(".__main__")}
    return sorted(name.removesuffix(".__init__") for name in importable)


def summary(thing: object) -> str:
    """Return the first line of a docstring, behind the signature that Cython puts before it."""
    lines = [line.strip() for line in (inspect.getdoc(thing) or "").splitlines()]
    name = getattr(thing, "__name__", "")
    if lines and name and re.match(rf"(?:\w+\.)?{re.escape(name)}\(", lines[0]):
        lines = lines[1:]
    return next((line for line in lines if line), "")


def undocumented(module: ModuleType) -> list[str]:
    """Return the public names of a module that are missing or have no docstring of their own."""
    found = []
    for name in getattr(module, "__all__", ()):
        if not hasattr(module, name):
            found.append(f"{module.__name__}.{name} is in __all__ and not there")
            continue
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        if not summary(thing):
            found.append(f"{module.__name__}.{name} has no docstring")
        if inspect.isclass(thing) and not issubclass(thing, enum.Enum | tuple | BaseException):
            found += undocumented_members(module.__name__, thing)
    return found


def undocumented_members(module: str, kind: type) -> list[str]:
    """Return the public methods and properties of a class that have no docstring."""
    return [
        f"{module}.{kind.__name__}.{name} has no docstring"
        for name, member in vars(kind).items()
        if not name.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod))
        and not summary(member)
    ]


@pytest.mark.parametrize("name", names())
def test_module_public_names_exist_and_are_documented(name: str) -> None:
    module = imported(name)
    assert not undocumented(module)
    if module.__file__ and Path(module.__file__).read_bytes():
        assert module.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("name", [name for name in names() if name.count(".") > 1])
def test_module_says_what_is_public(name: str) -> None:
    assert hasattr(imported(name), "__all__")


def test_udpfast_public_names_are_sorted_and_unique() -> None:
    public = list(getattr(udpfast, "__all__", []))
    assert len(public) == len(set(public))


@pytest.mark.parametrize(
    "name", ["NotReadyError", "OutboxFullError", "OutboxLostError", "SupersededError"]
)
def test_errors_of_an_app_are_public_and_have_one_home(name: str) -> None:
    from udpfast.bus import outbox

    assert getattr(udpfast, name) is getattr(udpfast.errors, name)
    assert name in udpfast.__all__
    assert name not in outbox.__all__


def test_compiled_modules_are_those_of_this_tree() -> None:
    for name in modules(".pyx"):
        file = importlib.import_module(name).__file__
        assert file is not None
        assert Path(file).is_relative_to(ROOT), f"{name} comes from {file}: run make build"


def test_undocumented_finds_what_is_missing() -> None:
    module = ModuleType("sample")
    exec(
        "__all__ = ['absent', 'bare', 'Bare']\n"
        "def bare(): pass\n"
        "class Bare:\n    'It is.'\n    def method(self): pass\n",
        module.__dict__,
    )
    assert undocumented(module) == [
        "sample.absent is in __all__ and not there",
        "sample.bare has no docstring",
        "sample.Bare.method has no docstring",
    ]


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, bool]]:
    """Return the parameters of a function in a stub, without `self`: name, and whether optional."""
    arguments = node.args
    several = [*arguments.posonlyargs, *arguments.args]
    required = len(several) - len(arguments.defaults)
    found = [(each.arg, place >= required) for place, each in enumerate(several)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found[1:] + [(each.arg, default is not None) for each, default in keywords]


def stubs() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, list[tuple[str, bool]]]]:
    """Yield class, method and parameters of each public compiled class, as its stub has them."""
    for name in udpfast.__all__:
        home = getattr(getattr(udpfast, name), "__module__", "")
        path = ROOT / f"{home.replace('.', '/')}.pyi"
        for node in ast.parse(path.read_text()).body if home and path.exists() else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                for member in node.body:
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield name, member, parameters(member)


def test_signatures_at_run_time_are_those_of_the_stubs() -> None:
    compared = set()
    for name, member, expected in stubs():
        method = member.name
        if member.decorator_list or not expected:
            continue
        if method in ("__init__", "__new__"):
            thing, skipped = getattr(udpfast, name), 0
        elif method.startswith("__"):
            continue
        else:
            thing, skipped = getattr(getattr(udpfast, name), method), 1
        found = list(inspect.signature(thing).parameters.values())[skipped:]
        assert [(each.name, each.default is not each.empty) for each in found] == expected, (
            f"{name}.{method}"
        )
        compared.add(name)
    assert compared >= {"Batch", "Books", "Callbacks", "Latest", "OrderBook", "Publisher", "Reader"}


def test_dir_of_the_package_has_its_public_names_alone() -> None:
    assert dir(udpfast) == sorted(udpfast.__all__)


@pytest.mark.parametrize(
    ("called", "message"),
    [
        (lambda: udpfast.Raeder, "no attribute 'Raeder'; did you mean 'Reader'"),
        (
            lambda: udpfast.Reader("ring:x", btach=3),
            r"Reader\(\) has no keyword 'btach'; did you mean 'batch'",
        ),
        (
            lambda: udpfast.OrderBook(levels=3),
            r"OrderBook\(\) has no keyword 'levels'; did you mean 'levels_max'",
        ),
        (lambda: udpfast.Books(zzz=3), r"Books\(\) has no keyword 'zzz'; it has reader"),
        (
            lambda: udpfast.Subscriber("feed.toml", conf=1),
            r"Subscriber\(\) has no keyword 'conf'; did you mean 'config'",
        ),
    ],
)
def test_misspelt_name_or_keyword_is_told_what_it_may_be(
    called: Callable[[], object], message: str
) -> None:
    with pytest.raises((AttributeError, TypeError), match=message):
        called()


def test_misspelt_name_is_hinted_at_once() -> None:
    code = "import udpfast; udpfast.Raeder"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.lower().count("did you mean") == 1, run.stderr
