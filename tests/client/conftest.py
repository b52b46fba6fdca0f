"""Fixtures of the client's tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.instance import Instance
from tests.shared import ROOT


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """Return a fresh instance below `tmp_path`, closed at the end."""
    instance = Instance(tmp_path / "feed")
    yield instance
    instance.close()


@pytest.fixture
def environment() -> dict[str, str]:
    """Return the environment for a Python subprocess that imports this tree's udpfast."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
