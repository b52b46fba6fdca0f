"""What is waited for, and may be misspelt."""

import time
import warnings

import pytest

from udpfast.client.appearing import when_there


@pytest.mark.parametrize("hint", ["", "; did you mean 'deribit'?"])
def test_misspelt_name_is_said_once_while_it_is_waited_for(hint: str) -> None:
    def attach() -> None:
        raise FileNotFoundError(2, f"no such instance{hint}", "deribt")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(FileNotFoundError):
            when_there(attach, time.monotonic() + 1.0)
    assert [hint in str(each.message) for each in said] == [True] * bool(hint)
