"""Child processes that do not outlive their parent, even if it is killed."""

import os

from udpfast.core.linux cimport process_end_with_parent
from udpfast.core.oserr cimport check

__all__ = ["end_with_parent", "parent_gone"]

_parent = 0  # that this process ends with; 0: with none


def end_with_parent(parent: int, number: int) -> None:
    """Make the kernel send this process a signal when the thread that started it ends.

    Parameters
    ----------
    parent : int
        Pid of the parent. If it has died already, this process ends at once.
    number : int
        The signal.
    """
    global _parent
    check(process_end_with_parent(number), "set signal of the parent's death", str(number))
    if os.getppid() != parent:
        os._exit(1)
    _parent = parent


def parent_gone() -> int:
    """Return the pid of the parent that this process ends with, if it has ended; 0: it lives."""
    return _parent if os.getppid() != _parent else 0
