"""Importing udpfast loads nothing: a process pays for what it uses."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import udpfast
from tests.shared import ROOT


def loaded(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_import_of_udpfast_loads_no_numpy_and_no_submodule() -> None:
    modules = loaded("import udpfast")
    assert "numpy" not in modules
    ours = {name for name in modules if name.startswith("udpfast.")}
    assert ours == {"udpfast.core", "udpfast.core.version"}  # a string


def test_source_that_nobody_compiled_says_what_to_do(tmp_path: Path) -> None:
    """A clone's own folder comes before an installed package, where a program starts in it."""
    for name in ("__init__.py", "core/__init__.py", "core/version.py", "client/__init__.py"):
        (tmp_path / "udpfast" / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / "udpfast" / name, tmp_path / "udpfast" / name)
    command = [sys.executable, "-S", "-c", "from udpfast import Reader"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    last = result.stderr.splitlines()[-1]
    place = str(tmp_path / "udpfast")
    assert last.startswith(f"ImportError: udpfast.client.reader is not compiled in {place}: start")


def test_import_of_the_reader_loads_no_sockets_no_configuration_no_feed() -> None:
    modules = loaded("import udpfast; udpfast.Reader")
    assert "udpfast.client.reader" in modules
    for prefix in ("udpfast.net", "udpfast.feed", "udpfast.agents", "udpfast.config", "msgspec"):
        assert not [name for name in modules if name.startswith(prefix)], prefix


def test_public_names_are_all_there_and_listed() -> None:
    assert set(udpfast.__all__) <= set(dir(udpfast))
    for name in udpfast.__all__:
        assert getattr(udpfast, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Rabbit'"):
        udpfast.Rabbit  # noqa: B018


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert udpfast.__version__ == project["version"]
