"""The reader on a ring that the test fills: order, laps, ends, options."""

import math
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import udpfast
from tests.client.instance import Instance, NextWriter
from tests.client.test_dead_writer import die, fail
from tests.waiting import PATIENCE_S
from udpfast import Kind, Reader
from udpfast.core.layout import RECORD, ConnectionStatus, LappedReason, Stream
from udpfast.errors import ConfigError, FormatError, RegionError, RingClosedError
from udpfast.log.readers import list_readers
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH, UPDATE_DTYPES
from udpfast.shm.names import create_names


def test_iteration_of_a_closed_ring_returns_all_in_order_and_ends(instance: Instance) -> None:
    for number in range(1000):
        instance.append(Kind.MESSAGE, b"payload %d" % number)
    with Reader(instance.address, start="begin", batch=64) as reader:
        instance.ring.close()
        records = list(reader)
    assert [bytes(record.payload) for record in records] == [
        b"payload %d" % number for number in range(1000)
    ]
    assert [record.index for record in records] == list(range(1000))


def test_record_fields_are_those_of_the_header_and_frame(instance: Instance) -> None:
    instance.append(
        Kind.MESSAGE,
        b"abc",
        flags=udpfast.RecordFlag.SNAPSHOT,
        object_type=3,
        object_id=7,
        session=5,
        number=9,
        follows=8,
    )
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert record.kind is udpfast.Kind.MESSAGE
    assert record.flags == udpfast.RecordFlag.SNAPSHOT
    assert (record.object, record.session) == (3 << 16 | 7, 5)
    assert record.number == 9
    assert (record.received_ns, record.published_ns) == (1_001, 2_001)
    assert (record.position, record.index, record.stream, record.line) == (0, 0, 0, 0)
    assert record.payload.readonly
    assert record.payload == b"abc"
    assert (record.exchange, record.symbol, record.data, record.lapped) == (None, None, None, 0)
    assert len(bytes(record)) == RECORD.itemsize + 3


def test_record_of_an_update_resolves_names_and_views_the_payload(instance: Instance) -> None:
    instance.top(61_000.0, 61_000.5)
    instance.book([(10.0, 1.0), (9.0, 2.0)], [(11.0, 3.0)], symbol="ETHUSDT")
    with Reader(instance.address, start="begin") as reader:
        top, book = next(reader), next(reader)
    assert (top.exchange, top.symbol) == ("binance-usdm", "BTCUSDT")
    assert top.data["ask_price"] == 61_000.5
    assert len(top.rows) == 0
    assert book.symbol == "ETHUSDT"
    assert book.bids["price"].tolist() == [10.0, 9.0]
    assert book.asks["quantity"].tolist() == [3.0]


def test_names_interned_while_reading_are_resolved(instance: Instance) -> None:
    with Reader(instance.address, start="begin") as reader:
        instance.top(1.0, 2.0, symbol="first")
        assert next(reader).symbol == "first"
        instance.top(1.0, 2.0, symbol="second")
        assert next(reader).symbol == "second"
        assert reader.names[0] is None
        assert reader.names[1_000_000] is None


def test_record_kept_stays_as_it_was(instance: Instance) -> None:
    with Reader(instance.address, batch=2) as reader:
        kept = []
        for number in range(10):
            instance.append(Kind.MESSAGE, b"%d" % number)
            kept.append(next(reader))
    assert [bytes(record.payload) for record in kept] == [b"%d" % i for i in range(10)]


def test_start_at_tail_sees_only_what_comes(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"old")
    with Reader(instance.address) as reader:
        instance.append(Kind.MESSAGE, b"new")
        assert next(reader).payload == b"new"


def test_iteration_of_a_lapped_reader_says_how_many_it_missed(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=4096)
    with Reader(instance.address, start="begin") as reader:
        for _ in range(3):
            instance.append(Kind.MESSAGE, b"x" * 8)
        assert [next(reader).index for _ in range(2)] == [0, 1]
        for _ in range(1000):
            instance.append(Kind.MESSAGE, b"x" * 8)
        instance.ring.close()
        records = list(reader)
    # The third record had been copied before the lap.
    assert records[0].index == 2
    assert records[1].kind is Kind.LAPPED
    assert records[1].index == 3
    assert records[1].lapped == records[2].index - 3 > 0
    assert "missed" in repr(records[1])
    assert [record.index for record in records[2:]] == list(range(records[2].index, 1003))
    assert reader.lapped == records[1].lapped


def test_iteration_against_laps_at_random_accounts_for_every_record(
    tmp_path: Path, rng: Random
) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=8192)
    expected = 0
    with Reader(instance.address, start="begin", batch=16) as reader:
        for _ in range(200):
            for _ in range(rng.randrange(1, 200)):
                instance.append(Kind.MESSAGE, bytes(rng.randrange(40)))
            batch = reader.poll(rng.randrange(1, 16))
            expected += batch.lapped
            indices = batch.headers["index"].tolist()
            assert indices == list(range(expected, expected + len(batch)))
            expected += len(batch)
        assert reader.lapped > 0


def test_poll_returns_at_most_limit_and_goes_on_where_iteration_stopped(instance: Instance) -> None:
    for _ in range(20):
        instance.append(Kind.MESSAGE, b"x")
    with Reader(instance.address, start="begin") as reader:
        assert next(reader).index == 0
        assert reader.poll(5).headers["index"].tolist() == [1, 2, 3, 4, 5]
        assert next(reader).index == 6
        assert reader.index == 7
        assert reader.poll().headers["index"].tolist() == list(range(7, 20))


def test_poll_with_a_timeout_returns_an_empty_batch(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        for timeout in (0, 0.03):
            batch = reader.poll(timeout=timeout)
            assert len(batch) == 0
            assert batch.lapped == 0
            assert batch.headers.shape == (0,)


@pytest.mark.parametrize("idle", ["spin", "yield", "backoff", "sleep"])
def test_wait_of_every_idle_strategy_ends_with_a_record(instance: Instance, idle: str) -> None:
    with Reader(instance.address, idle=idle) as reader:
        begun = threading.Event()

        def write() -> None:
            begun.wait()
            instance.append(Kind.MESSAGE, b"x")

        writer = threading.Thread(target=write)
        writer.start()
        begun.set()
        assert len(reader.poll(timeout=PATIENCE_S)) == 1
        writer.join()


def test_poll_of_a_closed_ring_raises_once_all_is_read(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"x")
    with Reader(instance.address, start="begin") as reader:
        instance.ring.close()
        assert len(reader.poll()) == 1
        with pytest.raises(RingClosedError, match="closed it after 1 records"):
            reader.poll()


def test_ring_replaced_by_another_file_is_noticed_while_waiting(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        (instance.directory / "ring").rename(instance.directory / "elsewhere")
        with pytest.raises(RingClosedError, match="was removed"):
            next(reader)


def test_ring_replaced_is_noticed_by_polls_that_do_not_wait(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        (instance.directory / "ring").rename(instance.directory / "elsewhere")
        deadline = time.monotonic() + PATIENCE_S
        with pytest.raises(RingClosedError, match="was removed"):
            while time.monotonic() < deadline:
                reader.poll(timeout=0)


def test_restart_begins_a_batch_and_renews_the_names(instance: Instance) -> None:
    instance.top(1.0, 2.0, symbol="before")
    with Reader(instance.address, start="begin") as reader:
        again = _restart(instance)
        again.top(1.0, 2.0, symbol="after")
        first = reader.poll()
        assert first.headers["kind"].tolist() == [Kind.TOP_OF_BOOK]
        assert reader.names[first.update(0).header["symbol_id"]] == "before"
        second = reader.poll()
        assert second.headers["kind"].tolist() == [Kind.RESTART, Kind.TOP_OF_BOOK]
        assert reader.names[second.update(1).header["symbol_id"]] == "after"
        assert reader.epoch == 2
        again.close()


def test_restart_in_an_iteration_renews_the_names(instance: Instance) -> None:
    instance.top(1.0, 2.0, symbol="before")
    with Reader(instance.address, start="begin") as reader:
        again = _restart(instance)
        again.top(1.0, 2.0, symbol="after")
        again.close()
        before, restart, after = reader
        assert (before.symbol, after.symbol) == ("before", "after")
        assert restart.kind is Kind.RESTART
        assert restart.data["epoch"] == 2


@pytest.mark.parametrize("by_batch", [False, True])
def test_restart_missed_in_a_lap_renews_the_names(tmp_path: Path, by_batch: bool) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=4096)
    instance.top(1.0, 2.0, symbol="before")
    with Reader(instance.address, start="begin") as reader:
        assert next(reader).symbol == "before"
        again = _restart(instance)
        for _ in range(100):
            again.top(1.0, 2.0, symbol="after")
        again.close()
        if by_batch:
            batch = reader.poll()
            assert batch.lapped
            assert batch.names[batch.update(0).header["symbol_id"]] == "after"
        else:
            lapped, record = next(reader), next(reader)
            assert lapped.kind is Kind.LAPPED
            assert record.symbol == "after"


def test_names_that_are_being_made_are_waited_for(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=4096)
    instance.top(1.0, 2.0, symbol="before")
    with Reader(instance.address, start="begin") as reader:
        assert next(reader).symbol == "before"
        for _ in range(100):
            instance.top(1.0, 2.0, symbol="before")
        instance.names_region.close()
        instance.ring.region.close()
        # The next writer has begun a table that is not ready yet.
        region = create_names(instance.directory / "names", 1 << 15)
        assert next(reader).kind is Kind.LAPPED
        assert next(reader).symbol == "before"
        region.close()
        again = Instance(instance.directory, 4096)
        again.ring.announce_restart(now_ns=1)
        again.top(1.0, 2.0, symbol="after")
        again.close()
        *_, last = reader
        assert last.symbol == "after"


def feed_of_its_own(directory: Path, records: int, capacity_bytes: int = 1 << 20) -> int:
    """Start a process that writes records into an instance, first RESTART; return its pid."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        feed = Instance(directory, capacity_bytes)
        if feed.ring.restarted:
            feed.ring.announce_restart(1)
        for _ in range(records):
            feed.append(Kind.MESSAGE, b"x")
        feed.ring.flush()
        os.write(tell, b"!")
        time.sleep(PATIENCE_S)
        os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(tell)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("kinds", [None, [Kind.GAP]])
@pytest.mark.parametrize("capacity", [1 << 20, 1 << 21])
def test_writer_killed_and_back_is_said_in_band(
    tmp_path: Path, kinds: list[Kind] | None, capacity: int
) -> None:
    child = feed_of_its_own(tmp_path / "feed", 3)
    with Reader(f"ring:{tmp_path / 'feed'}", start="begin", kinds=kinds) as reader:
        assert reader.alive
        messages = [] if kinds else [next(reader).kind for _ in range(3)]
        kill(child)
        said = next(reader)
        assert not reader.alive
        assert (said.kind, said.stream) == (Kind.CONNECTION, Stream.NONE)
        assert said.data["status"] == ConnectionStatus.DISCONNECTED
        assert said.data["silent_ns"] >= 0
        assert len(reader.poll(timeout=0.3)) == 0  # once
        child = feed_of_its_own(tmp_path / "feed", 1, capacity)
        ready, restart = next(reader), next(reader)
        assert (ready.kind, ready.data["status"]) == (Kind.CONNECTION, ConnectionStatus.READY)
        assert ready.data["silent_ns"] == 0
        assert (restart.kind, reader.alive) == (Kind.RESTART, True)
        messages += [] if kinds else [next(reader).kind]
        kill(child)
        assert messages == ([] if kinds else [Kind.MESSAGE] * 4)
        assert reader.lapped == 0


def test_reader_of_a_dead_instance_says_so(tmp_path: Path) -> None:
    kill(feed_of_its_own(tmp_path / "feed", 3))
    with (
        pytest.warns(RuntimeWarning, match=r"its writer \(pid \d+\) is dead"),
        Reader(f"ring:{tmp_path / 'feed'}") as reader,
    ):
        assert not reader.alive
        assert next(reader).kind is Kind.CONNECTION


@pytest.mark.parametrize("kinds", [None, [Kind.GAP]])
def test_reader_behind_reads_the_old_file_to_its_end_and_goes_on_in_the_new_one(
    instance: Instance, kinds: list[Kind] | None
) -> None:
    with Reader(instance.address, kinds=kinds) as reader:
        for _ in range(5000):
            instance.append(Kind.MESSAGE, b"x" * 8)
        for _ in range(3):
            instance.append(Kind.GAP, bytes(24))
        instance.names_region.close()
        instance.ring.region.close()
        other = Instance(instance.directory, 1 << 22)
        other.append(Kind.MESSAGE, bytes(other.ring.payload_max))
        other.append(Kind.GAP, bytes(24))
        other.ring.close()
        found = [record.kind for record in reader]
        other.close()
    assert found.count(Kind.GAP) == 4
    assert found.count(Kind.MESSAGE) == (0 if kinds else 5001)
    assert reader.lapped == 0


def test_reader_is_told_that_nobody_knows_what_another_log_left_out(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        (instance.directory / "ring").unlink()
        with Ring.create(instance.directory, 1 << 20, PAYLOAD_HASH) as ring:
            ring.append(Kind.MESSAGE, b"x")
            lapped, record = next(reader), next(reader)
    assert (lapped.kind, lapped.lapped, record.kind) == (Kind.LAPPED, 1, Kind.MESSAGE)
    assert lapped.data["reason"] == LappedReason.UNKNOWN


def _restart(instance: Instance) -> Instance:
    """Drop the writer without an end record, as in a crash, and start another on the same ring."""
    instance.names_region.close()
    instance.ring.region.close()
    again = Instance(instance.directory, instance.ring.capacity_bytes)
    assert again.ring.restarted
    again.ring.announce_restart(now_ns=1)
    return again


def test_close_ends_the_iteration_of_another_thread(instance: Instance) -> None:
    reader = Reader(instance.address)
    ended = threading.Event()

    def iterate() -> None:
        for _ in reader:
            pass
        ended.set()

    thread = threading.Thread(target=iterate)
    thread.start()
    while not list_readers(instance.directory)[0].polled_ns:
        pass  # until the thread waits
    instance.append(Kind.MESSAGE, b"x")
    reader.close()
    thread.join(PATIENCE_S)
    assert ended.is_set()


def test_close_comes_between_any_two_steps_of_another_thread(instance: Instance) -> None:
    """With a million thread switches per second, no close leaves a half-open reader."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(500):
            reader = Reader(instance.address, start="begin")
            thread = threading.Thread(target=reader.close)
            thread.start()
            with pytest.raises(ValueError, match="closed"):
                while True:
                    reader.poll(timeout=0)
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_close_during_a_poll_of_another_thread_removes_the_registration(
    instance: Instance,
) -> None:
    reader = Reader(instance.address)
    batches = []
    thread = threading.Thread(target=lambda: batches.append(reader.poll()))
    thread.start()
    while not list_readers(instance.directory)[0].polled_ns:
        pass  # until the thread waits
    instance.append(Kind.MESSAGE, b"x")
    reader.close()
    thread.join(PATIENCE_S)
    assert [len(batch) for batch in batches] == [1]
    with pytest.raises(ValueError, match="is closed"):
        reader.poll(timeout=0)
    assert list_readers(instance.directory) == []


def test_closed_reader_refuses_to_read(instance: Instance) -> None:
    reader = Reader(instance.address)
    reader.close()
    reader.close()
    assert reader.closed
    assert "closed" in repr(reader)
    with pytest.raises(ValueError, match="is closed"):
        list(reader)
    with pytest.raises(StopIteration):  # an iteration that had begun ends
        next(reader)
    with pytest.raises(ValueError, match="is closed"):
        reader.poll(timeout=0)


def test_lag_counts_what_was_flushed_and_not_handed_out(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        for _ in range(10):
            instance.append(Kind.MESSAGE, b"x")
        instance.ring.flush()
        assert reader.lag == 10
        reader.poll(4)
        assert reader.lag == 6
        next(reader)
        assert reader.lag == 5


def test_registry_lists_the_reader_while_it_is_open(instance: Instance) -> None:
    for _ in range(10):
        instance.append(Kind.MESSAGE, b"x")
    with Reader(instance.address, start="begin", name="mine") as reader:
        with Reader(instance.address):
            assert len(list_readers(instance.directory)) == 2
        reader.poll(4)
        reader.poll(4)
        (entry,) = list_readers(instance.directory)
        assert (entry.name, entry.pid, entry.alive) == ("mine", os.getpid(), True)
        assert (entry.index, entry.lapped) == (4, 0)  # asked for more, once it had dealt with these
    assert list_readers(instance.directory) == []


@pytest.mark.parametrize("address", ["deribit", "ring:", "nats://x", "", 7, ["ring:"], b"ring:a"])
def test_address_of_another_form_is_refused_with_the_supported_ones(address: object) -> None:
    with pytest.raises(ConfigError, match=r"'ring:NAME' or 'ring:/path|'ring:', 'journal:', "):
        Reader(address)  # type: ignore[arg-type]


def test_name_without_a_prefix_is_told_the_prefix() -> None:
    with pytest.raises(ConfigError, match="was 'deribit'; did you mean 'ring:deribit'"):
        Reader("deribit")


def test_address_by_name_looks_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    tmp_path.chmod(0o700)
    instance = Instance(tmp_path / "deribit")
    instance.append(Kind.MESSAGE, b"x")
    with Reader("ring:deribit", start="begin") as reader:
        assert next(reader).payload == b"x"
        assert reader.directory == tmp_path / "deribit"
    instance.close()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("start", "now", "start must be 'tail', 'begin', 'oldest' or a time .*, was 'now'"),
        ("idle", "nap", "idle must be one of spin, yield, backoff, sleep, was 'nap'"),
        ("batch", 0, "batch must be 1 to 1048576 records, was 0"),
    ],
)
def test_option_out_of_range_is_refused(
    instance: Instance, option: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        Reader(instance.address, **{option: value})  # type: ignore[arg-type]


def test_timeout_that_is_text_is_refused_with_what_it_must_be(instance: Instance) -> None:
    with pytest.raises(ValueError, match="timeout must be 0 or more seconds, or None, was '1'"):
        Reader(instance.address, timeout="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [1e10, 1e300, float("inf"), 10**30])
def test_timeout_that_never_comes_is_one(instance: Instance, timeout: float) -> None:
    with Reader(instance.address) as reader:
        instance.top(1.0, 2.0)
        assert reader.wait(timeout)


def test_poll_refuses_limits_and_timeouts_that_mean_nothing(instance: Instance) -> None:
    with Reader(instance.address) as reader:
        with pytest.raises(ValueError, match="limit must be at least 1"):
            reader.poll(0)
        with pytest.raises(ValueError, match="timeout must be 0 or more"):
            reader.poll(timeout=-1)
        with pytest.raises(ValueError, match="timeout must be 0 or more"):
            reader.poll(timeout=float("nan"))


@pytest.mark.parametrize(
    ("limit", "said"),
    [("10", "was '10'$"), ([4], r"was \[4\]$"), (0.5, r"was 0.5; a time is poll\(timeout=0.5\)$")],
)
def test_poll_says_what_a_limit_must_be(instance: Instance, limit: Any, said: str) -> None:
    with (
        Reader(instance.address) as reader,
        pytest.raises(TypeError, match="limit must be a whole number of records, " + said),
    ):
        reader.poll(limit, timeout=0)


def test_attach_without_a_ring_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is its feed running"):
        Reader(f"ring:{tmp_path}/nothing", timeout=0.05)


def test_attach_waits_until_the_ring_exists(tmp_path: Path) -> None:
    made: list[Instance] = []

    def write() -> None:
        instance = Instance(tmp_path / "feed")
        instance.append(Kind.MESSAGE, b"x")
        made.append(instance)

    writer = threading.Timer(0.05, write)
    writer.start()
    with Reader(f"ring:{tmp_path}/feed", start="begin", timeout=PATIENCE_S) as reader:
        assert next(reader).payload == b"x"
    writer.join()
    made[0].close()


@pytest.mark.parametrize("end", [die, fail])
def test_attach_to_a_ring_of_a_dead_writer_waits_for_the_next_one(
    instance: Instance, end: Callable[[Instance], None]
) -> None:
    instance.append(Kind.MESSAGE, b"before")
    end(instance)
    writer = NextWriter(instance.directory)
    with Reader(instance.address, timeout=PATIENCE_S) as reader:
        assert writer.begun.is_set()
        following = writer.instance()
        assert reader.state == "alive"
        following.append(Kind.MESSAGE, b"after")
        record = next(record for record in reader if record.kind is Kind.MESSAGE)
        assert record.payload == b"after"  # and no record of before
    following.close()


def test_attach_to_a_dead_ring_that_nobody_continues_reads_that_one(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"before")
    die(instance)
    with (
        pytest.warns(RuntimeWarning, match="is dead"),
        Reader(instance.address, timeout=0.05) as reader,
    ):
        assert reader.state == "dead"


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (1_795_000_000, "looks like seconds; multiply by 1_000_000_000: time.time_ns() in place"),
        (1_795_000_000_000, "looks like ms; multiply by 1_000_000"),
        ("1795000000", "looks like seconds"),
        (-1, "was -1"),
    ],
)
def test_start_that_is_no_unix_ns_of_this_century_is_refused(
    instance: Instance, start: int | str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=f"UNIX ns of this century.*{re.escape(hint)}"):
        Reader(instance.address, start=start)


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (1764225000.1, "1764225000.1, which looks like seconds"),
        (1764225000100.0, "1764225000100.0, which looks like ms"),
        (1764225000100000000.0, "1.7642250001e+18"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_start_that_is_a_float_is_refused_with_what_to_pass(
    instance: Instance, start: float, found: str
) -> None:
    expected = (
        "start: expected nanoseconds since 1970 as an int, for example time.time_ns(); found "
    )
    for address in (instance.address, f"journal:{instance.directory}"):
        with pytest.raises(ConfigError) as error:
            Reader(address, start=start)  # type: ignore[arg-type]  # what is refused
        assert str(error.value) == expected + found


@pytest.mark.parametrize("timeout", [PATIENCE_S, None])
def test_attach_to_an_ended_ring_waits_for_the_next_writer(
    instance: Instance, timeout: float | None
) -> None:
    instance.append(Kind.MESSAGE, b"before")
    instance.close()
    made: list[Instance] = []
    writer = threading.Timer(0.05, lambda: made.append(Instance(instance.directory)))
    writer.start()
    with Reader(instance.address, timeout=timeout) as reader:
        writer.join()
        assert reader.state == "alive"
        made[0].append(Kind.MESSAGE, b"after")
        assert next(reader).payload == b"after"
    made[0].close()


def test_attach_to_an_ended_ring_that_nobody_continues_reads_that_one(instance: Instance) -> None:
    instance.append(Kind.MESSAGE, b"before")
    instance.close()
    with (
        pytest.warns(RuntimeWarning, match="has ended"),
        Reader(instance.address, timeout=0.05) as reader,
    ):
        assert reader.state == "ended" and list(reader) == []
    for start in ("begin", "oldest"):  # what it has is what is wanted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            with Reader(instance.address, start=start, timeout=None) as reader:
                assert [record.payload for record in reader] == [b"before"]


def test_attach_to_another_payload_layout_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with (
        Ring.create(tmp_path, 4096, PAYLOAD_HASH ^ 1),
        pytest.raises(RegionError, match="expected layout hash"),
    ):
        Reader(f"ring:{tmp_path}")


def test_attach_to_a_ring_without_names_knows_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Ring.create(tmp_path, 4096, PAYLOAD_HASH), Reader(f"ring:{tmp_path}") as reader:
        assert reader.names[1] is None
        assert reader.names.table is None


def test_poll_of_a_ring_without_names_looks_for_them_once_per_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def missing(path: Path) -> None:
        nonlocal looks
        looks += 1
        raise FileNotFoundError(path)

    tmp_path.chmod(0o700)
    with Ring.create(tmp_path, 1 << 16, PAYLOAD_HASH) as ring, Reader(f"ring:{tmp_path}") as reader:
        monkeypatch.setattr("udpfast.client.ring_source.attach_names", missing)
        started = time.monotonic()
        for _ in range(2000):
            ring.append(Kind.MESSAGE, b"x")
            assert len(reader.poll(timeout=0)) == 1
        slices = (time.monotonic() - started) / 0.02
    assert 1 <= looks <= slices + 1


def test_start_at_an_overwritten_beginning_is_refused(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed", capacity_bytes=4096)
    for _ in range(1000):
        instance.append(Kind.MESSAGE, b"x")
    with pytest.raises(FormatError, match="the first, has been overwritten"):
        Reader(instance.address, start="begin")
    instance.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bid_price", r"'bid_price' is a field of this record's data: record.data\['bid_price'\]"),
        ("bid_prise", "a record of kind TOP_OF_BOOK has no 'bid_prise'; did you mean 'bid_price'"),
        ("symbl", "did you mean 'symbol'"),
        ("zzz", "a record of kind TOP_OF_BOOK has no 'zzz'$"),
    ],
)
def test_field_of_the_payload_is_pointed_to(instance: Instance, name: str, said: str) -> None:
    instance.top(1.0, 2.0)
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    assert record.data["bid_price"] == 1.0
    with pytest.raises(AttributeError, match=said):
        getattr(record, name)


def test_field_of_a_row_is_pointed_to_and_only_a_book_has_sides(instance: Instance) -> None:
    instance.append(Kind.TRADES, bytes(UPDATE_DTYPES[Kind.TRADES].itemsize))
    with Reader(instance.address, start="begin") as reader:
        record = next(reader)
    with pytest.raises(AttributeError, match=r"this record's rows: record.rows\['price'\]"):
        record.price  # noqa: B018
    with pytest.raises(FormatError, match="only a BOOK has bids and asks, not TRADES"):
        record.bids  # noqa: B018


def test_writer_that_was_stopped_in_good_order_has_ended(instance):
    instance.top(1.0, 2.0)
    with Reader(instance.address, start="begin") as reader:
        assert (reader.alive, reader.state) == (True, "alive")
        instance.ring.close()
        assert (reader.alive, reader.state) == (False, "ended")
        assert next(reader).kind is Kind.TOP_OF_BOOK  # what it left is there
        assert not reader.wait(0)
        assert reader.state == "ended"
    assert (reader.alive, reader.state) == (False, "closed")
