"""Names that a feed writes beside the records of its store, and how a copy gets them."""

import struct
from pathlib import Path

import pytest

from udpfast.archive.names import names_path
from udpfast.archive.store_names import StoreNames, last_names
from udpfast.market.names import NameTable
from udpfast.shm.names import names_table

NAMES = [f"instrument-{number}".encode() for number in range(5000)]


def written(folder: Path, names: list[bytes], capacity: int = 8192) -> int:
    """Let a feed write names into a store; return the number of the table."""
    number, region = StoreNames(folder).begin(capacity)
    table = NameTable(names_table(region))
    for name in names:
        table.intern(name)
    region.close()
    return number


def copied(source: StoreNames, copy: StoreNames, number: int, known: int = 0) -> int:
    while True:
        said, told = source.since(number, known)
        if not said:
            return known
        copy.take(said + bytes(-len(said) % 8))  # as frames are
        known = told


def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in "ab":
        (tmp_path / name).mkdir(mode=0o700, exist_ok=True)
    return tmp_path / "a", tmp_path / "b"


def test_copy_has_the_same_ids_and_mark_and_grows(tmp_path: Path) -> None:
    own, other = folders(tmp_path)
    assert written(own, NAMES[:4000]) == 1
    source, copy = StoreNames(own), StoreNames(other)
    assert copied(source, copy, 1) == 4000
    assert written(own, NAMES) == 1  # the table continues
    assert copied(source, copy, 1, 4000) == 5000
    assert copied(source, copy, 1) == 5000  # a new link sends all of them
    copy.sync()
    copy.close()
    assert StoreNames(other).mark(1) == source.mark(1)
    table = StoreNames(other).table(1)
    assert [table.bytes(number) for number in range(1, 5001)] == NAMES


def test_table_of_another_size_begins_with_the_names_of_the_last(tmp_path: Path) -> None:
    own, _ = folders(tmp_path)
    written(own, NAMES[:100], 128)
    with pytest.raises(
        ValueError, match="at least 100, the number of names that the store has already"
    ):
        StoreNames(own).begin(64)
    assert written(own, [], 256) == 2
    assert last_names(own) == 2
    table = StoreNames(own).table(2)
    assert [table.bytes(number) for number in range(1, 101)] == NAMES[:100]


def test_damaged_table_is_followed_by_another(tmp_path: Path) -> None:
    own, _ = folders(tmp_path)
    written(own, NAMES[:3])
    path = names_path(own, 1)
    path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096))
    assert written(own, NAMES[:1]) == 2


@pytest.mark.parametrize("wrong", ["name", "hole", "key", "short", "capacity"])
def test_names_that_are_not_the_copys_are_refused(tmp_path: Path, wrong: str) -> None:
    own, other = folders(tmp_path)
    written(own, NAMES[:3])
    source, copy = StoreNames(own), StoreNames(other)
    copied(source, copy, 1)
    said, _ = source.since(1, 0)
    head = list(struct.unpack_from("<QQ16sQQ", said))
    body = said[48:]
    if wrong == "name":
        body = body.replace(b"instrument-1", b"instrument-7")
    elif wrong == "hole":
        head[3] = 5
    elif wrong == "key":
        head[2] = bytes(16)
    elif wrong == "capacity":
        head[1] = 16
    else:
        body = body[:-1]
    with pytest.raises(ValueError, match=r"NAMES|expected name 2|expected the source's"):
        copy.take(struct.pack("<QQ16sQQ", *head) + body)
    assert len(copy.table(1)) == 3


def test_feed_goes_on_in_the_names_that_a_copy_got(tmp_path: Path) -> None:
    own, other = folders(tmp_path)
    written(own, NAMES[:100])
    copy = StoreNames(other)
    copied(StoreNames(own), copy, 1)
    number, region = copy.begin(8192, used=1)
    assert (number, len(NameTable(names_table(region)))) == (1, 100)
    region.close()


def test_copy_without_a_file_of_names_says_nothing_and_gives_no_number_twice(
    tmp_path: Path,
) -> None:
    own, other = folders(tmp_path)
    assert written(own, []) == 1
    assert copied(StoreNames(own), StoreNames(other), 1) == 0
    assert last_names(other) == 0
    assert StoreNames(other).since(1, 0) == (b"", 0)
    number, region = StoreNames(other).begin(64, used=1)
    region.close()
    assert number == 2, "the segments that are there say 1, and mean another table"
