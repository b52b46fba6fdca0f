"""Standard output and error that cannot be written: a line and an exit code, whoever printed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

import click

__all__ = ["OUTPUT_CLOSED", "drop_held", "flush_output", "is_of_output", "say_unwritten"]

#: Exit code of a command whose output was closed, as shells have it: 128 and SIGPIPE.
OUTPUT_CLOSED = 141


def is_of_output(error: OSError) -> bool:
    """Return whether an error came from printing, and not from a file or socket."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is click.echo.__code__


def say_unwritten(error: OSError) -> None:
    """Say that standard output was not written, and drop what it still holds."""
    drop_held(sys.stdout)
    with suppress(OSError):  # a log on the same disk
        click.echo(f"udpfast: standard output was not written: {error.strerror}", err=True)


def drop_held(stream: TextIO) -> None:
    """Drop what a stream's buffers still hold, which would fail once more when the process ends."""
    output = stream.fileno()
    kept, nowhere = os.dup(output), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, output)
    with suppress(OSError):
        stream.flush()
    os.dup2(kept, output)
    os.close(kept)
    os.close(nowhere)


def flush_output() -> int:
    """Write what the streams still hold; return the exit code that it wants, 0: all was written.

    Python itself would say "Exception ignored", and end with 120 whatever the command had found.
    """
    code = 0
    if (failure := _failure(sys.stdout)) is not None:
        code = OUTPUT_CLOSED if isinstance(failure, BrokenPipeError) else 1
        if code == OUTPUT_CLOSED:
            drop_held(sys.stdout)
        else:
            say_unwritten(failure)
    if (failure := _failure(sys.stderr)) is not None:
        drop_held(sys.stderr)
        code = code or int(not isinstance(failure, BrokenPipeError))
    return code


def _failure(stream: TextIO | None) -> OSError | None:
    if stream is None or stream.closed:
        return None
    try:
        stream.flush()
    except OSError as failure:
        return failure
    return None
