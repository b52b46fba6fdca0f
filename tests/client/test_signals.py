"""SIGINT and SIGTERM while a reader waits without the GIL: in processes of their own."""

import signal
import subprocess
import sys

import pytest

from tests.client.instance import Instance
from tests.waiting import PATIENCE_S
from udpfast import Kind

PROGRAM = """
import signal, sys, udpfast
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs begin without it
if "handle" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
try:
    with udpfast.Reader(sys.argv[1], idle=sys.argv[2], name="waiting") as reader:
        print("ready", flush=True)
        for record in reader:
            print(record.kind.name, flush=True)
except KeyboardInterrupt:
    print("interrupted", reader.closed, flush=True)
    raise SystemExit(130)
"""


def start(instance: Instance, environment: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    """Start the program and return once its reader waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, instance.address, *words],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    instance.append(Kind.MESSAGE, b"x")
    assert process.stdout.readline() == "MESSAGE\n"
    return process


def entries(instance: Instance) -> list[str]:
    return [path.name for path in (instance.directory / "readers").glob("*")]


@pytest.mark.parametrize("idle", ["spin", "backoff"])
def test_sigint_while_waiting_leaves_the_with_and_the_registry(
    instance: Instance, environment: dict[str, str], idle: str
) -> None:
    process = start(instance, environment, idle)
    assert len(entries(instance)) == 1
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert output == "interrupted True\n"
    assert process.returncode == 130
    assert entries(instance) == []


def test_sigterm_with_a_handler_leaves_the_with_and_the_registry(
    instance: Instance, environment: dict[str, str]
) -> None:
    process = start(instance, environment, "backoff", "handle")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7
    assert entries(instance) == []
