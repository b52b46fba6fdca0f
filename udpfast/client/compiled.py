"""The layout check of strategies that were compiled against udpfast's records."""

from udpfast.log.ring import RING_LAYOUT
from udpfast.market.updates import PAYLOAD_HASH

__all__ = ["check_layouts"]


def check_layouts(compiled: int) -> None:
    """Refuse a module that was compiled against other record layouts than the installed ones.

    A compiled module contains the field offsets of the version it was built with. Without this
    check it would read the wrong fields after an upgrade.

    Parameters
    ----------
    compiled : int
        `UDPFAST_RING_LAYOUT` of the `udpfast.h` that the module was compiled with.

    Raises
    ------
    ImportError
        The layouts differ; the message states both hashes.
    """
    installed = RING_LAYOUT ^ PAYLOAD_HASH
    if compiled != installed:
        raise ImportError(
            f"this module was compiled for records of layout {compiled:016x}, but the installed "
            f"udpfast has {installed:016x}: compile the module again"
        )
