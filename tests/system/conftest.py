"""What tests of several processes share."""

from collections.abc import Iterator

import pytest

from bench.namespaces import Wire
from tests.links import linked


@pytest.fixture(scope="module")
def link() -> Iterator[Wire]:
    """Return a wire between two network namespaces, for a file's tests."""
    yield from linked()
