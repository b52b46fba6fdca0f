"""Decoding event payloads: verified, filled in, names interned."""

import pytest

from ..decode_ways import decode_loops, kind_loops

LOOPS = decode_loops() | kind_loops()


@pytest.mark.parametrize("name", LOOPS)
def test_decode(measure, name):
    measure(LOOPS[name])
