"""A slice of the seeded checks of damaged journals as tables."""

from pathlib import Path

import pytest

from lab.journal_exports import check_follows, check_sources


# The last two: a journal that lost its end, read a few records at a time; a lost page of `journal`.
@pytest.mark.parametrize(("seed", "seeds"), [(1, 4), (1110, 1), (1165, 1)])
def test_damaged_journals_are_read_as_a_cursor_reads_them(
    tmp_path: Path, seed: int, seeds: int
) -> None:
    assert check_sources(tmp_path, seeds, seed) == seeds


def test_damaged_journals_are_followed_by_exporters_that_are_killed(tmp_path: Path) -> None:
    assert check_follows(tmp_path, 1, 1) == 1
