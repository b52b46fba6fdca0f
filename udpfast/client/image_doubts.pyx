"""Count the objects of an image that are sound, and those in doubt, by reason."""

from udpfast.core.layout cimport (
    WAIT_NONE, WAIT_SNAPSHOT, WAIT_SNAPSHOT_ABSENT, WAIT_SNAPSHOT_SILENT)
from udpfast.market.state_bytes cimport StateDoubts, doubts_read, entry_copy
from udpfast.shm.image cimport ImageView, image_copy_head

from udpfast.errors import RegionError
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.shm.image import ImageView

__all__ = ["read_doubts"]


def read_doubts(directory: str | os.PathLike[str]) -> dict[str, int]:
    """Count an image's gated objects and the books of a venue's instruments, by state.

    Reads 64 bytes of each entry, and no values.

    Returns
    -------
    dict
        `sound`, and by reason of doubt: `gap` (a message was lost that may have been the object's),
        `snapshot`, `silent`, `absent` (STALE: the object waits for a snapshot, and the snapshot
        channel is live, silent or not configured), `missed` (the image's keeper missed records),
        `damaged` (the entry cannot be read).

    Raises
    ------
    RegionError, FileNotFoundError
        There is no image, or no complete one.
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
