"""A journal and its export, made once; tests that change them use a copy."""

from pathlib import Path

import pytest

from tests.export.market import ROUNDS, make_journal
from udpfast.export.exporter import Exporter


@pytest.fixture(scope="package")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a closed journal of several segments."""
    return make_journal(tmp_path_factory.mktemp("market"), ROUNDS)


@pytest.fixture(scope="package")
def root(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of its export."""
    root = tmp_path_factory.mktemp("export")
    assert all(exported.written for exported in Exporter(journal, root, payloads=True).run())
    return root
