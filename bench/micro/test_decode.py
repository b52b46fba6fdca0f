"""Decoding event payloads: verified, filled in, names interned."""

from collections.abc import Callable

import pytest

from ..decode_ways import Operation, decode_loops, kind_loops

LOOPS = decode_loops() | kind_loops()


@pytest.mark.parametrize("name", LOOPS)
def test_decode(measure: Callable[[Operation], None], name: str) -> None:
    measure(LOOPS[name])
