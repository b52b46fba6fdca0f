"""Random schemas and messages: a slice of the seeds."""

import pytest

from lab.sbecheck import check_seed


@pytest.mark.parametrize("seed", range(12))
def test_schema_and_its_messages_are_as_the_naive_encoder_says(seed: int) -> None:
    assert check_seed(seed)["messages"] >= 12
