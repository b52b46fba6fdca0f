"""The region of an image: entries are replaced and copied whole, and no number in it is trusted."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from udpfast.errors import RegionError
from udpfast.shm.image import Image, ImageView

HASH = 7
SLOT = np.dtype(
    [(name, "<u8", shape) for name, shape in [("begun", ()), ("done", ())]]
    + [(name, "<u8", (2,)) for name in ("offset", "room", "size")]
)


def slots(image: Image) -> np.ndarray:
    """Return the slots of the region as a writable array."""
    count = np.frombuffer(image.region.view(), "<u8", 1, 128)[0]
    return np.frombuffer(image.region.view(), SLOT, int(count), 4096)


def test_entries_of_any_size_are_replaced_again_and_again_and_read_as_they_were(
    tmp_path: Path,
) -> None:
    rng = random.Random(5)
    held: dict[int, bytes] = {}
    with (
        Image.create(tmp_path, 40, 1 << 20, HASH) as image,
        ImageView.attach(tmp_path, HASH) as view,
    ):
        assert view.slots == 40
        assert view.entry(3) is None
        for _ in range(3000):
            slot = rng.randrange(40)
            entry = rng.randbytes(rng.choice([0, 1, 200, 256, 257, 3000, 9000]))
            if image.put(slot, entry):
                held[slot] = entry
            other = rng.randrange(40)
            assert (view.entry(other) or b"") == held.get(other, b"")
        lying = slots(image)
        ranges = sorted(
            (int(offset), int(room))
            for slot in lying
            for offset, room in zip(slot["offset"], slot["room"], strict=True)
            if offset
        )
        assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(ranges))


def test_entry_without_room_keeps_the_version_before(tmp_path: Path) -> None:
    with Image.create(tmp_path, 2, 4096, HASH) as image, ImageView.attach(tmp_path, HASH) as view:
        assert image.put(0, b"first")
        assert not image.put(0, bytes(5000))
        assert view.entry(0) == b"first"
        assert image.put(0, b"second")
        assert view.entry(0) == b"second"


def test_writer_that_died_while_it_wrote_leaves_the_version_before(tmp_path: Path) -> None:
    with Image.create(tmp_path, 1, 4096, HASH) as image, ImageView.attach(tmp_path, HASH) as view:
        image.put(0, b"one")
        image.put(0, b"two")
        slot = slots(image)[0]
        slot["begun"] = 3  # the write does not end
        assert view.entry(0) == b"two"


def test_entry_that_is_never_whole_is_refused(tmp_path: Path) -> None:
    with Image.create(tmp_path, 1, 4096, HASH) as image, ImageView.attach(tmp_path, HASH) as view:
        image.put(0, b"one")
        slots(image)[0]["begun"] = 3
        with pytest.raises(RegionError, match="expected a complete entry"):
            view.entry(0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("offset", 1 << 63), ("offset", 1 << 40), ("offset", 4097), ("size", 1 << 62), ("size", 8192)],
)
def test_slot_that_points_outside_is_refused(tmp_path: Path, field: str, value: int) -> None:
    with Image.create(tmp_path, 1, 4096, HASH) as image, ImageView.attach(tmp_path, HASH) as view:
        image.put(0, b"one")
        slots(image)[0][field][:] = value
        with pytest.raises(RegionError, match="expected a complete entry in slot 0"):
            view.entry(0)


@pytest.mark.parametrize("slots", [0, 1 << 40])
def test_image_whose_slots_do_not_fit_its_file_is_refused(tmp_path: Path, slots: int) -> None:
    with Image.create(tmp_path, 4, 4096, HASH) as image:
        np.frombuffer(image.region.view(), "<u8", 1, 128)[:] = slots
        with pytest.raises(RegionError, match=rf"expected slots that fit .*, found {slots}$"):
            ImageView.attach(tmp_path, HASH)


def test_image_of_other_entries_is_refused(tmp_path: Path) -> None:
    with (
        Image.create(tmp_path, 4, 4096, HASH),
        pytest.raises(RegionError, match="expected layout hash"),
    ):
        ImageView.attach(tmp_path, HASH + 1)


def test_closed_image_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    image = Image.create(tmp_path, 4, 4096, HASH)
    view = ImageView.attach(tmp_path, HASH)
    image.close()
    view.close()
    with pytest.raises(ValueError, match="is closed"):
        image.put(0, b"x")
    with pytest.raises(ValueError, match="is closed"):
        view.entry(0)
