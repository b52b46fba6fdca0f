"""The name table: ids from 1, immutable, shared over borrowed memory, limited."""

import numpy as np
import pytest

from udpfast.errors import FormatError
from udpfast.market.names import NameTable, name_table_size


def test_intern_known_name_returns_its_id():
    table = NameTable(capacity=8)
    assert [table.intern(name) for name in ("a", "b", "a", "株式", "b")] == [1, 2, 1, 3, 2]
    assert [table[name_id] for name_id in (0, 1, 2, 3)] == [None, "a", "b", "株式"]
    assert len(table) == 3


def test_intern_empty_name_is_a_name_and_not_none():
    table = NameTable(capacity=8)
    assert table.intern("") == 1
    assert table[1] == ""
    assert table.bytes(0) is None


def test_exchanges_are_told_from_symbols_as_far_as_there_is_room():
    table = NameTable(capacity=99)
    assert table.exchanges == []
    ids = [table.intern(f"X{i}", exchange=True) for i in range(40)]
    table.intern("S")
    assert table.intern("X1", exchange=True) == ids[1]
    assert table.intern("S", exchange=True) == 41, "a symbol stays one"
    assert table.exchanges == ids[:30]


def test_intern_full_table_returns_zero_for_new_names_only():
    table = NameTable(capacity=3)
    assert [table.intern(name) for name in "abcda"] == [1, 2, 3, 0, 1]
    assert len(table) == table.capacity == 3


def test_intern_every_length_round_trips():
    table = NameTable(capacity=200)
    names = [bytes(range(33, 33 + size)) for size in range(94)]
    ids = [table.intern(name) for name in names]
    assert ids == list(range(1, 95))
    assert [table.bytes(name_id) for name_id in ids] == names
    assert [table.intern(name) for name in names] == ids


def test_intern_longer_than_an_entry_is_no_name():
    table = NameTable(capacity=2)
    assert table.intern("x" * 121) == table.intern("x" * 500) == 0
    assert table.intern("x" * 120) == 1
    assert len(table) == 1


def test_each_table_places_the_same_names_elsewhere():
    """Names that were chosen to share slots of one table do not share those of another."""
    places = set()
    for _ in range(4):
        memory = np.zeros(name_table_size(64), np.uint8)
        table = NameTable(memory, capacity=64)
        assert [table.intern(f"NAME-{i}") for i in range(20)] == list(range(1, 21))
        places.add(memory[64 : 64 + 4 * 128].tobytes())
    assert len(places) == 4


def test_names_of_many_collide_rarely_and_stay_apart():
    table = NameTable(capacity=5000)
    ids = [table.intern(f"SYM-{i}-PERP") for i in range(5000)]
    assert ids == list(range(1, 5001))
    assert [table.intern(f"SYM-{i}-PERP") for i in range(5000)] == ids


def test_reader_attached_to_the_same_memory_sees_later_names():
    memory = np.zeros(name_table_size(4), np.uint8)
    writer = NameTable(memory, capacity=4)
    view = memory.view()
    view.flags.writeable = False
    reader = NameTable(view)
    assert len(reader) == 0
    writer.intern("late")
    assert reader[1] == "late"
    with pytest.raises(ValueError, match="read-only"):
        reader.intern("mine")


def test_writer_attached_again_goes_on_with_its_ids():
    memory = bytearray(name_table_size(4))
    NameTable(memory, capacity=4).intern("a")
    again = NameTable(memory)
    assert [again.intern("b"), again.intern("a")] == [2, 1]


def test_unknown_id_is_an_index_error():
    with pytest.raises(IndexError, match="was 1"):
        NameTable(capacity=2)[1]


@pytest.mark.parametrize("size", [0, 8, 64, 1000])
def test_attach_to_memory_without_a_table_is_refused(size):
    with pytest.raises(FormatError, match="expected a name table"):
        NameTable(bytes(size))


def test_attach_to_a_cut_table_is_refused():
    memory = bytearray(name_table_size(4))
    NameTable(memory, capacity=4)
    with pytest.raises(FormatError, match="expected a name table"):
        NameTable(memory[:-1])


def test_memory_too_small_for_the_capacity_is_refused():
    with pytest.raises(ValueError, match="4 names take"):
        NameTable(bytearray(100), capacity=4)
    with pytest.raises(ValueError, match="1 to"):
        name_table_size(0)


def test_name_of_a_killed_writer_that_was_never_published_gets_no_lasting_id():
    """A slot is written before the count: a writer killed between them leaves an id ahead."""
    memory = bytearray(name_table_size(8))
    table = NameTable(memory, capacity=8)
    table.intern("first")
    table.intern("unpublished")
    np.frombuffer(memory, np.uint64)[3] = 1  # the count, as if it had not been stored
    again = NameTable(memory)
    assert again.intern("unpublished") == 2
    assert again[2] == "unpublished"
    assert again.intern("third") == 3
    assert (again[2], again[3]) == ("unpublished", "third")


def at_home(form: str) -> int:
    """Return how many of 500 names of a form lie in a table where their hash says."""
    memory = np.zeros(name_table_size(4096), np.uint8)
    table = NameTable(memory, capacity=4096)
    for i in range(500):
        table.intern(form.format(i))
    slots = memory[64 : 64 + 4 * 8192].view("<u4")
    hashes = memory[64 + 4 * 8192 :].view("<u4").reshape(-1, 32)[1:501, 0]
    return int((slots[hashes % 8192] == np.arange(1, 501)).sum())


@pytest.mark.parametrize("form", ["SYMBOL{:03}", "{:03}BTCUSDT", "EXCHANGE-FUTURES:{:03}", "{:03}"])
def test_names_that_differ_in_a_few_characters_have_slots_of_their_own(form):
    # Each table draws a key: what holds must hold under the worst of them. By chance 500 of 8,192
    # slots leave 15 to probe for, and hardly ever twice as many.
    assert min(at_home(form) for _ in range(100)) > 450


def test_reader_of_a_count_beyond_the_capacity_stays_inside():
    memory = np.zeros(name_table_size(4), np.uint8)
    writer = NameTable(memory, capacity=4)
    reader = NameTable(memory)
    writer.intern("one")
    memory[24:32].view(np.uint64)[0] = 1 << 40
    assert len(reader) == 4
    assert reader[1] == "one"
    with pytest.raises(IndexError):
        reader[5]
