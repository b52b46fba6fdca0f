"""How many objects an image has that are sound, or in doubt, and why."""

from udpfast.core.layout cimport (
    WAIT_NONE, WAIT_SNAPSHOT, WAIT_SNAPSHOT_ABSENT, WAIT_SNAPSHOT_SILENT)
from udpfast.market.state_bytes cimport StateDoubts, doubts_read, entry_copy
from udpfast.shm.image cimport ImageView, image_copy_head

from udpfast.errors import RegionError
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.shm.image import ImageView

__all__ = ["read_doubts"]


def read_doubts(directory: str | os.PathLike[str]) -> dict[str, int]:
    """Count an image's objects that have a gate, and the levels of a venue's instruments.

    Reads 64 bytes of each, not its values.

    Returns
    -------
    dict
        `sound`; and in doubt: `gap` (a message was lost since, which may have been theirs),
        `snapshot`, `silent`, `absent` (STALE: they wait for a snapshot, while that channel comes,
        is silent, or does not exist), `missed` (the image's keeper missed records), `damaged`
        (an entry that nobody can read).

    Raises
    ------
    RegionError, FileNotFoundError
        There is no image, or none that is whole.
    """
    cdef StateDoubts found
    cdef ImageView view = ImageView.attach(directory, ENTRY_HASH)
    cdef int rc
    with view:
        with nogil:
            rc = doubts_read(
                &found, <entry_copy>image_copy_head, &view.reader, view.reader.slots_count)
        if rc < 0:
            raise RegionError(f"{view.region.path}: expected the image of a keeper, found none "
                              "that is whole")
    return {
        "sound": found.sound, "gap": found.gap,
        "snapshot": found.waits[<int>WAIT_NONE] + found.waits[<int>WAIT_SNAPSHOT],
        "silent": found.waits[<int>WAIT_SNAPSHOT_SILENT],
        "absent": found.waits[<int>WAIT_SNAPSHOT_ABSENT],
        "missed": found.unheard, "damaged": found.damaged,
    }
