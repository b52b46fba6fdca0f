"""Fixtures of the agents' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """Return a fresh instance below `tmp_path`, closed at the end."""
    instance = Instance(tmp_path / "feed")
    yield instance
    instance.close()
