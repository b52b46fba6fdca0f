"""Work that is done in a forked child, which may be killed."""

import os
import traceback
from collections.abc import Callable

__all__ = ["in_child"]


def in_child(what: Callable[[], None]) -> int:
    """Do something in a forked child; return its number.

    It ends with 0, or with 1 behind the traceback of what was raised; never by returning.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        what()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
