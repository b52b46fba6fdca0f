"""Batches: columns, gathered updates, views that end with the next poll."""

import numpy as np
import pytest

from tests.client.instance import Instance
from udpfast import Kind, Reader
from udpfast.core.layout import GAP, RECORD
from udpfast.errors import ConfigError, FormatError
from udpfast.market.updates import TOP_OF_BOOK


def test_headers_of_a_batch_are_columns(instance: Instance) -> None:
    for number in range(5):
        instance.append(Kind.MESSAGE, b"x" * number, object_id=number)
    with Reader(instance.address, start="begin") as reader:
        headers = reader.poll().headers
    assert headers.dtype == RECORD
    assert headers["number"].tolist() == [1, 2, 3, 4, 5]
    assert headers["object"].tolist() == [0, 1, 2, 3, 4]
    assert headers["length"].tolist() == [64, 65, 66, 67, 68]
    assert not headers.flags.writeable


def test_payloads_of_a_batch_are_read_only_and_exact(instance: Instance) -> None:
    payloads = [bytes([number]) * number for number in range(30)]
    for payload in payloads:
        instance.append(Kind.MESSAGE, payload)
    with Reader(instance.address, start="begin") as reader:
        reader.poll(3)
        batch = reader.poll()
        assert [bytes(batch.payload(i)) for i in range(len(batch))] == payloads[3:]
        assert batch.payload(0).readonly
        for i in (-1, 27):
            with pytest.raises(IndexError, match="0 to 26"):
                batch.payload(i)


def test_offsets_of_a_batch_lead_to_its_payloads(instance: Instance) -> None:
    payloads = [bytes([number]) * number for number in range(30)]
    for payload in payloads:
        instance.append(Kind.MESSAGE, payload)
    with Reader(instance.address, start="begin") as reader:
        reader.poll(3)
        batch = reader.poll(20)
        sizes = batch.headers["length"] - RECORD.itemsize
        found = [
            batch.payloads[start : start + size].tobytes()
            for start, size in zip(batch.offsets.tolist(), sizes.tolist(), strict=True)
        ]
        assert found == payloads[3:23]
        assert not (batch.offsets % 8).any()
        assert not batch.payloads.flags.writeable
        reader.poll()
        for view in ("offsets", "payloads"):
            with pytest.raises(ValueError, match="no longer valid"):
                getattr(batch, view)


def test_polls_share_one_view_of_the_memory(instance: Instance) -> None:
    for _ in range(2):
        instance.append(Kind.MESSAGE, b"x")
    with Reader(instance.address, start="begin") as reader:
        payloads = reader.poll(1).payloads
        assert reader.poll(1).payloads is payloads, "ten microseconds for each poll"


def test_bytes_of_a_batch_are_those_of_its_records(instance: Instance) -> None:
    for number in range(30):
        instance.append(Kind.MESSAGE, bytes([number]) * number)
    with Reader(instance.address, start="begin") as reader:
        expected = b"".join(bytes(next(reader)) for _ in range(30))
    with Reader(instance.address, start="begin") as reader:
        first = bytes(reader.poll(7))
        batch = reader.poll()
        assert first + bytes(batch) == expected
        assert bytes(reader.poll(timeout=0)) == b""
        with pytest.raises(ValueError, match="no longer valid"):
            bytes(batch)


def test_select_gathers_one_kind_in_order(instance: Instance) -> None:
    for number in range(10):
        instance.top(float(number), number + 1.0)
        instance.book([(1.0, 1.0)], [])
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        tops = batch.select(Kind.TOP_OF_BOOK)
        gaps = batch.select(Kind.GAP)
        rows = batch.headers["kind"] == Kind.TOP_OF_BOOK
        assert rows.sum() == len(tops)
    assert tops.dtype == TOP_OF_BOOK
    assert tops.flags.c_contiguous
    assert tops["bid_price"].tolist() == list(range(10))
    assert gaps.dtype == GAP
    assert gaps.shape == (0,)


def test_select_of_a_kind_without_layout_is_refused(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"x")
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        with pytest.raises(FormatError, match="fixed layout, was MESSAGE"):
            batch.select(Kind.MESSAGE)
        with pytest.raises(ConfigError, match="was 99"):
            batch.select(99)  # type: ignore[arg-type]


def test_select_of_a_payload_that_is_too_short_is_refused(instance: Instance) -> None:
    instance.append(Kind.TOP_OF_BOOK, b"short")
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        with pytest.raises(FormatError, match="TOP_OF_BOOK takes at least 120 bytes, found 5"):
            batch.select(Kind.TOP_OF_BOOK)


def test_update_of_a_batch_views_header_and_rows(instance: Instance) -> None:
    instance.book([(10.0, 1.0)], [(11.0, 2.0), (12.0, 3.0)])
    with Reader(instance.address, start="begin") as reader:
        update = reader.poll().update(0)
        assert update.kind is Kind.BOOK
        assert update.bids["price"].tolist() == [10.0]
        assert update.asks["quantity"].tolist() == [2.0, 3.0]


def test_batch_asked_after_the_next_poll_is_refused(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"x")
    instance.append(Kind.MESSAGE, b"y")
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll(1)
        reader.poll(1)
        for ask in (
            lambda: batch.headers,
            lambda: batch.payload(0),
            batch.copy,
            lambda: batch.select(Kind.GAP),
        ):
            with pytest.raises(ValueError, match=r"batch is no longer valid"):
                ask()


def test_copy_of_a_batch_outlives_polls_and_the_reader(instance: Instance) -> None:
    for number in range(6):
        instance.append(Kind.MESSAGE, b"%d" % number)
    with Reader(instance.address, start="begin") as reader:
        reader.poll(2)
        kept = reader.poll(3).copy()
        empty = reader.poll(1) and reader.poll(timeout=0).copy()
    assert [bytes(kept.payload(i)) for i in range(len(kept))] == [b"2", b"3", b"4"]
    assert kept.headers["index"].tolist() == [2, 3, 4]
    assert len(empty) == 0
    assert repr(kept) == "<Batch of 3 records>"


def test_view_held_after_the_reader_is_gone_stays_mapped(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"still here")
    with Reader(instance.address, start="begin") as reader:
        view = np.frombuffer(reader.poll().payload(0), np.uint8)
    del reader
    assert view.tobytes() == b"still here"


def test_batch_that_is_iterated_or_indexed_says_how_to_read_it(instance: Instance) -> None:
    instance.top(1.0, 2.0)
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll(timeout=0)
        with pytest.raises(TypeError, match=r"for record in reader.*batch\.headers"):
            list(batch)
        with pytest.raises(TypeError, match=r"batch\.headers\[i\] with batch\.update\(i\)"):
            batch[0]
        assert len(batch) == 1
