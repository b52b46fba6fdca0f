"""latency(NAME): hops of the loop and the readers, clocks that disagree, and differences."""

import os
import time

import numpy as np
import pytest

import udpfast
from bench.loops.hop_cost import hop_cost_ns
from tests.client.instance import Instance
from udpfast.client.latency import hops_since, merge_readers, read_hops
from udpfast.core.layout import Kind, RecordFlag
from udpfast.shm.histogram import LatencyBlock

LOOP_HOPS = ("origin_to_kernel", "kernel_to_origin", "kernel_to_loop", "loop_to_ring")


@pytest.fixture
def directory(tmp_path):
    """Return the directory of an instance with a ring, names and empty histograms."""
    tmp_path.chmod(0o700)
    with LatencyBlock.create(tmp_path, LOOP_HOPS) as block:
        yield tmp_path, Instance(tmp_path), block


def append(instance, age_ns, waited_ns=0, kind=Kind.MESSAGE, flags=0):
    """Append a record published `age_ns` ago, and received `waited_ns` before that."""
    published_ns = time.time_ns() - age_ns
    instance.ring.append(
        kind, b"12345678", flags=flags, published_ns=published_ns,
        received_ns=published_ns - waited_ns,
    )  # fmt: skip


def test_latency_of_clocks_that_disagree_is_negative_not_hidden(directory):
    path, _, block = directory
    for _ in range(90):
        block["kernel_to_origin"].record(350_000)
    for _ in range(10):
        block["origin_to_kernel"].record(50_000)
    hop = udpfast.latency(path)["origin_to_kernel"]
    assert (hop["count"], hop["below"]) == (100, 90)
    assert -350_500 < hop["p50"] <= hop["p90"] <= -349_500
    assert 50_000 <= hop["p99"] <= hop["max"] < 50_100


def test_latency_names_every_hop_once(directory):
    path, instance, _ = directory
    with udpfast.Reader(instance.address, name="mine"):
        found = udpfast.latency(path)
    assert list(found) == [
        "origin_to_kernel", "kernel_to_loop", "loop_to_ring", "loop_to_strategy",
        "kernel_to_strategy", f"loop_to_strategy.mine-{os.getpid()}",
        f"kernel_to_strategy.mine-{os.getpid()}",
    ]  # fmt: skip
    assert all(hop["count"] == hop["max"] == 0 for hop in found.values())


def test_latency_readers_of_one_name_are_apart_and_summed(directory):
    path, instance, _ = directory
    with (
        udpfast.Reader(instance.address, name="twin") as first,
        udpfast.Reader(instance.address, name="twin") as second,
    ):
        append(instance, age_ns=0)
        append(instance, age_ns=0)
        assert len(first.poll(timeout=0)) == 2
        assert len(second.poll(1, timeout=0)) == 1
        found = udpfast.latency(path)
    counts = [hop["count"] for name, hop in found.items() if name.startswith("loop_to_strategy.")]
    assert sorted(counts) == [1, 2]
    assert found["loop_to_strategy"]["count"] == found["kernel_to_strategy"]["count"] == 3


@pytest.mark.parametrize("style", ["poll", "iterate"])
def test_reader_times_what_it_hands_out_from_both_stamps(directory, style):
    path, instance, _ = directory
    with udpfast.Reader(instance.address) as reader:
        time.sleep(0.002)  # of wall clock: what was published before the reader came is not timed
        for _ in range(100):
            append(instance, age_ns=1_000_000, waited_ns=5_000_000)
        if style == "poll":
            assert len(reader.poll(timeout=0)) == 100
        else:
            for _ in range(100):
                next(reader)
        found = udpfast.latency(path)
    for name, at_least in (("loop_to_strategy", 1_000_000), ("kernel_to_strategy", 6_000_000)):
        assert found[name]["count"] == 100
        assert found[name]["p50"] >= at_least
        assert found[name]["max"] >= found[name]["p50"]
        assert found[name]["below"] == 0


def test_reader_that_iterates_times_each_record_that_it_hands_out(directory):
    # 33 records of 1 to 33 ms of age come in one run; 20 of them are handed out.
    path, instance, _ = directory
    with udpfast.Reader(instance.address) as reader:
        began_ns = time.time_ns()
        for age_ms in range(1, 34):
            instance.ring.append(
                Kind.MESSAGE,
                b"",
                published_ns=began_ns + (33 - age_ms) * 1_000_000,
                received_ns=began_ns,
            )
        while time.time_ns() < began_ns + 33_000_000:
            pass
        for _ in range(20):
            next(reader)
        found = udpfast.latency(path)
    hop = found["loop_to_strategy"]
    assert hop["count"] == found["kernel_to_strategy"]["count"] == 20
    assert hop["p50"] >= 10_000_000
    assert hop["p90"] >= 18_000_000
    assert hop["max"] >= 20_000_000


@pytest.mark.parametrize("style", ["poll", "iterate"])
def test_reader_of_several_feeds_times_each_in_its_own_entry(directory, tmp_path, style):
    path, one, _ = directory
    other = tmp_path / "other"
    two = Instance(other)
    with LatencyBlock.create(other, LOOP_HOPS), udpfast.Reader([one.address, two.address]) as both:
        time.sleep(0.002)
        for instance, count in ((one, 3), (two, 5)):
            for _ in range(count):
                append(instance, age_ns=1_000_000, waited_ns=5_000_000)
        read = 0
        while read < 8:
            read += len(both.poll(timeout=0)) if style == "poll" else len([next(both)])
        found = [udpfast.latency(each) for each in (path, other)]
    two.close()
    for name, at_least in (("loop_to_strategy", 1_000_000), ("kernel_to_strategy", 6_000_000)):
        assert [hops[name]["count"] for hops in found] == [3, 5]
        assert all(hops[name]["p50"] >= at_least for hops in found)


def test_reader_times_no_record_whose_age_is_no_latency(directory):
    path, instance, _ = directory
    append(instance, age_ns=0)  # before the reader came
    with udpfast.Reader(instance.address, start="begin") as reader:
        append(instance, age_ns=0, flags=RecordFlag.RELEASED)  # waited for a snapshot
        append(instance, age_ns=0, kind=Kind.CONNECTION)  # the feed's own word
        append(instance, age_ns=0, flags=RecordFlag.NO_TIMESTAMP)  # one stamp only
        assert len(reader.poll(timeout=0)) == 4
        found = udpfast.latency(path)
    assert found["loop_to_strategy"]["count"] == 1
    assert found["kernel_to_strategy"]["count"] == 0


def test_reader_counts_records_of_batches_published_together(directory):
    path, instance, _ = directory
    with udpfast.Reader(instance.address) as reader:
        for size in (1, 3, 5):
            published_ns = time.time_ns()
            for _ in range(size):
                instance.ring.append(
                    Kind.MESSAGE, b"", published_ns=published_ns, received_ns=published_ns
                )
        assert len(reader.poll(timeout=0)) == 9
        found = udpfast.latency(path)
    assert found["loop_to_strategy"]["count"] == found["kernel_to_strategy"]["count"] == 9


def test_hops_since_an_earlier_look_are_the_difference(directory):
    path, _, block = directory
    block["kernel_to_loop"].record(1_000_000)
    earlier = read_hops(path)
    for _ in range(3):
        block["kernel_to_loop"].record(5_000)
    since = hops_since(read_hops(path), earlier)["kernel_to_loop"].summary()
    assert (since["count"], since["max"] // 1000) == (3, 5)
    assert read_hops(path)["kernel_to_loop"].count == 4


def test_hops_since_a_writer_that_began_anew_count_from_its_beginning(tmp_path):
    tmp_path.chmod(0o700)
    with LatencyBlock.create(tmp_path, LOOP_HOPS) as block:
        for _ in range(5):
            block["loop_to_ring"].record(700)
        earlier = read_hops(tmp_path)
    with LatencyBlock.create(tmp_path, LOOP_HOPS) as block:
        block["loop_to_ring"].record(300)
        since = hops_since(read_hops(tmp_path), earlier)
    assert since["loop_to_ring"].summary()["count"] == 1


def test_merge_adds_bucket_by_bucket(directory):
    path, _, block = directory
    block["kernel_to_loop"].record(-1)
    hop = read_hops(path)["kernel_to_loop"]
    both = merge_readers({"loop_to_strategy.a-1": hop, "loop_to_strategy.b-2": hop})
    assert np.array_equal(both["loop_to_strategy"].counts, 2 * hop.counts)
    assert both["loop_to_strategy"].below == 2


@pytest.mark.parametrize("mode", ["floor", "record", "loop", "batch", "iterate"])
def test_hop_cost_records_what_it_measures(mode):
    assert hop_cost_ns(mode, messages=8192) > 0  # it counts the values itself
