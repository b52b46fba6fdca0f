"""Objects in doubt: counted by reason out of an image, which may be damaged, or gone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.client.instance import Instance, small_image
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.core.layout import GAP, OBJECT_STATE, SESSION, Kind, ObjectStatus, ObjectWait
from udpfast.monitor.limits import read_image
from udpfast.monitor.objects import REASONS, ObjectStates, read_objects

ALWAYS = 1 << 62


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path / "feed")
    yield instance
    instance.close()


@pytest.fixture
def keeper(instance: Instance) -> Iterator[ImageKeeper]:
    keeper = ImageKeeper(small_image(objects=64), instance.directory)
    begin = np.zeros((), SESSION)
    begin["new_id"] = 1
    instance.append(Kind.SESSION, begin.tobytes(), session=1)
    keeper.on_start()
    yield keeper
    keeper.on_stop()


def say(instance: Instance, kind: Kind, number: int, waits: int = 0) -> None:
    """Append what a feed says of an object."""
    state = np.zeros((), OBJECT_STATE)
    state["status"] = ObjectStatus.LIVE if kind is Kind.RECOVERED else ObjectStatus.STALE
    state["waits"] = waits
    instance.append(kind, state.tobytes(), object_type=3, object_id=number, session=1)


def feed(known: int, waiting: int = 0) -> dict[str, int]:
    """Return what a feed counts."""
    return {"objects": known, "objects_waiting": waiting, "objects_stranded": 0}


def counted(
    instance: Instance, keeper: ImageKeeper, known: int = 64, waiting: int = 0
) -> ObjectStates:
    """Return what is counted once the keeper has read everything."""
    instance.ring.flush()
    while keeper.work(ALWAYS):
        pass
    keeper.publish()
    found = read_objects(
        instance.directory, feed(known, waiting), read_image(instance.directory, 1)
    )
    assert found is not None
    assert found.in_doubt.keys() == REASONS.keys()
    return found


def doubts(found: ObjectStates) -> dict[str, int]:
    return {reason: count for reason, count in found.in_doubt.items() if count}


def test_objects_are_counted_by_what_they_wait_for(instance: Instance, keeper: ImageKeeper) -> None:
    for number in range(1, 8):
        say(instance, Kind.RECOVERED, number)
    waits = (ObjectWait.SNAPSHOT, ObjectWait.SNAPSHOT_SILENT, ObjectWait.SNAPSHOT_ABSENT)
    for number, wait in enumerate(waits, 1):
        say(instance, Kind.STALE, number, wait)
    found = counted(instance, keeper, known=10, waiting=6)
    assert found.sound == 4
    assert doubts(found) == {"first": 3, "snapshot": 1, "silent": 1, "absent": 1}
    assert found.doubted == 6


def test_gap_puts_all_in_doubt_until_the_feed_is_sure_of_each(
    instance: Instance, keeper: ImageKeeper
) -> None:
    for number in (1, 2, 3):
        say(instance, Kind.RECOVERED, number)
    assert counted(instance, keeper).sound == 3
    instance.append(Kind.GAP, np.zeros((), GAP).tobytes())
    found = counted(instance, keeper)
    assert (found.sound, doubts(found)) == (0, {"gap": 3})
    say(instance, Kind.RECOVERED, 2)
    found = counted(instance, keeper)
    assert (found.sound, doubts(found)) == (1, {"gap": 2})


def test_session_that_begins_forgets_all_of_them(instance: Instance, keeper: ImageKeeper) -> None:
    say(instance, Kind.STALE, 1)
    assert counted(instance, keeper).doubted == 1
    begin = np.zeros((), SESSION)
    begin["new_id"] = 2
    instance.append(Kind.SESSION, begin.tobytes(), session=2)
    assert counted(instance, keeper) == ObjectStates(0, dict.fromkeys(REASONS, 0))


def test_objects_of_a_damaged_or_lost_image_are_not_counted(
    instance: Instance, keeper: ImageKeeper
) -> None:
    say(instance, Kind.RECOVERED, 1)
    assert counted(instance, keeper).sound == 1
    image = read_image(instance.directory, 1)
    assert read_objects(instance.directory, feed(1), None) is None
    path = instance.directory / "image"
    whole = path.read_bytes()

    def damage(content: bytes) -> None:
        path.unlink()  # its keeper has it mapped, and writes on
        path.write_bytes(content)
        path.chmod(0o600)

    # Its slots, of which each says where an entry lies, and how long it is.
    damage(whole[:4096] + b"\xff" * 4096 + whole[8192:])
    assert read_objects(instance.directory, feed(1), image) is None
    # All but the first have one.
    damage(whole[: 4096 + 64] + b"\xff" * (4096 - 64) + whole[8192:])
    found = read_objects(instance.directory, feed(1), image)
    assert found is not None
    assert (found.sound, doubts(found)) == (0, {"damaged": 1})
    damage(whole[:4096])
    assert read_objects(instance.directory, feed(1), image) is None
    path.unlink()
    assert read_objects(instance.directory, feed(1), image) is None
