"""Fixtures for every test."""

import random

import pytest
from hypothesis import settings

# A loaded two-core machine stops a test for longer than any deadline worth having.
settings.register_profile("udpfast", deadline=None)
settings.load_profile("udpfast")


@pytest.fixture
def rng() -> random.Random:
    """Return a seeded generator, the same in every run."""
    return random.Random(20_261_121)
