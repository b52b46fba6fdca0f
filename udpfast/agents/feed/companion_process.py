"""The process of one agent beside the feed: `run.processes = "each"`. Started by the feed's.

What to run comes as one line of JSON through the standard input. Its end means stop: nobody can
forget this process, as the kernel closes the pipe of whoever dies. What it has to say (turns of
its loop, and the failure that ends it) goes line by line to the standard output.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from udpfast.agents.feed.companion_run import ProcessOrder, ThreadRun, describe_failure
from udpfast.agents.feed.factories import AgentFactory
from udpfast.core.log import say_error
from udpfast.errors import UdpfastError

__all__ = ["main"]

_LOOK_S = 0.1


def main(name: str, module: str) -> int:
    """Run the agent until it ends or the standard input does; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the feed comes first, and says when
    try:
        order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ProcessOrder)
        run = ThreadRun(AgentFactory(name, module), order.config, Path(order.directory))
    except Exception as failure:
        if not isinstance(failure, (OSError, UdpfastError)):  # these say it all themselves
            say_error(traceback.format_exc())
        _say(f"failure {describe_failure(failure)}")
        return 1
    stopping = False
    while True:
        ended, text = run.look()
        if ended:
            _say(f"failure {text}" if text else f"cycles {run.cycles}")
            return 1 if text else 0
        _say(f"cycles {run.cycles}")
        readable, _, _ = select.select([] if stopping else [sys.stdin], [], [], _LOOK_S)
        if readable:
            stopping = True
            run.stop()


def _say(line: str) -> None:
    # Nobody listens when the feed's process is gone: the end of the input says so too.
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the flush at exit


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
