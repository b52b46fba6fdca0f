"""What follows from the traits of venues."""

import pytest

from udpfast.config import PAYLOADS
from udpfast.payload.traits import is_said_once


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_adds_orders_or_defines_instruments_is_said_once(payload: str) -> None:
    # IEX's quotes and levels name a symbol, and say all of it; objects of Roq have snapshots.
    again = payload in {"none", "roq", "iex_tops", "iex_deep"}
    assert is_said_once(PAYLOADS.index(payload)) is not again
