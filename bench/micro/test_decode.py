"""Decoding event payloads: verified, filled in, names interned."""

from collections.abc import Callable

import pytest

from ..decode_ways import decode_loops, kind_loops
from ..loops.micro import Loop

LOOPS = decode_loops() | kind_loops()


@pytest.mark.parametrize("name", LOOPS)
def test_decode(measure: Callable[[Loop], None], name: str) -> None:
    measure(LOOPS[name])
