"""What a publication puts on the wire, read back by a parser of the test's own."""

import random

import pytest

from tests.feed.frames_out import messages, parse
from udpfast.feed.publication import Publication

INCREMENTAL, SNAPSHOT = 0, 1


def published(publication: Publication, channel: int = INCREMENTAL, **options: object):
    return messages(publication.take(channel), **options)


def test_publish_small_message_is_one_datagram():
    publication = Publication(0xABCD)
    assert publication.publish(b"state", 41, 4097, now_ns=0) == 1
    (datagram,) = publication.take(INCREMENTAL)
    assert datagram == bytes.fromhex("020000290110cdab0100000000000000") + b"state"
    assert publication.take(INCREMENTAL) == []


def test_publish_big_endian_swaps_only_integers_of_the_frame():
    publication = Publication(0xABCD, first_seqno=0x01020304, byteorder="big")
    publication.publish(b"\x01\x02", 41, 4097, now_ns=0)
    (datagram,) = publication.take(INCREMENTAL)
    assert datagram.hex() == "020000291001abcd01020304000000000102"


def test_publish_legacy_has_no_snapshot_bit():
    publication = Publication(1, encoding=0x12, revision="legacy")
    publication.publish(b"x", 1, 1, snapshot=True, now_ns=0)
    assert publication.take(INCREMENTAL)[0][0] == 0x12


def test_publish_snapshot_bit_is_set_on_both_channels():
    publication = Publication(1, encoding=1)
    publication.publish(b"x", 1, 1, snapshot=True, now_ns=0)
    publication.publish_snapshot(b"x", 1, 1, now_ns=0)
    assert publication.take(INCREMENTAL)[0][0] == publication.take(SNAPSHOT)[0][0] == 0x11


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1024, 131_071, 131_072])
def test_publish_any_size_comes_back_from_its_fragments(size):
    payload = random.Random(size).randbytes(size)
    publication = Publication(1)
    publication.publish(payload, 1, 1, now_ns=0)
    publication.publish_snapshot(payload, 1, 1, now_ns=0)
    datagrams = publication.take(INCREMENTAL)
    assert len(datagrams) == (size + 511) // 512
    assert parse(datagrams[0]).fragment_max == len(datagrams) - 1
    assert messages(datagrams)[0].payload == payload
    assert published(publication, SNAPSHOT)[0].payload == payload


@pytest.mark.parametrize("size", [0, 131_073])
def test_publish_impossible_size_is_refused_and_takes_no_seqno(size):
    publication = Publication(1)
    with pytest.raises(ValueError, match=rf"payload must have 1..131072 bytes .* had {size}"):
        publication.publish(bytes(size), 1, 1, now_ns=0)
    with pytest.raises(ValueError, match="payload must have"):
        publication.publish_snapshot(bytes(size), 1, 1, now_ns=0)
    assert publication.next_seqno == publication.next_snapshot_seqno == 1


def test_publish_last_seqno_chains_each_object_apart():
    publication = Publication(1, first_seqno=10)
    for object_type, object_id in [(1, 1), (1, 2), (2, 1), (1, 1), (0, 0), (0, 0), (1, 2), (1, 1)]:
        publication.publish(b"x", object_type, object_id, now_ns=0)
    found = [(m.seqno, m.object_type, m.object_id, m.last_seqno) for m in published(publication)]
    assert found == [
        (10, 1, 1, 0),
        (11, 1, 2, 0),
        (12, 2, 1, 0),
        (13, 1, 1, 10),
        (14, 0, 0, 0),
        (15, 0, 0, 0),
        (16, 1, 2, 11),
        (17, 1, 1, 13),
    ]


def test_publish_across_the_wrap_goes_on_from_zero():
    publication = Publication(1, first_seqno=2**32 - 2, first_snapshot_seqno=2**32 - 1)
    for _ in range(4):
        publication.publish(b"x", 1, 1, now_ns=0)
        publication.publish_snapshot(b"x", 1, 1, now_ns=0)
    assert [(m.seqno, m.last_seqno) for m in published(publication)] == [
        (2**32 - 2, 0),
        (2**32 - 1, 2**32 - 2),
        (0, 2**32 - 1),
        (1, 0),
    ]
    assert [(m.seqno, m.last_seqno) for m in published(publication, SNAPSHOT)] == [
        (2**32 - 1, 2**32 - 2),
        (0, 2**32 - 1),
        (1, 0),
        (2, 1),
    ]


def test_snapshot_last_seqno_is_in_incremental_numbering():
    publication = Publication(1, first_seqno=500, first_snapshot_seqno=9)
    publication.publish_snapshot(b"before any", 1, 1, now_ns=0)
    publication.publish(b"x", 1, 1, now_ns=0)
    publication.publish(b"y", 1, 1, now_ns=0)
    publication.publish_snapshot(b"now", 1, 1, now_ns=0)
    publication.publish_snapshot(b"taken earlier", 1, 1, last_seqno=500, now_ns=0)
    assert [(m.seqno, m.last_seqno) for m in published(publication, SNAPSHOT)] == [
        (9, 0),
        (10, 501),
        (11, 500),
    ]


def test_snapshot_in_parts_keeps_payload_and_last_seqno_of_its_beginning():
    publication = Publication(1)
    publication.publish(b"a", 1, 1, now_ns=0)
    state = bytearray(b"s" * 1500)
    assert publication.begin_snapshot(state, 1, 1, now_ns=0) == 3
    assert publication.continue_snapshot(1, now_ns=0) == 1
    state[:] = b"t" * 1500
    publication.publish(b"b", 1, 1, now_ns=0)
    with pytest.raises(BufferError, match="not published to its end"):
        publication.publish_snapshot(b"other", 1, 2, now_ns=0)
    assert publication.snapshot_open
    assert publication.continue_snapshot(9, now_ns=0) == 2
    assert publication.continue_snapshot(9, now_ns=0) == 0
    assert not publication.snapshot_open
    (message,) = published(publication, SNAPSHOT)
    assert (message.last_seqno, message.payload) == (1, b"s" * 1500)


@pytest.mark.parametrize("offset", [0, 300, 508, 511, 512, 1016])
def test_publish_stamp_replaces_eight_bytes_even_across_fragments(offset):
    payload = bytes(1024)
    publication = Publication(1)
    publication.publish(payload, 1, 1, now_ns=0, stamp_offset=offset, stamp_ns=0x1122334455667788)
    publication.publish_snapshot(
        payload, 1, 1, now_ns=0, stamp_offset=offset, stamp_ns=0x1122334455667788
    )
    expected = bytearray(1024)
    expected[offset : offset + 8] = bytes.fromhex("8877665544332211")
    assert published(publication)[0].payload == expected
    assert published(publication, SNAPSHOT)[0].payload == expected
    assert payload == bytes(1024)


def test_publish_stamp_beyond_the_payload_is_refused():
    with pytest.raises(ValueError, match="room for 8 bytes in a payload of 10, was 3"):
        Publication(1).publish(bytes(10), 1, 1, now_ns=0, stamp_offset=3)


def test_heartbeat_after_silence_takes_a_seqno_per_channel():
    publication = Publication(7, heartbeat_interval_ns=1000)
    assert publication.heartbeat(5000) == 0  # the interval starts with the first look
    publication.publish(b"x", 1, 1, now_ns=5400)
    assert publication.heartbeat(5999) == 0
    assert publication.heartbeat(6000) == 1
    assert publication.heartbeat_due_ns() == 6400
    assert publication.heartbeat(6400) == 1
    assert [
        (m.seqno, m.object_type, m.object_id, m.last_seqno, m.payload)
        for m in published(publication)
    ] == [(1, 1, 1, 0, b"x"), (2, 0, 0, 0, b"")]
    assert [m.seqno for m in published(publication, SNAPSHOT)] == [1]
    assert publication.counters(INCREMENTAL) == {
        "messages": 2,
        "heartbeats": 1,
        "datagrams": 2,
        "bytes": 33,
    }


def test_heartbeat_does_not_interrupt_an_open_snapshot():
    publication = Publication(7, heartbeat_interval_ns=1000)
    publication.begin_snapshot(bytes(600), 1, 1, now_ns=0)
    publication.continue_snapshot(1, now_ns=0)
    publication.heartbeat(50_000)
    assert publication.pending(SNAPSHOT) == 1


def test_heartbeat_interval_zero_sends_none():
    publication = Publication(7, heartbeat_interval_ns=0)
    assert publication.heartbeat(0) == publication.heartbeat(10**18) == 0
    assert publication.heartbeat_due_ns() == -1


def test_restart_begins_again_and_forgets_objects():
    publication = Publication(7, first_seqno=3)
    publication.publish(b"x", 1, 1, now_ns=0)
    publication.begin_snapshot(bytes(600), 1, 1, now_ns=0)
    publication.restart(8)
    publication.publish(b"x", 1, 1, now_ns=0)
    publication.publish_snapshot(b"x", 1, 2, now_ns=0)
    assert [(m.session_id, m.seqno, m.last_seqno) for m in published(publication)] == [
        (7, 3, 0),
        (8, 3, 0),
    ]
    assert [(m.session_id, m.seqno, m.object_id) for m in published(publication, SNAPSHOT)] == [
        (8, 1, 2)
    ]


def test_publish_into_a_full_send_queue_is_refused_and_takes_no_seqno():
    publication = Publication(1)
    publication.publish(bytes(131_072), 1, 1, now_ns=0)
    publication.publish(bytes(131_072), 1, 1, now_ns=0)
    with pytest.raises(BufferError, match="1 datagrams more, 512 of 512 wait already"):
        publication.publish(b"x", 1, 1, now_ns=0)
    assert publication.next_seqno == 3
    assert len(published(publication)) == 2


def test_views_are_the_bytes_that_take_returns():
    publication = Publication(1)
    publication.publish(random.Random(1).randbytes(1300), 1, 1, now_ns=0)
    data, offsets, sizes = publication.views(INCREMENTAL)
    seen = [bytes(data[o : o + s]) for o, s in zip(offsets, sizes, strict=True)]
    assert seen == publication.take(INCREMENTAL)
    publication.publish(b"x", 1, 1, now_ns=0)
    publication.clear(INCREMENTAL)
    assert publication.pending(INCREMENTAL) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"session_id": 65_536}, "session_id must be 0..65535, was 65536"),
        ({"session_id": 1, "encoding": 16}, "encoding must be 0..15, was 16"),
        ({"session_id": 1, "revision": "new"}, "revision must be 'current' or 'legacy', was 'new'"),
        ({"session_id": 1, "byteorder": "middle"}, "byteorder must be 'little' or 'big'"),
        ({"session_id": 1, "first_seqno": -1}, "first_seqno must be 0..4294967295, was -1"),
    ],
)
def test_publication_wrong_setting_says_expected_and_found(settings, message):
    with pytest.raises(ValueError, match=message):
        Publication(**settings)


@pytest.mark.parametrize("numbers", [(256, 1), (1, 65_536), (-1, 1)])
def test_publish_wrong_object_is_refused(numbers):
    with pytest.raises(ValueError, match=r"object_(type|id) must be"):
        Publication(1).publish(b"x", *numbers, now_ns=0)
