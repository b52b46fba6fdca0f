"""The pipeline: parse, verdict, window, message."""

import pytest

from ..decode_ways import OTHER_LOOPS, other_loops

NAMES = [name for name in OTHER_LOOPS if name.startswith("window")]


@pytest.mark.parametrize("name", NAMES)
def test_window(measure, tmp_path, name):
    measure(other_loops(tmp_path)[name])
