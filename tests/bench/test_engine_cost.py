"""The probe of the engine refuses figures of work that was not done."""

import pytest

from bench.loops.engine_cost import engine_cost_ns
from lab.frames import datagram


def test_engine_cost_counts_every_datagram_as_a_record() -> None:
    datagrams = [datagram(bytes(64), seqno=index + 1, control=1) for index in range(64)]
    assert engine_cost_ns(datagrams, batches=3) > 0


def test_engine_cost_of_datagrams_that_are_refused_is_no_figure() -> None:
    datagrams = [b"short"] * 64
    with pytest.raises(ValueError, match="expected 192 datagrams delivered"):
        engine_cost_ns(datagrams, batches=3)
