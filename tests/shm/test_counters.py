"""The counter block: every tool reads what the owner counts."""

import pytest

from udpfast.core.counter import CHANNEL_COUNTERS, FEED_COUNTERS, LINE_COUNTERS
from udpfast.errors import RegionError, WriterExistsError
from udpfast.shm.counters import CounterBlock

SCOPES = {
    "feed": FEED_COUNTERS,
    "incremental": CHANNEL_COUNTERS,
    "snapshot": CHANNEL_COUNTERS,
    "incremental.A": LINE_COUNTERS,
    "incremental.B": LINE_COUNTERS,
    "snapshot.A": LINE_COUNTERS,
}


@pytest.fixture
def block(tmp_path):
    with CounterBlock.create(tmp_path, ["A", "B"], ["A"]) as block:
        yield block


def test_block_new_has_every_counter_at_zero(block):
    expected = {scope: {info.name: 0 for info in infos} for scope, infos in SCOPES.items()}
    assert block.read() == expected


def test_every_counter_has_a_slot_of_its_own(block, tmp_path):
    expected = {}
    for scope, infos in SCOPES.items():
        for info in infos:
            count = 1 + sum(len(counters) for counters in expected.values())
            expected.setdefault(scope, {})[info.name] = count
            block.add(scope, info.name, count)
    with CounterBlock.attach(tmp_path) as seen:
        assert seen.read() == expected
        assert (seen.lines_incremental, seen.lines_snapshot) == (("A", "B"), ("A",))


def test_addresses_of_a_line_have_counters_and_names_of_their_own(tmp_path):
    many = [f"[ff15::{n:x}]:50000" for n in range(1, 129)]
    addresses = {"incremental.B": many, "snapshot.A": ["10.0.0.1:1", "10.0.0.2:1"]}
    names = (["A", "B"], ["A"])
    with CounterBlock.create(tmp_path, *names, addresses=addresses) as block:
        block.add("snapshot.A", "datagrams", 3)
        with CounterBlock.attach(tmp_path) as seen:
            found = seen.read_addresses()
            assert {scope: list(each) for scope, each in found.items()} == addresses
            assert found["incremental.B"][many[127]] == {
                "datagrams": 0,
                "heard_ns": 0,
                "silent": 0,
            }
            assert seen.read()["snapshot.A"]["datagrams"] == 3
            assert seen.addresses == {scope: tuple(each) for scope, each in addresses.items()}


def test_address_that_is_longer_than_its_place_is_refused(tmp_path):
    addresses = {"incremental.A": ["1.2.3.4:1", "x" * 97]}
    with pytest.raises(ValueError, match="at most 96 bytes"):
        CounterBlock.create(tmp_path, ["A"], [], addresses=addresses)


def test_block_of_a_dead_writer_can_still_be_read(block, tmp_path):
    block.add("incremental.B", "delivered", 42)
    block.close()
    with CounterBlock.attach(tmp_path) as seen:
        assert seen.read()["incremental.B"]["delivered"] == 42


def test_block_created_again_begins_at_zero(block, tmp_path):
    block.add("feed", "records", 7)
    block.close()
    with (
        CounterBlock.attach(tmp_path) as old,
        CounterBlock.create(tmp_path, ["A"], []) as new,
    ):
        assert new.read()["feed"]["records"] == 0
        assert "snapshot.A" not in new.read()
        assert old.read()["feed"]["records"] == 7
        assert old.region.replaced()


def test_block_second_writer_is_refused(block, tmp_path):
    with pytest.raises(WriterExistsError):
        CounterBlock.create(tmp_path, ["A"], ["A"])


def test_block_attached_cannot_count(block, tmp_path):
    with (
        CounterBlock.attach(tmp_path) as seen,
        pytest.raises(ValueError, match="attached read-only"),
    ):
        seen.add("feed", "records")


@pytest.mark.parametrize(("scope", "name"), [("feed", "nonsense"), ("incremental.C", "wins")])
def test_counter_unknown_is_a_key_error(block, scope, name):
    with pytest.raises(KeyError):
        block.add(scope, name)


@pytest.mark.parametrize("lines", [["A", "A"], list("ABCDEFGHI")])
def test_lines_twice_or_too_many_are_refused(tmp_path, lines):
    with pytest.raises(ValueError, match="lines must be <= 8 different names"):
        CounterBlock.create(tmp_path, lines, [])


@pytest.mark.parametrize(
    "description", [{}, {"lines": 3}, {"lines": [["A"]]}, {"lines": [[1], []]}]
)
def test_block_with_another_description_is_refused(block, tmp_path, description):
    block.region.describe(description)
    with pytest.raises(RegionError, match="expected two lists of line names"):
        CounterBlock.attach(tmp_path)


def test_block_of_another_size_than_its_lines_is_refused(block, tmp_path):
    block.region.describe({"lines": [["A"], []], "addresses": {}})
    with pytest.raises(RegionError, match=r"expected \d+ bytes, found \d+"):
        CounterBlock.attach(tmp_path)
