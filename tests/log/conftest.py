"""Tests keep journals on a disk, as users do."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return an empty directory on a disk."""
    path = Path(tempfile.mkdtemp(prefix="udpfast-tests-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
