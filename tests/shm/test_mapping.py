"""Mappings are aligned for huge pages, and report how many they have."""

import ctypes
import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from udpfast.shm.mapping import store_word
from udpfast.shm.region import Region

HUGE_PAGE = 2 << 20
SIZE = 2 * HUGE_PAGE + 4096
MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path(tmp_path):
    if not MEMORY.is_dir():
        pytest.skip("needs /dev/shm")
    path = MEMORY / f"udpfast-test-{tmp_path.name}"
    yield path
    path.unlink(missing_ok=True)


def address(region):
    return np.frombuffer(region.view(), np.uint8).ctypes.data


def huge_bytes(path):
    # Ask the kernel for the mappings of the file in this process.
    found = re.findall(
        rf"{re.escape(str(path))}\n(?:\w+:.*\n)*?ShmemPmdMapped:\s+(\d+) kB",
        Path("/proc/self/smaps").read_text(),
    )
    return [1024 * int(kilobytes) for kilobytes in found]


@pytest.mark.parametrize("size", [128, 4096, HUGE_PAGE - 1, HUGE_PAGE, SIZE + 1])
def test_mapping_of_any_size_begins_at_a_huge_page(tmp_path, size):
    with Region.create(tmp_path / "region", "TEST", size, 1) as region:
        assert address(region) % HUGE_PAGE == 0
        assert len(region.view()) == size


def test_mapping_leaves_no_address_space_behind(tmp_path):
    def mapped_kilobytes():
        return int(re.findall(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[0])

    def turn():
        with Region.create(tmp_path / "region", "TEST", SIZE, 1, replace=True):
            pass

    turn()
    before = mapped_kilobytes()
    for _ in range(20):
        turn()
    assert mapped_kilobytes() - before < HUGE_PAGE // 1024


def test_collapse_keeps_contents_and_gets_what_the_kernel_says(memory_path):
    with Region.create(memory_path, "TEST", SIZE, 1) as region:
        data = np.frombuffer(region.view(), np.uint8)[128:]
        data[:] = np.arange(data.size) % 251
        wanted, got, reason = region.collapse()
        assert wanted == 2 * HUGE_PAGE
        assert [got] == huge_bytes(memory_path)
        assert bool(reason) == (got < wanted)
        assert np.array_equal(data, np.arange(data.size) % 251)


def test_collapse_serves_a_reader_that_attaches_afterwards(memory_path):
    with Region.create(memory_path, "TEST", SIZE, 1) as region:
        _, got, _ = region.collapse()
        region.mark_ready()
        with Region.attach(memory_path, "TEST", 1) as reader:
            reader.view()[:SIZE:4096].tobytes()
            assert huge_bytes(memory_path) == [got, got]


def test_collapse_of_memory_that_the_kernel_refuses_says_why(tmp_path):
    with Region.create(tmp_path / "region", "TEST", SIZE, 1) as region:
        # One page of the second huge page is replaced by another mapping.
        libc = ctypes.CDLL(None, use_errno=True)
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        assert libc.munmap(address(region) + HUGE_PAGE, 4096) == 0
        wanted, got, reason = region.collapse()
        assert wanted == 2 * HUGE_PAGE
        assert got < wanted
        assert reason


def test_region_made_of_huge_pages_has_them_before_it_is_collapsed(memory_path):
    with Region.create(memory_path, "TEST", SIZE, 1, huge=True) as region:
        assert memory_path.stat().st_blocks * 512 >= SIZE
        had = huge_bytes(memory_path)
        wanted, got, _ = region.collapse()
        assert had in ([got], []) and got <= wanted
        region.view()[128:] = bytes(SIZE - 128)


def test_word_is_stored_where_it_is_wanted_and_nowhere_else():
    with mmap.mmap(-1, 4096) as memory:
        store_word(memory, 8, (1 << 64) - 1)
        assert memory[:24] == bytes(8) + b"\xff" * 8 + bytes(8)
        for offset in (4, -8, 4096):
            with pytest.raises(ValueError, match="offset must be a multiple of 8 below 4089"):
                store_word(memory, offset, 1)
