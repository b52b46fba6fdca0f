"""Free ports stay reserved until the program for which they are meant opens them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from udpfast.net.ports import BLOCK, free_port, free_ports


def test_kernel_gives_nobody_a_port_that_is_given_here() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_ports(2 * BLOCK)) < first


def test_other_processes_are_given_other_ports() -> None:
    own = set(free_ports(BLOCK))
    code = f"from udpfast.net.ports import *; print(*free_ports({BLOCK}))"
    run = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert own.isdisjoint(map(int, run.stdout.split()))


def test_block_is_held_to_the_end_of_a_process_which_leaves_nothing_open() -> None:
    code = "from udpfast.net.ports import *; print(free_port() - 1); input()"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    with subprocess.Popen(
        command,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        first = int(process.stdout.readline())
        with socket.socket() as sock, pytest.raises(OSError, match="in use"):
            sock.bind(("127.0.0.1", first))
        assert process.communicate("\n") == ("", "")
        assert process.returncode == 0


def test_child_is_given_other_ports_than_its_parent() -> None:
    own = set(free_ports(BLOCK))
    child = os.fork()
    if child == 0:
        os._exit(not own.isdisjoint(free_ports(BLOCK)))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_port_of_any_address_that_somebody_has_is_not_given(kind: socket.SocketKind) -> None:
    given = free_port()
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.9", given))
        assert given not in free_ports(2 * BLOCK)
