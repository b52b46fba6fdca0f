"""Wires between two network namespaces, for tests on hosts that can make them."""

from collections.abc import Iterator

import pytest

from bench.namespaces import Wire, WireUnavailableError, wire


def linked(queues: int = 1) -> Iterator[Wire]:
    """Yield a wire with so many queues; skip the test where that is impossible."""
    try:
        with wire(queues=queues) as made:
            yield made
    except WireUnavailableError as reason:
        pytest.skip(str(reason))
