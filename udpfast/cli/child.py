"""Run udpfast's own commands as processes that end with their parent."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["child_command"]

_BEGIN = (
    "from udpfast.core.parent import end_with_parent; end_with_parent({parent}, {number}); "
    "from udpfast.cli.main import main; from {module} import {name}; main({name})"
)


def child_command(*arguments: str, command: str = "udpfast.cli.main:cli") -> list[str]:
    """Return what runs a command with these arguments until this process ends, even by a kill.

    It gets SIGTERM then. To be started by the main thread: the kernel looks at the thread that did.
    Without a command, a module and a name in it, it is `udpfast` itself.
    """
    module, _, name = command.partition(":")
    begin = _BEGIN.format(parent=os.getpid(), number=int(signal.SIGTERM), module=module, name=name)
    return [sys.executable, "-c", begin, *arguments]
