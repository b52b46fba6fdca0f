"""Apply updates to a book of 1,000 levels."""

import pytest

from ..decode_ways import OTHER_LOOPS, other_loops

NAMES = [name for name in OTHER_LOOPS if name.startswith("book")]


@pytest.mark.parametrize("name", NAMES)
def test_book(measure, tmp_path, name):
    measure(other_loops(tmp_path)[name])
