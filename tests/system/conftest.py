"""What tests of several processes share."""

from collections.abc import Iterator

import pytest

from bench.namespaces import Wire, WireUnavailableError, wire


@pytest.fixture(scope="module")
def link() -> Iterator[Wire]:
    """Return a wire between two network namespaces, for a file's tests."""
    try:
        with wire() as made:
            yield made
    except WireUnavailableError as reason:
        pytest.skip(str(reason))
