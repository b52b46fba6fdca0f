"""A slice of the seeded checks of damaged journals as tables."""

from pathlib import Path

from udpfast.testing.journal_exports import check_follows, check_sources


def test_damaged_journals_are_read_as_a_cursor_reads_them(tmp_path: Path) -> None:
    assert check_sources(tmp_path, 6, 1) == 6


def test_damaged_journals_are_followed_by_exporters_that_are_killed(tmp_path: Path) -> None:
    assert check_follows(tmp_path, 1, 1) == 1
