"""Publish and poll, by one thread."""

import pytest

from ..decode_ways import OTHER_LOOPS, other_loops

NAMES = [name for name in OTHER_LOOPS if name.startswith("ring")]


@pytest.mark.parametrize("name", NAMES)
def test_ring(measure, tmp_path, name):
    measure(other_loops(tmp_path)[name])
