"""Strategies that were compiled against the layouts of udpfast."""

from udpfast.log.ring import RING_LAYOUT
from udpfast.market.updates import PAYLOAD_HASH

__all__ = ["check_layouts"]


def check_layouts(compiled: int) -> None:
    """Refuse a strategy that was compiled against other layouts than those of this udpfast.

    A compiled module keeps the offsets of the day it was built: without this check it would go on
    after an upgrade, and take one field for another.

    Parameters
    ----------
    compiled : int
        `UDPFAST_RING_LAYOUT` of the `udpfast.h` that it was compiled with.

    Raises
    ------
    ImportError
        Says both hashes.
    """
    installed = RING_LAYOUT ^ PAYLOAD_HASH
    if compiled != installed:
        raise ImportError(
            f"this module was compiled for records of layout {compiled:016x}, but the installed "
            f"udpfast has {installed:016x}: compile the module again"
        )
