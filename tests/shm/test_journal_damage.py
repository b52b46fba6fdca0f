"""Journals after a crash: what opens is a valid prefix, and never an invalid record."""

from udpfast.testing.journalcheck import (
    check_bit_flips,
    check_cuts,
    check_dropped_pages,
    check_kills,
)


def test_journal_cut_anywhere_is_a_valid_prefix(tmp_path):
    assert check_cuts(tmp_path, cuts=64, seed=1) == 64


def test_journal_with_a_flipped_bit_hands_out_no_invalid_record(tmp_path):
    assert check_bit_flips(tmp_path, flips=150, seed=1) == 150


def test_journal_that_lost_pages_is_valid_up_to_what_was_synced(tmp_path):
    assert check_dropped_pages(tmp_path, images=25, seed=1) == 25


def test_recorder_killed_loses_nothing_that_a_reader_could_see(tmp_path):
    assert check_kills(tmp_path, kills=5, seed=1) == 5
