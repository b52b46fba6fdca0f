"""Encode a book of ten levels."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ..decode_ways import OTHER_LOOPS, Operation, other_loops

NAMES = [name for name in OTHER_LOOPS if name.startswith("encode")]


@pytest.mark.parametrize("name", NAMES)
def test_encode(measure: Callable[[Operation], None], tmp_path: Path, name: str) -> None:
    measure(other_loops(tmp_path)[name])
