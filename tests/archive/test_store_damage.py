"""Whatever happens to a file of a store that other hosts copy, it is copied again, or refused."""

import os
import random
from pathlib import Path

import pytest

from tests.archive.test_store import BYTES, content
from tests.bus.drive import MS, T0, Copy, lead, register
from udpfast.archive.store import StoreLog
from udpfast.bus.log import Store
from udpfast.bus.wire import send_datagram
from udpfast.errors import RegionError
from udpfast.log.segment import list_segments, segment_path

#: Of the largest size: four segments of them.
MESSAGES = 650


def opened(folder: Path, host: str) -> Store:
    return Store(StoreLog(folder, "orders", segment_bytes=BYTES, copied=True), host)


def follow(source: Store, copy: Store) -> None:
    """Copy everything, with room for each segment as it is needed."""
    link = Copy(source, copy, any_source=True, drain=True)
    for _ in range(60):
        link.pump()
        if copy.log.identity != bytes(16):
            copy.log.keep()
        link.work(MS)
    link.source.close("over")


def build(folder: Path, *, killed: bool) -> None:
    """Leave the store of a writer and of its copy, as kill -9 or a clean stop does."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            write(folder, killed=killed)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(process, 0)[1] == 0


def write(folder: Path, *, killed: bool) -> None:
    log = StoreLog(folder / "S", "orders", segment_bytes=BYTES, create=True)
    seq = lead(Store(log, "S"))
    register(seq)
    for number in range(1, MESSAGES + 1):
        seq.receive(
            send_datagram(seq.store.key, seq.store.epoch, 1, 1, number, 1, [(1, bytes(1388))]),
            MS, T0 + MS,
        )  # fmt: skip
        log.keep(sync=number % 100 == 0)
    log.flush()
    other = opened(folder / "one", "one")
    follow(seq.store, other)
    other.log.flush()
    assert content(other) == content(seq.store)
    assert log.count == 4
    if not killed:
        other.log.close()
        log.close()


def files(folder: Path) -> dict[str, Path]:
    """Return the files of a store by what they are."""
    numbers = list_segments(folder)
    return {
        "journal": folder / "journal",
        "state": folder / "bus.state",
        "first": segment_path(folder, numbers[0]),
        "middle": segment_path(folder, numbers[len(numbers) // 2]),
        "last but one": segment_path(folder, numbers[-2]),
        "last": segment_path(folder, numbers[-1]),
    }


def damage(path: Path, how: str, rng: random.Random) -> None:
    if how == "missing":
        path.unlink()
        return
    size = path.stat().st_size
    with path.open("r+b") as file:
        # Now and then where a file says what it is.
        at = rng.randrange(min(size, rng.choice([200, 4096, size])))
        if how == "cut":
            file.truncate(at)
        elif how == "empty":
            file.truncate(0)
        elif how == "zeroed":
            file.seek(at)
            file.write(bytes(min(size - at, rng.choice([8, 512, size]))))
        else:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


@pytest.mark.parametrize("how", ["missing", "cut", "empty", "zeroed", "flipped"])
@pytest.mark.parametrize("what", ["journal", "state", "first", "middle", "last but one", "last"])
@pytest.mark.parametrize("role", ["S", "one"])
def test_store_with_a_damaged_file_is_whole_again(
    tmp_path: Path, role: str, what: str, how: str
) -> None:
    for seed in range(2):
        rng = random.Random(f"{role} {what} {how} {seed}")
        folder = tmp_path / str(seed)
        build(folder, killed=bool(seed % 2))
        other = opened(folder / ("one" if role == "S" else "S"), "other")
        damage(files(folder / role)[what], how, rng)
        try:
            store = opened(folder / role, role)
        except RegionError as refused:
            assert str(folder) in str(refused)
        else:
            # What the seal of an early segment hides, `udpfast verify` finds.
            check(store, other, early=what in ("first", "middle") and how in ("zeroed", "flipped"))
            store.log.close()
        other.log.close()


def check(store: Store, other: Store, *, early: bool) -> None:
    """Check that a copy that was opened is the beginning of another, and becomes all of it."""
    expected = content(other)
    begin = store.log.first()[0]
    if not early:
        assert expected[begin:].startswith(content(store))
        assert bool(store.log.notes) or store.end == other.end
    follow(other, store)
    assert (store.end, store.epoch) == (other.end, other.epoch)
    assert store.log.last == other.log.last
    assert store.lineage.pairs == other.lineage.pairs
    if not early:
        assert content(store) == expected[begin:]
