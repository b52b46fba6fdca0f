"""Which piece of a ring's records comes next, given the pieces."""

from udpfast.client.seam import Piece, Where, log_behind, next_piece

A, B, C = (bytes([each]) * 16 for each in b"ABC")
NEVER = (1 << 63) - 1


def held(log, first, end, first_ns=0, in_place=False):
    return Piece(Where.HELD, log, first, end, first_ns if first < end else NEVER, in_place)


def present(log, first, end, first_ns=0):
    return Piece(Where.PRESENT, log, first, end, first_ns if first < end else NEVER, True)


def recorded(log, first, first_ns=0):
    return Piece(Where.JOURNAL, log, first, first + 1, first_ns)


def behind(log, files, order=(), later=(), passed=(), since_ns=0):
    return log_behind(log, passed, since_ns, files, order, later)


def test_next_piece_has_the_least_index_from_there_on():
    near, far = recorded(A, 5), held(A, 7, 9)
    assert next_piece(A, 3, [far, near]) is near
    assert next_piece(A, 6, [far, near]) is far


def test_next_piece_of_equal_ones_is_the_first():
    ring, journal = held(A, 0, 9), recorded(A, 4)
    assert next_piece(A, 4, [ring, journal]) is ring


def test_next_piece_is_not_one_without_records_unless_more_may_come():
    assert next_piece(A, 3, [held(A, 5, 5)]) is None
    waits = held(A, 5, 5, in_place=True)
    assert next_piece(A, 3, [waits]) is waits
    assert next_piece(A, 3, [waits, recorded(A, 4)]) == recorded(A, 4)


def test_next_piece_of_a_log_that_is_over_is_none():
    assert next_piece(A, 9, [held(A, 0, 9), recorded(B, 0)]) is None


def test_log_behind_is_that_of_the_older_file():
    older, newer = held(B, 0, 3), present(C, 0, 3)
    assert behind(A, [older, newer]) is older
    assert behind(A, [older, newer], passed=[B]) is newer
    assert behind(A, [held(B, 0, 0), newer]) is newer


def test_log_behind_is_in_the_order_of_the_journal():
    file, journal = held(C, 0, 3), recorded(B, 0, first_ns=9)
    assert behind(A, [file], [A, B, C], [journal]) is journal
    assert behind(B, [file], [A, B, C]) is file
    assert behind(C, [held(B, 0, 3)], [A, B, C]) is None  # of before


def test_log_behind_is_one_of_which_the_journal_has_no_record_yet():
    file, journal = held(B, 0, 3, first_ns=60), recorded(C, 0, first_ns=50)
    assert behind(A, [file], [A, B, C], [journal]) is file


def test_log_behind_that_both_have_is_that_of_the_lower_index():
    journal = recorded(B, 2)
    assert behind(A, [held(B, 5, 9)], [A, B], [journal]) is journal
    assert behind(A, [file := held(B, 1, 9)], [A, B], [journal]) is file


def test_log_behind_that_the_journal_does_not_have_is_placed_by_time():
    journal = recorded(C, 0, first_ns=50)
    assert behind(A, [file := held(B, 0, 3, first_ns=40)], [A, C], [journal]) is file
    assert behind(A, [held(B, 0, 3, first_ns=60)], [A, C], [journal]) is journal
    assert behind(A, [present(B, 0, 0)], [A, C], [journal]) is journal


def test_log_behind_one_that_was_not_recorded_is_not_of_before():
    old, new = recorded(B, 0, first_ns=10), recorded(C, 0, first_ns=30)
    assert behind(A, [], [B, C], [old, new], since_ns=20) is new
