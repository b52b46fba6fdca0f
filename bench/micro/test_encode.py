"""Encode a book of ten levels."""

import pytest

from ..decode_ways import OTHER_LOOPS, other_loops

NAMES = [name for name in OTHER_LOOPS if name.startswith("encode")]


@pytest.mark.parametrize("name", NAMES)
def test_encode(measure, tmp_path, name):
    measure(other_loops(tmp_path)[name])
