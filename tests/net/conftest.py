"""The wire for tests of AF_XDP."""

from collections.abc import Iterator

import pytest

from bench.namespaces import Wire
from tests.links import linked


@pytest.fixture(scope="module")
def link() -> Iterator[Wire]:
    """Return a wire with two queues, its two ends in namespaces of their own."""
    yield from linked(queues=2)
