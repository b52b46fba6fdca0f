"""Arrows point down: what each folder of udpfast may import, and who may name what.

The numbers are those of docs/ARCHITECTURE.md. A folder imports lower numbers and itself; equals
do not see each other; some see less (`ONLY`). `import`, `cimport` and `include` lines are read,
wherever in the file they stand.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest

from tests.shared import ROOT
from tests.sources import files

LAYERS = {
    "errors": -1,
    "core": 0,
    "shm": 1,
    "net": 1,
    "wire": 1,
    "log": 2,
    "feed": 2,
    "market": 2,
    "payload": 3,
    "bus": 3,
    "page": 0,
    "host": 0,
    "config": 2,
    "archive": 4,
    "sbe": 5,  # udpfast/sbe.py: the public names of payload/sbe
    "agents": 5,
    "client": 5,
    "probe": 5,
    "export": 6,
    "monitor": 6,
    "spark": 7,
    "cli": 8,
    "__main__": 9,
    "": 10,  # udpfast/__init__.py: the public names
}

#: Packages that only a checkout has: nothing that users install may need them.
BESIDE = {"bench", "lab", "udpfast_bench", "udpfast_lab"}

#: Folders that see less than the layers below them.
ONLY = {
    "wire": {"core", "errors"},
    "feed": {"core", "errors", "wire"},
    "market": {"core", "errors"},
    "payload": {"core", "market", "wire", "errors"},
    "bus": {"core", "log", "errors"},
    "page": set(),
    "host": set(),
    "probe": {"core", "errors", "shm", "net", "host", "page"},
    "config": {"core", "errors", "host", "wire"},
    "export": {
        *("core", "errors", "shm", "log", "wire", "market", "config", "archive", "payload"),
    },
}

#: What a file may not name, unless it is the file whose business it is.
NAMED_IN_ONE_PLACE = [
    (r"\bclock_gettime\b", r"core/clock\.", "time comes from core/clock"),
    (r"\b__atomic_|\b__sync_|\bstdatomic\b", r"core/atomics\.", "atomics come from core/atomics"),
    (r"\bPyErr_SetFromErrno|\bos\.strerror\(", r"core/oserr\.", "-errno goes through core/oserr"),
    (r"\braise OSError\(", r"core/oserr\.", "-errno goes through core/oserr"),
]

#: State machines never ask the time: it is an argument.
TIMELESS = {"wire", "feed", "market", "payload", "bus"}
CLOCKS = re.compile(r"^\s*(from|c?import)\s+(udpfast\.core\.clock|time|datetime)\b")

IMPORT = re.compile(
    r"^\s*(?:from\s+(?P<source>\.*[\w.]*)\s+c?import\s+(?P<names>.+)|c?import\s+(?P<plain>.+))$"
)


def place(path: str) -> str:
    """Return the layer's name of a file below `udpfast/`: its folder, or its stem at the top."""
    head, _, rest = path.partition("/")
    return head if rest else head.partition(".")[0].replace("__init__", "")


def imported(path: str, line: str) -> Iterator[str]:
    """Yield the layers that an import line of `path` names."""
    match = IMPORT.match(line)
    if match is None:
        return
    names = [
        name.split()[0] for name in (match["names"] or match["plain"]).split(",") if name.strip()
    ]
    if match["plain"]:
        targets = names
    else:
        source = match["source"]
        if source.startswith("."):
            depth = len(source) - len(source.lstrip("."))
            parents = ["udpfast", *path.split("/")[:-1]]
            base = parents[: len(parents) - depth + 1]
            source = ".".join([*base, source.lstrip(".")]).rstrip(".")
        # `from udpfast import x` and `from udpfast.core cimport x`: x may be the module.
        targets = [f"{source}.{name.strip('(')}" for name in names]
    for target in targets:
        parts = target.split(".")
        if parts[0] in BESIDE:
            yield parts[0]
        elif parts[0] == "udpfast":
            yield parts[1] if len(parts) > 1 and parts[1] in LAYERS else ""


def broken_arrows(path: str, text: str) -> list[str]:
    """Return what is wrong with the imports and names of one file, a sentence each."""
    own = place(path)
    if own not in LAYERS:
        return [f"{path}: no layer is called {own!r}: give it a number in tests/test_layering.py"]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"udpfast/{path}:{number}"
        for target in imported(path, line):
            lower = (
                target in LAYERS
                and LAYERS[target] < LAYERS[own]
                and target in ONLY.get(own, LAYERS)
            )
            if target != own and not lower:
                found.append(f"{where}: {own or 'udpfast'} must not import {target or 'udpfast'}")
        if own in TIMELESS and CLOCKS.match(line):
            found.append(f"{where}: {own} never asks the time: take now_ns as an argument")
        if re.match(r"\s*include\s+[\"']", line):
            found.append(f"{where}: cimport instead of include")
        for pattern, exempt, instead in NAMED_IN_ONE_PLACE:
            if re.search(pattern, line) and not re.match(exempt, path):
                found.append(f"{where}: {instead}")
    return found


def test_every_import_points_down() -> None:
    found = []
    for path in files("udpfast", ".py", ".pyx", ".pxd"):
        name = str(path.relative_to(ROOT / "udpfast"))
        found += broken_arrows(name, path.read_text())
    assert not found, "\n" + "\n".join(found)


REFUSED = [
    ("core/x.pyx", "from udpfast.log.ring cimport Ring", "core must not import log"),
    ("host/x.py", "from udpfast.errors import ConfigError", "host must not import errors"),
    ("shm/x.py", "import udpfast.net.datagram", "shm must not import net"),
    ("net/x.py", "from udpfast import shm", "net must not import shm"),
    ("feed/x.pxd", "from udpfast.market.book cimport Book", "feed must not import market"),
    ("feed/x.pxd", "from udpfast.log.ring cimport Ring", "feed must not import log"),
    ("wire/x.pxd", "from udpfast.feed.window cimport window_slot", "wire must not import feed"),
    ("wire/x.pxd", "from udpfast.net.link cimport big16", "wire must not import net"),
    ("market/x.py", "    from udpfast.net import multicast", "market must not import net"),
    ("agents/x.py", "from udpfast.client.reader import Reader", "agents must not import client"),
    ("agents/x.py", "from ..client import reader", "agents must not import client"),
    ("agents/x.pyx", "from lab.frames import datagram", "agents must not import lab"),
    ("client/x.py", "from udpfast.cli import main", "client must not import cli"),
    ("export/x.py", "from udpfast.agents.feed.lines import x", "export must not import agents"),
    ("archive/x.py", "from udpfast.agents.feed.lines import x", "archive must not import agents"),
    ("cli/x.py", "from udpfast_lab import frames", "cli must not import udpfast_lab"),
    ("cli/x.py", "import bench.main", "cli must not import bench"),
    ("client/x.py", "from udpfast import Subscriber", "client must not import udpfast"),
    ("errors.py", "from udpfast.core import oserr", "errors must not import core"),
    ("config/x.py", "from udpfast.net.datagram import Batch", "config must not import net"),
    (
        "feed/x.pyx",
        "from udpfast.core.clock cimport clock_monotonic_ns",
        "feed never asks the time",
    ),
    ("market/x.py", "import time", "market never asks the time"),
    ("shm/x.pyx", "    clock_gettime(CLOCK_MONOTONIC, &now)", "time comes from core/clock"),
    ("shm/x.pxd", "    __atomic_store_n(p, v, 0);", "atomics come from core/atomics"),
    ("net/x.pyx", "raise OSError(-rc, 'no')", "-errno goes through core/oserr"),
    ("net/x.pyx", 'include "y.pxi"', "cimport instead of include"),
    ("common/x.py", "", "no layer is called 'common'"),
]


@pytest.mark.parametrize(("path", "line", "message"), REFUSED)
def test_broken_arrows_wrong_line_is_refused(path: str, line: str, message: str) -> None:
    assert [found for found in broken_arrows(path, line) if message in found]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("core/x.pyx", "from udpfast.core.atomics cimport counter_add"),
        ("core/x.pyx", "from udpfast.errors import ConfigError"),
        ("shm/x.pyx", "from udpfast.core cimport layout"),
        ("shm/x.pyx", "from .region cimport Region"),
        ("feed/x.pxd", "from udpfast.core.layout cimport (Frame, Message)"),
        ("agents/x.pyx", "from udpfast.config import FeedConfig"),
        ("agents/x.pyx", "from ..log.ring cimport Ring"),
        ("cli/x.py", "import numpy as np, udpfast.client.reader"),
        ("core/clock.pxd", "clock_gettime(CLOCK_MONOTONIC, &now)"),
        ("__init__.py", "from udpfast.client.reader import Reader"),
    ],
)
def test_broken_arrows_right_line_passes(path: str, line: str) -> None:
    assert broken_arrows(path, line) == []


#: What `pip install udpfast` brings, and what its extras for users do.
EXTRAS = ("market", "export", "monitor", "nautilus", "spark")
#: Brought by one of those (py4j: pyspark), compiled away, or the user's own (a frame of polars).
UNDECLARED = {"py4j", "cython", "polars"}


def declared() -> set[str]:
    """Return the distributions that the project asks pip for, in lower case."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    return {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in asked}


def packages_imported(tree: ast.AST) -> Iterator[str]:
    """Yield the packages that a module imports when it runs: not `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):  # most nodes; no expression holds a statement
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        else:
            yield from packages_imported(node)


def cython_imported(text: str) -> Iterator[str]:
    """Yield the packages that a `.pyx` imports; `cimport` lines are the compiler's."""
    for match in re.finditer(r"^\s*(?:from\s+(\w+)[\w.]*\s+import\b|import\s+(\w+))", text, re.M):
        yield match[1] or match[2]


def test_every_imported_package_is_one_that_pip_is_asked_for() -> None:
    """What only the tools of a checkout bring is missing where a user has installed udpfast."""
    homes, asked = packages_distributions(), declared()
    known = {"udpfast", *sys.stdlib_module_names, *UNDECLARED}
    found = []
    for path in files("udpfast", ".py", ".pyx"):
        text = path.read_text()
        python = path.suffix == ".py"
        for name in packages_imported(ast.parse(text)) if python else cython_imported(text):
            brings = {home.lower().replace("_", "-") for home in homes.get(name, [name])}
            if name not in known and not brings & asked:
                found.append(f"{path.relative_to(ROOT)}: imports {name}, which nothing brings")
    assert not found, "\n" + "\n".join(found)
