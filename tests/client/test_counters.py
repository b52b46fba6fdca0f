"""counters(NAME) reads the counters of the writer."""

from pathlib import Path

import pytest

import udpfast
from udpfast.shm.counters import CounterBlock


def test_counters_of_an_instance_are_those_of_its_block(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with CounterBlock.create(tmp_path / "counters", ["A", "B"], ["S"]) as block:
        block.add("incremental.B", "delivered", 7)
        block.add("feed", "records", 3)
        found = udpfast.counters(tmp_path)
    assert found["incremental.B"]["delivered"] == 7
    assert found["feed"]["records"] == 3
    with pytest.raises(KeyError, match=r"no scope 'incremental.b'; did you mean 'incremental.B'"):
        found["incremental.b"]
    with pytest.raises(KeyError, match=r"no scope 'ring'; there are feed, incremental, "):
        found["ring"]
    with pytest.raises(KeyError, match=r"no counter 'record' in this .*; did you mean 'records'"):
        found["feed"]["record"]
    assert found.get("ring") is None
    assert set(found) == {
        "feed", "incremental", "snapshot", "incremental.A", "incremental.B", "snapshot.S"
    }  # fmt: skip


def test_counters_of_no_instance_say_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        udpfast.counters(tmp_path / "nothing")
