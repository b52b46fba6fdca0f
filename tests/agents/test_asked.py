"""What a request server is asked for, and when again."""

from udpfast.agents.recovery.asked import SILENT_REQUESTS, Asked, Quota, Request, Settings

MS = 1_000_000
SETTINGS = Settings(retry_ns=2 * MS, requests_per_s=10_000, messages_max=100)


def test_hole_is_asked_for_once_until_its_answer_is_due() -> None:
    asked = Asked(SETTINGS)
    hole = [(0, 5, 9)]
    assert asked.look(hole, 1) == [Request(0, 5, 5)]
    assert asked.look(hole, 1 + MS) == []
    assert asked.look(hole, 1 + 2 * MS) == [Request(0, 5, 5)]
    assert asked.repeated == 1


def test_requests_are_no_longer_than_the_venue_allows() -> None:
    asked = Asked(SETTINGS)
    assert asked.look([(0, 1, 250)], 1) == [
        Request(0, 1, 100),
        Request(0, 101, 100),
        Request(0, 201, 50),
    ]


def test_rest_of_a_partial_answer_is_asked_for_at_once() -> None:
    asked = Asked(SETTINGS)
    asked.look([(0, 1, 50)], 1)
    assert asked.answer(0, 1, 20, 2)
    # The loop has not taken the answer yet.
    assert asked.look([(0, 1, 50)], 3) == [Request(0, 21, 30)]
    assert asked.look([(0, 21, 50)], 4) == []


def test_hole_that_grew_is_asked_for_where_it_is_new() -> None:
    asked = Asked(SETTINGS)
    asked.look([(0, 10, 19)], 1)
    assert asked.look([(0, 5, 30)], 2) == [Request(0, 5, 5), Request(0, 20, 11)]


def test_streams_are_asked_for_apart() -> None:
    asked = Asked(SETTINGS)
    assert asked.look([(1, 5, 5), (2, 5, 5)], 1) == [Request(1, 5, 1), Request(2, 5, 1)]
    assert asked.answer(2, 5, 1, 2)
    assert not asked.answer(3, 5, 1, 2)


def test_answer_to_nothing_is_strange() -> None:
    asked = Asked(SETTINGS)
    asked.look([(0, 10, 19)], 1)
    assert not asked.answer(0, 20, 5, 2)
    assert not asked.answer(0, 1, 9, 2)
    assert asked.answer(0, 8, 3, 2)


def test_venues_limit_holds_requests_back() -> None:
    asked = Asked(Settings(retry_ns=MS, requests_per_s=10, messages_max=10))
    holes = [(0, n, n) for n in range(1, 100, 2)]
    sent = sum(len(asked.look(holes, second * 50 * MS + 1)) for second in range(41))
    assert sent <= 21
    assert asked.held_back > 0


def test_server_that_does_not_answer_is_silent_until_it_does() -> None:
    asked = Asked(SETTINGS)
    hole = [(0, 5, 9)]
    now_ns = 1
    for _ in range(SILENT_REQUESTS):
        assert not asked.silent
        assert asked.look(hole, now_ns)
        now_ns += 2 * MS
    asked.look(hole, now_ns)
    assert asked.silent
    assert asked.answer(0, 5, 5, now_ns)
    assert not asked.silent


def test_hole_that_another_line_filled_says_nothing_of_the_server() -> None:
    asked = Asked(SETTINGS)
    for number in range(2 * SILENT_REQUESTS):
        asked.look([(0, number, number)], 1 + number * 2 * MS)
    assert not asked.silent


def test_numbers_that_began_anew_are_asked_for_anew() -> None:
    asked = Asked(SETTINGS)
    asked.begin(0, 1)
    asked.begin(7, 1)
    asked.look([(0, 5, 9), (7, 5, 9)], 1)
    assert not asked.begin(0, 1)
    assert asked.look([(0, 5, 9), (7, 5, 9)], 2) == []
    assert asked.begin(0, 2)
    assert asked.look([(0, 5, 9), (7, 5, 9)], 3) == [Request(0, 5, 5)]


def test_what_was_refused_is_not_asked_for_soon() -> None:
    asked = Asked(SETTINGS)
    asked.look([(0, 5, 9)], 1)
    asked.refuse(0, 5, 5, 2, 1_000 * MS)
    assert asked.look([(0, 5, 9)], 500 * MS) == []
    assert asked.look([(0, 5, 9)], 1_001 * MS) == [Request(0, 5, 5)]


def test_answer_in_pieces_is_taken_piece_by_piece() -> None:
    for in_pieces in (False, True):
        asked = Asked(SETTINGS._replace(in_pieces=in_pieces))
        asked.look([(0, 1, 50)], 1)
        assert asked.answer(0, 11, 10, 2)
        assert asked.answer(0, 41, 10, 2)
        assert asked.answer(0, 1, 10, 2)
        # The rest comes by itself, or is asked for again; it is an answer either way.
        again = asked.look([(0, 21, 40)], 3)
        assert again == ([] if in_pieces else [Request(0, 21, 20)])
        assert asked.answer(0, 21, 20, 4)
        assert not asked.answer(0, 51, 1, 4)


def test_limits_hold_in_every_span_of_their_length() -> None:
    limits = Settings(MS, 100, 10, requests_per_min=400, requests_per_day=5_000)
    asked = Asked(limits)
    times: list[int] = []
    step_ns = 4 * MS
    for turn in range(1, 60_000):
        now_ns = turn * step_ns
        times += [now_ns] * len(asked.look([(0, n, n) for n in range(turn, turn + 3)], now_ns))
    for span_ns, limit in ((1_000 * MS, 100), (60_000 * MS, 400)):
        most, first = 0, 0
        for last, at in enumerate(times):
            while at - times[first] >= span_ns:
                first += 1
            most = max(most, last - first + 1)
        assert limit // 2 <= most <= limit
    assert len(times) <= 5_000 // 2 + 100


def test_quota_of_one_allows_one_in_each_span() -> None:
    quota = Quota(1, 1_000, 2)
    spent = []
    for now_ns in range(5_001):
        if quota.left(now_ns):
            quota.spend()
            spent.append(now_ns)
    assert spent == [0, 1_000, 2_000, 3_000, 4_000, 5_000]


def test_server_that_has_answered_enough_is_left_alone() -> None:
    asked = Asked(SETTINGS)
    asked.pause(10 * MS)
    assert asked.look([(0, 1, 2)], 9 * MS) == []
    assert asked.look([(0, 1, 2)], 10 * MS) == [Request(0, 1, 2)]
