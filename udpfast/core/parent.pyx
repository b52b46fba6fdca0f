"""Child processes that do not outlive their parent, even if it is killed."""

import os

from udpfast.core.linux cimport process_end_with_parent
from udpfast.core.oserr cimport check

__all__ = ["end_with_parent"]


def end_with_parent(parent: int, number: int) -> None:
    """Make the kernel send this process a signal when the thread that started it ends.

    Parameters
    ----------
    parent : int
        Pid of the parent. If it has died already, this process ends at once.
    number : int
        The signal.
    """
    check(process_end_with_parent(number), "set signal of the parent's death", str(number))
    if os.getppid() != parent:
        os._exit(1)
