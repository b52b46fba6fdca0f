"""Each pair of barriers in shared memory forbids an outcome that can happen without it."""

import pytest

from tests.log.litmus import Fence, Load, Store, outcomes

RELAXED, STRONG = False, True


def allowed(*threads, **wanted):
    """Return whether the threads may end with these values of registers and words."""
    return any(set(wanted.items()) <= end for end in outcomes(*threads))


def test_model_knows_what_processors_do():
    store_buffering = ([Store("x", 1), Load("y", "a")], [Store("y", 1), Load("x", "b")])
    assert allowed(*store_buffering, a=0, b=0)
    fenced = [[thread[0], Fence("full"), thread[1]] for thread in store_buffering]
    assert not allowed(*fenced, a=0, b=0)
    assert allowed([Load("x", "a"), Store("x", 1)], a=0)
    assert not allowed([Load("x", "a"), Store("x", 1)], a=1)


@pytest.mark.parametrize("release", [RELAXED, STRONG])
@pytest.mark.parametrize("acquire", [RELAXED, STRONG])
def test_record_is_whole_for_who_sees_its_commit_word(release, acquire):
    """`ring_store_commit` and `ring_run`: payload before word, word before payload."""
    writer = [Store("payload", 1), Store("word", 1, release)]
    reader = [Load("word", "word_", acquire), Load("payload", "payload_")]
    assert allowed(writer, reader, word_=1, payload_=0) is not (release and acquire)


@pytest.mark.parametrize("fence", ["none", "release"])
@pytest.mark.parametrize("look", ["none", "acquire"])
def test_bytes_of_the_next_lap_are_never_taken_for_sound(fence, look):
    """`ring_advance` and `ring_run`: intent before bytes, bytes before intent."""
    writer = [Store("intent", 1, True), Fence(fence), Store("bytes", 1)]
    reader = [Load("bytes", "bytes_"), Fence(look), Load("intent", "intent_")]
    wrong = allowed(writer, reader, bytes_=1, intent_=0)
    assert wrong is not (fence == "release" and look == "acquire")


@pytest.mark.parametrize("look", ["none", "acquire"])
def test_lapped_reader_finds_the_newest_record_of_before_its_lap(look):
    """`ring_advance` (by `ring_flush`) and `ring_run`, `ring_jump`: latest before intent."""
    writer = [Store("record", 1), Store("latest", 1, True), Store("intent", 1, True)]
    reader = [Load("intent", "intent_"), Fence(look), Load("latest", "latest_", True)]
    assert allowed(writer, reader, intent_=1, latest_=0) is (look == "none")


@pytest.mark.parametrize("release", [RELAXED, STRONG])
def test_records_below_the_tail_are_committed(release):
    """`ring_flush` and `_seek_oldest`: a record below the tail can be found."""
    writer = [Store("word", 1, True), Store("tail", 1, release)]
    reader = [Load("tail", "tail_", True), Load("word", "word_")]
    assert allowed(writer, reader, tail_=1, word_=0) is (release is RELAXED)


@pytest.mark.parametrize("release", [RELAXED, STRONG])
def test_ring_that_has_ended_shows_its_last_record(release):
    """`Ring.close`, `Ring.publish` and `ring_poll`: one more look after the end finds it."""
    writer = [Store("word", 1, True), Store("state", 2, release)]
    reader = [Load("state", "state_", True), Load("word", "word_", True)]
    assert allowed(writer, reader, state_=2, word_=0) is (release is RELAXED)


@pytest.mark.parametrize("release", [RELAXED, STRONG])
def test_writer_that_took_over_is_seen_with_where_it_begins(release):
    """`Ring.publish` and `_seek`: `began` before `epoch`."""
    writer = [Store("began", 1), Store("epoch", 2, release)]
    reader = [Load("epoch", "epoch_", True), Load("began", "began_")]
    assert allowed(writer, reader, epoch_=2, began_=0) is (release is RELAXED)


@pytest.mark.parametrize("release", [RELAXED, STRONG])
def test_what_a_writer_committed_before_it_said_that_it_is_current_is_there(release):
    """`ring_note_current` and `ring_stuck`: records before it, and looked for behind it."""
    writer = [Store("word", 1, True), Store("current_ns", 1, release)]
    reader = [Load("current_ns", "current_", True), Load("word", "word_", True)]
    assert allowed(writer, reader, current_=1, word_=0) is (release is RELAXED)
    # Who looks for records first has to look once more (`Relay.do_work`).
    assert allowed(writer, reader[::-1], current_=1, word_=0)


@pytest.mark.parametrize("order", [("index", "position"), ("position", "index")])
def test_position_and_index_that_are_read_one_by_one_may_be_of_two_moments(order):
    """`journal_flush`: no order of two loads helps, so `Journal.sync` reads both from a mark."""
    writer = [Store("index", 1), Store("position", 1, True)]
    reader = [Load(each, f"{each}_", True) for each in order]
    assert any(allowed(writer, reader, index_=seen, position_=1 - seen) for seen in (0, 1))


@pytest.mark.parametrize("release", [RELAXED, STRONG])
def test_mail_is_whole_and_its_slot_is_free_again(release):
    """`mail_put`, `mail_take`, `mail_done`; an answer ring, an outbox and XDP's rings alike."""
    writer = [Store("mail", 1), Store("put", 1, release)]
    reader = [Load("put", "put_", True), Load("mail", "mail_")]
    assert allowed(writer, reader, put_=1, mail_=0) is (release is RELAXED)
    taker = [Load("mail", "mail_"), Store("taken", 1, release)]
    writer = [Load("taken", "taken_", True), Store("mail", 2, when=("taken_", 1))]
    assert allowed(taker, writer, taken_=1, mail_=2) is (release is RELAXED)


@pytest.mark.parametrize("fence", ["none", "full"])
def test_peer_that_is_closed_is_not_used_any_more(fence):
    """`Reflector.close` and its loop: either the loop sees CLOSING, or the close sees the loop."""
    closing = [Store("state", 2, True), Fence(fence), Load("running", "running_", True)]
    loop = [Store("running", 1, True), Fence(fence), Load("state", "state_", True)]
    assert allowed(closing, loop, running_=0, state_=0) is (fence == "none")


@pytest.mark.parametrize("fence", ["none", "full"])
def test_sleeper_that_was_woken_and_sleeps_again_is_not_wiped_out(fence):
    """`waker_wake` and `Sleeper.arm`: 0 is stored before the bell rings."""
    writer = [Store("asleep", 0), Fence(fence), Store("bell", 1)]
    reader = [
        Load("bell", "bell_", True),
        Load("asleep", "asleep_"),
        Store("asleep", 1, when=("asleep_", 0)),
    ]
    ends = outcomes(writer, reader, asleep=1)
    wiped_out = any({("bell_", 1), ("asleep", 0)} <= end for end in ends)
    assert wiped_out is (fence == "none")


@pytest.mark.parametrize("fence", ["none", "full"])
def test_sleeper_sees_the_record_or_the_writer_sees_the_sleeper(fence):
    """`Sleeper.arm` and the next turn of the writer: one of the two looks late enough."""
    writer = [Store("word", 1, True), Fence(fence), Load("asleep", "asleep_")]
    reader = [Store("asleep", 1), Fence("full"), Load("word", "word_")]
    # Without a fence the writer may miss the sleeper once, but not in its next turn, a store later.
    assert allowed(writer, reader, asleep_=0, word_=0) is (fence == "none")
    writer = [
        Store("word", 1, True),
        Fence("none"),
        Load("asleep", "first"),
        Fence("full"),
        Load("asleep", "next"),
    ]
    assert not allowed(writer, reader, next=0, word_=0)


@pytest.mark.parametrize("fence", ["none", "release"])
def test_entry_of_an_image_is_whole_or_seen_to_be_replaced(fence):
    """`image_begin`, `image_end` and `image_copy`: begun before bytes, bytes before done."""
    writer = [Store("begun", 2), Fence(fence), Store("bytes", 2), Store("done", 2, True)]
    reader = [
        Load("done", "done_", True),
        Load("bytes", "bytes_"),
        Fence("acquire"),
        Load("begun", "begun_"),
    ]
    torn = allowed(writer, reader, done_=0, bytes_=2, begun_=0)
    assert torn is (fence == "none")
    assert not allowed(writer, reader, done_=2, bytes_=0)
